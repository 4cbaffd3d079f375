"""The load test against a real server, and against servers that lose, mix up and fail."""

import asyncio
import json
import os
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from course_lib import __main__, load
from course_lib.analysis import load_test as load_test_module
from course_lib.analysis.load_test import Answer, Report, load_test, pid_of, resident_bytes, take_line
from course_lib.server import serve_in_background

PROMPTS = ("Once upon a time", "The old man", "tell me a story")


def test_many_clients_of_a_real_server_get_their_own_texts():
    with serve_in_background(load("pocket-draft", device="cpu")) as server:
        report = asyncio.run(load_test(server.url, clients=8, seconds=1.5, max_tokens=12, prompts=PROMPTS,
                                       pid=os.getpid()))
    assert report.ok and len(report.answers) >= 8, list(report.lines())
    assert {answer.prompt for answer in report.answers} == set(PROMPTS)
    assert len(set(report.expected.values())) == 3 and all(report.memory)
    text = "\n".join(report.lines())
    assert "0 errors, 0 lost, 0 with another" in text and "first piece" in text and "99 %" in text and "MB" in text


class Faulty(BaseHTTPRequestHandler):
    """Right while one asks alone; afterwards as `fault` says."""

    fault, asked, alone = "", 0, 0

    def log_message(self, *args):
        pass

    def reply(self, status, data):
        self.send_response(status)
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.reply(200, json.dumps({"data": [{"id": "m"}]}).encode())

    def do_POST(self):
        prompt = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["prompt"]
        Faulty.asked += 1
        fault = Faulty.fault if Faulty.asked > Faulty.alone else ""
        if fault == "status":
            return self.reply(500, b"broken")
        text = PROMPTS[0] + PROMPTS[1] if fault == "mixed" else prompt
        lines = [f"data: {json.dumps({'choices': [{'text': piece}]})}\n\n" for piece in text.split(" ")]
        if fault == "error":
            lines[1:] = ['data: {"error": {"message": "no more"}}\n\n']
        if fault == "cut":
            lines[1:] = ['data: {"choices": [{"te']
        if fault == "form":
            lines[1:] = ['data: {"choices": [{"message": null}]}\n\n']
        if fault not in ("lost", "cut"):
            lines.append("data: [DONE]\n\n")
        self.reply(200, "".join(lines).encode())


@contextmanager
def faulty(fault, alone=None):
    Faulty.fault, Faulty.asked, Faulty.alone = fault, 0, len(PROMPTS) if alone is None else alone
    server = ThreadingHTTPServer(("127.0.0.1", 0), Faulty)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("fault, part", [("status", "errors"), ("error", "errors"), ("lost", "lost"),
                                         ("cut", "errors"), ("form", "errors"),
                                         ("mixed", "different"), ("", None)])
def test_what_goes_wrong_is_counted(fault, part):
    with faulty(fault) as url:
        report = asyncio.run(load_test(url, clients=3, seconds=0.2, prompts=PROMPTS))
    counts = {name: len(getattr(report, name)) for name in ("errors", "lost", "different")}
    assert report.ok == (part is None)
    assert {name for name, n in counts.items() if n} == ({part} if part else set())
    assert len(list(report.lines())) >= 2 + (part is not None)


def test_a_server_that_is_not_there_is_one_line(capsys):
    assert __main__.main(["load-test", "--url", "http://127.0.0.1:9", "--seconds", "1"]) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and "no models at http://127.0.0.1:9" in said.err and said.out == ""


def test_the_command_fails_if_an_answer_did(capsys):
    with faulty("lost", alone=len(load_test_module.PROMPTS)) as url:
        assert __main__.main(["load-test", "--url", url, "--seconds", "0.2", "--clients", "2"]) == 1
    assert "lost" in capsys.readouterr().out


def test_a_test_without_answers_is_no_success():
    assert not Report([], {}, 1.0).ok


def test_pieces_have_their_times_and_comments_none():
    answer = Answer("p")
    for line in (": ping", "", 'data: {"choices": [{"text": "a"}]}', 'data: {"choices": [{"text": ""}]}',
                 'data: {"choices": []}', 'data: {"choices": [{"text": "b"}]}', "data: [DONE]"):
        take_line(answer, line, 0.5)
    assert (answer.text, answer.times, answer.done) == ("ab", [0.5, 0.5], True)


MB = 10**6
FILLING = [(100 + 20 * second) * MB for second in range(15)]  # the first quarter of a minute: caches fill


@pytest.mark.parametrize("memory, ok, words", [
    (FILLING + [440 * MB] * 45, True, "440 MB, +0 MB since a quarter of the time (within the 32 MB that are allowed)"),
    (FILLING + [(440 + i % 5) * MB for i in range(45)], True, "+4 MB"),  # a heap that breathes
    (FILLING + [(440 + i) * MB for i in range(45)], False, "484 MB, +44 MB since a quarter of the time (MORE than the "
     "32 MB that are allowed), at most 484 MB"),
    ([*FILLING, *[440 * MB] * 43, 600 * MB, 440 * MB], True, "+0 MB"),  # a peak that is over
    ([440 * MB] * 16 + [472 * MB] * 44, True, "+32 MB"), ([440 * MB] * 16 + [473 * MB] * 44, False, "+33 MB"),
    ([2000 * MB] * 16 + [2099 * MB] * 44, True, "within the 100 MB"),
    ([2000 * MB] * 16 + [2101 * MB] * 44, False, "MORE than the 100 MB"),
    ([(100 + 50 * i) * MB for i in range(19)], True, "too short a test to judge"),
    ([(100 + 50 * i) * MB for i in range(20)], False, "MORE than"),
    ([], True, None),
])
def test_a_server_whose_memory_grows_is_not_ok(memory, ok, words):
    report = Report([Answer("p", "text", [0.1], done=True)], {"p": "text"}, 60.0, memory)
    lines = "\n".join(report.lines())
    assert report.ok == ok and bool(report.grows) == (not ok)
    assert words in lines if words else "memory" not in lines


def test_the_command_watches_the_server_of_this_machine_and_says_if_it_grows(monkeypatch, capsys):
    sizes = iter(range(500 * MB, 10**12, 50 * MB))
    asked = []

    async def watch(pid, memory):
        asked.append(pid)
        memory.extend(next(sizes) for _ in range(30))

    monkeypatch.setattr(load_test_module, "watch", watch)
    with faulty("", alone=len(load_test_module.PROMPTS)) as url:
        assert __main__.main(["load-test", "--url", url, "--seconds", "0.2", "--clients", "2"]) == 1
        assert __main__.main(["load-test", "--url", url, "--seconds", "0.2", "--clients", "2", "--pid", "1"]) == 1
    assert asked == [os.getpid(), 1] and capsys.readouterr().out.count("MORE than") == 2


@pytest.mark.parametrize("family, host, name", [(socket.AF_INET, "127.0.0.1", "127.0.0.1"),
                                                (socket.AF_INET, "0.0.0.0", "localhost"),
                                                (socket.AF_INET6, "::1", "[::1]")])
def test_the_process_of_a_port(family, host, name):
    with socket.socket(family) as listener:
        listener.bind((host, 0))
        port = listener.getsockname()[1]
        assert pid_of(f"http://{name}:{port}") is None, "nobody listens yet"
        listener.listen()
        assert pid_of(f"http://{name}:{port}") == os.getpid()
        assert pid_of(f"http://example.org:{port}") is None, "another machine's"
    assert pid_of(f"http://{name}:{port}") is None


def test_memory_of_a_process_that_is_gone_is_unknown():
    assert resident_bytes(os.getpid()) > 1e7 and resident_bytes(2**22 + 1) == 0
