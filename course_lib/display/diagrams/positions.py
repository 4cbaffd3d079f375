"""RoPE as clock hands: a pair of numbers turns by an angle in proportion to its position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from course_lib.config import require
from course_lib.display.diagrams.drawing import SMALL, WIDTH, Drawing, Point

MARGIN = 26
STEP = 0.1  # radians between two points of an arc


class Dial(NamedTuple):
    """A circle in which pairs of numbers are drawn as arrows from its centre.

    Attributes:
        x, y: the centre on the paper.
        radius: in units of the paper.
        reach: the length of the pair whose arrow reaches the rim.
    """

    x: float
    y: float
    radius: float
    reach: float = 1.0

    def place(self, pair: Point) -> Point:
        """Where the arrow of a pair ends; the second number counts upwards."""
        scale = self.radius / self.reach
        return self.x + pair[0] * scale, self.y - pair[1] * scale


def turned(pair: Point, angle: float) -> Point:
    """The pair turned to the left by an angle in radians."""
    c, s = math.cos(angle), math.sin(angle)
    return pair[0] * c - pair[1] * s, pair[1] * c + pair[0] * s


def arc(dial: Dial, start: float, end: float, share: float) -> list[Point]:
    """Points on the arc between two angles, at a share of the radius."""
    steps = max(2, math.ceil(abs(end - start) / STEP))
    length = dial.reach * share
    return [dial.place(turned((length, 0), start + (end - start) * i / steps)) for i in range(steps + 1)]


def sector(drawing: Drawing, dial: Dial, start: float, end: float, share: float = 1.0) -> None:
    """The area between two angles, in the colour of what to look at."""
    drawing.path([(dial.x, dial.y), *arc(dial, start, end, share)], fill="mark", stroke="faint", closed=True, thick=1)


def face(drawing: Drawing, dial: Dial) -> None:
    """The circle and its axes."""
    x, y, r = dial.x, dial.y, dial.radius
    drawing.circle(x, y, r, fill="plain", stroke="line", thick=1.4)
    drawing.path([(x - r, y), (x + r, y)], stroke="line", thick=1)
    drawing.path([(x, y - r), (x, y + r)], stroke="line", thick=1)


def hand(drawing: Drawing, dial: Dial, pair: Point, role: str) -> None:
    """A pair as an arrow; a key is dashed, so that it is told from a query without colours, too."""
    drawing.arrow((dial.x, dial.y), dial.place(pair), stroke=role, thick=2.8, dashed=role == "key")


def direction(pair: Point) -> float:
    """The angle of the arrow of a pair, in radians from the right, to the left."""
    return math.atan2(pair[1], pair[0])


def between(key: Point, query: Point) -> float:
    """The angle from a key to a query, in radians, at least -pi and less than pi.

    >>> round(math.degrees(between((3, 1), turned((2, 1), math.pi / 2))), 1)
    98.1
    """
    return (direction(query) - direction(key) + math.pi) % (2 * math.pi) - math.pi


def shown(x: float) -> str:
    """A number with at most one decimal.

    >>> shown(-2.0), shown(1.25), shown(-0.01)
    ('−2', '1.2', '0')
    """
    text = f"{x:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text.replace("-", "−")


PLACES = 5  # positions 0 to 4
RADIUS, ACROSS = 58, 132  # of a dial, and from one to the next
FIRST_ROW, SECOND_ROW = 122, 362  # heights of the centres


def turning_pairs(query: Point, key: Point, angle: float, *, distance: int = 1) -> Drawing:
    """A pair of numbers turns with its position, and what a query and a key make depends on their distance alone.

    Args:
        query, key: a pair of numbers each, before they are turned.
        angle: radians per position.
        distance: how many positions the key is before the query, 1 to 3.
    """
    require(0 < distance < PLACES - 1, "distance", distance, f"1 to {PLACES - 2}")
    require(math.hypot(*query) > 0 and math.hypot(*key) > 0, "query, key", (query, key), "pairs that point somewhere")
    drawing = Drawing(f"A query and a key turn together, {distance} apart",
                      turning_in_words(query, key, angle, distance), height=SECOND_ROW + RADIUS + 97)
    reach = max(math.hypot(*query), math.hypot(*key))
    heading = f"Each position turns the query by another {shown(math.degrees(angle))}°"
    drawing.text(MARGIN, 40, heading, bold=True, anchor="start")
    apart = f"{abs(math.degrees(between(key, turned(query, distance * angle)))):.0f}°"
    heading = f"With a key {distance} back: both turn, and the angle stays {apart}"
    drawing.text(MARGIN, SECOND_ROW - RADIUS - 24, heading, bold=True, anchor="start")
    for place in range(PLACES):
        x = WIDTH / 2 + ACROSS * (place - (PLACES - 1) / 2)
        draw_query(drawing, Dial(x, FIRST_ROW, RADIUS, reach), query, place, angle)
        below = Dial(x, SECOND_ROW, RADIUS, reach)
        if place == 0:
            draw_key(drawing, below, key)
        elif place >= distance:
            draw_two(drawing, below, turned(query, place * angle), turned(key, (place - distance) * angle))
            drawing.text(x, below.y + RADIUS + 26, f"query at {place}", size=SMALL, role="query")
            drawing.text(x, below.y + RADIUS + 49, f"key at {place - distance}", size=SMALL, role="key")
    return drawing


def draw_query(drawing: Drawing, dial: Dial, pair: Point, place: int, angle: float) -> None:
    """The query at a position, how it came there, and its numbers beneath."""
    face(drawing, dial)
    now = turned(pair, place * angle)
    if place and abs(angle) > 0.7:  # a smaller arc is hidden by the head of its arrow
        start = direction(pair) + (place - 1) * angle
        drawing.path(arc(dial, start + 0.15 * angle, start + 0.9 * angle, 0.82), stroke="faint", thick=1.8, arrow=True)
    hand(drawing, dial, now, "query")
    drawing.text(dial.x, dial.y + RADIUS + 26, f"position {place}", size=SMALL)
    drawing.text(dial.x, dial.y + RADIUS + 50, f"({shown(now[0])}, {shown(now[1])})", size=SMALL, mono=True)


def draw_key(drawing: Drawing, dial: Dial, pair: Point) -> None:
    """The key at position 0, before any query sees it, and its numbers beneath."""
    face(drawing, dial)
    hand(drawing, dial, pair, "key")
    drawing.text(dial.x, dial.y + RADIUS + 26, "no query yet", size=SMALL, role="faint")
    drawing.text(dial.x, dial.y + RADIUS + 49, "key at 0", size=SMALL, role="key")
    drawing.text(dial.x, dial.y + RADIUS + 75, f"({shown(pair[0])}, {shown(pair[1])})", size=SMALL, mono=True)


def draw_two(drawing: Drawing, dial: Dial, query: Point, key: Point) -> None:
    """A query and a key, the angle from one to the other, and their score beneath."""
    face(drawing, dial)
    sector(drawing, dial, direction(key), direction(key) + between(key, query), 0.5)
    hand(drawing, dial, key, "key")
    hand(drawing, dial, query, "query")
    score = query[0] * key[0] + query[1] * key[1]
    drawing.text(dial.x, dial.y + RADIUS + 75, f"score {shown(score)}", size=SMALL, bold=True)


def turning_in_words(query: Point, key: Point, angle: float, distance: int) -> str:
    """The turns for a reader who cannot see them."""
    pairs = [turned(query, place * angle) for place in range(PLACES)]
    spots = ", ".join(f"({shown(a)}, {shown(b)})" for a, b in pairs)
    last = pairs[distance]
    score = shown(last[0] * key[0] + last[1] * key[1])
    apart = f"{abs(math.degrees(between(key, last))):.0f}"
    return (f"Above, a query of two numbers as an arrow at positions 0 to {PLACES - 1}. Each position turns it by "
            f"another {shown(math.degrees(angle))} degrees: {spots}. Below, a key that starts as ({shown(key[0])}, "
            f"{shown(key[1])}), then the query at positions {distance} to {PLACES - 1} with the key {distance} before "
            f"it. Both arrows turn, but the angle between them stays {apart} degrees and the score {score}.")


class Hand(NamedTuple):
    """One of the pairs of numbers in a head.

    Attributes:
        pair: its number, 0 for the fastest.
        speed: radians per position.
    """

    pair: int
    speed: float


DIALS_LEFT, FACE = 192, 42  # where the dials begin, and their radius
DIALS_TOP, DOWN = 130, 128  # the centres of the first row, and from row to row


def clock_hands(hands: Sequence[Hand], distances: Sequence[int]) -> Drawing:
    """How far the pairs of a head have turned after some distances: the fast ones near, the slow ones far.

    Args:
        hands: two to four, fastest first.
        distances: one to four numbers of positions, each a row of dials.
    """
    require(2 <= len(hands) <= 4, "hands", len(hands), "2 to 4 of them")
    require(all(hand.speed > 0 for hand in hands), "speed", [hand.speed for hand in hands], "above 0")
    require(0 < len(distances) <= 4 and min(distances) > 0, "distances", distances, "1 to 4 numbers above 0")
    drawing = Drawing(f"{len(hands)} hands with {len(hands)} speeds", hands_in_words(hands, distances),
                      height=DIALS_TOP + DOWN * (len(distances) - 1) + FACE + 50)
    drawing.text(MARGIN, 64, "positions per turn", size=SMALL, role="faint", anchor="start")
    across = (WIDTH - MARGIN / 2 - DIALS_LEFT) / len(hands)
    for column, one in enumerate(hands):
        x = DIALS_LEFT + across * (column + 0.5)
        drawing.text(x, 38, f"hand {one.pair}", bold=True)
        drawing.text(x, 64, places(one.speed), size=SMALL, role="faint")
        for row, distance in enumerate(distances):
            draw_hand(drawing, Dial(x, DIALS_TOP + DOWN * row, FACE), one.speed * distance)
    for row, distance in enumerate(distances):
        y = DIALS_TOP + DOWN * row
        drawing.text(MARGIN, y - 6, f"after {distance:,}", bold=True, anchor="start")
        drawing.text(MARGIN, y + 18, "position" if distance == 1 else "positions", anchor="start")
    return drawing


def draw_hand(drawing: Drawing, dial: Dial, angle: float) -> None:
    """A hand that began at the right, the area that it went over, and the number of its turns."""
    face(drawing, dial)
    if angle < 2 * math.pi:
        sector(drawing, dial, 0, angle)
    else:
        drawing.circle(dial.x, dial.y, dial.radius, fill="mark", stroke="faint", thick=1)
    hand(drawing, dial, turned((0.96, 0), angle), "ink")
    drawing.text(dial.x, dial.y + dial.radius + 24, turns(angle), size=SMALL)


def places(speed: float) -> str:
    """How many positions a turn takes at a speed in radians per position.

    >>> places(1.0), places(0.05623413)
    ('6.28', '112')
    """
    number = 2 * math.pi / speed
    return f"{number:,.{2 if number < 10 else 0}f}"


def turns(angle: float) -> str:
    """How many turns an angle in radians is.

    >>> turns(2 * math.pi * 162.97), turns(2 * math.pi * 9.16), turns(0.2), turns(0.001)
    ('163 turns', '9.2 turns', '0.03 turns', 'under 0.01')
    """
    number = angle / (2 * math.pi)
    decimals = 0 if number >= 10 else 1 if number >= 1 else 2
    return f"{number:,.{decimals}f} turns" if number >= 0.01 else "under 0.01"


def hands_in_words(hands: Sequence[Hand], distances: Sequence[int]) -> str:
    """The dials for a reader who cannot see them."""
    speeds = ". ".join(f"Hand {one.pair} needs {places(one.speed)} positions a turn, in all "
                       f"{turns(one.speed * distances[-1])}" for one in hands)
    after = ", then ".join(f"{distance:,}" for distance in distances)
    return (f"{len(hands)} dials, each with a hand for one pair of numbers, in a row after {after} positions. "
            f"{speeds}. Fast hands tell near positions apart, slow hands far ones.")
