"""A map of words by their rows in the embedding table, with the neighbours of one word: data, SVG and HTML.

Pure functions, as in `course_lib.display.views`: the same arguments give the same text, and every word is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor

from course_lib.analysis.geometry import TINY, Projection, principal_axes
from course_lib.config import require
from course_lib.display import plots, views

Groups = Mapping[str, Mapping[str, int]]  # kind of word -> word -> id
Place = tuple[float, float]
Box = tuple[float, float, float, float]  # left, top, right, bottom
WIDTH, HEIGHT, EDGE = 820, 430, 26
CHARACTER, LINE, BESIDE = 7.0, 13, 11  # what a name takes, about, and how far from its place it begins
STYLE = """\
.course-map svg{display:block;width:100%;max-width:820px;height:auto}
.course-map text{font-size:12px;fill:var(--ink)}
.course-map text.word{font-size:13px;font-weight:600}.course-map .ring{fill:none;stroke:var(--ink);stroke-width:2}
.course-map ol{margin:2px 0;columns:2;max-width:640px}.course-map li{break-inside:avoid}
.course-map bdi{font-family:var(--mono)}.course-map .key{margin-right:14px;white-space:nowrap}
.course-map .key svg{display:inline-block;width:14px;height:14px;vertical-align:-2px;margin-right:4px}
.course-map path{stroke:var(--faint);stroke-width:.7}
""" + "".join(f".course-map .g{i}{{fill:{'var(--ink)' if color == plots.OKABE_ITO['black'] else color}}}"
              for i, color in enumerate(plots.CYCLE))
# One outline for each group, around (0, 0): colour alone tells nobody enough.
SHAPES = ("M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0Z", "M-4 -4H4V4H-4Z", "M0 -5.5L5 4H-5Z", "M0 -6L6 0L0 6L-6 0Z",
          "M0 5.5L5 -4H-5Z", "M-2 -6H2V-2H6V2H2V6H-2V2H-6V-2H-2Z", "M0 -6L5.7 -1.9L3.5 4.9L-3.5 4.9L-5.7 -1.9Z",
          "M-6 -3L-3 -6L0 -3L3 -6L6 -3L3 0L6 3L3 6L0 3L-3 6L-6 3L-3 0Z")


@dataclass(frozen=True)
class WordMap:
    """Words of some kinds in the two directions in which their rows differ most.

    Attributes:
        points: for each kind its words and their coordinates.
        kinds: all that there are, those that are not drawn as well; their order decides colours and shapes.
        projection: to place any other row on the same map.
    """

    points: dict[str, dict[str, Place]]
    kinds: tuple[str, ...]
    projection: Projection

    @property
    def share(self) -> float:
        """Of the variance of these words' rows, what the map shows."""
        return float(self.projection.shares.sum())

    def place(self, row: Tensor) -> Place:
        """Where a row (D,) lies."""
        x, y = self.projection(row).tolist()
        return x, y


@dataclass(frozen=True)
class Neighbour:
    """A token near the chosen word: its text, cosine and, if it is a word of a group, that group."""

    text: str
    cosine: float
    kind: str | None
    row: Tensor


def word_map(weight: Tensor, groups: Groups, chosen: Collection[str] | None = None) -> WordMap:
    """The map of all words of the groups, or of the chosen ones.

    Args:
        weight: (V, D), on the CPU.
        groups: at most eight.
        chosen: some of the groups, with at least three words in all.
    """
    kinds = [kind for kind in groups if chosen is None or kind in chosen]
    require(len(groups) <= len(SHAPES), "groups", list(groups), f"at most {len(SHAPES)} kinds of words")
    ids = [id for kind in kinds for id in groups[kind].values()]
    require(len(ids) >= 3, "number of words on the map", len(ids), "at least 3: choose a kind of words")
    projection = principal_axes(weight[ids])
    places = iter(projection(weight[ids]).tolist())
    points = {kind: {word: tuple(next(places)) for word in groups[kind]} for kind in kinds}
    return WordMap(points, tuple(groups), projection)


def neighbours_of(weight: Tensor, tokenizer: Any, groups: Groups,
                  found: Sequence[tuple[int, float]]) -> list[Neighbour]:
    """What there is to say about each (id, cosine)."""
    kinds = {id: kind for kind, words in groups.items() for id in words.values()}
    return [Neighbour(views.visible(tokenizer.decode_single_token_bytes(id)), cosine, kinds.get(id), weight[id])
            for id, cosine in found]


def map_html(view: WordMap, word: str, row: Tensor, neighbours: Sequence[Neighbour]) -> str:
    """The map with the word and its neighbours ringed, and beneath it the neighbours as a list."""
    keys = "".join(f'<span class="key"><svg viewBox="-7 -7 14 14" aria-hidden="true">{mark(view, kind)}</svg>'
                   f'{escape(kind)} ({len(words)})</span>' for kind, words in view.points.items())
    items = "".join(f"<li><bdi>{escape(n.text)}</bdi> {n.cosine:.2f}{escape(f', {n.kind}' if n.kind else '')}</li>"
                    for n in neighbours)
    texts = " ".join(n.text for n in neighbours)
    return (f'<div class="course course-map" data-kinds="{len(view.points)}" data-word="{escape(word)}" '
            f'data-neighbours="{escape(texts)}"><style>{views.THEME}{STYLE}</style><p>{keys}</p>'
            f'{map_svg(view, word, row, neighbours)}<p class="faint">Two directions, which show '
            f'{views.percent(view.share)} of the variance of these rows. Point at a mark to read its word.</p>'
            f'<p role="status"><b>Nearest to {escape(repr(word))}</b>, by cosine, in the whole vocabulary:</p>'
            f"<ol>{items}</ol></div>")


def mark(view: WordMap, kind: str) -> str:
    """The outline of a kind, filled in its colour."""
    number = view.kinds.index(kind)
    return f'<path class="g{number}" d="{SHAPES[number]}"/>'


def map_svg(view: WordMap, word: str, row: Tensor, neighbours: Sequence[Neighbour]) -> str:
    """A mark for each word, rings around the word and its neighbours; names where there is room."""
    points = [(kind, name, at) for kind, words in view.points.items() for name, at in words.items()]
    rings = [(word, view.place(row))] + [(n.text.removeprefix("␣"), view.place(n.row)) for n in neighbours]
    on_page = page_scale([at for *_, at in points] + [at for _, at in rings])
    marks = "".join(f'<g transform="translate({x:.1f} {y:.1f})">{mark(view, kind)}<title>{escape(name)}</title></g>'
                    for kind, name, (x, y) in ((kind, name, on_page(at)) for kind, name, at in points))
    circles = "".join(f'<circle class="ring" cx="{x:.1f}" cy="{y:.1f}" r="{7 if i else 10}"/>'
                      for i, (x, y) in enumerate(on_page(at) for _, at in rings))
    ringed = {name for name, _ in rings}
    wanted = rings + [(name, at) for _, name, at in points if name not in ringed]
    named = labels([(name, on_page(at)) for name, at in wanted],
                   [on_page(at) for *_, at in points] + [on_page(at) for _, at in rings], first=len(rings))
    texts = "".join(f'<text class="{"near" if i else "word"}" x="{x:.1f}" y="{y:.1f}">{escape(name)}</text>'
                    for i, (name, (x, y)) in enumerate(named))
    about = f"Map of {len(points)} words of {len(view.points)} kinds; {word!r} and its neighbours are ringed."
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-label="{escape(about)}">{marks}{circles}{texts}</svg>')


def page_scale(places: Sequence[Place]) -> Callable[[Place], Place]:
    """A function from coordinates to the page that puts all the places inside, y upwards, both axes alike."""
    xs, ys = zip(*places)
    spans = max(xs) - min(xs), max(ys) - min(ys)
    scale = min((WIDTH - 4 * EDGE) / max(spans[0], TINY), (HEIGHT - 2 * EDGE) / max(spans[1], TINY))
    left, top = (WIDTH - scale * spans[0]) / 2, (HEIGHT - scale * spans[1]) / 2
    return lambda at: (left + scale * (at[0] - min(xs)), top + scale * (max(ys) - at[1]))


def labels(wanted: Sequence[tuple[str, Place]], marks: Sequence[Place] = (), *,
           first: int = 0) -> list[tuple[str, Place]]:
    """Where to write which names: right or left of their places, first come first served, none over another.

    Args:
        marks: places to leave free as well; one name for each may lie over them.
    """
    written: list[tuple[str, Place]] = []
    texts: list[Box] = []
    obstacles = [(x - 5, y - 5, x + 5, y + 5) for x, y in marks]
    for i, (name, (x, y)) in enumerate(wanted):
        width = CHARACTER * len(name)
        sides = [(left, y - LINE / 2, left + width, y + LINE / 2) for left in (x + BESIDE, x - BESIDE - width)]
        free = [box for box in sides if is_free(box, [*texts, *obstacles])]
        free += [box for box in sides if i < first and is_free(box, texts)]
        if free:
            texts.append(free[0])
            written.append((name, (free[0][0], y + 4)))
    return written


def is_free(box: Box, taken: Sequence[Box]) -> bool:
    """Whether a box lies on the page and on none of the others."""
    inside = box[0] > 0 and box[2] < WIDTH
    return inside and all(box[0] > b[2] or b[0] > box[2] or box[1] > b[3] or b[1] > box[3] for b in taken)


def map_figure(view: WordMap, ringed: Mapping[str, Place] | None = None) -> Figure:
    """The map as a still picture, with rings around some tokens, which join the map where they are no word of it."""
    ringed, words = ringed or {}, {word for named in view.points.values() for word in named}
    others = {text: at for text, at in ringed.items() if text not in words}
    first, second = view.projection.shares.tolist()
    figure = plots.scatter(view.points | ({"other neighbours": others} if others else {}),
                           xlabel=f"first direction ({first:.0%} of the variance)",
                           ylabel=f"second direction ({second:.0%})")
    if ringed:
        figure.axes[0].scatter(*zip(*ringed.values()), s=70, facecolors="none", edgecolors="black", linewidths=1.4)
    return figure
