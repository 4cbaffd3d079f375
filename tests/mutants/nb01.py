"""Wrong and right answers to the exercises of notebook 01; each name says what the function does wrong."""

import heapq
import itertools
import unicodedata
from collections import Counter, defaultdict

import torch

from mutants import mutant, variant

# 01.1 count_pairs


@mutant("01.1", "the last id included")
def count_pairs_without_the_last(ids):
    counts = {}
    for i in range(len(ids) - 2):
        pair = ids[i], ids[i + 1]
        counts[pair] = counts.get(pair, 0) + 1
    return counts


@mutant("01.1", "ids holds single ids")
def count_pairs_by_list_count(ids):
    return {pair: ids.count(pair) for pair in zip(ids, ids[1:])}


@mutant("01.1", "counts every occurrence")
def count_pairs_once_each(ids):
    return {pair: 1 for pair in zip(ids, ids[1:])}


@mutant("01.1", "the last id is no neighbour of the first")
def count_pairs_around_the_corner(ids):
    return Counter(zip(ids, ids[1:] + ids[:1]))


@mutant("01.1", "(7, 8) is not (8, 7)")
def count_pairs_in_any_order(ids):
    return Counter((min(pair), max(pair)) for pair in zip(ids, ids[1:]))


@mutant("01.1", "overlapping")
def count_pairs_without_overlap(ids):
    counts, i = Counter(), 0
    while i < len(ids) - 1:
        pair = ids[i], ids[i + 1]
        counts[pair] += 1
        i += 2 if ids[i + 1 : i + 3] == list(pair) else 1
    return counts


@mutant("01.1", "joins digits as text")
def count_pairs_by_text(ids):
    keys = {f"{left}{right}": (left, right) for left, right in zip(ids, ids[1:])}
    texts = Counter(f"{left}{right}" for left, right in zip(ids, ids[1:]))
    return {keys[text]: times for text, times in texts.items()}


@mutant("01.1", "every call starts from no counts")
def count_pairs_and_remember(ids, counts={}):  # noqa: B006
    for pair in zip(ids, ids[1:]):
        counts[pair] = counts.get(pair, 0) + 1
    return counts


@mutant("01.1", "IndexError: list index out of range")
def count_pairs_of_something(ids):
    counts, left = Counter(), ids[0]
    for right in ids[1:]:
        counts[left, right] += 1
        left = right
    return counts


@mutant("01.1", "is a `return` missing?")
def count_pairs_for_nobody(ids):
    Counter(zip(ids, ids[1:]))


@mutant("01.1", "no end after")
def count_pairs_for_ever(ids):
    counts, i = Counter(), 0
    while i < len(ids) - 1:
        counts[ids[i], ids[i + 1]] += 1
    return counts


@variant("01.1")
def count_pairs_by_pairwise(ids):
    counts = defaultdict(int)
    for pair in itertools.pairwise(ids):
        counts[pair] += 1
    return counts


# 01.2 merge


@mutant("01.2", "never equals a tuple")
def merge_list_against_tuple(ids, pair, new_id):
    merged, i = [], 0
    while i < len(ids):
        if ids[i : i + 2] == pair:
            merged.append(new_id)
            i += 2
        else:
            merged.append(ids[i])
            i += 1
    return merged


@mutant("01.2", "may not overlap")
def merge_with_overlap(ids, pair, new_id):
    merged = []
    for i, left in enumerate(ids):
        if tuple(ids[i : i + 2]) == pair:
            merged.append(new_id)
        elif not (i and tuple(ids[i - 1 : i + 1]) == pair):
            merged.append(left)
    return merged


@mutant("01.2", "from left to right")
def merge_from_the_right(ids, pair, new_id):
    return variant_by_search(ids[::-1], pair[::-1], new_id)[::-1]


@mutant("01.2", "every occurrence")
def merge_once(ids, pair, new_id):
    for i in range(len(ids) - 1):
        if (ids[i], ids[i + 1]) == pair:
            return ids[:i] + [new_id] + ids[i + 2 :]
    return ids


@mutant("01.2", "the last id is lost")
def merge_without_the_last(ids, pair, new_id):
    merged, i = [], 0
    while i < len(ids) - 1:
        if (ids[i], ids[i + 1]) == pair:
            merged.append(new_id)
            i += 2
        else:
            merged.append(ids[i])
            i += 1
    return merged


@mutant("01.2", "only in this order")
def merge_in_any_order(ids, pair, new_id):
    merged, i = [], 0
    while i < len(ids):
        if sorted(ids[i : i + 2]) == sorted(pair):
            merged.append(new_id)
            i += 2
        else:
            merged.append(ids[i])
            i += 1
    return merged


@mutant("01.2", "build a new one")
def merge_in_place(ids, pair, new_id):
    i = 0
    while i < len(ids) - 1:
        if (ids[i], ids[i + 1]) == pair:
            ids[i : i + 2] = [new_id]
        i += 1
    return ids


@mutant("01.2", "IndexError: list index out of range")
def merge_past_the_end(ids, pair, new_id):
    merged, i = [], 0
    while i < len(ids):
        if ids[i] == pair[0] and ids[i + 1] == pair[1]:
            merged.append(new_id)
            i += 2
        else:
            merged.append(ids[i])
            i += 1
    return merged


@mutant("01.2", "does the loop advance every time?")
def merge_for_ever(ids, pair, new_id):
    merged, i = [], 0
    while i < len(ids):
        if tuple(ids[i : i + 2]) == pair:
            merged.append(new_id)
        else:
            merged.append(ids[i])
            i += 1
    return merged


@mutant("01.2", "expected a list")
def merge_to_a_tuple(ids, pair, new_id):
    return tuple(variant_by_search(ids, pair, new_id))


@variant("01.2")
def variant_by_search(ids, pair, new_id):
    merged = []
    for right in ids:
        merged.append(right)
        if tuple(merged[-2:]) == tuple(pair):
            merged[-2:] = [new_id]
    return merged


# 01.3 encode_piece


@mutant("01.3", "not by the longest match")
def encode_the_longest_match(piece, mergeable_ranks):
    ids = []
    while piece:
        size = max(n for n in range(1, len(piece) + 1) if piece[:n] in mergeable_ranks)
        ids.append(mergeable_ranks[piece[:size]])
        piece = piece[size:]
    return ids


@mutant("01.3", "not the leftmost")
def encode_the_leftmost(piece, mergeable_ranks):
    parts = [bytes([value]) for value in piece]
    i = 0
    while i < len(parts) - 1:
        if parts[i] + parts[i + 1] in mergeable_ranks:
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
            i = 0
        else:
            i += 1
    return [mergeable_ranks[part] for part in parts]


@mutant("01.3", "the left one is joined first")
def encode_the_last_of_equals(piece, mergeable_ranks):
    parts = [bytes([value]) for value in piece]
    while True:
        known = [(mergeable_ranks[parts[i] + parts[i + 1]], -i) for i in range(len(parts) - 1)
                 if parts[i] + parts[i + 1] in mergeable_ranks]
        if not known:
            return [mergeable_ranks[part] for part in parts]
        i = -min(known)[1]
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


@mutant("01.3", "one join is not enough")
def encode_one_join_per_rank(piece, mergeable_ranks):
    parts = [bytes([value]) for value in piece]
    for union, _ in sorted(mergeable_ranks.items(), key=lambda item: item[1]):
        for i in range(len(parts) - 1):
            if parts[i] + parts[i + 1] == union:
                parts[i : i + 2] = [union]
                break
    return [mergeable_ranks[part] for part in parts]


@mutant("01.3", "the rank of a byte is not its value")
def encode_bytes_as_themselves(piece, mergeable_ranks):
    parts = parts_by_rank(piece, mergeable_ranks)
    return [part[0] if len(part) == 1 else mergeable_ranks[part] for part in parts]


@mutant("01.3", "return an integer, not bytes")
def encode_to_parts(piece, mergeable_ranks):
    return parts_by_rank(piece, mergeable_ranks)


@mutant("01.3", "KeyError: b'xy'")
def encode_without_an_end(piece, mergeable_ranks):
    parts = [bytes([value]) for value in piece]
    while len(parts) > 1:
        i = min(range(len(parts) - 1), key=lambda i: mergeable_ranks[parts[i] + parts[i + 1]])
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return [mergeable_ranks[part] for part in parts]


@mutant("01.3", r"KeyError: b'\xc3\xa9'")
def encode_characters(piece, mergeable_ranks):
    parts = [character.encode() for character in piece.decode()]
    return [mergeable_ranks[part] for part in join_by_rank(parts, mergeable_ranks)]


@mutant("01.3", "bytes, not characters")
def encode_ascii_only(piece, mergeable_ranks):
    parts = [part for part in parts_by_rank(piece, mergeable_ranks) if part.isascii()]
    return [mergeable_ranks[part] for part in parts]


@mutant("01.3", "the last pair of neighbours")
def encode_without_the_last_pair(piece, mergeable_ranks):
    parts = parts_by_rank(piece[:-1], mergeable_ranks) + [piece[-1:]]
    return [mergeable_ranks[part] for part in parts]


def parts_by_rank(piece, mergeable_ranks):
    return join_by_rank([bytes([value]) for value in piece], mergeable_ranks)


def join_by_rank(parts, mergeable_ranks):
    while True:
        unions = [left + right for left, right in zip(parts, parts[1:])]
        known = [(mergeable_ranks[union], i) for i, union in enumerate(unions) if union in mergeable_ranks]
        if not known:
            return parts
        i = min(known)[1]
        parts = parts[:i] + [unions[i]] + parts[i + 2 :]


@variant("01.3")
def encode_by_recursion(piece, mergeable_ranks, borders=None):
    borders = list(range(len(piece) + 1)) if borders is None else borders
    unions = [(mergeable_ranks[piece[a:c]], b) for a, b, c in zip(borders, borders[1:], borders[2:])
              if piece[a:c] in mergeable_ranks]
    if not unions:
        return [mergeable_ranks[piece[a:b]] for a, b in zip(borders, borders[1:])]
    return encode_by_recursion(piece, mergeable_ranks, [b for b in borders if b != min(unions)[1]])


@variant("01.3")
def encode_by_a_heap(piece, mergeable_ranks):
    after = {i: i + 1 for i in range(len(piece))}
    heap = [(mergeable_ranks[piece[i : i + 2]], i, i + 2) for i in range(len(piece) - 1)
            if piece[i : i + 2] in mergeable_ranks]
    heapq.heapify(heap)
    while heap:
        _, start, stop = heapq.heappop(heap)
        if start not in after or after.get(after[start]) != stop:
            continue
        del after[after[start]]
        after[start] = stop
        before = [i for i in after if after[i] == start]
        for a, c in [(i, stop) for i in before] + ([(start, after[stop])] if stop in after else []):
            if piece[a:c] in mergeable_ranks:
                heapq.heappush(heap, (mergeable_ranks[piece[a:c]], a, c))
    return [mergeable_ranks[piece[i : after[i]]] for i in sorted(after)]


@mutant("01.3", "ranks may have gaps")
def encode_with_unknown_unions_at_the_size(piece, mergeable_ranks):
    parts = [piece[i : i + 1] for i in range(len(piece))]
    while len(parts) > 1:
        unions = [left + right for left, right in zip(parts, parts[1:])]
        best = min(range(len(unions)), key=lambda i: mergeable_ranks.get(unions[i], len(mergeable_ranks)))
        if unions[best] not in mergeable_ranks:
            break
        parts[best : best + 2] = [unions[best]]
    return [mergeable_ranks[part] for part in parts]


# 01.4 encode_chat_turn


@mutant("01.4", "the turn was forged")
def turn_as_one_template(tokenizer, role, content):
    return tokenizer.encode(f"<|im_start|>{role}\n{content}<|im_end|>\n", allowed_special="all")


@mutant("01.4", "one id each")
def turn_without_control(tokenizer, role, content):
    return tokenizer.encode_ordinary(f"<|im_start|>{role}\n{content}<|im_end|>\n")


@mutant("01.4", "or its text was changed")
def turn_that_deletes(tokenizer, role, content):
    for token in tokenizer.special_tokens:
        content = content.replace(token, "")
    return turn_as_one_template(tokenizer, role, content)


@mutant("01.4", "or its text was changed")
def turn_that_breaks_the_tag(tokenizer, role, content):
    return turn_as_one_template(tokenizer, role, content.replace("<|", "< |"))


@mutant("01.4", "<|endoftext|> inside content is data")
def turn_that_knows_two_tokens(tokenizer, role, content):
    start, end = tokenizer.special_tokens["<|im_start|>"], tokenizer.special_tokens["<|im_end|>"]
    others = set(tokenizer.special_tokens) - {"<|im_start|>", "<|im_end|>"}
    inside = tokenizer.encode(f"{role}\n{content}", allowed_special=others)
    return [start, *inside, end, *tokenizer.encode_ordinary("\n")]


@mutant("01.4", "<|im_end|>, newline")
def turn_without_the_last_newline(tokenizer, role, content):
    start, end = tokenizer.special_tokens["<|im_start|>"], tokenizer.special_tokens["<|im_end|>"]
    return [start, *tokenizer.encode_ordinary(f"{role}\n{content}"), end]


@mutant("01.4", "role, newline, content")
def turn_with_a_space_for_a_newline(tokenizer, role, content):
    start, end = tokenizer.special_tokens["<|im_start|>"], tokenizer.special_tokens["<|im_end|>"]
    return [start, *tokenizer.encode_ordinary(f"{role} {content}"), end, *tokenizer.encode_ordinary("\n")]


@mutant("01.4", "the role is an argument")
def turn_of_the_user(tokenizer, role, content):
    return variant_by_disallowing_nothing(tokenizer, "user", content)


@mutant("01.4", "spaces at the ends")
def turn_that_strips(tokenizer, role, content):
    return variant_by_disallowing_nothing(tokenizer, role, content.strip())


@mutant("01.4", "one stretch of text")
def turn_in_stretches(tokenizer, role, content):
    start, end = tokenizer.special_tokens["<|im_start|>"], tokenizer.special_tokens["<|im_end|>"]
    heading, text, newline = (tokenizer.encode_ordinary(part) for part in (role, content, "\n"))
    return [start, *heading, *newline, *text, end, *newline]


@mutant("01.4", "ValueError")
def turn_that_refuses(tokenizer, role, content):
    special = tokenizer.special_tokens
    inside = tokenizer.encode(f"{role}\n{content}", disallowed_special="all")
    return [special["<|im_start|>"], *inside, special["<|im_end|>"], *tokenizer.encode_ordinary("\n")]


@variant("01.4")
def variant_by_disallowing_nothing(tokenizer, role, content):
    head, tail = ([tokenizer.special_tokens[name]] for name in ("<|im_start|>", "<|im_end|>"))
    inside = tokenizer.encode(role + "\n" + content, allowed_special=set(), disallowed_special=())
    return head + inside + tail + tokenizer.encode("\n")


@variant("01.4")
def variant_by_cutting_the_template(tokenizer, role, content):
    ids = tokenizer.encode("<|im_start|>\n<|im_end|>\n", allowed_special="all")
    return ids[:1] + tokenizer.encode_slowly(f"{role}\n{content}") + ids[2:]


# 01.5 tokens_per_character


@mutant("01.5", "not characters per token")
def price_upside_down(tokenizer, text):
    return len(text) / len(tokenizer.encode(text))


@mutant("01.5", "not a whole number")
def price_in_whole_numbers(tokenizer, text):
    return len(tokenizer.encode(text)) // len(text)


@mutant("01.5", "not by the words")
def price_per_word(tokenizer, text):
    return len(tokenizer.encode(text)) / len(text.split())


@mutant("01.5", "len(text) counts characters")
def price_per_byte(tokenizer, text):
    return len(tokenizer.encode(text)) / len(text.encode())


@mutant("01.5", "no rounding")
def price_rounded(tokenizer, text):
    return round(len(tokenizer.encode(text)) / len(text), 2)


@mutant("01.5", "encode_ordinary, or allow none")
def price_with_control_tokens(tokenizer, text):
    return len(tokenizer.encode(text, allowed_special="all")) / len(text)


@mutant("01.5", "spaces included")
def price_without_spaces(tokenizer, text):
    return len(tokenizer.encode(text)) / len(text.replace(" ", ""))


@mutant("01.5", "expected a number")
def price_of_each(tokenizer, text):
    return [len(tokenizer.encode(character)) for character in text]


@variant("01.5")
def price_by_counting(tokenizer, text):
    return sum(1 for _ in tokenizer.encode_slowly(text)) / sum(1 for _ in text)


# Answers that an earlier check let through, or refused though they were right


@mutant("01.1", "bytes must be in range(0, 256)")
def count_pairs_of_bytes(ids):
    return Counter(itertools.pairwise(bytes(ids)))


@mutant("01.1", "whole numbers of any size")
def count_pairs_by_thousands(ids):
    return {divmod(key, 1000): times for key, times in Counter(a * 1000 + b for a, b in zip(ids, ids[1:])).items()}


@mutant("01.1", "your function changes its argument ids")
def count_pairs_and_use_them_up(ids):
    counts = Counter()
    while len(ids) > 1:
        counts[ids[0], ids[1]] += 1
        del ids[0]
    return counts


@variant("01.1")
def count_pairs_by_groups(ids):
    return {pair: len(list(group)) for pair, group in itertools.groupby(sorted(zip(ids, ids[1:])))}


@mutant("01.2", "bytes must be in range(0, 256)")
def merge_bytes(ids, pair, new_id):
    return list(bytes(ids).replace(bytes(pair), bytes([new_id])))


@mutant("01.2", "not the digits of a text")
def merge_by_text(ids, pair, new_id):
    text = ", ".join(map(str, ids)).replace(f"{pair[0]}, {pair[1]}", str(new_id))
    return [int(part) for part in text.split(", ") if part]


@mutant("01.2", "return a new list also where there is nothing to merge")
def merge_gives_the_list_back(ids, pair, new_id):
    return variant_by_search(ids, pair, new_id) if pair in zip(ids, ids[1:]) else ids


@mutant("01.2", "which can be read only once")
def merge_one_by_one(ids, pair, new_id):
    yield from variant_by_search(ids, pair, new_id)


@variant("01.2")
def merge_by_a_generator(ids, pair, new_id):
    def merged():
        places = iter(range(len(ids)))
        for i in places:
            if ids[i : i + 2] == list(pair):
                next(places)
            yield new_id if ids[i : i + 2] == list(pair) else ids[i]
    return list(merged())


pieces_seen = {}


@mutant("01.3", "the same piece has other ids in another vocabulary")
def encode_remembers_pieces(piece, mergeable_ranks):
    if piece not in pieces_seen:
        pieces_seen[piece] = encode_by_a_heap(piece, mergeable_ranks)
    return list(pieces_seen[piece])


@mutant("01.3", "your function changes its argument mergeable_ranks")
def encode_writes_into_the_table(piece, mergeable_ranks):
    ids = encode_by_a_heap(piece, mergeable_ranks)
    mergeable_ranks[piece] = 0
    return ids


@mutant("01.3", "a single byte has no neighbours")
def encode_needs_two_bytes(piece, mergeable_ranks):
    return encode_by_a_heap(piece, mergeable_ranks) if len(piece) > 1 else []


@mutant("01.3", "however many there are")
def encode_joins_twelve_times(piece, mergeable_ranks):
    parts = [bytes([value]) for value in piece]
    for _ in range(12):
        unions = [(mergeable_ranks.get(a + b, 10**9), i) for i, (a, b) in enumerate(zip(parts, parts[1:]))]
        rank, i = min(unions, default=(10**9, 0))
        if rank < 10**9:
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return [mergeable_ranks[part] for part in parts]


@mutant("01.3", "an unknown one comes after it, at infinity")
def encode_with_an_infinity_of_10_000(piece, mergeable_ranks):
    parts = [bytes([value]) for value in piece]
    while len(parts) > 1:
        rank, i = min((mergeable_ranks.get(a + b, 10**4), i) for i, (a, b) in enumerate(zip(parts, parts[1:])))
        if rank == 10**4:
            break
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return [mergeable_ranks[part] for part in parts]


@mutant("01.3", "which is a rank like any other")
def encode_takes_rank_0_for_none(piece, mergeable_ranks):
    parts = [bytes([value]) for value in piece]
    while known := [(mergeable_ranks[a + b], i) for i, (a, b) in enumerate(zip(parts, parts[1:]))
                    if mergeable_ranks.get(a + b)]:
        i = min(known)[1]
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return [mergeable_ranks[part] for part in parts]


tokenizers_seen = []


@mutant("01.4", "every vocabulary has its own ids")
def turn_of_the_first_tokenizer(tokenizer, role, content):
    tokenizers_seen.append(tokenizer)
    return variant_by_disallowing_nothing(tokenizers_seen[0], role, content)


@mutant("01.4", "newlines at the ends of content")
def turn_without_trailing_newlines(tokenizer, role, content):
    return variant_by_disallowing_nothing(tokenizer, role, content.rstrip("\n"))


@mutant("01.4", "content may be empty")
def turn_of_nothing(tokenizer, role, content):
    return variant_by_disallowing_nothing(tokenizer, role, content) if content else []


@mutant("01.4", "text of any script")
def turn_in_ascii(tokenizer, role, content):
    return variant_by_disallowing_nothing(tokenizer, role, content.encode("ascii", "ignore").decode())


@mutant("01.4", "your function changes its argument tokenizer")
def turn_that_disarms_the_tokenizer(tokenizer, role, content):
    turn = variant_by_disallowing_nothing(tokenizer, role, content)
    tokenizer.special_tokens.pop("<tool_call>", None)
    return turn


prices_seen = {}


@mutant("01.5", "the same text costs more in a smaller vocabulary")
def price_remembered_by_text(tokenizer, text):
    return prices_seen.setdefault(text, price_by_counting(tokenizer, text))


@mutant("01.5", "not a mean over words or pieces")
def price_averaged_over_words(tokenizer, text):
    prices = [price_by_counting(tokenizer, word) for word in text.split(" ")]
    return sum(prices) / len(prices)


@mutant("01.5", "take the text unchanged")
def price_of_the_composed_text(tokenizer, text):
    return price_by_counting(tokenizer, unicodedata.normalize("NFC", text))


@mutant("01.5", "return a plain number")
def price_as_a_tensor(tokenizer, text):
    return torch.tensor(price_by_counting(tokenizer, text))
