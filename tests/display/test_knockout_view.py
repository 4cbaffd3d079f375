"""The knock-out widget's words and numbers against the models' own answers."""

import re

import pytest
import torch
from saved_form import still_of
from tiny_lm import TOKENIZER, scrambled_lm

from course_lib.analysis.knockout import chat_prompt
from course_lib.analysis.residual import knocked_out
from course_lib.config import SamplingParams
from course_lib.display.knockout_view import (
    PARTS,
    Answer,
    KnockoutView,
    knockout_html,
    knockout_summary,
    knockout_view,
    names_of,
)
from course_lib.display.knockout_widget import knockout_widget
from course_lib.generate import generate

PROMPT = TOKENIZER.encode("The cat sat on the")


@pytest.fixture(scope="module")
def lm():
    return scrambled_lm()


def alone(lm, prompt, max_tokens):
    return generate(lm, prompt, SamplingParams(temperature=0, max_tokens=max_tokens)).text


def test_a_view_shows_both_models(lm):
    names = ["layers.1.mlp"]
    view = knockout_view(lm, PROMPT, names, "the MLP of layer 1", max_tokens=6)
    assert view.intact.text == alone(lm, PROMPT, 6).strip()
    ids = torch.tensor([[*PROMPT, *view.intact.token_ids]])
    with torch.no_grad():
        before = lm.model(ids)[0].double().softmax(-1)
        with knocked_out(lm.model, names):
            after = lm.model(ids)[0].double().softmax(-1)
            assert view.without.text == alone(lm, PROMPT, 6).strip()
    for i, token_id in enumerate(view.intact.token_ids):
        place = len(PROMPT) - 1 + i
        assert view.before[i] == pytest.approx(before[place, token_id].item())
        assert view.after[i] == pytest.approx(after[place, token_id].item())
    assert b"".join(view.pieces) == TOKENIZER.decode_bytes(list(view.intact.token_ids))
    assert max(view.before) <= 1 and len(view.before) == len(view.after) == len(view.pieces)


def test_nothing_knocked_out_changes_nothing(lm):
    view = knockout_view(lm, PROMPT, [], "nothing", max_tokens=6)
    assert view.intact == view.without and view.before == view.after and view.first_lost is None
    assert knockout_summary(view).startswith("Without nothing the answer stays the same, all 6 tokens of it")


def view_of(intact, without, before=(0.9, 0.8, 0.7), after=(0.85, 0.01, 0.2)):
    pieces = tuple(bytes([97 + i]) for i in intact)
    return KnockoutView("<it>", Answer("&yes", intact), Answer("no", without), pieces, before, after)


def test_where_the_answers_part():
    assert view_of((0, 1, 2), (0, 3, 2)).first_lost == 1
    assert view_of((0, 1, 2), (0, 1)).first_lost == 2
    assert view_of((0, 1, 2), (0, 1, 2, 4)).first_lost == 3
    assert view_of((0, 1, 2), (0, 1, 2)).first_lost is None
    assert knockout_summary(view_of((0, 1, 2), (0, 3))) == \
        "Without <it> the answers part at token 2: 'b' had 80.0 % and has 1.0 %."
    assert "goes on where the intact one stops" in knockout_summary(view_of((0, 1, 2), (0, 1, 2, 4)))


def test_markup_escapes_and_marks_the_first_lost_token():
    markup = knockout_html(view_of((0, 1, 2), (0, 3)))
    assert "&amp;yes" in markup and "&lt;it&gt;" in markup and "<it>" not in markup
    assert re.findall(r'<li class="(\w*)"', markup) == ["", "lost", ""]
    assert 'data-lost="1"' in markup and 'data-least="0.010000"' in markup
    assert 'class="answer other"' in markup and 'class="answer same"' in knockout_html(view_of((0, 1, 2), (0, 1, 2)))


def test_names_of_the_parts():
    assert names_of(1, "attention and MLP") == ["layers.1.self_attn", "layers.1.mlp"]
    assert names_of(0, "nothing") == [] and list(PARTS) == ["attention", "MLP", "attention and MLP", "nothing"]


def answers_of(panel):
    return re.findall(r'<p class="answer (\w+)">(.*?)</p>', panel.picture.value, re.S)


def test_the_widget_answers_with_and_without(lm):
    panel = knockout_widget(lm, "The cat sat", layer=1, part="attention", max_tokens=8)
    first = panel.picture.value
    assert "the attention of layer 1" in first
    panel.part.value = "nothing"
    assert [kind for kind, _ in answers_of(panel)] == ["intact", "same"]
    panel.layer.value, panel.part.value = 0, "attention and MLP"
    assert "Without the attention and MLP of layer 0" in panel.picture.value
    with knocked_out(lm.model, names_of(0, "attention and MLP")):
        expected = alone(lm, chat_prompt(lm, "The cat sat"), 8).strip()
    assert panel.update().without.text == expected
    panel.layer.value, panel.part.value = 1, "attention"
    assert panel.picture.value == first


def test_the_widget_says_what_is_wrong_and_goes_on(lm):
    panel = knockout_widget(lm, "The cat sat", max_tokens=4)
    before = panel.picture.value
    panel.question.value = "  "
    assert "Not updated." in panel.message.value and panel.picture.value == before
    panel.question.value = "The cat " * 40
    assert "leaves no room" in panel.message.value and panel.picture.value == before
    panel.question.value = "It was"
    assert panel.message.value == "" and panel.picture.value != before


@pytest.mark.parametrize("wrong, said", [({"layer": 2}, r"layer = 2 .*\[0, 1\]"), ({"part": "head"}, "part = 'head'"),
                                         ({"question": ""}, "question = ''")])
def test_the_widget_refuses_what_there_is_not(lm, wrong, said):
    with pytest.raises(ValueError, match=said):
        knockout_widget(lm, **{"question": "The cat"} | wrong)


def test_the_widget_is_saved_as_a_picture_with_its_finding(lm):
    panel = knockout_widget(lm, "The cat sat", max_tokens=6)
    assert still_of(panel).startswith("The cat sat Without the MLP of layer 0 ")
