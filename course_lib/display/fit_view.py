"""Whether a model fits a device: weights and caches as one bar against the memory, as data, as HTML and as a still.

Pure functions; the bytes of the cache come from the formula that is given, which may be the reader's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape

from course_lib.config import ModelConfig, require
from course_lib.costs import largest_batch, weight_bytes
from course_lib.display.colors import ROLES
from course_lib.display.diagrams.drawing import NORMAL, SMALL, Area, Drawing, text_width
from course_lib.display.views import THEME, count

# (config, positions, batch_size, bytes_per_number) to bytes
CacheBytes = Callable[[ModelConfig, int, int, float], float]
DEVICES = {"24 GB (RTX 4090)": 24e9, "48 GB (L40S)": 48e9, "80 GB (H100)": 80e9, "141 GB (H200)": 141e9,
           "8 × 80 GB (a server)": 640e9}
PRECISIONS = {"32 bits": 4.0, "16 bits": 2.0, "8 bits": 1.0, "4 bits": 0.5}
LEFT_OUT = "Activations and the runtime's own memory are not in the bar."
WIDE, HIGH = 640, 46  # of the bar, in units
STYLE = f"""\
.course-fit svg{{width:100%;max-width:{WIDE}px;height:auto;display:block}}
.course-fit text{{font:15px var(--jp-ui-font-family,system-ui,sans-serif);fill:var(--ink)}}
.course-fit .weights{{fill:{ROLES["weights"].light}}}.course-fit .cache{{fill:var(--cache)}}
.course-fit .room{{fill:none;stroke:var(--ink);stroke-width:2;stroke-dasharray:6 4}}
.course-fit .verdict{{font-weight:600}}"""


@dataclass(frozen=True)
class FitView:
    """What a model with its caches takes, and what there is.

    Attributes:
        model, device: their names.
        weights, row, memory: bytes of the weights, of the cache of one text, and of the device.
        batch, context: texts at once, and positions of each.
        largest: the most texts that fit; 0 where the weights alone do not leave room for one.
    """

    model: str
    device: str
    weights: float
    row: float
    memory: float
    batch: int
    context: int
    largest: int

    @property
    def cache(self) -> float:
        """Bytes of all caches."""
        return self.batch * self.row

    @property
    def fits(self) -> bool:
        """Whether all of it is in the memory."""
        return self.weights + self.cache <= self.memory


def fit_view(name: str, config: ModelConfig, device: str, *, context: int, batch: int, precision: str = "16 bits",
             cache_bytes: CacheBytes) -> FitView:
    """Add up what a model takes on a device.

    Args:
        name: of the model; `config` is its shape.
        device: one of `DEVICES`.
        context: positions of each text, in [1, max_position_embeddings].
        batch: texts at once, at least 1.
        precision: of the weights, one of `PRECISIONS`; the cache has 16 bits a number.
        cache_bytes: the formula for the cache.

    Raises:
        ValueError: a setting is out of its range.
    """
    require(device in DEVICES, "device", device, f"one of {', '.join(DEVICES)}")
    require(precision in PRECISIONS, "precision", precision, f"one of {', '.join(PRECISIONS)}")
    require(1 <= context <= config.max_position_embeddings, "context", context,
            f"in [1, {config.max_position_embeddings}], the positions of {name}")
    require(batch >= 1, "batch", batch, ">= 1")
    weights, memory = weight_bytes(config, PRECISIONS[precision]), DEVICES[device]
    row = cache_bytes(config, context, 1, 2)
    return FitView(name, device, weights, row, memory, batch, context, largest_batch(memory, weights, row))


def size(nbytes: float) -> str:
    """Bytes in three digits.

    >>> [size(n) for n in (5_120, 2_684_354, 1_073_741_824, 141e9)]
    ['5.12 kB', '2.68 MB', '1.07 GB', '141 GB']
    """
    power = next((p for p, unit in enumerate(("kB", "MB", "GB"), 1) if nbytes < 999.5 * 1000**p), 4)
    return f"{nbytes / 1000**power:.3g} {('kB', 'MB', 'GB', 'TB')[power - 1]}"


def fit_summary(view: FitView) -> str:
    """The verdict in words."""
    what = f"{view.model} with {count(view.batch, 'text')} of {count(view.context, 'token')}"
    if view.weights > view.memory:
        return f"{what} does not fit: the weights alone, {size(view.weights)}, are larger than {size(view.memory)}."
    most = f"At most {count(view.largest, 'text')} of this length fit." if view.largest else "Not one text fits."
    taken = f"{size(view.weights)} of weights and {size(view.cache)} of cache"
    if view.fits:
        return f"{what} fits: {taken}, of {size(view.memory)}. {most}"
    return f"{what} does not fit: {taken} are more than {size(view.memory)}. {most}"


def fit_html(view: FitView) -> str:
    """The bar as SVG, with its verdict."""
    scale = WIDE / (1.02 * max(view.memory, view.weights + view.cache))
    room, weights, cache = (scale * n for n in (view.memory, view.weights, view.cache))
    words = escape(fit_summary(view))
    return (f'<div class="course course-fit" data-largest="{view.largest}" data-fits="{str(view.fits).lower()}" '
            f'data-cache="{view.cache:.0f}"><style>{THEME}{STYLE}</style>'
            f'<svg viewBox="0 0 {WIDE} {HIGH + 40}" role="img" aria-label="{words}">'
            f'<rect class="weights" x="1" y="26" width="{weights:.1f}" height="{HIGH}"/>'
            f'<rect class="cache" x="{1 + weights:.1f}" y="26" width="{cache:.1f}" height="{HIGH}"/>'
            f'<rect class="room" x="1" y="22" width="{room:.1f}" height="{HIGH + 8}"/>'
            f'<text x="1" y="15"><tspan class="weights">■</tspan> weights {size(view.weights)} + '
            f'<tspan class="cache">■</tspan> cache {size(view.cache)}; dashed: {escape(view.device)}</text></svg>'
            f'<p class="verdict" role="status">{words}</p>'
            f'<p class="faint">One text of {count(view.context, "token")} takes {size(view.row)} of cache. {LEFT_OUT}'
            "</p></div>")


def fit_drawing(view: FitView) -> Drawing:
    """The still picture: weights and caches as one bar, in a dashed frame as long as the memory."""
    drawing = Drawing("Will it fit?", fit_summary(view), height=174)
    left, scale = 30, 660 / max(view.memory, view.weights + view.cache)
    weights, cache, room = (left + scale * n for n in (view.weights, view.weights + view.cache, view.memory))
    drawing.rect(Area(left, 62, weights, 104), fill="weights", radius=0)
    drawing.rect(Area(weights, 62, cache, 104), fill="cache", radius=0)
    drawing.rect(Area(left, 57, room, 109), stroke="ink", dashed=True, radius=0)
    words = f"weights {size(view.weights)}", f"cache {size(view.cache)}"
    second = left + 24 + text_width(words[0], NORMAL, bold=True) + 28
    for x, word, role in ((left, words[0], "weights"), (second, words[1], "cache")):
        drawing.rect(Area(x, 22, x + 16, 38), fill=role, radius=0)
        drawing.text(x + 24, 36, word, anchor="start", bold=True)
    drawing.text(left, 136, f"dashed: {view.device}", size=SMALL, role="faint", anchor="start")
    drawing.text(left, 160, LEFT_OUT, size=SMALL, role="faint", anchor="start")
    return drawing
