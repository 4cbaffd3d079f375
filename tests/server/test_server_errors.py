"""Wrong requests: the status, and an object that names the parameter, the value and what is allowed."""

import hmac
import json
import sys
import threading
import time
import weakref
from contextlib import contextmanager
from functools import partial

import openai
import pytest
from conftest import HeldEngine, Panic, chat_body, client_of
from wire import Wire, ask, events, until

from course_lib.engine import Engine
from course_lib.server import Limits, chat_requests, engine_thread, serve_in_background
from course_lib.server.chat_requests import ChatCompletionRequest
from course_lib.server.errors import ApiError
from course_lib.server.jobs import Jobs
from course_lib.server.requests import parse

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
USER = {"role": "user", "content": "Hi"}
CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "f"}}


def refused(server, path, body, status, param, *words):
    response = ask(server, "POST", path, body if isinstance(body, bytes) else json.dumps(body).encode())
    assert response.status == status, response.body
    error = response.json().pop("error")
    assert set(error) == {"message", "type", "param", "code"} and error["param"] == param, error
    assert all(word in error["message"] for word in words), error["message"]
    return error


@pytest.mark.parametrize("field, value, status, words", [
    ("temperature", -1, 400, ["temperature = -1", "finite number >= 0"]),
    ("temperature", "hot", 422, ["temperature = 'hot'", "valid number"]),
    ("temperature", True, 422, ["temperature = True"]),
    ("top_p", 0, 400, ["top_p = 0", "(0, 1]"]),
    ("top_k", -2, 400, ["top_k = -2", ">= 0"]),
    ("top_k", 1.5, 422, ["top_k = 1.5", "integer"]),
    ("min_p", 2, 400, ["min_p = 2", "[0, 1]"]),
    ("repetition_penalty", 0, 400, ["repetition_penalty = 0", "> 0"]),
    ("presence_penalty", 3, 400, ["presence_penalty = 3", "[-2, 2]"]),
    ("frequency_penalty", -3, 400, ["frequency_penalty = -3", "[-2, 2]"]),
    ("seed", 2**64, 400, ["seed = ", "2**64"]),
    ("max_tokens", 0, 400, ["max_tokens = 0", ">= 1"]),
    ("max_tokens", 10**30, 400, ["max_tokens = 1000000000", "in [1, "]),
    ("max_tokens", "8", 422, ["max_tokens = '8'", "integer"]),
    ("n", 0, 400, ["n = 0", "[1, 16]"]),
    ("n", 17, 400, ["n = 17", "[1, 16]"]),
    ("stop", "", 400, ["stop", "non-empty"]),
    ("stop", ["x"] * 17, 400, ["len(stop) = 17", "at most 16"]),
    ("stop", "x" * 201, 400, ["stop = ", "at most 200 characters"]),
    ("stop", 3, 422, ["stop = 3", "string or"]),
    ("stop_token_ids", [-1], 400, ["stop_token_ids", ">= 0"]),
    ("stop_token_ids", [5] * 1001, 400, ["len(stop_token_ids) = 1001", "at most 1000"]),
    ("stream", "yes", 422, ["stream = 'yes'", "boolean"]),
    ("stream_options", {"include_usage": True}, 400, ["stream_options", "without stream"]),
    ("user", 3, 422, ["user = 3"]),
    ("model", 3, 422, ["model = 3"]),
    ("model", "gpt-4", 404, ["model = 'gpt-4'", "'pocket-draft'"]),
    ("return_token_ids", 1, 422, ["return_token_ids = 1"]),
])
@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_a_setting_out_of_its_range(server, path, field, value, status, words):
    body = {"model": "pocket-draft", **({"messages": [USER]} if path == CHAT else {"prompt": "Hi"}), field: value}
    refused(server, path, body, status, field, *words)


@pytest.mark.parametrize("more, status, param, words", [
    ({"messages": []}, 422, "messages", ["messages = [] is not allowed: must be a list of at least one message"]),
    ({"messages": "Hi"}, 422, "messages", ["messages = 'Hi'", "array"]),
    ({"messages": [{"role": "wizard", "content": "Hi"}]}, 422, "messages[0].role", ["'wizard'", "'user'"]),
    ({"messages": [USER, {"role": "user", "content": 3}]}, 422, "messages[1].content", ["= 3", "string or", "array"]),
    ({"messages": [{"role": "user"}]}, 422, "messages[0]", ["content"]),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, 422,
     "messages[0].content[0].type", ["'image_url'", "'text'"]),
    ({"messages": [USER | {"tool_calls": [CALL]}]}, 422, "messages[0]", ["assistant"]),
    ({"messages": [USER, {"role": "tool", "content": "3"}]}, 422, "messages[1]", ["tool_call_id"]),
    ({"messages": [USER, {"role": "assistant", "tool_calls": [
        CALL | {"function": {"name": "f", "arguments": "{"}}]}]}, 400, "messages",
     ["messages[1].tool_calls", "no JSON"]),
    ({"messages": [USER, {"role": "assistant", "tool_calls": [
        CALL | {"function": {"name": "f", "arguments": "[" * 100_000}}]}]}, 400, "messages",
     ["messages[1].tool_calls", "nested too deeply"]),
    ({"messages": [USER | {"audio": "x"}]}, 400, "messages[0].audio", ["messages[0].audio", "not supported"]),
    ({"top_logprobs": 2}, 400, "top_logprobs", ["top_logprobs = 2", "logprobs is true"]),
    ({"logprobs": True, "top_logprobs": 21}, 400, "top_logprobs", ["top_logprobs = 21", "[0, 20]"]),
    ({"logprobs": True, "top_logprobs": -1}, 400, "top_logprobs", ["top_logprobs = -1", "[0, 20]"]),
    ({"logprobs": 2}, 422, "logprobs", ["logprobs = 2", "boolean"]),
    ({"max_completion_tokens": 2000}, 400, "max_completion_tokens", ["max_completion_tokens = 2000", "in [1, "]),
    ({"max_completion_tokens": 0}, 400, "max_completion_tokens", ["max_completion_tokens = 0", ">= 1"]),
    ({"messages": [USER | {"content": "a b" * 2000}]}, 400, "messages", ["tokens", "at most 1023"]),
    ({"tools": [{"type": "function", "function": {"name": "two words"}}]}, 422, "tools[0].function.name",
     ["'two words'", "must be text of the pattern '^[a-zA-Z0-9_-]{1,64}$'"]),
    ({"tools": [{"type": "retrieval"}]}, 422, "tools[0].type", ["'retrieval'", "'function'"]),
    ({"tools": [TOOL], "tool_choice": "sometimes"}, 422, "tool_choice", ["'sometimes'", "'auto'"]),
    ({"tool_choice": "required"}, 400, "tool_choice", ["tool_choice", "no tools"]),
    ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}}, 400, "tool_choice",
     ["tool_choice = 'g'", "one of f"]),
    ({"response_format": {"type": "xml"}}, 422, "response_format.type", ["'xml'", "'json_schema'"]),
    ({"response_format": {"type": "xml"}}, 422, "response_format.type", ["'xml'", "'json_object'", "'json_schema'"]),
    ({"response_format": {"type": "json_schema"}}, 400, "response_format", ["json_schema"]),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "date"}}}}, 400,
     "response_format", ["schema.type = 'date'"]),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"x": {"type": "date"}}}}}],
      "tool_choice": "required"}, 400, "tools[0].function.parameters",
     ["tools[0].function.parameters.properties.x.type = 'date'"]),
    ({"tools": [TOOL, {"type": "function", "function": {"name": "g", "parameters": {"properties": {"x": {}}}}}],
      "parallel_tool_calls": False, "tool_choice": "auto"}, 400, "tools[1].function.parameters",
     ["tools[1].function.parameters.properties.x.type"]),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {
        "x": {"const": "y" * 20_000}}}}}], "tool_choice": "required"}, 400, "tool_choice",
     ["tool_choice = ", "characters", "at most 20000"]),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": 5}}}]}, 422,
     "tools[0].function.parameters", ["{'properties': 5}", "whose properties are an object"]),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": 5}}}], "tool_choice": "required"},
     422, "tools[0].function.parameters", ["{'type': 5}", "must be a JSON schema of type object"]),
    ({"tools": [{"type": "function", "function": {"name": "g", "parameters": {"properties": {"x": {"type": "date"}}}}}],
      "structured_outputs": {"regex": "("}}, 400, "structured_outputs", []),
    ({"tools": [{"type": "function", "function": {"name": "g", "parameters": {"properties": {"x": {"type": "date"}}}}},
                {"type": "function", "function": {"name": "f", "parameters": {"properties": {"x": {"type": "day"}}}}}],
      "tool_choice": {"type": "function", "function": {"name": "f"}}}, 400, "tools[1].function.parameters", ["'day'"]),
    ({"messages": [USER, {"role": "system", "content": "piano"}, USER]}, 400, "messages[1].role",
     ["messages[1].role = 'system'", "leaves later system messages out"]),
    ({"messages": [{"role": "system", "content": "A"}, {"role": "developer", "content": "B"}, USER]}, 400,
     "messages[1].role", ["messages[1].role = 'system'"]),
    ({"seed": 2**64 - 1, "n": 2}, 400, "seed", ["seed = 18446744073709551615", "at most 2**64 - 2"]),
    ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, 400, "structured_outputs", ["exactly one"]),
    ({"structured_outputs": {"regex": "("}}, 400, "structured_outputs", []),
    ({"structured_outputs": {"json": '{"const": NaN}'}}, 400, "structured_outputs", ["json", "not JSON compliant"]),
    ({"structured_outputs": {"structural_tag": {"format": {"type": "const_string", "value": 5}}}}, 400,
     "structured_outputs", ["structural_tag.format.value = 5", "a string"]),
    ({"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_schema", "json_schema": {
        "name": "a", "schema": {"type": "null"}}}}, 400, "structured_outputs",
     ["structured_outputs and response_format", "said in one field"]),
    ({"structured_outputs": {"regex": "(" * 30_000}}, 400, "structured_outputs", ["characters", "at most 20000"]),
    ({"structured_outputs": {"regex": "a"}, "ignore_eos": True}, 400, "ignore_eos", ["ignore_eos = True", "false"]),
    ({"logit_bias": {"5": 1}}, 400, "logit_bias", ["logit_bias = {'5': 1}", "not supported"]),
    ({"modalities": ["audio"]}, 400, "modalities", ["not supported"]),
    ({"temprature": 1}, 400, "temprature", ["temprature = 1", "not supported"]),
    ({"stream": True, "stream_options": {"every": 2}}, 400, "stream_options.every", ["not supported"]),
])
def test_a_conversation_that_is_none(server, more, status, param, words):
    refused(server, CHAT, {"model": "pocket-draft", "messages": [USER], **more}, status, param, *words)


@pytest.mark.parametrize("more, status, words", [
    ({"prompt": ""}, 400, ["prompt = ''", "at least one token"]),
    ({"prompt": []}, 422, ["prompt = []", "a list of texts"]),
    ({"prompt": [[]]}, 422, ["prompt = [[]]"]),
    ({"prompt": ["a", 3]}, 422, ["prompt = ['a', 3]"]),
    ({"prompt": [True]}, 422, ["prompt = [True]"]),
    ({"prompt": None}, 422, ["prompt = None"]),
    ({"prompt": [5000]}, 400, ["5000", "[0, 4096)"]),
    ({"prompt": [-1]}, 400, ["-1", "[0, 4096)"]),
    ({"prompt": [1] * 1024}, 400, ["1024 tokens", "at most 1023"]),
    ({"prompt": ["a"] * 17}, 400, ["17", "[1, 16]"]),
    ({"logprobs": 21}, 400, ["logprobs = 21", "[0, 20]"]),
    ({"logprobs": True}, 422, ["logprobs = True", "integer"]),
    ({"echo": True}, 400, ["echo = True", "not supported"]),
    ({"best_of": 2}, 400, ["best_of = 2", "not supported"]),
    ({"suffix": "end"}, 400, ["suffix = 'end'", "not supported"]),
    ({"max_tokens": 1024}, 400, ["max_tokens = 1024", "[1, 1022]", "prompt of 2 tokens"]),
])
def test_a_completion_that_is_none(server, more, status, words):
    refused(server, TEXT, {"model": "pocket-draft", "prompt": "The cat", **more}, status, next(iter(more)), *words)


def test_one_mistake_of_many_is_looked_for():
    """A body may hold a third of a million, and the event loop would wait while all are described."""
    many = {"messages": [{}] * 1000, "tools": [{}] * 1000, "stop": [3] * 1000, "stop_token_ids": ["a"] * 1000}
    with pytest.raises(ApiError) as caught:
        parse(ChatCompletionRequest, json.dumps({"model": "m", **many}).encode())
    assert caught.value.__cause__.error_count() < 10 and caught.value.param == "stop[0]"


def test_the_event_loop_reads_no_arguments_of_calls(server, monkeypatch):
    seen = []

    def for_template(messages):
        seen.append(threading.current_thread().name)
        return messages

    monkeypatch.setattr(chat_requests, "for_template", for_template)
    assert ask(server, "POST", CHAT, chat_body(max_tokens=1)).status == 200
    assert seen and "server" not in seen


def test_what_is_missing(server):
    refused(server, CHAT, {"messages": [USER]}, 422, "model", "model is missing")
    refused(server, CHAT, {"model": "pocket-draft"}, 422, "messages", "messages is missing")
    refused(server, TEXT, {"model": "pocket-draft"}, 422, "prompt", "prompt is missing")


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe{}", b'{"model": "\\ud800"}', b"[" * 100_000,
                                  b'{"a": 1' + b"0" * 5000])
def test_what_is_no_json(server, body):
    error = refused(server, CHAT, body, 400, None, "not JSON")
    assert error["code"] == "invalid_json" and error["type"] == "invalid_request_error"


def test_numbers_that_are_none(server):
    for word in (b"NaN", b"Infinity", b"-Infinity", b"1e999"):
        body = chat_body(temperature="X").replace(b'"X"', word)
        refused(server, CHAT, body, 422, "temperature", "temperature = ", "finite number")


@pytest.mark.parametrize("body", [b"[]", b"3", b'"text"', b"null"])
def test_json_that_is_no_object(server, body):
    refused(server, CHAT, body, 422, None, "body")


def test_what_asks_for_nothing_is_no_error(server):
    """Clients send what they know, and None where they want nothing."""
    nothing = {"logit_bias": {}, "metadata": None, "store": False, "service_tier": "auto", "tools": [], "n": None,
               "stop": None, "stream_options": None, "parallel_tool_calls": True, "user": "me", "tool_choice": "auto",
               "response_format": {"type": "text"}}
    assert ask(server, "POST", CHAT, chat_body(max_tokens=1, **nothing)).status == 200
    earlier = {"role": "assistant", "content": "Hello", "refusal": None, "annotations": [], "audio": None}
    body = {"model": "pocket-draft", "messages": [USER, earlier, USER], "max_tokens": 1}
    assert ask(server, "POST", CHAT, json.dumps(body).encode()).status == 200


@pytest.mark.parametrize("method, path, status, code", [
    ("GET", "/nowhere", 404, "unknown_url"), ("GET", "/v1/models/gpt-4", 404, "model_not_found"),
    ("GET", CHAT, 405, "method_not_allowed"), ("POST", "/health", 405, "method_not_allowed"),
    ("GET", "/docs", 404, "unknown_url"), ("GET", "/openapi.json", 404, "unknown_url"),
    ("GET", "/page.html", 404, "unknown_url"), ("GET", "/../command.py", 404, "unknown_url"),
    ("GET", "/%2e%2e/command.py", 404, "unknown_url"),
])
def test_addresses(server, method, path, status, code):
    response = ask(server, method, path)
    assert (response.status, response.json()["error"]["code"]) == (status, code)


def test_the_client_raises_its_own_errors(client):
    ask = partial(client.chat.completions.create, messages=[USER])
    with pytest.raises(openai.NotFoundError, match="gpt-4"):
        ask(model="gpt-4")
    with pytest.raises(openai.BadRequestError, match="temperature") as caught:
        ask(model="pocket-draft", temperature=-1, stream=True)  # refused before the stream begins
    assert (caught.value.param, caught.value.code) == ("temperature", "invalid_value")
    with pytest.raises(openai.UnprocessableEntityError, match="role"):
        ask(model="pocket-draft", messages=[{"role": "wizard", "content": ""}])


# --- limits ---------------------------------------------------------------------------------------


def test_a_body_that_is_too_large(draft):
    with serve_in_background(draft, limits=Limits(max_body_bytes=300)) as server:
        body = chat_body("x" * 300)
        error = refused(server, CHAT, body, 413, None, f"{len(body)} bytes", "at most 300")
        assert error["code"] == "body_too_large"
        with Wire(server) as wire:  # which does not say how long it will be
            wire.send("POST", CHAT, Content_Length=None, Transfer_Encoding="chunked")
            wire.socket.sendall(b"100\r\n" + b" " * 256 + b"\r\n" + b"100\r\n" + b" " * 256 + b"\r\n")
            assert wire.response().status == 413
        assert ask(server, "POST", CHAT, chat_body(max_tokens=1)).status == 200


def test_a_client_that_still_writes_reads_why_it_is_refused(client, server, thread_of):
    """More than the buffers of both sides hold: were the connection closed at once, writing would fail first."""
    huge = "x" * 20_000_000
    with pytest.raises(openai.APIStatusError, match="at most 1048576") as caught:
        client.completions.create(model="pocket-draft", prompt=huge)
    assert caught.value.status_code == 413
    for kind, status in (("application/json", 413), ("text/plain", 415)):
        with Wire(server) as wire:
            wire.send("POST", CHAT, huge.encode(), Content_Type=kind)
            assert wire.response().status == status
            assert wire.ask("GET", "/health").status == 200, "the connection is still good"


def test_a_text_at_which_the_tokenizer_gives_up(server, draft, monkeypatch):
    """tiktoken's Rust code panics at a million spaces, and a panic is no Exception."""
    panic = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})

    def give_up(text):
        raise panic("stack overflow")

    monkeypatch.setattr(draft.tokenizer, "encode_text", give_up)
    for path, field, value in ((TEXT, "prompt", "a"), (CHAT, "messages", [USER])):
        refused(server, path, {"model": "pocket-draft", field: value}, 400, field, "gave up")


def test_prompts_and_answers_that_are_too_long(draft):
    with serve_in_background(draft, limits=Limits(max_prompt_tokens=20, max_tokens=5, max_choices=2)) as server:
        ask_for = partial(refused, server, TEXT)
        ask_for({"model": "pocket-draft", "prompt": [1] * 21}, 400, "prompt", "21 tokens", "at most 20")
        ask_for({"model": "pocket-draft", "prompt": [1], "max_tokens": 6}, 400, "max_tokens", "= 6", "[1, 5]")
        ask_for({"model": "pocket-draft", "prompt": "a", "n": 3}, 400, "n", "n = 3", "[1, 2]")
        answer = ask(server, "POST", CHAT, chat_body()).json()
        assert answer["usage"]["completion_tokens"] == 5, "the default obeys as well"


MANY = 25_000  # nearly a megabyte


@pytest.mark.parametrize("more, param, words", [
    ({"messages": [USER] * MANY}, "messages", ["len(messages) = 25000", "at most 1023"]),
    ({"messages": [USER, {"role": "assistant", "tool_calls": [CALL] * 9000}]}, "tool_calls",
     ["len(tool_calls) = 9000", "at most 1023"]),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": ""}] * 20_000}]}, "content",
     ["len(content) = 20000", "at most 1023"]),
    ({"messages": [{"role": "user", "content": "probability " * 10_000}]}, "messages",
     ["messages of 120000 characters", "at most 14322", "1023 tokens"]),
    ({"messages": [USER, {"role": "assistant", "tool_calls": [CALL | {"function": {
        "name": "f", "arguments": json.dumps({"x": "y" * 20_000})}}]}]}, "messages", ["characters", "at most 14322"]),
    ({"messages": [USER], "tools": [TOOL] * 15_000}, "tools", ["len(tools) = 15000", "at most 1023"]),
    ({"messages": [USER], "tools": [{"type": "function", "function": {
        "name": "f", "parameters": {"properties": {f"p{i}": {} for i in range(60_000)}}}}]}, "tools",
     ["tools of 829", "at most 50000"]),
    ({"messages": [USER], "tools": [{"type": "function", "function": {
        "name": "f", "parameters": {"properties": {"x": {"enum": [[]] * 200_000}}}}}]}, "tools",
     ["tools of 800", "at most 50000"]),
    ({"prompt": "a" * 500_000}, "prompt", ["prompt of 500000 characters", "at most 14322"]),
])
def test_what_no_context_holds_is_refused_before_it_costs_anything(server, draft, monkeypatch, more, param, words):
    """All of it is less than a megabyte; the template alone would take seconds, and so would the tokenizer."""
    for name in ("apply_chat_template", "encode_prompt"):
        monkeypatch.setattr(draft.tokenizer, name, lambda *_, **__: pytest.fail("looked at"))
    path, started = CHAT if "messages" in more else TEXT, time.monotonic()
    refused(server, path, {"model": "pocket-draft", **more}, 400, param, *words)
    assert time.monotonic() - started < 10  # 0.1 s on a machine that has nothing else to do


def test_the_most_that_may_be_asked_is_prepared_in_time(server):
    """As many messages as there may be tokens, each of two characters."""
    started = time.monotonic()
    refused(server, CHAT, {"model": "pocket-draft", "messages": [USER] * 1023}, 400, "messages", "tokens",
            "at most 1023")
    assert time.monotonic() - started < 10  # 0.1 s on a machine that has nothing else to do


@pytest.fixture
def preparing(draft, monkeypatch):
    """A server for two requests at a time, with preparation held until the test sets an event."""
    go, make = threading.Event(), Jobs.make

    def held_back(self, body):
        assert go.wait(20)
        return make(self, body)

    monkeypatch.setattr(Jobs, "make", held_back)

    @contextmanager
    def serve(**limits):
        engine = partial(Engine, draft, max_num_seqs=1)
        with serve_in_background(draft, limits=Limits(max_queue=1, **limits), engine=engine) as server:
            try:
                yield server, go
            finally:
                go.set()

    return serve


def preparing_in(server):
    return server.app.state.service.preparing


def test_what_is_prepared_has_its_place_in_the_queue(preparing):
    with preparing() as (server, go), Wire(server) as first, Wire(server) as second:
        for wire in (first, second):
            wire.send("POST", CHAT, chat_body(max_tokens=1))
        until(lambda: preparing_in(server) == 2)
        started = time.monotonic()
        for _ in range(20):
            assert ask(server, "POST", CHAT, chat_body(max_tokens=1)).status == 429
            assert ask(server, "GET", "/health").status == 200
        assert time.monotonic() - started < 15
        go.set()
        assert [wire.response().status for wire in (first, second)] == [200, 200]
        assert preparing_in(server) == 0 and ask(server, "POST", CHAT, chat_body(max_tokens=1)).status == 200


def test_preparation_is_under_the_deadline(preparing):
    """The thread cannot be ended: its place stays taken until it is done, and then nobody computes the answer."""
    with preparing(request_seconds=0.3) as (server, go), Wire(server) as gone:
        gone.send("POST", CHAT, chat_body(max_tokens=1))
        until(lambda: preparing_in(server) == 1)
        gone.close()
        late = ask(server, "POST", CHAT, chat_body(max_tokens=1))
        assert late.status == 408 and "the answer took longer" in late.json()["error"]["message"]
        assert ask(server, "POST", CHAT, chat_body(max_tokens=1)).status == 429
        go.set()
        until(lambda: preparing_in(server) == 0)
        assert server.app.state.service.thread.in_flight == 0
        assert ask(server, "POST", CHAT, chat_body(max_tokens=1)).status == 200


def test_what_can_never_fit_is_not_told_to_try_again(draft):
    engine = partial(Engine, draft, max_num_seqs=4)
    with serve_in_background(draft, limits=Limits(max_queue=0), engine=engine) as server:
        for path, more, param, word in ((CHAT, {"messages": [USER], "n": 5}, "n", "n = 5"),
                                        (TEXT, {"prompt": ["a"] * 5}, "prompt", "len(prompt) = 5")):
            refused(server, path, {"model": "pocket-draft", **more}, 400, param, word, "must be in [1, 4]")
        assert ask(server, "POST", CHAT, chat_body(n=4, max_tokens=1)).status == 200


def test_a_full_queue(held, thread_of):
    with held(Limits(max_queue=1), max_num_seqs=2) as (server, engine), Wire(server) as first, Wire(server) as second:
        first.send("POST", CHAT, chat_body(n=2, max_tokens=2))
        second.send("POST", CHAT, chat_body(max_tokens=2))
        until(lambda: thread_of(server).in_flight == 3)
        response = ask(server, "POST", CHAT, chat_body())
        error = response.json()["error"]
        assert (response.status, response.headers["retry-after"], error["code"]) == (429, "1", "queue_full")
        assert error["type"] == "rate_limit_error" and "at most 3" in error["message"]
        with client_of(server) as client, pytest.raises(openai.RateLimitError):
            client.completions.create(model="pocket-draft", prompt="a")
        engine.let(100)
        assert first.response().status == second.response().status == 200
        until(lambda: thread_of(server).in_flight == 0)
        assert ask(server, "POST", CHAT, chat_body(max_tokens=1)).status == 200


def test_requests_that_wait_in_front_of_the_queue(draft, monkeypatch):
    """A body that does not come keeps no place of the engine's: what is being read has a limit of its own."""
    monkeypatch.setattr("course_lib.server.app.SPARE_REQUESTS", 0)
    engine = partial(Engine, draft, max_num_seqs=1)
    with serve_in_background(draft, limits=Limits(max_queue=0), engine=engine) as server, \
            Wire(server), Wire(server), Wire(server) as slow:  # two connections that ask nothing keep nobody out
        assert ask(server, "POST", CHAT, chat_body(max_tokens=1)).status == 200
        slow.send("POST", CHAT, Content_Length="9")
        until(lambda: ask(server, "GET", "/v1/models").status == 503)
        response = ask(server, "POST", CHAT, chat_body(max_tokens=1))
        error = response.json()["error"]
        assert (response.status, response.headers["retry-after"], error["code"]) == (503, "1", "overloaded")
        assert error["type"] == "server_error" and "at most 1 can be" in error["message"]
        assert [ask(server, "GET", path).status for path in ("/health", "/")] == [200, 200], "busy, and not sick"
        with client_of(server) as client, pytest.raises(openai.InternalServerError, match="at most 1 can be"):
            client.completions.create(model="pocket-draft", prompt="a")
        slow.socket.sendall(b'{"a": 12}')
        assert slow.response().status == 422
        until(lambda: ask(server, "POST", CHAT, chat_body(max_tokens=1)).status == 200)
        with Wire(server) as gone:
            gone.send("POST", CHAT, Content_Length="9")
            until(lambda: ask(server, "GET", "/v1/models").status == 503)
        until(lambda: ask(server, "GET", "/v1/models").status == 200)


def test_the_client_does_not_repeat_what_took_too_long(held):
    """Three times the load, and no answer either."""
    with held(Limits(request_seconds=0.2)) as (server, _), client_of(server, max_retries=2) as client:
        asked = []
        submit = server.app.state.service.thread.submit
        server.app.state.service.thread.submit = lambda *args: asked.append(args) or submit(*args)
        with pytest.raises(openai.APIStatusError, match="request_seconds"):
            client.completions.create(model="pocket-draft", prompt="a")
        assert len(asked) == 1


def test_an_answer_that_takes_too_long(held, thread_of):
    with held(Limits(request_seconds=0.3)) as (server, engine), client_of(server) as client:
        engine.let(2)
        with pytest.raises(openai.APIStatusError, match=r"longer than request_seconds = 0\.3") as caught:
            client.completions.create(model="pocket-draft", prompt="a", max_tokens=50, extra_body={"ignore_eos": True})
        assert caught.value.status_code == 408 and caught.value.response.headers["x-should-retry"] == "false"
        until(lambda: thread_of(server).in_flight == 0)
        engine.let(3)
        stream = client.completions.create(model="pocket-draft", prompt="a", max_tokens=50, stream=True,
                                           extra_body={"ignore_eos": True})
        with pytest.raises(openai.APIError, match=r"longer than request_seconds = 0\.3"):
            list(stream)
        until(lambda: thread_of(server).in_flight == 0)


# --- who may ask ----------------------------------------------------------------------------------


def test_how_long_a_comparison_takes_says_nothing_of_the_key(draft, monkeypatch):
    """One function decides, and it gets two values of the same length whatever the client has sent."""
    compared = []
    with serve_in_background(draft, api_key="secret-1") as server:
        for verdict, status in ((True, 200), (False, 401)):
            monkeypatch.setattr(hmac, "compare_digest", lambda *two, verdict=verdict: compared.append(two) or verdict)
            for key in ("secret-1", "secret-2", "x"):
                assert ask(server, "GET", "/v1/models", Authorization=f"Bearer {key}").status == status
    assert len(compared) == 6 and {len(value) for pair in compared for value in pair} == {32}


def test_a_key(draft):
    with serve_in_background(draft, api_key="secret-1") as server:
        for header in (None, "secret-1", "Bearer", "Bearer ", "Bearer secret-", "Bearer secret-12", "Basic secret-1",
                       "Bearer sécret", "Bearer " + "x" * 5000):
            for path in ("/v1/models", "/metrics", "/v1/nowhere", "//v1/models"):
                response = ask(server, "GET", path, Authorization=header)
                assert response.status == 401 and response.json()["error"]["code"] == "invalid_api_key"
                assert b"secret-1" not in response.body and response.headers["www-authenticate"] == "Bearer"
        assert ask(server, "POST", CHAT, chat_body()).status == 401
        for header in ("Bearer secret-1", "bearer secret-1"):
            assert ask(server, "GET", "/v1/models", Authorization=header).status == 200
        assert ask(server, "GET", "/health").status == 200
        with client_of(server, api_key="secret-1") as client:
            assert client.models.list().data
        with client_of(server, api_key="wrong") as client, pytest.raises(openai.AuthenticationError):
            client.models.list()


@pytest.mark.parametrize("key", ["", " ", "two words", "schlüssel", "line\n", 3])
def test_a_key_that_no_header_could_bring(draft, key):
    with pytest.raises(ValueError, match="api_key is not allowed") as caught, serve_in_background(draft, api_key=key):
        pass
    assert len(str(key)) < 2 or str(key) not in str(caught.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_beyond_this_machine_only_with_a_key(draft, host):
    with pytest.raises(ValueError, match="not allowed without an API key"), serve_in_background(draft, host=host):
        pass


@pytest.mark.parametrize("host, status", [
    ("127.0.0.1", 200), ("localhost:8000", 200), ("[::1]:80", 200), ("LOCALHOST", 200), ("attacker.example", 403),
    ("127.0.1.1:8000", 200), ("192.0.2.1", 403), ("[2001:db8::1]", 403), ("0.0.0.0", 403),
    ("attacker.example:8000", 403), ("127.0.0.1.attacker.example", 403), ("localhost.attacker.example", 403),
    ("", 403), ("[::1", 200), ("127.0.0.1@attacker.example", 403)])
def test_a_name_that_points_here_but_is_not_ours(server, host, status):
    """DNS rebinding: the page of another site reaches this machine under that site's name."""
    assert ask(server, "GET", "/v1/models", Host=host).status == status


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None])
def test_a_page_of_another_site_cannot_send_a_request(server, kind):
    """These kinds of body a browser sends without asking; for JSON it asks first, and is not told yes."""
    assert ask(server, "POST", CHAT, chat_body(max_tokens=1), Content_Type=kind).status == 415
    answer = ask(server, "OPTIONS", CHAT, Origin="https://example.com", Access_Control_Request_Method="POST")
    assert answer.status == 405 and not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere 127.0.0.1 is the only one at first")
def test_any_address_of_this_machine_alone_may_be_listened_on(draft):
    """Linux has sixteen million of them; on Debian a machine's own name is one."""
    with serve_in_background(draft, host="127.0.0.2") as server, openai.OpenAI(
            base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        assert client.models.list().data


# --- when the engine fails -------------------------------------------------------------------------


def failing(lm, error, after):
    """Makes engines, of which the first raises an error in the pass after so many."""
    plans = [after]

    class Failing(Engine):
        passes_left = None

        def step(self):
            if self.passes_left == 0:
                raise error
            if self.passes_left is not None:
                self.passes_left -= 1
            return super().step()

    def make():
        engine = Failing(lm)
        engine.passes_left = plans.pop() if plans else None
        return engine

    return make


@pytest.mark.parametrize("error", [RuntimeError("out of luck"), ValueError("logits"), Panic("in Rust"), SystemExit(3)])
def test_a_failing_pass_ends_its_requests_and_nothing_else(draft, error, caplog, thread_of):
    with serve_in_background(draft, engine=failing(draft, error, 1)) as server, client_of(server) as client:
        with pytest.raises(openai.InternalServerError, match="the engine failed") as caught:
            client.completions.create(model="pocket-draft", prompt="a", max_tokens=9, n=2,
                                      extra_body={"ignore_eos": True})
        assert caught.value.body["type"] == "server_error" and str(error) not in str(caught.value)
        assert [record.exc_info[1] for record in caplog.records] == [error]
        assert client.completions.create(model="pocket-draft", prompt="a", temperature=0).choices[0].text
        assert thread_of(server).failures == 1 and thread_of(server).in_flight == 0
        metrics = ask(server, "GET", "/metrics").body
        assert b'finished_reason="error",model_name="pocket-draft"} 2.0' in metrics


def test_a_request_that_cannot_go_on_ends_alone(draft, caplog, thread_of):
    class Fails(Engine):
        """Computes nonsense for the third token, where a seed asks for it."""

        def forward(self, work):
            logits = super().forward(work)
            for row, one in zip(logits, [one for one in work if one.gets_token], strict=True):
                if self.requests[one.sequence.request_id].params.seed == 13 and len(one.sequence.output_ids) == 2:
                    row.fill_(float("nan"))
            return logits

    with serve_in_background(draft, engine=lambda: Fails(draft)) as server:
        bad = ask(server, "POST", CHAT, chat_body(max_tokens=9, seed=12, n=2, ignore_eos=True))
        streamed = ask(server, "POST", CHAT, chat_body(max_tokens=9, seed=13, stream=True, ignore_eos=True))
        assert ask(server, "POST", CHAT, chat_body(max_tokens=9, seed=1)).status == 200
        error = json.loads(bad.body)["error"]
        assert (bad.status, error["code"]) == (500, "request_error")
        assert error["message"].startswith("the answer cannot go on: the model's logits are not finite")
        *_, event, done = events(streamed.chunks)
        assert json.loads(event)["error"]["code"] == "request_error" and done == b"[DONE]"
        assert thread_of(server).failures == 0 and thread_of(server).in_flight == 0
        assert not thread_of(server).tickets and "logits are not finite" in caplog.text


def test_a_request_behind_one_that_breaks_the_engine_is_served_by_the_next(draft, caplog, thread_of):
    made = []

    class Breaks(HeldEngine):
        def add_request(self, request_id, prompt_ids, params):
            if params.seed == 13:
                raise RuntimeError("broken")
            super().add_request(request_id, prompt_ids, params)

    def make():
        made.append((Engine if made else Breaks)(draft))
        return made[-1]

    with serve_in_background(draft, engine=make) as server, Wire(server) as first, Wire(server) as bad, \
            Wire(server) as good:
        first.send("POST", CHAT, chat_body(max_tokens=2))
        until(lambda: made[0].begun == 1)  # which now waits, so that both of the others are in the queue
        bad.send("POST", CHAT, chat_body(max_tokens=2, seed=13))
        until(lambda: thread_of(server).in_flight == 2)
        good.send("POST", CHAT, chat_body(max_tokens=2))
        until(lambda: thread_of(server).in_flight == 3)
        made[0].let(1)
        assert [wire.response().status for wire in (first, bad, good)] == [500, 500, 200]
        assert thread_of(server).failures == 1 and thread_of(server).in_flight == 0
        made.clear()


@pytest.mark.parametrize("begin, said", [("", (400, "invalid_value")), ("a" * 50, (500, "request_error"))])
def test_a_pattern_that_would_keep_the_engine_busy_ends_alone(server, thread_of, caplog, begin, said):
    """It is refused before the engine sees it, if it shows at the first token."""
    pattern = begin + "(" + "".join(f"{letter}?" for letter in "abcdefghijklmnopqrstuvwxyz ") + "){100}"
    with Wire(server) as bad, Wire(server) as good:
        bad.send("POST", CHAT, chat_body(max_tokens=60, structured_outputs={"regex": pattern}))
        good.send("POST", CHAT, chat_body(max_tokens=5))
        refusal = bad.response()
        assert good.response().status == 200
    error = refusal.json()["error"]
    assert (refusal.status, error["code"]) == said and "too ambiguous" in error["message"]
    assert thread_of(server).failures == 0 and thread_of(server).in_flight == 0


def test_the_failed_engine_is_gone_before_the_fresh_one_is_made(draft, monkeypatch):
    """Its pages may be half of the memory. Whoever keeps log records keeps the traceback, and that the engine."""
    monkeypatch.setattr(engine_thread.LOG, "disabled", True)
    made, alive = [], []

    class Fails(Engine):
        def step(self):
            raise RuntimeError

    def make():
        alive.append([engine() is not None for engine in made])
        engine = (Engine if made else Fails)(draft)
        made.append(weakref.ref(engine))
        return engine

    with serve_in_background(draft, engine=make) as server:
        assert ask(server, "POST", CHAT, chat_body()).status == 500
        assert ask(server, "POST", CHAT, chat_body(max_tokens=1)).status == 200
    assert alive == [[], [False]]


def test_in_mid_stream_an_error_is_an_event(draft, caplog):
    with serve_in_background(draft, engine=failing(draft, RuntimeError("out of luck"), 3)) as server:
        response = ask(server, "POST", CHAT, chat_body(stream=True, max_tokens=9))
        *before, error, done = events(response.chunks)
        assert response.status == 200 and len(before) == 4 and done == b"[DONE]"
        assert json.loads(error)["error"]["code"] == "engine_error"
        assert ask(server, "POST", CHAT, chat_body(max_tokens=1)).status == 200


def test_the_client_raises_the_error_of_a_stream(draft, caplog):
    engine = failing(draft, RuntimeError("out of luck"), 3)
    with serve_in_background(draft, engine=engine) as server, client_of(server) as client:
        got, stream = [], client.completions.create(model="pocket-draft", prompt="a", max_tokens=9, stream=True,
                                                          temperature=0)
        with pytest.raises(openai.APIError, match="the engine failed"):
            for chunk in stream:
                got.append(chunk)
        assert len(got) == 3


def test_an_engine_that_cannot_be_replaced_is_told_by_health(draft, caplog, thread_of):
    first = failing(draft, RuntimeError("broken"), 0)()
    engines = [first]
    with serve_in_background(draft, engine=lambda: engines.pop()) as server:
        del first
        assert ask(server, "POST", CHAT, chat_body()).status == 500
        until(lambda: not thread_of(server).thread.is_alive())
        assert ask(server, "GET", "/health").status == 503
        assert ask(server, "POST", CHAT, chat_body()).status == 503
