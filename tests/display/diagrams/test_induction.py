"""The drawing of the induction circuit: what is written, what is found, and where the copy goes."""

import re
from xml.etree import ElementTree

import pytest
from well_drawn import check

from course_lib.display.diagrams.induction import induction_circuit

DRAWINGS = {
    "names": lambda: induction_circuit("Mei", "Stefan", early="layer 1, head 0", late="layer 5, head 2"),
    "long": lambda: induction_circuit("Samuel", "WWWWWW"), "short": lambda: induction_circuit("I", "a"),
}
EACH = pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)


def elements(drawing, tag, role=""):
    return [e for e in ElementTree.fromstring(drawing.svg()).iter()
            if e.tag.endswith("}" + tag) and role in (e.get("class") or "").split() + [""]]


def ends(path):
    numbers = [float(x) for x in re.findall(r"-?[\d.]+", path.get("d"))]
    return tuple(numbers[:2]), tuple(numbers[-2:])


@EACH
def test_drawing_is_sound(draw):
    check(draw)


@pytest.mark.parametrize("token, follower", [("Diego", "Anya"), ("Samuel", "Bo")])
def test_what_is_copied_comes_from_beneath_its_first_place_and_ends_beneath_the_second_token(token, follower):
    drawing = induction_circuit(token, follower)
    middles = {text: [] for text, _ in drawing.texts}
    for text, area in drawing.texts:
        middles[text].append(((area.left + area.right) / 2, area.bottom))
    first, last = (x for x, _ in middles[token])
    place_of = middles[follower][0][0]
    assert first < place_of < last
    assert [x for x, _ in middles[f"after {token}"]] == pytest.approx([place_of] * 2)
    [query] = middles[f"after {token}?"]
    assert query[0] == pytest.approx(last)
    fetched, copied = (ends(e) for e in elements(drawing, "path", "s-value"))
    assert fetched[0][0] == pytest.approx(first) and fetched[1][0] < place_of
    assert place_of < copied[0][0] and copied[1][0] == pytest.approx(last, abs=4)
    [match] = [ends(e) for e in elements(drawing, "path", "s-query")]
    assert match[0][0] > match[1][0] > place_of  # the query looks back
    where, bottom = middles[follower][-1]
    assert where == pytest.approx(last) and bottom > copied[1][1]


def test_the_circuit_names_its_heads():
    drawing = induction_circuit("Mei", "Stefan", early="layer 1, head 0", late="layer 5, head 2")
    texts = {text for text, _ in drawing.texts}
    assert {"previous-token head", "layer 1, head 0", "induction head", "layer 5, head 2"} <= texts
    assert "in an early layer" in induction_circuit("a", "b").description


@pytest.mark.parametrize("token, follower, message", [("", "a", "token"), ("a", "Alexander", "follower")])
def test_names_that_there_is_no_room_for_raise(token, follower, message):
    with pytest.raises(ValueError, match=message):
        induction_circuit(token, follower)
