"""Attention heads: how a vector is split into them, and how they share keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from course_lib.config import ModelConfig, require
from course_lib.costs import kv_bytes_per_token
from course_lib.display.diagrams.drawing import NORMAL, SMALL, Area, Drawing, text_width

HEADS, SIZE = 2, 2  # of the vectors that are split: H and Dh
TILE, ROW, SPACE = 32, 44, 10  # a number, from one row to the next, and between two groups
START, SPLIT, RESULT = 94, 298, 546  # where tables begin, from left to right

QUERY_PITCH, HEAD = 46, 36  # from one query head to the next, and how wide a head is
HEADS_LEFT, BAR_LEFT, SLICE = 28, 426, 21
PANEL = 150
SHARING = {"MHA": "multi-head", "GQA": "grouped-query", "MQA": "multi-query"}


# How a vector is split

def splitting_heads(tokens: int = 3) -> Drawing:
    """The numbers 0, 1, 2 ... of a few tokens, split into two heads the right way and by a plain view.

    Args:
        tokens: T, two to four; each has a vector of four numbers, two for each head.
    """
    require(2 <= tokens <= 4, "tokens", tokens, "2 to 4")
    result, viewed = split_rows(tokens), viewed_rows(tokens)
    high = ROW * tokens
    drawing = Drawing("Splitting vectors into heads", splitting_described(tokens), height=2 * high + 150)
    upper, lower = 44.0, high + 122.0
    start = (upper + lower) / 2
    rows = [[4 * t + i for i in range(HEADS * SIZE)] for t in range(tokens)]
    for t in range(tokens):
        drawing.text(START - 14, start + ROW * t + 22, f"token {t}", size=SMALL, anchor="end")
    head_names(drawing, START, start, pitch=SIZE * TILE)
    by_token(drawing, START, start, rows)
    by_token(drawing, SPLIT, upper, rows, space=SPACE)
    shape(drawing, START + 2 * TILE, start + high, f"{tokens} × 4")
    shape(drawing, SPLIT + 2 * TILE + SPACE / 2, upper + high, f"{tokens} × 2 × 2")
    for y, heads in ((upper, result), (lower, viewed)):
        head_names(drawing, RESULT, y, pitch=SIZE * TILE + SPACE + 8)
        by_head(drawing, RESULT, y, heads)
        shape(drawing, RESULT + 2 * TILE + SPACE / 2 + 4, y + high, f"2 × {tokens} × 2")
    operations(drawing, start + high / 2 - 6, upper + high / 2 - 6, lower + high / 2 - 6)
    return drawing


def split_rows(tokens: int) -> list[list[list[int]]]:
    """What each head should get, (H, T, Dh) as lists: of every token its own numbers.

    >>> split_rows(3)[0]
    [[0, 1], [4, 5], [8, 9]]
    """
    width = HEADS * SIZE
    return [[[width * t + SIZE * h + d for d in range(SIZE)] for t in range(tokens)] for h in range(HEADS)]


def viewed_rows(tokens: int) -> list[list[list[int]]]:
    """What a view to (H, T, Dh) gives each head: the numbers in the order in which they lie.

    >>> viewed_rows(3)[0]
    [[0, 1], [2, 3], [4, 5]]
    """
    return [[[SIZE * (tokens * h + t) + d for d in range(SIZE)] for t in range(tokens)] for h in range(HEADS)]


def splitting_described(tokens: int) -> str:
    """Both ways in sentences."""
    right, wrong = (" and ".join(f"head {h} has {', '.join(f'{a} {b}' for a, b in rows)}"
                                 for h, rows in enumerate(heads))
                    for heads in (split_rows(tokens), viewed_rows(tokens)))
    return (f"{tokens} tokens of four numbers, 0 to {4 * tokens - 1}; the first two of each belong to head 0 and are "
            f"in full colour, the others to head 1 and are pale. The right way splits each row, then exchanges axes: "
            f"{right}. The wrong way, a plain view to 2 × {tokens} × 2, runs too: {wrong}. Full and pale are mixed.")


def operations(drawing: Drawing, start: float, upper: float, lower: float) -> None:
    """The arrows of the right way above and of the wrong way below, with what they do."""
    left, fork = START + 4 * TILE + 8, START + 4 * TILE + 22
    end = SPLIT + 4 * TILE + SPACE + 8
    drawing.path([(left, start), (fork, start), (fork, upper), (SPLIT - 8, upper)], arrow=True)
    drawing.path([(fork, start), (fork, lower), (RESULT - 10, lower)], arrow=True)
    drawing.arrow((end, upper), (RESULT - 10, upper))
    for x, y, text in (((fork + SPLIT - 8) / 2, upper - 11, "split"),
                       ((end + RESULT - 10) / 2, upper - 11, "exchange"), ((end + RESULT - 10) / 2, upper + 25, "axes"),
                       ((fork + RESULT) / 2, lower - 11, "a plain view"),
                       ((fork + RESULT) / 2, lower + 25, "same shape, wrong numbers")):
        drawing.text(x, y, text, size=SMALL)


def by_token(drawing: Drawing, left: float, top: float, rows: Sequence[Sequence[int]], space: float = 0) -> None:
    """A frame for each token and in it its numbers, those of one head side by side."""
    for t, row in enumerate(rows):
        y = top + ROW * t
        drawing.rect(Area(left - 4, y - 4, left + TILE * len(row) + space + 4, y + TILE + 4), stroke="faint", thick=1.4)
        for i, value in enumerate(row):
            tile(drawing, left + TILE * i + space * (i // SIZE), y, value)


def by_head(drawing: Drawing, left: float, top: float, heads: Sequence[Sequence[Sequence[int]]]) -> None:
    """A frame for each head and in it a row for each token."""
    for h, rows in enumerate(heads):
        x = left + h * (SIZE * TILE + SPACE + 8)
        bottom = top + ROW * len(rows) - ROW + TILE
        drawing.rect(Area(x - 4, top - 4, x + TILE * SIZE + 4, bottom + 4), stroke="faint", thick=1.4)
        for t, row in enumerate(rows):
            for d, value in enumerate(row):
                tile(drawing, x + TILE * d, top + ROW * t, value)


def tile(drawing: Drawing, left: float, top: float, value: int) -> None:
    """A number in the colour of the head that it belongs to."""
    first = value // SIZE % HEADS == 0
    drawing.rect(Area(left + 1, top, left + TILE - 1, top + TILE), fill="query", tint=1 if first else 0.16, radius=4)
    drawing.text(left + TILE / 2, top + TILE / 2 + 6, str(value), size=SMALL, role="paper" if first else "ink")


def head_names(drawing: Drawing, left: float, top: float, *, pitch: float) -> None:
    """The name of each head above its numbers."""
    for h in range(HEADS):
        drawing.text(left + SIZE * TILE / 2 + pitch * h, top - 12, f"head {h}", size=SMALL)


def shape(drawing: Drawing, x: float, bottom: float, text: str) -> None:
    """The shape of a table, beneath it."""
    drawing.text(x, bottom + 14, text, size=SMALL, role="faint")


# How heads share keys and values

def shared_heads(config: ModelConfig, tokens: int, *, bytes_per_element: float = 2) -> Drawing:
    """Query heads with a key/value head each, with as many as the model has, and with one; and the cache of each.

    Args:
        config: of a model with at most eight query heads.
        tokens: positions in the cache.
        bytes_per_element: of a number in the cache.
    """
    heads = config.num_attention_heads
    require(heads <= 8, "num_attention_heads", heads, "at most 8")
    require(tokens > 0, "tokens", tokens, "> 0")
    require(1 < config.num_key_value_heads < heads, "num_key_value_heads", config.num_key_value_heads,
            f"between 1 and {heads}")
    sizes = {count: tokens * kv_bytes_per_token(replace(config, num_key_value_heads=count), bytes_per_element)
             for count in (heads, config.num_key_value_heads, 1)}
    drawing = Drawing("Query heads that share keys and values", sharing_described(heads, sizes, tokens),
                      height=3 * PANEL + 66)
    drawing.text(BAR_LEFT, 34, f"KV cache of {tokens:,} tokens", size=SMALL, role="faint", anchor="start")
    for i, ((count, size), name) in enumerate(zip(sizes.items(), SHARING)):
        panel(drawing, 14 + PANEL * i, name, heads, count)
        cache_bar(drawing, 14 + PANEL * i + 70, count, size, slice_width=8 * SLICE / heads)
    legend(drawing, 3 * PANEL + 24, f"= k and v × {config.num_hidden_layers} layers × {config.head_dim} numbers × "
           f"{bytes_per_element:g} bytes × {tokens:,} tokens", slice_width=8 * SLICE / heads)
    return drawing


def sharing_described(heads: int, sizes: dict[int, float], tokens: int) -> str:
    """The three ways in sentences."""
    each, own, one = (f"{megabytes(size)}" for size in sizes.values())
    shared = list(sizes)[1]
    return (f"{heads} query heads, three times. In multi-head attention each has a key/value head of its own; the KV "
            f"cache of {tokens:,} tokens takes {each}. In grouped-query attention {heads // shared} neighbouring query "
            f"heads share one of {shared} key/value heads; the cache takes {own}. In multi-query attention all share "
            f"one; it takes {one}. Each key/value head takes the same share of the cache.")


def megabytes(size: float) -> str:
    """Bytes as they are written.

    >>> megabytes(2621440)
    '2.6 MB'
    """
    return f"{size / 1e6:.1f} MB"


def panel(drawing: Drawing, y: float, name: str, heads: int, count: int) -> None:
    """Query heads above the key/value heads that they share, a line from each to its own."""
    drawing.text(HEADS_LEFT, y + 20, name, bold=True, anchor="start")
    drawing.text(HEADS_LEFT + text_width(name, NORMAL, bold=True) + 12, y + 20,
                 f"{SHARING[name]}: {count} key/value head{'s' * (count > 1)}", size=SMALL, role="faint",
                 anchor="start")
    groups, top, below = heads // count, y + 34, y + 34 + HEAD + 34
    for h in range(heads):
        x = query_at(h)
        drawing.path([(x, top + HEAD), (query_at(h // groups * groups, groups), below)], stroke="faint", thick=1.8)
        drawing.rect(Area(x - HEAD / 2, top, x + HEAD / 2, top + HEAD), fill="query", tint=0.24, stroke="query")
        drawing.text(x, top + HEAD / 2 + 5, "q", size=SMALL)
    for g in range(count):
        key_and_value(drawing, query_at(g * groups, groups), below)


def query_at(head: int, groups: int = 1) -> float:
    """The middle of a query head, or of several neighbours of which it is the first."""
    return HEADS_LEFT + HEAD / 2 + QUERY_PITCH * (head + (groups - 1) / 2)


def key_and_value(drawing: Drawing, x: float, top: float) -> None:
    """A key/value head: one box, half of it for keys, half of it for values."""
    for i, role in enumerate(("key", "value")):
        left = x - HEAD / 2 + i * HEAD / 2
        drawing.rect(Area(left, top, left + HEAD / 2, top + HEAD), fill=role, tint=0.24, stroke=role, radius=3)
        drawing.text(left + HEAD / 4, top + HEAD / 2 + 6, role[0], size=SMALL)


def cache_bar(drawing: Drawing, y: float, count: int, size: float, *, slice_width: float) -> None:
    """A bar with a slice for each key/value head, and how much memory that is."""
    for g in range(count):
        left = BAR_LEFT + slice_width * g
        drawing.rect(Area(left, y, left + slice_width, y + HEAD), fill="cache", tint=0.4, stroke="cache", radius=0)
    drawing.text(BAR_LEFT + slice_width * count + 10, y + HEAD / 2 + 7, megabytes(size), bold=True, anchor="start")


def legend(drawing: Drawing, y: float, text: str, *, slice_width: float) -> None:
    """What a slice of the bars is."""
    area = Area(HEADS_LEFT, y, HEADS_LEFT + slice_width, y + 26)
    drawing.rect(area, fill="cache", tint=0.4, stroke="cache", radius=0)
    drawing.text(area.right + 10, y + 19, text, size=SMALL, role="faint", anchor="start")
