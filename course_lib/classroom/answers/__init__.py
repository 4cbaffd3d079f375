"""The answers that `solution` prints: one module per notebook, `nb01.py` for notebook 01.

How to write one: a function with the name and the signature of the exercise's stub, and without a
docstring, because the stub has it. It is what a good reader would type into the cell: it does all that the
card asks, edge cases and dtypes included, and nothing more. It uses Python, the packages that the notebook
has imported so far, earlier exercises of the same notebook and what the card names, but nothing else of
`course_lib`. A comment stands only where a line is subtle. At most 12 lines of code, 88 columns, plain
ASCII. `tests/classroom/test_answers.py` reads the notebooks and holds the answers to this.

Answers are found by the name of their function. So no two exercises of a notebook share a name: the second
would take the place of the first, in the notebook as well.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from course_lib.classroom.checks import find

# What to compare an answer with, where the library holds a function or a module that can do more.
LIBRARY = {
    "00.2": "course_lib.generate.stream, which also samples and knows when to stop",
    "00.3": "course_lib.generate.latency, which also names the three numbers",
    "01.1": "course_lib.tokenizer.count_pairs, which can also add to earlier counts",
    "01.4": "course_lib.tokenizer.Tokenizer.apply_chat_template, for whole conversations",
    "02.2": "course_lib.analysis.geometry.nearest, which also puts ties in order",
    "03.1": "course_lib.layers.attention_weights, where query heads may share a key head",
    "03.2": "course_lib.layers.causal_mask, which can also limit how far back one sees",
    "04.1": "course_lib.layers.RMSNorm, a module that holds the weight",
    "04.2": "course_lib.layers.MLP, which also has biases, and a form without a gate",
    "04.3": "course_lib.model.DecoderLayer, which also passes on mask and KV cache",
    "04.4": "course_lib.costs.parameter_count, which also knows GPT-2's family",
    "04.5": "course_lib.analysis.compare_layers.compare_layers, which runs the models",
    "06.2": "course_lib.analysis.surprisal.perplexity, which computes in float64",
    "06.4": "course_lib.analysis.surprisal.pooled_perplexity, whose sum is exact",
    "07.1": "course_lib.sampling.apply_temperature, which also takes one number for all",
    "07.2": "course_lib.sampling.apply_top_k, which does not sort the whole vocabulary",
    "07.3": "course_lib.sampling.apply_top_p, which sorts only as far as p asks for",
    "07.4": "course_lib.sampling.apply_min_p, which needs no softmax",
    "07.5": "course_lib.sampling.apply_penalties, which changes all rows at once",
    "07.6": "course_lib.sampling.sample, which also applies penalties",
    "08.1": "course_lib.kv_cache.DynamicCache, which does it in every layer",
    "08.2": "course_lib.kv_cache.StaticCache, which also says when it is full",
    "08.4": "course_lib.costs.kv_bytes_per_token, of one position",
    "08.6": "course_lib.kv_cache.SlidingWindowCache, which takes chunks, too",
    "09.1": "course_lib.analysis.roofline.bound, which also knows the overhead",
    "09.2": "course_lib.costs.decode_bytes, which leaves out an embedding that is not read",
    "09.3": "course_lib.analysis.roofline.critical_batch",
    "10.1": "course_lib.flash.merge, with names for the three",
    "10.2": "course_lib.flash.flash_attention, for all rows and heads at once",
    "10.3": "course_lib.flash.flash_traffic, and naive_traffic beside it",
    "10.4": "course_lib.flash.partial_attention, for all heads at once",
    "11.4": "course_lib.rounding.split_groups, which refuses a G that does not divide K",
    "11.6": "course_lib.rounding.pack_int4, which refuses codes that need more bits",
    "12.1": "course_lib.speculative.accept, which takes tensors, too",
    "12.2": "course_lib.speculative.residual, which takes fractions, too",
    "12.3": "course_lib.speculative.verify, which looks at all proposals at once",
    "12.4": "course_lib.speculative.expected_tokens",
    "13.1": "course_lib.detokenize.DecodeStream, which also looks up the bytes of each id",
    "13.2": "course_lib.detokenize.DecodeStream.release, a method that keeps what it holds",
    "14.1": "course_lib.paging.BlockManager, which also counts who shares a page",
    "14.2": "course_lib.scheduler.Scheduler.admit, which also finds shared pages",
    "14.3": "course_lib.paging.Prefix, which also keeps the tokens",
    "15.1": "course_lib.analysis.scaling_law.total_flops, from course_lib.costs",
    "15.2": "course_lib.analysis.scaling_fit.objective, for many laws at once",
    "15.3": "course_lib.analysis.scaling_law.ScalingLaw.optimal",
    "15.4": "course_lib.analysis.scaling_law.break_even_tokens",
    "16.1": "course_lib.tool_calls.parse_ids, for which a quoted tag is text",
    "16.2": "course_lib.agent.loop, which also checks arguments and sets deadlines",
    "16.3": "course_lib.grammar.Grammar.mask, which reads what tokens share only once",
    "17.1": "course_lib.analysis.levers.pareto, which refuses columns that there are not",
    "17.2": "course_lib.analysis.customers.score, which also says what a setting breaks",
}


def answer(exercise_id: str) -> Callable[..., Any]:
    """The answer to an exercise, a function of the same name.

    Raises:
        ValueError: there is no such exercise.

    >>> answer("01.2")([1, 2, 3, 1, 2], (1, 2), 9)
    [9, 3, 9]
    """
    exercise = find(exercise_id)
    return getattr(importlib.import_module(f"{__name__}.nb{exercise.notebook}"), exercise.finished.__name__)
