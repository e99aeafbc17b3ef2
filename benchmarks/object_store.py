"""Compare epochs from an object store on the loopback with what its link gives, and with local files.

    python benchmarks/object_store.py [--device cuda] [--images 20000] [--latency 0.03] [--link 1GB] [--single]

The server answers each request after `--latency` seconds, and sends at most `--link` bytes per second to all
connections together. In each turn: all bytes of the shards by the client alone, as many requests at once as the reader
makes (the link); an epoch with an empty cache; an epoch with the full one; an epoch of the same shards as local files.
Prints images/s, medians of the turns and in brackets their range. With --single the images are objects of their own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import rmtree
from statistics import median
from tempfile import TemporaryDirectory
from threading import Lock
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import torch
from compare_versions import write_data

import detaug as da
from detaug.arguments import parse_size
from detaug.converters import pack_coco
from detaug.storage.object_store import ObjectInfo, ObjectPath, ObjectStore, run_in_threads
from detaug.storage.pieces import PIECE_BYTES

CHUNK = 256 << 10
PAGE = 1000
SENT = "/-/sent"
"""What the server answers with the number of bytes of objects that it has sent."""


class Server(ThreadingHTTPServer):
    """Serves the files of a folder as the objects of any bucket: HEAD, GET with a range, and the list of all."""

    daemon_threads, request_queue_size = True, 256

    def __init__(self, folder: str, latency: float, rate: float) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder, self.latency, self._rate = folder, latency, rate
        self.sent, self._free_at, self._lock = 0, 0.0, Lock()
        self.names = sorted(name for name in os.listdir(folder) if os.path.isfile(os.path.join(folder, name)))

    def wait_for_link(self, count: int) -> None:
        """Wait until the link has sent this many bytes more, and count them."""
        with self._lock:
            self.sent += count
            self._free_at = max(self._free_at, time.monotonic()) + count / self._rate
            wait = self._free_at - time.monotonic()
        time.sleep(max(0.0, wait))


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True
    server: Server

    def do_HEAD(self) -> None:
        size = self._file()
        if size is not None:
            self._headers(200, size)

    def do_GET(self) -> None:
        if "list-type=2" in self.path:
            return self._list()
        if self.path == SENT:
            body = str(self.server.sent).encode()
            self._headers(200, len(body))
            self.wfile.write(body)
            return None
        if (size := self._file()) is None:
            return None
        start, end = 0, size
        if span := self.headers.get("Range"):
            first, last = span.removeprefix("bytes=").split("-")
            start, end = int(first), int(last) + 1
        self._headers(206 if span else 200, end - start, {"Content-Range": f"bytes {start}-{end - 1}/{size}"})
        with open(self._path(), "rb") as file:
            for at in range(start, end, CHUNK):
                self.server.wait_for_link(min(CHUNK, end - at))
                os.sendfile(self.connection.fileno(), file.fileno(), at, min(CHUNK, end - at))
        return None

    def _path(self) -> str:
        return os.path.join(self.server.folder, os.path.basename(unquote(urlsplit(self.path).path)))

    def _file(self) -> int | None:
        time.sleep(self.server.latency)
        try:
            return os.stat(self._path()).st_size
        except FileNotFoundError:
            self._headers(404, 0)
            return None

    def _headers(self, status: int, length: int, more: dict[str, str] | None = None) -> None:
        self.send_response_only(status)
        dated = {"Last-Modified": "Sun, 22 Nov 2026 00:00:00 GMT", "ETag": '"1"'}
        for name, value in {"Content-Length": str(length), **dated, **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.flush()

    def _list(self) -> None:
        time.sleep(self.server.latency)
        query = parse_qs(urlsplit(self.path).query)
        first = int(query.get("continuation-token", ["0"])[0])
        names = self.server.names[first : first + PAGE]
        more = first + PAGE < len(self.server.names)
        row = (
            "<Contents><Key>{}</Key><Size>{}</Size><ETag>1</ETag>"
            "<LastModified>2026-11-22T00:00:00Z</LastModified></Contents>"
        )
        rows = "".join(
            row.format(escape(name), os.stat(os.path.join(self.server.folder, name)).st_size) for name in names
        )
        token = f"<NextContinuationToken>{first + PAGE}</NextContinuationToken>" if more else ""
        body = (
            f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{rows}{token}</ListBucketResult>".encode()
        )
        self._headers(200, len(body))
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def serve(folder: str, latency: str, rate: str) -> None:
    server = Server(folder, float(latency), float(rate))
    print(server.server_port, flush=True)
    server.serve_forever()


@contextmanager
def serving(folder: Path, latency: float, link: int) -> Iterator[str]:
    """Run the server in a process of its own, and yield its address."""
    command = [sys.executable, __file__, "--serve", str(folder), str(latency), str(link)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        try:
            yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
        finally:
            server.kill()


def use_server(address: str) -> None:
    """Have this process, and those that it starts, read buckets from the server."""
    os.environ |= {"AWS_ENDPOINT_URL": address, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    os.environ |= {"AWS_REGION": "us-east-1"}


def link() -> None:
    """Read all objects by the client alone, in pieces as the loader does."""
    store = ObjectStore(ObjectPath("s3://bench"))
    parts = [
        (name, info, start)
        for name, info in store.find_all().items()
        if not name.endswith(".json")
        for start in range(0, info.size, PIECE_BYTES)
    ]

    def read(part: tuple[str, ObjectInfo, int]) -> memoryview:
        name, info, start = part
        return store.read(name, info, start, min(PIECE_BYTES, info.size - start))

    run_in_threads(read, parts)


def epoch(reader: da.CocoReader, options: argparse.Namespace) -> None:
    """Take all batches of an epoch."""
    with da.Loader(reader, da.presets.ssd300(), options.batch_size, device=options.device) as batches:
        for _ in batches:
            pass
    if options.device != "cpu":
        torch.cuda.synchronize()


def seconds(task: Callable[[], None]) -> float:
    start = time.perf_counter()
    task()
    return time.perf_counter() - start


def turn(folder: Path, cache: Path, options: argparse.Namespace) -> dict[str, float]:
    """Return the seconds of each part."""
    rmtree(cache, ignore_errors=True)
    found = {"link": seconds(link)}
    start = time.perf_counter()
    reader = da.CocoReader("s3://bench", folder / "train.json", cache_folder=cache, cache_size="100GB")
    found["making the reader"] = time.perf_counter() - start
    found["first epoch"] = seconds(lambda: epoch(reader, options))
    found["second epoch"] = seconds(lambda: epoch(reader, options))
    found["local files"] = seconds(lambda: epoch(da.CocoReader(folder, folder / "train.json"), options))
    return found


def report(turns: list[dict[str, float]], images: int) -> None:
    for name in turns[0]:
        each = sorted(images / found[name] for found in turns)
        print(f"{name}: {median(each):,.0f} images/s ({each[0]:,.0f} to {each[-1]:,.0f})")
    for name, other in (("first epoch", "link"), ("second epoch", "local files")):
        ratios = sorted(found[other] / found[name] for found in turns)
        print(f"{name} / {other}: {median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        return serve(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--latency", type=float, default=0.03, help="seconds before each answer")
    parser.add_argument("--link", default="1GB", help="bytes per second")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--single", action="store_true", help="objects of their own instead of shards")
    options = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "images").mkdir()
        write_data(folder / "images", options.images)
        if not options.single:
            pack_coco(folder / "images" / "train.json", folder / "images", folder / "shards", format="webdataset")
        served = folder / ("images" if options.single else "shards")
        with serving(served, options.latency, parse_size("--link", options.link)) as address:
            use_server(address)
            turns = [turn(served, folder / "cache", options) for _ in range(options.turns)]
    report(turns, options.images)
    return None


if __name__ == "__main__":
    main()
