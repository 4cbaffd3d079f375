"""The roofline of a machine with the steps of a model under it: as SVG with a table, and as a still picture."""

from __future__ import annotations

import math
from dataclasses import replace
from html import escape

from course_lib.display.colors import ROLES
from course_lib.display.diagrams.drawing import Area, Drawing
from course_lib.display.diagrams.log_axes import ON, Axes, bandwidth, in_flops, powers
from course_lib.display.diagrams.roof import roofline
from course_lib.display.roofline_view import (
    BOUNDS,
    Phase,
    RooflineView,
    digits,
    dollars,
    duration,
    memory_words,
    named,
    reason,
    roofline_summary,
)
from course_lib.display.views import THEME, count

WIDE, HIGH = 520, 320  # of the picture, in units
PLOT = Area(66, 34, 510, 264)
STYLE = f"""\
.course-roof{{--page:var(--jp-layout-color1,#fff)}}
.course-roof .both{{display:flex;flex-wrap:wrap;gap:4px 28px;align-items:center}}
.course-roof svg{{flex:1 1 320px;min-width:0;max-width:{WIDE}px;height:auto;display:block}}
.course-roof text{{font:16px var(--jp-ui-font-family,system-ui,sans-serif);fill:var(--ink)}}
.course-roof .quiet{{fill:var(--faint)}}.course-roof .axis{{stroke:var(--faint);fill:none}}
.course-roof .memory{{stroke:{ROLES["weights"].light};stroke-width:5;fill:none}}
.course-roof .compute{{stroke:#c98a00;stroke-width:5;fill:none}}
.course-roof .ridge{{stroke:var(--faint);stroke-dasharray:5 4}}
.course-roof .dot{{fill:var(--ink);stroke:var(--page);stroke-width:2}}
.course-roof .hanging{{fill:var(--page);stroke:var(--ink);stroke-width:3}}
.course-roof .lost{{stroke:var(--ink);stroke-dasharray:3 3}}
.course-roof table{{border-collapse:collapse;margin:6px 0}}
.course-roof th,.course-roof td{{text-align:left;padding:3px 14px 3px 0;border-bottom:1px solid var(--line);\
vertical-align:top}}
.course-roof th{{font-weight:600}}.course-roof tbody th{{font-weight:400;color:var(--faint)}}
.course-roof .verdict{{font-weight:600}}"""


def roofline_html(view: RooflineView) -> str:
    """The roof as SVG, a table of both phases, and what it means."""
    return (f'<div class="course course-roof" data-decode="{view.decode.limit}" data-prefill="{view.prefill.limit}" '
            f'data-machines="{view.machines}" data-batch="{view.batch}" data-rate="{view.decode.rate:.4g}">'
            f'<style>{THEME}{STYLE}</style><div class="both">{roof_svg(view)}{table(view)}</div>'
            f'<p class="verdict" role="status">{escape(reason(view))}</p>'
            f"<p>Critical batch: {digits(view.critical)} rows. {escape(memory_words(view))}</p>"
            f'<p class="faint">{BOUNDS}</p></div>')


def table(view: RooflineView) -> str:
    """Both phases, side by side."""
    prefill, decode = view.prefill, view.decode
    rows = (("time", f"{duration(prefill.dot.seconds)} to the first token", f"{duration(decode.dot.seconds)} a step"),
            ("limited by", prefill.limit, decode.limit),
            ("tokens/s", digits(prefill.rate), f"{digits(decode.rate)} in all"),
            ("for one user", "", f"{digits(decode.rate / view.batch)} tokens/s"),
            ("a million tokens", price(prefill, "in"), price(decode, "out")))
    body = "".join(f'<tr><th scope="row">{name}</th><td>{left}</td><td>{right}</td></tr>' for name, left, right in rows)
    return (f'<table><thead><tr><td></td><th scope="col">■ prefill, {count(view.context, "token")}</th>'
            f'<th scope="col">● decode, {count(view.batch, "row")}</th></tr></thead><tbody>{body}</tbody></table>')


def price(phase: Phase, way: str) -> str:
    """What a million tokens cost."""
    return "no price known" if phase.dollars is None else f"{dollars(phase.dollars)} {way}"


def roof_svg(view: RooflineView) -> str:
    """The roof, its ridge and the two dots: a square for prefill, a circle for decode, hollow below the roof."""
    machine, axes = view.machine, axes_of(view)
    (x0, y0), (x1, y1), (x2, _) = axes.roof(machine)
    slope, name = math.degrees(math.atan2(y1 - y0, x1 - x0)), bandwidth(machine)
    if math.hypot(x1 - x0, y1 - y0) > 220:  # else there is no room for more
        name = f"memory roof, {name}"
    return (f'<svg viewBox="0 0 {WIDE} {HIGH}" role="img" aria-label="{escape(roofline_summary(view))}">{frame(axes)}'
            f'<path class="ridge" d="M{x1:.1f} {y1:.1f} V{PLOT.bottom:g}"/>'
            f'<path class="memory" d="M{x0:.1f} {y0:.1f} L{x1:.1f} {y1:.1f}"/>'
            f'<path class="compute" d="M{x1:.1f} {y1:.1f} H{x2:.1f}"/>'
            f'<text text-anchor="middle" transform="translate({(x0 + x1) / 2:.1f} {(y0 + y1) / 2:.1f}) '
            f'rotate({slope:.1f})" dy="-9">{name}</text>'
            f'<text x="{x2:.1f}" y="{y1 - 12:.1f}" text-anchor="end">compute roof, '
            f"{in_flops(machine.flops_per_s)}</text>"
            f'<text class="quiet" x="{x1 - 6:.1f}" y="{PLOT.bottom - 8:g}" text-anchor="end">ridge '
            f"{digits(machine.balance)}</text>{dots(view, axes)}</svg>")


def axes_of(view: RooflineView) -> Axes:
    """The axes, the same for every batch that the machine has memory for."""
    return Axes.around(view.machine, view.ends, PLOT)


def frame(axes: Axes) -> str:
    """Both axes, marked at powers of ten."""
    scale, unit = (1e12, "T") if axes.y[1] >= 1e13 else (1e9, "G")
    marks = [f'<text x="{axes.right(v):.1f}" y="{PLOT.bottom + 20:g}" text-anchor="middle">{v:,g}</text>'
             for v in powers(*axes.x)]
    marks += [f'<text x="{PLOT.left - 6:g}" y="{axes.height(v) + 5:.1f}" text-anchor="end">{v / scale:,g}</text>'
              for v in powers(*axes.y)]
    return (f'<path class="axis" d="M{PLOT.left:g} {PLOT.top:g} V{PLOT.bottom:g} H{PLOT.right:g}"/>{"".join(marks)}'
            f'<text class="quiet" x="4" y="{PLOT.top - 16:g}">{unit}FLOP/s</text>'
            f'<text class="quiet" x="{(PLOT.left + PLOT.right) / 2:g}" y="{PLOT.bottom + 44:g}" text-anchor="middle">'
            "FLOPs for each byte read</text>")


def dots(view: RooflineView, axes: Axes) -> str:
    """Both dots with their names under the roof, one name lower if they are too close."""
    parts, taken = [], []
    ridge = axes.right(view.machine.balance)
    for step in (view.prefill.dot, view.decode.dot):
        x, y = axes.place(step)
        kind = "dot"
        if step.share_of(view.machine) < ON:
            kind, top = "dot hanging", axes.height(step.speed / step.share_of(view.machine))
            parts.append(f'<path class="lost" d="M{x:.1f} {top:.1f} V{y:.1f}"/>')
        parts.append(f'<rect class="{kind}" x="{x - 7:.1f}" y="{y - 7:.1f}" width="14" height="14"/>'
                     if step is view.prefill.dot else f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="7"/>')
        flat = x > ridge
        left, low = (x, y + 28) if flat else (x + 12, y + 22)
        while any(abs(left - a) < 80 and abs(low - b) < 18 for a, b in taken):
            low += 20
        taken.append((left, low))
        parts.append(f'<text x="{left:.1f}" y="{low:.1f}" text-anchor="{"middle" if flat else "start"}">'
                     f"{step.name}</text>")
    return "".join(parts)


def roofline_drawing(view: RooflineView) -> Drawing:
    """The still picture: the same roof with both dots."""
    prefill = replace(view.prefill.dot, side="below", more=duration(view.prefill.dot.seconds))
    side = "right" if view.decode.dot.intensity < view.machine.balance else "below"
    decode = replace(view.decode.dot, side=side, more=f"{digits(view.decode.rate)} tokens/s")
    return roofline(view.machine, [prefill, decode], roofline_summary(view), title="Roofline explorer",
                    heading=f"{view.model} on {named(view.machine, view.machines)}, at best")
