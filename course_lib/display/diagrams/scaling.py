"""Scaling laws: one budget cut into size and text, and a loss cut into its three terms."""

from __future__ import annotations

from course_lib.analysis.scaling_law import ScalingLaw
from course_lib.config import require
from course_lib.display.diagrams.drawing import SMALL, Area, Drawing

UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K"))
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
MIDDLES, SIDE, FLOOR = (178.0, 388.0, 598.0), 66.0, 272.0  # of three rectangles: where, a side, where they end
VALLEY = Area(60, 412, 704, 528)
TINTS = {"plain": 1, "weights": 0.5, "latency": 1}  # of the terms of the law
EDGE, BAR, ROW = 22, 44, 100  # of stacked bars: where they begin, how high one is, and how far they are apart


def amount(value: float, digits: int = 2) -> str:
    """Parameters or tokens with their unit.

    >>> amount(694.6e6), amount(11.1e9), amount(1.158e12, 3), amount(950)
    ('690 M', '11 B', '1.16 T', '950')
    """
    value = float(f"{value:.{digits}g}")
    scale, unit = next(((scale, " " + unit) for scale, unit in UNITS if value >= scale), (1, ""))
    return f"{float(f'{value / scale:.{digits}g}'):,.15g}{unit}"


def power(value: float) -> str:
    """A number of operations as a power of ten.

    >>> power(1e21), power(7.23e23), power(9.99e5)
    ('10²¹', '7.2 × 10²³', '10⁶')
    """
    head, exponent = f"{value:.1e}".split("e")
    times = "" if head == "1.0" else f"{head.removesuffix('.0')} × "
    return f"{times}10{str(int(exponent)).translate(RAISED)}"


# One budget


def isoflop(flops: float, law: ScalingLaw, name: str, *, factor: float = 3) -> Drawing:
    """Rectangles of size times text, all of the same area, over the valley of their losses.

    Args:
        flops: the budget.
        law, name: where the losses come from.
        factor: how much smaller and larger than the best the two others are, 2 to 3.
    """
    require(2 <= factor <= 3, "factor", factor, "2 to 3")
    best = law.optimal(flops)
    models = [(best[0] * k, best[1] / k) for k in (1 / factor, 1.0, factor)]
    losses = [law.loss(*model) for model in models]
    sizes, texts = ([amount(value) for value in column] for column in zip(*models))
    drawing = Drawing("One budget, three ways to spend it",
                      f"Three rectangles, as high as a model is large and as wide as its text is long. Each has the "
                      f"same area, {power(flops)} FLOPs. Small and overfed: {sizes[0]} parameters, {texts[0]} tokens, "
                      f"loss {losses[0]:.2f}. Balanced: {sizes[1]}, {texts[1]}, loss {losses[1]:.2f}. Large and "
                      f"starved: {sizes[2]}, {texts[2]}, loss {losses[2]:.2f}. Below, the loss over the size is a "
                      f"flat valley with the balanced one at its lowest point.", height=588)
    drawing.text(360, 34, "the same area: the same budget, 6 × size × text", bold=True)
    for x, k, size, text, words in zip(MIDDLES, (1 / factor, 1.0, factor), sizes, texts,
                                       ("small, overfed", "balanced", "large, starved")):
        wide, high = SIDE / k, SIDE * k
        rectangle(drawing, Area(x - wide / 2, FLOOR - high, x + wide / 2, FLOOR))
        drawing.text(x, FLOOR - high - 10, f"{power(flops)} FLOPs", size=SMALL)
        drawing.text(x - wide / 2 - 10, FLOOR - high / 2 + 6, size, size=SMALL, anchor="end")
        drawing.text(x, FLOOR + 28, f"{text} tokens", size=SMALL)
        drawing.text(x, FLOOR + 66, words, bold=True)
    drawing.text(12, FLOOR - SIDE / factor / 2 - 20, "parameters", size=SMALL, role="faint", anchor="start")
    valley(drawing, flops, law, factor, losses)
    drawing.text(VALLEY.left, 568, f"losses by the law of {name}", size=SMALL, role="faint", anchor="start")
    return drawing


def rectangle(drawing: Drawing, area: Area) -> None:
    """Size times text: the grey edge is the size, the blue one the text."""
    drawing.rect(area, fill="cost", tint=0.6, radius=0)
    drawing.path([(area.left, area.top), (area.left, area.bottom)], stroke="weights", thick=6)
    drawing.path([(area.left - 3, area.bottom), (area.right, area.bottom)], stroke="latency", thick=6)


def valley(drawing: Drawing, flops: float, law: ScalingLaw, factor: float, losses: list[float]) -> None:
    """The loss over the size, a dot under each rectangle."""
    step = MIDDLES[1] - MIDDLES[0]

    def loss(x: float) -> float:
        N = law.optimal(flops)[0] * factor ** ((x - MIDDLES[1]) / step)
        return law.loss(N, flops / 6 / N)

    xs = [VALLEY.left + 10 * i for i in range(int((VALLEY.right - VALLEY.left) / 10) + 1)]
    low, high = losses[1], max(loss(xs[0]), loss(xs[-1]))
    bottom = low - 0.22 * (high - low)  # where the axis of the loss begins

    def height(value: float) -> float:
        return VALLEY.bottom - (value - bottom) / (high - bottom) * (VALLEY.bottom - VALLEY.top)

    drawing.path([(VALLEY.left, VALLEY.top - 34), (VALLEY.left, VALLEY.bottom), (VALLEY.right, VALLEY.bottom)],
                 stroke="faint")
    drawing.text(VALLEY.left - 10, VALLEY.top - 24, "loss", size=SMALL, role="faint", anchor="end")
    for y, value in ((VALLEY.bottom, bottom), (VALLEY.top, high)):
        drawing.text(VALLEY.left - 6, y + 6, f"{value:.2f}", size=SMALL, role="faint", anchor="end")
    drawing.text(VALLEY.right, 568, "larger model →", size=SMALL, role="faint", anchor="end")
    for x, value in zip(MIDDLES, losses):
        drawing.path([(x, FLOOR + 78), (x, height(value) - 12)], stroke="faint", thick=1.6, dashed=True)
    drawing.path([(x, height(loss(x))) for x in xs], thick=3)
    for x, value, dx, dy, anchor in zip(MIDDLES, losses, (16, 16, -16), (-2, -12, -2), ("start", "start", "end")):
        drawing.circle(x, height(value), 9, fill="ink")
        drawing.text(x + dx, height(value) + dy, f"{value:.2f}", anchor=anchor, bold=value == low)


# One loss


def split(N: float, D: float, law: ScalingLaw, name: str, *, factor: float = 10) -> Drawing:
    """The loss of three models as stacked terms of the law: one, one of more parameters, and one of more tokens.

    Args:
        N, D: parameters and tokens of the first.
        law, name: whose terms they are; without a gamma.
        factor: of the parameters and of the tokens, 2 to 100.
    """
    require(law.gamma == 1 and law.E > 0, "law", law, "a sum of three terms")
    require(2 <= factor <= 100, "factor", factor, "2 to 100")
    models = ((N, D), (factor * N, D), (N, factor * D))
    terms = [(law.E, law.A / n**law.alpha, law.B / d**law.beta) for n, d in models]
    first, *others = map(sum, terms)
    drawing = Drawing("What size buys, what text buys, and what nothing buys",
                      f"The loss by the law of {name} as stacked bars. {amount(N)} parameters and {amount(D)} tokens: "
                      f"E {law.E:.2f}, size {terms[0][1]:.2f} and text {terms[0][2]:.2f} make {first:.2f}. "
                      f"{factor:g} times the size: only its part shrinks, to {terms[1][1]:.2f}; loss {others[0]:.2f}. "
                      f"{factor:g} times the text: only its part shrinks, to {terms[2][2]:.2f}; loss {others[1]:.2f}. "
                      f"What is saved is hatched. E is the same in all three.", height=132 + ROW * 2 + BAR + 92)
    scale = 568 / first
    formula(drawing)
    for i, (heading, parts) in enumerate(zip((f"{amount(N)} parameters, {amount(D)} tokens",
                                              f"{factor:g} × the parameters", f"{factor:g} × the tokens"), terms)):
        top = 132 + ROW * i
        drawing.text(EDGE, top - 14, heading, bold=True, anchor="start")
        stack(drawing, top, parts, first, scale)
    x, bottom = EDGE + scale * law.E, 132 + ROW * 2 + BAR
    drawing.path([(x, 126), (x, bottom + 20)], thick=4)
    drawing.text(x, bottom + 42, f"no size and no text gets below E = {law.E:.2f}", size=SMALL)
    drawing.text(360, drawing.height - 18, f"numbers by the law of {name}", size=SMALL, role="faint")
    drawing.text(700, 118, "loss", size=SMALL, role="faint", anchor="end")
    return drawing


def formula(drawing: Drawing) -> None:
    """The law, each term in a box of the colour that it has in the bars."""
    drawing.text(EDGE, 46, "loss  =", anchor="start")
    x: float = 100
    for words, fill, wide in (("E", "plain", 60), ("A / N^α : the size", "weights", 216),
                              ("B / D^β : the text", "latency", 216)):
        drawing.rect(Area(x, 20, x + wide, 62), fill=fill, tint=TINTS[fill], stroke="ink", thick=1.4, radius=0)
        drawing.text(x + wide / 2, 47, words)
        x += wide
        if fill != "latency":
            drawing.text(x + 20, 47, "+")
        x += 40


def stack(drawing: Drawing, top: float, parts: tuple[float, ...], whole: float, scale: float) -> None:
    """A bar of three terms, what it lacks of the first one's length hatched, and its length in figures."""
    x: float = EDGE
    for value, fill in zip(parts, ("plain", "weights", "latency")):
        drawing.rect(Area(x, top, x + scale * value, top + BAR), fill=fill, tint=TINTS[fill], stroke="ink", thick=1.4,
                     radius=0)
        drawing.text(x + scale * value / 2, top + 29, f"{value:.2f}", size=SMALL)
        x += scale * value
    if whole - sum(parts) > 1e-9:
        drawing.rect(Area(x, top, EDGE + scale * whole, top + BAR), fill="plain", stroke="faint", thick=1.4, radius=0,
                     hatched=True)
        drawing.text(EDGE + scale * whole, top - 14, f"−{whole - sum(parts):.2f}", anchor="end", size=SMALL)
    drawing.text(698, top + 29, f"{sum(parts):.2f}", anchor="end", bold=True)
