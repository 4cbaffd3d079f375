"""Training as pictures: a loss curve that grows, and one weight on its noisy way down. Data, SVG and HTML.

Pure functions, as in `course_lib.display.views`: the same arguments give the same text, and every text is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from random import Random

from matplotlib.figure import Figure
from matplotlib.style import context

from course_lib.config import require
from course_lib.display import plots, views

Points = Sequence[tuple[float, float]]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 420, 230, 46, 92, 14, 42  # of one chart, and the margins in it
START = -3.0  # where the weight of `descend` begins
STYLE = """\
.course-chart svg{display:block;width:100%;max-width:840px;height:auto}
.course-chart text{font-size:13px;fill:var(--ink)}.course-chart .faint{fill:var(--faint)}
.course-chart .end{text-anchor:end}.course-chart .middle{text-anchor:middle}
.course-chart line{stroke:var(--line)}.course-chart line.level{stroke:var(--ink);stroke-dasharray:5 3}
.course-chart path{fill:none;stroke-width:2.2}.course-chart path.c0{stroke:var(--kept)}
.course-chart path.c1{stroke:#d55e00;stroke-dasharray:6 3}
.course-chart ol{list-style:none;margin:4px 0;padding:0;max-width:840px}
.course-chart li{margin:3px 0;padding-left:10px;border-left:3px solid var(--line);overflow-wrap:anywhere}"""


@dataclass(frozen=True)
class Frame:
    """The axes of one chart: what they measure, and from where to where."""

    xlabel: str
    ylabel: str
    x: tuple[float, float]
    y: tuple[float, float]

    def place(self, x: float, y: float) -> tuple[float, float]:
        """A point on the page; what lies outside the axes is drawn at their edge."""
        across, up = (min(max((value - low) / (high - low), 0), 1)
                      for value, (low, high) in ((x, self.x), (y, self.y)))
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """At most `most` round numbers from low to high.

    >>> ticks(0, 500), ticks(-3.2, 1)
    ([0, 200, 400], [-2, 0])
    """
    require(low < high, "low, high", (low, high), "two numbers in order")
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(power * digit for digit in (1, 2, 5, 10, 20) if (high - low) / (power * digit) <= most - 1)
    first = math.ceil(low / step - 1e-9)
    values = [round(i * step, 9) for i in range(first, math.floor(high / step + 1e-9) + 1)]
    return [int(value) if value == int(value) else value for value in values]


def chart(frame: Frame, series: Mapping[str, Points], *, level: tuple[str, float] | None = None) -> str:
    """Lines with their names at their ends, as SVG; at most two.

    Args:
        series: by name, points from left to right; a line of no points is left out.
        level: a name and a height for a dashed horizontal line.
    """
    parts = []
    for value in ticks(*frame.y):
        x, y = frame.place(frame.x[0], value)
        parts.append(f'<line x1="{x:.1f}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
                     f'<text class="end faint" x="{x - 6:.1f}" y="{y + 4:.1f}">{value:g}</text>')
    for value in ticks(*frame.x):
        x, y = frame.place(value, frame.y[0])
        parts.append(f'<text class="middle faint" x="{x:.1f}" y="{y + 17:.1f}">{value:,g}</text>')
    parts.append(f'<text class="middle faint" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}">'
                 f'{escape(frame.xlabel)}</text><text class="faint" x="2" y="11">{escape(frame.ylabel)}</text>')
    names = []
    if level is not None:
        x, y = frame.place(frame.x[0], level[1])
        parts.append(f'<line class="level" x1="{x:.1f}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        names.append((level[0], WIDTH - RIGHT, y))
    for i, (name, points) in enumerate(series.items()):
        places = [frame.place(*point) for point in points]
        if places:
            parts.append(f'<path class="c{i}" d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in places)}"/>')
            names.append((name, *places[-1]))
    return "".join(parts) + name_tags(names)


def name_tags(names: Sequence[tuple[str, float, float]]) -> str:
    """Names to the right of their points (name, x, y), from top to bottom, none over another."""
    tags, lowest = [], -math.inf
    for name, x, y in sorted(names, key=lambda entry: entry[2]):
        lowest = max(y + 4, lowest + 15)
        tags.append(f'<text x="{x + 5:.1f}" y="{lowest:.1f}">{escape(name)}</text>')
    return "".join(tags)


def picture(charts: Sequence[str], about: str) -> str:
    """Charts side by side as one SVG."""
    groups = "".join(f'<g transform="translate({i * WIDTH} 0)">{chart}</g>' for i, chart in enumerate(charts))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH * len(charts)} {HEIGHT}" role="img" '
            f'aria-label="{escape(about)}" style="max-width:{WIDTH * len(charts)}px">{groups}</svg>')


def training_html(log: Sequence[Mapping[str, float]], samples: Sequence[tuple[int, str]], *, steps: int,
                  chance: float) -> str:
    """A loss curve as far as it has come, and texts written on the way.

    Args:
        log: entries as `course_lib.training.train.train` logs them, `val_loss` included.
        samples: pairs of a step and a text.
        steps: of the whole run, the width of the chart.
        chance: the loss of a uniform guess, where the curve begins.
    """
    series = {name: [(0, chance), *((entry["step"], entry[key]) for entry in log)] if log else []
              for name, key in (("training", "loss"), ("validation", "val_loss"))}
    step, last = (log[-1]["step"], log[-1]) if log else (0, {"loss": chance, "val_loss": chance, "seconds": 0})
    status = (f"Step {step:,} of {steps:,}: loss {last['loss']:.2f}, validation {last['val_loss']:.2f} nats, "
              f"{last['seconds']:.0f} s")
    frame = Frame("step", "loss, nats per token", (0, steps), (0, math.ceil(chance)))
    items = "".join(f"<li><b>{at:,}</b> {escape(text)}</li>" for at, text in samples)
    return (f'<div class="course course-chart" data-step="{step}" data-samples="{len(samples)}">'
            f'<style>{views.THEME}{STYLE}</style>{picture([chart(frame, series)], status)}'
            f'<p role="status"><b>{status}</b></p><ol aria-label="texts written during training, by step">{items}'
            "</ol></div>")


def training_figure(log: Sequence[Mapping[str, float]], *, chance: float) -> Figure:
    """The still picture of a training: both losses, from the loss of a uniform guess on. Arguments as above."""
    steps = [0, *(entry["step"] for entry in log)]
    return plots.lines({name: (steps, [chance, *(entry[key] for entry in log)])
                        for name, key in (("training", "loss"), ("validation", "val_loss"))},
                       xlabel="step", ylabel="loss, nats per token")


def samples_html(samples: Sequence[tuple[int, str]]) -> str:
    """Texts written during training, as a list that needs no style sheet."""
    items = "".join(f"<li><b>step {at:,}:</b> {escape(text)}</li>" for at, text in samples)
    return f'<ul aria-label="texts written during training, by step">{items}</ul>'


@dataclass(frozen=True)
class Descent:
    """One weight on its way to the logarithm of the odds.

    Attributes:
        rates: the learning rate of each step.
        weights: before the first step and after each one.
        best: where the mean loss is lowest.
    """

    rates: tuple[float, ...]
    weights: tuple[float, ...]
    best: float

    @property
    def distance(self) -> float:
        """How far from the best the last weight is."""
        return abs(self.weights[-1] - self.best)


def descend(share: float, rates: Sequence[float], seed: int, *, start: float = START) -> Descent:
    """Stochastic gradient descent on a coin: the model says sigmoid(w), each step sees one throw.

    Args:
        share: of throws that are 1, in (0, 1).
        rates: one learning rate for each step.
        seed: of the throws.
    """
    require(0 < share < 1, "share", share, "in (0, 1)")
    rng, weights = Random(seed), [start]
    for rate in rates:
        outcome = float(rng.random() < share)
        weights.append(weights[-1] - rate * (sigmoid(weights[-1]) - outcome))
    return Descent(tuple(rates), tuple(weights), math.log(share / (1 - share)))


def sigmoid(w: float) -> float:
    """1 / (1 + e^-w), without overflow.

    >>> sigmoid(0), sigmoid(-1000)
    (0.5, 0.0)
    """
    return 1 / (1 + math.exp(-w)) if w > -700 else 0.0


def descent_summary(descent: Descent) -> str:
    """Where the weight ended, in words."""
    return (f"After {len(descent.rates)} steps the weight is {descent.weights[-1]:.2f}, {descent.distance:.2f} from "
            f"the best, {descent.best:.2f}.")


def descent_html(descent: Descent) -> str:
    """The learning rate by step, and beside it the weight."""
    steps = len(descent.rates)
    top = max(*descent.rates, 1e-9)
    low, high = min(-4.0, *descent.weights), max(3.0, *descent.weights)
    rate = chart(Frame("step", "learning rate", (0, steps), (0, 1.05 * top)),
                 {"rate": list(enumerate(descent.rates))})
    weight = chart(Frame("step", "weight", (0, steps), (max(low, -20.0), min(high, 20.0))),
                   {"weight": list(enumerate(descent.weights))}, level=("best", descent.best))
    said = descent_summary(descent)
    return (f'<div class="course course-chart" data-distance="{descent.distance:.4f}" data-peak="{top:.4g}" '
            f'data-first="{descent.rates[0]:.4g}"><style>{views.THEME}{STYLE}</style>{picture([rate, weight], said)}'
            f'<p role="status"><b>{said}</b></p></div>')


def descent_figure(descent: Descent) -> Figure:
    """The still picture of `schedule_widget`: the rate on the left, the weight on the right."""
    steps = len(descent.rates)
    figure, left = plots.blank("step", "learning rate")
    with context(plots.LOOK):
        right = figure.add_subplot(1, 2, 2)
        left.set_subplotspec(right.get_gridspec()[0])
        left.set_title("the schedule", loc="left", fontsize=12)
        right.set_title("the weight that follows it", loc="left", fontsize=12)
        left.plot(range(steps), descent.rates, color=plots.OKABE_ITO["blue"], linewidth=2)
        left.set_ylim(bottom=0)
        right.axhline(descent.best, color=plots.INK, linestyle="--", linewidth=1)
        right.annotate(f"dashed: best, {descent.best:.2f}", (0.98, 0.04), xycoords="axes fraction", ha="right",
                       fontsize=9)
        right.plot(range(steps + 1), descent.weights, color=plots.OKABE_ITO["vermilion"], linewidth=2)
        right.set_xlabel("step")
        right.set_ylabel("weight")
    return figure
