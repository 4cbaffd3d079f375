"""What clients may ask for: what all requests have in common, in OpenAI's fields and vLLM's, and completions of text.

A field that is not here is refused by name, unless its value asks for nothing: an answer that silently ignores a
parameter is a wrong answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from course_lib.config import SamplingParams, StructuredOutputsParams, is_int, require, several
from course_lib.server.errors import ApiError, Unsupported, from_range, from_validation

MAX_LOGPROBS, MAX_STOPS, LONGEST_STOP = 20, 16, 200  # tokens at each step; strings, and characters of one
MAX_STOP_IDS = 1_000
LONGEST_FORM = 20_000  # characters of a grammar: to build a larger one takes seconds
NOTHING = (None, [], {}, "")
# Values of parameters that are not supported, under which a server that does support them would answer the same.
HARMLESS = {"echo": False, "best_of": 1, "store": False, "parallel_tool_calls": True, "service_tier": "auto"}

Item, Model = TypeVar("Item"), TypeVar("Model", bound=BaseModel)
Listed = Annotated[list[Item], Field(fail_fast=True)]  # a body may hold a third of a million mistakes


def countable(value: Any, info: ValidationInfo) -> Any:
    """Refuse a list of more items than a prompt may have tokens, before anybody looks at one of them.

    Raises:
        ApiError: it is.
    """
    most = (info.context or {}).get("max_prompt_tokens")
    if most is not None and isinstance(value, list) and len(value) > most:
        raise ApiError(400, f"len({info.field_name}) = {len(value)} is not allowed: must be at most {most}: each "
                            f"is at least one token, and a prompt may have {most}", param=info.field_name,
                       code="context_length_exceeded")
    return value


# A list of which each item becomes at least one token of the prompt.
Shown = Annotated[list[Item], Field(fail_fast=True), BeforeValidator(countable)]


class Strict(BaseModel):
    """An object with these fields and no others, each of its very type: "1" is no number."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    @model_validator(mode="after")
    def refuse_the_rest(self) -> Self:
        """Name the first field that is not supported."""
        for name, value in (self.model_extra or {}).items():
            if value not in NOTHING and not (name in HARMLESS and value == HARMLESS[name]):
                raise Unsupported(name, value)
        return self


def prompt_of(value: Any) -> Any:
    """Check that a value is text, several texts, ids, or several lists of ids.

    Text is data: it cannot become a control token. Ids are the caller's own tokens, also control tokens, and
    are obeyed, as in vLLM. A program that passes on what strangers wrote should send text.
    """
    several = isinstance(value, list) and len(value) > 0
    texts = isinstance(value, str) or (several and all(isinstance(item, str) for item in value))
    ids = several and all(is_int(item) for item in value)
    lists = several and all(isinstance(item, list) and item and all(map(is_int, item)) for item in value)
    if not (texts or ids or lists):
        raise ValueError("text, a list of texts, a list of ids, or a list of lists of ids")
    return value


class StreamOptions(Strict):
    """What a stream brings besides text."""

    include_usage: bool = False


class StructuredOutputs(Strict):
    """What the text must be, in vLLM's names."""

    json_schema: dict[str, Any] | str | None = Field(None, alias="json")
    regex: str | None = None
    choice: Listed[str] | None = None
    json_object: bool | None = None
    disable_any_whitespace: bool = False
    whitespace_pattern: str | None = None
    structural_tag: dict[str, Any] | str | None = None

    def constraint(self) -> StructuredOutputsParams:
        """As the library has it."""
        return StructuredOutputsParams(
            json=self.json_schema, regex=self.regex, choice=self.choice, json_object=self.json_object,
            disable_any_whitespace=self.disable_any_whitespace, whitespace_pattern=self.whitespace_pattern,
            structural_tag=self.structural_tag)


class Request(Strict):
    """What both kinds of completion have in common; None means the default."""

    prompt_field: ClassVar[str]  # what the model reads
    logprobs_field: ClassVar[str]  # how many log-probabilities
    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    stop: str | Listed[str] | None = None
    seed: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    max_tokens: int | None = None
    user: str | None = None  # an identifier of the client's; no answer depends on it
    # vLLM's
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    stop_token_ids: Listed[int] | None = None
    ignore_eos: bool | None = None
    structured_outputs: StructuredOutputs | None = None
    return_token_ids: bool | None = None
    # this course's
    return_step_seconds: bool | None = None

    @property
    def tokens_field(self) -> str:
        """The field that says how many new tokens there may be."""
        return "max_tokens"

    def wanted_tokens(self) -> int | None:
        """How many new tokens at most; None: it is not said."""
        return getattr(self, self.tokens_field)

    def prompts(self) -> list[Any]:
        """What the model reads, one by one: each a text, ids, or the messages of a conversation.

        Raises:
            ApiError: there is a mistake in one.
        """
        raise NotImplementedError

    def count_prompts(self) -> int:
        """How many there are."""
        raise NotImplementedError

    def offered_tools(self) -> list[dict[str, Any]] | None:
        """The tools as the template gets them; None: there are none."""
        return None

    def wanted_logprobs(self) -> int | None:
        """How many of the likeliest tokens to report at each step; None: no log-probabilities."""
        raise NotImplementedError

    def constraints(self) -> dict[str, StructuredOutputsParams]:
        """What the text must be, by the field that says so.

        Raises:
            ApiError: a field says it in a wrong way.
        """
        with about("structured_outputs"):
            form = self.structured_outputs
            return {} if form is None else {"structured_outputs": form.constraint()}

    def constraint(self) -> tuple[str, StructuredOutputsParams | None]:
        """The field that says what the text must be, and what it says; None: there is none.

        Raises:
            ApiError: two fields say it, or one at too great a length.
        """
        constraints = self.constraints()
        with about(None):
            require(len(constraints) < 2, "structured_outputs", " and ".join(constraints), "said in one field")
            for name, constraint in constraints.items():
                size = len(repr(constraint))
                require(size <= LONGEST_FORM, name, f"{size} characters", f"at most {LONGEST_FORM}")
            require(not (constraints and self.ignore_eos), "ignore_eos", True, "false where the text has a form to end")
        return next(iter(constraints.items()), ("structured_outputs", None))

    def find_fault(self, field: str) -> None:
        """Say more exactly where this field is wrong, of which no grammar could be made, if the request knows.

        Raises:
            ApiError: it does.
        """

    def sampling_params(self, constraint: StructuredOutputsParams | None, n: int) -> SamplingParams:
        """The settings of the first of n choices; `max_tokens` is what was asked for, at least 1.

        Raises:
            ApiError: a value is out of its range.
        """
        names = ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "stop",
                 "stop_token_ids", "ignore_eos", "seed")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        if self.top_k is not None:
            given["top_k"] = 0 if self.top_k == -1 else self.top_k  # vLLM takes both for "off"
        with about(None):
            self.check_costs()
            params = SamplingParams(**given, max_tokens=max(1, self.wanted_tokens() or 1),
                                    logprobs=self.wanted_logprobs(), structured_outputs=constraint)
            require(self.seed is None or self.seed + n <= 2**64, "seed", self.seed,
                    f"at most 2**64 - {n}: choice j of {n} has seed + j")
        return params

    def check_costs(self) -> None:
        """Refuse what would make every step slow.

        Raises:
            ValueError: too many log-probabilities or stop strings, or one that is too long.
        """
        logprobs, stops = self.wanted_logprobs() or 0, several("stop", self.stop, str)
        require(0 <= logprobs <= MAX_LOGPROBS, self.logprobs_field, logprobs, f"in [0, {MAX_LOGPROBS}]")
        require(len(stops) <= MAX_STOPS, "len(stop)", len(stops), f"at most {MAX_STOPS}")
        ids = len(self.stop_token_ids or ())
        require(ids <= MAX_STOP_IDS, "len(stop_token_ids)", ids, f"at most {MAX_STOP_IDS}")
        for stop in stops:
            require(len(stop) <= LONGEST_STOP, "stop", stop[:20] + "…", f"at most {LONGEST_STOP} characters long")


class CompletionRequest(Request):
    """The body of POST /v1/completions: text or ids to continue."""

    prompt_field: ClassVar[str] = "prompt"
    logprobs_field: ClassVar[str] = "logprobs"
    prompt: Annotated[Any, AfterValidator(prompt_of)]
    logprobs: int | None = None

    def wanted_tokens(self) -> int | None:
        """As OpenAI has it, 16 unless it is said."""
        return 16 if self.max_tokens is None else self.max_tokens

    def wanted_logprobs(self) -> int | None:
        """Here one number says both."""
        return self.logprobs

    def count_prompts(self) -> int:
        """A list of ids is one prompt."""
        return len(self.prompts())

    def prompts(self) -> list[str | list[int]]:
        """Texts or ids."""
        one = isinstance(self.prompt, str) or is_int(self.prompt[0])
        return [self.prompt] if one else self.prompt


@contextmanager
def about(param: str | None) -> Iterator[None]:
    """Within it, what the library refuses is an error of this field; None: of the one that the message names."""
    try:
        yield
    except ValueError as error:
        raise from_range(error, param) from error


def parse(kind: type[Model], body: bytes, max_prompt_tokens: int | None = None) -> Model:
    """The body as this kind of request.

    Args:
        max_prompt_tokens: also the most messages, tools and calls that there may be; None: any number.

    Raises:
        ApiError: it is no JSON, or not of this form.
    """
    try:
        return kind.model_validate_json(body, context={"max_prompt_tokens": max_prompt_tokens})
    except ValidationError as error:
        raise from_validation(error) from error
