"""A token may come if the text can still be completed after it: against `re`, `jsonschema` and `llguidance`."""

import enum
import json
import random
import re
import sys
from dataclasses import replace
from functools import cache
from threading import Thread
from typing import Literal

import jsonschema
import llguidance.numpy as masks
import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from openai import OpenAI
from pydantic import BaseModel, Field

from course_lib import grammar as grammar_module
from course_lib import token_mask
from course_lib.automaton import DEAD, MAX_WORK, Automaton, Work
from course_lib.byte_regex import complement, merged, parse_regex
from course_lib.checkpoint import load
from course_lib.config import SamplingParams, StructuredOutputsParams
from course_lib.drafts import DraftModel, PromptLookup
from course_lib.generate import generate, stream
from course_lib.grammar import GrammarCache, LogitsProcessor, build_grammar, grammar_for, logits_processor_for
from course_lib.json_schema import check_pattern, check_value, is_valid, object_pattern, schema_pattern
from course_lib.patterns import MAX_CODE_POINT, code_points, without
from course_lib.sampling import filter_logits
from course_lib.server import serve_in_background
from course_lib.token_mask import Grammar, TokenTree, token_tree
from course_lib.tokenizer import POCKET_PATTERN, Tokenizer, train_bpe
from course_lib.tool_calls import CLOSE, OPEN, parse_ids
from course_lib.tool_messages import call_schema, call_tag
from course_lib.tools import CALCULATOR, dictionary_tool
from course_lib.training.corpus import TOOLS

BYTES = {bytes([i]): i for i in range(256)}
TOKENIZERS = {
    "bytes": lambda: Tokenizer("bytes", POCKET_PATTERN, BYTES, {"<end>": 256}),
    "tiny": lambda: Tokenizer("tiny", POCKET_PATTERN, train_bpe(['{"name": "Zoë", "n": 12, "ok": true}, é€'] * 3, 300),
                              {"<end>": 400, "<tool_call>": 401}),
    "pocket": lambda: load().tokenizer,
}
ENDS = {"bytes": 256, "tiny": 400, "pocket": 4091}
REGEXES = [r"[0-9]{3}-[0-9]{4}", r"(cat|car|dog)s?", r"[^a-y]+", r"(?:é|€|[😀-😎])*x", r".*", r"[a-zé-ü ]{3,9}\n?",
           r"(a|b)*a(a|b){5}", r"(a*)*b", r"a||b", r"x{0}y", r"(?:ab?){2,}", r"[-+]?\d+(?:\.\d+)?",
           r"(?:(?:ab|c){2,4}x{3}){1,2}y{2,}", r"(?:a?b{0,2}){2,3}c", r"[a-cé]{20,45}x?"]
PERSON = {"type": "object", "required": ["name", "age"], "additionalProperties": False,
          "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}
OPTIONAL = {"type": "object", "required": ["b"], "additionalProperties": False,
            "properties": {"a": {"type": "number"}, "b": {"type": "boolean"},
                           "c": {"type": ["null", "string"], "maxLength": 4}, "d": {"enum": [1, 2]}}}
SCHEMAS = [PERSON, OPTIONAL, {"type": "string", "minLength": 2, "maxLength": 5}, {"type": "integer"},
           {"type": "number"}, {"type": "array", "items": {"enum": ["é", "bc", 3, None, {"x": [1, 2]}]}, "minItems": 1,
                                "maxItems": 4},
           {"anyOf": [{"type": "integer"}, {"const": "none"}]},
           {"type": "array", "items": {"type": "array", "items": {"type": "boolean"}}},
           {"type": ["integer", "string"], "enum": [1, "b", None, 2.5]}, {"type": "string", "const": "é"},
           {"type": "string", "minLength": 20, "maxLength": 3000},
           {"type": "array", "items": {"type": "array", "items": {"type": "null"}, "minItems": 2, "maxItems": 3},
            "minItems": 1, "maxItems": 2},
           {"$defs": {"Inner": {"type": "object", "required": ["x"], "additionalProperties": False,
                                "properties": {"x": {"$ref": "#/$defs/Color"}, "y": {"type": "integer"}}},
                      "Color": {"enum": ["red", "blue"], "type": "string"}},
            "type": "object", "required": ["c", "d"], "additionalProperties": False,
            "properties": {"c": {"$ref": "#/$defs/Inner"}, "d": {"allOf": [{"$ref": "#/$defs/Color"}]}}}]


@cache
def tokenizer_of(name):
    return TOKENIZERS[name]()


@cache
def automaton_of(pattern):
    return Automaton(parse_regex(pattern))


@cache
def schema_automaton(text):
    return Automaton(schema_pattern(json.loads(text)))


SHARED = r"([a-z ]*(a|é|12|, )[a-z ]{0,9}){2,4}(x|y.{3})"


def matches(automaton, text):
    return automaton.accepts(automaton.read(automaton.start, text.encode()))


# --- the automaton ------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", [*REGEXES, r"[^é-ü]{2,3}", r".{3}", r"[a-c\d]+\.\d{2,}", "", r"\x41\u00e9", r"[-a]",
                                     r"[a-]", r"[^\n]*", r"\w\s\S\D", r"\0[\0a]\x0A", r"(?:(?:a|b)c){1,2}|\(\)",
                                     r"\U0001F600"])
@given(data=st.data())
@settings(max_examples=40)
def test_a_regex_means_what_it_means_in_python(pattern, data):
    known = st.from_regex(re.compile(pattern, re.ASCII), fullmatch=True)
    text = data.draw(known | st.text("abcdogxé€😀ü0.A-\n9() s", max_size=7))
    assert matches(automaton_of(pattern), text) == (re.fullmatch(pattern, text, re.ASCII) is not None)


@pytest.mark.parametrize("pattern, named", {
    "(a": "a missing )", "a)": "unopened )", "[a": "a missing ]", "a**": "quantifier * after", "a+?": "? after",
    "^a": "the anchor ^", "a$": "the anchor $", r"\b": r"escape \b", r"(a)\1": r"escape \1", r"\p{L}": r"escape \p",
    "(?=a)": "group (?=", "(?<n>a)": "group (?<", "(?i:a)": "group (?i", "[]": "] in a class",
    r"[^\s\S]": "a class of no character", "a{3,2}": "counts are not in order", "a{2": "quantifier '{2'",
    "*a": "nothing to repeat", "[z-a]": "a range", "\\": "a lone backslash", r"\xg1": r"escape \x",
    "[[:alpha:]]": "[: in a class", "(" * 70: "nesting deeper than 60", "a{99999}": "counts up to",
    "[a-\\d]": "a range", "[\\ud800]": "a class of no character", "a{1,2}{3}": "quantifier { after",
    "a{000000000999999999}": "counts up to", r"\012": r"the octal escape \01", r"a\09": r"the octal escape \09",
    "\\x\uff14\uff11": r"escape \x", "\\u00_1": r"escape \u", "\\U00110000": r"escape \U",
}.items())
def test_what_an_expression_cannot_have_is_named(pattern, named):
    with pytest.raises(ValueError, match=f"{re.escape(named)}.*is not allowed"):
        parse_regex(pattern)


def test_of_a_long_expression_the_part_with_the_mistake_is_shown():
    with pytest.raises(ValueError, match=r"regex 'a{40}\^b{39}', character 9000: the anchor \^") as caught:
        parse_regex("a" * 9000 + "^" + "b" * 9000)
    assert len(str(caught.value)) < 250


def test_a_pattern_that_grows_too_large_is_refused():
    large = "|".join(f"[{chr(0x4E00 + i)}-{chr(0x6E00 + i)}]x{{2}}" for i in range(9000))
    with pytest.raises(ValueError, match="the pattern is too large: must have at most 65536 places"):
        Automaton(parse_regex(large))


@pytest.mark.parametrize("pattern", ["((){300}){300}", "((a{0}){300}){300}", "(((){10000}){10000}){10000}",
                                     "(((a?b{9}){10000}){0,10000}){0,10000}", "|".join("." * 9000)])
def test_nothing_is_written_out_many_times(pattern):
    automaton = Automaton(parse_regex(pattern))
    assert len(automaton.targets) < 40 and matches(automaton, "") is ("." not in pattern)


def test_counts_are_kept_apart_however_large_they_are():
    automaton = Automaton(parse_regex("(?:(?:a{3}|b){2}c){2,10000}"))
    assert matches(automaton, "aaabcbbc" * 2) and not matches(automaton, "aaabcbbbc") and len(automaton.targets) < 20
    thousands = automaton.read(automaton.start, b"bbc" * 9999)
    assert automaton.accepts(thousands) and not automaton.read(thousands, b"bbcb")


def letters_that_may_be_left_out(times):
    return "(" + "".join(f"{letter}?" for letter in "abcdefghijklmnopqrstuvwxyz ") + f"){{{times}}}"


@pytest.mark.parametrize("pattern", [letters_that_may_be_left_out(100), "((a?){10000}){10000}", "(a?){9000}" * 60])
def test_a_pattern_with_too_many_ways_to_go_on_is_refused_when_it_is_built_and_only_once(pattern, monkeypatch):
    built, cache = [], GrammarCache()
    monkeypatch.setattr(cache, "build", lambda *key: built.append(key) or GrammarCache.build(cache, *key))
    for _ in range(3):
        with pytest.raises(ValueError, match="the pattern is too ambiguous"):
            cache.get(StructuredOutputsParams(regex=pattern), tokenizer_of("pocket"))
    assert len(built) == 1


def test_others_get_a_turn_while_a_grammar_is_built(monkeypatch):
    rests = []
    monkeypatch.setattr("course_lib.automaton.time.sleep", rests.append)
    with pytest.raises(ValueError, match="the pattern is too ambiguous"):
        build_grammar(StructuredOutputsParams(regex=letters_that_may_be_left_out(100)), tokenizer_of("pocket"))
    assert 30 <= len(rests) <= 41 and {*rests} == {0.001}, "after every 5,000 of 200,000"
    rests.clear()
    build_grammar(CALL_FORMS["call"], tokenizer_of("pocket"))
    assert rests == [], "an ordinary one is built in one go"


def test_building_is_work(monkeypatch):
    monkeypatch.setattr("course_lib.automaton.MAX_BUILD_WORK", 100)
    assert matches(Automaton(parse_regex("a{3}")), "aaa")
    with pytest.raises(ValueError, match="the pattern is too ambiguous"):
        Automaton(parse_regex("abcdefgh" * 20))


def test_all_masks_of_a_request_share_one_limit():
    """Which grows with each token, and copies share it."""
    processor = processor_of("bytes", regex=r".*a.{300}", ends={256})
    with pytest.raises(ValueError, match="the pattern is too ambiguous"):
        for i in range(2000):
            twin = processor.copy()
            assert (twin if i % 2 else processor).allowed(257)[97] and twin.work is processor.work
            before = processor.work.left
            processor.advance(97)
            assert processor.work.left == before + grammar_module.WORK_PER_TOKEN
            processor.work.left -= 10_000
    assert processor_of("bytes", regex=r".*a.{300}").work.left == MAX_WORK, "the next one begins anew"


def test_after_too_much_work_an_automaton_is_still_right():
    pattern = r"(a|é|12|, )*a(a|b){5}"
    steady, limited = (Grammar(parse_regex(pattern), token_tree(tokenizer_of("tiny"))) for _ in range(2))
    start, refused = steady.automaton.start, 0
    for work in range(0, 400, 7):
        try:
            limited.mask(start, Work(work))
        except ValueError:
            refused += 1
    assert refused > 3 and limited.mask(start).equal(steady.mask(start))
    assert limited.automaton.read(start, b"12, ab") == steady.automaton.read(start, b"12, ab")


@pytest.mark.parametrize("pattern", REGEXES)
def test_states_that_are_alike_have_one_mask(pattern):
    """As the mask of each state by itself, along random texts."""
    tree, rng = token_tree(tokenizer_of("tiny")), random.Random(0)
    grammar, alone = (Grammar(parse_regex(pattern), tree) for _ in range(2))
    alone.automaton.like = lambda places, n: places
    for _ in range(4):
        places = grammar.automaton.start
        for _ in range(40):
            mask = grammar.mask(places)
            assert mask.equal(alone.mask(places))
            if not mask.any():
                break
            places = grammar.read(places, tree.symbols[rng.choice(mask.nonzero()[:, 0].tolist())])


def test_in_a_long_string_most_masks_are_known():
    processor = processor_of("tiny", json={"type": "string", "minLength": 900, "maxLength": 5000})
    for byte in b'"' + b"a" * 4000:
        assert processor.allowed(402)[byte]
        processor.advance(byte)
    assert len(processor.grammar.masks) < 50


def test_threads_may_share_a_grammar():
    """Each mask is that of a grammar of its own, whatever the others do at the same time."""
    tree, switch = token_tree(tokenizer_of("pocket")), sys.getswitchinterval()
    grammar, wrong = Grammar(parse_regex(SHARED), tree), []

    def write(seed):
        rng, processor = random.Random(seed), LogitsProcessor(grammar, {4091})
        try:
            for _ in range(25):
                processor.advance(rng.choice([i for i in processor.allowed(4096).nonzero()[:, 0].tolist() if i < 4091]))
        except (ValueError, IndexError) as error:
            wrong.append(error)

    sys.setswitchinterval(1e-5)
    try:
        threads = [Thread(target=write, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch)
    alone = Grammar(parse_regex(SHARED), tree)
    assert wrong == [] and len(grammar.masks) > 10
    assert all(mask.equal(alone.mask(places)) for places, mask in grammar.masks.items())


def test_what_a_grammar_remembers_is_bounded(monkeypatch):
    monkeypatch.setattr(token_mask, "MAX_GRAMMAR_BYTES", 400_000)
    grammar = Grammar(parse_regex(".*a[ab]{2000}"), token_tree(tokenizer_of("bytes")))
    processor, rng, most = LogitsProcessor(grammar, {256}), random.Random(0), 0
    processor.work = Work()
    for _ in range(300):
        processor.allowed(257)
        processor.advance(rng.choice(b"ab"))
        most = max(most, grammar.nbytes)
    assert 300_000 < most < 700_000, "up to the limit, and one mask more"


def test_what_all_grammars_take_is_bounded(monkeypatch):
    forms = [StructuredOutputsParams(regex=f"[ab]*a[ab]{{{n}}}") for n in range(100)]
    monkeypatch.setattr(grammar_module, "MAX_CACHE_BYTES", 10**6)
    cache = GrammarCache()
    grammars = [cache.get(form, tokenizer_of("bytes")) for form in forms]
    kept = [one for one in grammars if one in cache.known.values()]
    assert 2 < len(kept) < 20 and kept == grammars[-len(kept):] and sum(one.nbytes for one in kept) <= 10**6
    cache.get(forms[-len(kept)], tokenizer_of("bytes"))  # the oldest becomes the latest
    cache.get(forms[0], tokenizer_of("bytes"))
    assert kept[0] in cache.known.values() and kept[1] not in cache.known.values()
    monkeypatch.setattr(grammar_module, "MAX_CACHE_BYTES", 10**9)
    for form in forms:
        cache.get(form, tokenizer_of("bytes"))
    assert len(cache.known) == grammar_module.MAX_GRAMMARS


def test_a_known_grammar_is_found_while_another_is_built():
    cache, form = GrammarCache(), StructuredOutputsParams(regex="a")
    known, found = cache.get(form, tokenizer_of("bytes")), []
    with cache.building:
        thread = Thread(target=lambda: found.append(cache.get(form, tokenizer_of("bytes"))), daemon=True)
        thread.start()
        thread.join(20)
    assert found == [known]


def test_every_character_is_its_bytes_and_no_surrogate_is_one():
    borders = [0, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, MAX_CODE_POINT]
    rng = random.Random(0)
    for _ in range(60):
        first, last = sorted(rng.choice(borders) + rng.choice([0, 0, 1, 77]) for _ in range(2))
        automaton = Automaton(code_points([(first, min(last, MAX_CODE_POINT))]))
        for code in {*borders, first, last, (first + last) // 2, max(first - 1, 0), last + 1} - {MAX_CODE_POINT + 1}:
            if code <= MAX_CODE_POINT and not 0xD800 <= code <= 0xDFFF:
                assert matches(automaton, chr(code)) == (first <= code <= last), (first, last, code)
    everything = Automaton(code_points([(0, MAX_CODE_POINT)]))
    for broken in (b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\x80", b"\xff"):
        assert everything.read(everything.start, broken) == frozenset()
    assert merged(complement(complement([(3, 5), (9, 9)]))) == [(3, 5), (9, 9)]


def test_the_automaton_may_forget_at_any_time(monkeypatch):
    tokenizer = tokenizer_of("tiny")
    grammar = Grammar(parse_regex(r"(a|é|12|, )*a(a|b){5}"), token_tree(tokenizer))
    monkeypatch.setattr(token_mask, "MAX_GRAMMAR_BYTES", 0)
    steady = Grammar(parse_regex(r"(a|é|12|, )*a(a|b){5}"), token_tree(tokenizer))
    one, other, rng = LogitsProcessor(grammar, {400}), LogitsProcessor(steady, {400}), random.Random(0)
    for _ in range(60):
        allowed = one.allowed(402)
        monkeypatch.setattr(token_mask, "MAX_GRAMMAR_BYTES", 10**9)
        assert allowed.equal(other.allowed(402))
        monkeypatch.setattr(token_mask, "MAX_GRAMMAR_BYTES", 0)
        token_id = rng.choice([i for i in allowed.nonzero()[:, 0].tolist() if i != 400] or [400])
        one.advance(token_id)
        other.advance(token_id)
    assert steady.automaton.table[DEAD].max() == DEAD


# --- schemas ------------------------------------------------------------------------------------


def values_of(schema):
    """Random values that a schema allows, and that `json.dumps` writes in the schema's order."""
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        return st.sampled_from([value for value in values if jsonschema.Draft202012Validator(schema).is_valid(value)])
    if "$ref" in schema:
        return values_of(DEFINITIONS[schema["$ref"].rpartition("/")[2]])
    for key in ("anyOf", "allOf"):
        if key in schema:
            return st.one_of(*map(values_of, schema[key]))
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return st.one_of(*(values_of_kind(kind, schema) for kind in kinds))


def values_of_kind(kind, schema):
    text = st.text(st.characters(exclude_categories=["Cs"]), min_size=schema.get("minLength", 0),
                   max_size=schema.get("maxLength"))
    whole = st.integers(1 - 10**19, 10**19 - 1)
    real = st.floats(-1e99, 1e99).filter(lambda x: x == 0 or abs(x) >= 1e-99)  # two digits of an exponent
    scalars = {"string": text, "integer": whole, "boolean": st.booleans(), "null": st.none(), "number": whole | real}
    if kind in scalars:
        return scalars[kind]
    if kind == "array":
        return st.lists(values_of(schema["items"]), min_size=schema.get("minItems", 0),
                        max_size=schema.get("maxItems", 4))
    members, required = schema.get("properties", {}), schema.get("required", ())
    parts = {name: st.sampled_from([1] if name in required else [0, 1]).flatmap(
        lambda n, one=one: st.lists(values_of(one), min_size=n, max_size=n)) for name, one in members.items()}
    return st.fixed_dictionaries(parts).map(lambda drawn: {name: drawn[name][0] for name in members if drawn[name]})


DEFINITIONS = {"Color": {"type": "string", "enum": ["red", "é", "blue"]}, "Short": {"type": "string", "maxLength": 1},
               "Pair": {"type": "object", "properties": {"a": {"$ref": "#/$defs/Color"}, "b": {"type": "integer"}},
                        "required": ["a"]}}
REFERENCES = [{"$ref": f"#/$defs/{name}"} for name in DEFINITIONS]


def schemas(depth=2):
    """Random schemas of the kinds that are supported; in each, references to `DEFINITIONS`."""
    return parts_of_schemas(depth).map(lambda schema: schema | {"$defs": DEFINITIONS})


def parts_of_schemas(depth):
    """What schemas consist of."""
    scalar = st.sampled_from([{"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "boolean"},
                              {"type": "null"}, {"type": ["integer", "null"]}, {"const": "a\"b"}, {"const": 1.5},
                              {"enum": [True, "é", {"k": [None]}]}, {"type": "string", "maxLength": 2},
                              {"type": "string", "enum": [1, "é", None]}, {"type": "integer", "enum": [True, 2, 2.5]},
                              {"type": ["null", "object"], "enum": [None, {"a": 1}, []]},
                              {"type": "number", "const": 0},
                              {"type": "string", "minLength": 3, "maxLength": 700}, *REFERENCES,
                              {"allOf": REFERENCES[:1], "description": "a color"}])
    if not depth:
        return scalar
    inner = parts_of_schemas(depth - 1)
    sizes = st.tuples(st.integers(0, 2), st.integers(2, 3))
    arrays = st.builds(lambda items, size: {"type": "array", "items": items, "minItems": size[0], "maxItems": size[1]},
                       inner, sizes)
    objects = st.dictionaries(st.sampled_from(["a", "é", "b c", '"']), inner, max_size=3).flatmap(
        lambda members: st.lists(st.sampled_from(sorted(members)), unique=True).map(
            lambda required: {"type": "object", "properties": members, "required": required})
        if members else st.just({"type": "object", "properties": {}, "required": []}))
    return scalar | arrays | objects | st.lists(inner, min_size=1, max_size=2).map(lambda some: {"anyOf": some})


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_every_value_of_a_schema_is_accepted_however_it_is_cut_into_tokens(data):
    schema = data.draw(schemas())
    value = data.draw(values_of(schema))
    check_value(value, schema)
    tokenizer, rng = tokenizer_of("tiny"), random.Random(data.draw(st.integers(0, 99)))
    processor = LogitsProcessor(Grammar(schema_pattern(schema), token_tree(tokenizer)), {400})
    text, place = json.dumps(value, ensure_ascii=False).encode(), 0
    while place < len(text):
        token = rng.choice([token for token in tokenizer.mergeable_ranks if text.startswith(token, place)])
        assert processor.allowed(402)[tokenizer.mergeable_ranks[token]]
        processor.advance(tokenizer.mergeable_ranks[token])
        place += len(token)
    assert processor.allowed(402)[400]


@given(st.text(st.characters(exclude_categories=["Cs"])), st.randoms())
def test_a_string_may_be_spelled_with_any_escapes(text, rng):
    def spell(c):
        if rng.random() < 0.5 and ord(c) < 0x10000:
            return f"\\u{ord(c):04{rng.choice('xX')}}"
        return json.dumps(c, ensure_ascii=rng.random() < 0.5)[1:-1]

    spelled = "".join(map(spell, text))
    assert json.loads(f'"{spelled}"') == text
    assert matches(schema_automaton('{"type": "string"}'), f'"{spelled}"')


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_whatever_the_mask_lets_through_parses_and_validates(data):
    schema = data.draw(schemas())
    tokenizer = tokenizer_of("tiny")
    processor = LogitsProcessor(Grammar(schema_pattern(schema), token_tree(tokenizer)), {400})
    taken, rng = [], random.Random(data.draw(st.integers(0, 10**6)))
    for number in range(300):
        allowed = processor.allowed(402).nonzero()[:, 0].tolist()
        assert allowed, "a dead end"
        closing = [i for i in allowed if i == 400 or tokenizer.decode_single_token_bytes(i) in (b'"', b"}", b"]")]
        taken.append(rng.choice(closing if number > 25 and closing else allowed))
        processor.advance(taken[-1])
        if taken[-1] == 400:
            break
    if taken[-1] == 400:
        value = json.loads(tokenizer.decode_bytes(taken[:-1]).decode("utf-8", "strict"))
        check_value(value, schema)
        jsonschema.validate(value, closed(schema))


def closed(schema):
    """The schema with additionalProperties: false, which ours means by saying nothing."""
    schema = {key: [closed(one) for one in value] if key in ("anyOf", "allOf") else closed(value) if key == "items"
              else {name: closed(one) for name, one in value.items()} if key in ("properties", "$defs") else value
              for key, value in schema.items()}
    return schema | ({"additionalProperties": False} if "object" in schema.get("type", ()) and "enum" not in schema
                     else {})


ANY_SCALAR = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([1.0, 1.5, "", "é", "aaa", 'a"b'])
ANY_JSON = st.recursive(ANY_SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
    st.sampled_from(["a", "é", "b c", '"']), inner, max_size=3), max_leaves=5)


@given(schemas(), ANY_JSON)
@settings(max_examples=150)
@example({"type": "integer"}, True)
@example({"enum": [1]}, True)
@example({"type": "integer"}, 2.0)
@example({"type": "integer"}, 1.5)
@example({"type": ["integer", "null"]}, 1.5)
@example({"type": "string", "enum": [1, "a"]}, 1)
@example({"type": "integer", "enum": [1, 2.0, True]}, True)
def test_a_value_is_checked_as_jsonschema_checks_it(schema, value):
    if not (isinstance(value, float) and schema == {"const": 1.0}):
        assert is_valid(value, schema) == jsonschema.Draft202012Validator(closed(schema)).is_valid(value)


@pytest.mark.parametrize("text", ['{"name": "a", "age": 1, "more": 2}', '{"age": 1, "name": "a"}', '{"name": "a"}',
                                  '{"name":"a","age":1}', '{"name": "a", "age": 1.5}', '{"name": "\n", "age": 1}',
                                  '{"name": "\\x", "age": 1}', '{"name": "\\ud800", "age": 1}',
                                  '{"name": "a", "age": 01}', '{"name": "a", "age": 1} '])
def test_what_is_no_such_json_is_not_accepted(text):
    assert not matches(schema_automaton(json.dumps(PERSON)), text)


@pytest.mark.parametrize("schema, named", [
    ({"type": "object", "properties": {"a": {"$ref": "#"}}}, r"schema.properties.a.\$ref = '#' .* without recursion"),
    ({"$ref": "#/$defs/A", "$defs": {"A": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/A"}]}}},
     r"schema.anyOf\[1\].\$ref = '#/\$defs/A' .* without recursion"),
    ({"$ref": "#/$defs/B", "$defs": {"A": {"type": "null"}}}, r"schema.\$ref = '#/\$defs/B' .* #/\$defs/ and one of A"),
    ({"$ref": "other.json"}, r"schema.\$ref = 'other.json' .* there are no \$defs"), ({"$ref": 3}, r"schema.\$ref = 3"),
    ({"$ref": "#/$defs/A", "$defs": 3}, r"schema.\$ref = 3"),
    ({"type": "string", "enum": [1, 2]}, r"schema.enum = \[1, 2\] .* of type string"),
    ({"type": "integer", "const": "a"}, r"schema.const = 'a' .* of type integer"),
    ({"type": "string", "anyOf": [{"type": "string"}]}, r"anyOf, allOf or \$ref alone"),
    ({"allOf": [{"type": "null"}, {"type": "null"}]}, "schema.allOf = 'several schemas'"),
    ({"enum": ["a", "\ud800"]}, r"schema.enum\[1\] = '\\ud800'"), ({"const": {"\udc00": 1}}, "schema.const = "),
    ({"type": "object", "properties": {"\ud800": {"type": "null"}}}, r"schema.properties = '\\ud800'"),
    ({"type": "string", "maxLength": 2**31}, "schema.maxLength = 2147483648 .* in \\[0, 2147483647\\]"),
    ({"type": "string", "pattern": "a"}, "pattern"), ({"type": "integer", "minimum": 3}, "minimum"),
    ({"type": "object", "patternProperties": {}}, "patternProperties"), ({"type": "date"}, "schema.type = 'date'"),
    ({"oneOf": [{"type": "null"}]}, "schema = 'oneOf'"), ({}, "schema.type = None"), ([], r"schema = \[\]"),
    ({"type": "array"}, "schema.items"), ({"type": "object", "additionalProperties": True}, "additionalProperties"),
    ({"type": "object", "required": ["b"]}, "schema.required"), ({"enum": []}, "schema.enum"),
    ({"const": 1, "enum": [1]}, "const or enum alone or with a type"),
    ({"type": "string", "minLength": 3, "maxLength": 2}, "schema.maxLength"),
    ({"anyOf": [{"type": "nul"}]}, r"schema.anyOf\[0\].type"), ({"type": "string", "items": {}}, "items"),
])
def test_what_a_schema_cannot_have_is_named_with_its_place(schema, named):
    with pytest.raises(ValueError, match=named):
        schema_pattern(schema)


def test_a_schema_that_nests_without_end_is_refused():
    schema = {"type": "null"}
    for _ in range(40):
        schema = {"type": "array", "items": schema}
    with pytest.raises(ValueError, match="nested at most 30 deep"):
        schema_pattern(schema)


def test_references_that_double_again_and_again_are_refused():
    schema = {"$defs": {f"A{i}": {"anyOf": [{"$ref": f"#/$defs/A{i + 1}"}] * 2} for i in range(14)}}
    schema = {"$ref": "#/$defs/A0", "$defs": schema["$defs"] | {"A14": {"type": "null"}}}
    with pytest.raises(ValueError, match="must be one of 10000 at most, written out"):
        schema_pattern(schema)


def test_a_reference_is_looked_up_in_the_definitions_nearest_around_it():
    """So the parameters of a tool may have their own, wherever they stand."""
    def with_definition(value, other):
        return {"$defs": {"A": {"const": value}}, "anyOf": [{"$ref": "#/$defs/A"}, other]}

    inner = with_definition("inner", {"type": "null"})
    schema = with_definition("outer", {"type": "array", "items": inner})
    for value in ("outer", ["inner"], [None]):
        check_value(value, schema)
        assert matches(Automaton(schema_pattern(schema)), json.dumps(value))
    assert not is_valid("inner", schema) and not is_valid(["outer"], schema)


def test_a_definition_may_be_used_often_and_say_why_a_value_is_none_of_it():
    color = {"$ref": "#/$defs/Color"}
    schema = {"type": "object", "properties": {"a": color, "b": {"allOf": [color]}}, "$defs": DEFINITIONS}
    with pytest.raises(ValueError, match=r"value.b = 'green' is not allowed: must be one of \[\"red"):
        check_value({"a": "red", "b": "green"}, schema)
    definitions = {"definitions": DEFINITIONS, "$ref": "#/definitions/Short"}  # as drafts before 2019 name them
    assert is_valid("a", definitions) and not is_valid("ab", definitions)


@pytest.mark.parametrize("kind, last", [("integer", "9" * 19), ("number", "9" * 19 + "." + "1" * 20 + "e+99")])
def test_a_number_ends_and_is_finite(kind, last):
    """The longest one that may be written is a number to Python, and no digit may follow."""
    automaton = schema_automaton(json.dumps({"type": kind}))
    after = automaton.read(automaton.start, b"-" + last.encode())
    assert automaton.accepts(after) and abs(json.loads(last)) < 1e120
    assert not automaton.read(after, b"0") and matches(automaton, str(-2**63)) and matches(automaton, str(2**63 - 1))


def test_a_greedy_model_cannot_write_digits_for_ever(lm):
    params = SamplingParams(temperature=0, max_tokens=60, structured_outputs=StructuredOutputsParams(
        json={"type": "object", "required": ["x"], "properties": {"x": {"type": "integer"}}}))
    output = generate(lm, "What is -4000000000000000 times 1000000000?", params)
    assert output.finish_reason == "stop" and isinstance(json.loads(output.text)["x"], int)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.recursive(
    ANY_SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("aé\"\\"), inner, max_size=3),
    max_leaves=6)))
@settings(max_examples=200)
def test_any_object_that_does_not_nest_too_deep_may_be_written(value):
    assert matches(object_automaton(), json.dumps(value, ensure_ascii=False)) == (depth_of(value) <= 5)
    assert matches(object_automaton(), json.dumps(value)) == (depth_of(value) <= 5)


@cache
def object_automaton():
    return Automaton(object_pattern())


def depth_of(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


@pytest.mark.parametrize("text", ["[]", "1", '{"a": [[[[1]]]]} ', '{"a": [[[[[1]]]]]}', '{"a":1}', "{'a': 1}",
                                  '{"a": 01}',
                                  '{"a": 1,}', '{"a": 1, }', '{1: 2}', '{"a": [1}]', "{}{}"])
def test_what_is_no_object_or_too_deep_is_not_written(text):
    assert not matches(object_automaton(), text) and matches(object_automaton(), '{"a": [[[[1]]]]}')


@pytest.mark.parametrize("required", [False, True])
def test_a_schema_of_a_thousand_members(required):
    """They neither nest nor are written out once for each that may come first."""
    schema = {"type": "object", "properties": {f"a{i}": {"const": 0} for i in range(1100)}}
    schema["required"] = list(schema["properties"]) if required else []
    automaton = Automaton(schema_pattern(schema))
    whole = json.dumps({name: 0 for name in schema["properties"]})
    assert matches(automaton, whole) and matches(automaton, '{"a3": 0, "a1099": 0}') is not required
    assert not matches(automaton, '{"a3": 0, "a2": 0}') and not matches(automaton, '{, "a2": 0}')


def test_parameters_of_which_there_is_no_grammar_are_told():
    letters = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 100_000}}}
    check_pattern(letters, "f.parameters")
    many = {"type": "array", "items": {"enum": [f"{i:0100}" for i in range(900)]}}
    with pytest.raises(ValueError, match="parameters is not allowed: the pattern is too large"):
        check_pattern(many, "f.parameters")
    with pytest.raises(ValueError, match=r"f\.parameters = 'pattern'"):
        check_pattern({"type": "string", "pattern": "a"}, "f.parameters")


# --- the mask, against llguidance ---------------------------------------------------------------


class Wrapped:
    """A tokenizer as `TokenizerWrapper` wants it."""

    bos_token_id = None

    def __init__(self, name):
        self.tokenizer, self.eos_token_id = tokenizer_of(name), ENDS[name]
        self.tokens = [self.tokenizer.decode_single_token_bytes(i) for i in range(max(self.tokenizer.ids) + 1)]
        self.special_token_ids = sorted(self.tokenizer.special_tokens.values())

    def __call__(self, text):
        return self.tokenizer.encode(text if isinstance(text, str) else text.decode("utf-8", "replace"))


@cache
def oracle_tokenizer(name):
    return LLTokenizer(TokenizerWrapper(Wrapped(name)), n_vocab=max(tokenizer_of(name).ids) + 1, eos_token=ENDS[name],
                       slices=[])


def oracle_mask(matcher, n_vocab):
    bits = masks.allocate_token_bitmask(1, n_vocab)
    masks.fill_next_token_bitmask(matcher, bits)
    return np.unpackbits(bits.view(np.uint8), bitorder="little")[:n_vocab].astype(bool)


def differences(name, structured, oracle, walks=3, steps=40, likely=()):
    """What one allows and the other does not, as pairs of a beginning and a token; and the beginnings of random walks
    that were compared.

    Args:
        likely: sets of tokens. Every other one comes from the first of them that has any that may come.
    """
    tokenizer, end, rng = tokenizer_of(name), ENDS[name], random.Random(0)
    n_vocab, found, seen = max(tokenizer.ids) + 1, set(), []
    for _ in range(walks):
        # no_forcing: where only one text can follow, llguidance would allow only that text's own tokenization
        matcher = LLMatcher(oracle_tokenizer(name), '%llguidance {"no_forcing": true}\nstart: ' + oracle)
        assert not matcher.get_error()
        processor, text = LogitsProcessor(grammar_for(structured, tokenizer), {end}), b""
        for _ in range(steps):
            ours, theirs = processor.allowed(n_vocab).numpy(), oracle_mask(matcher, n_vocab)
            found |= {(text, tokenizer.decode_single_token_bytes(int(i))) for i in np.flatnonzero(ours != theirs)}
            seen.append(text)
            both = np.flatnonzero(ours & theirs)
            assert len(both), f"after {text} nothing is allowed by both"
            if likely and rng.random() < 0.5:
                both = next((some for ids in likely if len(some := np.intersect1d(both, ids))), both)
            token_id = int(rng.choice(both))
            if token_id == end:
                break
            processor.advance(token_id)
            matcher.consume_token(token_id)
            text += tokenizer.decode_single_token_bytes(token_id)
    return found, seen


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("pattern", REGEXES)
def test_masks_of_regexes_are_llguidances(name, pattern):
    oracle = "R\nR: /(" + pattern.replace("/", r"\/").replace(r"\d", "[0-9]") + ")/"
    found, seen = differences(name, StructuredOutputsParams(regex=pattern), oracle)
    assert found == set() and len(seen) >= 3


def oracle_json(schema):
    """llguidance's rule for a schema, with the white space of ours."""
    space = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
    return "%json " + json.dumps({**schema, "x-guidance": space})


def is_known(beginning, token):
    """Whether the token is one that JSON allows in a string and llguidance does not: the character DEL itself, the
    escape of a slash, and \\u with the number of a character that needs no escape. Or makes a number longer than ours
    may be."""
    return (b"\x7f" in token or b"\\/" in beginning[-1:] + token
            or re.search(rb"\\u[0-9a-fA-F]", beginning[-5:] + token) is not None
            or re.search(rb"\d{20}|\.\d{21}|\d[eE][+-]?\d{3}", beginning[-25:] + token) is not None)


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: json.dumps(schema)[:30])
def test_masks_of_schemas_are_llguidances(name, schema):
    found, seen = differences(name, StructuredOutputsParams(json=schema), oracle_json(schema))
    assert {pair for pair in found if not is_known(*pair)} == set()
    assert len(seen) >= 3


CALLED = {tool.name: tool.schema for tool in (CALCULATOR, dictionary_tool({}))}
ONE_CALL = call_tag([*CALLED.values()])
TEXT_FIRST = {"type": "sequence", "elements": [{"type": "any_text"}, json.loads(ONE_CALL.structural_tag)["format"]]}
CALL_FORMS = {"call": ONE_CALL, "call | TEXT": call_tag([*CALLED.values()], text=True),
              "TEXT call": StructuredOutputsParams(structural_tag={"format": TEXT_FIRST})}


@pytest.mark.parametrize("name, form", [*((name, form) for name in ("pocket", "tiny") for form in CALL_FORMS),
                                        ("bytes", "call")])
def test_masks_of_calls_are_llguidances(name, form):
    """A call of one of the two tools; or text in its place; or text in front of it.

    `pocket` has control tokens for both tags, "tiny" for the first, "bytes" for none: there the tags are letters. Left
    out are letters as tags beside free text, which may hold the same letters, and what `is_known` names. So that
    walks come to the end of a call, they often open one, and often write a quote."""
    tokenizer, control = tokenizer_of(name), tokenizer_of(name).special_tokens
    begin, end = (tag if tag in control else json.dumps(tag) for tag in (OPEN, CLOSE))
    rules = [f'{tool}: {begin} "\\n" {oracle_json(closed(call_schema(schema["function"])))} "\\n" {end}'
             for tool, schema in CALLED.items()]
    oracle = "\n".join([form, f"call: {' | '.join(CALLED)}", *rules, r"TEXT: /(.|\n)*/"])
    opening = [control[OPEN]] if OPEN in control else []
    quotes = [i for i in tokenizer.ids if b'"' in tokenizer.decode_single_token_bytes(i)]
    found, seen = differences(name, CALL_FORMS[form], oracle, walks=40, steps=90, likely=[opening, quotes])
    assert {pair for pair in found if not is_known(*pair)} == set()
    whole = b" ".join(text for text in seen if text.endswith(CLOSE.encode()))
    assert all(f'"name": "{tool}"'.encode() in whole for tool in CALLED)
    assert "TEXT" not in form or any(text and OPEN.encode() not in text for text in seen)


def test_the_places_where_llguidance_differs():
    """And a surrogate, which is no character, is never without its other half."""
    automaton = schema_automaton('{"type": "string"}')
    for text in ('"\x7f"', r'"\/"', r'"\u0041"', r'"\ud83d\ude00"'):
        matcher = LLMatcher(oracle_tokenizer("bytes"), "start: " + oracle_json({"type": "string"}))
        assert matches(automaton, text) and matcher.validate_tokens([*text.encode()]) < len(text)
    processor = processor_of("bytes", json={"type": "string"})
    for byte in b'"\\ud800':
        processor.advance(byte)
    assert processor.allowed(257).nonzero()[:, 0].tolist() == [ord("\\")]


# --- processors ---------------------------------------------------------------------------------


def processor_of(name="tiny", ends=None, **structured):
    return logits_processor_for(SamplingParams(structured_outputs=StructuredOutputsParams(**structured)),
                                tokenizer_of(name), {ENDS[name]} if ends is None else ends)


def test_the_end_token_is_allowed_exactly_where_the_text_is_complete():
    processor = processor_of("bytes", regex="ab?")
    seen = []
    for byte in b"ab":
        seen.append(bool(processor.allowed(257)[256]))
        processor.advance(byte)
    assert [*seen, processor.allowed(257).nonzero()[:, 0].tolist()] == [False, True, [256]]


def test_special_tokens_and_ids_without_a_token_are_never_content():
    processor = processor_of("tiny", regex=r"(?:.|\n)*")
    allowed = processor.allowed(410)
    assert allowed[400] and not allowed[401:].any() and allowed[ord("a")]
    assert not allowed[len(tokenizer_of("tiny").mergeable_ranks) : 400].any()


@pytest.mark.parametrize("sizes", [(402, 410, 300), (300, 410, 402)])
def test_a_models_vocabulary_may_be_padded_or_cut(sizes):
    masks_of = {size: processor_of("tiny", regex="[a-f]+").allowed(size) for size in sizes}
    assert all(len(mask) == size and mask.nonzero().equal(masks_of[300].nonzero()) for size, mask in masks_of.items())


def test_an_end_id_that_is_text_ends_only_a_complete_text():
    processor = processor_of("bytes", ends={ord("b")}, regex="ab|abab")
    processor.advance(ord("a"))
    assert processor.allowed(257).nonzero()[:, 0].tolist() == [ord("b")]  # "ab" is complete with it
    processor.advance(ord("b"))
    assert processor.ended
    processor = processor_of("bytes", ends={ord("b")}, regex="abab")
    processor.advance(ord("a"))
    with pytest.raises(ValueError, match="no token can continue or end the structured output"):
        processor.mask(torch.zeros(257))


def test_a_token_that_is_not_allowed_is_refused_and_the_place_kept():
    processor = processor_of("bytes", regex="ab")
    with pytest.raises(ValueError, match="token_id = 98 is not allowed"):
        processor.advance(98)
    processor.advance(97)
    assert processor.allowed(257).nonzero()[:, 0].tolist() == [98]


def test_the_mask_leaves_the_logits_as_they_were():
    processor, logits = processor_of("bytes", choice=["no"]), torch.arange(257.0)
    for row in (logits, logits[None]):
        masked = processor.mask(row)
        assert masked.shape == row.shape and masked.flatten()[ord("n")] == ord("n") and masked.isinf().sum() == 256
    assert logits.equal(torch.arange(257.0))


PENALTIES = {"presence_penalty": 2.0, "frequency_penalty": -2.0, "repetition_penalty": 3.0}


@pytest.mark.parametrize("params", [{"temperature": 0}, {"temperature": 9}, {"top_k": 3}, {"top_p": 0.5},
                                    {"min_p": 0.5}, PENALTIES])
def test_filters_after_the_mask_never_bring_a_token_back(params):
    logits = torch.randn(1, 257, generator=torch.Generator().manual_seed(0)) * 4
    masked = processor_of("bytes", choice=["no", "yes"]).mask(logits)
    left = filter_logits(masked, SamplingParams(**params), [[ord("n")]], [[ord("q")]]).isfinite()
    assert left.any() and set(left.nonzero()[:, 1].tolist()) <= {ord("n"), ord("y")}


def test_equal_requests_share_a_grammar():
    structured = [StructuredOutputsParams(json=schema) for schema in (PERSON, json.dumps(PERSON))]
    assert structured[0] == structured[1] and hash(structured[0]) == hash(structured[1])
    assert grammar_for(structured[0], tokenizer_of("tiny")) is grammar_for(structured[1], tokenizer_of("tiny"))
    assert logits_processor_for(SamplingParams(), tokenizer_of("tiny"), {400}) is None


@pytest.mark.parametrize("wrong", [{}, {"regex": "a", "choice": ["b"]}, {"json": "{"}, {"json": [1]}, {"json": "[1]"},
                                   {"regex": 3}, {"choice": []}, {"choice": [""]}, {"choice": 3}, {"json": {"a": {1}}},
                                   {"choice": ["a", "\ud800"]}, {"regex": "\udc00"}, {"json_object": False},
                                   {"json_object": 1}, {"json_object": True, "regex": "a"},
                                   {"regex": "a", "disable_any_whitespace": True}, {"json_object": True,
                                                                                 "disable_any_whitespace": 1},
                                   {"choice": ["a"], "whitespace_pattern": " ?"}, {"json": {"type": "null"},
                                                                                 "whitespace_pattern": 3},
                                   {"json": {"const": float("nan")}}, {"json": '{"const": 1e999}'},
                                   {"structural_tag": '{"a": ' + "1" * 5000 + "}"}])
def test_malformed_requests_are_refused(wrong):
    with pytest.raises(ValueError, match="is not allowed"):
        StructuredOutputsParams(**wrong)


def test_a_text_with_half_a_surrogate_pair_is_named():
    with pytest.raises(ValueError, match=r"choice\[1\] = '\\ud800' is not allowed: must be a non-empty string without"):
        StructuredOutputsParams(choice=["a", "\ud800"])


@pytest.mark.parametrize("space", [{}, {"disable_any_whitespace": True}, {"disable_any_whitespace": False},
                                   {"whitespace_pattern": " ?"}, {"whitespace_pattern": r"[\n ]*"}])
@pytest.mark.parametrize("form", [{"json_object": True},
                                  {"json": {"type": "object", "properties": {"a": {"enum": [1]}}}}])
def test_white_space_is_that_of_json_dumps(form, space):
    grammar = grammar_for(StructuredOutputsParams(**form, **space), tokenizer_of("bytes"))
    assert matches(grammar.automaton, '{"a": 1}') and not matches(grammar.automaton, '{"a":1}')


@pytest.mark.parametrize("pattern", ["", " ", "[\n]*", "  ?"])
def test_white_space_that_json_dumps_does_not_write_is_refused(pattern):
    with pytest.raises(ValueError, match=r"whitespace_pattern = .* one that matches one space and no space"):
        processor_of(json_object=True, whitespace_pattern=pattern)


def test_sampling_params_take_nothing_else():
    with pytest.raises(ValueError, match=r"structured_outputs = .*'regex'.* is not allowed"):
        SamplingParams(structured_outputs={"regex": "a"})


def nested(depth):
    form = {"type": "any_text"}
    for _ in range(depth):
        form = {"type": "or", "elements": [form]}
    return form


@pytest.mark.parametrize("form, named", [
    ({"type": "grammar"}, "structural_tag.format.type = 'grammar'"), (None, "structural_tag.format = None"),
    ({"type": "tag", "begin": "<a>", "content": {"type": "any_text"}},
     "structural_tag.format = ['begin', 'content', 'type'] is not allowed: must be with 'end'"),
    ({"type": "or", "elements": []}, "elements"),
    ({"type": "sequence", "elements": [{"type": "regex", "pattern": "^"}]}, "the anchor"),
    ({"type": "const_string", "value": 5}, "structural_tag.format.value = 5 is not allowed: must be a string"),
    ({"type": "or", "elements": [{"type": "regex", "pattern": 5}]}, "format.elements[0].pattern = 5"),
    ({"type": "tag", "begin": None, "content": {"type": "any_text"}, "end": ""}, "format.begin = None"),
    ({"type": "any_text", "excludes": ["b"]}, "structural_tag.format = 'excludes' is not allowed: must be without"),
    ({"type": "json_schema", "json_schema": {"type": "null"}, "style": "qwen_xml"}, "structural_tag.format = 'style'"),
    ({"type": "const_string", "value": "\ud800"}, "structural_tag.format.value = '\\ud800'"),
    ({"type": "tag", "begin": "<", "content": {"type": "any_text"}, "end": "x" * 300}, "= 300 is not allowed"),
    ({"type": "triggered_tags"}, "structural_tag.format.type = 'triggered_tags'"),
    (nested(40), "nested at most 30 deep"), (nested(900), "is not allowed"),
])
def test_a_structural_tag_names_what_it_cannot_have(form, named):
    with pytest.raises(ValueError, match=re.escape(named)):
        processor_of(structural_tag={"format": form})


@pytest.mark.parametrize("tag, named", [
    ({"type": "structural_tag"}, "structural_tag = ['type'] is not allowed: must be with 'format'"),
    ({"format": {"type": "any_text"}, "tools": []}, "structural_tag = 'tools'"),
    ({"format": {"type": "any_text"}, "type": "tags"}, "structural_tag.type = 'tags'"),
])
def test_a_structural_tag_is_nothing_but_its_format(tag, named):
    with pytest.raises(ValueError, match=re.escape(named)):
        processor_of(structural_tag=tag)


@pytest.mark.parametrize("content", [{"type": "any_text"}, {"type": "or", "elements": [{"type": "any_text"}]}])
def test_any_text_between_letters_ends_with_the_first_end(content):
    tag = {"type": "tag", "begin": "<a>", "content": content, "end": "</a>"}
    automaton = build_grammar(StructuredOutputsParams(structural_tag={"format": tag}), tokenizer_of("bytes")).automaton
    for text in ("<a>x\n</a>", "<a></a>", "<a><a><</</a</a>", "<a>é</b></a>"):
        assert matches(automaton, text)
    for text in ("<a>x</a> more <a></a>", "<a>x</a", "<a></a></a>", "x</a>"):
        assert not matches(automaton, text)


@given(st.sampled_from(["</a>", "aab", "aa", "abab", "éa", "aéaa"]), st.text("ab</>éx", max_size=12))
def test_text_without_another(end, text):
    assert matches(without_automaton(end), text) == (end not in text)


@cache
def without_automaton(end):
    return Automaton(without(end))


def test_the_tree_holds_every_token_once():
    tree = TokenTree(tokenizer_of("pocket"))
    ids = sorted(int(i) for _, _, ids, _ in tree.levels for i in ids)
    assert ids == sorted(tokenizer_of("pocket").ids)
    assert len(tree.levels[0][0]) == 256 + 7 == tree.n_symbols


# --- in generation ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lm():
    return load()


class Color(enum.Enum):
    RED, BLUE = "red", "blue"


class Point(BaseModel):
    """A place."""

    x: int
    color: Color = Field(description="of the point")


class Drawing(BaseModel):
    first: Point
    others: list[Point] = Field(max_length=1)
    kind: Literal["ink", "oil"]
    note: Color | None


def test_the_official_client_parses_models_in_models_and_enums(lm):
    with serve_in_background(lm, model="pocket") as server:
        client = OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0)
        answer = client.chat.completions.parse(model="pocket", temperature=0, response_format=Drawing,
                                               messages=[{"role": "user", "content": "Hello!"}])
        free = client.chat.completions.create(
            model="pocket", temperature=0, response_format={"type": "json_object"}, max_tokens=30,
            messages=[{"role": "user", "content": "Hello!"}])
    assert isinstance(answer.choices[0].message.parsed, Drawing)
    assert free.choices[0].message.content.startswith("{")


def test_pocket_writes_an_object(lm):
    params = SamplingParams(temperature=0, max_tokens=200, structured_outputs=StructuredOutputsParams(json_object=True))
    output = generate(lm, 'Here is some JSON: {"name": "pocket"} {"name": "', params)
    assert output.text.startswith("{")
    assert output.finish_reason == "length" or isinstance(json.loads(output.text), dict)


@pytest.mark.parametrize("temperature", [0, 1.0, 3.0])
def test_pocket_writes_json_that_validates(lm, temperature):
    params = SamplingParams(temperature=temperature, seed=1, max_tokens=200, structured_outputs=StructuredOutputsParams(
        json={**OPTIONAL, "properties": {**OPTIONAL["properties"], "a": {"type": "string", "maxLength": 9}}}))
    output = generate(lm, "Here is some JSON: ", params)
    assert output.finish_reason == "stop"
    jsonschema.validate(json.loads(output.text), json.loads(params.structured_outputs.json))


def test_logprobs_are_the_models_own(lm):
    params = SamplingParams(temperature=0, logprobs=1, structured_outputs=StructuredOutputsParams(choice=["zebra"]))
    output = generate(lm, "What is gravity?", params)
    free = generate(lm, "What is gravity?", replace(params, structured_outputs=None, max_tokens=1))
    assert output.text == "zebra" and output.logprobs[0] == free.logprobs[0] and output.cumulative_logprob < -10


def test_an_unsupported_schema_is_refused_before_generation(lm):
    schema = {"type": "string", "pattern": "a"}
    with pytest.raises(ValueError, match="schema = 'pattern' is not allowed: must be without this keyword"):
        stream(lm, "a", SamplingParams(structured_outputs=StructuredOutputsParams(json=schema)))


@pytest.mark.parametrize("draft", [lambda: DraftModel(load("pocket-draft")), lambda: PromptLookup(4)],
                         ids=["model", "lookup"])
def test_a_draft_changes_nothing_at_temperature_0(lm, draft):
    tools = list(TOOLS.values())
    for question in ("What is 12 + 34?", "What is gravity?", 'Say {"name": "calculator", "arguments": 3}.'):
        for structured in (call_tag(tools), call_tag(tools, text=True), StructuredOutputsParams(regex="[a-z ]{5,30}")):
            ids = lm.tokenizer.apply_chat_template([{"role": "user", "content": question}], tools=tools,
                                                   add_generation_prompt=True)
            params = SamplingParams(temperature=0, max_tokens=60, structured_outputs=structured)
            assert generate(lm, ids, params, draft=draft()).token_ids == generate(lm, ids, params).token_ids


def test_a_draft_keeps_the_masked_distribution(lm):
    """Of 250 draws of a first token among three, no count is off by more than 4.2 standard deviations (false alarm
    below 1e-4)."""
    structured = StructuredOutputsParams(regex="[abc][de]")
    params = SamplingParams(temperature=3.0, max_tokens=3, structured_outputs=structured)
    prompt = lm.tokenizer.encode("a b c d e a b c d")
    logits = lm.model(torch.tensor([prompt]))[0, -1] / 3
    symbols = [lm.tokenizer.encode(letter)[0] for letter in "abc"]
    pairs = [first + second for first in "abc" for second in "de"]
    whole = [lm.tokenizer.mergeable_ranks.get(pair.encode()) for pair in pairs]
    p = logits[[*symbols, *(i for i in whole if i is not None)]].softmax(-1)[:3].tolist()
    draft, n = PromptLookup(num_speculative_tokens=2), 250
    firsts = [generate(lm, prompt, replace(params, seed=seed), draft=draft).token_ids[0] for seed in range(n)]
    for symbol, chance in zip(symbols, p, strict=True):
        assert abs(firsts.count(symbol) - n * chance) <= 4.2 * (n * chance * (1 - chance)) ** 0.5 + 1


def test_a_forced_call_is_valid_and_may_be_wrong(lm):
    """Form is all that the mask gives: a question that needs no tool is answered by a call all the same."""
    tools, close = list(TOOLS.values()), lm.tokenizer.special_tokens["</tool_call>"]
    ids = lm.tokenizer.apply_chat_template([{"role": "user", "content": "What is gravity?"}], tools=tools,
                                           add_generation_prompt=True)
    params = SamplingParams(temperature=0, structured_outputs=call_tag(tools), stop_token_ids=(close,))
    output = generate(lm, ids, params)
    assert output.finish_reason == "stop" and output.token_ids[-1] == close
    (call,) = parse_ids(lm.tokenizer, output.token_ids).calls
    assert call.name in TOOLS
