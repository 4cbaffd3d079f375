"""Servers for the tests: one of each shipped model for a whole file, and engines that a test can hold or break."""

import json
import threading
from contextlib import contextmanager
from functools import partial

import openai
import pytest
from wire import until

from course_lib import load
from course_lib.engine import Engine
from course_lib.server import serve_in_background


class RecordingEngine(Engine):
    """Remembers what it was asked."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.asked = []

    def add_request(self, request_id, prompt_ids, params):
        self.asked.append((list(prompt_ids), params))
        super().add_request(request_id, prompt_ids, params)


class HeldEngine(Engine):
    """Makes a pass only when the test lets it."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.gate, self.begun = threading.Semaphore(0), 0

    def step(self):
        self.begun += 1
        self.gate.acquire()
        return super().step()

    def let(self, passes):
        self.gate.release(passes)


class Panic(BaseException):
    """As a panic in Rust shows in Python: no Exception."""


@pytest.fixture(scope="session")
def draft():
    return load("pocket-draft")


@pytest.fixture(scope="session")
def pocket():
    return load("pocket")


@pytest.fixture(scope="module")
def server(draft):
    with serve_in_background(draft) as server:
        yield server


@pytest.fixture(scope="module")
def client(server):
    with client_of(server) as client:
        yield client


def client_of(server, **options):
    return openai.OpenAI(base_url=f"{server.url}/v1", **{"api_key": "none", "max_retries": 0, "timeout": 60} | options)


@pytest.fixture
def held(draft):
    """A function that serves the draft with an engine that waits for the test: (server, engine) of its options."""
    @contextmanager
    def serve(limits=None, **options):
        with serve_in_background(draft, limits=limits, engine=partial(HeldEngine, draft, **options)) as server:
            engine = server.app.state.service.thread.engine
            try:
                yield server, engine
            finally:
                engine.let(10_000)  # nothing waits any more when the server stops

    return serve


@pytest.fixture
def thread_of():
    return lambda server: server.app.state.service.thread


def chat_body(text="What is gravity?", **more):
    return json.dumps({"model": "pocket-draft", "messages": [{"role": "user", "content": text}], "temperature": 0,
                       **more}).encode()


__all__ = ["HeldEngine", "Panic", "RecordingEngine", "chat_body", "client_of", "until"]
