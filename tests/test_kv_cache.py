"""A cache changes the cost and never the logits, however the text is cut into calls."""

from itertools import chain, combinations

import pytest
import torch

from course_lib.config import ModelConfig
from course_lib.kv_cache import DynamicCache, StaticCache
from course_lib.model import CausalLM

N = 12
FAMILIES = {
    "llama": {"num_key_value_heads": 3},
    "grouped by three": {"num_key_value_heads": 2, "qk_norm": True},
    "window": {"num_key_value_heads": 3, "sliding_window": 4},
    "gpt2": {"norm": "layernorm", "positions": "learned", "gated_mlp": False, "hidden_act": "gelu_tanh"},
}
PRECISIONS = {torch.float64: 1e-10, torch.float32: 1e-4}


def make_model(family, dtype):
    config = ModelConfig(vocab_size=37, hidden_size=20, intermediate_size=28, num_hidden_layers=2,
                         num_attention_heads=6, head_dim=4, max_position_embeddings=32, **FAMILIES[family])
    model, generator = CausalLM(config), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3 + (parameter.dim() == 1))
    return model.to(dtype).eval().requires_grad_(False)


def make_cache(kind, model, max_length=N, batch_size=2):
    return DynamicCache() if kind == "dynamic" else StaticCache.for_model(model, max_length, batch_size=batch_size)


def short_splits(n):
    """Every way to cut n tokens into two or three chunks, and into single tokens: lists of sizes."""
    for cuts in chain(combinations(range(1, n), 1), combinations(range(1, n), 2), [range(1, n)]):
        yield [end - start for start, end in zip((0, *cuts), (*cuts, n))]


@pytest.fixture
def ids():
    return torch.randint(0, 37, (2, N), generator=torch.Generator().manual_seed(1))  # (B, T)


@pytest.fixture(params=FAMILIES)
def model(request):
    return make_model(request.param, torch.float64)


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_splits_give_the_uncached_logits(kind, family, dtype, ids):
    """All rows, two layers: a wrong mask shows in neither the last row nor a single layer."""
    model = make_model(family, dtype)
    expected, ways = model(ids), list(short_splits(N))
    assert len(ways) == 11 + 55 + 1 and all(sum(sizes) == N for sizes in ways)
    for sizes in ways:
        cache = make_cache(kind, model)
        logits = torch.cat([model(chunk, kv_cache=cache) for chunk in ids.split(sizes, dim=1)], dim=1)
        assert (logits - expected).abs().max() <= PRECISIONS[dtype], sizes


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_every_split_gives_the_uncached_logits(kind, ids):
    """All 2 ** 11 of them: from each border go on by each length, then crop back to the border."""
    model = make_model("llama", torch.float64)
    expected, cache, complete = model(ids), make_cache(kind, model), 0
    todo = [(0, end) for end in range(1, N + 1)]
    while todo:
        start, end = todo.pop()
        cache.crop(start)
        logits = model(ids[:, start:end], kv_cache=cache)
        assert (logits - expected[:, start:end]).abs().max() <= 1e-10, (start, end)
        todo += [(end, later) for later in range(end + 1, N + 1)]
        complete += end == N
    assert complete == 2**11


def test_positions_go_on_where_the_cache_ends(ids):
    """Keys are stored after RoPE, so those of a chunk show at which positions it was placed."""
    model, whole, cut = make_model("llama", torch.float64), DynamicCache(), DynamicCache()
    model(ids, kv_cache=whole)
    for chunk in ids.split([5, 1, 6], dim=1):
        assert cut.get_seq_length() + chunk.shape[1] in (5, 6, 12)
        model(chunk, kv_cache=cut)
    torch.testing.assert_close(cut.keys[0], whole.keys[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("max_length", [N, 13, 32])
def test_short_text_in_a_long_buffer(model, ids, max_length):
    """What lies in the rest of the buffer is not looked at, whatever it is."""
    cache = make_cache("static", model, max_length)
    cache.keys.fill_(torch.nan)
    cache.values.fill_(torch.nan)
    logits = torch.cat([model(chunk, kv_cache=cache) for chunk in ids.split([3, 1, 8], dim=1)], dim=1)
    torch.testing.assert_close(logits, model(ids), rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_crop_equals_a_fresh_cache(kind, model, ids):
    """As after a rejected draft: forget some positions, go on with others."""
    used, fresh = make_cache(kind, model, 20), make_cache(kind, model, 20)
    model(ids, kv_cache=used)
    used.crop(7)
    model(ids[:, :7], kv_cache=fresh)
    assert used.get_seq_length() == fresh.get_seq_length() == 7
    other = (ids[:, 7:] + 5) % 37
    expected = model(torch.cat((ids[:, :7], other), dim=1))[:, 7:]
    for cache in (used, fresh):
        torch.testing.assert_close(model(other, kv_cache=cache), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_reset_leaves_nothing_behind(kind, model, ids):
    cache = make_cache(kind, model)
    first = model(ids, kv_cache=cache)
    cache.reset()
    assert cache.get_seq_length() == 0
    assert model(ids, kv_cache=cache).equal(first)


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_crop_out_of_range_is_refused(kind, model, ids):
    cache = make_cache(kind, model)
    model(ids[:, :5], kv_cache=cache)
    for length in (-1, 6):
        with pytest.raises(ValueError, match=rf"length = {length}.*\[0, 5\]"):
            cache.crop(length)
    cache.crop(5)
    cache.crop(0)
    assert cache.get_seq_length() == 0


def test_a_crop_cuts_every_layer_alike(model, ids):
    cache = make_cache("dynamic", model)
    model(ids, kv_cache=cache)
    cache.crop(4)
    shapes = {tuple(states.shape[:3]) for states in cache.keys + cache.values}
    assert shapes == {(2, model.config.num_key_value_heads, 4)}


def test_static_cache_is_written_in_place(model, ids):
    cache = make_cache("static", model)
    before = cache.keys.data_ptr()
    model(ids[:, :5], kv_cache=cache)
    keys, _ = cache.update(*torch.zeros(2, 2, model.config.num_key_value_heads, 1, 4).double(), 0)
    assert keys.data_ptr() == before and keys.shape[2] == 6, "a view of the buffer, not a copy"


def test_static_cache_names_both_numbers_when_it_is_full(model, ids):
    cache = make_cache("static", model, 8)
    model(ids[:, :6], kv_cache=cache)
    with pytest.raises(ValueError, match=r"9 positions.*max_length = 8"):
        model(ids[:, 6:9], kv_cache=cache)
    with pytest.raises(ValueError, match=r"max_length = 33.*max_position_embeddings = 32"):
        make_cache("static", model, 33)


def test_text_longer_than_the_context_is_refused_before_the_cache_changes(ids):
    model, cache = make_model("llama", torch.float64), DynamicCache()
    long = torch.zeros(2, 30, dtype=torch.long)
    model(long, kv_cache=cache)
    with pytest.raises(ValueError, match=r"33 positions \(30 cached \+ 3 new\).*embeddings = 32"):
        model(long[:, :3], kv_cache=cache)
    assert cache.get_seq_length() == 30


@pytest.mark.parametrize("device, dtype", [("cpu", torch.bfloat16), ("meta", torch.float64)])
def test_a_cache_for_a_model_has_its_shape_type_and_device(device, dtype):
    model = make_model("llama", torch.float32).to(device, dtype)
    cache = StaticCache.for_model(model, 7, batch_size=3)
    config = model.config
    assert cache.keys.shape == cache.values.shape == (
        config.num_hidden_layers, 3, config.num_key_value_heads, 7, config.head_dim)
    assert {(t.dtype, t.device.type) for t in (cache.keys, cache.values)} == {(dtype, device)}
    model(torch.zeros(3, 7, dtype=torch.long, device=device), kv_cache=cache)
    assert cache.get_seq_length() == 7 and StaticCache.for_model(model, 4).keys.shape[1] == 1
    with pytest.raises(ValueError, match="max_length = 0"):
        StaticCache.for_model(model, 0)


@pytest.mark.parametrize("Hkv, Dh, dtype, size", [(3, 4, torch.float32, 4), (2, 8, torch.bfloat16, 2)])
def test_bytes_count_key_value_heads_and_head_dim(Hkv, Dh, dtype, size):
    """Not query heads, and not hidden_size / heads where head_dim says otherwise (Qwen3)."""
    config = ModelConfig(vocab_size=37, hidden_size=30, intermediate_size=28, num_hidden_layers=5,
                         num_attention_heads=6, num_key_value_heads=Hkv, head_dim=Dh)
    static = StaticCache(config, 11, batch_size=2, dtype=dtype)
    assert static.nbytes == 2 * 5 * 2 * Hkv * 11 * Dh * size
    dynamic = DynamicCache()
    with torch.no_grad():
        CausalLM(config).to(dtype)(torch.zeros(2, 11, dtype=torch.long), kv_cache=dynamic)
    assert dynamic.nbytes == static.nbytes
