"""The bytes on the wire, and what happens when nobody reads them any more."""

import asyncio
import json

import pytest
from conftest import chat_body
from tiny_lm import scrambled_lm
from wire import Wire, ask, events, until

from course_lib.server import Limits, listening, sending, serve_in_background
from course_lib.server.sending import EventStream

CHAT = ("POST", "/v1/chat/completions")


def test_a_stream_byte_by_byte(server):
    with Wire(server) as wire:
        wire.send(*CHAT, chat_body(stream=True, max_tokens=3, stream_options={"include_usage": True}))
        response = wire.response()
    assert response.status == 200
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["transfer-encoding"] == "chunked" and response.headers["cache-control"] == "no-store"
    assert not [name for name in response.headers if name.startswith("access-control")], "closed to other pages"
    assert "server" not in response.headers
    *data, done = events(response.chunks)  # one event is one chunk
    assert done == b"[DONE]"
    first = json.loads(data[0])
    fields = {"id": first["id"], "object": "chat.completion.chunk", "created": first["created"],
              "model": "pocket-draft"}
    assert first == fields | {"usage": None, "choices": [
        {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}]}
    assert data[0] == json.dumps(first, separators=(",", ":")).encode(), "no spaces"
    texts = [json.loads(one) for one in data[1:-1]]
    assert [one["choices"][0]["finish_reason"] for one in texts] == [None, None, "length"]
    assert all(one["choices"][0]["delta"]["content"] for one in texts)
    assert json.loads(data[-1]) == fields | {"choices": [], "usage": {
        "prompt_tokens": 13, "completion_tokens": 3, "total_tokens": 16}}


def test_an_event_comes_when_its_token_is_there_and_not_later(held):
    with held() as (server, engine), Wire(server) as wire:
        wire.send(*CHAT, chat_body(stream=True, max_tokens=4))
        assert wire.head().status == 200 and b'"role":"assistant"' in wire.chunk(), "before the prompt was read"
        for _ in range(4):
            engine.let(1)
            assert b'"content":"' in wire.chunk()
        assert events([wire.chunk()]) == [b"[DONE]"] and wire.chunk() == b""


def test_every_event_is_utf8_of_its_own():
    with serve_in_background(scrambled_lm(), model="tiny") as server:
        body = json.dumps({"model": "tiny", "prompt": "cat", "max_tokens": 60, "seed": 1, "stream": True}).encode()
        response = ask(server, "POST", "/v1/completions", body)
    data = events(response.chunks)[:-1]
    text = "".join(json.loads(one.decode())["choices"][0]["text"] for one in data)
    assert len(data) < 60 and not text.isascii(), "some tokens had to wait for the rest of a character"
    assert not b"".join(data).isascii(), "characters are not escaped"


def test_a_connection_is_used_again(server):
    with Wire(server) as wire:
        wire.send(*CHAT, chat_body(stream=True, max_tokens=2))
        assert wire.response().status == 200
        assert wire.ask(*CHAT, chat_body(max_tokens=2)).json()["usage"]["completion_tokens"] == 2
        assert wire.ask(*CHAT, b"{}").status == 422
        assert wire.ask("GET", "/health").status == 200


def test_a_body_in_chunks(server):
    body = chat_body(max_tokens=2)
    with Wire(server) as wire:
        wire.send(*CHAT, Content_Length=None, Transfer_Encoding="chunked")
        for part in (body[:10], body[10:]):
            wire.socket.sendall(b"%x\r\n%s\r\n" % (len(part), part))
        wire.socket.sendall(b"0\r\n\r\n")
        assert wire.response().status == 200


def leaves_within_a_pass(server, engine, thread, go):
    """The client goes away in the middle of a pass; after that pass its slot and its pages are free."""
    assert thread.stats.running > 0 and thread.stats.blocks_used > 0
    begun = engine.begun
    go()
    until(lambda: thread.in_flight == 0)
    engine.let(1)
    until(lambda: thread.stats.running == 0)
    assert engine.begun == begun and thread.stats.blocks_used == thread.stats.waiting == 0


def test_a_closed_socket_frees_its_slot_within_a_pass(held, thread_of):
    with held(enable_prefix_caching=False) as (server, engine):
        thread, wire = thread_of(server), Wire(server)
        wire.send(*CHAT, chat_body("Tell me a story.", stream=True, n=3, max_tokens=500))
        wire.head()
        engine.let(4)
        for _ in range(3 + 4):
            wire.chunk()
        until(lambda: engine.begun == 5)
        leaves_within_a_pass(server, engine, thread, wire.close)
        assert b'finished_reason="abort",model_name="pocket-draft"} 3.0' in ask(server, "GET", "/metrics").body


def test_so_does_one_that_waits_for_the_whole_answer(held, thread_of):
    with held(enable_prefix_caching=False) as (server, engine):
        thread, wire = thread_of(server), Wire(server)
        wire.send(*CHAT, chat_body("Tell me a story.", max_tokens=500))
        engine.let(3)
        until(lambda: engine.begun == 4)
        leaves_within_a_pass(server, engine, thread, wire.close)


@pytest.mark.parametrize("stream", [False, True])
def test_so_does_one_that_has_not_been_taken_yet(held, thread_of, stream, caplog):
    with held(enable_prefix_caching=False) as (server, engine):
        thread = thread_of(server)
        with Wire(server) as first:
            first.send(*CHAT, chat_body(max_tokens=3, stream=True))
            until(lambda: engine.begun == 1)  # which now waits, so that no command is obeyed
            second = Wire(server)
            second.send(*CHAT, chat_body(max_tokens=3, stream=stream))
            until(lambda: thread.in_flight == 2)
            second.close()
            until(lambda: thread.in_flight == 1)
            engine.let(3)
            assert first.response().status == 200
        until(lambda: thread.in_flight == 0)
        until(lambda: thread.stats.blocks_used == 0)
    assert not caplog.records, "nobody has made a mistake"


def test_a_cancelled_stream_of_the_client_frees_its_slot(held, thread_of):
    from conftest import client_of
    with held() as (server, engine), client_of(server) as client:
        thread = thread_of(server)
        engine.let(2)
        stream = client.completions.create(model="pocket-draft", prompt="Once", max_tokens=500, stream=True,
                                           temperature=0)
        next(iter(stream))
        until(lambda: engine.begun == 3)
        leaves_within_a_pass(server, engine, thread, stream.close)


def test_one_that_goes_away_leaves_the_others_alone(server, client):
    body = chat_body("Tell me a story.", stream=True, max_tokens=300)
    alone = ask(server, *CHAT, chat_body(stream=True, max_tokens=30))
    with Wire(server) as leaver:
        leaver.send(*CHAT, body)
        leaver.head()
        with Wire(server) as stayer:
            stayer.send(*CHAT, chat_body(stream=True, max_tokens=30))
            leaver.close()
            contents = [json.loads(one)["choices"] for one in events(stayer.response().chunks)[:-1]]
    assert contents == [json.loads(one)["choices"] for one in events(alone.chunks)[:-1]]


def test_one_that_leaves_before_the_first_event_is_closed_as_well():
    """The generator has not begun, so that nothing inside it can clean up."""
    closed, begun = [], []

    async def numbers():
        begun.append(True)
        yield "never"

    async def gone():
        return {"type": "http.disconnect"}

    async def stuck(message):
        await asyncio.Event().wait()

    stream = EventStream(numbers(), lambda: closed.append(True))
    asyncio.run(stream({"type": "http", "asgi": {"spec_version": "2.3"}}, gone, stuck))
    assert closed == [True] and begun == []


def test_one_that_stops_reading_is_not_waited_for_longer_than_allowed(monkeypatch):
    """Its buffers are full, so that nothing can be sent, and it does not go away either."""
    monkeypatch.setattr(sending, "LATE_SECONDS", 0.1)
    closed = []

    async def numbers():
        yield "never read"

    async def stuck(*_):
        await asyncio.Event().wait()

    async def serve():
        stream = EventStream(numbers(), lambda: closed.append(True), asyncio.get_running_loop().time() + 0.1)
        await asyncio.wait_for(stream({"type": "http", "asgi": {"spec_version": "2.3"}}, stuck, stuck), 10)

    asyncio.run(serve())
    assert closed == [True]


MUCH = {"n": 8, "max_tokens": 400, "ignore_eos": True, "logprobs": True, "top_logprobs": 20, "stream": True}


def grown(server, before=None):
    """The server's numbers by their names, less those before."""
    lines = [line.rsplit(" ", 1) for line in ask(server, "GET", "/metrics").body.decode().splitlines()
             if not line.startswith("#")]
    return {name: float(value) - (before or {}).get(name, 0.0) for name, value in lines}


def one_number(numbers, name):
    [value] = [value for key, value in numbers.items() if name in key]
    return value


def test_a_reader_that_is_behind_keeps_no_place(server, thread_of, monkeypatch):
    """The engine is done, the answers are counted, others are served; the reader gets everything when it reads."""
    monkeypatch.setattr(listening, "IDLE_SECONDS", 1000)
    before = grown(server)
    with Wire(server) as wire:
        wire.send(*CHAT, chat_body("Tell me a story.", **MUCH))
        until(lambda: thread_of(server).in_flight == 8)
        until(lambda: thread_of(server).in_flight == 0, seconds=120)
        numbers = grown(server, before)
        assert one_number(numbers, 'request_success_total{engine="0",finished_reason="length"') == 8
        assert one_number(numbers, 'request_success_total{engine="0",finished_reason="abort"') == 0
        assert one_number(numbers, "generation_tokens_total") == 8 * 400
        assert one_number(numbers, "request_generation_tokens_sum") == 8 * 400
        *data, done = events(wire.response().chunks)
    assert done == b"[DONE]" and sum(b'"finish_reason":"length"' in one for one in data) == 8


def test_one_that_does_not_read_at_all_is_cut_off(draft, monkeypatch):
    cut, look = [], listening.Connection.look

    def noted(self):
        look(self)
        if self.transport.is_closing():
            cut.append(self)

    monkeypatch.setattr(listening, "IDLE_SECONDS", 0.5)
    monkeypatch.setattr(listening.Connection, "look", noted)
    with serve_in_background(draft) as server, Wire(server) as deaf, Wire(server) as deaf_to_one_piece:
        deaf.send(*CHAT, chat_body("Tell me a story.", **MUCH))
        deaf_to_one_piece.send(*CHAT, chat_body("Tell me a story.", **MUCH | {"stream": False}))
        until(lambda: len(cut) == 2, seconds=120)
        with pytest.raises((ValueError, AssertionError)):  # in the middle of a chunk, or before one
            deaf.response()
        whole = deaf_to_one_piece.response()
        assert len(whole.body) < int(whole.headers["content-length"])


def test_half_a_request_is_no_request(server, thread_of):
    for part in (b"POST /v1/chat", b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                 b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"model\":"):
        with Wire(server) as wire:
            wire.socket.sendall(part)
    with Wire(server) as wire:
        wire.socket.sendall(b"nonsense\r\n\r\n")
        response = wire.response()
        assert response.status == 400 and response.json()["error"]["code"] == "invalid_http"
    assert ask(server, "GET", "/health").status == 200 and thread_of(server).in_flight == 0


def test_a_body_that_does_not_come_is_not_waited_for_longer_than_allowed(draft):
    with serve_in_background(draft, limits=Limits(request_seconds=0.2)) as server, Wire(server) as wire:
        wire.send(*CHAT, b"{", Content_Length="100")
        response = wire.response()
    assert response.status == 408 and "request_seconds = 0.2" in response.json()["error"]["message"]
