"""The sampler against exact fractions, against `transformers`, and as a distribution."""

import math
from fractions import Fraction
from itertools import pairwise, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from course_lib.analysis.stats import count_limits, outside, power
from course_lib.config import SamplingParams
from course_lib.sampling import (
    apply_min_p,
    apply_penalties,
    apply_temperature,
    apply_top_k,
    apply_top_p,
    draw,
    filter_logits,
    logprobs_of,
    request_generator,
    sample,
    top_candidates,
)

INF = math.inf
FILTERS = {
    "temperature": lambda x: apply_temperature(x, 0.7),
    "greedy": lambda x: apply_temperature(x, 0),
    "top_k": lambda x: apply_top_k(x, 3),
    "top_p": lambda x: apply_top_p(x, 0.6),
    "min_p": lambda x: apply_min_p(x, 0.3),
    "penalties": lambda x: apply_penalties(x, [[0, 1]] * len(x), [[2, 2]] * len(x), repetition_penalty=1.5,
                                           presence_penalty=0.4, frequency_penalty=0.3),
}
weights = st.lists(st.integers(1, 50), min_size=1, max_size=30)
small = st.integers(-3, 3).map(float)  # few values: many ties
wild = st.one_of(small, st.floats(-(2.0**126), 2.0**126, width=32), st.just(-INF))
rows_of_8 = st.lists(wild, min_size=8, max_size=8).filter(lambda row: max(row) > -INF)
ids_below_8 = st.lists(st.integers(0, 7), max_size=5)
any_params = st.builds(
    SamplingParams,
    temperature=st.one_of(st.sampled_from([0.0, 1.0, 1e-320, 1e-40, 1e-5, 0.5, 1e300]), st.floats(0.1, 3)),
    top_k=st.sampled_from([0, 1, 2, 3, 7, 8, 100]), top_p=st.sampled_from([1e-8, 0.3, 0.5, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    repetition_penalty=st.sampled_from([1e-300, 0.5, 1.0, 1.3, 1e300]),
    presence_penalty=st.sampled_from([-2.0, 0.0, 0.7]), frequency_penalty=st.sampled_from([0.0, 0.1, 2.0]))


def logs(ws, dtype=torch.float32):
    """Logits of one row whose probabilities are proportional to the weights; 0 is removed."""
    return torch.tensor([ws], dtype=dtype).log()


def kept(logits):
    """The ids that survive in the only row."""
    assert logits.shape[0] == 1 and not logits.isnan().any()
    return logits[0].isfinite().nonzero().flatten().tolist()


def by_likelihood(ws):
    return sorted(range(len(ws)), key=lambda i: (-ws[i], i))


def by_likelihood_set(ws, n):
    return sorted(by_likelihood(ws)[:n])


def smallest_set(ws, p):
    """What top-p keeps, in exact arithmetic: the shortest head that holds at least p of the weight."""
    order = by_likelihood(ws)
    n = next(n for n in range(1, len(ws) + 1) if Fraction(sum(ws[i] for i in order[:n]), sum(ws)) >= p)
    return sorted(order[:n])


def generators(*seeds):
    return [request_generator(seed) for seed in seeds]


# Each filter, in exact arithmetic


@given(weights, st.integers(1, 100))
def test_top_p_keeps_the_smallest_set_that_reaches_p(ws, percent):
    assert kept(apply_top_p(logs(ws), percent / 100)) == smallest_set(ws, Fraction(percent, 100))


@given(weights, st.data())
def test_top_p_counts_an_exact_hit_as_reached(ws, data):
    n = data.draw(st.integers(1, len(ws)))
    p = Fraction(sum(sorted(ws, reverse=True)[:n]), sum(ws))
    temperature = data.draw(st.sampled_from([1, 2]))
    logits = apply_temperature(logs(ws) * temperature, temperature)
    assert kept(apply_top_p(logits, float(p))) == by_likelihood_set(ws, n)


@pytest.mark.parametrize(("ws", "p", "ids"), [
    ([95, 3, 2], 0.9, [0]),  # the token that crosses p stays, also when it is the first
    ([5, 3, 2], 0.8, [0, 1]),  # an exact hit
    ([5, 3, 2], 0.81, [0, 1, 2]),
    ([5, 3, 2], 0.8 - 1e-5, [0, 1]),
    ([5, 3, 2], 0.5, [0]),
    ([5, 3, 2], 1e-8, [0]),
    ([5, 3, 2], 1, [0, 1, 2]),
    ([1, 1, 1, 1], 0.5, [0, 1]),  # equals leave from the highest id down
    ([2, 3, 3, 2], 0.4, [1, 2]),
    ([5, 0, 5], 1, [0, 2]),
    ([1], 0.1, [0]),
])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_top_p_cases(ws, p, ids, dtype):
    assert kept(apply_top_p(logs(ws, dtype), p)) == ids


def test_top_p_of_a_large_flat_vocabulary_is_still_exact():
    """All equal, and all different."""
    V = 50_000
    assert kept(apply_top_p(torch.zeros(1, V), 0.5)) == list(range(V // 2))
    ws = [1000 + 7 * i % 4001 for i in range(4001)]  # 4,001 different weights in no order
    for p in (Fraction(1, 100), Fraction(9, 10), Fraction(999, 1000)):
        assert kept(apply_top_p(logs(ws, torch.float64), float(p))) == smallest_set(ws, p)


def test_top_p_of_one_is_the_identity_and_not_greedy():
    logits = torch.tensor([[30.0, 0.0, -80.0, -INF]])  # the last finite token has probability 1e-48
    assert torch.equal(apply_top_p(logits, 1.0), logits)
    assert torch.equal(apply_top_p(torch.cat([logits] * 2), [0.5, 1.0])[1:], logits)


@given(st.lists(small, min_size=1, max_size=20), st.integers(1, 25))
def test_top_k_keeps_exactly_k_lowest_ids_first(row, k):
    assert kept(apply_top_k(torch.tensor([row]), k)) == by_likelihood_set(row, k)


@pytest.mark.parametrize(("k", "ids"), [(3, [1, 2, 4]), (1, [4]), (4, [1, 2, 3, 4])] + [
    (k, [0, 1, 2, 3, 4]) for k in (0, 5, 6, 10**30)])
def test_top_k_cases(k, ids):
    assert kept(apply_top_k(torch.tensor([[1.0, 2.0, 2.0, 2.0, 3.0]]), k)) == ids


def test_top_k_of_bfloat16_logits_that_tie():
    logits = torch.randn(200, 4096, generator=request_generator(0)).mul(3).bfloat16()
    values = logits.float().sort(descending=True).values
    assert (values[:, 7] == values[:, 8]).any(), "a threshold alone would keep more than 8 somewhere"
    assert (apply_top_k(logits, 8).isfinite().sum(-1) == 8).all()


@given(weights, st.integers(0, 20))
def test_min_p_keeps_what_is_likely_enough(ws, twentieths):
    expected = [i for i, w in enumerate(ws) if w >= Fraction(twentieths, 20) * max(ws)]
    assert kept(apply_min_p(logs(ws), twentieths / 20)) == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(st.lists(st.integers(-8, 8), min_size=2, max_size=10), st.sampled_from([0.25, 0.5, 1.0, 2.0, 4.0]))
def test_temperature_divides(dtype, row, temperature):
    logits = torch.tensor([row], dtype=dtype)
    gaps = apply_temperature(logits, temperature)
    expected = [(a - b) / temperature for a, b in product(row, row)]
    assert (gaps.view(-1, 1) - gaps).flatten().tolist() == expected, "differences are all that softmax sees"


def test_naive_exponentials_would_overflow():
    assert logprobs_of(torch.tensor([[1000.0, 0.0]])).tolist() == [[0.0, -1000.0]]
    assert apply_temperature(torch.tensor([[1000.0, 0.0]]), 1e-40).softmax(-1).tolist() == [[1.0, 0.0]]
    tiny = SamplingParams(temperature=1e-30)
    assert sample(torch.tensor([[0.0, 3e38]]), tiny, request_generator(0)).item() == 1


# Penalties


def test_penalties_by_hand():
    """Repetition looks at prompt and output, presence and frequency at the output alone."""
    logits = torch.tensor([[2.0, -2.0, 2.0, -2.0, 2.0, 0.0]])
    prompt, output = [[0, 1, 0]], [[2, 3, 3, 3]]
    assert apply_penalties(logits, prompt, output, repetition_penalty=4.0).tolist() == [
        [0.5, -8.0, 0.5, -8.0, 2.0, 0.0]]
    assert apply_penalties(logits, prompt, output, presence_penalty=0.5).tolist() == [
        [2.0, -2.0, 1.5, -2.5, 2.0, 0.0]]
    assert apply_penalties(logits, prompt, output, frequency_penalty=0.5).tolist() == [
        [2.0, -2.0, 1.5, -3.5, 2.0, 0.0]]
    every = apply_penalties(logits, prompt, output, repetition_penalty=2.0, presence_penalty=0.5,
                            frequency_penalty=0.25)
    assert every.tolist() == [[1.0, -4.0, 0.25, -5.25, 2.0, 0.0]]


@given(st.lists(st.floats(-50, 50, width=32), min_size=2, max_size=8), st.floats(1, 10), st.floats(0, 2),
       st.floats(0, 2), st.integers(0, 3))
def test_a_penalised_probability_never_rises(row, repetition, presence, frequency, times):
    logits = torch.tensor([row], dtype=torch.float64)
    after = apply_penalties(logits, [[0]], [[0] * times], repetition_penalty=repetition,
                            presence_penalty=presence, frequency_penalty=frequency)
    assert after.softmax(-1)[0, 0] <= logits.softmax(-1)[0, 0] * (1 + 1e-12)
    assert torch.equal(after[:, 1:], logits[:, 1:])


def test_penalties_find_their_tokens_whatever_the_strides():
    across = torch.randn(5, 3, generator=request_generator(0)).t()  # (3, 5), a column after the other in memory
    before, ids = across.clone(), ([[0, 1], [], [4]], [[2, 2], [3], []])
    settings = {"repetition_penalty": [2.0, 1.0, 1.5], "presence_penalty": 0.5, "frequency_penalty": 0.25}
    expected = apply_penalties(before.contiguous(), *ids, **settings)
    assert torch.equal(apply_penalties(across, *ids, **settings), expected) and torch.equal(across, before)
    same = apply_penalties(torch.zeros(1, 4).expand(2, 4), [[], []], [[1], [2, 2]], frequency_penalty=1.0)
    assert same.tolist() == [[0, -1, 0, 0], [0, 0, -2, 0]]


def test_penalties_act_on_greedy_rows_and_come_before_temperature():
    logits = torch.tensor([[2.0, 1.5]])
    params = SamplingParams(temperature=0, repetition_penalty=2.0)
    assert sample(logits, params, prompt_ids=[[0]], output_ids=[[]]).item() == 1
    assert sample(logits, params, prompt_ids=[[]], output_ids=[[]]).item() == 0
    half = filter_logits(logits, SamplingParams(temperature=0.5, presence_penalty=1.0), [[]], [[0]])
    assert (half[0, 0] - half[0, 1]).item() == (2.0 - 1.0 - 1.5) / 0.5


# The chain


def test_order_temperature_comes_before_top_p():
    """[3, 2, 1] with p = 0.8: after T = 0.5 the first token alone has 0.867; before, it has 0.665."""
    logits = torch.tensor([[3.0, 2.0, 1.0]])
    assert kept(filter_logits(logits, SamplingParams(temperature=0.5, top_p=0.8))) == [0]
    assert kept(filter_logits(logits, SamplingParams(top_p=0.8))) == [0, 1]


def test_order_top_k_comes_before_top_p():
    """Of [5, 3, 2] the first two hold 0.8, and of [5, 3] the first alone holds 0.6 of what is left."""
    assert kept(filter_logits(logs([5, 3, 2]), SamplingParams(top_k=2, top_p=0.6))) == [0]
    assert kept(filter_logits(logs([5, 3, 2]), SamplingParams(top_p=0.6))) == [0, 1]


def processors(p):
    """The chain of `transformers`; its top-k has no neutral setting."""
    return LogitsProcessorList(
        [RepetitionPenaltyLogitsProcessor(p.repetition_penalty), TemperatureLogitsWarper(p.temperature)]
        + ([TopKLogitsWarper(p.top_k)] if p.top_k else [])
        + [TopPLogitsWarper(p.top_p), MinPLogitsWarper(p.min_p)])


@given(st.integers(0, 2**32), st.builds(
    SamplingParams, temperature=st.floats(0.1, 3), top_k=st.integers(0, 40), top_p=st.floats(0.05, 1),
    min_p=st.floats(0, 0.5), repetition_penalty=st.floats(0.5, 2)))
def test_distribution_equals_that_of_the_transformers_processors(seed, params):
    rng = request_generator(seed)
    logits = 4 * torch.randn(3, 37, generator=rng, dtype=torch.float64)
    ids = torch.randint(37, (3, 9), generator=rng)
    expected = processors(params)(ids, logits.clone()).softmax(-1)
    got = filter_logits(logits, params, ids[:, :5], ids[:, 5:])
    assert got.dtype == torch.float64
    assert (got.softmax(-1) - expected).abs().max() <= 1e-9


@pytest.mark.parametrize("settings", [
    {"temperature": 0.7, "top_k": 30, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.3},
    {"temperature": 1.4, "top_k": 0, "top_p": 0.6, "min_p": 0.0, "repetition_penalty": 1.0},
    {"temperature": 0.8, "top_k": 5, "top_p": 1.0, "min_p": 0.1, "repetition_penalty": 0.8},
])
def test_order_is_that_of_transformers_generate(settings):
    """`generate` reports the logits before and after its own chain, in the order that it chose."""
    config = LlamaConfig(vocab_size=61, hidden_size=16, intermediate_size=24, num_hidden_layers=1,
                         num_attention_heads=2, num_key_value_heads=1, initializer_range=0.4,
                         bos_token_id=None, eos_token_id=None, pad_token_id=0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(config).eval()
        prompt = torch.tensor([[5, 17, 17, 42]])
        out = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=True, max_new_tokens=6,
                             output_scores=True, output_logits=True, return_dict_in_generate=True, **settings)
    sizes = []
    for step, (logits, scores) in enumerate(zip(out.logits, out.scores, strict=True)):
        output = out.sequences[:, 4 : 4 + step]
        got = filter_logits(logits, SamplingParams(**settings), prompt, output)
        assert torch.equal(got.isfinite(), scores.isfinite())
        assert (got.softmax(-1) - scores.softmax(-1)).abs().max() <= 1e-6
        sizes.append(int(got.isfinite().sum()))
    assert all(n < 61 for n in sizes) and max(sizes) > 2, "the settings do something, and not everything"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", FILTERS)
def test_filters_work_in_float32_or_wider_and_leave_their_input_alone(name, dtype):
    logits = torch.tensor([[2.0, 1.0, 0.5, 1.0, -INF], [0.0, 3.0, -1.0, 2.5, 3.0]], dtype=dtype)
    before = logits.clone()
    got = FILTERS[name](logits)
    assert got.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert torch.equal(got, FILTERS[name](before.double() if dtype == torch.float64 else before.float()))
    got += 1
    assert torch.equal(logits, before), "the result is not a view of the input either"


@pytest.mark.parametrize("params", [
    SamplingParams(), SamplingParams(temperature=0), SamplingParams(repetition_penalty=1.2),
    SamplingParams(temperature=0.5, top_k=2, top_p=0.9, min_p=0.1)], ids=repr)
def test_the_chain_and_the_sampler_leave_their_input_alone(params):
    logits = torch.tensor([[2.0, 1.0, 0.5, 1.0, -INF]])
    before = logits.clone()
    prompt, output = [[1, 2]], [[3]]
    filter_logits(logits, params, prompt, output).add_(1)
    sample(logits, params, request_generator(0), prompt_ids=prompt, output_ids=output)
    assert torch.equal(logits, before) and (prompt, output) == ([[1, 2]], [[3]])


@pytest.mark.parametrize("name", FILTERS)
def test_what_survives_top_k_top_p_and_min_p_keeps_its_logit(name):
    logits = torch.tensor([[2.0, 1.0, 0.5, 1.0, -INF]])
    got = FILTERS[name](logits)
    assert not got.isnan().any() and got.isfinite().any() and got[0, 4] == -INF
    if name in ("top_k", "top_p", "min_p", "greedy"):
        assert 0 < got.isfinite().sum() < 4
        assert torch.equal(got[got.isfinite()], logits[got.isfinite()])


@given(rows_of_8, any_params, ids_below_8, ids_below_8)
def test_a_token_always_survives_and_nothing_is_nan(row, params, prompt, output):
    logits = torch.tensor([row])
    probs = filter_logits(logits, params, [prompt], [output]).softmax(-1)
    assert probs.isfinite().all() and abs(probs.sum().item() - 1) < 1e-5
    assert (probs[logits == -INF] == 0).all(), "what the caller removed stays removed"
    token = sample(logits, params, request_generator(1), prompt_ids=[prompt], output_ids=[output]).item()
    assert probs[0, token] > 0
    if params.temperature == 0:
        penalised = apply_penalties(logits, [prompt], [output], repetition_penalty=params.repetition_penalty,
                                    presence_penalty=params.presence_penalty,
                                    frequency_penalty=params.frequency_penalty)
        assert token == penalised[0].tolist().index(penalised.max().item()), "argmax, lowest id"
        assert (probs == 1).sum() == 1


def test_a_row_of_nothing_stays_a_row_of_nothing():
    """In the filters; `sample` cannot choose from it and says so."""
    for apply in FILTERS.values():
        got = apply(torch.tensor([[1.0, 2.0, 3.0, 4.0], [-INF] * 4]))
        assert not got.isnan().any() and got[0].isfinite().any() and (got[1] == -INF).all()


# Batches


@given(st.lists(st.tuples(rows_of_8, any_params, ids_below_8, ids_below_8), min_size=3, max_size=3))
def test_three_rows_are_three_single_rows(rows):
    logits = torch.tensor([row for row, _, _, _ in rows])
    params, prompts, outputs = ([row[i] for row in rows] for i in (1, 2, 3))
    together = filter_logits(logits, params, prompts, outputs)
    drawn = sample(logits, params, generators(7, 8, 9), prompt_ids=prompts, output_ids=outputs)
    for i, seed in enumerate((7, 8, 9)):
        row, ids = logits[i : i + 1], {"prompt_ids": [prompts[i]], "output_ids": [outputs[i]]}
        assert torch.equal(filter_logits(row, params[i], **ids), together[i : i + 1])
        assert sample(row, params[i], request_generator(seed), **ids).tolist() == [drawn[i]]


def test_a_mixed_batch_with_removed_tokens_and_tiny_temperatures_is_finite():
    logits = torch.tensor([[1.0, -INF, 3.0, 3.0]] * 4 + [[-INF, -INF, -INF, -7.0]] * 2)
    params = [SamplingParams(temperature=t, top_p=0.9) for t in (0, 1e-45, 1e-5, 1.0, 0, 1e-45)]
    probs = filter_logits(logits, params).softmax(-1)
    assert probs.isfinite().all()
    assert probs[0].tolist() == [0, 0, 1, 0], "greedy: the lowest id among equals"
    assert probs[1].tolist() == [0, 0, 0.5, 0.5], "a tiny temperature keeps the tie"
    assert probs[4:].tolist() == [[0, 0, 0, 1]] * 2
    assert set(sample(logits, params, generators(*range(6))).tolist()) <= {2, 3}


def test_a_row_draws_the_same_whatever_stands_beside_it():
    logits = torch.randn(3, 50, generator=request_generator(5))
    params = SamplingParams(temperature=0.9, top_k=20)
    alone = request_generator(1)
    expected = [sample(logits[:1], params, alone).item() for _ in range(40)]
    for others in ([params, params], [SamplingParams(temperature=0), SamplingParams(min_p=0.3)]):
        gs = generators(1, 2, 3)
        assert [sample(logits, [params, *others], gs)[0].item() for _ in range(40)] == expected
    assert len(set(expected)) > 5


def test_a_draw_takes_one_number_and_a_greedy_row_none():
    params = [SamplingParams(temperature=0), SamplingParams(top_k=2), SamplingParams()]
    gs, twins = generators(1, 2, 3), generators(1, 2, 3)
    sample(torch.zeros(3, 1000), params, gs)
    for twin in twins[1:]:
        torch.rand((), generator=twin, dtype=torch.float64)
    assert all(torch.equal(g.get_state(), twin.get_state()) for g, twin in zip(gs, twins, strict=True))


def test_greedy_is_argmax_a_thousand_times_and_the_global_generator_is_not_touched():
    logits = torch.randn(1, 300, generator=request_generator(4)).bfloat16()
    logits[0, [40, 7, 222]] = 9.0
    state = torch.get_rng_state()
    assert {sample(logits, SamplingParams(temperature=0)).item() for _ in range(1000)} == {7}
    sample(logits, SamplingParams(), request_generator(None))
    assert torch.equal(torch.get_rng_state(), state)


def test_equal_seeds_draw_the_same_and_no_seed_draws_one():
    first, second = ([sample(torch.zeros(1, 1000), SamplingParams(), g).item() for _ in range(20)]
                     for g in generators(11, 11))
    assert first == second
    fresh = request_generator(None)
    again = request_generator(fresh.initial_seed())
    assert torch.equal(fresh.get_state(), again.get_state())
    assert fresh.initial_seed() != request_generator(None).initial_seed()


# One draw


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.data())
def test_draw_inverts_the_cumulative_distribution(ws, data):
    ws = [*ws, 1]
    level = data.draw(st.integers(0, 64 * sum(ws) - 1))  # in units of 1/64 of a weight
    u = (level + 0.5) / (64 * sum(ws))
    expected = next(i for i in range(len(ws)) if 64 * sum(ws[: i + 1]) > level)
    assert draw(torch.tensor([ws], dtype=torch.float64), torch.tensor([u])).item() == expected


@pytest.mark.parametrize("u", [0.0, 0.5, 1 - 2**-53])
def test_a_token_of_probability_zero_is_never_drawn(u):
    for ws in ([0, 1, 0, 0], [0, 0, 3, 0], [0, 0.1, 0.2, 0]):
        token = draw(torch.tensor([ws]), torch.tensor([u], dtype=torch.float64)).item()
        assert ws[token] > 0


def test_rare_tokens_behind_a_likely_one_keep_their_width():
    """A running sum in float32 moves in steps of 6e-8 here, past 59 of 60 tokens."""
    probs = torch.tensor([[1.0] + [1e-9] * 1000])
    u = (1 + 1e-9 * (torch.arange(1000, dtype=torch.float64) + 0.5)) / (1 + 1e-6)
    assert draw(probs.expand(1000, -1), u).tolist() == list(range(1, 1001))


# The distribution of many draws. Each count is binomial, and its tails are summed exactly: a test
# fails a right sampler with probability <= FALSE_ALARM, by the union bound over both tails of all cells.

FALSE_ALARM = 1e-6
N = 20_000
WEIGHTS = [9, 1, 6, 3, 12, 4, 2, 5]
PARAMS = SamplingParams(temperature=0.5, top_p=0.9)


def exact_probabilities(ws, power, p, power_before=0):
    """Temperature 1 / power and then top-p, in fractions: {id: probability}."""
    ids = smallest_set([w ** (power_before or power) for w in ws], p)
    return {i: Fraction(ws[i] ** power, sum(ws[j] ** power for j in ids)) for i in ids}


def believable(probabilities, cells):
    """For each cell, the lowest and the highest believable count of N draws."""
    return count_limits({cell: probabilities.get(cell, 0) for cell in cells}, N, false_alarm=FALSE_ALARM)


def counts_of(items):
    return {item: items.count(item) for item in set(items)}


TRUTH = exact_probabilities(WEIGHTS, 2, Fraction(9, 10))
WRONG = {
    "top-p before temperature": exact_probabilities(WEIGHTS, 2, Fraction(9, 10), power_before=1),
    "no temperature": exact_probabilities(WEIGHTS, 1, Fraction(9, 10)),
    "no top-p": exact_probabilities(WEIGHTS, 2, 1),
    "one token too few": exact_probabilities(WEIGHTS, 2, Fraction(8, 10)),
    "greedy": {4: Fraction(1)},
    "uniform over the kept": dict.fromkeys(TRUTH, Fraction(1, len(TRUTH))),
}


def test_the_draws_of_one_generator_follow_the_exact_distribution():
    generator = request_generator(2024)
    drawn = sample(logs(WEIGHTS).expand(N, -1), PARAMS, [generator] * N).tolist()
    assert outside(counts_of(drawn), believable(TRUTH, range(8))) == []


def test_first_draws_of_many_seeds_follow_the_exact_distribution():
    drawn = sample(logs(WEIGHTS).expand(N, -1), PARAMS, generators(*range(N))).tolist()
    assert outside(counts_of(drawn), believable(TRUTH, range(8))) == []


def test_neighbouring_draws_of_one_generator_are_independent():
    generator = request_generator(7)
    drawn = sample(logs(WEIGHTS).expand(2 * N, -1), PARAMS, [generator] * 2 * N).tolist()
    pairs = list(zip(drawn[::2], drawn[1::2], strict=True))
    truth = {(a, b): TRUTH[a] * TRUTH[b] for a, b in product(TRUTH, TRUTH)}
    assert outside(counts_of(pairs), believable(truth, truth)) == []
    limits = believable({(i, i): p for i, p in TRUTH.items()}, [(i, i) for i in TRUTH])
    assert outside({(i, i): N // 4 for i in TRUTH}, limits), "the same number twice would show"


@pytest.mark.parametrize("name", WRONG)
def test_power_of_the_test_against_wrong_samplers(name):
    """The surest cell alone rejects the wrong sampler with a probability of at least 0.9999."""
    assert power(believable(TRUTH, range(8)), N, WRONG[name]) >= 0.9999


def test_how_far_off_a_probability_must_be():
    """A cell of 0.25 accepts 0.25 +- 0.017 at this N and false-alarm rate; 0.28 it rejects almost surely."""
    limits = count_limits(dict.fromkeys(range(8), 0.25), N, false_alarm=FALSE_ALARM)
    low, high = limits[0]
    assert 0.016 < 0.25 - low / N < 0.018 and 0.016 < high / N - 0.25 < 0.018
    assert power(limits, N, {0: 0.28}) > 0.999


# What is recorded beside the token


@given(st.lists(small, min_size=1, max_size=12), st.integers(1, 15))
def test_top_candidates_likeliest_first_lowest_id_among_equals(row, n):
    logits = torch.tensor([row, row[::-1]])
    values, ids = top_candidates(logits, n)
    assert ids[0].tolist() == by_likelihood(row)[:n] and ids[1].tolist() == by_likelihood(row[::-1])[:n]
    total = math.log(math.fsum(map(math.exp, row)))
    assert values[0].tolist() == pytest.approx([row[i] - total for i in by_likelihood(row)[:n]], abs=1e-5)
    assert all(a >= b for a, b in pairwise(values[1].tolist()))


def test_top_candidates_where_most_tokens_were_removed():
    values, ids = top_candidates(torch.tensor([[-INF, 0.0, -INF, 0.0]]), 3)
    assert ids.tolist() == [[1, 3, 0]]
    assert values[0, 2] == -INF and values[0, :2].tolist() == pytest.approx([math.log(0.5)] * 2)


def test_logprobs_of_half_precision_are_computed_in_float32():
    logits = torch.randn(2, 500, generator=request_generator(3)).mul(5).bfloat16()
    assert logprobs_of(logits).dtype == torch.float32
    assert (logprobs_of(logits).double().exp().sum(-1) - 1).abs().max() < 1e-5


# Cost and mistakes


@pytest.mark.parametrize("temperature", [0, 0.8, 1])
def test_plain_settings_never_sort_the_vocabulary(temperature, monkeypatch):
    def fail(*args, **kwargs):
        raise AssertionError("sorted")

    for name in ("sort", "topk", "argsort", "logsumexp"):
        monkeypatch.setattr(torch.Tensor, name, fail)
    logits, params = torch.zeros(2, 4096), SamplingParams(temperature=temperature)
    assert sample(logits, params, generators(0, 1)).shape == (2,)
    if temperature == 0:
        monkeypatch.setattr(torch.Tensor, "softmax", fail)
        assert sample(logits, params).tolist() == [0, 0]


@pytest.mark.parametrize(("call", "message"), [
    (lambda x: apply_temperature(x, -0.1), r"temperature = -0\.1 .* finite and >= 0"),
    (lambda x: apply_temperature(x, [1.0, INF]), "temperature = inf"),
    (lambda x: apply_temperature(x, math.nan), "temperature = nan"),
    (lambda x: apply_temperature(x, [1.0, 1.0, 1.0]), r"len\(temperature\) = 3 .* 1 or 2"),
    (lambda x: apply_top_k(x, -1), "top_k = -1 .* integer >= 0"),
    (lambda x: apply_top_k(x, 2.5), r"top_k = 2\.5"),
    (lambda x: apply_top_k(x, True), "top_k = True"),
    (lambda x: apply_top_p(x, 0), r"top_p = 0 .* in \(0, 1\]"),
    (lambda x: apply_top_p(x, [0.5, 1.1]), r"top_p = 1\.1"),
    (lambda x: apply_top_p(x, math.nan), "top_p = nan"),
    (lambda x: apply_min_p(x, -0.1), r"min_p = -0\.1 .* in \[0, 1\]"),
    (lambda x: apply_min_p(x, 1.1), r"min_p = 1\.1"),
    (lambda x: apply_top_k(x[0], 1), r"logits\.shape = \(4,\) .* \(B, V\)"),
    (lambda x: apply_penalties(x, [[], []], [[], []], repetition_penalty=0), "repetition_penalty = 0"),
    (lambda x: apply_penalties(x, [[]], [[], []]), "prompt_ids = .* 2 lists"),
    (lambda x: apply_penalties(x, [[], []], [0, 1]), r"output_ids = \[0, 1\] .* 2 lists"),
    (lambda x: apply_penalties(x, [[4], []], [[], []]), r"prompt_ids = \[4\] .* in \[0, 4\)"),
    (lambda x: apply_penalties(x, [[], []], [[], [-1]]), r"output_ids = \[-1\] .* in \[0, 4\)"),
    (lambda x: filter_logits(x, SamplingParams(presence_penalty=1)), "where a penalty is set"),
    (lambda x: sample(x, SamplingParams(temperature=0, repetition_penalty=2)), "where a penalty is set"),
    (lambda x: filter_logits(x, [SamplingParams()] * 3), r"len\(params\) = 3 .* 1 or 2"),
    (lambda x: filter_logits(x, 0.8), r"params = 0\.8 .* SamplingParams"),
    (lambda x: sample(x, SamplingParams()), "generator = None .* temperature > 0"),
    (lambda x: sample(x, SamplingParams(), request_generator(0)), r"len\(generators\) = 1 .* 2, one"),
    (lambda x: sample(x, SamplingParams(), generators(1, 2, 3)), r"len\(generators\) = 3"),
    (lambda x: sample(x * math.nan, SamplingParams(), generators(1, 2)), r"each row = \[nan, nan\]"),
    (lambda x: sample(x - INF, SamplingParams(temperature=0)), r"largest logit of each row = \[-inf, -inf\]"),
    (lambda x: sample(x + INF, SamplingParams(), generators(1, 2)), r"\[inf, inf\] .* finite"),
    (lambda x: top_candidates(x, 0), "n = 0 .* integer >= 1"),
])
def test_mistakes_are_refused_with_the_value_and_what_is_allowed(call, message):
    with pytest.raises(ValueError, match=f"(?s){message}.*"):
        call(torch.tensor([[1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0]]))


def test_one_missing_number_in_a_row_is_noticed_whatever_the_settings():
    logits = torch.tensor([[5.0, 1.0, math.nan, 0.0]])
    for setting in ({}, {"temperature": 0}, {"top_k": 1}, {"min_p": 0.5}):
        with pytest.raises(ValueError, match="nan"):
            sample(logits, SamplingParams(**setting), request_generator(0))
