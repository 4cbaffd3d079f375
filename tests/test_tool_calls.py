"""Calls are read from what a model wrote: nothing malformed runs, nothing quoted is a call."""

import gc
import json
import time
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.checkpoint import load
from course_lib.tokenizer import POCKET_PATTERN, Tokenizer, train_bpe
from course_lib.tool_calls import (
    MAX_CHARACTERS,
    BadCall,
    ParsedMessage,
    ToolCall,
    ToolCallStream,
    collect,
    parse_call,
    parse_ids,
    parse_tool_calls,
    pieces,
    unique_keys,
)
from course_lib.tool_messages import call_schema, for_template, to_message

JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
                    | st.text(st.characters(exclude_categories=["Cs"])),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
                    max_leaves=8)
CALLS = st.builds(ToolCall, st.text("abc_", min_size=1), st.dictionaries(st.text("xyz<>/", max_size=3), JSON,
                                                                       max_size=3))


PIECES = ["<tool_call>", "</tool_call>", "{", "}", '"', "a", "\\", '{"name": "f", "arguments": {}}', "\n", "é"]


def written(call):
    return f"<tool_call>\n{json.dumps({'name': call.name, 'arguments': call.arguments})}\n</tool_call>"


@pytest.fixture(scope="module")
def tokenizer():
    return load().tokenizer


def ids_of(tokenizer, text):
    """The text as a model writes it, with control tokens for its tags."""
    return tokenizer.encode(text, allowed_special="all")


READERS = {"text": lambda tokenizer, text: parse_tool_calls(text),
           "ids": lambda tokenizer, text: parse_ids(tokenizer, ids_of(tokenizer, text))}


@pytest.fixture(params=READERS)
def read(request, tokenizer):
    return lambda text: READERS[request.param](tokenizer, text)


def test_text_without_calls_is_content(read):
    assert read(" Gravity pulls. ") == parse_tool_calls("Gravity pulls.")
    assert read("Gravity pulls.").content == "Gravity pulls." and not read("Gravity pulls.").calls


def test_several_calls_and_the_text_around_them(read):
    message = read(f"Let me see. {written(ToolCall('a', {'x': 1}))}\n{written(ToolCall('b', {}))} Now I wait.")
    assert message.calls == (ToolCall("a", {"x": 1}), ToolCall("b", {}))
    assert message.content == "Let me see. \n Now I wait." and message.errors == ()


def test_braces_and_quotes_in_strings(read):
    call = ToolCall("f", {"x": 'a } "{" \\ ] </tool_', "y": [{"z": "{{"}]})
    assert read(written(call)).calls == (call,)


def test_a_tag_in_a_string_of_a_text_is_data():
    call = ToolCall("f", {"x": "</tool_call>", "y": "<tool_call>"})
    assert parse_tool_calls(f"a {written(call)} b") == ParsedMessage("a  b", (call,))


@pytest.mark.parametrize("text, wrong", {
    '{"name": "f", "arguments": {"x": 1}': "no JSON: Expecting ',' delimiter at character",
    "{'name': 'f', 'arguments': {}}": "no JSON: Expecting property name",
    "": "no JSON: Expecting value at character 0",
    "[1]": "list: must be an object with name and arguments",
    '{"name": "f"}': "keys ['name']: must be name and arguments",
    '{"name": "f", "arguments": {}, "id": 3}': "keys ['arguments', 'id', 'name']: must be name and arguments",
    '{"name": 3, "arguments": {}}': "name 3: must be a string",
    '{"name": "", "arguments": {}}': "name '': must be a string",
    '{"name": "f", "arguments": [1]}': "arguments of type list: must be an object",
    '{"name": "f", "arguments": "[1]"}': "arguments of type list: must be an object",
    '{"name": "f", "arguments": "{"}': "no JSON",
    '{"name": "f", "name": "g", "arguments": {}}': "keys ['name'] more than once",
    '{"name": "f", "arguments": {"x": 1, "x": 2}}': "keys ['x'] more than once",
    '{"name": "f", "arguments": {"x": NaN}}': "NaN is no JSON",
    '{"name": "f", "arguments": {"x": -Infinity}}': "-Infinity is no JSON",
    '{"name": "f", "arguments": {"x": 1e999}}': "Out of range float values",
    '{"name": "f", "arguments": {"x": "\\ud800"}}': "half of a surrogate pair",
    '{"name": "f", "arguments": {}} {"name": "g", "arguments": {}}': "no JSON: Extra data",
    '{"name": "f", "arguments": {"x": ' + "[" * 100_000: "characters: must be at most",
    '{"name": "f", "arguments": {"x": ' + "[" * 60_000: "nested too deeply",
    "[" * 200_000: "characters: must be at most",
    "[" * 60_000: "nested too deeply",
    '{"name": "f", "arguments": {"x": ' + "1" * 5_000 + "}}": "Exceeds the limit",
}.items(), ids=lambda text: text[:24])
def test_a_malformed_call_is_reported_and_never_run(text, wrong):
    call = parse_call(text)
    assert isinstance(call, BadCall) and wrong in call.error and call.text == text
    message = parse_tool_calls(f"<tool_call>{text}</tool_call>")
    assert message.calls == () and wrong in message.errors[0] and message.errors[0].startswith("call 1: ")


def test_each_key_of_a_large_object_is_looked_at_a_few_times():
    compared = []

    class Key(str):
        __hash__ = str.__hash__

        def __eq__(self, other):
            compared.append(1)
            return str.__eq__(self, other)

    assert len(unique_keys([(Key(i), None) for i in range(2000)])) == 2000
    assert len(compared) < 20 * 2000


def test_good_calls_beside_a_malformed_one_still_count(read):
    good = ToolCall("f", {"x": 1})
    message = read(f"<tool_call>\noops\n</tool_call>{written(good)}")
    assert message.calls == (good,) and len(message.errors) == 1 and message.errors[0].startswith("call 1: no JSON")


@pytest.mark.parametrize("text", ['<tool_call>\n{"name": "f", "arguments": {}}', "<tool_call>", "a <tool_call>{"])
def test_an_unclosed_call_is_not_run_even_if_its_json_is_complete(read, text):
    message = read(text)
    assert message.calls == () and message.errors == ("call 1: not closed by </tool_call>",)


def test_a_call_that_opens_in_another_leaves_the_first_unclosed(read):
    message = read(f'<tool_call>\n{{"name": "f", {written(ToolCall("g", {}))}')
    assert message.calls == (ToolCall("g", {}),) and message.errors == ("call 1: not closed by </tool_call>",)


def test_a_closing_tag_alone_is_reported(read):
    assert read("a</tool_call>b").errors == ("call 1: </tool_call> closes no call",)
    assert read("a</tool_call>b").content == "ab"


def test_arguments_as_json_text_are_read_as_openai_writes_them():
    assert parse_call('{"name": "f", "arguments": "{\\"x\\": 1}"}') == ToolCall("f", {"x": 1})


@pytest.mark.parametrize("unit", ["<tool_call>", "</tool_call>", '<tool_call>"', '<tool_call>{"', '<tool_call>"\\"',
                                  '<tool_call>["', '<tool_call>[[', '<tool_call>\n{"a": "', '<tool_call>\\"',
                                  '<tool_call>{"x": "</tool_call>"} ', '<tool_call>["", "', '<tool_call>1'])
def test_the_time_is_linear_in_the_length(unit):
    def seconds(characters):
        text = unit * (characters // len(unit))
        with no_garbage_collection():
            started = time.process_time()
            parse_tool_calls(text)
            return time.process_time() - started

    short, long = (min(seconds(characters) for _ in range(2)) for characters in (50_000, 800_000))
    assert long < 64 * short + 0.1  # 16 times the text; in quadratic time 256 times as long


@contextmanager
def no_garbage_collection():
    """What other tests left in this process is not looked through while the time is taken."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@given(st.lists(st.sampled_from([*PIECES, '<tool_call>{"name": "f", "arguments": {"x": "'])).map("".join))
def test_the_pieces_are_the_text(text):
    parts = list(pieces(text))
    assert "".join(piece for piece, _ in parts) == text
    assert collect(event for _, event in parts) == parse_tool_calls(text)


@given(CALLS)
def test_what_is_written_is_read(call):
    assert parse_tool_calls(f"before {written(call)} after").calls == (call,)


@given(st.text() | st.lists(st.sampled_from(PIECES)).map("".join))
def test_no_text_raises_and_no_call_is_invented(text):
    message = parse_tool_calls(text)
    assert all(call == ToolCall("f", {}) for call in message.calls)
    assert len(message.calls) <= text.count('{"name": "f", "arguments": {}}')


# --- ids: only the model's own control tokens ---------------------------------------------------


def test_tags_that_are_spelled_out_are_content(tokenizer):
    text = written(ToolCall("f", {}))
    assert parse_ids(tokenizer, tokenizer.encode(text)) == ParsedMessage(text)


def test_spelled_tags_inside_a_call_do_not_close_it(tokenizer):
    tags = tokenizer.special_tokens
    call = ToolCall("f", {"x": "</tool_call><tool_call>"})
    body = tokenizer.encode(json.dumps({"name": call.name, "arguments": call.arguments}))
    message = parse_ids(tokenizer, [tags["<tool_call>"], *body, tags["</tool_call>"], tags["<|im_end|>"]])
    assert message.calls == (call,) and message.content == ""


def test_a_control_token_inside_a_call_makes_it_malformed(tokenizer):
    text = '<tool_call>{"name": "f", "arguments": {"x": "<|im_start|>user"}}</tool_call>'
    assert parse_ids(tokenizer, ids_of(tokenizer, text)).errors == ("call 1: control token <|im_start|> inside",)


def test_a_tokenizer_without_the_tags_has_no_calls():
    plain = Tokenizer("plain", POCKET_PATTERN, train_bpe(["abc"], 256), {})
    assert parse_ids(plain, plain.encode(written(ToolCall("f", {})))).calls == ()


# --- as they come -------------------------------------------------------------------------------


def pushed(stream, ids):
    return [stream.push(id) for id in ids]


def test_content_comes_at_once_and_a_call_when_it_is_closed(tokenizer):
    call = ToolCall("f", {"x": "é€"})
    ids = ids_of(tokenizer, f"Só {written(call)}")
    stream = ToolCallStream(tokenizer)
    events = pushed(stream, ids)
    assert events[-1] == [call] and not any(isinstance(event, ToolCall) for one in events[:-1] for event in one)
    assert "".join(event for one in events for event in one if isinstance(event, str)) == "Só " == stream.content
    assert stream.flush() == []


@given(st.data())
def test_the_stream_and_the_whole_agree_for_any_ids(data):
    tokenizer = load().tokenizer
    special = sorted(tokenizer.special_tokens.values())
    text = st.text("aé€😀{}\":,\n", max_size=6).map(tokenizer.encode)
    parts = data.draw(st.lists(st.sampled_from(special).map(lambda id: [id]) | text, max_size=12))
    ids = [id for part in parts for id in part]
    stream = ToolCallStream(tokenizer)
    events = [*(event for id in ids for event in stream.push(id)), *stream.flush()]
    message = parse_ids(tokenizer, ids)
    assert "".join(event for event in events if isinstance(event, str)).strip() == message.content
    assert len(message.calls) + len(message.errors) == sum(not isinstance(event, str) for event in events)
    outside, depth = [], False
    for id in ids:
        depth = {tokenizer.special_tokens["<tool_call>"]: True,
                 tokenizer.special_tokens["</tool_call>"]: False}.get(id, depth)
        outside += [] if depth or id in special else [id]
    assert message.content == tokenizer.decode(outside).strip()


def test_a_stop_string_ends_the_text_and_is_not_looked_for_in_a_call(tokenizer):
    stream = ToolCallStream(tokenizer, stop=["STOP"])
    call = ToolCall("f", {"x": "STOP"})
    pushed(stream, ids_of(tokenizer, f"a {written(call)} b STOP c"))
    assert stream.stopped == "STOP" and stream.content == "a  b "
    assert stream.push(5) == [] and stream.flush() == []


def test_what_cannot_be_an_id_is_refused(tokenizer):
    with pytest.raises(ValueError, match="token_id = -1 is not allowed"):
        ToolCallStream(tokenizer).push(-1)


# --- messages -----------------------------------------------------------------------------------


def test_a_message_goes_out_in_openais_form_and_comes_back_in_the_templates():
    call = ToolCall("f", {"x": "é"})
    message = to_message("", [call], call_ids=["call_0"])
    assert message == {"role": "assistant", "content": None, "tool_calls": [
        {"id": "call_0", "type": "function", "function": {"name": "f", "arguments": '{"x": "é"}'}}]}
    (back,) = for_template([message])
    assert back["content"] == "" and back["tool_calls"][0]["function"] == {"name": "f", "arguments": {"x": "é"}}
    assert message["tool_calls"][0]["function"]["arguments"] == '{"x": "é"}'  # the argument stays as it was


@pytest.mark.parametrize("calls", [[{}], [3], [{"function": {"name": "f", "arguments": "{"}}],
                                   [{"function": {"name": "f", "arguments": "[" * 60_000}}]])
def test_malformed_calls_of_a_client_are_named(calls):
    with pytest.raises(ValueError, match=r"messages\[1\].tool_calls"):
        for_template([{"role": "user", "content": "a"}, {"role": "assistant", "content": None, "tool_calls": calls}])


def test_a_function_without_parameters_takes_none():
    assert call_schema({"name": "f"})["properties"]["arguments"] == {"type": "object", "properties": {}}


def test_the_longest_call_is_bounded():
    assert isinstance(parse_call(" " * MAX_CHARACTERS + '{"name": "f", "arguments": {}}'), BadCall)
