"""A real S3 server on the loopback, and a proxy in front of it that does what networks do."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any, NamedTuple
from urllib.parse import unquote

ANSWER = "<Error><Code>{}</Code><Message>{}</Message></Error>"


class Request(NamedTuple):
    """What the proxy was asked for."""

    method: str
    path: str
    """/bucket/name"""
    range: str
    """The header, such as "bytes=0-99"; "" for the whole object."""


@dataclass(frozen=True)
class Fault:
    """What the proxy does instead of what it should."""

    seconds: float = 0
    """It waits first."""
    status: int = 0
    """It answers with this instead of asking the server."""
    message: str = ""
    code: str = "Injected"
    cut_after: int | None = None
    """It closes the connection after so many bytes of the body; after 0 by a reset."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report nothing where the client is gone: it would appear in the output of a later test."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class FaultyProxy:
    """Passes requests on to a server. `fault(request)` returns what goes wrong with a request; `requests` are all."""

    def __init__(self, port: int) -> None:
        self.requests: list[Request] = []
        self.fault: Callable[[Request], Fault | None] = lambda _: None
        self._lock = Lock()
        self._server = _Server(("127.0.0.1", 0), _handler(self, port))
        Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def note(self, request: Request) -> Fault:
        with self._lock:
            self.requests.append(request)
            return self.fault(request) or Fault()

    def objects_read(self) -> list[str]:
        """Return the names of the objects of which something was read, in the order of the requests."""
        return [each.path for each in self.requests if each.method == "GET" and "?" not in each.path]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(proxy: FaultyProxy, port: int) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            fault = proxy.note(Request(self.command, unquote(self.path), self.headers.get("Range", "")))
            time.sleep(fault.seconds)
            if fault.status:
                return self.answer(fault.status, {}, ANSWER.format(fault.code, fault.message).encode())
            with closing(http.client.HTTPConnection("127.0.0.1", port)) as server:
                server.request(self.command, self.path, body, dict(self.headers))
                answer = server.getresponse()
                self.answer(answer.status, dict(answer.getheaders()), answer.read(), fault.cut_after)
            return None

        def answer(self, status: int, headers: dict[str, str], content: bytes, cut_after: int | None = None) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                    self.send_header(name, value)
            length = headers.get("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(content)))
            self.end_headers()
            self.wfile.write(content[:cut_after])
            if cut_after is not None:
                if not cut_after:
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                self.close_connection = True

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = forward

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


@contextmanager
def running_server() -> Iterator[int]:
    """Start moto's server in a process of its own, and yield its port."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], **quiet)
    try:
        while server.poll() is None:
            with closing(socket.socket()) as connection:
                if connection.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.02)
        yield port
    finally:
        server.kill()
        server.wait()


def environment(address: str) -> dict[str, str]:
    """Return the variables with which programs use a server."""
    credentials = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}
    return {**credentials, "AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": address}


def put(bucket: str, key: str, content: bytes) -> None:
    """Write an object with another client than detaug's."""
    client().put_object(Bucket=bucket, Key=key, Body=content)


def upload(folder: Path, bucket: str, prefix: str = "") -> str:
    """Write all files of a folder into a bucket, and return their address."""
    client().create_bucket(Bucket=bucket)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            put(bucket, os.path.join(prefix, path.relative_to(folder)), path.read_bytes())
    return f"s3://{os.path.join(bucket, prefix)}"


def client() -> Any:
    import boto3

    return boto3.client("s3")
