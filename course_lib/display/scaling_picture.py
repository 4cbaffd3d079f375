"""The loss over the size of a model at one budget, as SVG with tables."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from course_lib.display.diagrams.drawing import Area
from course_lib.display.diagrams.scaling import amount
from course_lib.display.roofline_view import digits
from course_lib.display.scaling_chart import Chart, Mark, marks, pieces
from course_lib.display.scaling_view import Model, ScalingView, Smaller
from course_lib.display.scaling_words import even_words, range_words, remark, scaling_summary
from course_lib.display.views import THEME, percent

WIDE, HIGH = 520, 330  # of the picture, in units
PLOT = Area(56, 40, 510, 272)
STYLE = """\
.course-isoflop{--page:var(--jp-layout-color1,#fff)}
.course-isoflop .both{display:flex;flex-wrap:wrap;gap:4px 28px;align-items:flex-start}
.course-isoflop svg{flex:1 1 320px;min-width:0;max-width:540px;height:auto;display:block}
.course-isoflop .tables{flex:1 1 300px;min-width:0}
.course-isoflop text{font:16px var(--jp-ui-font-family,system-ui,sans-serif);fill:var(--ink)}
.course-isoflop .quiet{fill:var(--faint)}.course-isoflop .axis{stroke:var(--faint);fill:none}
.course-isoflop .curve{stroke:var(--ink);stroke-width:3;fill:none}
.course-isoflop .paid{stroke:var(--kept)}.course-isoflop .beyond{stroke-dasharray:6 5;stroke-width:2}
.course-isoflop .halo{stroke:var(--page);stroke-width:21;stroke-linecap:round}
.course-isoflop .dot{fill:var(--ink)}.course-isoflop .dot.paid{fill:var(--kept);stroke:none}
.course-isoflop .known{fill:var(--page);stroke:var(--ink);stroke-width:2}
.course-isoflop table{border-collapse:collapse;margin:6px 0}
.course-isoflop th,.course-isoflop td{text-align:left;padding:3px 14px 3px 0;border-bottom:1px solid var(--line);\
vertical-align:top}
.course-isoflop caption{text-align:left;color:var(--faint)}
.course-isoflop th{font-weight:600}.course-isoflop tbody th{font-weight:400;color:var(--faint)}
.course-isoflop .verdict{font-weight:600}"""


def scaling_html(view: ScalingView) -> str:
    """The curves as SVG, a table of the best models, and one of smaller models of the same loss."""
    setting, paid = view.setting, view.paid
    return (f'<div class="course course-isoflop" data-law="{escape(setting.name)}" data-flops="{setting.flops:g}" '
            f'data-served="{setting.served:g}" data-size="{view.alone.N:.4g}" '
            f'data-paid="{paid.N if paid else 0:.4g}"><style>{THEME}{STYLE}</style>'
            f'<div class="both">{chart_svg(view)}<div class="tables">{best_table(view)}{same_table(view.smaller)}'
            f'</div></div><p class="verdict" role="status">{escape(remark(view))}</p>'
            f"<p>{escape(even_words(view))}</p>{published(view)}"
            f'<p class="faint">{escape(range_words(view))} Dashed lines are extrapolated.</p></div>')


def best_table(view: ScalingView) -> str:
    """The best models, side by side."""
    def row(name: str, cells: Sequence[str]) -> str:
        return f'<tr><th scope="row">{name}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'

    heads = ["● training alone", f"■ with {amount(view.setting.served, 3)} served"][:len(view.bests)]
    rows = [("parameters", [amount(model.N, 3) for model in view.bests]),
            ("tokens", [amount(model.D, 3) for model in view.bests]),
            ("tokens per parameter", [digits(model.D / model.N) for model in view.bests]),
            ("loss", [f"{model.loss:.3f}" for model in view.bests]),
            ("of the budget, to train", [percent(part) for part in (1.0, view.training)][:len(view.bests)])]
    rows = rows if view.paid else rows[:-1]
    return (f'<table><thead><tr><td></td>{"".join(f"<th scope=col>{head}</th>" for head in heads)}</tr></thead><tbody>'
            f'{"".join(row(*one) for one in rows)}</tbody></table>')


def same_table(models: Sequence[Smaller]) -> str:
    """Smaller models of the same loss: what their training costs, and when they pay."""
    body = "".join(
        f'<tr><th scope="row">{amount(one.model.N, 3)}</th>'
        + (f"<td>{amount(one.model.D, 3)}</td><td>{digits(one.cost)} ×</td><td>{amount(one.pays_from, 3)}</td></tr>"
           if one.pays_from is not None else '<td colspan="3">never reaches it</td></tr>') for one in models)
    return ('<table><caption>smaller models with the loss of ●; the served tokens from which they pay</caption><thead>'
            '<tr><th scope="col">parameters</th><th scope="col">tokens</th><th scope="col">training</th>'
            f'<th scope="col">pays from</th></tr></thead><tbody>{body}</tbody></table>')


def published(view: ScalingView) -> str:
    """What published models are by this law."""
    each = "; ".join(f"{name}, {amount(model.D)} tokens: {digits(model.D / model.N)} per parameter, loss "
                     f"{model.loss:.3f}" for name, model in view.known)
    return f"<p>△ {escape(each)} by this law.</p>" if each else ""


def chart_svg(view: ScalingView) -> str:
    """Both curves with their lowest points: a circle for training alone, a square with the served tokens."""
    chart = Chart.of(view, PLOT)
    parts = [frame(chart)]
    for kind, models in zip(("", " paid"), view.curves):
        for inside, points in pieces(view, chart, models):
            d = " ".join(f"{x:.1f} {y:.1f}" for x, y in points)
            parts.append(f'<path class="curve{kind}{"" if inside else " beyond"}" d="M{d}"/>')
    parts += [dot(mark) for mark in marks(view, chart, 16)]
    return (f'<svg viewBox="0 0 {WIDE} {HIGH}" role="img" aria-label="{escape(scaling_summary(view))}">'
            f"{''.join(parts)}</svg>")


def dot(mark: Mark) -> str:
    """A circle, a square or a triangle with its name; the page shows around it, as the ink may be translucent."""
    x, y = mark.place
    halo = f'<path class="halo" d="M{x:.1f} {y:.1f} h0.01"/>'
    shape = {"alone": f'{halo}<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="8"/>',
             "paid": f'{halo}<rect class="dot paid" x="{x - 7:.1f}" y="{y - 7:.1f}" width="14" height="14"/>',
             "known": f'<path class="known" d="M{x - 7:.1f} {y + 6:.1f} l7 -13 l7 13 Z"/>'}[mark.kind]
    return (f'{shape}<text x="{mark.at[0]:.1f}" y="{mark.at[1]:.1f}" text-anchor="middle">{escape(mark.name)}'
            "</text>")


def frame(chart: Chart) -> str:
    """Both axes, the sizes marked at powers of ten."""
    left, top, right, bottom = chart.area
    texts = [f'<text x="{x:.1f}" y="{bottom + 22:g}" text-anchor="middle">{words}</text>'
             for x, words in chart.ticks(22)]
    texts += [f'<text x="{left - 6:g}" y="{chart.place(Model(chart.sizes[0], 1, loss))[1] + 5:.1f}" '
              f'text-anchor="end">{loss:g}</text>' for loss in chart.levels()]
    return (f'<path class="axis" d="M{left:g} {top - 8:g} V{bottom:g} H{right:g}"/>{"".join(texts)}'
            f'<text class="quiet" x="4" y="{top - 18:g}">loss</text>'
            f'<text class="quiet" x="{(left + right) / 2:g}" y="{bottom + 48:g}" text-anchor="middle">parameters'
            "</text>")
