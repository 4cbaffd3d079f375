"""Structural tags, as far as an automaton can read them: parts of a text with JSON between tags, to a pattern.

The form is vLLM's: `{"type": "structural_tag", "format": ...}`, where a format is one of const_string, regex,
json_schema, any_text, tag, sequence and or. A field that is not in `FIELDS` is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from course_lib.byte_regex import parse_regex
from course_lib.config import is_text, require
from course_lib.json_schema import schema_pattern
from course_lib.patterns import Choice, Node, sequence, without
from course_lib.plain_schema import MAX_DEPTH

ANY_TEXT = r"(?:.|\n)*"
LONGEST_END = 200  # characters of an end tag with any text in front of it
FIELDS = {"const_string": {"value"}, "regex": {"pattern"}, "json_schema": {"json_schema"}, "any_text": set(),
          "tag": {"begin", "content", "end"}, "sequence": {"elements"}, "or": {"elements"}}
Parse = Callable[[str], Node]


def tag_pattern(structural_tag: Mapping[str, Any], parse: Parse) -> Node:
    """The pattern of a structural tag.

    Args:
        parse: a text to the pattern of this very text, in which the text of a control token means the token.

    Raises:
        ValueError: it lacks something or holds what is not supported; the message names the place.
    """
    kind = structural_tag.get("type", "structural_tag")
    require(kind == "structural_tag", "structural_tag.type", kind, "'structural_tag'")
    check_fields(structural_tag, {"format"}, "structural_tag")
    return format_pattern(structural_tag["format"], parse, "structural_tag.format")


def check_fields(form: Mapping[str, Any], names: set[str], path: str) -> None:
    """Refuse a field that is missing, and one that would be ignored."""
    for name in sorted(names - form.keys()):
        require(False, path, sorted(form), f"with {name!r}")
    for name in sorted(form.keys() - names - {"type"}):
        require(False, path, name, f"without this field; allowed are {', '.join(sorted({'type'} | names))}")


def format_pattern(form: Any, parse: Parse, path: str, depth: int = 0, end: str = "") -> Node:
    """One format.

    Args:
        end: of the tag around it. Any text there ends where it begins.

    Raises:
        ValueError: it is none, or nested too deep.
    """
    require(isinstance(form, Mapping), path, form, "an object")
    require(depth <= MAX_DEPTH, path, "...", f"nested at most {MAX_DEPTH} deep")
    kind = form.get("type")
    require(isinstance(kind, str) and kind in FIELDS, f"{path}.type", kind, f"one of {', '.join(FIELDS)}")
    check_fields(form, FIELDS[kind], path)

    def text(name: str) -> str:
        require(is_text(form[name]), f"{path}.{name}", form[name], "a string without surrogates")
        return form[name]

    match kind:
        case "const_string":
            return parse(text("value"))
        case "regex":
            return parse_regex(text("pattern"))
        case "json_schema":
            return schema_pattern(form["json_schema"], f"{path}.json_schema")
        case "any_text":
            require(len(end) <= LONGEST_END, f"len(end) around {path}", len(end), f"at most {LONGEST_END}")
            return without(end) if end else parse_regex(ANY_TEXT)
        case "tag":
            content = format_pattern(form["content"], parse, f"{path}.content", depth + 1, text("end"))
            return sequence(parse(text("begin")), content, parse(text("end")))
    require(isinstance(form["elements"], list) and form["elements"], f"{path}.elements", form["elements"],
            "a list that is not empty")
    parts = tuple(format_pattern(one, parse, f"{path}.elements[{i}]", depth + 1, end)
                  for i, one in enumerate(form["elements"]))
    return sequence(*parts) if kind == "sequence" else Choice(parts)
