"""The exam in batches against one question at a time; the widget's words against the models' own answers."""

import re
from types import SimpleNamespace

import pytest
import torch
from test_widgets import RANKS, TOKENIZER, N

from course_lib import load
from course_lib.analysis.knockout import MAX_TOKENS, Exam, chat_prompt, exam_items, greedy_batch, shares, text_until
from course_lib.analysis.residual import knocked_out
from course_lib.config import ModelConfig, SamplingParams
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
from course_lib.model import CausalLM
from course_lib.tokenizer import POCKET_PATTERN, Tokenizer
from course_lib.training.corpus import capitals
from course_lib.training.evaluate import user

PROMPT = TOKENIZER.encode("The cat sat on the")


@pytest.fixture(scope="module")
def lm():
    config = ModelConfig(vocab_size=N + 3, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
    model = CausalLM(config).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4 + (parameter.dim() == 1))
    return SimpleNamespace(model=model, tokenizer=TOKENIZER, config=config, eos_token_ids=frozenset({N, N + 2}))


@pytest.fixture(scope="module")
def draft():
    return load("pocket-draft", device="cpu")


def alone(lm, prompt, max_tokens):
    return generate(lm, prompt, SamplingParams(temperature=0, max_tokens=max_tokens)).text


# Exam


def test_a_batch_answers_as_each_row_does_alone(lm):
    prompts = [PROMPT, PROMPT[:1], PROMPT[2:], TOKENIZER.encode("What is gravity? It was tired. What is")]
    assert len({len(prompt) for prompt in prompts}) == 4
    texts = greedy_batch(lm, prompts, 12)
    assert texts == [alone(lm, prompt, 12) for prompt in prompts] and len(set(texts)) > 1


def test_a_batch_answers_questions_as_each_is_answered_alone(draft):
    prompts = [chat_prompt(draft, item.question) for item in exam_items(4)["capitals"]]
    assert prompts[0] == draft.tokenizer.apply_chat_template(user(exam_items(4)["capitals"][0].question),
                                                             add_generation_prompt=True)
    assert greedy_batch(draft, prompts, 24) == [alone(draft, prompt, 24) for prompt in prompts]


def test_text_ends_before_the_first_end_token(lm):
    assert text_until(lm, [*PROMPT, N + 2, *PROMPT, N]) == "The cat sat on the"
    assert text_until(lm, PROMPT) == "The cat sat on the"


def test_a_model_without_a_chat_template_gets_the_plain_question():
    plain = Tokenizer("plain", POCKET_PATTERN, RANKS, {"<|endoftext|>": N})
    assert chat_prompt(SimpleNamespace(tokenizer=plain), "The cat") == plain.encode("The cat")


def test_items_are_judged_by_what_they_ask():
    items = exam_items(5)
    assert items.keys() == {"capitals", "encyclopedia", "copying"} == set(MAX_TOKENS)
    assert [len(asked) for asked in items.values()] == [5, 5, 5]
    for item in items["capitals"]:
        assert item.about in item.question
        assert item.is_right(f"It is {capitals()[item.about]}.") and not item.is_right("It is nowhere.")
    for item in items["copying"]:
        assert item.question.endswith(item.about)
        assert item.is_right(f"{item.about}\n") and not item.is_right(item.about[:-1])
    assert len({item.is_right("") for asked in items.values() for item in asked}) == 1
    again, other = exam_items(5), exam_items(5, seed=3)
    questions = [[item.question for asked in one.values() for item in asked] for one in (items, again, other)]
    assert questions[0] == questions[1] != questions[2]


def test_an_exam_counts_what_is_right(draft):
    exam = Exam.write(draft, n=3, rows=2, length=20)
    assert exam.story.shape == (2, 20)
    result = exam.sit(draft)
    assert {kind: len(right) for kind, right in result.items()} == {
        "capitals": 3, "encyclopedia": 3, "copying": 3, "fluency": 38}
    text = alone(draft, exam.prompts["capitals"][1], MAX_TOKENS["capitals"])
    assert result["capitals"][1] == exam.items["capitals"][1].is_right(text)
    with torch.no_grad():
        logits = draft.model(exam.story[:1])[0]
    guessed = [logits[i].argmax().item() == exam.story[0, i + 1].item() for i in range(19)]
    assert result["fluency"][:19] == guessed and 0.2 < shares(result)["fluency"] < 1
    silent = exam.without(draft, ["layers.0.mlp", "layers.0.self_attn", "layers.1.mlp", "layers.1.self_attn"])
    assert shares(silent)["capitals"] == 0 and shares(silent)["fluency"] < shares(result)["fluency"]
    assert exam.sit(draft) == result, "everything is in place again"


# View and widget


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
    data, metadata = panel._repr_mimebundle_()
    assert data["image/png"] and metadata["image/png"]["alt"] == data["text/plain"]
    assert data["text/plain"].startswith("The cat sat Without the MLP of layer 0 ")
