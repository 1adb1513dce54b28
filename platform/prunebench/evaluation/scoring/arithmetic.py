r"""Arithmetic consistency: which of the numeric equalities that a response writes down are true?

LayerTrim (section 5.2) extracts equalities from prose and formulas, chains included, drops repeated ones and
reports the fraction that holds exactly; it does not publish its rules. These are ours: an equality stands
between two neighbouring sides of a chain, `2 * 3 = 6 = 5 + 1` having two; both sides consist of numbers,
+ - * / ^ and brackets, also as LaTeX writes them; at least one is more than a bare number. A side that a
variable, a function, a word such as `times`, `%`, `!`, an index or dots touch is none, nor is any equality
near `mod`, `remainder` or an approximation sign. Values are fractions: nothing is rounded, and nothing is
evaluated as code.
"""

import itertools
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Final

MAX_TOKENS: Final = 200
"""Of one side; nobody checks a longer one."""
MAX_BITS: Final = 50_000
"""Of the numerator or denominator of any value."""
_CONTEXT = 24
"""Characters on either side of a chain in which `mod` and its like are looked for."""

_FRACTION = re.compile(r"\\[dtc]?frac\s*\{([^{}]{1,100})\}\s*\{([^{}]{1,100})\}")
_REWRITES = (
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\\times(?![a-zA-Z])|\\cdot(?![a-zA-Z])|[×·∙⋅]"), "*"),
    (re.compile(r"\*\*"), "^"),
    (re.compile(r"\\div(?![a-zA-Z])|÷"), "/"),
    (re.compile(r"[\u2212\u2013]"), "-"),
    (re.compile(r"\\(?:left|right|displaystyle)(?![a-zA-Z])|\\[,;:!]|&"), " "),
    # A dollar sign after an operator is money; elsewhere it may be the border of a formula.
    (re.compile(r"\\\$|(?<=[=+*/(-])\$(?=[0-9])|(?<=[=+*/(-] )\$(?=[0-9])"), ""),
    (re.compile(r"\^\s*\{(-?[0-9]{1,6})\}"), r"^(\1)"),
    (re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))"), ""),
    (re.compile(r"\.{2,}|\\[lc]?dots(?![a-zA-Z])"), "…"),
    (re.compile(r"\\text\s*\{[^{}]*\}|\\q?quad(?![a-zA-Z])|\\[()\[\]]|\\\\|\.(?![0-9])"), " ; "),
    (re.compile(r"^[ \t]*\(?[0-9]{1,2}\)(?=\s)", re.MULTILINE), " ; "),
    (re.compile(r"[<>!:]=|=>"), " ; "),
    (re.compile(r"=="), "="),
    (re.compile(r"[ \t]*\n\s*(?==)"), " "),
)
_RUN = re.compile(r"[0-9.+\-*/^()= \t]+")
_TOKEN = re.compile(r"[0-9]+(?:\.[0-9]+)?|\.[0-9]+|[-+*/^()]")
_MODULAR = re.compile(r"\bmod\b|\\[pb]?mod|remainder|[≡≈]|\\equiv|\\approx|\\sim", re.IGNORECASE)
_WORDS = r"times|plus|minus|over|of|by|divided|choose|squared|cubed|hundred|thousand|million|billion|percent"
_FUNCTIONS = r"sin|cos|tan|cot|sec|csc|log|ln|lg|exp|sqrt|gcd|lcm|max|min"
_OPERATOR_BEFORE = re.compile(rf"(?:\b(?:{_WORDS}|{_FUNCTIONS})|√)\s*$", re.IGNORECASE)
_OPERAND_AFTER = re.compile(rf"\s*(?:(?:{_WORDS})\b|[b-zB-Z](?![A-Za-z])|\\[a-zA-Z]|[…√])", re.IGNORECASE)
_MAY_TOUCH_BEFORE = frozenset("$[{;\"'>⇒→\n")
_MAY_TOUCH_AFTER = frozenset("$]};:,\"'?⇒→\n")


def equalities(text: str) -> tuple[int, int]:
    """How many of the distinct equalities in a text hold, and how many there are."""
    seen: dict[tuple[str, str], bool] = {}
    for left, right in _pairs(_normalised(text)):
        key = " ".join(left), " ".join(right)
        if key in seen or (_is_bare(left) and _is_bare(right)):
            continue
        values = _value(left), _value(right)
        if None not in values:
            seen[key] = values[0] == values[1]
    return sum(seen.values()), len(seen)


def _normalised(text: str) -> str:
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    for _ in range(3):  # fractions of fractions
        text = _FRACTION.sub(r"((\1)/(\2))", text)
    return text


def _pairs(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """The tokens of neighbouring sides; a side that does not stand by itself is left out with its pairs."""
    for run in _RUN.finditer(text):
        if "=" not in run[0]:
            continue
        before, after = text[max(0, run.start() - _CONTEXT) : run.start()], text[run.end() :][:_CONTEXT]
        if _MODULAR.search(before) or _MODULAR.search(after):
            continue
        sides = [_TOKEN.findall(side)[: MAX_TOKENS + 1] for side in run[0].split("=")]
        sides[0] = _after_open(sides[0]) if _stands_left(run[0], before) else []
        sides[-1] = _before_open(sides[-1]) if _stands_right(run[0], after) else []
        yield from itertools.pairwise(sides)


def _stands_left(run: str, before: str) -> bool:
    """Whether nothing before a run of numbers belongs to its first side."""
    begins = run.lstrip()[:1]
    if begins in "+*/^)":
        return False
    touching = run[:1] not in " \t" and before[-1:] not in _MAY_TOUCH_BEFORE and not before[-1:].isspace()
    if before and touching:
        return False
    if begins == "-" and re.search(r"[\w)\]}|!%]\s*$", before):
        return False
    return _OPERATOR_BEFORE.search(before) is None


def _stands_right(run: str, after: str) -> bool:
    """Whether nothing after a run of numbers belongs to its last side."""
    if after and run[-1:] not in " \t)" and after[0] not in _MAY_TOUCH_AFTER and not after[0].isspace():
        return False
    return run.rstrip()[-1:] not in "+-*/^" and _OPERAND_AFTER.match(after) is None


def _after_open(tokens: list[str]) -> list[str]:
    """What follows the last bracket that is not closed; nothing where one is closed that was not opened."""
    opened: list[int] = []
    for place, token in enumerate(tokens):
        if token == "(":
            opened.append(place)
        elif token == ")":
            if not opened:
                return []
            opened.pop()
    return tokens[opened[-1] + 1 :] if opened else tokens


def _before_open(tokens: list[str]) -> list[str]:
    """What stands before the first bracket that was not opened, or is not closed."""
    opened: list[int] = []
    for place, token in enumerate(tokens):
        if token == "(":
            opened.append(place)
        elif token == ")":
            if not opened:
                return tokens[:place]
            opened.pop()
    return tokens[: opened[0]] if opened else tokens


def _is_bare(tokens: list[str]) -> bool:
    return len(tokens) == 1 or (len(tokens) == 2 and tokens[0] in "+-")


def _value(tokens: list[str]) -> Fraction | None:
    """The exact value; None for what is no expression, or too long or large."""
    if not tokens or len(tokens) > MAX_TOKENS:
        return None
    try:
        return _Reader(tokens).read()
    except (ArithmeticError, ValueError, RecursionError):
        return None


class _Reader:
    """Reads an expression from left to right; ValueError where it is none."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._at = 0

    def read(self) -> Fraction:
        value = self._sum()
        if self._next():
            raise ValueError
        return value

    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._next()
        self._at += 1
        return token

    def _sum(self) -> Fraction:
        value = self._product()
        while self._next() and self._next() in "+-":
            sign = 1 if self._take() == "+" else -1
            value = _bounded(value + sign * self._product())
        return value

    def _product(self) -> Fraction:
        value = self._signed()
        while self._next() and self._next() in "*/(":
            operator = self._next()
            if operator != "(":  # an opening bracket multiplies without a sign
                self._take()
            factor = self._signed()
            value = _bounded(value / factor if operator == "/" else value * factor)
        return value

    def _signed(self) -> Fraction:
        if self._next() and self._next() in "+-":
            return self._signed() if self._take() == "+" else -self._signed()
        return self._power()

    def _power(self) -> Fraction:
        base = self._atom()
        if self._next() != "^":
            return base
        self._take()
        exponent = self._signed()
        size = max(base.numerator.bit_length(), base.denominator.bit_length())
        if exponent.denominator != 1 or abs(exponent) * size > MAX_BITS:
            raise ValueError
        return base ** int(exponent)

    def _atom(self) -> Fraction:
        token = self._take()
        if token == "(":
            value = self._sum()
            if self._take() != ")":
                raise ValueError
            return value
        if not token or token in "+-*/^)" or len(token) > 50:
            raise ValueError
        return Fraction(token)


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise ValueError
    return value
