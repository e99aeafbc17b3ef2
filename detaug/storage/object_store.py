"""Read objects of S3 and Google Cloud Storage: one client for both, obstore, with one rule for its errors.

Server errors, time-outs and connections that break off are tried again by the client, with growing pauses, for at most
RETRY_SECONDS. A process that ends does not wait for the threads of requests, as it does for ThreadPoolExecutor's.
"""

from __future__ import annotations

import atexit
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path, PosixPath
from threading import Thread
from threading import enumerate as all_threads
from time import monotonic
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from detaug.errors import DataError, InputError
from detaug.files.addresses import address_of
from detaug.packages import require

Item = TypeVar("Item")
Result = TypeVar("Result")

RETRY_SECONDS = 60
"""How long a request is tried again."""

SILENT_SECONDS = 30
"""How long a server may send nothing before the request is made again."""

REQUEST_SECONDS = 600
"""How long one try may take: a slow link is not a fault."""

REQUESTS = 64
"""How many requests are made at once."""

EXIT_SECONDS = 1
"""How long a process that ends waits for requests."""

_NAME = "detaug-request"


class ObjectPath(PosixPath):
    """The address of an object, or of all objects whose names begin with it. It is not a file: only its text has a use.

    >>> str(ObjectPath("s3://bucket/VOC") / "000001.jpg")
    's3://bucket/VOC/000001.jpg'
    """

    __slots__ = ()

    def __str__(self) -> str:
        return super().__str__().replace(":/", "://", 1)

    def __fspath__(self) -> str:
        return str(self)

    def absolute(self) -> ObjectPath:
        """Return the address itself: it does not depend on the working folder."""
        return self


def local_or_remote(location: str | os.PathLike[str]) -> Path:
    """Return the path, or the ObjectPath of something in an object store. Raises InputError for other addresses."""
    if address := address_of(location):
        return ObjectPath(address)
    if scheme := re.match(r"([a-zA-Z][a-zA-Z0-9+.-]+):/", os.fspath(location)):
        raise InputError(f"{os.fspath(location)}: {scheme[1]}:// is not supported; s3:// and gs:// are")
    return Path(location)


class ObjectInfo(NamedTuple):
    """What a store says of an object without reading it."""

    size: int
    """Bytes."""
    etag: str
    """Changes with the content."""


class ObjectStore:
    """The objects below an address. Raises DataError for one that the store does not give, FileNotFoundError for none.

    Credentials, region and endpoint come from the environment, as for other programs: AWS_ACCESS_KEY_ID, AWS_PROFILE,
    AWS_ENDPOINT_URL, AWS_REGION, GOOGLE_APPLICATION_CREDENTIALS and so on; for S3 from all places in which boto3 looks,
    if it is installed. AWS_SKIP_SIGNATURE=true reads public buckets.
    """

    def __init__(self, address: ObjectPath) -> None:
        self.address = address
        self._store = _connect(str(address))

    def find_all(self) -> dict[str, ObjectInfo]:
        """Return all objects below the address, by their names relative to it."""
        with self._explained(""):
            entries = [entry for page in self._store.list(chunk_size=10_000) for entry in page]
        return {entry["path"]: _info(entry) for entry in entries}

    def find(self, names: Iterable[str]) -> dict[str, ObjectInfo]:
        """Return those of these objects that exist."""
        names = list(names)
        infos = run_in_threads(self._find, names)
        return {name: info for name, info in zip(names, infos, strict=True) if info}

    def _find(self, name: str) -> ObjectInfo | None:
        try:
            with self._explained(name):
                return _info(self._store.head(name))
        except FileNotFoundError:
            return None

    def read(self, name: str, info: ObjectInfo, start: int = 0, length: int | None = None) -> memoryview:
        """Return bytes of an object. Raises FileNotFoundError if it does not exist any more, or has changed."""
        length = info.size - start if length is None else length
        if not length:
            return memoryview(b"")
        options = {"if_match": info.etag, "range": (start, start + length)}
        with self._explained(name):
            content = memoryview(self._store.get(name, options=options).bytes())
        if len(content) != length:
            raise DataError(f"{self.address / name}: the store sent {len(content)} of {length} bytes; try again")
        return content

    @contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        """Turn the client's errors into ours, which name the object."""
        from obstore import exceptions

        path = self.address / name
        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{path} does not exist: {_reason(error)}") from None
        except exceptions.PreconditionError:
            raise FileNotFoundError(f"{path} has changed since the reader was made") from None
        except (exceptions.BaseError, OSError, ValueError) as error:
            denied = isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError)
            what, remedy = _remedy(str(error), denied=denied)
            raise DataError(f"{path}: {what} ({_reason(error)}); {remedy}") from None


_RENEW = "renew the credentials in the environment"
_REMEDIES = {
    **dict.fromkeys(("ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired"), _RENEW),
    "RequestTimeTooSkewed": "set this machine's clock: the store refuses requests of another time",
}
"""By the code of S3's answer, whose status is 400 or 403."""


def _remedy(text: str, *, denied: bool) -> tuple[str, str]:
    """Return what an error of the client means, and what to do. denied: its status is 401 or 403."""
    code = re.search(r"<Code>(\w+)</Code>", text)
    if code and code[1] in _REMEDIES:
        return "access denied", _REMEDIES[code[1]]
    if denied:
        return "access denied", "check the credentials in the environment, and what they may read"
    remedy = "check bucket, endpoint and network"
    if not code and re.search(r"\b400 Bad Request\b", text):  # of HEAD, whose answers have no body
        remedy = f"{remedy}, or {_RENEW}: S3 also answers so once they are expired"
    return "cannot be read", remedy


def _info(entry: Any) -> ObjectInfo:
    return ObjectInfo(entry["size"], entry["e_tag"] or "")


def _connect(address: str) -> Any:
    """Return obstore's client. Raises InputError if it is not installed, or an address or setting is wrong."""
    require(address, "obstore")
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    options = {"read_timeout": timedelta(seconds=SILENT_SECONDS), "timeout": timedelta(seconds=REQUEST_SECONDS)}
    settings: dict[str, Any] = {
        "client_options": {"allow_http": endpoint.startswith("http:"), **options},
        "retry_config": {"retry_timeout": timedelta(seconds=RETRY_SECONDS)},
    }
    try:
        aws = _aws_settings(endpoint) if address.startswith("s3:") else {}
        return from_url(quote(address, safe=":/"), **settings, **aws)  # names may have # ? %, which mean more in a URL
    except (BaseError, ValueError) as error:
        raise InputError(f"{address}: {_reason(error)}") from None


def _aws_settings(endpoint: str) -> dict[str, Any]:
    """Return endpoint, credentials and region as boto3 finds them; without it, the client looks for them."""
    settings: dict[str, Any] = {"endpoint": endpoint} if endpoint else {}
    if os.environ.get("AWS_SKIP_SIGNATURE", "").lower() in ("true", "1"):
        return settings
    try:
        from boto3 import Session
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        return settings
    session = Session()
    if session.get_credentials() is None:
        raise InputError(
            "no credentials for S3 were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or for "
            "a public bucket AWS_SKIP_SIGNATURE=true"
        )
    settings["credential_provider"] = Boto3CredentialProvider(session)
    return settings | ({"region": session.region_name} if session.region_name else {})


def _reason(error: Exception) -> str:
    """Return the store's own message if the error has one, or the beginning of the client's text."""
    text = str(error)
    message, code = re.search(r"<Message>(.*?)</Message>", text), re.search(r"status code: (\d+)", text)
    if message:
        return f"{code[1]}: {message[1]}" if code else message[1]
    return text.partition("\n")[0].partition(" - ")[2] or text.partition("\n")[0]


def start_thread(task: Callable[[], None]) -> None:
    """Run a task in a thread of its own. Raises RuntimeError if the interpreter ends."""
    Thread(target=task, name=_NAME, daemon=True).start()


def run_in_threads(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Return `function` of each item, REQUESTS at once. Raises the error of the first item that has one."""
    todo = deque((item, Future[Result]()) for item in items)
    futures = [future for _, future in todo]

    def work() -> None:
        while todo:
            try:
                item, future = todo.popleft()
            except IndexError:  # another thread was faster
                return
            try:
                future.set_result(function(item))
            except BaseException as error:  # noqa: BLE001
                future.set_exception(error)

    for _ in range(min(REQUESTS, len(futures))):
        start_thread(work)
    try:
        return [future.result() for future in futures]
    finally:
        todo.clear()


@atexit.register
def _wait_a_moment() -> None:
    """Let requests end: a thread that comes back from the client while the interpreter ends can crash the process."""
    end = monotonic() + EXIT_SECONDS
    for thread in all_threads():
        if thread.name == _NAME:
            thread.join(max(0, end - monotonic()))
