"""The static step against the model's own: the same logits, whatever lies in the rest of the buffer."""

import copy
import pickle
from dataclasses import replace

import pytest
import torch
from test_few_rows import CONFIG, make_model, with_mkl  # noqa: F401
from tiny_lm import scrambled_lm

from course_lib import SamplingParams
from course_lib import compiled as compiled_module
from course_lib.compiled import CompiledLM, compile_steps, static_step
from course_lib.fast_layer import speed_up
from course_lib.generate import generate
from course_lib.kv_cache import DynamicCache, StaticCache
from course_lib.model import CausalLM


def static_and_plain(config=CONFIG):
    """Both of the same weights; the static one is not compiled, but runs the step that would be."""
    static, plain = make_model(config), make_model(config)
    compile_steps(static, backend="eager")
    static.compiled = static_step
    return static, plain


@pytest.fixture
def steps(monkeypatch):
    """The positions at which the static step ran."""
    positions, step = [], static_step
    monkeypatch.setattr(compiled_module, "static_step", lambda model, ids, position, keys, values: (
        positions.append(position.item()), step(model, ids, position, keys, values))[1])
    return positions


FAMILIES = {"llama": CONFIG, "window": replace(CONFIG, sliding_window=3), "gpt2": replace(
    CONFIG, norm="layernorm", positions="learned", gated_mlp=False, attention_bias=True, attention_out_bias=True,
    mlp_bias=True), "qwen3": replace(CONFIG, qk_norm=True)}


@pytest.mark.parametrize("B", [1, 3])
@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_each_step_gives_the_logits_of_one_pass(family, B):
    """In float64. The buffer is longer than the text, and what lies in the rest of it is NaN."""
    static, plain = (model.double() for model in static_and_plain(FAMILIES[family]))
    ids = torch.randint(0, 38, (B, 12), generator=torch.Generator().manual_seed(0))
    cache, expected = StaticCache.for_model(static, 20, batch_size=B), plain(ids)
    cache.keys.fill_(torch.nan)
    cache.values.fill_(torch.nan)
    torch.testing.assert_close(static(ids[:, :5], kv_cache=cache), expected[:, :5], rtol=0, atol=1e-10)
    for i in range(5, 12):
        assert cache.get_seq_length() == i
        logits = static(ids[:, i : i + 1], kv_cache=cache, logits_to_keep=1)
        torch.testing.assert_close(logits, expected[:, i : i + 1], rtol=0, atol=1e-10)


@torch.no_grad()
def test_it_goes_on_after_a_crop_and_refuses_a_full_cache():
    static, plain = static_and_plain()
    cache = StaticCache.for_model(static, 6)
    for i in range(6):
        static(torch.tensor([[i]]), kv_cache=cache)
    with pytest.raises(ValueError, match=r"7 positions.*max_length = 6"):
        static(torch.tensor([[1]]), kv_cache=cache)
    cache.crop(2)
    logits = static(torch.tensor([[9]]), kv_cache=cache)
    torch.testing.assert_close(logits, plain(torch.tensor([[0, 1, 9]]))[:, -1:], rtol=0, atol=1e-4)


@torch.no_grad()
def test_what_it_is_not_made_for_is_computed_as_ever(steps):
    static, plain = static_and_plain()
    static.compiled = lambda *args: compiled_module.static_step(*args)
    cache = StaticCache.for_model(static, 8)
    static(torch.tensor([[1, 2]]), kv_cache=cache)
    static(torch.tensor([[3]]), kv_cache=DynamicCache())
    static(torch.tensor([[3]]))
    with torch.enable_grad():
        static(torch.tensor([[3]])).sum().backward()
    assert steps == []
    static(torch.tensor([[3]]), kv_cache=cache)
    assert steps == [2]
    seen = []
    hook = static.layers[1].mlp.register_forward_hook(lambda module, args, output: seen.append(output.shape))
    static(torch.tensor([[3]]), kv_cache=cache)
    assert steps == [2] and len(seen) == 1 and cache.get_seq_length() == 4
    hook.remove()
    static.layers[0].mlp.down_proj.weight.mul_(-2)
    plain.layers[0].mlp.down_proj.weight.mul_(-2)
    cache.reset()
    logits = static(torch.tensor([[3]]), kv_cache=cache)
    assert steps == [2, 0]
    torch.testing.assert_close(logits, plain(torch.tensor([[3]])), rtol=0, atol=1e-4)


def test_copies_compute_as_ever():
    static, plain = static_and_plain()
    for copied in (copy.deepcopy(static), pickle.loads(pickle.dumps(static))):
        assert copied.compiled is None
        with torch.no_grad():
            cache = StaticCache.for_model(copied, 4)
            torch.testing.assert_close(copied(torch.tensor([[3]]), kv_cache=cache), plain(torch.tensor([[3]])))


def test_without_a_compiler_the_error_names_it(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    model = make_model()
    with pytest.raises(ValueError, match=r"compile = True.*no C\+\+ compiler.*'no-such-compiler'"):
        compile_steps(model)
    assert type(model) is CausalLM


@pytest.mark.skipif(compiled_module.find_compiler() is None, reason="no C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's compiler uses what PyTorch gives up
def test_a_compiled_model_writes_the_same_text():
    """Sixty-four tokens, with two lengths of the cache; compiling one layer takes most of the time."""
    lm = scrambled_lm()
    del lm.model.layers[1:]
    lm.config = lm.model.config = replace(lm.config, num_hidden_layers=1, max_position_embeddings=128)
    lm.model.derive_state()
    prompts = [("The cat sat", SamplingParams(temperature=0, max_tokens=64, ignore_eos=True)),
               ("What is", SamplingParams(temperature=0.8, seed=3, max_tokens=9))]
    expected = [generate(lm, *prompt).token_ids for prompt in prompts]
    speed_up(lm.model)
    compile_steps(lm.model)
    assert [generate(lm, *prompt).token_ids for prompt in prompts] == expected
    assert type(lm.model) is CompiledLM and len(expected[0]) == 64 and len(set(expected[0])) > 3
