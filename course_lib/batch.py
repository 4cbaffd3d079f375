"""Many prompts at once, answered to their ends: what `generate` does for one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from course_lib.config import SamplingParams, require
from course_lib.detokenize import DecodeStream, decode_stream
from course_lib.engine import Engine, EngineOutput
from course_lib.generate import CompletionOutput, LanguageModel, Prompt, Step, encode_prompt, end_ids


@dataclass
class Answer:
    """What `generate_batch` collects of one request."""

    decoder: DecodeStream
    params: SamplingParams
    steps: list[Step] = field(default_factory=list)
    finish_reason: str | None = None

    def output(self) -> CompletionOutput:
        """In the form of `generate`."""
        self.decoder.flush()
        return CompletionOutput(
            index=0, text=self.decoder.text, token_ids=tuple(step.token_id for step in self.steps),
            cumulative_logprob=sum(step.logprob for step in self.steps),
            logprobs=None if self.params.logprobs is None else tuple(step.top for step in self.steps),
            finish_reason=self.finish_reason)


def generate_batch(lm: LanguageModel, prompts: Sequence[Prompt], params: SamplingParams | Sequence[SamplingParams],
                   **options: int | bool | None) -> list[CompletionOutput]:
    """Answer many prompts; each answer is the one that `generate` gives alone, up to near ties.

    Args:
        lm: as `load()` returns it.
        prompts: each as for `generate`.
        params: one for all, or one for each.
        options: of the `Engine`.

    Raises:
        ValueError: a prompt or a setting is not allowed; nothing has been computed then. Or, as `generate` does, where
            an answer cannot go on: its logits are not finite, or its grammar allows no token.
    """
    rows = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
    require(len(rows) == len(prompts), "len(params)", len(rows), f"{len(prompts)}, one for each prompt")
    engine, answers = Engine(lm, **options), {}
    for i, (prompt, row) in enumerate(zip(prompts, rows)):
        engine.add_request(str(i), encode_prompt(lm.tokenizer, prompt), row)
        answers[str(i)] = Answer(decode_stream(lm.tokenizer, row.stop), row)
    while engine.has_unfinished_requests():
        for output in engine.step():
            take(engine, output, answers[output.request_id])
    return [answer.output() for answer in answers.values()]


def take(engine: Engine, output: EngineOutput, answer: Answer) -> None:
    """Add a token to an answer; a stop string ends the request.

    Raises:
        ValueError: the request has failed.
    """
    step = output.result()
    answer.steps.append(step)
    answer.finish_reason = output.finish_reason
    if step.token_id in end_ids(engine.lm, answer.params):  # not part of the text
        return
    answer.decoder.push(step.token_id)
    if answer.decoder.stopped is not None:
        answer.finish_reason = "stop"
        engine.abort_request(output.request_id)
