"""Stage 1: calibration shards and weight statistics, each computed once and kept in the store."""

import functools
import operator
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from prunebench.core.fingerprint import sha256_json
from prunebench.core.stats import CalibrationStats
from prunebench.core.unit import CalibrateItem, StatsDone, WeightsItem, WorkItem
from prunebench.data.corpus import Corpus
from prunebench.pipeline.prepare import Subject
from prunebench.pipeline.session import Session
from prunebench.pipeline.together import shards_together
from prunebench.store.artifacts import load_stats, save_stats

SHARD_TOKENS = 2048
"""Shards are the longest runs of whole rows up to this many tokens: fixed, whatever the number of workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was measured of one subject, serialised; absent entries failed (see the session's failures)."""

    calibrations: Mapping[str, bytes]
    weights: bytes | None


def shards(corpus: Corpus) -> list[tuple[int, int]]:
    """Row ranges (start, stop) of the corpus, in order."""
    bounds, start, tokens = [], 0, 0
    for i, row in enumerate(corpus.rows):
        if i > start and tokens + len(row) > SHARD_TOKENS:
            bounds.append((start, i))
            start, tokens = i, 0
        tokens += len(row)
    return [*bounds, (start, len(corpus.rows))]


def measure(session: Session, subjects: Iterable[Subject]) -> dict[str, Seen]:
    """Measure what the subjects' methods need and the store does not have yet; by model name."""
    subjects = tuple(subjects)
    items: list[WorkItem] = []
    steps = 0
    for subject in subjects:
        weights = _missing_weights(session, subject)
        items += weights
        steps += len(weights)
        for name in subject.calibrations:
            missing = list(_missing_shards(session, subject, name))
            steps += len(missing)
            if subject.entry.streamed:
                items += shards_together(missing, subject.checkpoint.shape, subject.entry.dtype)
            else:
                items += missing
    session.work("calibrate", items, steps)
    return {subject.name: seen_in(session, subject) for subject in subjects}


def seen_in(session: Session, subject: Subject) -> Seen:
    """What the store holds of the subject's measurements; whole shards are merged, in shard order."""
    merged = {}
    for name, corpus in subject.calibrations.items():
        source = subject.source(name)
        data = load_stats(session.store, source)
        if data is None:
            parts = [load_stats(session.store, _shard_key(source, *bounds)) for bounds in shards(corpus)]
            whole = [part for part in parts if part is not None]
            if len(whole) < len(parts):
                continue
            stats = functools.reduce(operator.add, (CalibrationStats.from_bytes(part) for part in whole))
            data = stats.to_bytes()
            save_stats(session.store, StatsDone(key=source, data=data, seconds=0.0))
        merged[name] = data
    needs = weight_needs(subject)
    weights = load_stats(session.store, weights_key(subject)) if needs else None
    return Seen(calibrations=merged, weights=weights)


def weight_needs(subject: Subject) -> frozenset[str]:
    """Which weight statistics the subject's methods need: weights, cka or none."""
    needed = {need for request in subject.requests for need in request.method.needs(request.params)}
    return frozenset(needed & {"weights", "cka"})


def weights_key(subject: Subject) -> str:
    """Name of the subject's weight statistics in the store."""
    return sha256_json({"weights": subject.checkpoint.weights_id, "cka": "cka" in weight_needs(subject)})


def _shard_key(source: str, start: int, stop: int) -> str:
    return sha256_json({"source": source, "start": start, "stop": stop})


def _missing_shards(session: Session, subject: Subject, name: str) -> Iterator[CalibrateItem]:
    corpus, source = subject.calibrations[name], subject.source(name)
    if load_stats(session.store, source) is not None:
        return
    for start, stop in shards(corpus):
        key = _shard_key(source, start, stop)
        if load_stats(session.store, key) is None:
            yield CalibrateItem(key=key, model=subject.name, source=source, rows=corpus.rows[start:stop])


def _missing_weights(session: Session, subject: Subject) -> list[WeightsItem]:
    if not weight_needs(subject) or load_stats(session.store, weights_key(subject)) is not None:
        return []
    cka = "cka" in weight_needs(subject)
    return [WeightsItem(key=weights_key(subject), model=subject.name, cka=cka)]
