"""The drawings of softmax by hand and of the logit lens; the readings in the second are those of the model."""

import pytest
import torch
from drawings import DRAWINGS
from well_drawn import check, rects, words

from course_lib.analysis.logit_lens import logit_lens as read_off
from course_lib.analysis.logit_lens import settling_depth
from course_lib.analysis.trace import trace
from course_lib.checkpoint import load
from course_lib.display.diagrams.readout import CAPITAL, logit_lens, settling, softmax_by_hand


@pytest.mark.parametrize("logits", [[4, 2, 1], [0.5, -3], [1, 2, 3, 4, 5]])
def test_the_steps_of_a_softmax(logits):
    drawing = check(lambda: softmax_by_hand(logits))
    exact = torch.tensor(logits, dtype=torch.float64).softmax(0).tolist()
    assert {f"{p:.3f}" for p in exact} <= set(words(drawing))
    bars = [width for _, _, width, _ in rects(drawing, "ink")]
    assert max(bars) == bars[logits.index(max(logits))] and len(bars) == len(logits)


@pytest.mark.parametrize("logits", [[1], [0] * 6])
def test_too_few_or_too_many_logits_are_refused(logits):
    with pytest.raises(ValueError, match="logits"):
        softmax_by_hand(logits)


def test_the_lens_marks_where_the_answer_stays():
    drawing = check(lambda: logit_lens("a b", [(" b", 0.9), (" c", 0.5), (" d", 0.4), (" c", 0.6), (" c", 1.0)]))
    assert len(rects(drawing, "mark")) == 2
    assert "From 3 layers on" in drawing.description
    assert settling([(" c", 0.2), (" c", 0.3)]) == 0


def test_the_readings_are_those_of_pocket():
    prompt, readings = CAPITAL
    lm = load("pocket", device="cpu")
    hidden = trace(lm.model, torch.tensor([lm.tokenizer.encode_prompt(prompt)])).hidden_states
    lens = read_off(lm.model, hidden[:, 0, -1])  # (L + 1, V)
    top = lens.softmax(-1).max(-1)
    assert [lm.tokenizer.decode([i]) for i in top.indices.tolist()] == [word for word, _ in readings]
    assert top.values.tolist() == pytest.approx([p for _, p in readings], abs=0.0051)
    assert settling_depth(lens) == settling(readings)


@pytest.mark.parametrize("name", ["06_softmax", "06_lens"])
def test_the_catalogue_has_them(name):
    check(DRAWINGS[name])
