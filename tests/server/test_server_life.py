"""From start to stop: in a notebook's process, and as a command."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager
from types import SimpleNamespace

import openai
import pytest
from conftest import chat_body
from wire import Wire, ask, events, until

from course_lib.paged_cache import PagedCache
from course_lib.server import Limits, listening, serve_in_background

CHAT = ("POST", "/v1/chat/completions")
SERVE = [sys.executable, "-m", "course_lib", "serve"]


def threads():
    return {thread.name for thread in threading.enumerate()}


def test_in_this_process(draft, capfd):
    before = threads()
    with serve_in_background(draft) as server:
        assert server.url == f"http://127.0.0.1:{server.port}" and {"server", "engine"} <= threads()
        assert ask(server, *CHAT, chat_body(max_tokens=3)).status == 200
        assert ask(server, *CHAT, chat_body(max_tokens=3, stream=True)).status == 200
        assert ask(server, *CHAT, b"{}").status == 422
    assert threads() == before and capfd.readouterr() == ("", "")
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", server.port), timeout=1)


def test_inside_a_loop_that_runs(draft):
    """As in Jupyter, whose kernel has an event loop in the main thread."""
    async def cell():
        with serve_in_background(draft) as server:
            async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
                stream = await client.completions.create(model="pocket-draft", prompt="Once", stream=True, max_tokens=4)
                return [chunk async for chunk in stream]

    assert asyncio.run(cell())


def test_two_servers_beside_each_other(draft, pocket):
    with serve_in_background(draft) as one, serve_in_background(pocket) as other:
        assert one.port != other.port
        assert ask(one, "GET", "/v1/models").json()["data"][0]["id"] == "pocket-draft"
        assert ask(other, "GET", "/v1/models").json()["data"][0]["id"] == "pocket"


def test_a_port_that_is_taken(draft):
    with serve_in_background(draft) as server:
        before = threads()
        with pytest.raises(ValueError, match=rf"port = {server.port} is not allowed: Address already in use"), \
                serve_in_background(draft, port=server.port, engine=lambda: pytest.fail("made in vain")):
            pass
        assert threads() == before


def test_a_port_is_free_again_at_once(draft):
    with serve_in_background(draft) as server, Wire(server) as wire:
        assert wire.ask("GET", "/health").status == 200
    with serve_in_background(draft, port=server.port) as again:
        assert ask(again, "GET", "/health").status == 200


def test_streams_end_when_the_server_does(draft):
    with serve_in_background(draft) as server:
        wire = Wire(server)
        wire.send(*CHAT, chat_body("Tell me a story.", stream=True, max_tokens=900, ignore_eos=True))
        wire.head()
        wire.chunk()
        started = time.monotonic()
    assert time.monotonic() - started < 4
    *_, error, done = events(list(iter(wire.chunk, b"")))
    assert b'"code":"shutting_down"' in error and done == b"[DONE]"
    wire.close()


def test_an_error_in_the_block_stops_the_server(draft):
    before = threads()
    with pytest.raises(KeyError), serve_in_background(draft):
        raise KeyError
    assert threads() == before


def test_the_engine_and_its_pages_are_gone_with_the_server(draft):
    with serve_in_background(draft) as server:
        pass
    assert server.app.state.service.thread.engine is None


def test_nothing_to_do_costs_nothing(server):
    until(lambda: server.app.state.service.thread.in_flight == 0)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.1


@pytest.mark.parametrize("arguments, message", [
    ({"max_body_bytes": 0}, "max_body_bytes = 0.*>= 1"), ({"max_queue": -1}, "max_queue = -1.*>= 0"),
    ({"max_tokens": 0}, "max_tokens = 0"), ({"max_prompt_tokens": 2.5}, "max_prompt_tokens = 2.5"),
    ({"request_seconds": 0}, "request_seconds = 0"), ({"request_seconds": float("inf")}, "request_seconds = inf"),
    ({"max_choices": None}, "max_choices = None")])
def test_limits_that_are_none(arguments, message):
    with pytest.raises(ValueError, match=message):
        Limits(**arguments)


# --- the page -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path, kind, word", [
    ("/", "text/html", b"<!doctype html>"), ("/page.css", "text/css", b"{"), ("/page.js", "text/javascript", b"fetch")])
def test_the_page(server, path, kind, word):
    response = ask(server, "GET", path)
    assert response.status == 200 and response.headers["content-type"] == f"{kind}; charset=utf-8"
    assert word in response.body and "default-src 'self'" in response.headers["content-security-policy"]
    assert response.headers["x-content-type-options"] == "nosniff"


def test_a_browser_that_looks_for_an_icon_finds_no_error(server, draft):
    assert ask(server, "GET", "/favicon.ico").status == 204
    with serve_in_background(draft, api_key="k") as locked:
        response = ask(locked, "GET", "/favicon.ico")
    assert response.status == 204 and response.body == b""


def test_the_page_needs_no_key_and_brings_nothing_from_elsewhere(draft):
    with serve_in_background(draft, api_key="k") as server:
        bodies = [ask(server, "GET", path) for path in ("/", "/page.css", "/page.js")]
    assert [body.status for body in bodies] == [200, 200, 200]
    links = [link for body in bodies for link in re.findall(rb"(?:src|href)=\"([^\"#]*)\"|url\(([^)]*)\)|https?://[^\s\"']*",
                                                            body.body)]
    assert {name for pair in links for name in pair if name} <= {b"page.css", b"page.js"}


# --- the command ----------------------------------------------------------------------------------


@contextmanager
def command(*arguments, **environment):
    """The command in a process of its own, and its first line."""
    def hear_interrupts():  # a shell's background jobs, and so their children, are born deaf to SIGINT
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    process = subprocess.Popen([*SERVE, "--model", "pocket-draft", "--port", "0", *arguments], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=hear_interrupts,
                               env=os.environ | {"OMP_NUM_THREADS": "1"} | environment)
    try:
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.communicate()


# Answers that take longer than the second that they may take, and a program that serves them.
LONG = {"n": 16, "max_tokens": 900, "ignore_eos": True, "logprobs": True, "top_logprobs": 20}
BRIEF = """
import sys
from course_lib import load
from course_lib.server import serve
serve(load("pocket-draft"), port=0, seconds_to_finish=float(sys.argv[1]))
"""


def port_of(line):
    return SimpleNamespace(port=int(re.search(r"http://127.0.0.1:(\d+)", line)[1]))


@contextmanager
def serving(seconds_to_finish):
    """A process that serves, and where."""
    process = subprocess.Popen([sys.executable, "-c", BRIEF, f"{seconds_to_finish}"], text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env=os.environ | {"OMP_NUM_THREADS": "1"})
    try:
        yield process, port_of(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def is_told_to_end(stream):
    *_, error, done = events(list(iter(stream.chunk, b"")))
    return b'"code":"shutting_down"' in error and done == b"[DONE]"


def test_answers_that_take_too_long_after_sigterm_hear_why_they_end():
    with serving(0.5) as (process, server), Wire(server) as stream, Wire(server) as whole, Wire(server) as half, \
            Wire(server) as deaf:
        for wire in (deaf, stream):
            wire.send(*CHAT, chat_body(stream=True, **LONG))
        stream.head()
        whole.send(*CHAT, chat_body(**LONG))
        half.send(*CHAT, b"{", Content_Length="9")
        stream.chunk()
        assert ask(server, "GET", "/health").status == 200, "so it has read what came before"
        process.send_signal(signal.SIGTERM)
        assert is_told_to_end(stream)
        for response in (whole.response(), half.response()):
            assert (response.status, response.json()["error"]["code"]) == (503, "shutting_down")
            assert response.headers["x-should-retry"] == "false"
        assert ended(process) == (-signal.SIGTERM, "", ""), "without a traceback"


def test_a_second_signal_does_not_wait():
    with serving(1000) as (process, server), Wire(server) as stream:
        stream.send(*CHAT, chat_body(stream=True, **LONG))
        stream.head()
        for _ in range(2):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
        assert is_told_to_end(stream) and ended(process) == (-signal.SIGTERM, "", "")


def ended(process):
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


def test_the_command_serves_until_it_is_interrupted():
    with command("--api-key", "key-1", "--max-tokens", "7") as (process, line):
        url = re.search(r"pocket-draft answers at (http://127.0.0.1:\d+)", line)[1]
        assert "key-1" not in line
        with openai.OpenAI(base_url=f"{url}/v1", api_key="key-1", max_retries=0) as client:
            assert client.completions.create(model="pocket-draft", prompt="The", max_tokens=7).usage.total_tokens <= 8
            with pytest.raises(openai.BadRequestError, match=r"max_tokens = 8.*\[1, 7\]"):
                client.completions.create(model="pocket-draft", prompt="The", max_tokens=8)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{url}/v1/models")
        process.send_signal(signal.SIGINT)
        status, out, err = ended(process)
    assert (status, out) == (130, "") and err.strip() == "python -m course_lib serve: interrupted"


def test_an_answer_that_has_begun_is_finished_after_sigterm():
    with command(COURSE_API_KEY="key-2") as (process, line):
        url = re.search(r"http://127.0.0.1:\d+", line)[0]
        with openai.OpenAI(base_url=f"{url}/v1", api_key="key-2", max_retries=0) as client:
            stream = client.completions.create(model="pocket-draft", prompt="The", max_tokens=200, stream=True,
                                               extra_body={"ignore_eos": True, "return_token_ids": True})
            chunks = [next(iter(stream))]
            process.send_signal(signal.SIGTERM)
            chunks += stream
        assert sum(len(chunk.choices[0].token_ids) for chunk in chunks) == 200
        status, out, err = ended(process)
    assert (status, out, err) == (-signal.SIGTERM, "", "")


# --- connections ----------------------------------------------------------------------------------


def test_silent_connections_keep_nobody_out():
    """More of them than the process may open files; the ones that have waited longest make room."""
    resource = pytest.importorskip("resource")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, most[1]))  # the command inherits it
    try:
        process = command()
        running, line = process.__enter__()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)
    server, silent = port_of(line), []
    try:
        for _ in range(300):
            silent.append(socket.create_connection(("127.0.0.1", server.port), timeout=20))
        started = time.monotonic()
        for _ in range(5):
            assert ask(server, "GET", "/health").status == 200
            assert ask(server, *CHAT, chat_body(max_tokens=2)).status == 200
        assert time.monotonic() - started < listening.IDLE_SECONDS, "which did not have to pass"
        assert silent[0].recv(1) == b"", "the oldest was closed"
        running.send_signal(signal.SIGTERM)
        assert ended(running) == (-signal.SIGTERM, "", "")
    finally:
        for one in silent:
            one.close()
        process.__exit__(None, None, None)


def closed(wire):
    try:
        return wire.socket.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_connection_on_which_nothing_moves_is_closed(held, monkeypatch):
    monkeypatch.setattr(listening, "IDLE_SECONDS", 0.4)
    with held() as (server, engine), Wire(server) as silent, Wire(server) as slow, Wire(server) as served:
        served.send(*CHAT, chat_body(stream=True, max_tokens=2))
        served.head()
        started = time.monotonic()
        for byte in b"GET /health HTTP/1.1":  # one that never gets to the end of its head
            if time.monotonic() - started > 0.3:
                break
            slow.socket.sendall(bytes([byte]))
            time.sleep(0.05)
        assert closed(silent) and closed(slow) and time.monotonic() - started < 5
        engine.let(2)  # an answer may take as long as it likes
        assert events(list(iter(served.chunk, b"")))[-1] == b"[DONE]"
        assert closed(served), "and then a connection waits again"


@pytest.mark.parametrize("arguments, words", [
    (["--host", "0.0.0.0"], ["host = '0.0.0.0'", "without an API key"]),
    (["--port", "70000"], ["--port", "from 0 to 65,535"]),
    (["--max-queue", "-1"], ["--max-queue", ">= 0"]),
    (["--request-seconds", "0"], ["--request-seconds"]),
    (["--api-key", "two words"], ["api_key", "without spaces"]),
    (["--max-num-batched-tokens", "8"], ["max_num_batched_tokens = 8", "max_num_seqs = 32"]),
])
def test_wrong_options_are_one_line(arguments, words, capsys):
    from course_lib import __main__
    try:
        status = __main__.main(["serve", "--model", "pocket-draft", *arguments])
    except SystemExit as stop:
        status = stop.code
    out, err = capsys.readouterr()
    assert (status, out, err.count("\n")) == (2, "", 1) and all(word in err for word in words), err


def test_the_options_reach_the_engine(monkeypatch):
    from course_lib import __main__
    made, claimed = [], []
    monkeypatch.setattr("course_lib.server.command.serve", lambda lm, engine, **options: made.append(engine()))
    monkeypatch.setattr(PagedCache, "claim_memory", lambda cache: claimed.append(cache))
    assert __main__.main("serve --model pocket-draft".split()) == 0
    assert __main__.main("serve --model pocket-draft --max-num-seqs 3 --max-num-batched-tokens 70 --block-size 4 "
                         "--num-blocks 50 --no-enable-prefix-caching".split()) == 0
    sizes = [(one.max_num_seqs, one.scheduler.max_num_batched_tokens, one.blocks.block_size, one.blocks.num_blocks,
              one.blocks.enable_prefix_caching) for one in made]
    assert sizes == [(32, 512, 16, 32 * 1024 // 16, True), (3, 70, 4, 50, False)]
    assert claimed == [one.cache for one in made], "a server's memory is taken when it starts"


def test_a_port_that_is_taken_is_one_line(capsys):
    from course_lib import __main__
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert __main__.main(["serve", "--model", "pocket-draft", "--port", str(port)]) == 2
    assert f"port = {port} is not allowed: Address already in use" in capsys.readouterr().err


def test_a_key_lets_others_in(draft):
    with serve_in_background(draft, host="0.0.0.0", api_key="k") as server:
        with Wire(server) as wire:  # under whatever name they know this machine
            assert wire.ask("GET", "/v1/models", Host="box.example", Authorization="Bearer k").status == 200
            assert wire.ask("GET", "/v1/models", Host="box.example").status == 401
