"""The generation loop against loops without a cache, on a model whose logits are known and on tiny real ones."""

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tiny_lm import scrambled_lm
from torch import nn

from course_lib.config import ModelConfig, SamplingParams
from course_lib.generate import (
    CompletionOutput,
    decode_steps,
    encode_prompt,
    generate,
    next_logits,
    prefill,
    stream,
)
from course_lib.kv_cache import StaticCache
from course_lib.model import CausalLM
from course_lib.sampling import request_generator, sample
from course_lib.tokenizer import Tokenizer

SHAPE = ModelConfig(vocab_size=260, hidden_size=24, intermediate_size=20, num_hidden_layers=2,
                    num_attention_heads=6, num_key_value_heads=3, head_dim=4, max_position_embeddings=40)
BYTES = {bytes([i]): i for i in range(256)}
END, OTHER_END = 256, 257
TOKENIZER = Tokenizer("bytes", r"(?s).", BYTES, {"<|end|>": END, "<|other|>": OTHER_END, "<|a|>": 258, "<|b|>": 259},
                      chat_template="{{ messages[0].content }}{% if add_generation_prompt %}>{% endif %}")
GREEDY = SamplingParams(temperature=0, max_tokens=12)


def language_model(model, config=SHAPE, tokenizer=TOKENIZER, eos=(END,)):
    return SimpleNamespace(model=model, tokenizer=tokenizer, config=config, eos_token_ids=frozenset(eos))


@pytest.fixture(scope="module")
def real():
    model = CausalLM(SHAPE).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2 + (parameter.dim() == 1))
    return language_model(model, eos=())


class Scripted(nn.Module):
    """Its logits are `rule(all ids so far)`; it keeps those ids in the cache, as keys, and nowhere else."""

    def __init__(self, rule, config):
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.zeros(1))
        self.rule = rule

    def forward(self, input_ids, *, kv_cache, logits_to_keep):
        assert logits_to_keep == 1
        new = input_ids.float().view(1, 1, -1, 1).expand(-1, -1, -1, 2)
        keys, _ = kv_cache.update(new, new, 0)
        return self.rule([int(i) for i in keys[0, 0, :, 0]]).view(1, 1, -1)


def scripted(ids, prompt_length=1, **changes):
    """A language model whose greedy answer is `ids`, and then id 0 for ever."""
    def rule(history):
        logits = torch.zeros(260)
        n = len(history) - prompt_length
        logits[ids[n] if n < len(ids) else 0] = 5.0
        return logits
    config = ModelConfig(vocab_size=260, hidden_size=2, intermediate_size=2, num_hidden_layers=1,
                         num_attention_heads=1, head_dim=2, max_position_embeddings=30)
    return language_model(Scripted(rule, config), config, **changes)


def naive(lm, prompt_ids, params):
    """Ids and unfiltered logits, every pass over the whole text and no cache."""
    ids, rows, generator = list(prompt_ids), [], request_generator(params.seed)
    with torch.no_grad():
        for _ in range(params.max_tokens):
            rows.append(lm.model(torch.tensor([ids]))[:, -1])
            ids.append(sample(rows[-1], params, generator, prompt_ids=[prompt_ids],
                              output_ids=[ids[len(prompt_ids):]]).item())
    return tuple(ids[len(prompt_ids):]), rows


# --- which tokens -------------------------------------------------------------------------------


def test_greedy_is_the_argmax_of_a_loop_without_a_cache(real):
    ids = [5, 99, 7, 31]
    for _ in range(12):
        with torch.no_grad():
            ids.append(real.model(torch.tensor([ids]))[0, -1].argmax().item())
    output = generate(real, [5, 99, 7, 31], GREEDY)
    assert output.token_ids == tuple(ids[4:])
    assert len(set(output.token_ids)) > 3, "a model that repeats itself would hide a stale cache"
    assert output.finish_reason == "length"


@pytest.mark.parametrize("params", [
    SamplingParams(temperature=1.3, seed=11, max_tokens=9),
    SamplingParams(temperature=0.9, top_k=40, top_p=0.9, min_p=0.01, seed=3, max_tokens=9),
    SamplingParams(temperature=0.7, repetition_penalty=1.5, presence_penalty=1.0, frequency_penalty=0.5,
                   seed=4, max_tokens=9),
    SamplingParams(temperature=0, repetition_penalty=1.5, max_tokens=9),
], ids=str)
def test_the_same_seed_chooses_the_same_tokens_without_a_cache(real, params):
    prompt = [5, 99, 7, 31, 99]
    expected, _ = naive(real, prompt, params)
    assert generate(real, prompt, params).token_ids == expected
    assert generate(real, prompt, params).token_ids == expected, "the second call equals the first"


def test_another_seed_chooses_others_and_no_seed_differs_each_time(real):
    def ids(seed):
        return generate(real, [5], SamplingParams(temperature=1.5, max_tokens=20, seed=seed)).token_ids
    assert len({ids(0), ids(1), ids(None), ids(None)}) == 4  # by chance alone with p < 1e-10


def test_the_global_generator_is_neither_read_nor_moved(real):
    before = torch.random.get_rng_state()
    generate(real, [5], SamplingParams(seed=None, max_tokens=3))
    assert torch.equal(before, torch.random.get_rng_state())


def test_penalties_see_the_prompt_and_the_output_apart():
    """Prompt (7, 7); logits 2 for id 7, 1.9 for id 8, 1.8 for id 9, 1.7 for id 10."""
    def rule(history):
        logits = torch.zeros(260)
        logits[7:11] = torch.tensor([2.0, 1.9, 1.8, 1.7])
        return logits
    config = scripted([]).config
    lm = language_model(Scripted(rule, config), config)

    def ids(**penalty):
        return generate(lm, [7, 7], SamplingParams(temperature=0, max_tokens=4, **penalty)).token_ids
    assert ids() == (7, 7, 7, 7)
    assert ids(presence_penalty=0.15) == (7, 8, 7, 7)  # the prompt does not count; 1.85, 1.75, 1.8, 1.7
    assert ids(frequency_penalty=0.15) == (7, 8, 7, 9)  # 2 - 0.3 and 1.9 - 0.15 are below 1.8
    assert ids(repetition_penalty=1.2) == (8, 9, 10, 7)  # the prompt counts, each token once


# --- when it ends -------------------------------------------------------------------------------


def test_it_ends_at_the_end_token_which_is_no_text():
    output = generate(scripted([104, 105, END, 33]), "?", GREEDY)
    assert (output.text, output.token_ids, output.finish_reason) == ("hi", (104, 105, END), "stop")


@pytest.mark.parametrize("end", [END, OTHER_END])
def test_every_one_of_several_end_ids_ends(end):
    output = generate(scripted([104, end, 33], eos=(END, OTHER_END)), "?", GREEDY)
    assert (output.text, output.finish_reason) == ("h", "stop")


@pytest.mark.parametrize("ignore_eos", [False, True])
def test_stop_token_ids_end_the_text_and_are_no_text_either(ignore_eos):
    params = SamplingParams(temperature=0, max_tokens=12, stop_token_ids=[33, 44], ignore_eos=ignore_eos)
    output = generate(scripted([104, 105, 44, 104]), "?", params)
    assert (output.text, output.token_ids, output.finish_reason) == ("hi", (104, 105, 44), "stop")


def test_ignore_eos_goes_on_and_shows_no_control_text():
    params = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
    output = generate(scripted([104, END, 105, END, END]), "?", params)
    assert (output.text, output.token_ids) == ("hi", (104, END, 105, END, END))
    assert output.finish_reason == "length", "the last token is one that was to be ignored"


@pytest.mark.parametrize("pieces", [[b"STOP"], [b"ST", b"OP"], [b"S", b"T", b"O", b"P"], [b"STO", b"P!x"],
                                    [b" S", b"TOPS"], [b"we S", b"TOP here"]], ids=str)
def test_a_stop_string_ends_wherever_the_tokens_cut_it(pieces):
    ranks = BYTES | {piece: 300 + i for i, piece in enumerate(pieces) if len(piece) > 1}
    tokenizer = Tokenizer("pieces", r"(?s).", ranks, {})
    ids = [ranks[piece] for piece in (b"a", *pieces, b"z")]
    lm = scripted([], tokenizer=tokenizer)
    lm.model.rule = lambda history: torch.eye(310)[ids[len(history) - 1]]
    running = stream(lm, "?", SamplingParams(temperature=0, max_tokens=9, stop=["never", "STOP"]))
    deltas = list(running)
    assert "".join(deltas) == running.output.text == "a" + b"".join(pieces).decode().split("STOP")[0]
    assert running.output.finish_reason == "stop"
    assert len(running.output.token_ids) == 1 + len(pieces), "not one pass more than needed"


def test_what_looked_like_a_stop_string_comes_out_in_the_end():
    params = SamplingParams(temperature=0, max_tokens=3, stop="STOP")
    output = generate(scripted(list(b"aST")), "?", params)
    assert (output.text, output.finish_reason) == ("aST", "length")
    output = generate(scripted([*b"aST", END]), "?", SamplingParams(temperature=0, stop="STOP"))
    assert (output.text, output.finish_reason) == ("aST", "stop")


def test_a_character_that_never_completes_is_flushed_once():
    output = generate(scripted(list("é".encode()) + [0xF0, 0x9F]), "?", SamplingParams(temperature=0, max_tokens=4))
    assert output.text == "é�"
    params = SamplingParams(temperature=0, max_tokens=4, stop="�")
    output = generate(scripted([*b"abc", 0xF0]), "?", params)
    assert (output.text, output.finish_reason) == ("abc", "stop"), "the flush completed a stop string"


def test_max_tokens_counts_new_tokens(real):
    for n in (1, 2, 7):
        output = generate(real, [1, 2, 3], SamplingParams(max_tokens=n, seed=0))
        assert (len(output.token_ids), output.finish_reason) == (n, "length")


def test_the_end_of_the_context_is_length(real):
    output = generate(real, [1] * 33, SamplingParams(max_tokens=1000, seed=0))
    assert (len(output.token_ids), output.finish_reason) == (40 - 33, "length")
    assert len(generate(real, [1] * 39, GREEDY).token_ids) == 1


@pytest.mark.parametrize("prompt, numbers", [
    ([1] * 40, ["40 tokens", "max_position_embeddings = 40"]),
    ([1] * 55, ["55 tokens", "max_position_embeddings = 40"]),
    ([3, 260, 4], ["[3, 260]", "[0, 260)"]),
    ([3, -1], ["[-1, 3]", "[0, 260)"]),
    ([], ["prompt = []"]), ("", ["prompt = ''"]),
])
def test_a_prompt_that_cannot_be_continued_is_refused_at_once(real, prompt, numbers):
    for call in (stream, generate):
        with pytest.raises(ValueError) as caught:
            call(real, prompt, GREEDY)
        assert all(number in str(caught.value) for number in numbers), caught.value


def test_prompts_are_text_messages_or_ids():
    messages = [{"role": "user", "content": "hi<|end|>"}]
    assert encode_prompt(TOKENIZER, "hi<|end|>") == list(b"hi<|end|>"), "control text in a prompt is data"
    assert encode_prompt(TOKENIZER, messages) == list(b"hi<|end|>>")
    assert encode_prompt(TOKENIZER, (5, 6)) == [5, 6]


# --- what is recorded ---------------------------------------------------------------------------


def test_steps_record_the_models_own_distribution(real):
    params = SamplingParams(temperature=0.5, top_k=5, seed=1, max_tokens=6, logprobs=3)
    running = stream(real, [5, 99, 7, 31], params)
    text = "".join(running)
    ids, rows = naive(real, [5, 99, 7, 31], params)
    assert [step.token_id for step in running.steps] == list(ids)
    assert [step.positions for step in running.steps] == [4, 1, 1, 1, 1, 1]
    for step, logits in zip(running.steps, rows, strict=True):
        expected = logits.double().log_softmax(-1)[0]
        assert step.logprob == pytest.approx(expected[step.token_id].item(), abs=1e-4)
        values, top = expected.topk(3)
        assert [i for i, _ in step.top] == top.tolist()
        assert [p for _, p in step.top] == pytest.approx(values.tolist(), abs=1e-4)
        assert 0 < step.seconds < 60
    output = running.output
    assert isinstance(output, CompletionOutput) and output.text == text
    assert output.cumulative_logprob == pytest.approx(sum(s.logprob for s in running.steps))
    assert output.logprobs == tuple(step.top for step in running.steps)


def test_logprobs_are_none_unless_asked_for(real):
    assert generate(real, [5], GREEDY).logprobs is None
    assert generate(real, [5], SamplingParams(max_tokens=2, logprobs=0)).logprobs == ((), ())


def test_a_text_that_is_not_finished_has_no_finish_reason():
    running = stream(scripted([*b"abc", END]), "?", GREEDY)
    assert running.output.finish_reason is None and running.output.token_ids == ()
    seen = []
    for delta in running:
        seen.append(delta)
        assert running.output.finish_reason is None
        assert running.output.text == "".join(seen) and len(running.steps) == len(seen)
    assert seen == ["a", "b", "c"]
    assert running.output.finish_reason == "stop"


def test_the_pieces_joined_are_the_text_and_no_character_is_cut():
    text = "añ 日本 👍🏽."
    lm = scripted([*text.encode(), END])
    running = stream(lm, "?", SamplingParams(temperature=0, max_tokens=29))
    deltas = list(running)
    assert deltas == list(text)
    assert running.output.text == text


# --- leaving early ------------------------------------------------------------------------------


def test_a_consumer_that_breaks_off_leaves_the_model_as_it_was(real):
    expected = generate(real, [5, 6], GREEDY)
    running = stream(real, [5, 6, 7], GREEDY)
    next(running)
    running.close()
    assert list(running) == [] and running.output.finish_reason is None
    for _ in stream(real, [9], GREEDY):
        break
    with pytest.raises(KeyboardInterrupt):
        for _ in stream(real, [9], GREEDY):
            raise KeyboardInterrupt
    assert generate(real, [5, 6], GREEDY) == expected


@pytest.mark.parametrize("at_call", [0, 3, 5])
def test_an_interrupt_inside_the_model_leaves_it_as_it_was(real, at_call):
    expected, calls = generate(real, [5, 6], GREEDY), itertools.count()

    def interrupt(*_):
        if next(calls) == at_call:
            raise KeyboardInterrupt
    hook = real.model.layers[1].mlp.register_forward_pre_hook(interrupt)  # the first layer is cached by then
    running = stream(real, [5, 6], GREEDY)
    with pytest.raises(KeyboardInterrupt):
        list(running)
    assert len(running.steps) == at_call and running.output.finish_reason is None
    hook.remove()
    assert not torch.is_inference_mode_enabled()
    assert generate(real, [5, 6], GREEDY) == expected


def test_two_streams_in_turn_do_not_disturb_each_other(real):
    calls = [([5, 6], SamplingParams(temperature=1.2, seed=3, max_tokens=9)), ([9, 8, 7, 6], GREEDY)]
    expected = [generate(real, *call) for call in calls]
    running = [stream(real, *call) for call in calls]
    for _ in itertools.zip_longest(*running):
        pass
    assert [r.output for r in running] == expected


def test_inference_mode_does_not_reach_the_consumer(real):
    weight = torch.ones(2, requires_grad=True)
    for _ in stream(real, [5], GREEDY):
        assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled()
        (weight * weight).sum().backward()
    for _ in decode_steps(real, [5], GREEDY):
        assert not torch.is_inference_mode_enabled()


def test_only_the_new_token_goes_through_the_model(real):
    lengths = []
    hook = real.model.register_forward_pre_hook(lambda _, args: lengths.append(args[0].shape[1]))
    generate(real, [5, 6, 7], SamplingParams(max_tokens=5, seed=0))
    hook.remove()
    assert lengths == [3, 1, 1, 1, 1]


def test_without_a_penalty_the_ids_so_far_are_not_read(real, monkeypatch):
    import course_lib.sampling as sampling
    monkeypatch.setattr(sampling, "id_lists", None)
    generate(real, [5, 6, 7], SamplingParams(max_tokens=3, seed=0, top_p=0.9))


def test_logits_that_are_not_numbers_are_refused():
    config = scripted([]).config
    lm = language_model(Scripted(lambda history: torch.full((260,), math.nan), config), config)
    with pytest.raises(ValueError, match="finite"):
        generate(lm, "?", GREEDY)


@pytest.mark.parametrize("prompt", [
    1.5, True, None, 7, b"ab", {"role": "user", "content": "a"}, [1.0, 2.0], ["a"], [None], [True],
    [1, {"role": "user"}], [[1, 2]], torch.zeros(2, 2, dtype=torch.long), torch.tensor([0.5]), torch.tensor(3),
    [torch.tensor(5.7)], [torch.tensor(True)], np.array([[1, 2]]), object(), {1, 2.5}])
def test_prompts_of_another_kind_are_refused(prompt, real):
    with pytest.raises(ValueError, match=r"(?s)prompt = .* is not allowed: must be text"):
        stream(real, prompt)


def test_ids_may_come_in_any_container(real):
    ids = [97, 98, 99]
    for prompt in (tuple(ids), torch.tensor(ids), torch.tensor(ids, dtype=torch.int32), np.array(ids), iter(ids),
                   [*torch.tensor(ids)], [*np.array(ids)]):
        found = encode_prompt(TOKENIZER, prompt)
        assert found == ids and all(type(i) is int for i in found)
    for empty in (torch.tensor([], dtype=torch.long), [], ()):
        with pytest.raises(ValueError, match="at least one token"):
            encode_prompt(TOKENIZER, empty)


@pytest.mark.parametrize("params", [GREEDY, SamplingParams(seed=0), SamplingParams(seed=0, top_p=0.9)])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_logits_that_are_not_finite_speak_of_the_weights(value, params):
    model = CausalLM(SHAPE).eval()
    model.requires_grad_(False)
    model.layers[1].mlp.up_proj.weight[3, 2] = value
    with pytest.raises(ValueError, match=r"not finite: of its weights, layers\.1\.mlp\.up_proj\.weight holds NaN"):
        generate(language_model(model), "ab", params)
    model.layers[1].mlp.up_proj.weight[3, 2] = 0
    model.norm.weight.fill_(3e38)
    model.lm_head.weight.fill_(30)
    with pytest.raises(ValueError, match=r"weights are finite, so that it must have computed beyond torch\.float32"):
        generate(language_model(model), "ab", params)


def test_a_padded_vocabulary_streams_to_its_end():
    """Random weights choose ids without a token: they are no text, as for `transformers`."""
    few = Tokenizer("few", r"(?s).", {bytes([i]): i for i in range(256)}, {"<|end|>": 256})
    padded = replace(SHAPE, vocab_size=4000)
    model = CausalLM(padded).eval()
    model.init_weights(torch.Generator().manual_seed(0))
    lm = language_model(model, padded, few)
    running = stream(lm, "ab", SamplingParams(max_tokens=30, seed=0, logprobs=3))
    text = "".join(running)
    assert max(running.output.token_ids) > 256 and len(running.steps) == 30
    assert text == running.output.text == few.decode(running.output.token_ids)


@pytest.mark.parametrize("chunk", [None, 1, 3, 5, 9, 40])
def test_a_prompt_read_in_chunks_fills_the_cache_as_one_pass_does(chunk):
    lm, ids = scrambled_lm(), list(range(9))
    whole, cut = (StaticCache.for_model(lm.model, 9) for _ in range(2))
    expected = next_logits(lm.model, ids, whole)
    logits, seen = None, []
    for logits in prefill(lm.model, ids, cut, chunk=chunk):  # noqa: B007, the last is looked at below
        seen.append(cut.get_seq_length())
    size = chunk or 9
    assert seen == [*range(size, 9, size), 9]
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4)
    torch.testing.assert_close(cut.keys, whole.keys, rtol=0, atol=1e-4)


def test_a_chunk_of_nothing_is_refused():
    lm = scrambled_lm()
    with pytest.raises(ValueError, match="chunk = 0"):
        next(prefill(lm.model, [1, 2], StaticCache.for_model(lm.model, 2), chunk=0))
