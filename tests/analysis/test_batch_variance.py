"""How company moves logits, on models where it must and where it cannot."""

import pytest
import torch
from tiny_lm import scrambled_lm

from course_lib.analysis.batch_variance import (
    FixedShapeEngine,
    InvariantEngine,
    answers,
    bits,
    compare,
    greedy_margins,
    logit_differences,
    same_bits,
)
from course_lib.checkpoint import load
from course_lib.config import SamplingParams
from course_lib.engine import Engine
from course_lib.generate import generate

PROMPTS = [[5, 9, 2, 7], [30, 31, 32], [8] * 12, [1, 2], [40, 3, 7, 7, 1, 9]]


@pytest.fixture(scope="module")
def pocket():
    lm = load("pocket", device="cpu")
    text = lm.tokenizer.encode("Once upon a time there was a fox who lived at the river, and every day " * 6)
    return lm, [text[i : i + 9 + 5 * i] for i in range(8)]


def test_a_batch_of_one_changes_nothing_and_larger_ones_little(pocket):
    lm, prompts = pocket
    one, *others = logit_differences(lm, prompts, (1, 2, 8))
    assert one == (1, 0, 0.0, True)
    assert all(each.largest < 1e-3 and each.same_token for each in others), "logits near 10, in float32"


def test_margins_are_those_of_a_greedy_answer():
    lm = scrambled_lm()
    tokens, margins = greedy_margins(lm, PROMPTS[0], 8)
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    assert tuple(tokens) == generate(lm, PROMPTS[0], params).token_ids and min(margins) >= 0 and len(margins) == 8


def test_no_token_flips_where_no_two_logits_are_close():
    found = compare(Engine(scrambled_lm()), PROMPTS, 10)
    assert found.flips == [] and found.tokens == 50 and found.smallest_margin > 1e-4


def test_a_flip_is_found_where_it_is():
    class Wrong(Engine):
        """Its fourth token for the second request is another one."""

        def forward(self, work):
            logits = super().forward(work)
            for one, row in zip((one for one in work if one.gets_token), logits, strict=True):
                if one.sequence.request_id == "1" and len(one.sequence.output_ids) == 3:
                    row[:] = row.roll(1)
            return logits

    lm = scrambled_lm()
    tokens, margins = greedy_margins(lm, PROMPTS[1], 6)
    (flip,) = compare(Wrong(lm), PROMPTS, 6).flips
    assert flip == (1, 3, tokens[3], tokens[3] + 1, margins[3])


def test_one_by_one_every_bit_is_the_same(pocket):
    lm, prompts = pocket
    assert same_bits(lambda: InvariantEngine(lm), prompts, 6) == [True] * 8
    alone = [list(generate(lm, ids, SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)).token_ids)
             for ids in prompts]
    assert answers(InvariantEngine(lm, max_num_seqs=3), prompts, 6) == alone


def invariant_engines(lm):
    return {"one by one": lambda: InvariantEngine(lm),
            "one shape": lambda: FixedShapeEngine(lm, max_num_seqs=8, max_model_len=96)}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["one by one", "one shape"])
def test_every_bit_is_the_same_in_any_company(kind, threads, pocket):
    lm, prompts = pocket
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert same_bits(invariant_engines(lm)[kind], [*prompts[:4], [7]], 6) == [True] * 5
    finally:
        torch.set_num_threads(before)


def test_a_last_bit_that_depends_on_the_company_is_seen():
    class Leans(Engine):
        def forward(self, work):
            logits = super().forward(work)
            logits[0, 0] = torch.nextafter(logits[0, 0], torch.tensor(torch.inf)) if len(work) > 1 else logits[0, 0]
            return logits

    class Alone(Leans, InvariantEngine):
        """Every bit would be the same, if nobody leaned."""

    lm = scrambled_lm()
    assert same_bits(lambda: InvariantEngine(lm), PROMPTS, 4) == [True] * 5
    assert same_bits(lambda: Alone(lm), PROMPTS, 4) == [False] + [True] * 4


def test_a_zero_with_another_sign_is_another_number_in_bits():
    class Signs(InvariantEngine):
        """One logit is 0.0 alone and -0.0 in company."""

        def forward(self, work):
            logits = super().forward(work)
            logits[:, 0] = -0.0 if len(work) > 1 else 0.0
            return logits

    lm = scrambled_lm()
    assert same_bits(lambda: Signs(lm), PROMPTS, 4) == [False] * 5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_bits_tell_every_two_numbers_apart(dtype):
    one = torch.tensor(1, dtype=dtype)
    numbers = torch.stack([one, torch.nextafter(one, one + 1), 0.0 * one, -0.0 * one])
    assert (bits(numbers)[:, None] == bits(numbers)).tolist() == torch.eye(4, dtype=torch.bool).tolist()


def test_a_flip_on_pocket_is_a_near_tie(pocket):
    """Float32 moves logits near 10 by some 1e-5, so that only tokens that are as near to each other may change."""
    lm, prompts = pocket
    found = compare(Engine(lm), prompts, 16)
    assert found.tokens == 8 * 16 and all(flip.margin < 1e-3 for flip in found.flips)
    assert found.flips == [] or found.smallest_margin < 1e-3


def test_one_shape_gives_the_answers_of_each_alone_and_frees_what_it_took():
    lm = scrambled_lm()
    engine = FixedShapeEngine(lm, max_num_seqs=2, block_size=4, max_model_len=24)
    alone = [list(generate(lm, ids, SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)).token_ids)
             for ids in PROMPTS]
    assert answers(engine, PROMPTS, 8) == alone
    assert engine.stats().blocks_used == 0
    shapes = set()
    lm.model.register_forward_pre_hook(lambda module, args, options: shapes.update(
        (rows.B, rows.T, rows.S) for rows in options["kv_cache"].rows), with_kwargs=True)
    answers(engine, PROMPTS, 5)
    assert {shape for shape in shapes if shape[1] == 1} == {(3, 1, 24)}
    with pytest.raises(ValueError, match=r"prompt tokens \+ max_tokens = 25.*24"):
        engine.add_request("x", [1] * 20, SamplingParams(max_tokens=5))
    with pytest.raises(ValueError, match="max_model_len = 65"):
        FixedShapeEngine(lm, max_model_len=65)


def test_a_text_as_long_as_the_context_ends_by_itself():
    lm = scrambled_lm()
    ids, params = [1] * 60, SamplingParams(temperature=0, max_tokens=50, ignore_eos=True)
    engine = FixedShapeEngine(lm, max_num_seqs=2)
    engine.add_request("0", ids, params)
    written = []
    while engine.has_unfinished_requests():
        written += [output.step.token_id for output in engine.step()]
    assert tuple(written) == generate(lm, ids, params).token_ids


@pytest.mark.parametrize("sizes", [(0,), (9,), (1, 9)])
def test_batches_larger_than_the_prompts_are_refused(sizes, pocket):
    with pytest.raises(ValueError, match=r"batch_sizes.*\[1, 8\]"):
        logit_differences(*pocket, sizes)
