"""An automaton over bytes, and tokens that run through several of its arrows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from course_lib.automaton import Automaton
from course_lib.byte_regex import parse_regex
from course_lib.config import require
from course_lib.display.diagrams.drawing import SMALL, Drawing, Point

START, STEP, RADIUS = 56, 152, 25  # of an automaton: where it begins, how far states are apart, and how big they are
MIDDLE, RISE = 130, 56  # the height of a state that is alone in its column, and how far two are from the middle
ROUTES, HIGH = 294, 44  # where the tokens begin, and how far they are apart

State = frozenset[int]


def columns_of(automaton: Automaton) -> list[list[State]]:
    """The states of an automaton without cycles, by the length of the longest text that leads there."""
    depth: dict[State, int] = {automaton.start: 0}
    waiting = [automaton.start]
    for state in waiting:
        for _, _, after in automaton.steps(state):
            if depth.get(after, -1) <= depth[state]:
                depth[after] = depth[state] + 1
                require(depth[after] < 8, "pattern", after, "without repetition")
                waiting.append(after)
    by_text = sorted(depth, key=lambda state: (depth[state], -max(state, default=0)))
    return [[state for state in by_text if depth[state] == d] for d in range(max(depth.values()) + 1)]


def arrows_of(automaton: Automaton, state: State) -> dict[State, str]:
    """Where a state leads to, and by which bytes."""
    arrows: dict[State, list[str]] = {}
    for first, last, after in automaton.steps(state):
        arrows.setdefault(after, []).extend(chr(byte) for byte in range(first, last + 1))
    return {after: ", ".join(sorted(names)) for after, names in arrows.items()}


def automaton_paths(pattern: str, begun: str, may: Sequence[str], may_not: Sequence[str]) -> Drawing:
    """The automaton of a regular expression over bytes, and tokens that run through it from one of its places.

    Args:
        pattern: of ASCII characters, without endless repetition, at most five columns of states.
        begun: the text so far.
        may, may_not: tokens that can continue it, and others, up to eight in all.

    Raises:
        ValueError: a token belongs to the others.
    """
    automaton = Automaton(parse_regex(pattern))
    columns = columns_of(automaton)
    require(len(columns) <= 5 and max(map(len, columns)) <= 2, "pattern", pattern, "up to 5 columns of up to 2 states")
    here = automaton.read(automaton.start, begun.encode())
    for token in (*may, *may_not):
        require((token in may) == bool(automaton.read(here, token.encode())), "token", token, "as the pattern has it")
    places = {state: (START + STEP * i, MIDDLE + (0 if len(column) == 1 else RISE * (2 * j - 1)))
              for i, column in enumerate(columns) for j, state in enumerate(column)}
    require(here in places and places[here][0] > START, "begun", begun, "a beginning, and not empty")
    foot = ROUTES + HIGH * (len(may) + len(may_not))
    drawing = Drawing("An automaton over bytes, and tokens that run through it",
                      told_paths(pattern, begun, may, may_not), height=foot + 42)
    drawing.text(20, 34, pattern, bold=True, mono=True, anchor="start")
    for state in places:
        draw_state(drawing, automaton, places, state)
    x, y = places[here]
    drawing.path([(x, y + RADIUS + 2), (x, ROUTES - 54)], stroke="line", thick=1.4, dashed=True)
    for i in range(len(columns)):
        column = START + STEP * i
        if column >= x:
            drawing.path([(column, ROUTES - 16), (column, foot - 4)], stroke="line", thick=1.4, dashed=True)
    drawing.circle(x, y, RADIUS, fill="mark", stroke="ink", thick=4)
    drawing.text(x, y + 6, begun, bold=True, mono=True)
    drawing.text(20, ROUTES - 30, f"the text so far is “{begun}”: tokens that may come next", bold=True,
                 anchor="start")
    for i, token in enumerate((*may, *may_not)):
        draw_route(drawing, (x, ROUTES + HIGH * (i + 0.5)), automaton, here, token)
    drawing.circle(36, foot + 16, 13, fill="plain", stroke="ink")
    drawing.circle(36, foot + 16, 8, stroke="ink", thick=1.6)
    drawing.text(60, foot + 22, "the text may end here: the end token may come", size=SMALL, anchor="start")
    return drawing


def draw_state(drawing: Drawing, automaton: Automaton, places: dict[State, Point], state: State) -> None:
    """A state, doubly circled where the text may end, and the arrows that leave it, each with its bytes."""
    x, y = places[state]
    drawing.circle(x, y, RADIUS, fill="plain", stroke="ink")
    if automaton.accepts(state):
        drawing.circle(x, y, RADIUS - 7, stroke="ink", thick=1.6)
    for after, names in arrows_of(automaton, state).items():
        to_x, to_y = places[after]
        length = math.hypot(to_x - x, to_y - y)
        right, down = (to_x - x) / length, (to_y - y) / length
        drawing.arrow((x + right * (RADIUS + 3), y + down * (RADIUS + 3)),
                      (to_x - right * (RADIUS + 4), to_y - down * (RADIUS + 4)))
        drawing.text((x + to_x) / 2 + 18 * down, (y + to_y) / 2 - 18 * right + 7, names, mono=True, bold=True)


def draw_route(drawing: Drawing, start: Point, automaton: Automaton, here: State, token: str) -> None:
    """A token: its bytes as arrows from column to column, and a cross where there is no arrow."""
    x, y = start
    fine = bool(automaton.read(here, token.encode()))
    drawing.tag(20, y + 6, token, role="mark" if fine else "plain", stroke="ink" if fine else "faint", radius=4)
    drawing.text(168, y + 6, "yes" if fine else "no", size=SMALL, bold=fine, role="ink" if fine else "faint",
                 anchor="end")
    drawing.circle(x, y, 5, fill="ink")
    for c in token:
        here = automaton.read(here, c.encode())
        drawing.text(x + STEP / 2, y - 7, c, size=SMALL, mono=True, bold=True)
        if not here:
            drawing.path([(x + 8, y), (x + STEP / 2 + 16, y)], stroke="faint", dashed=True)
            cross(drawing, x + STEP / 2 + 28, y)
            break
        drawing.arrow((x + 6, y), (x + STEP - 12, y))
        x += STEP
        drawing.circle(x, y, 5, fill="ink")
    if here and automaton.accepts(here):
        drawing.circle(x, y, 10, stroke="ink", thick=1.6)


def cross(drawing: Drawing, x: float, y: float) -> None:
    """Something that does not exist."""
    for sign in (-1, 1):
        drawing.path([(x - 8, y - 8 * sign), (x + 8, y + 8 * sign)], thick=3.4)


def told_paths(pattern: str, begun: str, may: Sequence[str], may_not: Sequence[str]) -> str:
    """The description of the automaton."""
    automaton = Automaton(parse_regex(pattern))
    columns = columns_of(automaton)
    states = sum(map(len, columns))
    several = [token for token in may if len(token) > 1]
    return (f"The automaton of {pattern.replace('|', ' or ')}: {states} circles, and an arrow for each byte that may "
            f"come next; a double circle where the text may end. The text so far is “{begun}”. A token may come next "
            f"if all of its bytes find arrows, one after another: {', '.join(may)}; {', '.join(several)} run through "
            f"several arrows. {' and '.join(may_not)} may not: their last byte finds no arrow.")
