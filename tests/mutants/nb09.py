"""Wrong and right answers to the exercises of notebook 09; each name says what the function does wrong."""

from course_lib.costs import flops_per_token, kv_bytes_per_token, weight_bytes
from mutants import mutant, variant

# 09.1 step_seconds


@mutant("09.1", "not their sum")
def step_that_adds(flops, nbytes, machine):
    return flops / machine.flops_per_s + nbytes / machine.bytes_per_s


@mutant("09.1", "a step that only reads takes nbytes")
def step_that_takes_the_faster(flops, nbytes, machine):
    return min(flops / machine.flops_per_s, nbytes / machine.bytes_per_s)


@mutant("09.1", "a step that only reads takes nbytes")
def step_that_only_computes(flops, nbytes, machine):
    return flops / machine.flops_per_s


@mutant("09.1", "a step that only computes takes flops")
def step_that_only_reads(flops, nbytes, machine):
    return nbytes / machine.bytes_per_s


@mutant("09.1", "a step that only reads takes nbytes")
def step_upside_down(flops, nbytes, machine):
    return max(machine.flops_per_s / max(flops, 1), machine.bytes_per_s / max(nbytes, 1))


@mutant("09.1", "a step that only reads takes nbytes")
def step_in_milliseconds(flops, nbytes, machine):
    return 1000 * max(flops / machine.flops_per_s, nbytes / machine.bytes_per_s)


@mutant("09.1", "a step that only reads takes nbytes")
def step_with_the_rates_exchanged(flops, nbytes, machine):
    return max(flops / machine.bytes_per_s, nbytes / machine.flops_per_s)


@mutant("09.1", "here it is reading")
def step_that_computes_if_it_computes_at_all(flops, nbytes, machine):
    return flops / machine.flops_per_s if flops else nbytes / machine.bytes_per_s


@mutant("09.1", "nothing comes back")
def step_without_return(flops, nbytes, machine):
    max(flops / machine.flops_per_s, nbytes / machine.bytes_per_s)


@variant("09.1")
def step_by_intensity(flops, nbytes, machine):
    balance = machine.flops_per_s / machine.bytes_per_s
    if flops > balance * nbytes:
        return flops / machine.flops_per_s
    return nbytes / machine.bytes_per_s


# 09.2 decode_cost


@mutant("09.2", "all rows share one reading of the weights")
def cost_with_weights_for_each_row(config, context, rows, bytes_per_number):
    one = weight_bytes(config, bytes_per_number) + context * kv_bytes_per_token(config, bytes_per_number)
    return rows * flops_per_token(config, context).total, rows * one


@mutant("09.2", "each has keys and values of its own")
def cost_with_one_cache_for_all(config, context, rows, bytes_per_number):
    nbytes = weight_bytes(config, bytes_per_number) + context * kv_bytes_per_token(config, bytes_per_number)
    return rows * flops_per_token(config, context).total, nbytes


@mutant("09.2", "every row is computed")
def cost_with_the_flops_of_one_row(config, context, rows, bytes_per_number):
    cache = rows * context * kv_bytes_per_token(config, bytes_per_number)
    return flops_per_token(config, context).total, weight_bytes(config, bytes_per_number) + cache


@mutant("09.2", "the row reads all `context` of them")
def cost_of_one_position(config, context, rows, bytes_per_number):
    cache = rows * kv_bytes_per_token(config, bytes_per_number)
    return rows * flops_per_token(config, context).total, weight_bytes(config, bytes_per_number) + cache


@mutant("09.2", "one row reads every weight, and its own keys and values")
def cost_without_the_cache(config, context, rows, bytes_per_number):
    return rows * flops_per_token(config, context).total, weight_bytes(config, bytes_per_number)


@mutant("09.2", "attention's own arithmetic grows with the context")
def cost_with_the_attention_of_one_position(config, context, rows, bytes_per_number):
    cache = rows * context * kv_bytes_per_token(config, bytes_per_number)
    return rows * flops_per_token(config, 1).total, weight_bytes(config, bytes_per_number) + cache


@mutant("09.2", "one row reads every weight")
def cost_in_sixteen_bits(config, context, rows, bytes_per_number):
    cache = rows * context * kv_bytes_per_token(config)
    return rows * flops_per_token(config, context).total, weight_bytes(config) + cache


@mutant("09.2", "one row reads every weight")
def cost_in_bits(config, context, rows, bytes_per_number):
    cache = rows * context * kv_bytes_per_token(config, bytes_per_number)
    return rows * flops_per_token(config, context).total, 8 * (weight_bytes(config, bytes_per_number) + cache)


@mutant("09.2", "return flops, nbytes")
def cost_as_a_list(config, context, rows, bytes_per_number):
    cache = rows * context * kv_bytes_per_token(config, bytes_per_number)
    return [rows * flops_per_token(config, context).total, weight_bytes(config, bytes_per_number) + cache]


@mutant("09.2", "each weight 2, and attention's own")
def cost_without_the_lm_head(config, context, rows, bytes_per_number):
    cache = rows * context * kv_bytes_per_token(config, bytes_per_number)
    return rows * flops_per_token(config, context).dense, weight_bytes(config, bytes_per_number) + cache


@mutant("09.2", ".total is their sum")
def cost_without_total(config, context, rows, bytes_per_number):
    cache = rows * context * kv_bytes_per_token(config, bytes_per_number)
    return rows * flops_per_token(config, context), weight_bytes(config, bytes_per_number) + cache


@mutant("09.2", ".total is their sum")
def cost_in_three_parts(config, context, rows, bytes_per_number):
    cache = rows * context * kv_bytes_per_token(config, bytes_per_number)
    return flops_per_token(config, context), weight_bytes(config, bytes_per_number) + cache


@variant("09.2")
def cost_number_by_number(config, context, rows, bytes_per_number):
    numbers = weight_bytes(config, 1) + rows * context * kv_bytes_per_token(config, 1)
    each = flops_per_token(config, context)
    return rows * (each.dense + each.attention + each.head), numbers * bytes_per_number


# 09.3 critical_batch


@mutant("09.3", "FLOP/s stand above, bytes/s below")
def batch_upside_down(machine, bytes_per_weight):
    return machine.bytes_per_s / machine.flops_per_s * bytes_per_weight / 2


@mutant("09.3", "set both times equal for one weight")
def batch_with_one_flop_a_weight(machine, bytes_per_weight):
    return machine.flops_per_s / machine.bytes_per_s * bytes_per_weight


@mutant("09.3", "takes twice as long to read as one of 2")
def batch_whatever_the_bytes(machine, bytes_per_weight):
    return machine.flops_per_s / machine.bytes_per_s


@mutant("09.3", "takes twice as long to read as one of 2")
def batch_divided_by_the_bytes(machine, bytes_per_weight):
    return machine.flops_per_s / machine.bytes_per_s * 2 / bytes_per_weight


@mutant("09.3", "do not round")
def batch_rounded_up(machine, bytes_per_weight):
    return max(1, round(machine.flops_per_s / machine.bytes_per_s * bytes_per_weight / 2))


@mutant("09.3", "set both times equal for one weight")
def batch_of_bits(machine, bytes_per_weight):
    return machine.flops_per_s / machine.bytes_per_s * 8 * bytes_per_weight / 2


@variant("09.3")
def batch_by_two_times(machine, bytes_per_weight):
    return (bytes_per_weight / machine.bytes_per_s) / (2 / machine.flops_per_s)


# 09.4 diagnosis


@mutant("09.4", "look at A again")
def diagnosis_by_the_rows_alone():
    return {"A": "cache", "B": "cache", "C": "overhead", "D": "weights"}


@mutant("09.4", "look at B again")
def diagnosis_of_compute_twice():
    return {"A": "compute", "B": "compute", "C": "overhead", "D": "weights"}


@mutant("09.4", "look at C again")
def diagnosis_of_weights_twice():
    return {"A": "compute", "B": "cache", "C": "weights", "D": "weights"}


@mutant("09.4", "look at D again")
def diagnosis_of_overhead_twice():
    return {"A": "compute", "B": "cache", "C": "overhead", "D": "overhead"}


@mutant("09.4", "name the limits as the list above does")
def diagnosis_in_other_words():
    return {"A": "compute", "B": "memory", "C": "overhead", "D": "memory"}


@mutant("09.4", "return a dict with the letters A, B, C, D")
def diagnosis_of_three():
    return {"A": "compute", "B": "cache", "C": "overhead"}


@variant("09.4")
def diagnosis_in_another_order():
    return dict(D="weights", C="overhead", B="cache", A="compute")


# 09.5 llama_70b_on_eight


@mutant("09.5", "a single row waits for 141 GB")
def eight_by_arithmetic_alone():
    return {"tokens per second": 8 * 989e12 / 141e9, "first token": 0.0175, "critical batch": 295}


@mutant("09.5", "eight GPUs read eight times as fast")
def eight_that_read_as_one():
    return {"tokens per second": 3.35e12 / 141e9, "first token": 0.0175, "critical batch": 295}


@mutant("09.5", "a weight of 16 bits has 2 bytes")
def eight_with_a_byte_a_weight():
    return {"tokens per second": 26.8e12 / 70.6e9, "first token": 0.0175, "critical batch": 295}


@mutant("09.5", "with sparsity")
def eight_with_sparsity():
    return {"tokens per second": 190, "first token": 2 * 70.6e12 / (8 * 1979e12), "critical batch": 295}


@mutant("09.5", "the larger of the two, not the sum")
def eight_that_add_both_times():
    return {"tokens per second": 190, "first token": 0.0175 + 0.0052, "critical batch": 295}


@mutant("09.5", "the time to read the weights")
def eight_that_only_read_the_prompt():
    return {"tokens per second": 190, "first token": 141.1e9 / 26.8e12, "critical batch": 295}


@mutant("09.5", "in seconds")
def eight_in_milliseconds():
    return {"tokens per second": 190, "first token": 17.5, "critical batch": 295}


@mutant("09.5", "their ratio stays")
def eight_times_the_critical_batch():
    return {"tokens per second": 190, "first token": 0.0175, "critical batch": 8 * 295.2}


@mutant("09.5", "5 % are allowed")
def eight_by_a_guess():
    return {"tokens per second": 100, "first token": 0.0175, "critical batch": 295}


@mutant("09.5", "return a dict with the keys")
def eight_with_other_keys():
    return {"tokens": 190, "ttft": 0.0175, "batch": 295}


@variant("09.5")
def eight_rounded():
    return {"tokens per second": 190, "first token": 0.018, "critical batch": 295}
