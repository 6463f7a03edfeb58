"""Reads recordings: HAR 1.2 files, also of other programs, and the journals that a killed tap leaves."""

from __future__ import annotations

import base64
import binascii
import io
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from kubeloop.meta.errors import ConfigError
from kubeloop.tap.har_entry import FORMAT
from kubeloop.tap.recorder import JOURNAL, har_of, read_line
from kubeloop.types import JSONObject

#: What the commands that read a recording expect, and how to make one.
_EXPECTED: Final = "expected a recording (HAR 1.2); make one with: kubeloop tap --record run.har -- COMMAND"


class HarHeader(msgspec.Struct):
    """A header, or a parameter of a query."""

    name: str
    value: str = ""


class HarContent(msgspec.Struct, rename="camel"):
    """A body. ``omitted`` says why there is none although there was one."""

    mime_type: str = ""
    text: str = ""
    encoding: str = ""
    size: int = 0
    request_encoding: str = msgspec.field(default="", name="_encoding")
    omitted: str = msgspec.field(default="", name="_omitted")

    @property
    def is_binary(self) -> bool:
        """Whether the text is base64."""
        return "base64" in (self.encoding, self.request_encoding)

    @property
    def data(self) -> bytes:
        """The body as bytes.

        Raises:
            ValueError: It is not valid base64.
        """
        return decoded(self.text, self.encoding or self.request_encoding)


class HarRequest(msgspec.Struct, rename="camel"):
    """The request of an entry."""

    method: str
    url: str
    headers: list[HarHeader] = []
    query_string: list[HarHeader] = []
    post_data: HarContent | None = None
    body_size: int = 0


class HarResponse(msgspec.Struct, rename="camel"):
    """The response of an entry. Status 0: there was none."""

    status: int = 0
    headers: list[HarHeader] = []
    content: HarContent = msgspec.field(default_factory=HarContent)
    body_size: int = 0


class HarFrame(msgspec.Struct):
    """A frame of a stream. ``time`` is in milliseconds since the start of the request; ``type`` is that of a watch event."""

    time: float = 0
    data: str = ""
    encoding: str = ""
    type: str = ""
    size: int = 0
    omitted: str = msgspec.field(default="", name="_omitted")


class HarEntry(msgspec.Struct, rename="camel"):
    """A request with its response. Times are in milliseconds; ``offset`` counts from the start of the tap.

    The names without underscore are HAR's; the others are kubeloop's.
    """

    request: HarRequest
    response: HarResponse = msgspec.field(default_factory=HarResponse)
    started_date_time: str = ""
    time: float = 0
    timings: dict[str, float] = {}
    connection: str = ""
    frames: list[HarFrame] | None = msgspec.field(default=None, name="_frames")
    outcome: str = msgspec.field(default="", name="_outcome")
    upgrade: str = msgspec.field(default="", name="_upgrade")
    offset: float | None = msgspec.field(default=None, name="_offset")
    verb: str = msgspec.field(default="", name="_verb")
    resource: str = msgspec.field(default="", name="_resource")
    namespace: str = msgspec.field(default="", name="_namespace")
    name: str = msgspec.field(default="", name="_name")

    @property
    def waited(self) -> float:
        """Seconds until the response began."""
        return max(0.0, self.timings.get("connect", 0)) / 1000 + max(0.0, self.timings.get("wait", 0)) / 1000


class _Log(msgspec.Struct):
    version: str
    entries: list[HarEntry]
    kubeloop: dict[str, Any] = msgspec.field(default_factory=dict, name="_kubeloop")


class _Har(msgspec.Struct):
    log: _Log


class Recording(msgspec.Struct, frozen=True):
    """The contents of a recording.

    ``details`` are kubeloop's own: server, context, command, connections. ``complete`` is False for the journal of a killed tap.

    >>> recording = read_recording(Path("run.har"))
    >>> recording.entries[0].request.method
    'GET'
    """

    path: Path
    details: JSONObject
    entries: list[HarEntry]
    complete: bool = True

    @property
    def base(self) -> str:
        """The path of the recorded server before the paths of the API."""
        return urlsplit(str(self.details.get("server", ""))).path.rstrip("/")


def read_recording(path: Path) -> Recording:
    """Read a recording.

    Raises:
        ConfigError: The file cannot be read, is damaged, or is of another version; the message names file and problem.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); {_EXPECTED}") from None
    complete = not data.startswith(b'{"%b"' % JOURNAL.encode())
    if not complete:
        _check_journal(path, data)
        data = b"".join(har_of(io.BytesIO(data)))
    if not data.lstrip().startswith((b"{", b"[")):
        raise ConfigError(f"{path}: {'this file has no JSON in it' if data.strip() else 'the file is empty'}; {_EXPECTED}")
    try:
        log = msgspec.json.decode(data, type=_Har).log
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: not a HAR file: {_in_words(error)}; {_EXPECTED}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: the recording is damaged: {error}; record it again") from None
    if not log.version.startswith("1."):
        raise ConfigError(f"{path}: HAR version {log.version} is not supported; 1.2 is")
    _check_format(path, log.kubeloop.get("format", FORMAT))
    return Recording(path, log.kubeloop, log.entries, complete)


def _check_journal(path: Path, data: bytes) -> None:
    lines = data.splitlines(keepends=True)
    _check_format(path, (read_line(lines[0]) or {}).get(JOURNAL, FORMAT))
    for number, line in enumerate(lines[:-1], 1):  # a killed tap may leave a part of the last line
        if read_line(line) is None:
            raise ConfigError(f"{path}: the recording is damaged in line {number}; record it again")


def _check_format(path: Path, version: Any) -> None:
    if version != FORMAT:
        raise ConfigError(f"{path}: the recording has format {version}, this version of kubeloop reads format {FORMAT}; record it again")


def _in_words(error: msgspec.ValidationError) -> str:
    text, _, place = str(error).partition(" - at `$.")
    return f"{place.rstrip('`')}: {text[:1].lower()}{text[1:]}" if place else text[:1].lower() + text[1:]


def decoded(text: str, encoding: str) -> bytes:
    """Return the bytes of a recorded text.

    Raises:
        ValueError: It is not valid base64.
    """
    if encoding != "base64":
        return text.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"not valid base64: {error}") from None
