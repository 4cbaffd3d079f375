"""Answers to the exercises of notebook 14, Batching and paging."""

from course_lib.paging import hash_block


def grow(table, num_tokens, free, block_size):
    pages = -(-num_tokens // block_size)  # rounded up
    missing = max(0, pages - len(table))
    if missing > len(free):
        return None
    new, left = list(table), list(free)
    for _ in range(missing):
        new.append(left.pop())
    return new, left


def admit(waiting, num_running, num_free_blocks, token_budget, *,
          max_num_seqs, block_size):
    n = 0
    for length in waiting:
        pages = -(-length // block_size)
        if num_running + n == max_num_seqs or pages > num_free_blocks:
            break
        if token_budget <= 0:
            break
        n, num_free_blocks = n + 1, num_free_blocks - pages
        token_budget -= length
    return n


def prefix_hashes(token_ids, block_size):
    hashes, parent = [], 0
    for end in range(block_size, len(token_ids) + 1, block_size):
        parent = hash_block(parent, token_ids[end - block_size : end])
        hashes.append(parent)
    return hashes


def diagnosis():
    return {"A": "overtaking", "B": "not chained", "C": "leak"}
