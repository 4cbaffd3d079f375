"""Structural tags, as far as an automaton can read them: parts of a text with JSON between tags, to a pattern.

The form is vLLM's: `{"type": "structural_tag", "format": ...}`, where a format is one of const_string, regex,
json_schema, any_text, tag, sequence and or.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from course_lib.automaton import Choice, Node, sequence
from course_lib.byte_regex import parse_regex
from course_lib.config import require
from course_lib.json_schema import MAX_DEPTH, schema_pattern

ANY_TEXT = r"(?:.|\n)*"
Parse = Callable[[str], Node]


def tag_pattern(structural_tag: Mapping[str, Any], parse: Parse) -> Node:
    """The pattern of a structural tag.

    Args:
        parse: a text to the pattern of this very text, in which the text of a control token means the token.

    Raises:
        ValueError: it lacks something or holds what is not supported; the message names the place.
    """
    try:
        return format_pattern(structural_tag.get("format"), parse)
    except KeyError as error:
        raise ValueError(f"structural_tag lacks {error}") from error


def format_pattern(form: Any, parse: Parse, path: str = "structural_tag.format", depth: int = 0) -> Node:
    """One format.

    Raises:
        ValueError: it is none, or nested too deep.
        KeyError: a field is missing.
    """
    require(isinstance(form, Mapping), path, form, "an object")
    require(depth <= MAX_DEPTH, path, "...", f"nested at most {MAX_DEPTH} deep")

    def text(name: str) -> str:
        require(isinstance(form[name], str), f"{path}.{name}", form[name], "a string")
        return form[name]

    kind = form.get("type")
    match kind:
        case "const_string":
            return parse(text("value"))
        case "regex":
            return parse_regex(text("pattern"))
        case "json_schema":
            return schema_pattern(form["json_schema"], f"{path}.json_schema")
        case "any_text":
            return parse_regex(ANY_TEXT)
        case "tag":
            content = format_pattern(form["content"], parse, f"{path}.content", depth + 1)
            return sequence(parse(text("begin")), content, parse(text("end")))
        case "sequence" | "or":
            require(isinstance(form["elements"], list) and form["elements"], f"{path}.elements", form["elements"],
                    "a list that is not empty")
            parts = tuple(format_pattern(one, parse, f"{path}.elements[{i}]", depth + 1)
                          for i, one in enumerate(form["elements"]))
            return sequence(*parts) if kind == "sequence" else Choice(parts)
    raise ValueError(f"{path}.type = {kind!r} is not allowed: must be const_string, regex, json_schema, any_text, tag, "
                     "sequence or or")
