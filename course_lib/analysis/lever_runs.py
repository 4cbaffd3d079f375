"""How one setting of the levers is run: the same questions, asked one after another or all at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property, partial
from itertools import pairwise
from statistics import fmean, median
from typing import NamedTuple

from torch import nn

from course_lib.analysis.acceptance import draft_for, other_text
from course_lib.analysis.lever_settings import Setting
from course_lib.analysis.machine_speed import now
from course_lib.analysis.quantization import (
    Quality,
    cached_loss,
    first_questions,
    in_bfloat16,
    loss,
    right_answers,
    story_ids,
)
from course_lib.batch import generate_batch
from course_lib.checkpoint import LanguageModel, load
from course_lib.config import ModelConfig, SamplingParams
from course_lib.drafts import DraftModel, NGramDraft
from course_lib.engine import Engine
from course_lib.fast_layer import packed_weights
from course_lib.generate import Draft, Step, decode_steps
from course_lib.kv_cache import StaticCache
from course_lib.quantize import quantize, stored_bytes
from course_lib.quantized_cache import QuantizedCache
from course_lib.training.corpus import Writer
from course_lib.training.questions import SEED, Question, user

ALONE = 3  # questions that one reader asks
NEW_TOKENS = 24  # of an answer at most
QUESTIONS = 24  # of each kind, for the shares of right answers
COUNTED = 1_000_000  # tokens of text, for the draft by counts
SHARED_EXCHANGES = 4  # that every prompt begins with: an example of what answers should be like


class Timing(NamedTuple):
    """New tokens a second in all; a reader's time to the first token, and between tokens, both as medians."""

    tokens_per_s: float
    ttft_s: float
    gap_s: float


def prompts(lm: LanguageModel, n: int, seed: int = SEED) -> list[list[int]]:
    """The ids of n questions, each after the same few exchanges; all different."""
    writer = Writer(seed)
    before = [message for _ in range(SHARED_EXCHANGES) for message in writer.encyclopedia_exchange(())]
    asked: dict[str, None] = {}
    while len(asked) < n:
        asked[writer.encyclopedia_exchange(())[0]["content"]] = None
    if lm.tokenizer.chat_template:
        return [lm.tokenizer.apply_chat_template(before + user(text), add_generation_prompt=True) for text in asked]
    start = "\n".join(message["content"] for message in before)
    return [lm.tokenizer.encode_prompt(f"{start}\n{text}\n") for text in asked]


class Bench:
    """Runs settings of one model; models, drafts and qualities are made once and kept.

    Args:
        lm: in float32.
        questions: of each kind, for the shares of right answers.
    """

    def __init__(self, lm: LanguageModel, *, questions: int = QUESTIONS) -> None:
        self.lm, self.n = lm, questions
        self.models: dict[tuple[str, bool], LanguageModel] = {("float32", False): lm}
        self.qualities: dict[tuple[str, str, SamplingParams], Quality] = {}
        self.prompts = prompts(lm, 1)

    def model(self, setting: Setting) -> LanguageModel:
        """The model in the precision of a setting."""
        key = (setting.precision, setting.compiled)
        if key not in self.models:
            make: dict[str, Callable[[], LanguageModel]] = {
                "float32": lambda: load(self.lm.name, compile=True),
                "bfloat16": lambda: replace(self.lm, model=in_bfloat16(self.lm.model)),
                "int8": lambda: quantize(self.lm),
                "int4": lambda: quantize(self.lm, bits=4, group_size=group_size(self.lm.config))}
            self.models[key] = make[setting.precision]()
        return self.models[key]

    @cached_property
    def drafts(self) -> dict[str, Draft]:
        """What proposes, by its name."""
        counts = NGramDraft(other_text(self.lm.tokenizer, COUNTED), num_speculative_tokens=12)
        return {"pocket-draft": DraftModel(draft_for(self.lm), 3), "counts": counts}

    def asked(self, n: int) -> list[list[int]]:
        """The prompts of n questions, after one that only warms up."""
        if len(self.prompts) <= n:
            self.prompts = prompts(self.lm, n + 1)
        return self.prompts[1 : n + 1]

    def time(self, setting: Setting) -> Timing:
        """Ask the questions once: `ALONE` of them, or `max_num_seqs` if that is more."""
        asked = self.asked(max(ALONE, setting.max_num_seqs))
        return self.in_engine(setting, asked) if setting.in_engine else self.one_by_one(setting, asked)

    def one_by_one(self, setting: Setting, asked: Sequence[Sequence[int]]) -> Timing:
        """One reader, who asks the next question when the last is answered."""
        lm, params = self.model(setting), replace(setting.params, max_tokens=NEW_TOKENS)
        run = steps_of(setting, self.drafts if setting.draft != "none" else {})
        with kept_copies(setting, lm.model):
            list(run(lm, self.prompts[0], replace(params, max_tokens=2)))  # warms up
            answers = [laps(run(lm, ids, params)) for ids in asked]
        return Timing(sum(map(len, answers)) / sum(map(sum, answers)), median(seconds[0] for seconds in answers),
                      median(fmean(seconds[1:]) for seconds in answers if len(seconds) > 1))

    def in_engine(self, setting: Setting, asked: Sequence[Sequence[int]]) -> Timing:
        """As many readers as the setting lets in, who ask at the same moment; then the next, until all are served."""
        engine = self.engine(setting)
        engine.add_request("warm", self.prompts[0], replace(setting.params, max_tokens=2))
        while engine.has_unfinished_requests():
            engine.step()
        seconds, came = 0.0, []
        for start in range(0, len(asked), setting.max_num_seqs):
            group, started = asked[start : start + setting.max_num_seqs], now()
            times: dict[str, list[float]] = {str(i): [] for i in range(len(group))}
            for name, ids in zip(times, group):
                engine.add_request(name, ids, replace(setting.params, max_tokens=NEW_TOKENS))
            while engine.has_unfinished_requests():
                for output in engine.step():
                    output.result()
                    times[output.request_id].append(now() - started)
            seconds += now() - started
            came += times.values()
        gaps = [(times[-1] - times[0]) / (len(times) - 1) for times in came if len(times) > 1]
        return Timing(sum(map(len, came)) / seconds, median(times[0] for times in came), median(gaps))

    def engine(self, setting: Setting) -> Engine:
        """An engine for a setting, with pages for `max_num_seqs` full contexts and nothing in its index."""
        return Engine(self.model(setting), max_num_seqs=setting.max_num_seqs,
                      num_blocks=setting.max_num_seqs * -(-self.lm.config.max_position_embeddings // 16),
                      enable_prefix_caching=setting.enable_prefix_caching)

    def held_bytes(self, setting: Setting) -> tuple[int, int]:
        """Of the weights, with a draft's and packed copies, and of the cache for `max_num_seqs` full contexts."""
        model, context = self.model(setting).model, self.lm.config.max_position_embeddings
        if setting.in_engine:
            engine = self.engine(setting)
            return stored_bytes(model) + copied_bytes(model), engine.cache.nbytes
        make = QuantizedCache if setting.kv_cache_dtype == "int8" else StaticCache
        weights, cache = stored_bytes(model), make.for_model(model, context).nbytes
        with kept_copies(setting, model):
            weights += copied_bytes(model)
        if setting.draft == "pocket-draft":
            draft = self.drafts[setting.draft].lm.model
            weights += stored_bytes(draft)
            cache += StaticCache.for_model(draft, min(context, draft.config.max_position_embeddings)).nbytes
        elif setting.draft == "counts":
            weights += sum(part.nbytes for table in self.drafts[setting.draft].tables for part in table)
        return weights, cache

    def quality(self, setting: Setting) -> Quality:
        """Perplexity and right answers, once for settings that compute the same."""
        if setting.numerics not in self.qualities:
            lm, rounded = self.model(setting), setting.kv_cache_dtype == "int8"
            ids = story_ids(lm, rows=8)
            shares = [fmean(self.right(lm, setting, first_questions(kind, self.n)))
                      for kind in ("capitals", "calculator")]
            self.qualities[setting.numerics] = Quality(math.exp((cached_loss if rounded else loss)(lm, ids)), *shares)
        return self.qualities[setting.numerics]

    def right(self, lm: LanguageModel, setting: Setting, questions: Sequence[Question]) -> list[bool]:
        """Whether the answer to each question is right, chosen as the setting says."""
        if setting.kv_cache_dtype == "int8":
            return right_answers(lm, questions, new_cache=QuantizedCache.for_model)
        if not setting.sampling:
            return right_answers(lm, questions)
        return sampled_answers(lm, questions, setting.params)


def group_size(config: ModelConfig) -> int:
    """Weights that share a scale in int4: 32, or what of it divides the inputs of every matrix."""
    return math.gcd(32, config.hidden_size, config.intermediate_size, config.num_attention_heads * config.head_dim)


def steps_of(setting: Setting, drafts: dict[str, Draft]) -> Callable[..., Iterator[Step]]:
    """What writes for one reader."""
    if setting.draft != "none":
        return drafts[setting.draft].decode_steps
    rounded = setting.kv_cache_dtype == "int8"
    return partial(decode_steps, new_cache=QuantizedCache.for_model) if rounded else decode_steps


def laps(steps: Iterator[Step]) -> list[float]:
    """Seconds until each step, from the one before."""
    times = [now(), *(now() for _ in steps)]
    return [later - earlier for earlier, later in pairwise(times)]


def kept_copies(setting: Setting, model: nn.Module) -> AbstractContextManager:
    """Where a draft is checked, the weights are packed for several rows."""
    return packed_weights(model) if setting.draft != "none" else nullcontext()


def copied_bytes(model: nn.Module) -> int:
    """Of the packed copies that a model holds now."""
    parts = [part for module in model.modules() for part in (module, *vars(module).values())]
    packed = {id(part.packed): part.packed for part in parts if getattr(part, "packed", None) is not None}
    return sum(one.blocks.nbytes for one in packed.values())


def sampled_answers(lm: LanguageModel, questions: Sequence[Question], params: SamplingParams) -> list[bool]:
    """Whether each answer is right that is drawn with these settings, all in one engine; tool calls to their end."""
    close = tuple({lm.tokenizer.special_tokens.get("</tool_call>")} - {None})
    ids = [lm.tokenizer.apply_chat_template(question.messages, tools=question.tools, add_generation_prompt=True)
           for question in questions]
    drawn = [replace(params, seed=i, max_tokens=question.max_tokens, stop_token_ids=close)
             for i, question in enumerate(questions)]
    outputs = generate_batch(lm, ids, drawn)
    return [question.is_right(lm.tokenizer.decode(output.token_ids) if question.tools else output.text)
            for question, output in zip(questions, outputs)]
