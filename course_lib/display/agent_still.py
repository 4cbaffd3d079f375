"""The still of the agent widget: the messages, with a square for each token."""

from __future__ import annotations

from course_lib.display.agent_view import AgentView, Entry, agent_summary, ending, holds_system, short, visible_line
from course_lib.display.diagrams.drawing import SMALL, Area, Drawing
from course_lib.display.views import count

LEFT, RIGHT, ROW, SQUARE, ACROSS = 20, 700, 78, 11, 60  # a message, how high it is, a token, and tokens in a line
FIRST = 8  # messages that are drawn


def agent_drawing(view: AgentView) -> Drawing:
    """The still picture: the messages from the question on."""
    entries = view.entries[:FIRST]
    drawing = Drawing("The loop of an agent, message by message", agent_summary(view, len(entries)),
                      height=30 + sum(high(entry) + 10 for entry in entries) + 76)
    y = 20.0
    for entry in entries:
        draw_entry(drawing, y, entry)
        y += high(entry) + 10
    more = len(view.entries) - len(entries)
    words = f"and {count(more, 'message')} more" if more else f"the end, {ending(view)}"
    drawing.text(LEFT, y + 24, words, bold=True, anchor="start")
    x = LEFT
    for fill, stroke, name in (("ink", "ink", "control token"), ("mark", "ink", "written by the model"),
                               ("paper", "faint", "only read")):
        drawing.rect(Area(x, y + 46, x + 16, y + 62), fill=fill, stroke=stroke, thick=1.2, radius=2)
        drawing.text(x + 24, y + 60, name, size=SMALL, anchor="start")
        x += 236
    return drawing


def high(entry: Entry) -> float:
    """The height of a message."""
    return ROW + 16 * ((len(entry.tokens) - 1) // ACROSS)


def draw_entry(drawing: Drawing, top: float, entry: Entry) -> None:
    """A message: who, what, its cost and its tokens."""
    own = entry.read is not None
    drawing.rect(Area(LEFT - 8, top, RIGHT + 8, top + high(entry)), fill="plain", stroke="ink" if own else "line",
                 thick=2 if own else 1.4)
    drawing.text(LEFT + 2, top + 22, entry.role, size=SMALL, role="faint", anchor="start")
    system = ", with the system message" if holds_system(entry) else ""
    cost = f"read {entry.read}, wrote {len(entry.tokens)}" if own else count(len(entry.tokens), "token") + system
    drawing.text(RIGHT - 2, top + 22, cost, size=SMALL, role="faint", anchor="end")
    words = f"calls {'; '.join(entry.calls)}" if entry.calls else visible_line(entry.text)
    drawing.text(LEFT + 2, top + 46, short(words, 62), size=SMALL, anchor="start", bold=own)
    for i, (_, control) in enumerate(entry.tokens):
        x, y = LEFT + 2 + SQUARE * (i % ACROSS), top + 56 + 16 * (i // ACROSS)
        drawing.rect(Area(x, y, x + SQUARE - 1.6, y + 12), fill="ink" if control else "mark" if own else "paper",
                     stroke="ink" if control or own else "faint", thick=1, radius=1)
