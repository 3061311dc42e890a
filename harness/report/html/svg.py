"""Elements of an SVG inside the page; whatever text they hold is escaped."""

from __future__ import annotations

from markupsafe import Markup, escape

from cluster_image.telemetry.printable import printable


def tag(name: str, *children: str, **attributes: object) -> Markup:
    """An SVG element. All text is escaped; `class_` is class, `_` in other names is a hyphen, floats are rounded."""
    written = Markup("").join(
        Markup(' {}="{}"').format(
            key.rstrip("_").replace("_", "-"), f"{value:.6g}" if isinstance(value, float) else value
        )
        for key, value in attributes.items()
    )
    inside = Markup("").join(child if isinstance(child, Markup) else escape(printable(child)) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(name, written, inside)


def text_at(x: float, y: float, text: str, *, css: str | None = None, anchor: str | None = None) -> Markup:
    attributes = {"class_": css, "text_anchor": anchor}
    return tag("text", text, x=x, y=y, **{key: value for key, value in attributes.items() if value})
