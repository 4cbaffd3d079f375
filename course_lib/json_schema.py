"""JSON schemas, as far as an automaton can read them: to a pattern over bytes, and as a check of a value.

A schema without recursion describes a regular language: objects and arrays nest only as deep as the schema is written.
`course_lib.plain_schema` says what a schema may hold.

The pattern is stricter than the schema: properties come in the order of the schema, the white space is that of
`json.dumps`, ", " and ": ", and an object has no properties but those that are named. Numbers end: an integer has at
most 19 digits, which are all of 64 bits; a fraction at most 20 and an exponent 2, so that every number is finite.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from course_lib.automaton import Automaton
from course_lib.byte_regex import parse_regex
from course_lib.config import require
from course_lib.patterns import EMPTY, Choice, Node, States, literal, repeat, sequence
from course_lib.plain_schema import dumps, is_kind, written_out

MAX_OBJECT_DEPTH = 5  # of any JSON object

INTEGER = r"-?(?:0|[1-9][0-9]{0,18})"
SCALARS = {"integer": parse_regex(INTEGER),
           "number": parse_regex(INTEGER + r"(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,2})?"),
           "boolean": parse_regex("true|false"), "null": literal("null")}
# Itself, a short escape, or as \u with its number, a surrogate only in a pair.
CHARACTER = parse_regex(
    r'[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u(?:[0-9abcefABCEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}'
    r"|[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))")


def schema_pattern(schema: Mapping[str, Any], path: str = "schema") -> Node:
    """Every text of a JSON value that the schema allows, in the form above.

    Raises:
        ValueError: the schema is malformed or holds what is not supported; the message names the place.
    """
    return plain_pattern(written_out(schema, path))


def check_pattern(schema: Mapping[str, Any], path: str = "schema") -> None:
    """Refuse a schema of which there is no grammar.

    Raises:
        ValueError: as `schema_pattern`, or an automaton of it would be too large.
    """
    pattern = schema_pattern(schema, path)
    try:
        Automaton(pattern)
    except ValueError as error:
        raise ValueError(f"{path} is not allowed: {error}") from error


def object_pattern(depth: int = MAX_OBJECT_DEPTH) -> Node:
    """Any JSON object that nests objects and arrays at most `depth` deep, counting itself."""
    value = Choice((string_pattern(), SCALARS["number"], SCALARS["boolean"], SCALARS["null"]))
    for _ in range(depth - 1):
        value = Choice((*value.parts[:4], any_object(value), array_pattern(value)))
    return any_object(value)


def any_object(value: Node) -> Node:
    """An object whose members have any names and these values."""
    member = sequence(string_pattern(), literal(": "), value)
    return sequence(literal("{"), repeat(member, 0, None, literal(", ")), literal("}"))


def plain_pattern(schema: Mapping[str, Any]) -> Node:
    """Of a schema that is written out."""
    if "enum" in schema:
        return Choice(tuple(literal(dumps(value)) for value in schema["enum"]))
    if "anyOf" in schema:
        return Choice(tuple(map(plain_pattern, schema["anyOf"])))
    return Choice(tuple(kind_pattern(kind, schema) for kind in schema["type"]))


def kind_pattern(kind: str, schema: Mapping[str, Any]) -> Node:
    """The values of one type."""
    if kind in SCALARS:
        return SCALARS[kind]
    if kind == "string":
        return string_pattern(schema.get("minLength", 0), schema.get("maxLength"))
    if kind == "array":
        return array_pattern(plain_pattern(schema["items"]), schema.get("minItems", 0), schema.get("maxItems"))
    members = [(sequence(literal(dumps(name) + ": "), plain_pattern(one)), name in schema.get("required", []))
               for name, one in schema["properties"].items()]
    return sequence(literal("{"), members_pattern(members), literal("}"))


def string_pattern(least: int = 0, most: int | None = None) -> Node:
    """From `least` to `most` characters between quotes."""
    return sequence(literal('"'), repeat(CHARACTER, least, most), literal('"'))


def array_pattern(item: Node, least: int = 0, most: int | None = None) -> Node:
    """From `least` to `most` items between brackets."""
    return sequence(literal("["), repeat(item, least, most, literal(", ")), literal("]"))


def members_pattern(members: list[tuple[Node, bool]]) -> Node:
    """Members in order, those that are not required possibly left out, with commas between those that are there.

    State i is before member i when none has been written; the other states are those after at least one.
    """
    n = len(members)
    first, later = [], []
    for i, (member, required) in enumerate(members):
        skip = [] if required else [(EMPTY, 1)]
        first.append(((member, n + i + 2), *((one, i + step) for one, step in skip)))
        later.append(((sequence(literal(", "), member), n + i + 2), *((one, n + i + 1 + step) for one, step in skip)))
    return States((*first, (), *later, ()), frozenset({n, 2 * n + 1}))


def check_value(value: Any, schema: Mapping[str, Any], path: str = "value") -> None:
    """Refuse a decoded JSON value that the schema does not allow.

    Raises:
        ValueError: it does not; the message names the place. Or the schema holds what is not supported.
    """
    check_plain(value, written_out(schema, path), path)


def check_plain(value: Any, schema: Mapping[str, Any], path: str) -> None:
    """As `check_value`, with a schema that is written out."""
    if "enum" in schema:
        require(any(same(value, one) for one in schema["enum"]), path, value, f"one of {dumps(schema['enum'])}")
        return
    if "anyOf" in schema:
        check_any(value, schema["anyOf"], path)
        return
    kinds = schema["type"]
    require(any(is_kind(value, kind) for kind in kinds), path, value, f"of type {' or '.join(kinds)}")
    if isinstance(value, str):
        check_length(path, value, schema.get("minLength", 0), schema.get("maxLength"), "characters")
    if isinstance(value, list):
        check_length(path, value, schema.get("minItems", 0), schema.get("maxItems"), "items")
        for i, item in enumerate(value):
            check_plain(item, schema["items"], f"{path}[{i}]")
    if isinstance(value, dict):
        properties = schema["properties"]
        for name in value:
            require(name in properties, f"{path}.{name}", value[name], f"absent; allowed are {', '.join(properties)}")
            check_plain(value[name], properties[name], f"{path}.{name}")
        for name in schema.get("required", []):
            require(name in value, f"{path}.{name}", None, "given")


def check_any(value: Any, schemas: list[Mapping[str, Any]], path: str) -> None:
    """Refuse a value that none of the schemas allows; where there is one schema, say why."""
    for schema in schemas:
        try:
            return check_plain(value, schema, path)
        except ValueError:
            if len(schemas) == 1:
                raise
    raise ValueError(f"{path} = {value!r} is not allowed: must be what one of its schemas allows")


def is_valid(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether `check_value` lets it through."""
    try:
        check_value(value, schema)
    except ValueError:
        return False
    return True


def same(one: Any, other: Any) -> bool:
    """Whether two decoded values are the same JSON; True is not 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def check_length(path: str, value: Any, least: int, most: int | None, what: str) -> None:
    """Refuse too few or too many."""
    allowed = f"{least} {what} or more" if most is None else f"{least} to {most} {what} long"
    require(len(value) >= least and (most is None or len(value) <= most), path, value, allowed)
