"""The unit interval: pieces as long as tokens are probable, and the token that is hit."""

import pytest
import torch
from well_drawn import check, rects, words

from course_lib.display.diagrams.interval import unit_interval
from course_lib.sampling import draw

TOY = [("id 0", 0.4), ("id 1", 0.3), ("id 2", 0.2), ("id 3", 0.1)]


@pytest.mark.parametrize("u", [0.0, 0.399, 0.401, 0.642, 0.901, 0.999])
def test_the_number_hits_the_token_that_the_sampler_draws(u):
    drawing = check(lambda: unit_interval(TOY, u))
    probs = torch.tensor([[q for _, q in TOY]], dtype=torch.float64)
    hit = draw(probs, torch.tensor([u], dtype=torch.float64)).item()
    [(left, _, width, _)] = rects(drawing, "mark")
    assert left <= 28 + 664 * u + 0.1 and 28 + 664 * u < left + width + 0.1
    assert f"into the piece of id {hit}," in drawing.description
    assert width == pytest.approx(664 * TOY[hit][1], abs=0.1)


def test_a_border_belongs_to_the_token_that_begins_there():
    drawing = unit_interval([("a", 0.5), ("b", 0.25), ("c", 0.25)], 0.5)
    assert "into the piece of b," in drawing.description


def test_pieces_are_as_long_as_their_tokens_are_probable():
    drawing = unit_interval(TOY, 0.642)
    pieces = sorted(rects(drawing, "plain") + rects(drawing, "mark"))
    assert [width for _, _, width, _ in pieces] == pytest.approx([265.6, 199.2, 132.8, 66.4], abs=0.1)
    assert {"u = 0.642", "0", "0.4", "0.7", "0.9", "1", "the first sum above u"} <= set(words(drawing))


def test_narrow_pieces_go_without_words():
    tokens = [("cou", 0.488), ("mat", 0.433), ("table", 0.021), ("floor", 0.014), ("black", 0.011), ("rest", 0.033)]
    drawing = check(lambda: unit_interval(tokens, 0.93))
    assert "table" not in words(drawing) and "0.942" in words(drawing)
    assert "into the piece of table" in drawing.description


@pytest.mark.parametrize("tokens, u", [(TOY, 1.0), (TOY[:1], 0.5), (TOY[:3], 0.5), ([*TOY, ("id 4", 0.0)], 0.5)])
def test_what_is_no_distribution_is_refused(tokens, u):
    with pytest.raises(ValueError, match="must be"):
        unit_interval(tokens, u)
