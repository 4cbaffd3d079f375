"""The loop around a reader's pass writes what the library writes."""

import pytest
import torch

from course_lib import DraftModel, SamplingParams, load, stream
from course_lib.classroom.own_speculation import speculate
from course_lib.sampling import draw
from course_lib.speculative import distributions, passes, verify


@torch.inference_mode()
def one_pass(ids, params, to_draw, to_check, caches):
    small, lm = load("pocket-draft"), load("pocket")

    def logits_after(one, ids, cache, rows):
        return one.model(torch.tensor([ids[cache.get_seq_length():]]), kv_cache=cache, logits_to_keep=rows)[0]
    proposal, q_rows = [], []
    for u in to_draw[:, None]:
        q_rows.append(distributions(logits_after(small, ids + proposal, caches[0], 1), params, [], []))
        proposal += draw(q_rows[-1], u).tolist()
        if proposal[-1] in lm.eos_token_ids:
            break
    p_rows = distributions(logits_after(lm, ids + proposal, caches[1], len(proposal) + 1), params, [], [])
    q_rows = torch.cat([p_rows[:0], *q_rows])
    tokens = verify(p_rows, q_rows, proposal, to_check)
    for cache in caches:
        cache.crop(min(cache.get_seq_length(), len(ids) + len(tokens) - 1))
    return proposal, p_rows, q_rows, tokens


@pytest.mark.parametrize("temperature, k, n", [(0, 4, 40), (0.8, 3, 20), (1.3, 5, 7), (0.8, 0, 5)])
def test_the_same_ids_after_the_same_proposals(temperature, k, n):
    lm, small = load("pocket"), load("pocket-draft")
    prompt, params = "What is rain?", SamplingParams(temperature=temperature, seed=2, max_tokens=n)
    rounds = speculate(one_pass, small, lm, prompt, params, k)
    running = stream(lm, prompt, params, draft=DraftModel(small, k))
    list(running)
    assert [token for one in rounds for token in one.tokens] == [step.token_id for step in running.steps]
    for one, other in zip(rounds, passes(running.steps), strict=True):
        assert tuple(one.proposal) == other.proposal
        assert one.p == pytest.approx(other.p, abs=1e-4) and one.q == pytest.approx(other.q, abs=1e-4)
