"""Wrong and right answers to the exercises of notebook 14; each name says what the function does wrong."""

from itertools import accumulate

from course_lib.paging import hash_block
from mutants import mutant, variant

# 14.1 grow


@mutant("14.1", "taken from the end of free")
def grow_from_the_front_of_free(table, num_tokens, free, block_size):
    missing = max(0, -(-num_tokens // block_size) - len(table))
    return None if missing > len(free) else (table + free[:missing], free[missing:])


@mutant("14.1", "the last page of free comes first")
def grow_by_a_slice_in_its_order(table, num_tokens, free, block_size):
    missing = max(0, -(-num_tokens // block_size) - len(table))
    left = len(free) - missing
    return None if left < 0 else (table + free[left:], free[:left])


@mutant("14.1", "a page is taken from the end")
def grow_with_pages_rounded_down(table, num_tokens, free, block_size):
    missing = max(0, num_tokens // block_size - len(table))
    left = len(free) - missing
    return None if left < 0 else (table + free[left:][::-1], free[:left])


@mutant("14.1", "fit into one page of 4 exactly")
def grow_by_one_page_too_many(table, num_tokens, free, block_size):
    missing = max(0, num_tokens // block_size + 1 - len(table))
    left = len(free) - missing
    return None if left < 0 else (table + free[left:][::-1], free[:left])


@mutant("14.1", "counts all tokens, not the new ones")
def grow_for_new_tokens(table, num_tokens, free, block_size):
    missing = -(-num_tokens // block_size) - (len(table) > 0 and num_tokens <= block_size)
    left = len(free) - missing
    return None if left < 0 else (table + free[left:][::-1], free[:left])


@mutant("14.1", "there are not enough free pages: return None")
def grow_as_far_as_it_goes(table, num_tokens, free, block_size):
    table, free = list(table), list(free)
    while len(table) * block_size < num_tokens and free:
        table.append(free.pop())
    return table, free


@mutant("14.1", "build a new one, or begin with a copy")
def grow_in_place(table, num_tokens, free, block_size):
    if -(-num_tokens // block_size) - len(table) > len(free):
        return None
    while len(table) * block_size < num_tokens:
        table.append(free.pop())
    return table, free


@mutant("14.1", "the table is long enough already")
def grow_that_gives_up_without_free_pages(table, num_tokens, free, block_size):
    missing = max(0, -(-num_tokens // block_size) - len(table))
    if not free or missing > len(free):
        return None
    left = len(free) - missing
    return table + free[left:][::-1], free[:left]


@mutant("14.1", "the table is long enough already")
def grow_of_a_negative_number_of_pages(table, num_tokens, free, block_size):
    missing = -(-num_tokens // block_size) - len(table)
    if missing > len(free):
        return None
    return table[: len(table) + min(0, missing)] + free[len(free) - missing:][::-1], free[: len(free) - missing]


@mutant("14.1", "fit into one page of 4 exactly")
def grow_with_a_slice_from_minus_zero(table, num_tokens, free, block_size):
    missing = max(0, -(-num_tokens // block_size) - len(table))
    return None if missing > len(free) else (table + free[-missing:][::-1], free[:-missing])


@mutant("14.1", "the last free page may be taken")
def grow_that_keeps_a_page_in_reserve(table, num_tokens, free, block_size):
    missing = max(0, -(-num_tokens // block_size) - len(table))
    if missing and missing >= len(free):
        return None
    left = len(free) - missing
    return table + free[left:][::-1], free[:left]


@mutant("14.1", "block_size is an argument")
def grow_by_pages_of_four(table, num_tokens, free, block_size):
    missing = max(0, -(-num_tokens // 4) - len(table))
    left = len(free) - missing
    return None if left < 0 else (table + free[left:][::-1], free[:left])


@mutant("14.1", "0 is the number of a page like any other")
def grow_without_page_zero(table, num_tokens, free, block_size):
    table, free = list(table), list(free)
    while len(table) * block_size < num_tokens:
        page = free.pop() if free else None
        if not page:
            return None
        table.append(page)
    return table, free


@variant("14.1")
def grow_in_a_loop(table, num_tokens, free, block_size):
    table, free = list(table), list(free)
    while len(table) * block_size < num_tokens:
        if not free:
            return None
        table.append(free.pop())
    return table, free


# 14.2 admit


def pages_of(length, block_size):
    return (length + block_size - 1) // block_size


@mutant("14.2", "nobody overtakes")
def admit_with_overtaking(waiting, num_running, num_free_blocks, token_budget, *, max_num_seqs, block_size):
    n = 0
    for length in waiting:
        pages = pages_of(length, block_size)
        if num_running + n < max_num_seqs and pages <= num_free_blocks and token_budget > 0:
            n, num_free_blocks, token_budget = n + 1, num_free_blocks - pages, token_budget - length
    return n


@mutant("14.2", "takes them from the next one")
def admit_without_counting_down_pages(waiting, num_running, num_free_blocks, token_budget, *, max_num_seqs,
                                      block_size):
    n = 0
    for length in waiting:
        if num_running + n >= max_num_seqs or pages_of(length, block_size) > num_free_blocks or token_budget <= 0:
            break
        n, token_budget = n + 1, token_budget - length
    return n


@mutant("14.2", "none is left for the third")
def admit_without_counting_down_the_budget(waiting, num_running, num_free_blocks, token_budget, *, max_num_seqs,
                                           block_size):
    n = 0
    for length in waiting:
        pages = pages_of(length, block_size)
        if num_running + n >= max_num_seqs or pages > num_free_blocks or token_budget <= 0:
            break
        n, num_free_blocks = n + 1, num_free_blocks - pages
    return n


@mutant("14.2", "of 5 slots 3 are taken")
def admit_without_counting_slots(waiting, num_running, num_free_blocks, token_budget, *, max_num_seqs, block_size):
    n = 0
    for length in waiting:
        pages = pages_of(length, block_size)
        if num_running >= max_num_seqs or pages > num_free_blocks or token_budget <= 0:
            break
        n, num_free_blocks, token_budget = n + 1, num_free_blocks - pages, token_budget - length
    return n


@mutant("14.2", "of 5 slots 3 are taken")
def admit_of_one_too_many(waiting, num_running, num_free_blocks, token_budget, *, max_num_seqs, block_size):
    n = 0
    for length in waiting:
        pages = pages_of(length, block_size)
        if num_running + n > max_num_seqs or pages > num_free_blocks or token_budget <= 0:
            break
        n, num_free_blocks, token_budget = n + 1, num_free_blocks - pages, token_budget - length
    return n


@mutant("14.2", "begins with the 5 that are left")
def admit_of_whole_prompts_in_the_budget(waiting, num_running, num_free_blocks, token_budget, *, max_num_seqs,
                                         block_size):
    n = 0
    for length in waiting:
        pages = pages_of(length, block_size)
        if num_running + n >= max_num_seqs or pages > num_free_blocks or length > token_budget:
            break
        n, num_free_blocks, token_budget = n + 1, num_free_blocks - pages, token_budget - length
    return n


@mutant("14.2", "used up to the last token")
def admit_with_a_budget_of_zero(waiting, num_running, num_free_blocks, token_budget, *, max_num_seqs, block_size):
    n = 0
    for length in waiting:
        pages = pages_of(length, block_size)
        if num_running + n >= max_num_seqs or pages > num_free_blocks or token_budget < 0:
            break
        n, num_free_blocks, token_budget = n + 1, num_free_blocks - pages, token_budget - length
    return n


@mutant("14.2", "none is left for the third")
def admit_with_a_budget_below_zero(waiting, num_running, num_free_blocks, token_budget, *, max_num_seqs, block_size):
    n = 0
    for length in waiting:
        pages = pages_of(length, block_size)
        if num_running + n >= max_num_seqs or pages > num_free_blocks or not token_budget:
            break
        n, num_free_blocks, token_budget = n + 1, num_free_blocks - pages, token_budget - length
    return n


@mutant("14.2", "rounded up")
def admit_with_pages_rounded_down(waiting, num_running, num_free_blocks, token_budget, *, max_num_seqs, block_size):
    n = 0
    for length in waiting:
        pages = length // block_size
        if num_running + n >= max_num_seqs or pages > num_free_blocks or token_budget <= 0:
            break
        n, num_free_blocks, token_budget = n + 1, num_free_blocks - pages, token_budget - length
    return n


@mutant("14.2", "8 tokens fit into 2 pages of 4 exactly")
def admit_with_a_page_for_the_answer(waiting, num_running, num_free_blocks, token_budget, *, max_num_seqs, block_size):
    n = 0
    for length in waiting:
        pages = length // block_size + 1
        if num_running + n >= max_num_seqs or pages > num_free_blocks or token_budget <= 0:
            break
        n, num_free_blocks, token_budget = n + 1, num_free_blocks - pages, token_budget - length
    return n


@mutant("14.2", "the last free page may be taken")
def admit_that_keeps_a_page(waiting, num_running, num_free_blocks, token_budget, *, max_num_seqs, block_size):
    n = 0
    for length in waiting:
        pages = pages_of(length, block_size)
        if num_running + n >= max_num_seqs or pages >= num_free_blocks or token_budget <= 0:
            break
        n, num_free_blocks, token_budget = n + 1, num_free_blocks - pages, token_budget - length
    return n


@mutant("14.2", "return how many may begin")
def admit_of_the_lengths(waiting, num_running, num_free_blocks, token_budget, *, max_num_seqs, block_size):
    begun = []
    for length in waiting:
        pages = pages_of(length, block_size)
        if num_running + len(begun) >= max_num_seqs or pages > num_free_blocks or token_budget <= 0:
            break
        begun.append(length)
        num_free_blocks, token_budget = num_free_blocks - pages, token_budget - length
    return sum(begun)


@mutant("14.2", "build a new one, or begin with a copy")
def admit_that_takes_them_out(waiting, num_running, num_free_blocks, token_budget, *, max_num_seqs, block_size):
    n = 0
    while waiting and num_running + n < max_num_seqs and token_budget > 0:
        pages = pages_of(waiting[0], block_size)
        if pages > num_free_blocks:
            break
        token_budget -= waiting.pop(0)
        n, num_free_blocks = n + 1, num_free_blocks - pages
    return n


@variant("14.2")
def admit_by_three_counts(waiting, num_running, num_free_blocks, token_budget, *, max_num_seqs, block_size):
    pages = accumulate((length + block_size - 1) // block_size for length in waiting)
    tokens = accumulate([0, *waiting])
    return min(len(waiting), max_num_seqs - num_running, sum(p <= num_free_blocks for p in pages),
               sum(t < token_budget for t in tokens))


# 14.3 prefix_hashes


@mutant("14.3", "the hash of the page before is the parent")
def prefix_hashes_of_pages_alone(token_ids, block_size):
    return [hash_block(0, token_ids[i : i + block_size])
            for i in range(0, len(token_ids) - block_size + 1, block_size)]


@mutant("14.3", "the last page is not full")
def prefix_hashes_with_the_last_page(token_ids, block_size):
    hashes, parent = [], 0
    for i in range(0, len(token_ids), block_size):
        parent = hash_block(parent, token_ids[i : i + block_size])
        hashes.append(parent)
    return hashes


@mutant("14.3", "one full page")
def prefix_hashes_without_the_last_full_page(token_ids, block_size):
    hashes, parent = [], 0
    for i in range(0, len(token_ids) - block_size, block_size):
        parent = hash_block(parent, token_ids[i : i + block_size])
        hashes.append(parent)
    return hashes


@mutant("14.3", "the hash of the page before is the parent")
def prefix_hashes_of_all_tokens_so_far(token_ids, block_size):
    return [hash_block(0, token_ids[:end]) for end in range(block_size, len(token_ids) + 1, block_size)]


@mutant("14.3", "the parent of the third page is the second one's hash")
def prefix_hashes_with_the_first_page_as_parent(token_ids, block_size):
    hashes = []
    for i in range(0, len(token_ids) - block_size + 1, block_size):
        hashes.append(hash_block(hashes[0] if hashes else 0, token_ids[i : i + block_size]))
    return hashes


@mutant("14.3", "hash_block(0, its tokens)")
def prefix_hashes_that_begin_with_one(token_ids, block_size):
    hashes, parent = [], 1
    for i in range(0, len(token_ids) - block_size + 1, block_size):
        parent = hash_block(parent, token_ids[i : i + block_size])
        hashes.append(parent)
    return hashes


@mutant("14.3", "return an empty list")
def prefix_hashes_of_the_last_page_only(token_ids, block_size):
    parent = 0
    for i in range(0, len(token_ids) - block_size + 1, block_size):
        parent = hash_block(parent, token_ids[i : i + block_size])
    return [parent]


@mutant("14.3", "the hash of the page before is the parent")
def prefix_hashes_of_overlapping_pages(token_ids, block_size):
    hashes, parent = [], 0
    for i in range(0, len(token_ids) - block_size + 1, block_size):
        parent = hash_block(parent, token_ids[max(0, i - 1) : i + block_size])
        hashes.append(parent)
    return hashes


@variant("14.3")
def prefix_hashes_with_zip(token_ids, block_size):
    pages = zip(*[iter(token_ids)] * block_size, strict=False)
    return list(accumulate(pages, hash_block, initial=0))[1:]


# 14.4 diagnosis


@mutant("14.4", "look at A again")
def diagnosis_of_a_slow_server(_=None):
    return {"A": "static", "B": "not chained", "C": "leak"}


@mutant("14.4", "look at B again")
def diagnosis_of_pages_found_too_early(_=None):
    return {"A": "overtaking", "B": "too early", "C": "leak"}


@mutant("14.4", "look at C again")
def diagnosis_of_reserved_pages(_=None):
    return {"A": "overtaking", "B": "not chained", "C": "reserved"}


@mutant("14.4", "look at A again")
def diagnosis_of_a_wrong_victim(_=None):
    return {"A": "wrong victim", "B": "not chained", "C": "leak"}


@mutant("14.4", "as the list above does")
def diagnosis_in_own_words(_=None):
    return {"A": "overtaking", "B": "no parent hash", "C": "leak"}


@mutant("14.4", "with the letters A, B, C as keys")
def diagnosis_of_two(_=None):
    return {"A": "overtaking", "B": "not chained"}


@variant("14.4")
def diagnosis_from_a_list():
    return dict(zip("ABC", ["overtaking", "not chained", "leak"]))
