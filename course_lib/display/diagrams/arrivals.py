"""Tokens on their way: from the step of the model to the client, and when they arrive there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median

from course_lib.config import require
from course_lib.display.diagrams.drawing import SMALL, Area, Drawing, text_width
from course_lib.display.diagrams.phases import milliseconds
from course_lib.display.roofline_view import duration
from course_lib.display.views import percent, visible

CHAIN, WORDS, ROW, HIGH = 22, 206, 66, 42  # of a path: its boxes, what is beside them, and how far apart they are
BAR, THICK = (22, 698), 42  # of the time from one token to the next
START, END = 26, 694  # of a time line
TICK = 30  # half the height of an arrival


def token_path(token: tuple[str, int], steps: Mapping[str, float], rest_s: float) -> Drawing:
    """Where one token passes on its way to the client, and what part of its time the model's step has.

    Args:
        token: its text and its id.
        steps: by what is timed, one or two, seconds of the model's step.
        rest_s: from the end of a step until the client has read the event, beyond the next step.
    """
    require(1 <= len(steps) <= 2, "steps", steps, "one or two")
    require(min(*steps.values(), rest_s) > 0, "steps, rest_s", (dict(steps), rest_s), "above 0")
    text, token_id = token
    event = f"data: {{…{json.dumps({'delta': {'content': text}}, separators=(',', ':'))[1:-1]}…}}"
    shares = "; ".join(f"{name}: step {milliseconds(step)}, {percent(step / (step + rest_s))} of the time"
                       for name, step in steps.items())
    bottom = 22 + 5 * ROW
    drawing = Drawing("The path of one token",
                      f"Boxes from top to bottom. Engine thread: a step gives id {token_id}. Queue: the text "
                      f"“{visible(text)}” goes to the event loop. SSE event: data and JSON. Socket: bytes. Client: it "
                      f"prints the text. Beneath, a bar for each time from token to token. {shares}. All the rest: "
                      f"{milliseconds(rest_s)}.", height=bottom + 94 * len(steps) + 10)
    beside = (f"a step of the model gives id {token_id}", f"the text “{visible(text)}” goes to the event loop", event,
              "bytes on a connection that stays open", f"reads the event and prints “{visible(text)}”")
    for i, (name, words) in enumerate(zip(("engine thread", "queue", "SSE event", "socket", "client"), beside)):
        top, middle = 22 + ROW * i, (CHAIN + WORDS - 18) / 2
        drawing.box(Area(CHAIN, top, WORDS - 18, top + HIGH), name, mono=False, fill="plain" if i else "latency")
        drawing.text(WORDS, top + 27, words, size=SMALL, anchor="start", mono=words == event)
        if i < 4:
            drawing.arrow((middle, top + HIGH + 2), (middle, top + ROW - 2))
    for i, (name, step_s) in enumerate(steps.items()):
        where_time_goes(drawing, bottom + 42 + 94 * i, name, step_s, rest_s)
    return drawing


def where_time_goes(drawing: Drawing, top: float, name: str, step_s: float, rest_s: float) -> None:
    """One bar, as long as the time from one token to the next: the step of the model, and all the rest."""
    left, right = BAR
    edge = left + (right - left) * step_s / (step_s + rest_s)
    drawing.text(left, top - 12, f"{name}: time from token to token", size=SMALL, role="faint", anchor="start")
    drawing.text(right, top - 12, f"all the rest: {milliseconds(rest_s)}", size=SMALL, anchor="end", bold=True)
    drawing.rect(Area(left, top, edge, top + THICK), fill="latency", stroke="ink", radius=0)
    drawing.rect(Area(edge, top, right, top + THICK), fill="mark", stroke="ink", radius=0)
    share = percent(step_s / (step_s + rest_s))
    drawing.text((left + edge) / 2, top + 27, f"the model's step: {milliseconds(step_s)}, {share}")


def client_timeline(arrivals: Sequence[float], of: str) -> Drawing:
    """When the tokens of an answer are there, streamed and not streamed, on one axis of time.

    Args:
        arrivals: seconds from the request until each token was read, ascending; 4 to 100.
        of: what is timed.
    """
    require(4 <= len(arrivals) <= 100, "len(arrivals)", len(arrivals), "4 to 100")
    require(arrivals[0] > 0 and all(a <= b for a, b in pairwise(arrivals)), "arrivals", list(arrivals),
            "ascending and above 0")
    first, last = arrivals[0], arrivals[-1]
    gap = median(b - a for a, b in pairwise(arrivals))
    drawing = Drawing("The time line of a client",
                      f"{of}. Two lines from the request to the end, {duration(last)}. Streamed: nothing during "
                      f"prefill, the first token after {duration(first)}, then {len(arrivals) - 1} more, a tick for "
                      f"each, about {duration(gap)} apart. Not streamed: nothing, nothing, and after {duration(last)} "
                      f"all {len(arrivals)} tokens at once. Both end at the same time.", height=404)
    streamed(drawing, 132, arrivals, gap)
    at_once(drawing, 296, arrivals)
    drawing.text(START, 380, of, size=SMALL, role="faint", anchor="start")
    return drawing


def place(seconds: float, last: float) -> float:
    """Where a time is on the axis."""
    return START + (END - START) * seconds / last


def streamed(drawing: Drawing, y: float, arrivals: Sequence[float], gap: float) -> None:
    """The wait for the first token, and a tick for each one."""
    first, last = arrivals[0], arrivals[-1]
    edge = place(first, last)
    drawing.text(START, y - 92, "streamed", bold=True, anchor="start")
    drawing.rect(Area(START, y - TICK, edge, y + TICK), fill="cost", tint=0.6, stroke="ink", thick=1.6, radius=0)
    if edge - START > text_width("prefill", SMALL) + 8:
        drawing.text((START + edge) / 2, y + 6, "prefill", size=SMALL)
    for seconds in arrivals:
        x = place(seconds, last)
        drawing.path([(x, y - TICK), (x, y + TICK)], stroke="query", thick=3)
    words = f"first token: {duration(first)}"
    drawing.path([(edge, y - TICK - 4), (edge, y - TICK - 18)], thick=1.6)
    drawing.text(min(edge - 8, END - text_width(words, SMALL, bold=True)), y - TICK - 26, words, size=SMALL,
                 anchor="start", bold=True)
    drawing.text(END, y + TICK + 26, f"then a token every {duration(gap)}", size=SMALL, anchor="end")
    drawing.text(START, y + TICK + 26, "request", size=SMALL, role="faint", anchor="start")


def at_once(drawing: Drawing, y: float, arrivals: Sequence[float]) -> None:
    """The same answer in one piece."""
    drawing.text(START, y - 46, "not streamed", bold=True, anchor="start")
    drawing.rect(Area(START, y - TICK, END - 8, y + TICK), fill="plain", stroke="faint", thick=1.6, radius=0,
                 dashed=True)
    drawing.text((START + END) / 2, y + 6, "nothing, nothing, nothing …", size=SMALL, role="faint")
    drawing.rect(Area(END - 8, y - TICK, END + 2, y + TICK), fill="query", radius=0)
    drawing.text(END, y + TICK + 26, f"all {len(arrivals)} tokens: {duration(arrivals[-1])}", size=SMALL, anchor="end",
                 bold=True)
    drawing.text(START, y + TICK + 26, "request", size=SMALL, role="faint", anchor="start")
