"""The house style of the course's drawings: boxes are data with their shapes, arrows are operations.

A `Drawing` collects marks in the order in which they are painted and writes them as one SVG that carries its own
paper, light or dark as the reader's system asks, a title and a description. Its colours are the roles of
`course_lib.display.colors`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from html import escape
from typing import NamedTuple

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from course_lib.config import require
from course_lib.display.colors import ROLES

SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
WIDTH = 720  # units; at 390 pixels a unit is half a pixel, so type is 17 and up
SMALL, NORMAL, LARGE = 17, 19, 22
TINT = 0.16  # how much of its role's colour the inside of a box takes
ANCHORS = {"start": 0.0, "middle": 0.5, "end": 1.0}

Point = tuple[float, float]


class Area(NamedTuple):
    """A rectangle on the paper."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Area) -> bool:
        """Whether the two have more than an edge in common."""
        return (self.left < other.right and other.left < self.right
                and self.top < other.bottom and other.top < self.bottom)


class Drawing:
    """An SVG in the house style.

    Args:
        title: what is drawn, in a few words; a screen reader speaks it first.
        description: what the drawing says, for a reader who cannot see it.
        width, height: in units; the SVG scales to the page.
    """

    def __init__(self, title: str, description: str, *, height: float, width: float = WIDTH) -> None:
        require(bool(title.strip()), "title", title, "a few words")
        require(bool(description.strip()), "description", description, "a sentence")
        self.title, self.description = title, description
        self.width, self.height = width, height
        self.parts: list[str] = []
        self.texts: list[tuple[str, Area]] = []  # what is written where, so that tests see collisions
        self.used: set[tuple[str, str]] = set()  # (property, role), for the colours on dark paper

    # Marks

    def text(self, x: float, y: float, text: str, *, size: float = NORMAL, role: str = "ink", anchor: str = "middle",
             bold: bool = False, mono: bool = False) -> None:
        """A line of text whose base line begins, has its middle or ends at (x, y)."""
        width = text_width(text, size, bold=bold, mono=mono)
        left = x - ANCHORS[anchor] * width
        self.texts.append((text, Area(left, y - 0.75 * size, left + width, y + 0.22 * size)))
        weight, family = ' font-weight="600"' if bold else "", escape(MONO if mono else SANS)
        self.parts.append(f'<text x="{number(x)}" y="{number(y)}" font-size="{number(size)}" text-anchor="{anchor}"'
                          f'{weight} font-family="{family}" {self.paint(fill=role)}>{escape(text)}</text>')

    def rect(self, area: Area, *, fill: str | None = None, stroke: str | None = None, tint: float = 1.0,
             thick: float = 2, radius: float = 6, dashed: bool = False, hatched: bool = False) -> None:
        """A rectangle; `tint` is how much of the fill shows, `hatched` marks what was removed."""
        left, top, right, bottom = area
        shape = (f'x="{number(left)}" y="{number(top)}" width="{number(right - left)}" '
                 f'height="{number(bottom - top)}" rx="{number(radius)}"')
        self.parts.append(f"<rect {shape} {self.paint(fill, stroke, thick=thick, tint=tint, dashed=dashed)}/>")
        if hatched:
            self.used |= {("stroke", "faint")}
            self.parts.append(f'<rect {shape} fill="url(#{self.name}-hatch)"/>')

    def box(self, area: Area, value: str = "", shape: str = "", *, role: str = "ink", mono: bool = True,
            size: float = NORMAL, hatched: bool = False, fill: str | None = None) -> None:
        """Data: its outline in the colour of its role, what it is in this example, and its shape beneath."""
        fill = fill or ("plain" if role == "ink" else role)
        self.rect(area, fill=fill, tint=1 if role == "ink" else TINT, stroke=role, hatched=hatched)
        x, y = (area.left + area.right) / 2, (area.top + area.bottom) / 2
        lines = [(value, size, "ink", mono)] * bool(value) + [(shape, SMALL, "faint", False)] * bool(shape)
        y -= sum(1.25 * size for _, size, *_ in lines) / 2
        for text, its_size, its_role, its_mono in lines:
            y += 1.25 * its_size
            self.text(x, y - 0.36 * its_size, text, size=its_size, role=its_role, mono=its_mono)

    def path(self, points: Sequence[Point], *, stroke: str = "ink", fill: str | None = None, thick: float = 2.2,
             arrow: bool = False, dashed: bool = False, curved: bool = False, closed: bool = False,
             tint: float = 1.0) -> None:
        """A line through points, or a curve: cubic through (start, control, control, end, control, control, end ...).

        Args:
            arrow: a head at the last point.
        """
        places = [f"{number(x)} {number(y)}" for x, y in points]
        d = f"M{places[0]} {'C' if curved else 'L'}{' '.join(places[1:])}{' Z' if closed else ''}"
        head = ""
        if arrow:
            self.used.add(("fill", stroke))
            head = f' marker-end="url(#{self.name}-{stroke})"'
        self.parts.append(f'<path d="{d}" {self.paint(fill, stroke, thick=thick, tint=tint, dashed=dashed)}{head}/>')

    def arrow(self, start: Point, end: Point, *, stroke: str = "ink", thick: float = 2.2, dashed: bool = False) -> None:
        """An operation: a straight line with a head."""
        self.path([start, end], stroke=stroke, thick=thick, arrow=True, dashed=dashed)

    def circle(self, x: float, y: float, radius: float, *, fill: str | None = None, stroke: str | None = None,
               tint: float = 1.0, thick: float = 2, dashed: bool = False) -> None:
        """A circle around (x, y)."""
        self.parts.append(f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(radius)}" '
                          f"{self.paint(fill, stroke, thick=thick, tint=tint, dashed=dashed)}/>")

    def tag(self, x: float, y: float, text: str, *, role: str = "plain", stroke: str | None = None,
            radius: float = 0.7 * SMALL) -> float:
        """A word on a spot of colour that begins at x, its base line at y. Returns where the next one may begin."""
        width = text_width(text, SMALL) + 16
        self.rect(Area(x, y - 1.06 * SMALL, x + width, y + 0.44 * SMALL), fill=role, stroke=stroke, thick=1.4,
                  radius=radius)
        self.text(x + width / 2, y, text, size=SMALL)
        return x + width + 7

    # The file

    @property
    def name(self) -> str:
        """The title as an identifier, which keeps two drawings on one page apart."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")

    def paint(self, fill: str | None = None, stroke: str | None = None, *, thick: float = 2, tint: float = 1.0,
              dashed: bool = False) -> str:
        """The colours of a mark: on light paper as attributes, on dark paper by class."""
        names = {"fill": fill, "stroke": stroke}
        for role in filter(None, names.values()):
            require(role in ROLES, "role", role, ", ".join(ROLES))
        self.used |= {(prop, role) for prop, role in names.items() if role}
        classes = " ".join(f"{prop[0]}-{role}" for prop, role in names.items() if role)
        parts = [f'fill="{ROLES[fill][0]}"' if fill else 'fill="none"']
        if fill and tint < 1:
            parts.append(f'fill-opacity="{number(tint)}"')
        if stroke:
            parts.append(f'stroke="{ROLES[stroke][0]}" stroke-width="{number(thick)}" stroke-linejoin="round"')
        if dashed:
            parts.append('stroke-dasharray="6 5"')
        return " ".join([*parts, *([f'class="{classes}"'] if classes else [])])

    def svg(self) -> str:
        """The drawing as text of an SVG file, the same bytes each time."""
        paper = Area(1, 1, self.width - 1, self.height - 1)
        background = Drawing(self.title, self.description, height=self.height, width=self.width)
        background.rect(paper, fill="paper", stroke="line", thick=1, radius=10)
        self.used |= background.used
        heads = "".join(f'<marker id="{self.name}-{role}" viewBox="0 0 10 10" refX="8.5" refY="5" markerWidth="6.5" '
                        f'markerHeight="6.5" orient="auto-start-reverse"><path d="M0 0 L10 5 L0 10 z" '
                        f'{self.paint(fill=role)}/></marker>'
                        for role in ROLES if f'url(#{self.name}-{role})' in "".join(self.parts))
        hatch = (f'<pattern id="{self.name}-hatch" width="9" height="9" patternUnits="userSpaceOnUse" '
                 f'patternTransform="rotate(45)"><path d="M0 0 V9" {self.paint(stroke="faint", thick=2.4)}/></pattern>'
                 if "-hatch)" in "".join(self.parts) else "")
        dark = "".join(f".{prop[0]}-{role}{{{prop}:{ROLES[role][1]}}}" for prop, role in sorted(self.used))
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {number(self.width)} {number(self.height)}" '
                f'role="img" aria-labelledby="{self.name}-title {self.name}-description">'
                f'<title id="{self.name}-title">{escape(self.title)}</title>'
                f'<desc id="{self.name}-description">{escape(self.description)}</desc>'
                f"<style>@media (prefers-color-scheme: dark){{{dark}}}</style><defs>{heads}{hatch}</defs>\n"
                + "\n".join([*background.parts, *self.parts]) + "\n</svg>\n")


def number(x: float) -> str:
    """A coordinate with at most one decimal.

    >>> [number(x) for x in (2, 2.0, 2.25, -0.01)]
    ['2', '2', '2.2', '0']
    """
    text = f"{x:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


@lru_cache(maxsize=4096)
def text_width(text: str, size: float, *, bold: bool = False, mono: bool = False) -> float:
    """How wide a line is in DejaVu, which is wider than the fonts that readers have."""
    font = FontProperties(family="DejaVu Sans Mono" if mono else "DejaVu Sans", weight="bold" if bold else "normal")
    return float(TextPath((0, 0), text.replace(" ", "n"), size=size, prop=font).get_extents().width) if text else 0.0
