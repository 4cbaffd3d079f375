"""Texts that lie in pages give the logits of each alone, for every family, split, company and order of pages."""

import dataclasses
import random

import psutil
import pytest
import torch
from test_kv_cache import FAMILIES, PRECISIONS, N, make_model, short_splits

from course_lib.fast_layer import speed_up
from course_lib.kv_cache import StaticCache
from course_lib.paged_cache import PackedPass, PagedCache

BLOCKS = 4 * N


@pytest.fixture
def ids():
    return torch.randint(0, 37, (4, N), generator=torch.Generator().manual_seed(1))  # (B, T)


def scattered_tables(block_size, rows, length=N):
    """Pages in no order at all."""
    free = random.Random(block_size).sample(range(BLOCKS), BLOCKS)
    return [[free.pop() for _ in range(-(-length // block_size))] for _ in range(rows)]


def cache_of(model, block_size):
    """Pages full of old numbers, as after other requests."""
    cache = PagedCache.for_model(model, BLOCKS, block_size)
    cache.pages.normal_(generator=torch.Generator().manual_seed(9)).mul_(50)
    return cache


def together(model, cache, tables, rows, spans, **options):
    """The logits (N, V) of the next positions of several texts in one pass; a span is a start and an end."""
    packed = PackedPass(cache, tables, [start for start, _ in spans], [end - start for start, end in spans])
    ids = torch.cat([row[start:end] for row, (start, end) in zip(rows, spans)])[None]
    return model(ids, kv_cache=packed, position_ids=packed.position_ids, **options)[0]


def read(model, cache, table, ids, start, end):
    """The logits (end - start, V) of one text's next positions."""
    return together(model, cache, [table], [ids], [(start, end)])


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("block_size", [1, 3, 16])
@torch.no_grad()
def test_a_prompt_in_pieces_gives_the_logits_of_one_pass(block_size, family, dtype, ids):
    model = make_model(family, dtype)
    expected = model(ids[:1])[0]
    for sizes in short_splits(N):
        cache, (table,), logits, start = cache_of(model, block_size), scattered_tables(block_size, 1), [], 0
        for size in sizes:
            logits.append(read(model, cache, table, ids[0], start, start + size))
            start += size
        assert (torch.cat(logits) - expected).abs().max() <= PRECISIONS[dtype], sizes


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("block_size", [1, 3, 16])
@torch.no_grad()
def test_rows_of_different_lengths_decode_as_each_alone(block_size, family, dtype, fast, ids):
    model = make_model(family, dtype)
    alone = model(ids)
    if fast:
        speed_up(model)
    cache, tables, past = cache_of(model, block_size), scattered_tables(block_size, 4), [1, 7, 4, 0]
    for table, row, n in zip(tables, ids, past):
        if n:
            read(model, cache, table, row, 0, n)
    while max(past) < N:
        logits = together(model, cache, tables, ids, [(n, n + 1) for n in past])
        expected = torch.stack([row[n] for row, n in zip(alone, past)])
        assert (logits - expected).abs().max() <= PRECISIONS[dtype], past
        past = [n + 1 for n in past]


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("block_size", [1, 3, 16])
@torch.no_grad()
def test_steps_and_pieces_of_prompts_share_a_pass(block_size, family, fast, ids):
    model = make_model(family, torch.float64)
    alone, draw = model(ids), random.Random(block_size)
    if fast:
        speed_up(model)
    for _ in range(5):
        cache, tables, past = cache_of(model, block_size), scattered_tables(block_size, 4), [0] * 4
        while max(past) < N:
            part = [i for i in range(4) if past[i] < N and draw.random() < 0.8] or [past.index(min(past))]
            draw.shuffle(part)
            spans = [(past[i], min(N, past[i] + draw.choice((1, 1, 1, 2, 5)))) for i in part]
            logits = together(model, cache, [tables[i] for i in part], [ids[i] for i in part], spans)
            expected = torch.cat([alone[i, start:end] for i, (start, end) in zip(part, spans)])
            assert (logits - expected).abs().max() <= 1e-10, spans
            for i, (_, end) in zip(part, spans):
                past[i] = end


@torch.no_grad()
def test_a_text_reads_pages_that_another_fills_in_the_same_pass(ids):
    """In any order of the two: all keys of a layer are written before any are read."""
    model, rows = make_model("grouped by three", torch.float64), [ids[0], torch.cat((ids[0, :8], ids[1, 8:]))]
    expected = model(torch.stack(rows))
    for order in ((0, 1), (1, 0)):
        cache, tables, spans = cache_of(model, 4), [[7, 2, 5], [7, 2, 9]], [(0, N), (8, N)]
        logits = together(model, cache, *([some[i] for i in order] for some in (tables, rows, spans)))
        wanted = torch.cat([expected[i, spans[i][0] :] for i in order])
        assert (logits - wanted).abs().max() <= 1e-10


@torch.no_grad()
def test_logits_of_chosen_places_only(ids):
    model, spans = make_model("llama", torch.float64), [(0, 5), (0, 3), (0, 1)]
    whole, some = (together(model, cache_of(model, 4), scattered_tables(4, 3), ids, spans, **options)
                   for options in ({}, {"logits_to_keep": torch.tensor([4, 8])}))
    assert some.shape[0] == 2 and (some - whole[[4, 8]]).abs().max() <= 1e-12


@torch.no_grad()
def test_keys_and_values_are_those_of_a_static_cache(ids):
    model = make_model("llama", torch.float64)
    static, cache, (table,) = StaticCache.for_model(model, N), cache_of(model, 5), scattered_tables(5, 1)
    model(ids[:1], kv_cache=static)
    read(model, cache, table, ids[0], 0, N)
    for layer, (keys, values) in enumerate(static.layers):
        pages = cache.pages[layer][table].flatten(0, 1)[:N].transpose(0, 1)  # (2 Hkv, N, Dh)
        assert pages.equal(torch.cat((keys[0], values[0])))


@torch.no_grad()
def test_nothing_is_written_outside_the_places_of_the_new_tokens(ids):
    model = make_model("llama", torch.float32)
    cache, tables = cache_of(model, 4), scattered_tables(4, 2)
    before = cache.pages.clone()
    together(model, cache, tables, ids, [(2, 3), (9, 10)])
    changed = (cache.pages != before).flatten(3).any(-1).nonzero().tolist()
    assert changed == sorted([layer, table[n // 4], n % 4] for layer in range(2)
                             for table, n in zip(tables, (2, 9)))


@torch.no_grad()
def test_a_copied_page_can_be_written_without_the_other(ids):
    """Copy-on-write: two sequences share five tokens, in a page of eight, and go on differently."""
    model = make_model("grouped by three", torch.float64)
    cache, other = cache_of(model, 8), (ids[1] + 1) % 37
    read(model, cache, [3, 4], ids[0], 0, 5)
    cache.copy_block(3, 7)
    twin = torch.cat((ids[0, :5], other[5:]))
    first = read(model, cache, [3, 4], ids[0], 5, N)
    second = read(model, cache, [7, 8], twin, 5, N)
    assert (first - model(ids[:1])[0, 5:]).abs().max() <= 1e-10
    assert (second - model(twin[None])[0, 5:]).abs().max() <= 1e-10


def test_bytes_are_those_of_all_pages_and_nothing_else():
    model = make_model("grouped by three", torch.float32)
    cache = PagedCache.for_model(model, 10, 4)
    assert cache.pages.shape == (2, 10, 4, 4, 4) and cache.nbytes == 2 * 10 * 4 * 2 * 2 * 4 * 4
    assert not cache.pages.any(), "NaN times 0 is NaN"


def test_memory_comes_with_what_is_written_or_at_once():
    process, config = psutil.Process(), dataclasses.replace(make_model("llama", torch.float32).config, head_dim=64)
    empty = process.memory_info().rss
    cache = PagedCache(config, 4000, 16)
    made = process.memory_info().rss
    cache.claim_memory()
    assert made - empty < 0.1 * cache.nbytes < 0.9 * cache.nbytes < process.memory_info().rss - made
    assert not cache.pages.any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_pages_have_the_type_of_the_weights(dtype):
    cache = PagedCache.for_model(make_model("llama", dtype), 4, 3)
    assert cache.pages.dtype == dtype and not cache.pages.any() and cache.pages.shape[1:3] == (4, 3)


@pytest.mark.parametrize("make, message", [
    (lambda cache: PagedCache(cache.config, 0, 4), "num_blocks = 0"),
    (lambda cache: PagedCache(cache.config, 4, 0), "block_size = 0"),
    (lambda cache: PackedPass(cache, [[1], [2]], [0, 0], [2, 0]), r"new = \[2, 0\] is not allowed: must be at least"),
    (lambda cache: PackedPass(cache, [], [], []), r"new = \[\]"),
])
def test_sizes_that_are_none_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make(PagedCache.for_model(make_model("llama", torch.float32), 4, 4))
