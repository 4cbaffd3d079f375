"""The engine against `generate`: a request's answer is its own, whatever runs beside it and however memory is cut."""

import gc
from copy import deepcopy
from dataclasses import replace
from functools import cache
from itertools import count
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_lm import scrambled_lm

from course_lib import SamplingParams, load
from course_lib import engine as engine_module
from course_lib.batch import generate_batch
from course_lib.checkpoint import LanguageModel
from course_lib.config import StructuredOutputsParams
from course_lib.engine import Engine, default_num_blocks
from course_lib.fast_layer import speed_up
from course_lib.generate import generate, stream
from course_lib.model import CausalLM

GREEDY = SamplingParams(temperature=0, max_tokens=12)
PROMPTS = [[5, 9, 2], [7], [30, 31, 32, 33, 34, 35, 36, 37, 38], [1, 2, 3, 4, 5, 6], [9] * 20, [5, 9, 2, 8]]


@cache
def exact_lm():
    """In float64, where no two logits are so close that a batch could exchange them."""
    lm = scrambled_lm()
    lm.model.double()
    return lm


@pytest.fixture
def lm():
    return exact_lm()


def run(engine, requests):
    """The ids of each request and why it ended."""
    for name, (ids, params) in requests.items():
        engine.add_request(name, ids, params)
    return drain(engine, requests)


def drain(engine, names):
    answers = {name: ([], []) for name in names}
    while engine.has_unfinished_requests():
        for output in engine.step():
            answers[output.request_id][0].append(output.step.token_id)
            answers[output.request_id][1].append(output.finish_reason)
    return {name: (tuple(ids), reasons[-1] if reasons else None) for name, (ids, reasons) in answers.items()}


def alone(lm, ids, params):
    output = generate(lm, ids, params)
    return output.token_ids, output.finish_reason


OPTIONS = [{}, {"max_num_seqs": 1, "max_num_batched_tokens": 1}, {"max_num_seqs": 2, "max_num_batched_tokens": 5},
           {"block_size": 1, "num_blocks": 32}, {"block_size": 5, "num_blocks": 9}, {"num_blocks": 3, "block_size": 16},
           {"enable_prefix_caching": False, "block_size": 3, "num_blocks": 13}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_answers_are_those_of_each_request_alone(options, lm):
    requests = {str(i): (ids, replace(GREEDY, max_tokens=3 + 2 * i)) for i, ids in enumerate(PROMPTS)}
    assert run(Engine(lm, **options), requests) == {name: alone(lm, *one) for name, one in requests.items()}


settings_of_a_row = st.builds(
    SamplingParams, temperature=st.sampled_from([0, 0.7, 1.5]), top_k=st.sampled_from([0, 3]),
    top_p=st.sampled_from([1.0, 0.8]), min_p=st.sampled_from([0, 0.1]),
    repetition_penalty=st.sampled_from([1.0, 1.3]), presence_penalty=st.sampled_from([0, 0.5]),
    seed=st.integers(0, 5), max_tokens=st.integers(1, 9), ignore_eos=st.booleans(),
    stop_token_ids=st.sampled_from([(), (3, 4, 5, 6, 7)]))


@settings(max_examples=60)
@given(rows=st.lists(st.tuples(st.integers(0, 5), settings_of_a_row), min_size=1, max_size=8),
       options=st.sampled_from(OPTIONS))
def test_settings_of_all_kinds_in_one_batch(rows, options):
    lm = exact_lm()
    requests = {str(i): (PROMPTS[prompt], params) for i, (prompt, params) in enumerate(rows)}
    assert run(Engine(lm, **options), requests) == {name: alone(lm, *one) for name, one in requests.items()}


def test_a_row_draws_the_same_whatever_its_neighbours_do(lm):
    params = SamplingParams(temperature=1.2, seed=7, max_tokens=15, ignore_eos=True)
    expected = alone(lm, PROMPTS[0], params)
    beside = {"same seed": (PROMPTS[1], params), "greedy": (PROMPTS[2], GREEDY), "it": (PROMPTS[0], params),
              "its twin": (PROMPTS[0], params)}
    answers = run(Engine(lm), beside)
    assert answers["it"] == answers["its twin"] == expected
    assert answers["same seed"] == alone(lm, PROMPTS[1], params) and answers["same seed"][0] != expected[0]


def test_requests_that_come_later_and_requests_that_leave(lm):
    engine, left = Engine(lm, max_num_seqs=3, block_size=4), replace(GREEDY, max_tokens=40, ignore_eos=True)
    engine.add_request("a", PROMPTS[0], left)
    engine.add_request("gone", PROMPTS[1], left)
    early = {"a": [], "gone": []}
    for _ in range(4):
        for output in engine.step():
            early[output.request_id].append(output.step.token_id)
    before = engine.stats()
    engine.abort_request("gone")
    engine.abort_request("gone")
    engine.abort_request("nobody")
    after = engine.stats()
    assert after.running == before.running - 1 and after.blocks_used < before.blocks_used
    engine.add_request("gone", PROMPTS[3], GREEDY)  # its name is free again
    rest = drain(engine, ["a", "gone"])
    assert tuple(early["a"]) + rest["a"][0] == alone(lm, PROMPTS[0], left)[0]
    assert rest["gone"] == alone(lm, PROMPTS[3], GREEDY)
    assert engine.requests == {} and engine.stats().blocks_used == 0


def test_one_row_that_ends_does_not_end_the_others(lm):
    first = generate(lm, PROMPTS[0], GREEDY).token_ids[0]
    requests = {"short": (PROMPTS[0], replace(GREEDY, stop_token_ids=(first,))),
                "long": (PROMPTS[0], replace(GREEDY, ignore_eos=True))}
    answers = run(Engine(lm), requests)
    assert answers["short"] == ((first,), "stop") and len(answers["long"][0]) == 12 and answers["long"][1] == "length"


def test_a_second_request_sees_nothing_of_the_first(lm):
    engine = Engine(lm, num_blocks=4, block_size=16)
    for ids in (*PROMPTS, *PROMPTS):
        assert run(engine, {"x": (ids, GREEDY)})["x"] == alone(lm, ids, GREEDY)


def test_preempted_requests_go_on_where_they_were(lm):
    requests = {str(i): (ids, SamplingParams(temperature=0.9, seed=i, max_tokens=25, ignore_eos=True))
                for i, ids in enumerate(PROMPTS)}
    engine = Engine(lm, block_size=4, num_blocks=14, max_num_seqs=4)
    assert run(engine, requests) == {name: alone(lm, *one) for name, one in requests.items()}
    assert engine.stats().preemptions > 0


def test_a_system_prompt_is_read_once(lm):
    engine, system = Engine(lm, block_size=4), list(range(40, 60))
    prompts = {str(i): (system + ids, GREEDY) for i, ids in enumerate(PROMPTS[:3])}
    positions = {}
    for name, one in prompts.items():
        engine.add_request(name, *one)
        first = engine.step()[0]
        positions[name] = first.step.positions
        assert (first.step.token_id, *drain(engine, [name])[name][0]) == alone(lm, *one)[0]
    assert positions == {"0": 23, "1": 1, "2": 9}
    stats = engine.stats()
    assert (stats.prefix_hits, stats.prefix_queries) == (40, 23 + 21 + 29)


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("length", [1, 15, 16, 17, 40])
def test_several_answers_to_one_prompt_share_its_pages(length, later, lm):
    """Those who come together read only the page that is not full; who comes later reads the last token."""
    prompt = torch.arange(length).remainder(50).tolist()
    drawn = [SamplingParams(temperature=1, seed=seed, max_tokens=20, ignore_eos=True) for seed in range(4)]
    engine, positions, texts, copies = Engine(lm), {}, {}, 0
    for i, params in enumerate(drawn):
        engine.add_request(str(i), prompt, params)
        for output in engine.step() if later or i == 3 else []:
            positions[output.request_id] = positions.get(output.request_id, 0) + output.step.positions
            texts.setdefault(output.request_id, []).append(output.step.token_id)
        copies += len(engine.batch.copies)
    while engine.has_unfinished_requests():
        for output in engine.step():
            positions[output.request_id] += output.step.positions
            texts[output.request_id].append(output.step.token_id)
    rest = 1 if later else (length - 1) % 16 + 1
    assert [positions[str(i)] for i in range(4)] == [length + 19, *[rest + 19] * 3]
    assert copies == (3 if later and length % 16 != 1 else 0), "a page of their own to write into"
    assert engine.stats().prefix_hits == 3 * (length - rest)
    for i, params in enumerate(drawn):
        assert texts[str(i)] == list(generate(lm, prompt, params).token_ids)


def test_requests_that_begin_alike_and_come_together_read_their_beginning_once(lm):
    engine, prompts = Engine(lm, block_size=4), [[*range(20), 40 + i, 41] for i in range(5)]
    for i, ids in enumerate(prompts):
        engine.add_request(str(i), ids, replace(GREEDY, ignore_eos=True))
    outputs = engine.step()
    assert sum(output.step.positions for output in outputs) == 22 + 4 * 2
    texts = {o.request_id: [o.step.token_id] for o in outputs}
    while engine.has_unfinished_requests():
        for output in engine.step():
            texts[output.request_id].append(output.step.token_id)
    assert [tuple(texts[str(i)]) for i in range(5)] == [alone(lm, ids, replace(GREEDY, ignore_eos=True))[0]
                                                        for ids in prompts]


@pytest.mark.parametrize("place", ["allocate", "copy_block", "model", "choose", "record", "update"])
def test_an_interrupted_pass_ends_all_requests_and_leaves_the_engine_as_new(place, lm, monkeypatch):
    """Whatever it had written by then: pages that it was to fill are found by nobody."""
    params = SamplingParams(temperature=0.9, seed=3, max_tokens=12, ignore_eos=True)
    expected = {str(i): alone(lm, ids, params) for i, ids in enumerate(PROMPTS)}
    engine = Engine(lm, block_size=4)

    allocate = engine.blocks.allocate

    def interrupt(*args, **options):
        if place == "allocate":
            allocate(*args)  # pages that nobody has noted yet
        raise KeyboardInterrupt

    targets = {"allocate": (engine.blocks, "allocate"), "copy_block": (engine.cache, "copy_block"),
               "model": (lm, "model"),
               "update": (engine.scheduler, "update"),
               "choose": ("course_lib.engine.choose",), "record": ("course_lib.engine.record",)}
    engine.add_request("first", PROMPTS[4], params)
    engine.step()
    for i, ids in enumerate([PROMPTS[4], *PROMPTS]):
        engine.add_request(f"lost {i}", ids, params)
    with monkeypatch.context() as patch:
        patch.setattr(*targets[place], interrupt)
        with pytest.raises(KeyboardInterrupt):
            engine.step()
    assert not engine.has_unfinished_requests() and engine.requests == {} and engine.stats().blocks_used == 0
    assert engine.blocks.index == {} and len(engine.blocks.empty) == engine.blocks.num_blocks
    for _ in range(2):
        assert run(engine, {str(i): (ids, params) for i, ids in enumerate(PROMPTS)}) == expected


def test_pages_of_old_weights_are_forgotten_when_one_says_so():
    lm = scrambled_lm()
    engine, prompt, params = Engine(lm, block_size=4), list(range(20)), replace(GREEDY, ignore_eos=True)
    run(engine, {"x": (prompt, params)})
    with torch.no_grad():
        lm.model.layers[0].self_attn.v_proj.weight.mul_(-1)
    engine.reset_prefix_cache()
    assert run(engine, {"x": (prompt, params)})["x"] == alone(lm, prompt, params)
    engine.add_request("x", prompt, params)
    with pytest.raises(ValueError, match="requests = 1 is not allowed: must be none"):
        engine.reset_prefix_cache()


def test_without_prefix_caching_every_request_reads_its_prompt(lm):
    engine = Engine(lm, enable_prefix_caching=False)
    for name in "ab":
        engine.add_request(name, [1, 2, 3], replace(GREEDY, max_tokens=1))
    assert [output.step.positions for output in engine.step()] == [3, 3]


def test_steps_tell_positions_seconds_and_probabilities(lm, monkeypatch):
    monkeypatch.setattr("course_lib.engine.time", SimpleNamespace(perf_counter=count().__next__))  # a pass is 1 s
    params = replace(GREEDY, logprobs=3, ignore_eos=True)
    expected = stream(lm, PROMPTS[4], params)
    "".join(expected)
    engine = Engine(lm, max_num_seqs=2, max_num_batched_tokens=8)
    engine.add_request("x", PROMPTS[4], params)
    steps = []
    while engine.has_unfinished_requests():
        steps += [output.step for output in engine.step()]
    assert [step.positions for step in steps] == [20] + [1] * 11
    assert [step.seconds for step in steps] == [3] + [1] * 11  # 20 tokens in pieces of 8
    for step, other in zip(steps, expected.steps, strict=True):
        assert step.token_id == other.token_id and abs(step.logprob - other.logprob) < 1e-10
        assert [i for i, _ in step.top] == [i for i, _ in other.top] and len(step.top) == 3
        assert max(abs(a - b) for (_, a), (_, b) in zip(step.top, other.top)) < 1e-10
    plain = Engine(lm)
    plain.add_request("y", PROMPTS[0], GREEDY)
    assert plain.step()[0].step.top == ()


@pytest.mark.parametrize("family", [
    {"positions": "learned", "norm": "layernorm", "gated_mlp": False, "hidden_act": "gelu_tanh"},
    {"sliding_window": 5}, {"num_key_value_heads": 1, "qk_norm": True}, {"num_key_value_heads": 4}], ids=str)
def test_every_family_of_models(family):
    lm = scrambled_lm()
    config = replace(lm.config, **family)
    model, generator = CausalLM(config).eval().double(), torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4 + (parameter.dim() == 1))
    lm.model, lm.config = model, config
    requests = {str(i): (ids, replace(GREEDY, ignore_eos=True)) for i, ids in enumerate(PROMPTS)}
    answers = run(Engine(lm, block_size=3, max_num_batched_tokens=40), requests)
    assert answers == {name: alone(lm, *one) for name, one in requests.items()}
    assert len({ids for ids, _ in answers.values()}) > 3


def test_structured_outputs_beside_free_ones():
    lm = load("pocket", device="cpu")
    params = SamplingParams(temperature=0, max_tokens=12,
                            structured_outputs=StructuredOutputsParams(choice=("seven whales", "one")))
    free = replace(params, structured_outputs=None)
    chosen, other, again = generate_batch(lm, ["How many?"] * 3, [params, free, params])
    assert chosen.text in ("seven whales", "one") and chosen.text == again.text and chosen.finish_reason == "stop"
    assert chosen.token_ids == generate(lm, "How many?", params).token_ids
    assert other.token_ids == generate(lm, "How many?", free).token_ids


def test_a_structured_output_that_cannot_end_is_refused(lm):
    engine = Engine(lm)
    params = SamplingParams(ignore_eos=True, structured_outputs=StructuredOutputsParams(choice=("a",)))
    with pytest.raises(ValueError, match="end tokens"):
        engine.add_request("x", [1], params)
    assert not engine.has_unfinished_requests() and engine.requests == {}


@pytest.mark.parametrize("arguments, message", [
    (("x", [], GREEDY), "prompt_ids"), (("x", [1, 999], GREEDY), "999"), (("x", [1] * 64, GREEDY), "64 tokens"),
    (("x", [1.5], GREEDY), "prompt"), (("x", [1] * 40, GREEDY), "at most 48"), (("used", [1], GREEDY), "'used'"),
])
def test_what_cannot_be_served_is_refused_and_disturbs_nobody(arguments, message, lm):
    engine = Engine(lm, num_blocks=12, block_size=4)
    engine.add_request("used", PROMPTS[0], GREEDY)
    with pytest.raises(ValueError, match=message):
        engine.add_request(*arguments)
    assert drain(engine, ["used"])["used"] == alone(lm, PROMPTS[0], GREEDY)


def test_the_context_ends_an_answer(lm):
    assert run(Engine(lm), {"x": ([1] * 60, replace(GREEDY, ignore_eos=True))})["x"] == alone(
        lm, [1] * 60, replace(GREEDY, ignore_eos=True))


def test_logits_that_are_no_numbers_end_their_request():
    lm = scrambled_lm()
    lm.model.layers[1].mlp.down_proj.weight.data[0, 0] = torch.nan
    engine = Engine(lm)
    engine.add_request("x", [1, 2], GREEDY)
    (output,) = engine.step()
    assert output.step is None and output.finish_reason == "error"
    assert "not finite" in output.error and "down_proj" in output.error
    assert not engine.has_unfinished_requests() and engine.requests == {} and engine.stats().blocks_used == 0
    with pytest.raises(ValueError, match=r"not finite.*down_proj"):
        output.result()
    with pytest.raises(ValueError, match=r"not finite.*down_proj"):
        generate_batch(lm, [[1, 2], [3]], GREEDY)


def test_a_sampler_that_breaks_a_grammar_ends_only_that_request():
    class Seven(LanguageModel):
        def sample(self, logits, params, generators, **texts):
            return torch.full((len(logits),), 7)

    lm = Seven(**vars(load("pocket", device="cpu")))
    free = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
    bound = SamplingParams(temperature=0, max_tokens=3,
                           structured_outputs=StructuredOutputsParams(choice=("seven whales", "one")))
    engine = Engine(lm)
    for name, params in (("a", free), ("bound", bound), ("b", free)):
        engine.add_request(name, lm.tokenizer.encode(f"How many {name}?"), params)
    outputs = [output for _ in range(3) for output in engine.step()]
    assert [(o.request_id, o.step and o.step.token_id, o.finish_reason) for o in outputs] == [
        ("a", 7, None), ("b", 7, None), ("bound", None, "error"),
        ("a", 7, None), ("b", 7, None), ("a", 7, "length"), ("b", 7, "length")]
    assert "token_id = 7" in outputs[2].error and engine.requests == {} and engine.stats().blocks_used == 0


def nan_after(lm, token_id):
    """A model that computes NaN wherever it reads this token."""
    def spoil(module, args, output):
        return torch.where((args[0] == token_id)[..., None], torch.nan, output)

    lm.model.embed_tokens.register_forward_hook(spoil)
    return lm


@pytest.mark.parametrize("options", [{}, {"block_size": 4, "num_blocks": 30, "max_num_seqs": 3},
                                     {"max_num_batched_tokens": 8, "max_num_seqs": 4, "block_size": 4}], ids=str)
def test_one_row_without_numbers_disturbs_nobody(options, lm):
    """Nor does what it leaves in the pages: hidden by a mask, NaN is still NaN."""
    bad = 99
    broken = nan_after(deepcopy(lm), bad)
    requests = {str(i): (ids, replace(GREEDY, ignore_eos=True)) for i, ids in enumerate(PROMPTS)}
    expected = {name: alone(lm, *one) for name, one in requests.items()}
    assert all(bad not in ids for ids, _ in expected.values())
    engine = Engine(broken, **options)
    for round_ in range(3):
        for i in range(3):
            engine.add_request(f"bad {i}", [5] * (7 * i) + [bad, 1, 2], GREEDY)
        for name, one in requests.items():
            engine.add_request(name, *one)
        got = {name: [] for name in (*requests, "bad 0", "bad 1", "bad 2")}
        while engine.has_unfinished_requests():
            for output in engine.step():
                got[output.request_id].append(output)
        for name, outputs in got.items():
            if name.startswith("bad"):
                assert [(o.step, o.finish_reason) for o in outputs] == [(None, "error")]
            else:
                assert (tuple(o.step.token_id for o in outputs), outputs[-1].finish_reason) == expected[name], round_
    assert engine.requests == {} and engine.stats().blocks_used == 0


def test_a_grammar_that_gives_up_ends_its_own_request_alone(lm):
    class GivesUp:
        """Allows everything twice, and then nothing."""

        left = 2

        def mask(self, logits):
            self.left -= 1
            if self.left < 0:
                raise ValueError("no token can continue")
            return logits

        def advance(self, token_id):
            pass

    engine = Engine(lm)
    for name in ("free", "bound"):
        engine.add_request(name, PROMPTS[0], replace(GREEDY, ignore_eos=True))
    engine.requests["bound"].processor = GivesUp()
    outputs = []
    while engine.has_unfinished_requests():
        outputs += engine.step()
    free = tuple(o.step.token_id for o in outputs if o.request_id == "free")
    bound = [o for o in outputs if o.request_id == "bound"]
    assert free == alone(lm, PROMPTS[0], replace(GREEDY, ignore_eos=True))[0]
    assert [o.finish_reason for o in bound] == [None, None, "error"] and bound[-1].error == "no token can continue"
    assert [o.step.token_id for o in bound[:2]] == list(free[:2])


def test_a_step_without_requests_does_nothing(lm):
    engine = Engine(lm)
    assert engine.step() == [] and not engine.has_unfinished_requests()


def test_texts_and_stop_strings_are_those_of_generate():
    lm = load("pocket", device="cpu")
    prompts = ["Once upon a time", [{"role": "user", "content": "What is gravity?"}], "The old man walked", [5, 6, 7]]
    params = [replace(GREEDY, max_tokens=30, stop=stop, logprobs=logprobs)
              for stop, logprobs in (((), None), (("pull", "force"), 2), ((" the",), None), ((), 0))]
    answers = generate_batch(lm, prompts, params)
    for prompt, one, answer in zip(prompts, params, answers, strict=True):
        expected = generate(lm, prompt, one)
        assert (answer.text, answer.token_ids, answer.finish_reason) == (
            expected.text, expected.token_ids, expected.finish_reason)
        assert abs(answer.cumulative_logprob - expected.cumulative_logprob) < 1e-3
        assert (answer.logprobs is None) == (expected.logprobs is None)
    assert answers[1].finish_reason == "stop"


def test_a_batch_of_none_and_settings_that_do_not_fit(lm):
    assert generate_batch(lm, [], GREEDY) == []
    with pytest.raises(ValueError, match=r"len\(params\) = 1.*2, one for each"):
        generate_batch(lm, PROMPTS[:2], [GREEDY])


def test_an_engine_packs_the_weights_as_long_as_it_lives():
    lm = scrambled_lm()
    speed_up(lm.model)
    engine = Engine(lm)
    packed = [layer.qkv.packed for layer in lm.model.layers if hasattr(layer, "qkv")]
    assert all(packed)
    answers = run(engine, {str(i): (ids, GREEDY) for i, ids in enumerate(PROMPTS)})
    assert {name: ids for name, (ids, _) in answers.items()} == {
        str(i): generate(lm, ids, GREEDY).token_ids for i, ids in enumerate(PROMPTS)}
    del engine
    gc.collect()
    assert not any(layer.qkv.packed for layer in lm.model.layers if hasattr(layer, "qkv"))


def test_the_pool_has_room_for_all_contexts_or_is_bounded(monkeypatch):
    lm = scrambled_lm()  # a context of 64; a token takes 2 layers * 2 * 2 heads * 4 numbers * 4 bytes = 128 bytes
    assert default_num_blocks(lm.model, 3, 16) == 12 and Engine(lm, max_num_seqs=3).stats().blocks_total == 12
    monkeypatch.setattr(engine_module, "DEFAULT_POOL", 10 * 16 * 128)
    assert default_num_blocks(lm.model, 3, 16) == 10
    monkeypatch.setattr(engine_module, "DEFAULT_POOL", 1)
    assert default_num_blocks(lm.model, 3, 16) == 4, "one request must fit"


@pytest.mark.parametrize("options, message", [
    ({"max_num_seqs": 0}, "max_num_seqs = 0"), ({"block_size": 0}, "block_size = 0"),
    ({"num_blocks": 0}, "num_blocks = 0"), ({"max_num_batched_tokens": 31}, "max_num_batched_tokens = 31.*= 32")])
def test_sizes_that_are_none_are_refused(options, message, lm):
    with pytest.raises(ValueError, match=message):
        Engine(lm, **options)

