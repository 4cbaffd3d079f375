"""Proposals and the rule drawn: every box and every bar is where the numbers say."""

import pytest
from well_drawn import check, hatched, rects, words

from course_lib.display.diagrams.speculating import BOX, draft_and_verify, overlap, roll_back

PASSES = [(["When", " you", " have"], 2, " jump"), ([",", " a"], 2, "."), ([" so", " much", " of"], 0, " back")]


def test_each_proposal_is_solid_hatched_or_dashed():
    drawing = check(lambda: draft_and_verify(PASSES))
    assert len(rects(drawing, "latency")) == 4, "accepted"
    assert len(hatched(drawing)) == 2, "rejected: one a pass at most"
    assert [width for _, _, width, _ in rects(drawing, "mark")] == [BOX] * 3, "the target's own"
    written = words(drawing)
    assert [word for word in written if word.startswith("+")] == ["+3", "+3", "+1"]
    assert "7 tokens in 3 passes. Hatched: rejected. Dashed: not looked at." in written
    assert "␣jump" in written and "pass 3" in written
    assert "Pass 1: the target keeps “When you”, rejects “have”, writes “jump”" in drawing.description
    assert "2: the target keeps all" in drawing.description and "3: the target rejects “so”" in drawing.description


@pytest.mark.parametrize("p, q", [([6, 3, 2, 1], [3, 6, 1, 2]), ([7, 4, 1], [4, 4, 4]), ([2, 1, 1, 0], [1, 1, 1, 1])])
def test_what_is_hatched_is_as_large_as_what_is_yellow(p, q):
    tokens = ["force", "pull", "kind", "cat"][: len(p)]
    drawing = check(lambda: overlap(tokens, p, q))
    bars = [rect for rect in rects(drawing, "latency") if rect[2] > 40]
    more = [rect for rect in rects(drawing, "mark") if rect[2] > 40]
    less = [rect for rect in hatched(drawing) if rect[2] > 40]
    unit = max(height for *_, height in bars) / max(map(min, p, q))
    assert [height for *_, height in bars] == pytest.approx([unit * min(pair) for pair in zip(p, q)], abs=0.3)
    lost = sum(max(0, a - b) for a, b in zip(p, q))
    assert sum(height for *_, height in more) == pytest.approx(unit * lost, abs=0.3)
    assert sum(height for *_, height in less) == pytest.approx(unit * lost, abs=0.3)
    assert f"rejected: {lost} of {sum(p)}" in words(drawing) and f"residual: {lost} of {sum(p)}" in words(drawing)
    assert f"{sum(p) - lost} of {sum(p)}: accepted" in drawing.description


@pytest.mark.parametrize("accepted, target, draft", [(0, 4, 3), (1, 3, 2), (3, 1, 0)])
def test_rows_after_the_last_accepted_are_cut_from_both_caches(accepted, target, draft):
    drawing = check(lambda: roll_back(" pull", ["s", " a", " dro", "pped"], accepted, " you"))
    kept, cut = rects(drawing, "cache"), hatched(drawing)
    assert len(kept) == 2 * (accepted + 2), "of both caches the text, the pending token and what was accepted"
    tops = sorted({top for _, top, *_ in kept})
    assert [sum(top == place for _, top, *_ in cut) for place in tops] == [target, draft]
    edge = max(left + width for left, _, width, _ in kept)
    assert all(left > edge for left, *_ in cut), "a cache is cut at one place"
    [own] = rects(drawing, "mark")
    assert own[0] == min(left for left, *_ in cut), "the next row takes the place of the first that was cut"
    assert words(drawing).count("␣pull") == 2 and words(drawing).count("pped") == 1
    assert f"{target} row" in drawing.description and "“you”" in drawing.description


@pytest.mark.parametrize("call", [
    lambda: roll_back("a", ["b"], 0, "c"), lambda: roll_back("a", ["b", "c"], 2, "d"),
    lambda: draft_and_verify([]), lambda: draft_and_verify([(["a"], 2, "b")]), lambda: draft_and_verify(PASSES * 3),
    lambda: draft_and_verify([([], 0, "a")]), lambda: overlap(["a", "b"], [1, 1], [1, 1]),
    lambda: overlap(["a", "b", "c"], [1, 1, 1], [1, 1, 2])])
def test_what_cannot_be_drawn_is_refused(call):
    with pytest.raises(ValueError, match="is not allowed"):
        call()
