"""The slots of a server over time, with who waits and what the pages hold: as SVG with a table, and as a still."""

from __future__ import annotations

import re
from html import escape

from course_lib.display.batching_view import (
    REQUESTS,
    WORDS,
    BatchingView,
    Level,
    Mark,
    Measure,
    batching_summary,
    measures,
    names,
    shown,
)
from course_lib.display.colors import ROLES
from course_lib.display.diagrams.drawing import SMALL, Area, Drawing, text_width
from course_lib.display.views import THEME

WIDE, EDGE, RIGHT = 520, 70, 512  # of the picture, in units: its width, and where time begins and ends
TOP, ROW, HIGH, LOW, LANE = 8, 30, 24, 11, 46  # rows of slots, a bar that reads, one that writes, a lane beneath
LEGEND = (("prefill", "reads its prompt"), ("decode", "writes a token"), ("again", "reads again"),
          ("pad", "padding"), ("idle", "idle"), ("out", "loses its pages"))
NUMBERS = "0, 1, 2 …: requests, in the order of arrival"
COLORS = "".join(f"--{role}:{ROLES[role].light};" for role in ("cost", "latency"))
DARK = "".join(f"--{role}:{ROLES[role].dark};" for role in ("cost", "latency"))
STYLE = f"""\
.course-slots{{{COLORS}}}body[data-jp-theme-light=false] .course-slots{{{DARK}}}
.course-slots svg.time{{width:100%;max-width:760px;height:auto;display:block}}
.course-slots text{{font:15px var(--jp-ui-font-family,system-ui,sans-serif);fill:var(--ink)}}
.course-slots .quiet{{fill:var(--faint)}}.course-slots .name{{font-size:13px}}
.course-slots .prefill{{fill:var(--cost);stroke:var(--ink)}}
.course-slots .again{{fill:var(--cost);stroke:var(--ink);stroke-width:3}}
.course-slots .decode{{fill:var(--latency);stroke:var(--ink)}}
.course-slots .wait{{fill:none;stroke:var(--ink);stroke-dasharray:2 2}}
.course-slots .line{{stroke:var(--line);fill:none}}.course-slots .all{{stroke:var(--ink);stroke-dasharray:5 4}}
.course-slots .used{{fill:var(--cache)}}.course-slots .queue{{fill:var(--faint)}}
.course-slots .cross{{stroke:var(--ink);stroke-width:3;fill:none}}
.course-slots .key{{display:inline-flex;gap:5px;align-items:center;margin:0 14px 4px 0;white-space:nowrap}}
.course-slots .scroll{{overflow-x:auto}}.course-slots table{{border-collapse:collapse;margin:6px 0;font-size:13px}}
.course-slots th,.course-slots td{{text-align:left;padding:3px 12px 3px 0;border-bottom:1px solid var(--line);\
vertical-align:top}}
.course-slots th{{font-weight:400;color:var(--faint)}}
.course-slots .this{{font-weight:600;color:var(--ink)}}"""
HATCH = ('<defs><pattern id="slots-hatch" width="7" height="7" patternUnits="userSpaceOnUse" '
         'patternTransform="rotate(45)"><path d="M0 0 V7" stroke="var(--faint)" stroke-width="1.5"/></pattern>'
         '<pattern id="slots-pad" width="5" height="5" patternUnits="userSpaceOnUse"><path d="M0 0 L5 5 M5 0 L0 5" '
         'stroke="var(--faint)"/></pattern></defs>')
FILLED = {"idle": ' fill="url(#slots-hatch)" stroke="var(--line)"', "pad": ' fill="url(#slots-pad)" '
          'stroke="var(--faint)"'}


def batching_html(view: BatchingView, start: float = 0.0) -> str:
    """The time line from `start` on, its legend, and a table of all three policies."""
    setting, run = view.setting, view.run
    policy = list(view.runs).index(setting.policy)
    return (f'<div class="course course-slots" data-policy="{setting.policy}" data-slots="{setting.slots}" '
            f'data-pages="{setting.pages}" data-out="{run.served.preemptions}" '
            f'data-rate="{run.served.tokens_per_s:.4g}" data-start="{start:.4g}"><style>{THEME}{STYLE}</style>'
            f"{time_svg(view, start)}<p>{legend()}</p>{table(measures(view), list(view.runs), policy)}"
            f'<p class="faint">A pair is the median and the 99th percentile of {REQUESTS} requests.</p>'
            f'<p class="summary" role="status">{escape(batching_summary(view))}</p></div>')


def table(rows: list[Measure], policies: list[str], current: int) -> str:
    """Every number by policy; the one that is shown stands out."""
    def cells(tag: str, values: list[str], scope: str = "") -> str:
        return "".join(f'<{tag}{scope}{THIS if i == current else ""}>{UNIT.sub("&nbsp;", escape(value))}</{tag}>'
                       for i, value in enumerate(values))

    body = "".join(f'<tr><th scope="row">{escape(row.name)}</th>{cells("td", list(row.values))}</tr>' for row in rows)
    head = cells("th", [WORDS[policy] for policy in policies], ' scope="col"')
    return ('<div class="scroll" tabindex="0" role="region" aria-label="numbers of the three policies"><table>'
            f"<thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody></table></div>")


THIS = ' class="this" aria-current="true"'
UNIT = re.compile(r"(?<=\d) (?=[a-zµ%])")  # a number and its unit stay on one line


def legend() -> str:
    """What each kind of bar is, and what a number beside one."""
    kinds = [f'<svg width="26" height="26" viewBox="0 0 26 26" aria-hidden="true">{shape(kind, 4, 22, 1)}</svg>{words}'
             for kind, words in LEGEND]
    return "".join(f'<span class="key">{one}</span>' for one in [*kinds, NUMBERS])


def shape(kind: str, left: float, right: float, top: float) -> str:
    """A bar in a row that begins at `top`: high where a text is read, low where it is written."""
    width = max(right - left, 0.6)
    if kind == "out":
        middle = (left + right) / 2
        return (f'<path class="cross" d="M{middle - 6:.1f} {top + 6:.1f} l12 12 m0 -12 l-12 12"/>')
    if kind in ("decode", "wait"):
        return (f'<rect class="{kind}" x="{left:.1f}" y="{top + HIGH - LOW:.1f}" width="{width:.1f}" '
                f'height="{LOW}"/>')
    fill = FILLED.get(kind, f' class="{kind}"')
    return f'<rect{fill} data-kind="{kind}" x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{HIGH}"/>'


def time_svg(view: BatchingView, start: float) -> str:
    """A row for each slot, then who waits, then the pages."""
    marks, levels = shown(view, start)
    slots, setting = view.setting.slots, view.setting
    foot, wide = TOP + ROW * slots, RIGHT - EDGE
    parts = [f'<text class="quiet" x="2" y="{TOP + ROW * i + 18}">slot {i + 1}</text>' for i in range(slots)]
    for mark in sorted(marks, key=lambda mark: mark.kind == "out"):  # crosses lie over the bars
        parts.append(shape(mark.kind, EDGE + wide * mark.left, EDGE + wide * mark.right, TOP + ROW * mark.slot))
    parts += [f'<text class="name" x="{EDGE + wide * right + 2:.1f}" y="{TOP + ROW * slot + 10}">{name}</text>'
              for slot, right, name in names(marks) if right < 0.95]
    parts += [queue(levels, foot), pages(levels, foot + LANE)]
    begin, end = setting.time(start), setting.time(start + setting.window)
    y = foot + 2 * LANE + 20
    unit = "" if setting.cost else " passes"
    parts.append(f'<text class="quiet" x="{EDGE}" y="{y}">{begin}</text>'
                 f'<text class="quiet" x="{RIGHT}" y="{y}" text-anchor="end">{end}{unit}</text>')
    return (f'<svg class="time" viewBox="0 0 {WIDE} {y + 8}" role="img" '
            f'aria-label="{escape(batching_summary(view))}">{HATCH}{"".join(parts)}</svg>')


def queue(levels: list[Level], top: float) -> str:
    """How many wait, as a skyline over the time line."""
    most = max([level.waiting for level in levels], default=0)
    bars = "".join(lane_bar(level, top + LANE - 6, 30 * level.waiting / most, "queue") for level in levels if most)
    return (f'<text class="quiet" x="2" y="{top + LANE - 14}">waiting</text>{bars}'
            f'<path class="line" d="M{EDGE} {top + LANE - 6} H{RIGHT}"/>'
            f'<text class="name" x="{RIGHT}" y="{top + 8}" text-anchor="end">at most {most}</text>')


def pages(levels: list[Level], top: float) -> str:
    """What the pages hold: used places solid, places that are held and not used hatched, under the line of all."""
    bars = "".join(lane_bar(level, top + LANE - 6, 30 * level.held, "", ' fill="url(#slots-hatch)"')
                   + lane_bar(level, top + LANE - 6, 30 * level.used, "used") for level in levels)
    return (f'<text class="quiet" x="2" y="{top + LANE - 14}">pages</text>{bars}'
            f'<path class="line" d="M{EDGE} {top + LANE - 6} H{RIGHT}"/>'
            f'<path class="all" d="M{EDGE} {top + LANE - 36} H{RIGHT}"/>')


def lane_bar(level: Level, foot: float, high: float, kind: str, fill: str = "") -> str:
    """A stretch of a lane."""
    left, right = (EDGE + (RIGHT - EDGE) * share for share in (level.left, level.right))
    return (f'<rect shape-rendering="crispEdges" class="{kind}"{fill} x="{left:.1f}" y="{foot - high:.1f}" '
            f'width="{right - left:.1f}" height="{high:.1f}"/>')


def batching_drawing(view: BatchingView) -> Drawing:
    """The still picture: the same time line from its beginning."""
    marks, levels = shown(view, 0.0)
    slots, left, right = view.setting.slots, 96, 700
    drawing = Drawing("Slots of a server over time", batching_summary(view), height=52 + 40 * slots + 216)
    drawing.text(18, 34, f"{WORDS[view.setting.policy]}: the first {view.setting.time(view.setting.window)}"
                 f"{'' if view.setting.cost else ' passes'}", bold=True, anchor="start")
    for slot in range(slots):
        drawing.text(18, 52 + 40 * slot + 23, f"slot {slot + 1}", size=SMALL, role="faint", anchor="start")
    for mark in sorted(marks, key=lambda mark: mark.kind == "out"):
        still_mark(drawing, mark, Area(left + (right - left) * mark.left, 52 + 40 * mark.slot,
                                       left + (right - left) * mark.right, 84 + 40 * mark.slot))
    for slot, share, name in names(marks):
        x, y = left + (right - left) * share + 3, 52 + 40 * slot + 14
        if x + text_width(name, SMALL) < right:
            drawing.text(x, y, name, size=SMALL, anchor="start")
    base = 52 + 40 * slots + 66
    most = max([level.waiting for level in levels], default=0)
    for foot, words in ((base, "waiting"), (base + 64, "pages")):
        drawing.text(18, foot - 12, words, size=SMALL, role="faint", anchor="start")
        drawing.path([(left, foot), (right, foot)], stroke="line", thick=1)
    for level in levels:
        a, b = left + (right - left) * level.left, left + (right - left) * level.right
        drawing.rect(Area(a, base - 44 * level.waiting / max(most, 1), b, base), fill="faint", radius=0)
        drawing.rect(Area(a, base + 64 - 44 * level.held, b, base + 64 - 44 * level.used), fill="plain", hatched=True,
                     radius=0)
        drawing.rect(Area(a, base + 64 - 44 * level.used, b, base + 64), fill="cache", tint=0.6, radius=0)
    drawing.text(right, base - 49, f"at most {most}", size=SMALL, role="faint", anchor="end")
    drawing.path([(left, base + 20), (right, base + 20)], dashed=True, thick=1.6)  # where all pages are in use
    drawing.text(18, base + 26, f"all {view.setting.pages}", size=SMALL, role="faint", anchor="start")
    drawing.text(18, base + 104, "high: reads; low: writes; hatched: idle; ×: loses its pages", size=SMALL,
                 role="faint", anchor="start")
    drawing.text(18, base + 130, NUMBERS, size=SMALL, role="faint", anchor="start")
    return drawing


def still_mark(drawing: Drawing, mark: Mark, area: Area) -> None:
    """A bar of the still."""
    low = area._replace(top=area.bottom - 14)
    if mark.kind == "out":
        x, y = area.left, (area.top + area.bottom) / 2
        for sign in (-1, 1):
            drawing.path([(x - 8, y - 8 * sign), (x + 8, y + 8 * sign)], thick=4)
    elif mark.kind in ("decode", "wait"):
        drawing.rect(low, fill="latency" if mark.kind == "decode" else "paper", stroke="ink", thick=1, radius=0,
                     dashed=mark.kind == "wait")
    elif mark.kind in ("idle", "pad"):
        drawing.rect(area, fill="plain", stroke="line", thick=1, hatched=True, radius=0)
    else:
        drawing.rect(area, fill="cost", stroke="ink", thick=3 if mark.kind == "again" else 1.2, radius=0)
