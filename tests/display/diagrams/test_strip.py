"""The strip: here is marked, what is read is filled, and the neighbours have their names."""

from xml.etree import ElementTree

import pytest
from well_drawn import SVG, check, words

from course_lib.display.diagrams.strip import HERE, STATION, strip

STATIONS = [(f"{i:02}", title) for i, title in enumerate(
    ["From Enter to the first word", "Tokenizer", "Embeddings and positions", "Attention", "The transformer block"])]


def circles(drawing):
    """(x, radius, class) of each station."""
    root = ElementTree.fromstring(drawing.svg())
    return [(float(c.get("cx")), float(c.get("r")), c.get("class")) for c in root.iter(f"{SVG}circle")]


@pytest.mark.parametrize("place", range(5))
def test_one_station_is_large_and_those_before_it_are_filled(place):
    drawing = check(lambda: strip(STATIONS, f"{place:02}"))
    *others, here = circles(drawing)
    assert here[1:] == (HERE, "f-mark s-ink") and {radius for _, radius, _ in others} == {STATION}
    assert [kind == "f-ink s-ink" for _, _, kind in others] == [x < here[0] for x, *_ in others]
    assert sum(x < here[0] for x, *_ in others) == place


def test_title_and_neighbours_are_named():
    assert words(strip(STATIONS, "02")) == ["02", "Embeddings and positions", "← 01 Tokenizer", "03 Attention →"]
    assert words(strip(STATIONS, "00"))[2:] == ["01 Tokenizer →"]
    assert words(strip(STATIONS, "04"))[2:] == ["← 03 Attention"]
    assert "Before it: 01 Tokenizer. After it: 03 Attention." in strip(STATIONS, "02").description


def test_an_unknown_station_is_refused():
    with pytest.raises(ValueError, match="here"):
        strip(STATIONS, "07")
