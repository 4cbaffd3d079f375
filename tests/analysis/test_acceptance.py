"""Tallies of drafts: what they count is what the streams wrote."""

from types import SimpleNamespace

import pytest
import torch

from course_lib import DraftModel, PromptLookup, SamplingParams, generate, load
from course_lib.analysis.acceptance import (
    KINDS,
    Tally,
    accepted_by_place,
    draft_for,
    how_many_accepted,
    names_begun_again,
    other_text,
    overlaps,
    write_all,
)
from course_lib.speculative import Pass


def one(k, accepted, extra=0):
    return Pass(tuple(range(k)), (1.0,) * k, (1.0,) * k, tuple(range(accepted + 1)), k + 1, 0.0, 0.0)


ROUNDS = [one(4, 4), one(4, 0), one(4, 2), one(2, 2), one(3, 1), one(0, 0)]


def test_counts_by_place_and_by_pass():
    assert accepted_by_place(ROUNDS) == [(5, 4), (4, 3), (2, 1), (1, 1)]
    assert how_many_accepted(ROUNDS, 4) == [1, 0, 1, 0, 1] and how_many_accepted(ROUNDS, 3) == [0, 1, 0, 0]
    assert accepted_by_place([]) == []


def test_a_tally_adds_up():
    tally = Tally(((1, 2, 3), (4, 5)), ((one(4, 2),), (one(4, 0), one(1, 1))), 2.0)
    assert tally.tokens == 5 and len(tally.passes) == 3 and tally.tokens_per_pass == pytest.approx(5 / 3)
    assert tally.acceptance == pytest.approx(3 / 5)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_tallied_is_what_is_written(kind):
    lm, params = load("pocket"), SamplingParams(temperature=0, max_tokens=10)
    prompts = KINDS[kind][:2]
    plain = write_all(lm, prompts, params)
    for prompt, ids in zip(prompts, plain.token_ids):
        written = generate(lm, prompt, params).token_ids
        assert list(ids)[: len(written)] == list(written) and len(ids) <= len(written) + 1  # and the end token
    for draft in (DraftModel(load("pocket-draft"), 3), PromptLookup()):
        tally = write_all(lm, prompts, params, draft)
        assert tally.token_ids == plain.token_ids and tally.seconds > 0
        assert tally.tokens <= sum(len(one.tokens) for one in tally.passes)
    assert plain.passes == []


def test_overlaps_are_those_of_one_place_at_a_time():
    lm, small = load("pocket"), load("pocket-draft")
    prompts, written = ["Once upon", "The cat"], [[300, 400, 500], [600]]
    places = [(lm.tokenizer.encode_prompt(prompt) + ids[:i]) for prompt, ids in zip(prompts, written)
              for i in range(len(ids))]
    for t, overlap in zip((0.5, 20), overlaps(lm, small, prompts, written, (0.5, 20)), strict=True):
        with torch.inference_mode():
            p, q = ([(one.model(torch.tensor([ids]))[0, -1].double() / t).softmax(-1) for ids in places]
                    for one in (lm, small))
        assert overlap == pytest.approx(sum(torch.minimum(*pair).sum().item() for pair in zip(p, q)) / 4, abs=1e-5)
    assert overlaps(lm, lm, prompts, written, (1,)) == pytest.approx([1], abs=1e-9)


def test_a_stranger_drafts_for_itself():
    lm = load("pocket")
    assert draft_for(lm).config.num_hidden_layers < lm.config.num_hidden_layers
    stranger = SimpleNamespace(tokenizer=SimpleNamespace(mergeable_ranks={b"a": 0}, special_tokens={}))
    assert draft_for(stranger) is stranger


def test_other_text_is_text_of_the_corpus_and_as_long_as_asked():
    tokenizer = load("pocket").tokenizer
    ids, longer = other_text(tokenizer, 300), other_text(tokenizer, 900)
    assert len(ids) == 300 and len(longer) == 900 and longer[:300] == ids != other_text(tokenizer, 300, seed=6)
    assert " the " in tokenizer.decode(longer)


def test_names_are_begun_again_after_a_whole_line():
    tokenizer = load("pocket").tokenizer
    prompts = names_begun_again(tokenizer)
    assert len(prompts) == 4
    for ids in prompts:
        assert len(ids) == 26 and ids[24:] == ids[:2] and len(set(ids[:24])) == 24
        assert tokenizer.decode(ids[:24]).endswith("\n")
