"""A cache changes the cost and never the logits, however the text is cut into calls."""

from dataclasses import replace
from itertools import chain, combinations, product

import pytest
import torch
from tiny_lm import scrambled_lm

from course_lib.config import ModelConfig, SamplingParams
from course_lib.generate import generate
from course_lib.kv_cache import DynamicCache, SlidingWindowCache, StaticCache, cache_for
from course_lib.layers import causal_mask
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


# --- the ring: the window's positions and no more ---------------------------------------------------

WINDOW = 4
LOOKS_BACK = {"llama": {"num_key_value_heads": 3}, "grouped by three": {"num_key_value_heads": 2, "qk_norm": True},
              "gpt2": FAMILIES["gpt2"]}


class SeenMask(CausalLM):
    """Computes everything afresh under a mask of the test's own, which knows no cache."""

    def __init__(self, model, window, sink):
        torch.nn.Module.__init__(self)
        self.__dict__.update(model.__dict__)
        self.window, self.sink = window, sink

    def mask(self, T, S, attention_mask):
        rows = [[key <= query and (query - key < self.window or key < self.sink) for key in range(S)]
                for query in range(S - T, S)]
        seen = torch.tensor(rows)
        return seen if attention_mask is None else seen & attention_mask[:, None, None, :].bool()


def ring_for(model, window=WINDOW, sink=0, batch_size=2):
    weight = next(model.parameters())
    return SlidingWindowCache(model.config, window, sink=sink, batch_size=batch_size, dtype=weight.dtype)


@pytest.mark.parametrize("sink", [0, 2])
@pytest.mark.parametrize("family", LOOKS_BACK)
def test_a_ring_gives_the_logits_of_a_model_that_looks_back_less_far(family, sink, ids):
    """All 67 splits, all rows: chunks shorter and longer than the window, and single tokens three windows far."""
    model = make_model(family, torch.float64)
    expected = SeenMask(model, WINDOW, sink)(ids)
    assert (expected - model(ids)).abs().max() > 1e-3, "otherwise the window would not show"
    for sizes in short_splits(N):
        cache = ring_for(model, sink=sink)
        logits = torch.cat([model(chunk, kv_cache=cache) for chunk in ids.split(sizes, dim=1)], dim=1)
        assert (logits - expected).abs().max() <= 1e-10, sizes
        assert cache.get_seq_length() == N


@pytest.mark.parametrize("window, sink", [(1, 0), (1, 1), (2, 0), (3, 2), (5, 1), (N, 0), (N + 8, 0), (2, 3)])
def test_every_window_and_sink(window, sink, ids):
    model = make_model("llama", torch.float64)
    expected = SeenMask(model, window, sink)(ids)
    for sizes in [[1] * N, [N], [window % N or 1, N - (window % N or 1)], [3, 1, 1, 7], [1, 6, 1, 4]]:
        cache = ring_for(model, window, sink)
        logits = torch.cat([model(chunk, kv_cache=cache) for chunk in ids.split(sizes, dim=1)], dim=1)
        assert (logits - expected).abs().max() <= 1e-10, sizes


def test_a_model_with_a_window_gets_the_ring_and_its_own_logits(ids):
    """Against the model's own mask, for all 2 ** 11 splits; the cache cannot be cropped, so it is copied."""
    model = make_model("window", torch.float64)
    expected, complete = model(ids), 0
    todo = [(0, end, cache_for(model, N, batch_size=2)) for end in range(1, N + 1)]
    while todo:
        start, end, cache = todo.pop()
        logits = model(ids[:, start:end], kv_cache=cache)
        assert (logits - expected[:, start:end]).abs().max() <= 1e-10, (start, end)
        todo += [(end, later, copy_of(cache)) for later in range(end + 1, N + 1)]
        complete += end == N
    assert complete == 2**11


def copy_of(cache):
    """The same positions in memory of their own."""
    copy = SlidingWindowCache.__new__(SlidingWindowCache)
    copy.__dict__.update(cache.__dict__)
    copy.keys, copy.values, copy.lengths = cache.keys.clone(), cache.values.clone(), list(cache.lengths)
    copy.layers = list(zip(copy.keys.unbind(), copy.values.unbind()))
    return copy


@pytest.mark.parametrize("window", [1, 3, 7])
def test_a_window_counts_the_position_itself(window):
    """Row sums are min(i + 1, window), in the mask of the layers and in that of the ring."""
    mask = causal_mask(9, 9, window=window)
    assert mask.sum(1).tolist() == [min(i + 1, window) for i in range(9)]
    cache = ring_for(make_model("llama", torch.float64), window)
    assert cache.mask(9).equal(mask)


@pytest.mark.parametrize("sink", [0, 2])
def test_the_ring_knows_which_positions_its_keys_have(sink):
    """Keys that are their own position: what `update` returns is what `key_positions` announced."""
    cache = SlidingWindowCache(make_model("llama", torch.float32).config, WINDOW, sink=sink)
    for T in (1, 1, 3, 1, 5, 1, 2, 1, 1):
        past = cache.get_seq_length()
        new = torch.arange(past, past + T).float().view(1, 1, T, 1).expand(1, 3, T, 4)
        announced = cache.key_positions(T)
        for layer in range(2):
            keys, values = cache.update(new, -new, layer)
            assert keys[0, 0, :, 0].equal(announced.float()) and values.equal(-keys)
        seen = set(range(min(sink, past + T))) | set(range(max(0, past + T - WINDOW), past + T))
        assert seen <= set(announced.tolist()) and (T > 1 or len(announced) == len(seen))


def test_the_ring_stays_as_large_as_it_is_and_one_step_copies_nothing(ids):
    model = make_model("window", torch.float64)
    cache = cache_for(model, 32, batch_size=2)
    assert cache.nbytes == 2 * 2 * 2 * 3 * WINDOW * 4 * 8
    before, seen = (cache.keys.data_ptr(), cache.nbytes), []
    for position in range(3 * WINDOW):
        model(ids[:, [position % N]], kv_cache=cache)
        keys, _ = cache.layers[1]
        seen.append(cache.key_positions(1).tolist())
        assert (cache.keys.data_ptr(), cache.nbytes) == before and keys.shape[2] == WINDOW
    assert seen[:4] == [[0, 1], [0, 1, 2], [0, 1, 2, 3], [4, 1, 2, 3]] and sorted(seen[-1]) == [9, 10, 11, 12]


def test_what_was_never_written_is_not_looked_at(ids):
    model = make_model("llama", torch.float64)
    cache = ring_for(model, 8, 2)
    cache.keys.fill_(torch.nan)
    cache.values.fill_(torch.nan)
    logits = torch.cat([model(chunk, kv_cache=cache) for chunk in ids.split([3, 1, 2, 1, 5], dim=1)], dim=1)
    assert (logits - SeenMask(model, 8, 2)(ids)).abs().max() <= 1e-10


@pytest.mark.parametrize("steps", [[N], [1] * N, [5, 1, 6]], ids=str)
@pytest.mark.parametrize("sink", [0, 2])
def test_a_crop_equals_a_fresh_ring_or_is_refused(sink, steps, ids):
    """After every length and to every length: what is overwritten is not needed, or the error says so."""
    model, other = make_model("llama", torch.float64), (ids + 5) % 37
    allowed = set()
    for length, later in product(range(N + 1), ([1, 4, 1, 6], [12], [3, 9])):
        cache = ring_for(model, sink=sink)
        for chunk in ids.split(steps, dim=1):
            model(chunk, kv_cache=cache)
        try:
            cache.crop(length)
        except ValueError as error:
            assert f"length = {length} is not allowed" in str(error) and "overwritten" in str(error)
            assert cache.get_seq_length() == N, "nothing was lost by asking"
            continue
        allowed.add(length)
        text = torch.cat((ids[:, :length], other), dim=1)
        expected = SeenMask(model, WINDOW, sink)(text)[:, length:]
        logits = torch.cat([model(chunk, kv_cache=cache) for chunk in other.split(later, dim=1)], dim=1)
        assert (logits - expected).abs().max() <= 1e-10, length
    assert allowed == {*range(sink + 1), N - 1, N}


def test_a_ring_that_has_lost_nothing_crops_anywhere_again_and_again(ids):
    model = make_model("llama", torch.float64)
    cache = ring_for(model, 6, 1)
    expected = SeenMask(model, 6, 1)(ids)
    for grow, back in [(7, 3), (6, 2), (5, 5), (7, 0)]:
        start = cache.get_seq_length()
        logits = model(ids[:, start:grow], kv_cache=cache)
        assert (logits - expected[:, start:grow]).abs().max() <= 1e-10
        cache.crop(back)
        assert cache.get_seq_length() == back
    model(ids, kv_cache=cache)
    cache.reset()
    assert (model(ids, kv_cache=cache) - expected).abs().max() <= 1e-10, "a second request sees nothing of the first"


@pytest.mark.parametrize("sizes", [[N], [3, 9], [7, 1, 1, 1, 1, 1], [1] * N], ids=str)
def test_padded_rows_equal_each_row_alone(sizes, ids):
    model = make_model("window", torch.float64)
    mask = torch.ones(2, N, dtype=torch.long)
    mask[1, :5] = 0
    cache, logits, past = ring_for(model), [], 0
    for chunk in ids.split(sizes, dim=1):
        past += chunk.shape[1]
        logits.append(model(chunk, kv_cache=cache, attention_mask=mask[:, :past]))
    logits = torch.cat(logits, dim=1)
    assert (logits[:1] - model(ids[:1])).abs().max() <= 1e-10
    assert (logits[1:, 5:] - model(ids[1:, 5:])).abs().max() <= 1e-10


def test_a_sink_and_padding_are_refused_together(ids):
    model = make_model("llama", torch.float64)
    cache = ring_for(model, sink=2)
    with pytest.raises(ValueError, match=r"sink = 2.*padding"):
        model(ids, kv_cache=cache, attention_mask=torch.ones_like(ids))
    assert cache.get_seq_length() == 0


@pytest.mark.parametrize("arguments, message", [
    ({"window": 0}, r"window = 0.*\[1, 32\]"), ({"window": 33}, r"window = 33.*\[1, 32\]"),
    ({"window": 4, "sink": -1}, r"sink = -1.*\[0, 28\]"), ({"window": 30, "sink": 3}, r"sink = 3.*\[0, 2\]"),
    ({"window": 4, "batch_size": 0}, "batch_size = 0"),
])
def test_a_ring_of_no_size_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        SlidingWindowCache(make_model("llama", torch.float32).config, **arguments)


def test_a_ring_may_not_look_back_further_than_the_model():
    with pytest.raises(ValueError, match=r"window = 5.*\[1, 4\]"):
        SlidingWindowCache(make_model("window", torch.float32).config, 5)


def test_the_cache_for_a_model():
    plain, window = make_model("llama", torch.float32), make_model("window", torch.float32).to(torch.bfloat16)
    assert type(cache_for(plain, 32)) is StaticCache and cache_for(plain, 9, batch_size=3).keys.shape[1:4] == (3, 3, 9)
    short, long = cache_for(window, 4), cache_for(window, 5, batch_size=3)
    assert type(short) is StaticCache and type(long) is SlidingWindowCache
    assert long.keys.shape == (2, 3, 3, 4, 4) and long.keys.dtype == torch.bfloat16
    for model, length in ((plain, 0), (plain, 33), (window, 33)):
        with pytest.raises(ValueError, match=rf"max_length = {length}.*max_position_embeddings = 32"):
            cache_for(model, length)


def test_a_text_beyond_the_context_is_refused_whatever_the_ring_holds(ids):
    model = make_model("window", torch.float64)
    cache = cache_for(model, 32, batch_size=2)
    for _ in range(32):
        model(ids[:, :1], kv_cache=cache)
    with pytest.raises(ValueError, match=r"33 positions \(32 cached \+ 1 new\)"):
        model(ids[:, :1], kv_cache=cache)
    assert cache.get_seq_length() == 32


def test_generation_with_a_window_equals_a_loop_without_a_cache():
    lm = scrambled_lm()
    lm.config = lm.model.config = replace(lm.config, sliding_window=5)
    ids = [3, 9, 27]
    out = generate(lm, ids, SamplingParams(temperature=0, max_tokens=30, ignore_eos=True))
    for _ in range(30):
        ids.append(lm.model(torch.tensor([ids]))[0, -1].argmax().item())
    assert list(out.token_ids) == ids[3:] and len(set(out.token_ids)) > 3
