"""The LM head: the last vector goes to every row, and bars are as long as scores are large."""

import pytest
import torch
from well_drawn import check, hatched, paths, rects, words

from course_lib.analysis.trace import trace
from course_lib.checkpoint import load
from course_lib.display.diagrams.head import INDIA, LONGEST, TABLE, VECTOR, ZERO, Score, lm_head
from course_lib.display.diagrams.head import SCORES as INDIA_SCORES

TOKENS, VECTORS = ["Why", " is", " it", "?"], [[0.5, -1.0, 0.25]] * 3 + [[-0.13, 0.29, 0.14, 9.9]]
SCORES = [Score(" So", 629, 8.0), Score(" cat", 12, -4.0), Score(" It", 3000, 6.0)]


def draw(scores=SCORES):
    return lm_head(TOKENS, VECTORS, scores, rows=5000, width=192)


def test_all_vectors_but_the_last_are_hatched_with_the_token_that_is_known():
    drawing = check(draw)
    assert len(hatched(drawing)) == 3
    assert [word for word in words(drawing) if word.startswith("known")] == [
        "known: “␣is”", "known: “␣it”", "known: “?”"]
    assert "−0.13 0.29 0.14 …" in words(drawing)


def test_the_last_vector_goes_to_each_row_and_rows_are_in_order():
    drawing = draw()
    fan = [points for points in paths(drawing, 1.8) if points[0][0] == VECTOR[1] + 3]
    assert len(fan) == 3 and len({start for start, _ in fan}) == 1
    assert all(end[0] == TABLE[0] - 3 for _, end in fan)
    assert [word for word in words(drawing) if word in ("12", "629", "3000")] == ["12", "629", "3000"]


def test_bars_begin_at_zero_and_the_largest_score_is_in_ink():
    drawing = draw()
    [(left, _, width, _)] = [bar for bar in rects(drawing, "ink") if bar[3] == 22]
    assert (left, width) == pytest.approx((ZERO, LONGEST), abs=0.1)
    grey = [(left, left + width) for left, _, width, high in rects(drawing, "weights") if high == 22]
    assert grey == [pytest.approx((ZERO - LONGEST / 2, ZERO), abs=0.1),
                    pytest.approx((ZERO, ZERO + 0.75 * LONGEST), abs=0.1)]
    assert {"−4.0", "8.0", "6.0", "5,000 × 192", "4 × 192, the last is needed"} <= set(words(drawing))


@pytest.mark.parametrize("call", [
    lambda: lm_head(TOKENS[:1], VECTORS[:1], SCORES, rows=5000, width=192),
    lambda: lm_head(TOKENS, VECTORS[:3], SCORES, rows=5000, width=192), lambda: draw(SCORES[:2])])
def test_what_cannot_be_drawn_is_refused(call):
    with pytest.raises(ValueError, match="is not allowed"):
        call()


def test_the_capital_of_india_is_that_of_pocket():
    lm = load("pocket", device="cpu")
    ids = lm.tokenizer.encode_prompt("".join(text for text, _ in INDIA))
    assert [lm.tokenizer.decode([i]) for i in ids] == [text for text, _ in INDIA]
    seen = trace(lm.model, torch.tensor([ids]))
    with torch.no_grad():
        normed = lm.model.norm(seen.hidden_states[-1, 0])
    for (_, numbers), vector in zip(INDIA, normed.tolist(), strict=True):
        assert vector[:3] == pytest.approx(numbers, abs=0.0051)
    logits = seen.logits[0, -1]
    for text, i, logit in INDIA_SCORES:
        assert lm.tokenizer.decode([i]) == text and logits[i].item() == pytest.approx(logit, abs=0.0051)
    assert logits.topk(3).indices.tolist() == [score.id for score in INDIA_SCORES[:3]]
