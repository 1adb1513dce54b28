"""What a store holds, in a few numbers."""

from pathlib import Path

from prunebench.core.fingerprint import Json
from prunebench.store.generations import GENERATION_TABLE
from prunebench.store.layout import check_store
from prunebench.store.read import read_failures, read_results, read_runs, read_samples, read_variants


def summarise(root: Path) -> dict[str, Json]:
    """Counts of runs, variants, units, samples, generations, results and open failures.

    Raises:
        InputError: no store, or a torn file.
    """
    check_store(root)
    runs, variants, samples = read_runs(root), read_variants(root), read_samples(root)
    results, failures = read_results(root), read_failures(root)
    unfinished = failures[~failures["superseded"].astype(bool)]
    last = runs.sort_values("started_at").iloc[-1] if len(runs) else None
    return {
        "store": str(root),
        "runs": len(runs),
        "last_run": None if last is None else str(last["run_id"]),
        "last_run_status": None if last is None else str(last["status"]),
        "variants": len(variants),
        "plans": int(variants["plan_id"].nunique()) if len(variants) else 0,
        "units": int(samples["unit_id"].nunique()) if len(samples) else 0,
        "samples": len(samples),
        "generations": len(GENERATION_TABLE.keys(root)),
        "results": len(results),
        "results_not_ok": int((results["status"] != "ok").sum()) if len(results) else 0,
        "open_failures": int(unfinished["key"].nunique()) if len(unfinished) else 0,
    }
