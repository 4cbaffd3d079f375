"""Answers to try the checks of notebook 11 on."""

import torch

from mutants import mutant, variant

# 11.1 symmetric_scale


def filled(scale):
    return torch.where(scale == 0, 1.0, scale)


@mutant("11.1", "2^(bits-1) - 1")
def scale_to_a_code_that_does_not_exist(weight, bits):
    return filled(weight.abs().amax(-1, keepdim=True) / 2 ** (bits - 1))


@mutant("11.1", "2^(bits-1) - 1")
def scale_over_all_codes(weight, bits):
    return filled(weight.abs().amax(-1, keepdim=True) / (2**bits - 1))


@mutant("11.1", "2^(bits-1) - 1")
def scale_of_8_bits(weight, bits):
    return filled(weight.abs().amax(-1, keepdim=True) / 127)


@mutant("11.1", "the largest *absolute* value")
def scale_without_abs(weight, bits):
    return filled(weight.amax(-1, keepdim=True) / (2 ** (bits - 1) - 1))


@mutant("11.1", "the largest *absolute* value")
def scale_of_the_range(weight, bits):
    return filled((weight.amax(-1, keepdim=True) - weight.amin(-1, keepdim=True)) / (2 ** (bits - 1) - 1))


@mutant("11.1", "a scale of its own")
def scale_of_everything(weight, bits):
    scale = filled(weight.abs().max() / (2 ** (bits - 1) - 1))
    return scale.expand(*weight.shape[:-1], 1).clone()


@mutant("11.1", "return the shape (1, 1), not (1,)")
def scale_without_keepdim(weight, bits):
    return filled(weight.abs().amax(-1) / (2 ** (bits - 1) - 1))


@mutant("11.1", "return the shape")
def scale_of_columns(weight, bits):
    return filled(weight.abs().amax(0, keepdim=True) / (2 ** (bits - 1) - 1))


@mutant("11.1", "a group of zeros gets the scale 1")
def scale_of_zeros(weight, bits):
    return weight.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)


@mutant("11.1", "tiny weights are not 0")
def scale_with_a_floor(weight, bits):
    scale = weight.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
    return torch.where(scale < 1e-8, 1.0, scale)


@variant("11.1")
def scale_by_the_two_ends(weight, bits):
    largest = torch.maximum(weight.amax(-1, keepdim=True), -weight.amin(-1, keepdim=True))
    largest[largest == 0] = 2 ** (bits - 1) - 1
    return largest / (2 ** (bits - 1) - 1)


# 11.2 quantize_tensor


def ends(bits):
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


@mutant("11.2", "A cast alone cuts off")
def codes_cut_off(weight, scale, bits, *, zero_point=0):
    return (weight / scale + zero_point).clamp(*ends(bits)).to(torch.int8)


@mutant("11.2", "the nearest code")
def codes_rounded_down(weight, scale, bits, *, zero_point=0):
    return torch.floor(weight / scale + zero_point).clamp(*ends(bits)).to(torch.int8)


@mutant("11.2", "clamp before the cast")
def codes_that_wrap(weight, scale, bits, *, zero_point=0):
    codes = torch.round(weight / scale + zero_point).to(torch.int32)
    return codes.to(torch.int8).clamp(*ends(bits))


@mutant("11.2", "what lies beyond gets the last one")
def codes_without_a_clamp(weight, scale, bits, *, zero_point=0):
    return torch.round(weight / scale + zero_point).clamp(-128, 127).to(torch.int8)


@mutant("11.2", "4 bits have the codes -8 to 7")
def codes_without_a_sign(weight, scale, bits, *, zero_point=0):
    return torch.round(weight / scale + zero_point).clamp(0, 2**bits - 1).to(torch.int8)


@mutant("11.2", "4 bits have the codes -8 to 7")
def codes_of_8_bits_only(weight, scale, bits, *, zero_point=0):
    return torch.round(weight / scale + zero_point).clamp(-127, 127).to(torch.int8)


@mutant("11.2", "the range depends on bits")
def codes_of_4_bits_at_least(weight, scale, bits, *, zero_point=0):
    return torch.round(weight / scale + zero_point).clamp(*ends(max(bits, 4))).to(torch.int8)


@mutant("11.2", "return int8, not uint8")
def codes_as_bytes(weight, scale, bits, *, zero_point=0):
    return torch.round(weight / scale + zero_point).clamp(*ends(bits)).to(torch.int32).to(torch.uint8)


@mutant("11.2", "the zero point is added")
def codes_without_a_zero_point(weight, scale, bits, *, zero_point=0):
    return torch.round(weight / scale).clamp(*ends(bits)).to(torch.int8)


@mutant("11.2", "the zero point is added")
def codes_with_the_zero_point_taken_away(weight, scale, bits, *, zero_point=0):
    return torch.round(weight / scale - zero_point).clamp(*ends(bits)).to(torch.int8)


@mutant("11.2", "clamp after the zero point is added")
def codes_clamped_too_early(weight, scale, bits, *, zero_point=0):
    codes = torch.round(weight / scale).clamp(*ends(bits)) + zero_point
    return codes.to(torch.int8)


@mutant("11.2", "the scale of its own row")
def codes_of_one_scale(weight, scale, bits, *, zero_point=0):
    return torch.round(weight / scale.max() + zero_point).clamp(*ends(bits)).to(torch.int8)


@variant("11.2")
def codes_with_min_and_max(weight, scale, bits, *, zero_point=0):
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    return (weight / scale).add(zero_point).round().clip(low, high).char()


# 11.3 bound


@mutant("11.3", "at most half a step")
def bound_of_a_whole_step():
    return 0.1, 0.5, 127 / 7


@mutant("11.3", "at most half a step")
def bound_of_all_codes():
    return 0.7 / 15, 0.5, 127 / 7


@mutant("11.3", "half lies beyond half")
def bound_with_a_quarter():
    return 0.05, 0.25, 127 / 7


@mutant("11.3", "7 in 4 bits and 127 in 8")
def bound_by_sixteen():
    return 0.05, 0.5, 16


@mutant("11.3", "7 in 4 bits and 127 in 8")
def bound_by_two():
    return 0.05, 0.5, 2


@mutant("11.3", "return all three")
def bound_alone():
    return 0.05


@variant("11.3")
def bound_in_decimals():
    return [0.05, 0.5, 18.14]


# 11.4 split_groups


@mutant("11.4", "G neighbours within a row")
def groups_along_the_rows(weight, per):
    if isinstance(per, str):
        return weight.reshape((1, 1, -1) if per == "tensor" else (len(weight), 1, -1))
    return weight.T.reshape(weight.shape[0], -1, per)


@mutant("11.4", "not how many groups there are")
def groups_that_are_per_in_number(weight, per):
    if isinstance(per, str):
        return weight.reshape((1, 1, -1) if per == "tensor" else (len(weight), 1, -1))
    return weight.reshape(len(weight), per, -1) if per != 3 else weight.reshape(len(weight), -1, per)


@mutant("11.4", "(N, K / G, G)")
def groups_counted_and_not_measured(weight, per):
    if isinstance(per, str):
        return weight.reshape((1, 1, -1) if per == "tensor" else (len(weight), 1, -1))
    return weight.reshape(len(weight), per, -1)


@mutant("11.4", "(N, 1, K)")
def groups_of_a_column(weight, per):
    if per == "channel":
        return weight.T.unsqueeze(1)
    return weight.reshape(1, 1, -1) if per == "tensor" else weight.reshape(len(weight), -1, per)


@mutant("11.4", "return the shape (4, 1, 6)")
def groups_of_a_row_without_an_axis(weight, per):
    if per == "channel":
        return weight
    return weight.reshape(1, 1, -1) if per == "tensor" else weight.reshape(len(weight), -1, per)


@mutant("11.4", "return the shape (1, 1, 24)")
def groups_of_the_tensor_as_a_row(weight, per):
    if per == "tensor":
        return weight.reshape(1, -1)
    return weight.reshape(len(weight), -1, weight.shape[1] if per == "channel" else per)


@mutant("11.4", "result[n, g, i] is weight[n, g G + i]")
def groups_that_interleave(weight, per):
    if isinstance(per, str):
        return weight.reshape((1, 1, -1) if per == "tensor" else (len(weight), 1, -1))
    return weight.reshape(len(weight), per, -1).transpose(1, 2).contiguous()


@variant("11.4")
def groups_by_unflatten(weight, per):
    if per == "tensor":
        return weight.flatten()[None, None]
    return weight.unflatten(1, (-1, weight.shape[1] if per == "channel" else per))


# 11.5 asymmetric_scale


def low_and_high(weight):
    return weight.amin(-1, keepdim=True).clamp(max=0), weight.amax(-1, keepdim=True).clamp(min=0)


@mutant("11.5", "2^bits - 1 steps")
def grid_with_a_step_too_many(weight, bits):
    low, high = low_and_high(weight)
    scale = filled((high - low) / 2**bits)
    return scale, -(2 ** (bits - 1)) - torch.round(low / scale)


@mutant("11.5", "2^bits - 1 steps")
def grid_of_half_the_codes(weight, bits):
    low, high = low_and_high(weight)
    scale = filled((high - low) / (2 ** (bits - 1) - 1))
    return scale, -(2 ** (bits - 1)) - torch.round(low / scale)


@mutant("11.5", "low should get the first code")
def grid_with_the_wrong_sign(weight, bits):
    low, high = low_and_high(weight)
    scale = filled((high - low) / (2**bits - 1))
    return scale, 2 ** (bits - 1) + torch.round(low / scale)


@mutant("11.5", "low should get the first code")
def grid_of_codes_without_a_sign(weight, bits):
    low, high = low_and_high(weight)
    scale = filled((high - low) / (2**bits - 1))
    return scale, -torch.round(low / scale)


@mutant("11.5", "a whole number")
def grid_where_zero_has_no_code(weight, bits):
    low, high = low_and_high(weight)
    scale = filled((high - low) / (2**bits - 1))
    return scale, -(2 ** (bits - 1)) - low / scale


@mutant("11.5", "low is at most 0")
def grid_without_zero(weight, bits):
    low, high = weight.amin(-1, keepdim=True), weight.amax(-1, keepdim=True)
    scale = filled((high - low) / (2**bits - 1))
    return scale, -(2 ** (bits - 1)) - torch.round(low / scale)


@mutant("11.5", "high is at least 0")
def grid_without_zero_above(weight, bits):
    low, high = weight.amin(-1, keepdim=True).clamp(max=0), weight.amax(-1, keepdim=True)
    scale = filled((high - low) / (2**bits - 1))
    return scale, -(2 ** (bits - 1)) - torch.round(low / scale)


@mutant("11.5", "a group of zeros gets the scale 1")
def grid_of_zeros(weight, bits):
    low, high = low_and_high(weight)
    scale = (high - low) / (2**bits - 1)
    return scale, torch.nan_to_num(-(2 ** (bits - 1)) - torch.round(low / scale))


@mutant("11.5", "a smallest and a largest weight of its own")
def grid_of_everything(weight, bits):
    low, high = weight.min().clamp(max=0), weight.max().clamp(min=0)
    scale = filled((high - low) / (2**bits - 1)).expand(len(weight), 1)
    return scale, -(2 ** (bits - 1)) - torch.round(low / scale)


@mutant("11.5", "return both")
def grid_without_a_zero_point(weight, bits):
    low, high = low_and_high(weight)
    return filled((high - low) / (2**bits - 1))


@variant("11.5")
def grid_by_the_first_code(weight, bits):
    zero = torch.zeros_like(weight[..., :1])
    both = torch.cat((weight, zero), dim=-1)
    low, high = both.amin(-1, keepdim=True), both.amax(-1, keepdim=True)
    scale = (high - low) / (2**bits - 1)
    scale[scale == 0] = 1
    return scale, torch.round(-low / scale) - 2 ** (bits - 1)


# 11.6 pack_int4


@mutant("11.6", "the first code of a pair goes into the low half")
def packed_the_other_way(codes):
    bits = codes.view(torch.uint8) & 15
    return bits[..., 0::2] << 4 | bits[..., 1::2]


@mutant("11.6", "neighbours share a byte")
def packed_by_halves(codes):
    bits, half = codes.view(torch.uint8) & 15, codes.shape[-1] // 2
    return bits[..., :half] | bits[..., half:] << 4


@mutant("11.6", "must not spill into the high half")
def packed_with_a_flood(codes):
    bits = codes.view(torch.uint8)
    return bits[..., 0::2] | (bits[..., 1::2] & 15) << 4


@mutant("11.6", "the four bits of -2 are 1110")
def packed_without_signs(codes):
    bits = codes.abs().to(torch.uint8)
    return bits[..., 0::2] | bits[..., 1::2] << 4


@mutant("11.6", "1 + 16 * 2")
def packed_with_an_offset(codes):
    bits = (codes + 8).to(torch.uint8)
    return bits[..., 0::2] | bits[..., 1::2] << 4


@mutant("11.6", "return uint8, not int8")
def packed_as_signed(codes):
    return (codes[..., 0::2] & 15) | codes[..., 1::2] << 4


@mutant("11.6", "an axis is missing")
def packed_flat(codes):
    bits = codes.flatten().view(torch.uint8) & 15
    return bits[0::2] | bits[1::2] << 4


@mutant("11.6", "return the shape")
def packed_into_nothing(codes):
    return codes.view(torch.uint8) & 15


@variant("11.6")
def packed_by_arithmetic(codes):
    whole = codes.int() % 16
    return (whole[..., 0::2] + 16 * whole[..., 1::2]).to(torch.uint8)
