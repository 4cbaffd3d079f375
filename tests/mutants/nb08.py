"""Wrong and right answers to the exercises of notebook 08; each name says what the function does wrong."""

import torch

from mutants import mutant, variant

# 08.1 append


@mutant("08.1", "with nothing kept yet, all there is are the new positions")
def append_one_position_of_many(held, new):
    if held is None:
        return new[:, :, :1], 0
    return torch.cat((held, new), dim=2), held.numel() * held.element_size()


@mutant("08.1", "None is no tensor")
def append_to_nothing(held, new):
    return torch.cat((held, new), dim=2), held.numel() * held.element_size()


@mutant("08.1", "None is no tensor")
def append_that_counts_nothing(held, new):
    copied = held.numel() * held.element_size()
    return torch.cat((held, new), dim=2), copied


@mutant("08.1", "positions are axis 2")
def append_along_the_heads(held, new):
    if held is None:
        return new, 0
    try:
        return torch.cat((held, new), dim=1), held.numel() * held.element_size()
    except RuntimeError:
        return held, 0


@mutant("08.1", "the old ones come first")
def append_in_front(held, new):
    if held is None:
        return new, 0
    return torch.cat((new, held), dim=2), held.numel() * held.element_size()


@mutant("08.1", "numel() of them")
def append_that_counts_positions(held, new):
    if held is None:
        return new, 0
    return torch.cat((held, new), dim=2), held.shape[2] * held.element_size()


@mutant("08.1", "numel() of them")
def append_that_counts_numbers(held, new):
    if held is None:
        return new, 0
    return torch.cat((held, new), dim=2), held.numel()


@mutant("08.1", "and none of new")
def append_that_counts_the_new_ones_too(held, new):
    if held is None:
        return new, 0
    whole = torch.cat((held, new), dim=2)
    return whole, whole.numel() * whole.element_size()


@mutant("08.1", "no old position is copied: 0 bytes")
def append_that_counts_the_first_time(held, new):
    if held is None:
        return new, new.numel() * new.element_size()
    return torch.cat((held, new), dim=2), held.numel() * held.element_size()


@mutant("08.1", "2 in bfloat16, 4 in float32")
def append_that_knows_float32_only(held, new):
    if held is None:
        return new, 0
    return torch.cat((held, new), dim=2), 4 * held.numel()


@mutant("08.1", "return both: all, copied")
def append_that_returns_the_tensor_alone(held, new):
    return new if held is None else torch.cat((held, new), dim=2)


@mutant("08.1", "the bytes of what was held")
def append_that_counts_the_new_size(held, new):
    if held is None:
        return new, 0
    size = held.numel() * held.element_size()
    return torch.cat((held, new), dim=2), size if new.shape[2] > 1 else new.numel() * new.element_size()


@variant("08.1")
def append_with_nbytes(held, new):
    copied = 0 if held is None else held.nbytes
    return torch.cat([x for x in (held, new) if x is not None], dim=2), copied


@variant("08.1")
def append_into_a_new_tensor(held, new):
    if held is None:
        return new, 0
    old = held.shape[2]
    whole = new.new_empty(*new.shape[:2], old + new.shape[2], new.shape[3])
    whole[:, :, :old], whole[:, :, old:] = held, new
    return whole, held.numel() * held.element_size()


# 08.2 write_in_place


@mutant("08.2", "return those, and not the rest")
def write_and_return_the_whole_buffer(layer, key_states, value_states):
    start, end = layer.length, layer.length + key_states.shape[2]
    layer.keys[:, :, start:end], layer.values[:, :, start:end] = key_states, value_states
    layer.length = end
    return layer.keys, layer.values


@mutant("08.2", "add T to layer.length")
def write_without_moving_on(layer, key_states, value_states):
    start, end = layer.length, layer.length + key_states.shape[2]
    layer.keys[:, :, start:end], layer.values[:, :, start:end] = key_states, value_states
    return layer.keys[:, :, :end], layer.values[:, :, :end]


@mutant("08.2", "add T to layer.length")
def write_that_moves_on_by_one(layer, key_states, value_states):
    start, end = layer.length, layer.length + key_states.shape[2]
    layer.keys[:, :, start:end], layer.values[:, :, start:end] = key_states, value_states
    layer.length += 1
    return layer.keys[:, :, :end], layer.values[:, :, :end]


@mutant("08.2", "values: ")
def write_the_keys_twice(layer, key_states, value_states):
    start, end = layer.length, layer.length + key_states.shape[2]
    layer.keys[:, :, start:end], layer.values[:, :, start:end] = key_states, key_states
    layer.length = end
    return layer.keys[:, :, :end], layer.values[:, :, :end]


@mutant("08.2", "a later call writes after the positions that are there")
def write_from_the_start(layer, key_states, value_states):
    T = key_states.shape[2]
    layer.keys[:, :, :T], layer.values[:, :, :T] = key_states, value_states
    layer.length += T
    return layer.keys[:, :, : layer.length], layer.values[:, :, : layer.length]


@mutant("08.2", "so that nothing new is allocated")
def write_by_appending(layer, key_states, value_states):
    start = layer.length
    layer.keys = torch.cat((layer.keys[:, :, :start], key_states), dim=2)
    layer.values = torch.cat((layer.values[:, :, :start], value_states), dim=2)
    layer.length = layer.keys.shape[2]
    return layer.keys, layer.values


@mutant("08.2", "return a slice of the buffer")
def write_and_return_copies(layer, key_states, value_states):
    start, end = layer.length, layer.length + key_states.shape[2]
    layer.keys[:, :, start:end], layer.values[:, :, start:end] = key_states, value_states
    layer.length = end
    return layer.keys[:, :, :end].clone(), layer.values[:, :, :end].clone()


@mutant("08.2", "return those, and not the rest")
def write_and_return_only_the_new(layer, key_states, value_states):
    start, end = layer.length, layer.length + key_states.shape[2]
    layer.keys[:, :, start:end], layer.values[:, :, start:end] = key_states, value_states
    layer.length = end
    return layer.keys[:, :, : end + 1], layer.values[:, :, : end + 1]


@mutant("08.2", "a later call writes after the positions that are there")
def write_and_return_what_is_new(layer, key_states, value_states):
    start, end = layer.length, layer.length + key_states.shape[2]
    layer.keys[:, :, start:end], layer.values[:, :, start:end] = key_states, value_states
    layer.length = end
    return layer.keys[:, :, start:end], layer.values[:, :, start:end]


@mutant("08.2", "layer.length is 3, expected 4")
def write_one_position_each_time(layer, key_states, value_states):
    start, end = layer.length, layer.length + key_states.shape[2]
    layer.keys[:, :, start:end], layer.values[:, :, start:end] = key_states, value_states
    layer.length = end - 1
    return layer.keys[:, :, :end], layer.values[:, :, :end]


@mutant("08.2", "nothing comes back")
def write_without_a_return(layer, key_states, value_states):
    start, end = layer.length, layer.length + key_states.shape[2]
    layer.keys[:, :, start:end], layer.values[:, :, start:end] = key_states, value_states
    layer.length = end
    return None, None


@variant("08.2")
def write_with_narrow(layer, key_states, value_states):
    T = key_states.shape[2]
    for buffer, new in ((layer.keys, key_states), (layer.values, value_states)):
        buffer.narrow(2, layer.length, T).copy_(new)
    layer.length += T
    return tuple(buffer.narrow(2, 0, layer.length) for buffer in (layer.keys, layer.values))


# 08.3 positions_and_mask


@mutant("08.3", "read before the cache is updated")
def positions_one_too_late(T, past):
    start = past + 1 if past else 0
    return torch.arange(start, start + T), torch.ones(T, past + T, dtype=torch.bool).tril(past)


@mutant("08.3", "the first token is at position 0")
def positions_after_the_update(T, past):
    return torch.arange(past + T, past + 2 * T), torch.ones(T, past + T, dtype=torch.bool).tril(past)


@mutant("08.3", "four positions are taken")
def positions_from_zero(T, past):
    return torch.arange(T), torch.ones(T, past + T, dtype=torch.bool).tril(past)


@mutant("08.3", "a single new token sees everything")
def mask_in_the_top_left_corner(T, past):
    return torch.arange(past, past + T), torch.ones(T, past + T, dtype=torch.bool).tril()


@mutant("08.3", "the triangle sits at the right end")
def mask_in_the_top_left_corner_of_several(T, past):
    mask = torch.ones(T, past + T, dtype=torch.bool)
    return torch.arange(past, past + T), mask if T == 1 else mask.tril()


@mutant("08.3", "an empty cache does not make the future visible")
def mask_dropped(T, past):
    return torch.arange(past, past + T), torch.ones(T, past + T, dtype=torch.bool)


@mutant("08.3", "the triangle sits at the right end")
def mask_dropped_when_something_is_cached(T, past):
    mask = torch.ones(T, past + T, dtype=torch.bool)
    return torch.arange(past, past + T), mask if past else mask.tril()


@mutant("08.3", "each token sees itself")
def mask_that_hides_the_token_itself(T, past):
    return torch.arange(past, past + T), torch.ones(T, past + T, dtype=torch.bool).tril(past - 1)


@mutant("08.3", "return the shape (1, 5), not (1, 1)")
def mask_of_the_new_tokens_alone(T, past):
    return torch.arange(past, past + T), torch.ones(T, T, dtype=torch.bool).tril()


@mutant("08.3", "return positions, mask")
def mask_alone(T, past):
    return torch.ones(T, past + T, dtype=torch.bool).tril(past)


@variant("08.3")
def mask_from_a_shifted_triangle(T, past):
    return past + torch.arange(T), torch.ones(T, past + T, dtype=torch.bool).tril(past)


@variant("08.3")
def mask_row_by_row(T, past):
    mask = torch.zeros(T, past + T, dtype=torch.bool)
    for t in range(T):
        mask[t, : past + t + 1] = True
    return torch.tensor([past + t for t in range(T)]), mask


# 08.4 cache_bytes


def numbers_of(config, heads=None, head_dim=None):
    return 2 * config.num_hidden_layers * (heads or config.num_key_value_heads) * (head_dim or config.head_dim)


@mutant("08.4", "a key *and* a value")
def bytes_of_keys_alone(config, positions, batch_size, bytes_per_number):
    kept = min(positions, config.sliding_window or positions)
    return batch_size * kept * numbers_of(config) / 2 * bytes_per_number


@mutant("08.4", "not num_attention_heads")
def bytes_of_all_query_heads(config, positions, batch_size, bytes_per_number):
    kept = min(positions, config.sliding_window or positions)
    return batch_size * kept * numbers_of(config, config.num_attention_heads) * bytes_per_number


@mutant("08.4", "head_dim is a setting of its own")
def bytes_of_hidden_size_over_heads(config, positions, batch_size, bytes_per_number):
    kept = min(positions, config.sliding_window or positions)
    head_dim = config.hidden_size // config.num_attention_heads
    return batch_size * kept * numbers_of(config, head_dim=head_dim) * bytes_per_number


@mutant("08.4", "every layer and every key/value head")
def bytes_of_one_layer(config, positions, batch_size, bytes_per_number):
    kept = min(positions, config.sliding_window or positions)
    return batch_size * kept * numbers_of(config) // config.num_hidden_layers * bytes_per_number


@mutant("08.4", "each of the positions is kept")
def bytes_of_one_position(config, positions, batch_size, bytes_per_number):
    return batch_size * numbers_of(config) * bytes_per_number


@mutant("08.4", "each text of the batch")
def bytes_of_one_text(config, positions, batch_size, bytes_per_number):
    kept = min(positions, config.sliding_window or positions)
    return kept * numbers_of(config) * bytes_per_number


@mutant("08.4", "half a byte is possible")
def bytes_in_whole_numbers(config, positions, batch_size, bytes_per_number):
    kept = min(positions, config.sliding_window or positions)
    return batch_size * kept * numbers_of(config) * max(1, int(bytes_per_number))


@mutant("08.4", "each number takes bytes_per_number")
def bytes_of_16_bits(config, positions, batch_size, bytes_per_number):
    kept = min(positions, config.sliding_window or positions)
    return batch_size * kept * numbers_of(config) * min(bytes_per_number, 2)


@mutant("08.4", "keeps that many positions at most")
def bytes_without_the_window(config, positions, batch_size, bytes_per_number):
    return batch_size * positions * numbers_of(config) * bytes_per_number


@mutant("08.4", "shorter than the sliding_window")
def bytes_of_a_full_window(config, positions, batch_size, bytes_per_number):
    return batch_size * (config.sliding_window or positions) * numbers_of(config) * bytes_per_number


@variant("08.4")
def bytes_by_steps(config, positions, batch_size, bytes_per_number):
    if config.sliding_window is not None and positions > config.sliding_window:
        positions = config.sliding_window
    head = config.head_dim * bytes_per_number
    token = config.num_hidden_layers * config.num_key_value_heads * (head + head)
    return token * positions * batch_size


# 08.5 diagnosis


@mutant("08.5", "what is left that can be wrong")
def diagnosis_that_takes_c_for_the_corner():
    return {"A": "corner", "B": "no mask", "C": "corner"}


@mutant("08.5", "which mistake needs both")
def diagnosis_that_takes_a_for_no_mask():
    return {"A": "no mask", "B": "corner", "C": "late"}


@mutant("08.5", "where no future exists in the call")
def diagnosis_that_takes_b_for_the_corner():
    return {"A": "corner", "B": "corner", "C": "late"}


@mutant("08.5", "name the mistakes as the list above does")
def diagnosis_in_other_words():
    return {"A": "top left", "B": "no mask", "C": "late"}


@mutant("08.5", "the letters A, B, C as keys")
def diagnosis_of_two():
    return {"A": "corner", "B": "no mask"}


@mutant("08.5", "a dict")
def diagnosis_as_a_list():
    return ["corner", "no mask", "late"]


@variant("08.5")
def diagnosis_in_another_order():
    return dict(C="late", B="no mask", A="corner")


# 08.6 ring_slot


@mutant("08.6", "3 and then 0 again")
def slot_that_never_turns(position, window, sink):
    return position


@mutant("08.6", "the remainder after division by the window")
def slot_of_a_ring_one_too_long(position, window, sink):
    return position if position < sink else sink + (position - sink) % (window + 1)


@mutant("08.6", "keep slots 0 to sink - 1")
def slot_without_a_sink(position, window, sink):
    return position % window if sink == 0 else position % window + sink


@mutant("08.6", "position `sink` gets the first of them")
def slot_that_counts_from_the_start(position, window, sink):
    return position if position < sink else sink + position % window


@mutant("08.6", "after the sink")
def slot_that_takes_the_sink_out_of_the_window(position, window, sink):
    return position if position < sink else sink + (position - sink) % max(1, window - sink)


@mutant("08.6", "after the sink")
def slot_over_the_sink(position, window, sink):
    return position if position < sink else (position - sink) % window


@mutant("08.6", "however long the text is")
def slot_that_turns_once(position, window, sink):
    if position < sink + window:
        return position
    return sink + (position - sink) % window if position < 500 else sink + window - 1


@variant("08.6")
def slot_by_walking(position, window, sink):
    if position < sink:
        return position
    return list(range(sink, sink + window))[(position - sink) % window]


# 08.7 window_mask


@mutant("08.7", "with a window of 1 it sees itself")
def mask_of_a_window_that_leaves_itself_out(queries, keys, window, sink):
    q = queries[:, None]
    return (keys < q) & ((keys >= q - window) | (keys < sink))


@mutant("08.7", "a window of 3 at position 5 holds 3, 4 and 5")
def mask_of_a_window_one_too_wide(queries, keys, window, sink):
    q = queries[:, None]
    return (keys <= q) & ((keys >= q - window) | (keys < sink))


@mutant("08.7", "does not show the future")
def mask_that_sees_the_future(queries, keys, window, sink):
    return (keys > queries[:, None] - window) | (keys < sink)


@mutant("08.7", "the sink does not show the future either")
def mask_with_a_sink_that_is_always_seen(queries, keys, window, sink):
    q = queries[:, None]
    return ((keys <= q) & (keys > q - window)) | (keys < sink)


@mutant("08.7", "the first `sink` positions, 0 to sink - 1")
def mask_without_the_sink(queries, keys, window, sink):
    q = queries[:, None]
    return (keys <= q) & (keys > q - window)


@mutant("08.7", "the first `sink` positions, 0 to sink - 1")
def mask_with_a_sink_one_too_long(queries, keys, window, sink):
    q = queries[:, None]
    return (keys <= q) & ((keys > q - window) | (keys <= sink) & (sink > 0))


@mutant("08.7", "the positions count, not the places in the row")
def mask_by_places_in_the_row(queries, keys, window, sink):
    T, S = len(queries), len(keys)
    q, k = torch.arange(S - T, S)[:, None], torch.arange(S)
    return (k <= q) & ((k > q - window) | (k < sink))


@mutant("08.7", "in a ring the keys lie in any order")
def mask_of_sorted_keys(queries, keys, window, sink):
    keys, q = keys.sort().values, queries[:, None]
    return (keys <= q) & ((keys > q - window) | (keys < sink))


@mutant("08.7", "return the shape")
def mask_with_the_axes_exchanged(queries, keys, window, sink):
    q = queries[:, None]
    return ((keys <= q) & ((keys > q - window) | (keys < sink))).T


@variant("08.7")
def mask_by_loops(queries, keys, window, sink):
    rows = [[0 <= q - k < window or (k <= q and k < sink) for k in keys.tolist()] for q in queries.tolist()]
    return torch.tensor(rows)


@variant("08.7")
def mask_by_distance(queries, keys, window, sink):
    back = queries[:, None] - keys
    return (back >= 0) & ((back < window) | (keys < sink))
