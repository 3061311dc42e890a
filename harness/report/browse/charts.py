"""Small charts as SVG inside a page: a line through points, and bars over time. Colours are the style sheet's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from harness.report.html.svg import tag, text_at

WIDTH: Final = 560.0
HEIGHT: Final = 190.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 12.0, 14.0, 28.0
_TICKS: Final = 4


@dataclass(frozen=True)
class Point:
    """label: what is said of it when it is pointed at. tone: a class, e.g. "fail". y: None: there is none. link: where
    it leads to."""

    y: float | None
    label: str
    tone: str = ""
    link: str = ""


def line(points: Sequence[Point], title: str, unit: str, ends: tuple[str, str], *, most: float | None = None) -> Markup:
    """One point after the other, as far apart from each other: their order is time. ends: what stands below the first
    and the last. most: the top of the axis."""
    known = [point.y for point in points if point.y is not None]
    if not known:
        return Markup("")
    top = most if most is not None else _ceiling(max(known))
    step = (WIDTH - _LEFT - _RIGHT) / max(len(points) - 1, 1)

    def place(number: int, y: float) -> tuple[float, float]:
        x = _LEFT + number * step if len(points) > 1 else (WIDTH + _LEFT) / 2
        return x, HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * min(max(y, 0.0) / top, 1.0)

    parts = [*_axis(top, unit), *_ends(*ends)]
    path, open_ = [], False
    for number, point in enumerate(points):
        if point.y is None:
            open_ = False
            continue
        x, y = place(number, point.y)
        path.append(f"{'L' if open_ else 'M'}{x:.1f} {y:.1f}")
        open_ = True
    parts.append(tag("path", d=" ".join(path), class_="trend"))
    for number, point in enumerate(points):
        if point.y is not None:
            x, y = place(number, point.y)
            dot = tag("circle", tag("title", point.label), cx=x, cy=y, r=4.0, class_=f"dot {point.tone}".strip())
            parts.append(tag("a", dot, href=point.link, aria_label=point.label) if point.link else dot)
    said = (
        f"{title}: {len(known)} values from {min(known):,.4g} to {max(known):,.4g} {unit}, the latest {known[-1]:,.4g}"
    )
    return _drawing(parts, said)


def bars(values: Sequence[float], title: str, unit: str, first: str, last: str) -> Markup:
    """Equal spans of time. first, last: what stands below the two ends of the axis."""
    if not values:
        return Markup("")
    top = _ceiling(max(values))
    room = WIDTH - _LEFT - _RIGHT
    width = room / len(values)
    parts = [*_axis(top, unit), *_ends(first, last)]
    for number, value in enumerate(values):
        height = (HEIGHT - _TOP - _BOTTOM) * value / top
        parts.append(tag("rect", x=_LEFT + number * width, y=HEIGHT - _BOTTOM - height, width=max(width - 0.5, 0.5),
                         height=height, class_="bar-of"))  # fmt: skip
    return _drawing(parts, f"{title}: at most {max(values):,.4g} {unit}, the latest {values[-1]:,.4g}")


def _axis(top: float, unit: str) -> list[Markup]:
    parts = []
    for number in range(_TICKS + 1):
        value = top * number / _TICKS
        y = HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * number / _TICKS
        parts.append(tag("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=y, y2=y, class_="grid"))
        parts.append(text_at(_LEFT - 6, y + 4, f"{value:,.4g}{unit if unit == '%' else ''}", css="tick", anchor="end"))
    return parts


def _ends(first: str, last: str) -> list[Markup]:
    of_the_last = text_at(WIDTH - _RIGHT, HEIGHT - 8, last, css="tick", anchor="end")
    return [text_at(_LEFT, HEIGHT - 8, first, css="tick"), *([of_the_last] if last != first else [])]


def _drawing(parts: Sequence[Markup], said: str) -> Markup:
    inside = tag("title", said), *parts
    return tag("svg", *inside, viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}", role="group", aria_label=said, class_="chart")


def _ceiling(value: float) -> float:
    """The next of 1, 2, 4, 8 times a power of ten: a quarter of it is a round number."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 8, 10) if value <= step * power * 1.0000001)
