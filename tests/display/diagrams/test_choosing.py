"""The three cuts and the unit interval: what is kept, how long the bars are, and which token is hit."""

import pytest
import torch
from well_drawn import check, hatched, rects, words

from course_lib.display.diagrams.choosing import Place, three_cuts, unit_interval
from course_lib.sampling import apply_min_p, apply_top_p, draw

SURE = Place("sure", "… in two", [(" years", 0.95), (" days", 0.02), *[(f" {i}", 0.002) for i in range(10)]])
UNSURE = Place("not sure", "… in", [(f" {name}", q) for name, q in zip(
    "ten five six four three nine seven eleven twelve two eight one".split(),
    (0.2, 0.16, 0.14, 0.11, 0.08, 0.07, 0.06, 0.04, 0.035, 0.03, 0.02, 0.01))])
TOY = [("id 0", 0.4), ("id 1", 0.3), ("id 2", 0.2), ("id 3", 0.1)]


@pytest.mark.parametrize("k, p, min_p", [(5, 0.9, 0.1), (3, 0.5, 0.25), (1, 0.93, 0.5)])
def test_as_many_bars_are_hatched_as_the_samplers_remove(k, p, min_p):
    drawing = check(lambda: three_cuts((SURE, UNSURE), k=k, p=p, min_p=min_p))
    removed = []
    for place in (SURE, UNSURE):
        logits = torch.tensor([[q for _, q in place.candidates]], dtype=torch.float64)
        rest = torch.full((1, 1000), (1 - logits.sum().item()) / 1000, dtype=torch.float64)
        logits = torch.cat((logits, rest), -1).log()
        cuts = apply_top_p(logits, [p]), apply_min_p(logits, [min_p])
        removed.append([12 - k, *(12 - cut.isfinite().sum().item() for cut in cuts)])
    rows = sorted({round(top + height) for _, top, _, height in hatched(drawing)})
    found = [[sum(round(top + height) == row and (left > 350) == right for left, top, _, height in hatched(drawing))
              for row in rows] for right in (False, True)]
    assert found == removed
    counts = [text for text in words(drawing) if text.startswith("keeps")]
    assert counts == [f"keeps {12 - removed[column][row]}" for row in range(3) for column in range(2)]


def test_bars_are_proportional_to_probabilities():
    drawing = three_cuts((SURE, UNSURE), k=5, p=0.9, min_p=0.1)
    heights = [height for left, _, _, height in rects(drawing, "weights") if left > 350][:5]
    assert [height / heights[0] for height in heights] == pytest.approx([1, 0.8, 0.7, 0.55, 0.4], abs=0.01)


def test_the_shade_covers_the_bars_that_top_p_keeps():
    drawing = three_cuts((SURE, UNSURE), k=5, p=0.9, min_p=0.1)
    (_, _, narrow, _), (_, _, wide, _) = rects(drawing, "mark")
    assert (wide - 2) / (narrow - 2) == pytest.approx(10, abs=0.1)
    assert "keeps 1 and 10" in drawing.description and "until the sum reaches 0.9" in words(drawing)


@pytest.mark.parametrize("settings", [{"k": 0}, {"k": 12}, {"p": 1.0}, {"p": 0.97}, {"min_p": 0.0}])
def test_cuts_that_cannot_be_seen_are_refused(settings):
    with pytest.raises(ValueError, match="must be"):
        three_cuts((SURE, UNSURE), **{"k": 5, "p": 0.9, "min_p": 0.1, **settings})


def test_candidates_are_sorted():
    with pytest.raises(ValueError, match="sorted"):
        three_cuts((SURE, UNSURE._replace(candidates=UNSURE.candidates[::-1])), k=5, p=0.9, min_p=0.1)


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
