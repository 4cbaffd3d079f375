"""The exam in batches against one question at a time, and what counts as a right answer."""

from types import SimpleNamespace

import pytest
import torch
from tiny_lm import RANKS, TOKENIZER, N, scrambled_lm

from course_lib import load
from course_lib.analysis.knockout import (
    MAX_TOKENS,
    Exam,
    chat_prompt,
    exam_items,
    greedy_batch,
    reopened,
    shares,
    text_until,
)
from course_lib.analysis.residual import knocked_out, mean_writes, part_names
from course_lib.config import SamplingParams
from course_lib.generate import generate
from course_lib.tokenizer import POCKET_PATTERN, Tokenizer
from course_lib.training.corpus import capitals
from course_lib.training.questions import user

PROMPT = TOKENIZER.encode("The cat sat on the")


@pytest.fixture(scope="module")
def lm():
    return scrambled_lm()


@pytest.fixture(scope="module")
def draft():
    return load("pocket-draft", device="cpu")


def alone(lm, prompt, max_tokens):
    return generate(lm, prompt, SamplingParams(temperature=0, max_tokens=max_tokens)).text


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


def test_a_lost_answer_is_asked_again_with_its_opening(draft):
    exam, parts = Exam.write(draft, n=8, rows=1, length=8), ["layers.1.self_attn"]
    intact, without = exam.sit(draft)["capitals"], exam.without(draft, parts)["capitals"]
    stories = reopened(draft, exam, parts)
    gone = [i for i, (before, after) in enumerate(zip(intact, without)) if before and not after]
    assert [story.about for story in stories] == [exam.items["capitals"][i].about for i in gone] and gone
    for i, story in zip(gone, stories):
        prompt, limit, right = exam.prompts["capitals"][i], MAX_TOKENS["capitals"], capitals()[story.about]
        assert alone(draft, prompt, limit).startswith(story.opening) and right not in story.opening
        with knocked_out(draft.model, parts):
            assert story.wrong == alone(draft, prompt, limit).strip()
            after = alone(draft, [*prompt, *draft.tokenizer.encode(story.opening)], limit)
        assert story.after == after.strip() and story.is_back == (right in after)


def test_pocket_answers_and_writes_with_neither_kind_of_inner_parts_alone():
    """Without what the inner attentions, or the inner MLPs, say of the text, the other kind is not enough."""
    lm = load("pocket", device="cpu")
    exam = Exam.write(lm, n=20)
    intact, means = shares(exam.sit(lm)), mean_writes(lm.model, exam.story)
    for kind in ("self_attn", "mlp"):
        inner = [name for name in part_names(lm.model)[2:-2] if kind in name]
        left = shares(exam.without(lm, inner, instead=means))
        back = [story.is_back for story in reopened(lm, exam, inner, instead=means)]
        assert left["capitals"] + sum(back) / 20 <= intact["capitals"] - 0.15
        assert left["fluency"] <= intact["fluency"] - 0.1
