"""The critical-difference diagram (Demšar 2006): average ranks, and bars over what is not told apart."""

from collections.abc import Callable

from markupsafe import Markup

from prunebench.report.metrics import counted
from prunebench.report.ranks import Ranking
from prunebench.report.svg import INK, cut, figure, joined, scale, tag, text

WIDTH = 850.0
SIDE = 290.0
"""Pixels for names on either side of the axis."""
TOP, STEP, BAR = 78.0, 17.0, 8.0
MOST = 40
"""Names that are drawn, the best ones."""
LETTERS = 30


def cd_diagram(found: Ranking, title: str) -> Markup:
    """The ranks of all names, the best at the left; a bar joins what is not told apart."""
    order = sorted(range(len(found.names)), key=lambda i: (found.average[i], found.names[i]))
    shown = order[:MOST]
    k = len(found.names)
    across = scale(1, k, SIDE, WIDTH - SIDE)
    groups = [group for group in found.groups if group[0] <= found.average[shown[-1]]]
    first = TOP + 14 + BAR * len(groups)
    half = (len(shown) + 1) // 2
    height = first + STEP * half + 12
    told = counted(len(found.tasks), "task")
    more = f"; the best {MOST} of {k}" if k > MOST else ""
    return figure(
        WIDTH,
        height,
        title,
        text(4, 16, f"{title}: average rank over {told}{more}", class_="head"),
        _difference(found, across(1), across(min(k, 1 + found.critical)), wide=1 + found.critical > k),
        _axis(k, across),
        joined(_bar(across(low), across(high), TOP + 10 + BAR * i) for i, (low, high) in enumerate(groups)),
        joined(
            _name(found, i, across(found.average[i]), first + STEP * n, left=True)
            for n, i in enumerate(shown[:half])
        ),
        joined(
            _name(found, i, across(found.average[i]), first + STEP * n, left=False)
            for n, i in enumerate(reversed(shown[half:]))
        ),
    )


def _difference(found: Ranking, left: float, right: float, *, wide: bool) -> Markup:
    """How long the critical difference is; an arrow where it is longer than the axis."""
    y = TOP - 30
    end = f"M{right - 6:.1f} {y - 4:.1f}L{right:.1f} {y:.1f}L{right - 6:.1f} {y + 4:.1f}"
    stop = tag("path", d=end, fill="none", stroke=INK) if wide else _tick(right, y)
    more = ", more than the whole axis" if wide else ""
    return joined(
        [
            tag("line", x1=left, x2=right, y1=y, y2=y, stroke=INK),
            _tick(left, y),
            stop,
            text(left, y - 7, f"critical difference {found.critical:.2f}{more}"),
        ]
    )


def _tick(x: float, y: float) -> Markup:
    return tag("line", x1=x, x2=x, y1=y - 4, y2=y + 4, stroke=INK)


def _axis(k: int, across: Callable[[float], float]) -> Markup:
    every = max(1, -(-k // 20))
    numbers = [number for number in range(1, k + 1) if (number - 1) % every == 0 or number == k]
    parts = [tag("line", x1=across(1), x2=across(k), y1=TOP, y2=TOP, stroke=INK)]
    for number in numbers:
        x = across(number)
        parts += [tag("line", x1=x, x2=x, y1=TOP - 5, y2=TOP, stroke=INK)]
        parts += [text(x, TOP - 9, str(number), anchor="middle", class_="faint")]
    return joined(parts)


def _bar(low: float, high: float, y: float) -> Markup:
    return tag("line", x1=low - 3, x2=high + 3, y1=y, y2=y, stroke=INK, stroke_width=4)


def _name(found: Ranking, i: int, x: float, y: float, *, left: bool) -> Markup:
    """The name at the side, and a line from it to its place on the axis."""
    end = SIDE - 10 if left else WIDTH - SIDE + 10
    name, rank = found.names[i], f"{found.average[i]:.2f}"
    shown = cut(name, LETTERS)
    path = f"M{x:.1f} {TOP:.1f}L{x:.1f} {y:.1f}L{end:.1f} {y:.1f}"
    told = f"{shown}  {rank}" if left else f"{rank}  {shown}"
    return joined(
        [
            tag("path", d=path, fill="none", stroke=INK, stroke_width=0.8),
            tag(
                "text",
                tag("title", f"{name}: average rank {rank}, win rate {found.wins[i]:.0%}"),
                told,
                x=end - 5 if left else end + 5,
                y=y + 4,
                text_anchor="end" if left else "start",
            ),
        ]
    )
