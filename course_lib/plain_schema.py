"""JSON schemas written out: what is not supported is refused, references are replaced by what they mean.

Supported are type, properties, required, additionalProperties: false, items, minItems, maxItems, minLength, maxLength,
enum and const (with or without a type), anyOf, allOf of one schema, and $ref to `#/$defs/NAME`, which is looked up in
the $defs nearest around it. Annotations such as description are skipped. Every other keyword is refused by name, and so
is recursion.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from course_lib.config import is_int, is_text, require

ANNOTATIONS = {"$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "default", "examples",
               "deprecated"}
KEYWORDS = {"object": {"properties", "required", "additionalProperties"}, "array": {"items", "minItems", "maxItems"},
            "string": {"minLength", "maxLength"}, "integer": set(), "number": set(), "boolean": set(), "null": set()}
CHOOSERS = ("const", "enum", "anyOf", "allOf", "$ref")
SUPPORTED = {"type", *CHOOSERS}.union(*KEYWORDS.values())
REFERENCES = ("#/$defs/", "#/definitions/")
NO_END = "without recursion: the schema would have no end"
MAX_DEPTH = 30
MAX_SCHEMAS = 10_000  # in one, when references are written out
MAX_COUNT = 2**31 - 1


def written_out(schema: Any, path: str) -> dict[str, Any]:
    """The schema in three forms: {"enum"} with values, {"anyOf"}, and {"type"}, a tuple, with its own keywords.

    Raises:
        ValueError: it is malformed, holds what is not supported, or is too large or too deep.
    """
    return Expansion().expand(schema, path)


class Expansion:
    """Writes out one schema, and counts the schemas in it."""

    def __init__(self) -> None:
        self.schemas = 0

    def expand(self, schema: Any, path: str, definitions: Mapping[str, Any] | None = None,
               around: tuple[Any, ...] = ()) -> dict[str, Any]:
        """The schema, written out.

        Args:
            definitions: that a reference in it is looked up in, unless it has its own.
            around: the schemas that it is a part of.

        Raises:
            ValueError: as `written_out`.
        """
        self.schemas += 1
        require(self.schemas <= MAX_SCHEMAS, path, "...", f"one of {MAX_SCHEMAS} at most, written out")
        require(len(around) <= MAX_DEPTH, path, "...", f"nested at most {MAX_DEPTH} deep")
        kinds, around = check_schema(schema, path), (*around, schema)
        definitions = schema.get("$defs", schema.get("definitions", definitions))
        if "const" in schema or "enum" in schema:
            return {"enum": values_of_kinds(schema, kinds, path)}
        if "$ref" in schema:
            return self.expand(referred(schema["$ref"], definitions, around, f"{path}.$ref"), path, definitions, around)
        for key in ("anyOf", "allOf"):
            if key in schema:
                return {"anyOf": [self.expand(one, f"{path}.{key}[{i}]", definitions, around)
                                  for i, one in enumerate(schema[key])]}
        plain = {**schema, "type": kinds}
        if "array" in kinds:
            require("items" in schema, f"{path}.items", None, "given")
            plain["items"] = self.expand(schema["items"], f"{path}.items", definitions, around)
        plain["properties"] = {name: self.expand(one, f"{path}.properties.{name}", definitions, around)
                               for name, one in schema.get("properties", {}).items()}
        return plain


def referred(reference: Any, definitions: Any, around: tuple[Any, ...], path: str) -> Any:
    """The schema that a reference means.

    Raises:
        ValueError: there is none, or it is one that the reference is a part of.
    """
    require(definitions is None or isinstance(definitions, Mapping), path, definitions,
            "beside $defs that are an object")
    require(reference != "#", path, reference, NO_END)
    names = [*(definitions or {})]
    begin = next((b for b in REFERENCES if isinstance(reference, str) and reference.startswith(b)), None)
    require(begin is not None and reference.removeprefix(begin) in names, path, reference,
            f"{REFERENCES[0]} and one of {', '.join(names[:20]) or 'no names: there are no $defs'}")
    schema = definitions[reference.removeprefix(begin)]
    require(not any(one is schema for one in around), path, reference, NO_END)
    return schema


def values_of_kinds(schema: Mapping[str, Any], kinds: tuple[str, ...], path: str) -> list[Any]:
    """The values of const or enum that are of one of these types, or of any type if there are none.

    Raises:
        ValueError: there is no value, or one that is no text.
    """
    key = "enum" if "enum" in schema else "const"
    values = schema["enum"] if key == "enum" else [schema["const"]]
    for i, value in enumerate(values):
        require(is_text(dumps(value)), f"{path}.{key}[{i}]" if key == "enum" else f"{path}.{key}", value,
                "without half a surrogate pair")
    allowed = [value for value in values if not kinds or any(is_kind(value, kind) for kind in kinds)]
    require(bool(allowed), f"{path}.{key}", schema[key], f"of type {' or '.join(kinds)}")
    return allowed


def check_schema(schema: Any, path: str) -> tuple[str, ...]:
    """The types that a schema names, once it holds nothing that is not supported.

    Raises:
        ValueError: it does.
    """
    require(isinstance(schema, Mapping), path, schema, "an object")
    rest = sorted(schema.keys() - ANNOTATIONS)
    for key in rest:
        require(key in SUPPORTED, path, key, f"without this keyword; supported are {', '.join(sorted(SUPPORTED))}")
    chosen = [key for key in CHOOSERS if key in schema]
    beside = {"type"} if {*chosen} <= {"const", "enum"} else set()
    require(len(chosen) <= 1 and (not chosen or {*rest} <= {chosen[0], *beside}), path, rest,
            "const or enum alone or with a type, anyOf, allOf or $ref alone, or a type with its own keywords")
    for key in chosen:
        require(key in ("const", "$ref") or (isinstance(schema[key], list) and schema[key]), f"{path}.{key}",
                schema[key], "a list that is not empty")
    require("allOf" not in chosen or len(schema["allOf"]) == 1, f"{path}.allOf", "several schemas", "of one schema")
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
        require(is_int(low) and 0 <= low <= MAX_COUNT, f"{path}.{least}", low, f"an integer in [0, {MAX_COUNT}]")
        require(high is None or (is_int(high) and low <= high <= MAX_COUNT), f"{path}.{most}", high,
                f"an integer in [{low}, {MAX_COUNT}]")
    properties, required = schema.get("properties", {}), schema.get("required", [])
    require(isinstance(properties, Mapping), f"{path}.properties", properties, "an object")
    for name in properties:
        require(is_text(name), f"{path}.properties", name, "without half a surrogate pair")
    require(isinstance(required, list) and all(isinstance(name, str) and name in properties for name in required),
            f"{path}.required", required, "a list of names in properties")
    require(schema.get("additionalProperties", False) is False, f"{path}.additionalProperties",
            schema.get("additionalProperties"), "false or absent")


def is_kind(value: Any, kind: str) -> bool:
    """Whether a decoded value has the JSON type; true and false are no numbers, and 2.0 is an integer."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return {"object": isinstance(value, dict), "array": isinstance(value, list), "string": isinstance(value, str),
            "integer": number and (isinstance(value, int) or value.is_integer()), "number": number,
            "boolean": isinstance(value, bool), "null": value is None}[kind]


def dumps(value: Any) -> str:
    """The value as JSON text, in the form that the patterns have."""
    return json.dumps(value, ensure_ascii=False)
