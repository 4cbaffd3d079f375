"""Texts under many settings in one batch are those of single requests, and the measures count what they say."""

from dataclasses import replace
from random import Random

import pytest
import torch

from course_lib import SamplingParams, load
from course_lib.analysis import sampling_trials
from course_lib.analysis.sampling_trials import (
    Written,
    calculator_call,
    chances_of_calls,
    distinct_pairs,
    known_words,
    perplexity,
    right_and_different,
    share_unknown,
    table,
    tales_table,
    unknown_words,
    write,
)
from course_lib.generate import generate
from course_lib.sampling import sample
from course_lib.training.corpus import documents


@pytest.fixture(scope="module")
def pocket():
    return load("pocket", device="cpu")


def test_each_text_is_what_generate_writes_alone(pocket):
    settings = [SamplingParams(temperature=0), SamplingParams(temperature=0.9, top_p=0.9),
                SamplingParams(temperature=0.7, repetition_penalty=1.3, frequency_penalty=0.5)]
    for params, written in zip(settings, write(pocket, "A boy", settings, copies=2, n_tokens=8)):
        assert written.ids.shape == written.logprobs.shape == written.likeliest.shape == (2, 8)
        for seed in range(2):
            alone = generate(pocket, "A boy", SamplingParams(**vars(params) | {
                "seed": seed, "max_tokens": 8, "ignore_eos": True}))
            assert written.ids[seed].tolist() == list(alone.token_ids)
            assert written.texts[seed] == pocket.tokenizer.decode(alone.token_ids)
            assert written.logprobs[seed].sum().item() == pytest.approx(alone.cumulative_logprob, abs=1e-3)


def test_a_sampler_of_the_reader_is_used(pocket):
    called = []

    def mine(logits, params, generators):
        called.append(len(params))
        return sample(logits, params, generators)

    settings = [SamplingParams(temperature=0.8)]
    [with_mine] = write(pocket, "A boy", settings, copies=3, n_tokens=4, sample=mine)
    [without] = write(pocket, "A boy", settings, copies=3, n_tokens=4)
    assert called == [3] * 4 and with_mine.texts == without.texts


def test_measures_of_what_was_written():
    ids = torch.tensor([[1, 2, 1, 2], [1, 2, 3, 4]])
    written = Written(ids, torch.full((2, 4), -2.0), ids > 0, ["", ""])
    assert distinct_pairs(written) == 4 / 6
    assert perplexity(written) == pytest.approx(7.389, abs=1e-3)
    assert {"the", "capital"} <= known_words(200)
    assert share_unknown(["One two xyz", "two"], {"one", "two"}) == 0


def test_right_answers_and_different_ones(pocket):
    settings = [SamplingParams(temperature=0), SamplingParams(temperature=1.0)]
    answers = {"The capital of France is": "Paris", "The capital of Spain is": "Lisbon"}
    (right, same), (_, different) = right_and_different(pocket, answers, settings, copies=3, n_tokens=6)
    assert (right, same) == (0.5, 1) and different == 1, "what comes after the full stop is not compared"
    [(_, guessed)] = right_and_different(pocket, {"The capital of Ohio is": "Columbus"}, settings[1:], copies=3)
    assert 1 < guessed <= 3


def test_the_chance_of_a_call_is_the_share_of_the_draws_that_hold_it(pocket):
    """512 draws at a temperature at which every tenth call breaks, and more than six standard deviations of room."""
    hot, filtered = SamplingParams(temperature=1.6), SamplingParams(temperature=1.6, min_p=0.1)
    prompt, call = calculator_call(pocket.tokenizer, 149, "plus", 84)
    assert call.splitlines()[1] == '{"name": "calculator", "arguments": {"expression": "149 + 84"}}'
    n_tokens = len(pocket.tokenizer.encode(call, allowed_special="all"))
    [written] = write(pocket, prompt, [hot], copies=512, n_tokens=n_tokens)
    drawn = sum(text == call for text in written.texts) / 512
    chance, safe = chances_of_calls(pocket, [(149, "plus", 84)], [hot, filtered])
    assert 0.7 < chance < 0.97 and abs(drawn - chance) < 0.12 and chance < safe <= 1


def test_a_call_counts_only_when_it_is_exact(pocket, monkeypatch):
    greedy = SamplingParams(temperature=0)
    settings = [greedy, replace(greedy, repetition_penalty=3.0)]
    assert chances_of_calls(pocket, [(12, "times", 34)], settings) == [1.0, 0.0]
    monkeypatch.setitem(sampling_trials.SIGNS, "times", "x")
    assert chances_of_calls(pocket, [(12, "times", 34)], settings) == [0.0, 0.0]


def test_the_error_of_the_share_of_unknown_words_is_that_of_independent_texts():
    """Of words that are all of them drawn independently the error is the binomial one."""
    rng = Random(0)
    texts = [" ".join([*("xyz" if rng.random() < 0.1 else "one" for _ in range(50)), "end"]) for _ in range(400)]
    share, error = unknown_words(texts, {"one"})
    assert share == share_unknown(texts, {"one"}) and abs(share - 0.1) < 0.01
    assert error == pytest.approx((0.1 * 0.9 / 20_000) ** 0.5, rel=0.2)


def test_a_table_lines_up():
    assert table({"a": [1, 22.22], "all right": [0.5, 0.256]}, width=5) == "a          1.0 22.2\nall right  50%  26%"


def test_a_table_of_tales():
    ids = torch.tensor([[1, 2, 1, 2], [1, 2, 3, 4]])
    written = Written(ids, torch.full((2, 4), -2.0), ids > 0, ["one two end", "one twx end"])
    assert tales_table({"0.8, top-p 0.95": 42.4}, [written], {"one", "two"}).splitlines() == [
        "temperature       broken  texts  distinct-2  unknown words",
        "0.8, top-p 0.95       42      2        0.67    25.0% ± 25.0%"]


def test_pocket_s_own_text_is_as_surprising_as_a_story_somewhere_between_0_7_and_1(pocket):
    """Of a story that training did not see: its next 40 tokens, and eight continuations of the same beginning."""
    story = next(text for text in documents(seed=7) if "<|im_start|>" not in text and len(text) > 500)
    ids = pocket.tokenizer.encode_prompt(story.removesuffix("<|endoftext|>"))
    with torch.inference_mode():
        logprobs = pocket.model(torch.tensor([ids[:56]]))[0, 15:55].log_softmax(-1)
    given = (-logprobs.gather(-1, torch.tensor(ids[16:56])[:, None]).mean()).exp().item()
    settings = [SamplingParams(temperature=t) for t in (0, 0.7, 1.0, 2.0)]
    greedy, cool, plain, hot = write(pocket, ids[:16], settings, copies=8, n_tokens=40)
    assert perplexity(cool) < given < perplexity(plain) and perplexity(hot) > 100 * given
    assert bool(greedy.likeliest.all()) and not bool(plain.likeliest.all())
