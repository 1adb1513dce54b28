"""`builtin:pydoc[:split]`: the help topics that ship with Python, about 465,000 characters of English and
code.

Topics repeat one another (the topic of compound statements holds those of `if` and `for`), so topics that
share a paragraph or a run of text stay together. The largest group is the `calibration` split; the others
are dealt out in order of size, each to the split that is furthest below its share. No two splits share
text. Another Python has other topics: what is read here enters keys through token ids and document hashes.
"""

import functools
from pydoc_data.topics import topics

from prunebench.data.content import content_of
from prunebench.data.spec import nearest
from prunebench.errors import InputError

_SHARES = {"choice": 5, "perplexity": 2, "selection": 2, "probe": 1, "alpha": 1, "merge": 1}
SPLITS = ("calibration", *_SHARES)
"""`perplexity` and `choice` are test text; `selection` is what a search may look at; `alpha` is SimDiff's
probe corpus, `merge` LaCo's, `probe` any other method's."""


def pydoc_texts(split: str = "") -> tuple[str, ...]:
    """The topics of a split (all of them without one), in order of their names.

    Raises:
        InputError: a split that does not exist.
    """
    if split and split not in SPLITS:
        raise InputError(f"builtin:pydoc has no split '{split}': {nearest(split, SPLITS)}")
    return tuple(topics[name] for name in (_splits()[split] if split else sorted(topics)))


def _groups() -> list[list[str]]:
    """Topics that share text, largest group first."""
    group_of = {name: [name] for name in sorted(topics)}
    owner: dict[int, str] = {}
    for name in sorted(topics):
        for number in content_of(topics[name]):
            ours, theirs = group_of[name], group_of[owner.setdefault(number, name)]
            if ours is not theirs:
                theirs += ours
                group_of |= dict.fromkeys(ours, theirs)
    groups = [sorted(group) for group in {id(group): group for group in group_of.values()}.values()]
    return sorted(groups, key=lambda group: (-_characters(group), group))


def _characters(names: list[str]) -> int:
    return sum(len(topics[name]) for name in names)


@functools.cache
def _splits() -> dict[str, list[str]]:
    """Names of the topics of each split, sorted."""
    largest, *others = _groups()
    dealt: dict[str, list[str]] = {split: [] for split in _SHARES}
    for group in others:
        neediest = min(_SHARES, key=lambda split: _characters(dealt[split]) / _SHARES[split])
        dealt[neediest] += group
    return {"calibration": largest} | {split: sorted(names) for split, names in dealt.items()}
