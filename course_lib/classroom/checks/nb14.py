"""Checks of notebook 14, Batching and paging.

The oracles are cases by hand, the definitions in closed form, and Python's own `hash` of a tuple.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from course_lib.classroom.broken_servers import MISTAKES
from course_lib.classroom.checks import Exercise
from course_lib.classroom.checks.compare import CheckFailed, expect_diagnosis, expect_equal, show
from course_lib.paging import hash_block

Grown = tuple[list[int], list[int]] | None

# 14.1


def grow(table: list[int], num_tokens: int, free: list[int], block_size: int) -> Grown:
    """A block table long enough for `num_tokens` tokens in all, and the pages that are free then; None: too few are."""
    missing = max(0, -(-num_tokens // block_size) - len(table))
    if missing > len(free):
        return None
    left = len(free) - missing
    return table + free[left:][::-1], free[:left]


def check_grow(attempt: Callable) -> None:
    def expect_table(table: list[int], num_tokens: int, free: list[int], expected: Grown, likely: str,
                     block_size: int = 4) -> None:
        got = attempt(list(table), num_tokens, list(free), block_size)
        if (got is None) != (expected is None):
            raise CheckFailed(show(expected), show(got), f"with table = {table}, num_tokens = {num_tokens}, free = "
                              f"{free}, block_size = {block_size}", likely)
        if got is not None:
            expect_equal(got, expected, likely)

    expect_table([], 3, [9, 8, 7], ([7], [9, 8]), "return the new table and the new list of free pages; a page is "
                                                  "taken from the end of free, as free.pop() does")
    expect_table([7], 4, [9, 8], ([7], [9, 8]), "4 tokens, old ones included, fit into one page of 4 exactly: no "
                                                "further page")
    expect_table([7], 5, [9, 8], ([7, 8], [9]), "the fifth token needs a second page of 4, and no third: num_tokens "
                                                "counts all tokens, not the new ones, and pages are rounded up")
    expect_table([7], 12, [3, 9, 8], ([7, 8, 9], [3]), "the last page of free comes first, then the one before it")
    none = "there are not enough free pages: return None, and take nothing"
    expect_table([], 9, [1, 2], None, none)
    expect_table([6], 13, [1, 2], None, none)
    enough = "the table is long enough already: it stays as it was, and so does free"
    expect_table([7, 3], 6, [], ([7, 3], []), enough)
    expect_table([7, 3, 1], 2, [9], ([7, 3, 1], [9]), enough)
    expect_table([], 8, [2, 1], ([1, 2], []), "the last free page may be taken, too")
    expect_table([5], 6, [0], ([5, 0], []), "0 is the number of a page like any other")
    expect_table([300], 35, [400, 350, 301], ([300, 301, 350], [400]), "block_size is an argument: 35 tokens need 3 "
                                                                       "pages of 16", 16)
    expect_table([], 3, [4, 6, 5], ([5, 6, 4], []), "a page may hold a single token", 1)
    draw = random.Random(0)
    for _ in range(200):
        pages = draw.sample(range(1000), 9)
        have, size, tokens = draw.randrange(5), draw.randint(1, 7), draw.randint(1, 60)
        table, free = pages[:have], pages[have:]
        need = next(n for n in range(61) if n * size >= tokens)
        taken = free[::-1][: max(0, need - have)]
        expected = None if need - have > len(free) else (table + taken, [page for page in free if page not in taken])
        expect_table(table, tokens, free, expected, f"{tokens} tokens need {need} pages of {size}; there are {have} "
                     "in the table", size)


# 14.2


def admit(waiting: Sequence[int], num_running: int, num_free_blocks: int, token_budget: int, *, max_num_seqs: int,
          block_size: int) -> int:
    """How many of those who wait, given by their prompt lengths, may begin in this pass."""
    n = 0
    for length in waiting:
        pages = -(-length // block_size)
        if num_running + n >= max_num_seqs or pages > num_free_blocks or token_budget <= 0:
            break
        n, num_free_blocks, token_budget = n + 1, num_free_blocks - pages, token_budget - length
    return n


def most(waiting: list[int], slots: int, pages: int, budget: int, size: int) -> int:
    """The definition: the longest beginning of the queue that has slots, pages, and budget before its last."""
    return max(n for n in range(len(waiting) + 1)
               if n <= slots and sum((length + size - 1) // size for length in waiting[:n]) <= pages
               and (n == 0 or sum(waiting[: n - 1]) < budget))


def check_admit(attempt: Callable) -> None:
    def expect_begun(waiting: list[int], running: int, pages: int, budget: int, expected: int, likely: str, *,
                     slots: int = 5, size: int = 4) -> None:
        got = attempt(list(waiting), running, pages, budget, max_num_seqs=slots, block_size=size)
        if type(got) is int and got != expected:
            given = (f"waiting = {waiting}, num_running = {running}, num_free_blocks = {pages}, token_budget = "
                     f"{budget}, max_num_seqs = {slots}, block_size = {size}")
            raise CheckFailed(show(expected), show(got), f"with {given}", likely)
        expect_equal(got, expected, likely)

    expect_begun([3, 5, 2], 0, 20, 100, 3, "there is room for all three: return how many may begin")
    expect_begun([], 0, 20, 100, 0, "nobody waits, so nobody begins")
    expect_begun([3, 5, 2, 4], 3, 20, 100, 2, "of 5 slots 3 are taken, so 2 may begin")
    expect_begun([3, 5], 5, 20, 100, 0, "all slots are taken")
    expect_begun([5, 6, 7], 0, 5, 100, 2, "each of them needs 2 pages of 4, rounded up, and takes them from the next "
                                          "one: 5 pages are enough for two")
    expect_begun([8, 4], 0, 3, 100, 2, "8 tokens fit into 2 pages of 4 exactly, and the last free page may be taken")
    expect_begun([3, 40, 3], 0, 6, 100, 1, "the second does not fit, so the third waits, too: nobody overtakes")
    expect_begun([40, 3], 0, 6, 100, 0, "the first does not fit, and nobody overtakes it")
    expect_begun([10, 11, 12], 0, 20, 15, 2, "the first takes 10 of the budget's 15 tokens, the second begins with "
                                             "the 5 that are left, and then none is left for the third")
    expect_begun([10, 5, 1], 0, 20, 15, 2, "the budget is used up to the last token: the third waits")
    expect_begun([3], 0, 9, 0, 0, "without a token of the budget nobody begins")
    expect_begun([50, 3], 0, 30, 16, 1, "a prompt may be longer than the budget, and is read in chunks; the next one "
                                        "waits then")
    expect_begun([16, 17], 0, 3, 40, 2, "block_size is an argument: 16 tokens need 1 page of 16, and 17 need 2",
                 size=16)
    draw = random.Random(0)
    for _ in range(400):
        waiting = [draw.randint(1, 30) for _ in range(draw.randint(1, 6))]
        running, pages, budget, size = draw.randrange(5), draw.randrange(24), draw.randrange(60), draw.randint(1, 8)
        expect_begun(waiting, running, pages, budget, most(waiting, 5 - running, pages, budget, size),
                     "go through the queue from the front; each one takes a slot, its pages and its tokens, and the "
                     "first that lacks one of the three ends it", size=size)


# 14.3


def prefix_hashes(token_ids: Sequence[int], block_size: int) -> list[int]:
    """One hash for each full page, which depends on its tokens and on all before them."""
    hashes, parent = [], 0
    for start in range(0, len(token_ids) - block_size + 1, block_size):
        parent = hash_block(parent, token_ids[start : start + block_size])
        hashes.append(parent)
    return hashes


def check_prefix_hashes(attempt: Callable) -> None:
    def expect_hashes(ids: list[int], size: int, expected: list[int], likely: str) -> None:
        expect_equal(attempt(list(ids), size), expected, likely)

    first = hash((0, 300, 7))
    expect_hashes([300, 7], 2, [first], "one full page: hash_block(0, its tokens), in a list")
    expect_hashes([300, 7, 500], 2, [first], "the last page is not full: it has no hash yet")
    expect_hashes([300], 2, [], "there is no full page: return an empty list")
    expect_hashes([300, 7, 500, 9], 2, [first, hash((first, 500, 9))],
                  "the hash of the page before is the parent of the next one, and the first has the parent 0")
    three = [hash((0, 1, 2, 3))]
    three += [hash((three[0], 4, 5, 6))]
    three += [hash((three[1], 7, 8, 9))]
    expect_hashes([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], 3, three,
                  "the parent of the third page is the second one's hash, which contains the first one's")
    same = [hash((0, 4, 4))]
    same += [hash((same[0], 4, 4))]
    expect_hashes([4, 4, 4, 4], 2, same, "two pages of the same tokens have different hashes: what comes before "
                                         "them differs")
    expect_hashes([8, 6], 1, [hash((0, 8)), hash((hash((0, 8)), 6))], "a page may hold a single token")
    expect_hashes([], 3, [], "without tokens there is no page")
    draw = random.Random(0)
    for _ in range(50):
        ids, size = [draw.randrange(5000) for _ in range(draw.randrange(40))], draw.randint(1, 9)
        expected, parent = [], 0
        for page in zip(*[iter(ids)] * size):
            parent = hash((parent, *page))
            expected.append(parent)
        expect_hashes(ids, size, expected, "a hash for every full page, in the order of the text")


# 14.4


def diagnosis() -> dict[str, str]:
    """The mistake of each server, by its short name."""
    return {"A": "overtaking", "B": "not chained", "C": "leak"}


EVIDENCE = {
    "A": "its texts are right and its pages come back. Who waits longer than with the right server, and who does not?",
    "B": "nobody waits too long and no page is lost. Which text is wrong, and what had the server read before it?",
    "C": "how many pages are in use when nobody is there any more? And what had the requests that left them done?",
}


def check_diagnosis(attempt: Callable) -> None:
    expect_diagnosis(attempt(), diagnosis(), MISTAKES, EVIDENCE)


EXERCISES = (
    Exercise(
        "14.1", "grow a block table", grow, check_grow, minutes=6, hints=(
            "How many pages do num_tokens tokens need, rounded up? How many of them does the table already have?",
            "-(-a // b) rounds up. missing = pages needed - len(table), and at least 0. If that is more than "
            "len(free), return None.",
            "Copy both lists with list(...). Then, missing times: new_table.append(new_free.pop()).",
        )),
    Exercise(
        "14.2", "decide who may begin", admit, check_admit, minutes=9, hints=(
            "Go through waiting from the front, and stop at the first that lacks one of three things: a slot, pages, "
            "or a token of the budget.",
            "Each one that begins takes something away from the next. Count down the free pages by the prompt's pages, "
            "and the budget by its tokens.",
            "In the loop: if num_running + n == max_num_seqs, or pages > num_free_blocks, or token_budget <= 0, then "
            "break. Else add 1 to n and count down both.",
        )),
    Exercise(
        "14.3", "hash a prefix page by page", prefix_hashes, check_prefix_hashes, minutes=5, hints=(
            "A loop over the full pages, with one variable that remembers the hash of the page before.",
            "The first page has the parent 0. Then parent = hash_block(parent, tokens of the page).",
            "for end in range(block_size, len(token_ids) + 1, block_size): the page is token_ids[end - block_size : "
            "end].",
        )),
    Exercise(
        "14.4", "diagnose three servers", diagnosis, check_diagnosis, minutes=8, kind="find the bug",
        difficulty="stretch", hints=(
            "Each of the three experiments has one server that differs from the right one. Mark these three numbers.",
            "For each marked number, cross out the mistakes that could not cause it. A page that stays in use was not "
            "given back. A wrong text needs wrong keys.",
            "Two mistakes could make a request wait: look at who waits longer, and who waits less than with the right "
            "server.",
        )),
)
