"""Answers to the exercises of notebook 09, Prefill and decode."""

from course_lib.costs import flops_per_token, kv_bytes_per_token, weight_bytes


def step_seconds(flops, nbytes, machine):
    return max(flops / machine.flops_per_s, nbytes / machine.bytes_per_s)


def decode_cost(config, context, rows, bytes_per_number):
    flops = rows * flops_per_token(config, context).total
    cache = rows * context * kv_bytes_per_token(config, bytes_per_number)
    return flops, weight_bytes(config, bytes_per_number) + cache


def critical_batch(machine, bytes_per_weight):
    # rows * 2 / flops_per_s = bytes_per_weight / bytes_per_s
    return machine.flops_per_s / machine.bytes_per_s * bytes_per_weight / 2


def diagnosis():
    return {"A": "compute", "B": "cache", "C": "overhead", "D": "weights"}


def llama_70b_on_eight():
    weights = 70.6e9
    return {
        "tokens per second": 8 * 3.35e12 / (2 * weights),
        "first token": 1000 * 2 * weights / (8 * 989e12),
        "critical batch": 989e12 / 3.35e12 * 2 / 2,
    }
