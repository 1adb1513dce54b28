r"""From a response to its final answer: after the last think tag, in the last box whose braces balance.

A whole response is never given to a parser of mathematics: measured, such a parser joins adjacent boxes with
a comma and reads `\boxed{12} ... \boxed{204}` as 12204. One box is taken out first, and plain forms of it are
made alike; what is then still no plain form is a wrong answer, not a missing one.
"""

import re
from fractions import Fraction
from typing import Final

THINK_END: Final = "</think>"
MAX_ANSWER: Final = 500
"""Characters beyond which a box holds no plain answer, and is not looked into."""
_BRACES = re.compile(r"\\(?:boxed|fbox)\s*\{|\\[{}]|[{}]")
_WRAPPED = re.compile(
    r"\\(?:text|textbf|textrm|textit|mathrm|mathbf|mathit|mbox)\s*\{([^{}]*)\}(\^\{?[0-9]\}?)?"
)
_SPACES = re.compile(r"\\[,;:!>\s]|\\(?:quad|qquad|displaystyle)\b|~|[\u00a0\u202f\u2009]")
_UNITS = re.compile(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ)|\\degree\b|°|\\?%")
_THOUSANDS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
_THIN_SPACE = re.compile(r"(?<=[0-9])\\,(?=[0-9]{3}(?![0-9]))")
_INTEGER = re.compile(r"(-?)0*([0-9]+)(?:\.0+)?")
_NUMBER = re.compile(r"-?[0-9]{1,30}(?:\.[0-9]{1,30})?")
_LAST_NUMBER = re.compile(r"(?:(?<![\w.)])-)?\$?[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?")
_BOXED_LETTER = re.compile(
    r"(?:(?:[Oo]ption|[Aa]nswer|[Cc]hoice)\b:?\s*)?(?:\(\s*([A-D])\s*\)|([A-D])\s*(?=$|[.:)\\0-9=-]))"
)
_STATED = re.compile(
    r"(?i:answer)\s*(?:(?i:is)\b)?\s*:?\s*(?:(?i:option|choice)\s*)?\**\s*\(?([A-D])\)?\**(?=\s*(?:$|[.,;\n]))"
)
_IN_BRACKETS = re.compile(r"\(([A-D])\)")


def final_part(text: str) -> str:
    """What follows the last `</think>`; the whole response where there is none."""
    return text.rpartition(THINK_END)[2]


def last_box(text: str) -> str | None:
    r"""The content of the last `\boxed{...}` or `\fbox{...}` whose braces balance."""
    last: tuple[int, str] | None = None
    open_braces: list[tuple[int, bool]] = []
    for token in _BRACES.finditer(text):
        word = token[0]
        if word == "}":
            if open_braces:
                start, is_box = open_braces.pop()
                if is_box and (last is None or start > last[0]):
                    last = start, text[start : token.start()]
        elif word not in ("\\{", "\\}"):
            open_braces.append((token.end(), len(word) > 1))
    return None if last is None else last[1]


def plain(answer: str) -> str:
    r"""A boxed answer without mark-up: `x = \text{1,234}\%.` becomes `1234`."""
    if len(answer) > MAX_ANSWER:
        return answer
    answer = answer.replace("{,}", ",").replace("\u2212", "-").replace("\\$", "").replace("$", "")
    answer = _SPACES.sub(" ", _THIN_SPACE.sub(",", answer))
    while (unwrapped := _WRAPPED.sub(_unwrapped, answer)) != answer:
        answer = unwrapped
    answer = _UNITS.sub("", answer).rpartition("=")[2].strip().rstrip(".").strip()
    while len(answer) > 1 and answer[0] == "{" and answer[-1] == "}":
        answer = answer[1:-1].strip()
    answer = _THOUSANDS.sub("", answer)
    return re.sub(r"^-\s+", "-", answer)


def integer(answer: str, most: int) -> int | None:
    """A plain answer as an integer from 0 to `most`; `073` is 73 and `204.0` is 204."""
    match = _INTEGER.fullmatch(answer)
    # A long one would be slow to read, and is beyond every bound.
    if match is None or len(match[2]) > len(str(most)):
        return None
    value = -int(match[2]) if match[1] else int(match[2])
    return value if 0 <= value <= most else None


def number(answer: str) -> Fraction | None:
    """A plain answer as an exact decimal number of at most 30 digits on either side of the point."""
    return Fraction(answer) if _NUMBER.fullmatch(answer) else None


def last_number(text: str) -> Fraction | None:
    """The last number of a text, with thousands commas and a dollar sign or without."""
    found = _LAST_NUMBER.findall(text)
    return number(found[-1].replace(",", "").replace("$", "")) if found else None


def boxed_letter(answer: str) -> str | None:
    """The letter A to D that a plain answer is or begins with: `B`, `(B)`, `B: the second`, `Option B`."""
    match = _BOXED_LETTER.match(answer)
    return match and (match[1] or match[2])


def stated_letter(text: str) -> str | None:
    """The letter of the last `Answer: B` or `answer is (B)`, else of the last `(B)`.

    A bare A is no answer: it may be the article.
    """
    found = _STATED.findall(text) or _IN_BRACKETS.findall(text)
    return found[-1] if found else None


def _unwrapped(match: re.Match[str]) -> str:
    r"""What a `\text{...}` holds; one without digits or a lone capital is a unit, as in `\text{cm}^2`."""
    inner = match[1].strip()
    return inner + (match[2] or "") if re.search(r"[0-9]|\b[A-Z]\b", inner) else " "
