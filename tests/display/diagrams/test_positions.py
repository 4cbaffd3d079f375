"""RoPE as clock hands: the angle between two hands stays, and each hand has its speed."""

import math
import re
from xml.etree import ElementTree

import pytest

from course_lib.display.diagrams.positions import Hand, clock_hands, turning_pairs

QUARTER = math.pi / 2
POCKET = [Hand(pair, 10_000 ** (-pair / 16)) for pair in (0, 5, 10, 15)]
DRAWINGS = {
    "quarter turns": lambda: turning_pairs((2, 1), (3, 1), QUARTER),
    "slow, two apart": lambda: turning_pairs((1, -2), (0.5, 1), math.radians(20), distance=2),
    "backwards, three apart": lambda: turning_pairs((-1, 0), (-3, 4), -2.0, distance=3),
    "pocket": lambda: clock_hands(POCKET, (1, 32, 1024)),
    "three hands, four rows": lambda: clock_hands([Hand(i, 500_000 ** (-i / 32)) for i in (0, 8, 31)],
                                                  (1, 100, 10_000, 100_000)),
    "two hands, one row": lambda: clock_hands([Hand(0, 1.0), Hand(1, 0.01)], (10,)),
}


def texts(drawing):
    return [text for text, _ in drawing.texts]


def hands(drawing, role):
    """(length on the paper, angle in degrees from the right, to the left) of each straight arrow of a colour."""
    found = []
    for part in drawing.parts:
        match = re.search(r'd="M([\d.]+) ([\d.]+) L([\d.]+) ([\d.]+)".*s-' + role + '".*marker-end', part)
        if match:
            x0, y0, x1, y1 = map(float, match.groups())
            found.append((math.hypot(x1 - x0, y1 - y0), math.degrees(math.atan2(y0 - y1, x1 - x0))))
    return found


def swept(drawing):
    """The angle in degrees that each marked area covers, from its area and its radius; 360 for a full circle."""
    angles = []
    for part in drawing.parts:
        if "f-mark" in part and part.startswith("<circle"):
            angles.append(360.0)
        elif "f-mark" in part:
            numbers = [float(x) for x in re.findall(r"[\d.]+", re.search(r'd="([^"]*)"', part)[1])]
            points = list(zip(numbers[::2], numbers[1::2]))
            area = sum(a[0] * b[1] - b[0] * a[1] for a, b in zip(points, points[1:] + points[:1])) / 2
            angles.append(math.degrees(2 * abs(area) / math.dist(points[0], points[1]) ** 2))
    return angles


@pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)
def test_no_text_overlaps_another_or_leaves_the_paper(draw):
    drawing = draw()
    for i, (text, area) in enumerate(drawing.texts):
        assert [other for other, its_area in drawing.texts[i + 1:] if area.overlaps(its_area)] == [], text
        assert area.left >= 0 and area.top >= 0 and area.right <= drawing.width and area.bottom <= drawing.height


@pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)
def test_svg_is_xml_and_the_same_bytes_twice(draw):
    svg = draw().svg()
    ElementTree.fromstring(svg)
    assert svg == draw().svg()


@pytest.mark.parametrize("query, key, angle, distance", [((2, 1), (3, 1), QUARTER, 1), ((1, -2), (0.5, 1), 0.35, 2),
                                                         ((-1, 0), (-3, 4), -2.0, 3)])
def test_the_angle_between_query_and_key_is_the_same_at_all_positions(query, key, angle, distance):
    drawing = turning_pairs(query, key, angle, distance=distance)
    queries, keys = hands(drawing, "query"), hands(drawing, "key")
    start = math.degrees(math.atan2(query[1], query[0]) - math.atan2(key[1], key[0]) + distance * angle)
    assert len(queries) == 4 + len(keys) and len(keys) == 6 - distance  # the first key is alone
    beside = queries[distance + 1::2]  # each after a query alone
    for (_, one), (_, other) in zip(beside, keys[1:], strict=True):
        assert math.remainder(one - other - start, 360) == pytest.approx(0, abs=0.5)
    assert keys[0] == pytest.approx(keys[1])
    moves = [math.remainder(b[1] - a[1] - math.degrees(angle), 360) for a, b in zip(keys[1:], keys[2:])]
    assert moves == pytest.approx([0] * len(moves), abs=0.5)
    expected = abs(math.remainder(start, 360))
    assert swept(drawing) == pytest.approx([expected] * (len(keys) - 1), abs=1)


def test_arrows_are_as_long_as_their_pairs_and_begin_where_these_point():
    drawing = turning_pairs((2, 1), (3, 1), QUARTER)
    (query, angle), (key, _) = hands(drawing, "query")[0], hands(drawing, "key")[0]
    assert query / key == pytest.approx(math.sqrt(5 / 10), abs=0.01)
    assert angle == pytest.approx(math.degrees(math.atan2(1, 2)), abs=0.5)


def test_turning_shows_the_pairs_and_the_score_of_the_notebook():
    written = texts(turning_pairs((2, 1), (3, 1), QUARTER))
    pairs = [text for text in written if text.startswith("(")]
    assert pairs == ["(2, 1)", "(3, 1)", "(−1, 2)", "(−2, −1)", "(1, −2)",
                                                                     "(2, 1)"]
    assert written.count("score −1") == 4
    assert texts(turning_pairs((2, 1), (3, 1), QUARTER, distance=2)).count("score −7") == 3
    assert any("stays 98°" in text for text in written)


def test_marked_areas_are_the_turns_and_a_full_circle_from_one_on():
    areas = swept(clock_hands(POCKET, (1, 32, 1024)))
    expected = [min(360, 360 * hand.speed * distance / (2 * math.pi)) for hand in POCKET for distance in (1, 32, 1024)]
    assert areas == pytest.approx(expected, abs=2)


def test_hands_point_where_their_speed_takes_them():
    angles = [angle for _, angle in hands(clock_hands(POCKET, (1, 32, 1024)), "ink")]
    expected = [math.degrees(hand.speed * distance) for hand in POCKET for distance in (1, 32, 1024)]
    assert [math.remainder(a - b, 360) for a, b in zip(angles, expected)] == pytest.approx([0] * 12, abs=0.5)


def test_hands_show_the_numbers_of_the_notebook():
    written = texts(clock_hands(POCKET, (1, 32, 1024)))
    for text in ("6.28", "112", "1,987", "35,333", "163 turns", "9.2 turns", "0.52 turns", "0.03 turns"):
        assert text in written


def test_descriptions_say_the_numbers():
    turning = turning_pairs((2, 1), (3, 1), QUARTER).description
    for words in ("98 degrees", "the score −1", "starts as (3, 1)", "another 90 degrees"):
        assert words in turning
    assert "Hand 10 needs 1,987 positions a turn, in all 0.52 turns" in clock_hands(POCKET, (1, 32, 1024)).description


@pytest.mark.parametrize("call", [
    lambda: turning_pairs((2, 1), (3, 1), QUARTER, distance=0),
    lambda: turning_pairs((2, 1), (3, 1), QUARTER, distance=4),
    lambda: turning_pairs((0, 0), (3, 1), QUARTER),
    lambda: clock_hands(POCKET[:1], (1,)),
    lambda: clock_hands([*POCKET, Hand(20, 1e-6)], (1,)),
    lambda: clock_hands([Hand(0, 1.0), Hand(1, 0.0)], (1,)),
    lambda: clock_hands(POCKET, ()),
    lambda: clock_hands(POCKET, (0, 1)),
])
def test_bad_arguments_are_refused(call):
    with pytest.raises(ValueError, match="is not allowed"):
        call()
