"""Answers to the exercises of notebook 01, Tokenizer."""


def count_pairs(ids):
    counts = {}
    for pair in zip(ids, ids[1:]):
        counts[pair] = counts.get(pair, 0) + 1
    return counts


def merge(ids, pair, new_id):
    merged, i = [], 0
    while i < len(ids):
        if tuple(ids[i:i + 2]) == pair:
            merged.append(new_id)
            i += 2
        else:
            merged.append(ids[i])
            i += 1
    return merged


def encode_piece(piece, mergeable_ranks):
    parts = [piece[i:i + 1] for i in range(len(piece))]
    while True:
        unions = [left + right for left, right in zip(parts, parts[1:])]
        known = [union for union in unions if union in mergeable_ranks]
        if not known:
            return [mergeable_ranks[part] for part in parts]
        i = unions.index(min(known, key=mergeable_ranks.get))  # the leftmost of several
        parts[i:i + 2] = [unions[i]]


def encode_chat_turn(tokenizer, role, content):
    start = tokenizer.special_tokens["<|im_start|>"]
    end = tokenizer.special_tokens["<|im_end|>"]
    text = tokenizer.encode_ordinary(f"{role}\n{content}")
    return [start, *text, end, *tokenizer.encode_ordinary("\n")]


def tokens_per_character(tokenizer, text):
    return len(tokenizer.encode_ordinary(text)) / len(text)
