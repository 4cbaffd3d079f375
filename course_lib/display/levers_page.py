"""A customer's choice as HTML: the points, the verdict, what the better ones break, and a table of all settings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from course_lib.analysis.customers import WORDS
from course_lib.analysis.levers import Row
from course_lib.display.colors import ROLES
from course_lib.display.diagrams.drawing import Drawing
from course_lib.display.levers_chart import amount
from course_lib.display.levers_picture import levers_drawing
from course_lib.display.levers_view import (
    LeversView,
    front_words,
    levers_summary,
    limit_words,
    tempting_words,
    verdict,
)
from course_lib.display.views import THEME, count

STYLE = """\
.course-needs svg{width:100%;max-width:760px;height:auto;display:block}
.course-needs .scroll{overflow-x:auto}.course-needs table{border-collapse:collapse;margin:6px 0}
.course-needs th,.course-needs td{text-align:left;padding:3px 14px 3px 0;border-bottom:1px solid var(--line);\
vertical-align:top}
.course-needs td.n{white-space:nowrap}.course-needs caption{text-align:left;color:var(--faint)}
.course-needs table{color:inherit;font:inherit}.course-needs thead th{font-weight:600}
.course-needs tbody th{font-weight:400}.course-needs tr.chosen th{font-weight:600}
.course-needs .verdict{font-weight:600}.course-needs summary{cursor:pointer;margin:6px 0}"""
LEGEND = ("● on the front · ○ beaten · ✕ breaks a limit, perhaps in a column not drawn · ◎ chosen · "
          "dashed: a limit on this axis")


def still(view: LeversView) -> Drawing:
    """The points as a drawing."""
    wish = view.wish
    bounds = {name: bound for name, bound in wish.bounds(view.plain).items() if name in (wish.x, wish.y)}
    return levers_drawing(view.rows, view.front, x=wish.x, y=wish.y, limits=bounds, description=levers_summary(view),
                          forbidden=[name for name, broken in view.broken.items() if broken],
                          chosen=view.chosen and view.chosen.name)


def themed(drawing: Drawing, label: str) -> str:
    """A drawing's SVG for a page of JupyterLab: its colours follow the theme there, and not the system's."""
    dark = "".join(f"body[data-jp-theme-light=false] .course-needs .{prop[0]}-{role}{{{prop}:{ROLES[role].dark}}}"
                   for prop, role in sorted(drawing.used))
    svg = re.sub(r"<title.*?</desc>", "", drawing.svg(), flags=re.S)
    svg = re.sub(r"<style>.*?</style>", lambda _: f"<style>{dark}</style>", svg, flags=re.S)
    return re.sub(r'aria-labelledby="[^"]*"', lambda _: f'aria-label="{escape(label)}"', svg)


def levers_html(view: LeversView) -> str:
    """Everything that is shown."""
    wish, chosen = view.wish, view.chosen.name if view.chosen else ""
    return (f'<div class="course course-needs" data-customer="{escape(wish.name)}" data-chosen="{escape(chosen)}" '
            f'data-allowed="{len(view.allowed)}" data-x="{wish.x}" data-y="{wish.y}" data-front="{len(view.front)}">'
            f"<style>{THEME}{STYLE}</style>{themed(still(view), levers_summary(view))}"
            f'<p class="faint">{LEGEND}</p><p class="verdict" role="status">{escape(verdict(view))}</p>'
            f"<p>Limits: {escape(limit_words(wish))}.</p>{tempting_table(view)}<p>{escape(front_words(view))}</p>"
            f"{all_table(view)}</div>")


def tempting_table(view: LeversView) -> str:
    """Settings that would be better, and what each breaks."""
    found = tempting_words(view)
    if not found:
        return "<p>Nothing that is not allowed would be better.</p>"
    body = "".join(f'<tr><th scope="row">{escape(name)}</th><td class="n">{escape(value)}</td><td>{escape(broken)}</td>'
                   "</tr>" for name, value, broken in found)
    more = len(view.tempting) - len(found)
    caption = f"better, and not allowed{f' (and {more} more)' if more else ''}"
    return (f'<div class="scroll"><table class="tempting"><caption>{caption}</caption><thead><tr>'
            f'<th scope="col">setting</th><th scope="col">{WORDS[view.wish.objective]}</th>'
            f'<th scope="col">breaks</th></tr></thead><tbody>{body}</tbody></table></div>')


def all_table(view: LeversView) -> str:
    """Every setting, the best for this customer first."""
    wish = view.wish
    columns = list(dict.fromkeys((wish.objective, wish.x, wish.y)))
    heads = "".join(f'<th scope="col">{WORDS[name]}</th>' for name in columns)
    body = "".join(table_row(view, row, columns) for row in view.ranked)
    return (f'<details><summary>{count(len(view.rows), "setting")} in a table</summary><div class="scroll"><table>'
            f'<thead><tr><th scope="col">setting</th>{heads}<th scope="col">limits</th></tr></thead>'
            f"<tbody>{body}</tbody></table></div></details>")


def table_row(view: LeversView, row: Row, columns: Sequence[str]) -> str:
    """A setting of the table."""
    broken = view.broken[row.name]
    cells = "".join(f'<td class="n">{amount(name, getattr(row, name))}</td>' for name in columns)
    kept = f"breaks {count(len(broken), 'limit')}" if broken else "kept"
    chosen = row is view.chosen
    return (f'<tr{" class=chosen aria-current=true" * chosen}><th scope="row">{escape(row.name)}{" ◎" * chosen}</th>'
            f"{cells}<td>{kept}</td></tr>")
