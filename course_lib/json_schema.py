"""JSON schemas, as far as an automaton can read them: to a pattern over bytes, and as a check of a value.

A schema without recursion describes a regular language: objects and arrays nest only as deep as the schema is written.
Supported are type, properties, required, additionalProperties: false, items, minItems, maxItems, minLength, maxLength,
enum, const and anyOf; annotations such as description are skipped, and every other keyword is refused by name.

The pattern is stricter than the schema where that costs no value: properties come in the order of the schema, and the
white space is that of `json.dumps`, ", " and ": ". An object has no properties but those that are named.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from course_lib.automaton import Choice, Node, Repeat, literal, sequence
from course_lib.byte_regex import parse_regex
from course_lib.config import is_int, require

ANNOTATIONS = {"$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated"}
KEYWORDS = {"object": {"properties", "required", "additionalProperties"}, "array": {"items", "minItems", "maxItems"},
            "string": {"minLength", "maxLength"}, "integer": set(), "number": set(), "boolean": set(), "null": set()}
SUPPORTED = {"type", "const", "enum", "anyOf"}.union(*KEYWORDS.values())
MAX_DEPTH = 30

INTEGER = r"-?(?:0|[1-9][0-9]*)"
SCALARS = {"integer": INTEGER, "number": INTEGER + r"(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", "boolean": "true|false",
           "null": "null"}
# One character: itself, a short escape, or as \u with its number, a surrogate only in a pair.
CHARACTER = (r'[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u(?:[0-9abcefABCEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}'
             r"|[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})")


def schema_pattern(schema: Mapping[str, Any], path: str = "schema", depth: int = 0) -> Node:
    """Every text of a JSON value that the schema allows, in the form above.

    Raises:
        ValueError: the schema is malformed or holds what is not supported; the message names the place.
    """
    require(depth <= MAX_DEPTH, path, "...", f"nested at most {MAX_DEPTH} deep")
    kinds = check_schema(schema, path)
    if "const" in schema:
        return literal(dumps(schema["const"]))
    if "enum" in schema:
        return Choice(tuple(literal(dumps(value)) for value in schema["enum"]))
    if "anyOf" in schema:
        return Choice(tuple(schema_pattern(one, f"{path}.anyOf[{i}]", depth + 1)
                            for i, one in enumerate(schema["anyOf"])))
    return Choice(tuple(kind_pattern(kind, schema, path, depth) for kind in kinds))


def check_schema(schema: Any, path: str) -> tuple[str, ...]:
    """The types that a schema names, once it holds nothing that is not supported.

    Raises:
        ValueError: it does.
    """
    require(isinstance(schema, Mapping), path, schema, "an object")
    rest = sorted(schema.keys() - ANNOTATIONS)
    for key in rest:
        require(key in SUPPORTED, path, key, f"without this keyword; supported are {', '.join(sorted(SUPPORTED))}")
    chosen = [key for key in ("const", "enum", "anyOf") if key in schema]
    require(len(chosen) <= 1 and (not chosen or {*rest} <= {chosen[0], "type"}), path, rest,
            "const, enum or anyOf alone (type may stand beside them), or a type with its own keywords")
    for key in chosen[:1]:
        require(key == "const" or (isinstance(schema[key], list) and schema[key]), f"{path}.{key}", schema[key],
                "a list that is not empty")
    kinds = schema.get("type", () if chosen else None)
    kinds = tuple(kinds) if isinstance(kinds, (list, tuple)) else (kinds,)
    for kind in kinds:
        require(isinstance(kind, str) and kind in KEYWORDS, f"{path}.type", kind, f"one of {', '.join(KEYWORDS)}")
    require(bool(kinds) or bool(chosen), f"{path}.type", kinds, "given")
    known = {"type", *chosen}.union(*(KEYWORDS[kind] for kind in kinds))
    for key in rest:
        require(key in known, path, key, f"without this keyword; allowed here are {', '.join(sorted(known))}")
    check_counts(schema, path)
    return kinds


def check_counts(schema: Mapping[str, Any], path: str) -> None:
    """Refuse least and most counts that are none, and property lists that do not fit together."""
    for least, most in (("minItems", "maxItems"), ("minLength", "maxLength")):
        low, high = schema.get(least, 0), schema.get(most)
        require(is_int(low) and low >= 0, f"{path}.{least}", low, "an integer >= 0")
        require(high is None or (is_int(high) and high >= low), f"{path}.{most}", high, f"an integer >= {low}")
    properties, required = schema.get("properties", {}), schema.get("required", [])
    require(isinstance(properties, Mapping), f"{path}.properties", properties, "an object")
    require(isinstance(required, list) and all(isinstance(name, str) and name in properties for name in required),
            f"{path}.required", required, "a list of names in properties")
    require(schema.get("additionalProperties", False) is False, f"{path}.additionalProperties",
            schema.get("additionalProperties"), "false or absent")


def kind_pattern(kind: str, schema: Mapping[str, Any], path: str, depth: int) -> Node:
    """The values of one type."""
    if kind in SCALARS:
        return parse_regex(SCALARS[kind])
    if kind == "string":
        characters = Repeat(parse_regex(CHARACTER), schema.get("minLength", 0), schema.get("maxLength"))
        return sequence(literal('"'), characters, literal('"'))
    if kind == "array":
        require("items" in schema, f"{path}.items", None, "given")
        item = schema_pattern(schema["items"], f"{path}.items", depth + 1)
        return array_pattern(item, schema.get("minItems", 0), schema.get("maxItems"))
    members = [(sequence(literal(dumps(name) + ": "), schema_pattern(one, f"{path}.properties.{name}", depth + 1)),
                name in schema.get("required", [])) for name, one in schema.get("properties", {}).items()]
    return sequence(literal("{"), members_pattern(members), literal("}"))


def array_pattern(item: Node, least: int, most: int | None) -> Node:
    """From `least` to `most` items between brackets."""
    more = Repeat(sequence(literal(", "), item), max(least - 1, 0), None if most is None else max(most - 1, 0))
    items = Repeat(sequence(item, more), min(least, 1), 1 if most is None else min(most, 1))
    return sequence(literal("["), items, literal("]"))


def members_pattern(members: list[tuple[Node, bool]]) -> Node:
    """Members in order, those that are not required possibly left out, with commas between those that are there."""
    more = [sequence(literal(", "), member) for member, _ in members]
    following = [one if required else Repeat(one, 0, 1) for one, (_, required) in zip(more, members)]
    texts: list[Node] = []  # one for each member that may be the first
    for i, (member, required) in enumerate(members):
        texts.append(sequence(member, *following[i + 1 :]))
        if required:
            return Choice(tuple(texts))
    return Choice((*texts, sequence()))


def check_value(value: Any, schema: Mapping[str, Any], path: str = "value") -> None:
    """Refuse a decoded JSON value that the schema does not allow.

    Raises:
        ValueError: it does not; the message names the place. Or the schema holds what is not supported.
    """
    kinds = check_schema(schema, path)
    if "const" in schema or "enum" in schema:
        allowed = schema["enum"] if "enum" in schema else [schema["const"]]
        require(any(same(value, one) for one in allowed), path, value, f"one of {dumps(allowed)}")
    if "anyOf" in schema:
        require(any(is_valid(value, one) for one in schema["anyOf"]), path, value, "what one of its schemas allows")
    require(not kinds or any(is_kind(value, kind) for kind in kinds), path, value, f"of type {' or '.join(kinds)}")
    if isinstance(value, str):
        check_length(path, value, schema.get("minLength", 0), schema.get("maxLength"), "characters")
    if isinstance(value, list):
        check_length(path, value, schema.get("minItems", 0), schema.get("maxItems"), "items")
        for i, item in enumerate(value if "items" in schema else ()):
            check_value(item, schema["items"], f"{path}[{i}]")
    if isinstance(value, dict) and "object" in kinds and not {"const", "enum", "anyOf"} & schema.keys():
        properties = schema.get("properties", {})
        for name in value:
            require(name in properties, f"{path}.{name}", value[name], f"absent; allowed are {', '.join(properties)}")
            check_value(value[name], properties[name], f"{path}.{name}")
        for name in schema.get("required", []):
            require(name in value, f"{path}.{name}", None, "given")


def is_valid(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether `check_value` lets it through."""
    try:
        check_value(value, schema)
    except ValueError:
        return False
    return True


def is_kind(value: Any, kind: str) -> bool:
    """Whether a decoded value has the JSON type; true and false are no numbers, and 2.0 is an integer."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return {"object": isinstance(value, dict), "array": isinstance(value, list), "string": isinstance(value, str),
            "integer": number and (isinstance(value, int) or value.is_integer()), "number": number,
            "boolean": isinstance(value, bool), "null": value is None}[kind]


def same(one: Any, other: Any) -> bool:
    """Whether two decoded values are the same JSON; True is not 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def check_length(path: str, value: Any, least: int, most: int | None, what: str) -> None:
    """Refuse too few or too many."""
    allowed = f"{least} {what} or more" if most is None else f"{least} to {most} {what} long"
    require(len(value) >= least and (most is None or len(value) <= most), path, value, allowed)


def dumps(value: Any) -> str:
    """The value as JSON text, in the form that the patterns have."""
    return json.dumps(value, ensure_ascii=False)
