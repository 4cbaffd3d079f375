"""The three cuts: what is kept, and how long the bars are."""

import pytest
import torch
from well_drawn import check, hatched, paths, rects, words

from course_lib.display.diagrams.choosing import Place, three_cuts
from course_lib.sampling import apply_min_p, apply_top_p

SURE = Place("sure", "… in two", [(" years", 0.95), (" days", 0.02), *[(f" {i}", 0.002) for i in range(10)]])
UNSURE = Place("not sure", "… in", [(f" {name}", q) for name, q in zip(
    "ten five six four three nine seven eleven twelve two eight one".split(),
    (0.2, 0.16, 0.14, 0.11, 0.08, 0.07, 0.06, 0.04, 0.035, 0.03, 0.02, 0.01))])


@pytest.mark.parametrize("k, p, min_p", [(5, 0.9, 0.1), (3, 0.5, 0.25), (1, 0.93, 0.5)])
def test_each_cut_keeps_as_many_as_the_samplers_do(k, p, min_p):
    drawing = check(lambda: three_cuts((SURE, UNSURE), k=k, p=p, min_p=min_p, of=4096))
    kept = []
    for place in (SURE, UNSURE):
        logits = torch.tensor([[q for _, q in place.candidates]], dtype=torch.float64)
        rest = torch.full((1, 1000), (1 - logits.sum().item()) / 1000, dtype=torch.float64)
        logits = torch.cat((logits, rest), -1).log()
        cuts = apply_top_p(logits, [p]), apply_min_p(logits, [min_p])
        kept.append([k, *(cut.isfinite().sum().item() for cut in cuts)])
    solid = rows_of(rects(drawing, "weights"))
    assert [[len(row) for row in column] for column in solid] == kept
    (first, _, third), (fourth, _, sixth) = rows_of(hatched(drawing))
    assert [len(row) for row in (first, third, fourth, sixth)] == [12 - kept[i][j] for i in (0, 1) for j in (0, 2)]
    counts = [text for text in words(drawing) if text.startswith("keeps")]
    assert counts == [f"keeps {kept[column][row]}" for row in range(3) for column in range(2)]
    assert f"the first {k} (only 12 of 4,096 bars are drawn)" in words(drawing)


def rows_of(found):
    """Rectangles by panel, left and right, and by row, from the top."""
    bottoms = sorted({round(top + height) for _, top, _, height in found})
    return [[[one for one in found if round(one[1] + one[3]) == bottom and (one[0] > 350) == right]
             for bottom in bottoms] for right in (False, True)]


def test_bars_of_both_panels_are_on_one_scale_or_its_first_is_labelled():
    drawing = three_cuts((SURE, UNSURE), k=5, p=0.9, min_p=0.1, of=4096)
    left, right = rows_of(rects(drawing, "weights"))
    full = left[0][0][3] / 0.95
    assert [height / full for *_, height in right[0]] == pytest.approx([0.2, 0.16, 0.14, 0.11, 0.08], abs=0.01)
    share = [height / right[2][0][3] for *_, height in right[2][:5]]
    assert share == pytest.approx([1, 0.8, 0.7, 0.55, 0.4], abs=0.01) and left[2][0][3] == right[2][0][3]
    assert [words(drawing).count(text) for text in ("95 %", "20 %", "9.5 %", "2.0 %")] == [2, 2, 1, 1]


def test_top_p_cuts_the_sum_of_the_probabilities():
    drawing = three_cuts((SURE, UNSURE), k=5, p=0.9, min_p=0.1, of=4096)
    _, right = rows_of(rects(drawing, "weights"))
    [removed] = [one for one in hatched(drawing) if one[0] > 350 and round(one[3]) == round(right[1][0][3])]
    begin, whole = right[1][0][0], removed[0] + removed[2] - right[1][0][0]
    assert [(x - begin) / whole for x, *_ in right[1][:4]] == pytest.approx([0, 0.2, 0.36, 0.5], abs=0.001)
    assert (removed[0] - begin) / whole == pytest.approx(0.925, abs=0.001)
    line = next(points for points in paths(drawing, 3) if points[0][0] > 350 and points[1][1] == right[1][0][1] + 48)
    assert (line[0][0] - begin) / whole == pytest.approx(0.9, abs=0.001)


def test_the_description_names_what_is_drawn():
    drawing = three_cuts((SURE, UNSURE), k=5, p=0.9, min_p=0.1, of=4096)
    heads = [text.removeprefix("next: ") for text in words(drawing) if text.startswith("next: ")]
    assert len(heads) == 2 and all(f": {head}. " in drawing.description for head in heads)
    assert "top-p 0.9 keeps 1 and 10" in drawing.description


@pytest.mark.parametrize("settings", [{"k": 0}, {"k": 12}, {"p": 1.0}, {"p": 0.97}, {"min_p": 0.0}])
def test_cuts_that_cannot_be_seen_are_refused(settings):
    with pytest.raises(ValueError, match="must be"):
        three_cuts((SURE, UNSURE), **{"k": 5, "p": 0.9, "min_p": 0.1, "of": 4096, **settings})


def test_candidates_are_sorted():
    with pytest.raises(ValueError, match="sorted"):
        three_cuts((SURE, UNSURE._replace(candidates=UNSURE.candidates[::-1])), k=5, p=0.9, min_p=0.1, of=4096)
