"""HTTP by hand: requests as bytes, responses as the bytes that came."""

import json
import socket
import time
from dataclasses import dataclass, field


def until(condition, seconds=20):
    """Wait for a condition; fail where it does not come true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "this did not come true in time"
        time.sleep(0.002)


@dataclass
class Response:
    """A response as far as it was read."""

    status: int
    headers: dict[str, str]
    chunks: list[bytes] = field(default_factory=list)

    @property
    def body(self):
        return b"".join(self.chunks)

    def json(self):
        return json.loads(self.body)


class Wire:
    """A connection to a server."""

    def __init__(self, server):
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=20)
        self.file = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.file.close()
        self.socket.close()

    def send(self, method, path, body=b"", **headers):
        """Send a request; a header of None is left out."""
        fields = {"Host": "127.0.0.1", "Content-Type": "application/json", "Content-Length": str(len(body))}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value is not None)
        self.socket.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)

    def head(self):
        """Read a response's first lines."""
        status = int(self.file.readline().split()[1])
        headers = {}
        while (line := self.file.readline()) != b"\r\n":
            name, _, value = line.decode().rstrip("\r\n").partition(": ")
            headers[name.lower()] = value
        return Response(status, headers)

    def chunk(self):
        """Read one chunk of a body that is sent in chunks; b"" is the last."""
        size = int(self.file.readline(), 16)
        data = self.file.read(size)
        assert self.file.readline() == b"\r\n"
        return data

    def response(self):
        """Read a whole response."""
        response = self.head()
        if response.status == 204:
            return response
        if "content-length" in response.headers:
            response.chunks = [self.file.read(int(response.headers["content-length"]))]
        else:
            response.chunks = list(iter(self.chunk, b""))
        return response

    def ask(self, *request, **headers):
        """Send a request and read the response."""
        self.send(*request, **headers)
        return self.response()


def ask(server, *request, **headers):
    """One request over a connection of its own."""
    with Wire(server) as wire:
        return wire.ask(*request, **headers)


def events(chunks):
    """The data of server-sent events, each of which is one chunk."""
    assert all(chunk.startswith(b"data: ") and chunk.endswith(b"\n\n") and chunk.count(b"\n") == 2 for chunk in chunks)
    return [chunk[6:-2] for chunk in chunks]
