"""From a request to what the engine gets: prompts as ids, and settings. It takes too long to do in an event loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Any

from course_lib.chat_template import strings
from course_lib.config import SamplingParams
from course_lib.generate import LanguageModel, check_prompt, encode_prompt, end_ids
from course_lib.grammar import logits_processor_for
from course_lib.server.chat_requests import ChatCompletionRequest
from course_lib.server.errors import ApiError, from_range
from course_lib.server.limits import Limits
from course_lib.server.requests import Request
from course_lib.tool_calls import tag_ids

LONGEST_TOOLS = 50_000  # characters of all tools; a template may show few of them


@dataclass(frozen=True)
class Job:
    """What a request asks of the engine: one prompt and one setting for each choice.

    Attributes:
        prompts: ids of the prompts; `n` choices follow each.
        params: of the choices, as many as prompts times n.
        tools: read tool calls in what the model writes.
    """

    prompts: list[list[int]]
    params: list[SamplingParams]
    tools: bool = False

    def prompt_of(self, choice: int) -> list[int]:
        """The prompt that this choice follows."""
        return self.prompts[choice * len(self.prompts) // len(self.params)]


class Jobs:
    """Makes jobs for one model. What is checked first costs least.

    Args:
        lm: as `load()` returns it.
        limits: what is refused.
        capacity: choices that the server can hold.

    Attributes:
        max_prompt_tokens: that a prompt may have.
        max_characters: a text with more of them has more tokens than that.
    """

    def __init__(self, lm: LanguageModel, limits: Limits, capacity: int) -> None:
        self.lm, self.limits, self.context = lm, limits, lm.config.max_position_embeddings
        self.max_choices = min(limits.max_choices, capacity)
        self.max_prompt_tokens = min(self.context - 1, limits.max_prompt_tokens or self.context)
        added = [token.content for token in lm.tokenizer.all_added_tokens() if not token.special]
        longest = max(map(len, (*lm.tokenizer.mergeable_ranks, *added)))
        # NFC makes one character, of three bytes or more, of four at most
        self.max_characters = self.max_prompt_tokens * longest * (2 if lm.tokenizer.normalizer else 1)

    def count_choices(self, body: Request) -> int:
        """Prompts times n.

        Raises:
            ApiError: the server would never have places for them.
        """
        prompts, n = body.count_prompts(), 1 if body.n is None else body.n
        if not 1 <= n <= self.max_choices // prompts:
            name, value, param = ("n", n, "n") if n != 1 else ("len(prompt)", prompts, "prompt")
            raise ApiError(400, f"{name} = {value} is not allowed: prompts times n must be in [1, {self.max_choices}]",
                           param=param, code="invalid_value")
        return prompts * n

    def make(self, body: Request) -> Job:
        """What to ask of the engine.

        Raises:
            ApiError: the request cannot be answered.
        """
        n = self.count_choices(body) // body.count_prompts()
        prompts, tools = body.prompts(), body.offered_tools()
        self.check_sizes(prompts, tools, body.prompt_field)
        field, constraint = body.constraint()
        params = body.sampling_params(constraint, n)
        ids = [self.encode(prompt, body.prompt_field, tools) for prompt in prompts]
        max_tokens = self.new_tokens(ids, body)
        try:  # a grammar is built here and not in the engine's thread, where all would wait for it
            logits_processor_for(params, self.lm.tokenizer, end_ids(self.lm, params))
        except ValueError as error:
            body.find_fault(field)
            raise from_range(error, field) from error
        seeds = [None] * n if params.seed is None else range(params.seed, params.seed + n)
        choices = [replace(params, max_tokens=max_tokens, seed=seed) for seed in seeds]
        return Job(ids, choices * len(ids), tools=tools is not None)

    def check_sizes(self, prompts: Sequence[Any], tools: Sequence[Any] | None, field: str) -> None:
        """Refuse texts that are too long to be worth a look.

        Raises:
            ApiError: a prompt has more characters than as many tokens as it may have, or the tools have too many.
        """
        for prompt in prompts:
            size = sum(map(len, texts_of(prompt)))
            if size > self.max_characters:
                raise ApiError(400, f"{field} of {size} characters is not allowed: must be at most "
                                    f"{self.max_characters}, as a prompt may have {self.max_prompt_tokens} tokens",
                               param=field, code="context_length_exceeded")
        size, most = len(repr(tools)), max(LONGEST_TOOLS, self.max_characters)
        if size > most:
            raise ApiError(400, f"tools of {size} characters are not allowed: must be at most {most}", param="tools",
                           code="invalid_value")

    def encode(self, prompt: Any, field: str, tools: list[dict[str, Any]] | None) -> list[int]:
        """Ids of one prompt; the text of a control token in it is data.

        Args:
            field: that it comes from.
        """
        if tools and not tag_ids(self.lm.tokenizer):
            raise ApiError(400, "tools are not supported by this model: its tokenizer has no token <tool_call>",
                           param="tools", code="unsupported_parameter")
        try:
            if field == ChatCompletionRequest.prompt_field:
                self.check_shown(prompt, tools)
                return self.lm.tokenizer.apply_chat_template(prompt, tools=tools, add_generation_prompt=True)
            ids = encode_prompt(self.lm.tokenizer, prompt)
            if len(ids) < self.context:  # else the next check says more
                check_prompt(self.lm.config, ids)
            return ids
        except ValueError as error:
            raise from_range(error, field) from error
        except BaseException as error:  # a panic of tiktoken's Rust code, at a million spaces, is no Exception
            if type(error).__module__ != "pyo3_runtime":
                raise
            raise ApiError(400, f"{field} is not allowed: must be text that the tokenizer can cut (it gave up)",
                           param=field, code="invalid_value") from error

    def check_shown(self, messages: Sequence[Mapping[str, Any]], tools: list[dict[str, Any]] | None) -> None:
        """Refuse system messages that the template would leave out: many show one in the first place alone.

        Raises:
            ApiError: there is one.
            ValueError: the template refuses these messages.
        """
        later = [place for place, message in enumerate(messages) if place > 0 and message["role"] == "system"]
        if not later:
            return
        marks = {place: f"system message {place} {token_hex(8)}" for place in later}
        marked = [{**message, "content": marks.get(place, message["content"])}
                  for place, message in enumerate(messages)]
        text = self.lm.tokenizer.apply_chat_template(marked, tools=tools, add_generation_prompt=True, tokenize=False)
        for place, mark in marks.items():
            if mark not in text:
                raise ApiError(400, f"messages[{place}].role = 'system' is not allowed: must be another role, as the "
                                    "model's chat template leaves later system messages out",
                               param=f"messages[{place}].role", code="invalid_value")

    def new_tokens(self, prompts: Sequence[Sequence[int]], body: Request) -> int:
        """Those that each choice may have: as many as the client asked for, or as fit after the longest prompt.

        Args:
            prompts: ids.
            body: the request, which says how many, and in which field.

        Raises:
            ApiError: a prompt, or what is to follow it, is too long, or nothing is to follow it.
        """
        longest, most = max(map(len, prompts)), self.max_prompt_tokens
        wanted, name = body.wanted_tokens(), body.tokens_field
        if wanted is not None and wanted < 1:
            raise ApiError(400, f"{name} = {wanted} is not allowed: must be >= 1", param=name, code="invalid_value")
        if longest > most:
            raise ApiError(400, f"a prompt of {longest} tokens is not allowed: must be at most {most} (the context "
                                f"holds {self.context}, prompt and answer together)", param=body.prompt_field,
                           code="context_length_exceeded")
        room = min(self.context - longest, self.limits.max_tokens or self.context)
        if wanted is not None and wanted > room:
            raise ApiError(400, f"{name} = {wanted} is not allowed: must be in [1, {room}] after a prompt of {longest} "
                                f"tokens", param=name, code="context_length_exceeded")
        return room if wanted is None else wanted


def texts_of(prompt: str | Sequence[int] | Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """What a template or a tokenizer gets to read of a prompt; ids are no text."""
    if isinstance(prompt, str) or not isinstance(prompt[0], Mapping):
        return [prompt] if isinstance(prompt, str) else []
    return strings([(message["content"], [call["function"] for call in message.get("tool_calls", ())])
                    for message in prompt])
