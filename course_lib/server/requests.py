"""What clients may ask for: what all requests have in common, in OpenAI's fields and vLLM's, and completions of text.

A field that is not here is refused by name, unless its value asks for nothing: an answer that silently ignores a
parameter is a wrong answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from course_lib.config import SamplingParams, StructuredOutputsParams, is_int, require, several
from course_lib.server.errors import Unsupported, from_range, from_validation

MAX_LOGPROBS, MAX_STOPS, LONGEST_STOP = 20, 16, 200  # tokens at each step; strings, and characters of one
LONGEST_FORM = 20_000  # characters of a grammar: to build a larger one takes seconds
NOTHING = (None, [], {}, "")
# Values of parameters that are not supported, under which a server that does support them would answer the same.
HARMLESS = {"echo": False, "best_of": 1, "store": False, "parallel_tool_calls": True, "service_tier": "auto"}

Item, Model = TypeVar("Item"), TypeVar("Model", bound=BaseModel)
Listed = Annotated[list[Item], Field(fail_fast=True)]  # a body may hold a third of a million mistakes


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
    """Check that a value is text, several texts, ids, or several lists of ids."""
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
    structural_tag: dict[str, Any] | str | None = None

    def constraint(self) -> StructuredOutputsParams:
        """As the library has it."""
        return StructuredOutputsParams(json=self.json_schema, regex=self.regex, choice=self.choice,
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

    def sampling_params(self, max_tokens: int, choice: int) -> SamplingParams:
        """The settings of one choice, whose seed is the request's plus the choice's number.

        Raises:
            ApiError: a value is out of its range.
        """
        names = ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "stop",
                 "stop_token_ids", "ignore_eos")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        if self.top_k is not None:
            given["top_k"] = 0 if self.top_k == -1 else self.top_k  # vLLM takes both for "off"
        if self.seed is not None:
            given["seed"] = self.seed + choice
        try:
            self.check_costs()
            constraints = self.constraints()
            require(len(constraints) < 2, "structured_outputs", " and ".join(constraints), "said in one field")
            for name, constraint in constraints.items():
                size = len(repr(constraint))
                require(size <= LONGEST_FORM, name, f"{size} characters", f"at most {LONGEST_FORM}")
            require(not (constraints and self.ignore_eos), "ignore_eos", True, "false where the text has a form to end")
            return SamplingParams(**given, max_tokens=max_tokens, logprobs=self.wanted_logprobs(),
                                  structured_outputs=next(iter(constraints.values()), None))
        except ValueError as error:
            raise from_range(error) from error

    def check_costs(self) -> None:
        """Refuse what would make every step slow.

        Raises:
            ValueError: too many log-probabilities or stop strings, or one that is too long.
        """
        logprobs, stops = self.wanted_logprobs() or 0, several("stop", self.stop, str)
        require(0 <= logprobs <= MAX_LOGPROBS, self.logprobs_field, logprobs, f"in [0, {MAX_LOGPROBS}]")
        require(len(stops) <= MAX_STOPS, "len(stop)", len(stops), f"at most {MAX_STOPS}")
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

    def prompts(self) -> list[str | list[int]]:
        """Texts or ids."""
        one = isinstance(self.prompt, str) or is_int(self.prompt[0])
        return [self.prompt] if one else self.prompt


@contextmanager
def about(param: str) -> Iterator[None]:
    """Within it, what the library refuses is an error of this field."""
    try:
        yield
    except ValueError as error:
        raise from_range(error, param) from error


def parse(kind: type[Model], body: bytes) -> Model:
    """The body as this kind of request.

    Raises:
        ApiError: it is no JSON, or not of this form.
    """
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise from_validation(error) from error
