"""Perplexity as the papers print it: named recipes, each with the reading taken where its source is silent.

All of them score non-overlapping windows of token ids, every token but a window's first, and print
exp(-Σ log p / Σ scored tokens). LoRP's and FLAP's code computes exp(Σ_i (mean_i · L) / (n · L)) instead, with
mean_i the mean negative log-likelihood of the L - 1 scored tokens of window i: the same number, because all
n windows have the same L. (Released code runs in float16, where each mean_i is rounded to 11 bits: there the
printed value moves by up to 5e-4 of the exponent.)

A text starts as the model's own tokenizer starts it (`tokenizer(text)` in released code): a joined corpus
with one BOS for Llama or Mistral and none for Qwen, a corpus of separate texts with one each.

Where the readings are ours:

- `lorp_c4`: the released code takes one window of each of 256 validation documents, which it shuffles with a
  streaming buffer of 10,000 and seed 0: an order that depends on the version of `datasets` and on the hub's
  files. Here the documents come in the order of the files; which of them are long enough, and the offsets
  drawn with `random.Random(0)`, follow the code.
- `lorp_ptb`: the validation split, as in the code; the paper names none.
- `simdiff_wikitext2`: the paper states neither length, split nor joiner, and no code is released. Read: the
  test split, joined by blank lines, in windows of 2,048 tokens, the length of its calibration.
- `laco_wikipedia`: the paper says "500 sentences selected from Wikipedia" and no more. Read: the first
  sentence (to the first full stop before a space and a capital, or the end of the line) of the first 500
  articles of the English dump of 2023-11-01 that have two tokens there, at most 2,048 tokens each, one mean
  over all tokens. The calibration sentences in the released notebooks are beginnings of articles, too.
"""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from prunebench.core.fingerprint import Json
from prunebench.data.codec import Ids, TextCodec
from prunebench.data.corpus import load_corpus
from prunebench.data.read import read_documents
from prunebench.data.spec import CorpusSpec, nearest
from prunebench.data.tasks import PERPLEXITY_VERSION, Role, TaskData, version_of, window_of
from prunebench.errors import InputError

Cut: TypeAlias = Literal["joined", "window_each", "sentence_each"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Where the text comes from and how it becomes windows."""

    dataset: str
    """ORG/NAME/CONFIG."""
    split: str
    column: str
    cut: Cut
    """Windows of all documents joined, one window of each long enough document, or each first sentence."""
    join: str | None = None
    length: int
    """Tokens a window; the most a sentence may have."""
    windows: int | None = None
    """None: as many as the text gives."""
    source: str
    """Where the recipe is from."""


def _wikitext2(length: int, source: str) -> Recipe:
    return Recipe(
        dataset="Salesforce/wikitext/wikitext-2-raw-v1",
        split="test",
        column="text",
        cut="joined",
        join="\n\n",
        length=length,
        source=source,
    )


RECIPES: dict[str, Recipe] = {
    "lorp_wikitext2": _wikitext2(2048, "LoRP (arXiv 2605.27786) section 5.1, and lib/data.py of its code"),
    "lorp_ptb": Recipe(
        dataset="ptb-text-only/ptb_text_only/penn_treebank",
        split="validation",
        column="sentence",
        cut="joined",
        join="\n\n",
        length=2048,
        source="LoRP (arXiv 2605.27786) section 5.1, and lib/data.py of its code",
    ),
    "lorp_c4": Recipe(
        dataset="allenai/c4/en",
        split="validation",
        column="text",
        cut="window_each",
        length=2048,
        windows=256,
        source="LoRP (arXiv 2605.27786) section 5.1, and lib/data.py of its code",
    ),
    "simdiff_wikitext2": _wikitext2(2048, "SimDiff section 4.1.1; length, split and joiner are our reading"),
    "flap_wikitext2": _wikitext2(128, "FLAP (AAAI 2024), lib/eval.py of its code; 128 is set in main.py"),
    "laco_wikipedia": Recipe(
        dataset="wikimedia/wikipedia/20231101.en",
        split="train",
        column="text",
        cut="sentence_each",
        length=2048,
        windows=500,
        source="LaCo (EMNLP Findings 2024) section 3.6; which sentences is our reading",
    ),
}


def recipe_named(name: str) -> Recipe:
    """Look a recipe up.

    Raises:
        InputError: unknown; the sentence names the nearest one.
    """
    if name not in RECIPES:
        raise InputError(f"there is no perplexity recipe '{name}': {nearest(name, RECIPES)}")
    return RECIPES[name]


def recipe_spec(recipe: Recipe, *, mirrored: bool, windows: int | None = None) -> CorpusSpec:
    """Where a recipe reads: the mirror, or the hub."""
    kind: Literal["mirror", "hub"] = "mirror" if mirrored else "hub"
    return CorpusSpec(
        text=f"{kind}:{recipe.dataset}:{recipe.split}#{recipe.column}",
        kind=kind,
        source=recipe.dataset,
        split=recipe.split,
        column=recipe.column,
        samples=windows or recipe.windows,
        length=recipe.length,
        join=recipe.join,
    )


def recipe_task(
    recipe_name: str,
    codec: TextCodec,
    *,
    name: str,
    role: Role = "test",
    windows: int | None = None,
    mirror: Path | None = None,
) -> TaskData:
    """The windows of a recipe. Its name and every setting enter the key, so no two recipes share a column.

    Args:
        recipe_name: a name of RECIPES.
        codec: the model's tokenizer.
        name: the task's name in the store.
        role: `test`, or `selection` where a search may look.
        windows: fewer than the recipe's, its first ones; their number is in the key.
        mirror: folder that serves hub datasets; the hub without one.

    Raises:
        InputError: an unknown recipe, a missing or broken file, or too little text.
        ResourceError: a hub dataset that cannot be fetched here.
    """
    recipe = recipe_named(recipe_name)
    if windows is not None and recipe.windows is not None and windows > recipe.windows:
        raise InputError(f"task {name}: recipe {recipe_name} has {recipe.windows} windows, not {windows}")
    spec = recipe_spec(recipe, mirrored=mirror is not None, windows=windows)
    called = codec.as_called()
    if recipe.cut == "joined":
        corpus = load_corpus(spec, called, mirror=mirror, limit=None)
        rows, texts = corpus.rows, corpus.texts
    else:
        rows, texts = _separate(recipe_name, recipe, spec, called, mirror)
    facts: dict[str, Json] = {
        "recipe": recipe_name,
        "dataset": recipe.dataset,
        "split": recipe.split,
        "column": recipe.column,
        "cut": recipe.cut,
        "join": recipe.join,
        "length": recipe.length,
        "stride": None,
        "bos": "tokenizer",
        "unit": "token",
        "windows": len(rows),
    }
    return TaskData(
        name=name,
        version=version_of(PERPLEXITY_VERSION, texts),
        role=role,
        kind="perplexity",
        recipe=facts,
        documents=tuple(window_of(number, row, 1) for number, row in enumerate(rows)),
        texts=texts,
    )


def _separate(
    name: str, recipe: Recipe, spec: CorpusSpec, codec: TextCodec, mirror: Path | None
) -> tuple[tuple[Ids, ...], tuple[str, ...]]:
    """One row of each document that gives one, and the documents they are of."""
    cut = _windows if recipe.cut == "window_each" else _sentences
    found = list(cut(read_documents(spec, mirror), codec, recipe.length, spec.samples or 0))
    if len(found) < (spec.samples or 0):
        need = f"more than {recipe.length} tokens" if recipe.cut == "window_each" else "a first sentence"
        raise InputError(
            f"recipe {name} takes {spec.samples} documents with {need}, but '{spec.text}' has {len(found)}: "
            "fetch the whole split, or set windows to take fewer, which is another column"
        )
    rows, texts = (tuple(column) for column in zip(*found, strict=True))
    codec.check(rows, f"SPEC '{spec.text}'")
    return rows, texts


def _windows(
    documents: Iterator[str], codec: TextCodec, length: int, count: int
) -> Iterator[tuple[Ids, str]]:
    """A window at a drawn place of each document that is longer than it."""
    draw = random.Random(0)
    for text in documents:
        ids = codec.ids(text)
        if ids.size > length:
            start = draw.randint(0, ids.size - length - 1)
            yield ids[start : start + length], text
            count -= 1
            if count == 0:
                return


def _sentences(
    documents: Iterator[str], codec: TextCodec, length: int, count: int
) -> Iterator[tuple[Ids, str]]:
    """The first sentence of each document that has two tokens there."""
    for text in documents:
        sentence = re.split(r"(?<=\.)\s+(?=[A-Z])|\n", text.strip(), maxsplit=1)[0]
        ids = codec.ids(sentence)[:length]
        if sentence and ids.size > 1:
            yield ids, sentence
            count -= 1
            if count == 0:
                return
