"""The plain HTTP client of the replay: no kubeloop code, so that a fault of ours cannot hide another."""

from __future__ import annotations

import contextlib
import csv
import gzip
import http.client
import json
import socket
import ssl
import threading
import time
import urllib.parse
from pathlib import Path
from typing import Any

import yaml

from tests.conformance.trees import dig

HEADERS = ("content-type", "warning", "retry-after", "content-encoding", "location", "www-authenticate", "cache-control", "allow")
Headers = dict[str, Any]


class Server:
    """A server under test: its address, its authority, the tokens of its users."""

    def __init__(self, url: str, ca: str | None, tokens: Path, compact: str = "") -> None:
        self.url = urllib.parse.urlsplit(url)
        self.tls = ssl.create_default_context(cafile=ca)
        with tokens.open(newline="") as file:
            self.tokens = {row[1]: row[0] for row in csv.reader(file) if row}
        self.compact = compact
        self._local = threading.local()

    def connect(self, timeout: float = 60) -> http.client.HTTPConnection:
        assert self.url.hostname is not None
        return http.client.HTTPSConnection(self.url.hostname, self.url.port, context=self.tls, timeout=timeout)

    def authorization(self, who: str | None) -> str | None:
        if who in (None, "admin"):
            return "Bearer " + self.tokens["oracle-admin"]
        if who == "anonymous":
            return None
        assert who is not None
        return "Bearer " + (who[6:] if who.startswith("token:") else self.tokens[who])

    def send(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None, headers: Headers
    ) -> http.client.HTTPResponse:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for key, value in headers.items():
            for one in value if isinstance(value, list) else [value]:
                connection.putheader(key, one)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        return connection.getresponse()

    def request(self, method: str, path: str, body: bytes | None, headers: Headers) -> tuple[int, Headers, bytes]:
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        for last in (False, True):
            if connection is None:
                connection = self._local.connection = self.connect()
            try:
                response = self.send(connection, method, path, body, headers)
                data = response.read()
            except (http.client.HTTPException, OSError):
                connection.close()
                connection = self._local.connection = None
                if last:
                    raise
            else:
                if response.will_close:
                    connection.close()
                    self._local.connection = None
                return response.status, headers_of(response), data
        raise AssertionError("unreachable")

    def close(self) -> None:
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()


def headers_of(response: http.client.HTTPResponse) -> Headers:
    found: dict[str, list[str]] = {}
    for key, value in response.getheaders():
        if key.lower() in HEADERS:
            found.setdefault(key.lower(), []).append(value)
    return {key: values[0] if len(values) == 1 else values for key, values in found.items()}


def decode(data: bytes, headers: Headers) -> Any:
    """A body as a JSON tree; other forms under a ``$`` key."""
    if headers.get("content-encoding") == "gzip":
        data = gzip.decompress(data)
    kind = str(headers.get("content-type", "")).split(";")[0]
    if data.startswith(b"k8s\0"):
        return {"$protobuf": protobuf_envelope(data)}
    if kind == "application/yaml":
        return {"$yaml": yaml.load(data, yaml.CSafeLoader)}
    with contextlib.suppress(ValueError):
        return json.loads(data)
    try:
        return {"$text": data.decode()}
    except UnicodeDecodeError:
        return {"$bytes": len(data)}


def protobuf_envelope(data: bytes) -> dict[str, str]:
    """apiVersion and kind of the runtime.Unknown envelope (k8s.io/apimachinery pkg/runtime/generated.proto)."""

    def varint(buffer: bytes, at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            byte = buffer[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value, at

    def fields(buffer: bytes) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        at = 0
        while at < len(buffer):
            tag, at = varint(buffer, at)
            size, at = varint(buffer, at)
            if tag & 7 == 2:
                found[tag >> 3] = buffer[at : at + size]
                at += size
        return found

    names = fields(fields(data[4:]).get(1, b""))
    return {"apiVersion": names.get(1, b"").decode(), "kind": names.get(2, b"").decode()}


def plain_bookmark(frame: Any) -> bool:
    return (
        isinstance(frame, dict)
        and frame.get("type") == "BOOKMARK"
        and not dig(frame, ["object", "metadata", "annotations", "k8s.io/initial-events-end"])
    )


class Watch(threading.Thread):
    """A watch in the background; frames gather until it is collected."""

    def __init__(self, server: Server, path: str, headers: Headers) -> None:
        super().__init__(daemon=True)
        self.connection = server.connect(timeout=70)
        self.response = server.send(self.connection, "GET", path, None, headers)
        # http.client lets go of the socket once an answer has no end; keep it to be able to hang up.
        self.sock: socket.socket | None = self.connection.sock
        self.frames: list[Any] = []
        self.ended = threading.Event()
        self.start()

    def run(self) -> None:
        try:
            if self.response.status != 200:
                self.frames.append(decode(self.response.read(), headers_of(self.response)))
                return
            for line in self.response:
                self.frames.append(json.loads(line) if line.startswith(b"{") else {"$text": line.decode(errors="replace")})
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            return  # the watch was hung up by collect()
        finally:
            self.ended.set()

    def collect(self, count: int | None, timeout: float, linger: float) -> list[Any]:
        end = time.monotonic() + timeout
        while (
            not self.ended.is_set()
            and time.monotonic() < end
            and (count is None or sum(not plain_bookmark(frame) for frame in list(self.frames)) < count)
        ):
            self.ended.wait(0.01)
        if count is not None:
            self.ended.wait(linger)
        frames = list(self.frames)
        with contextlib.suppress(OSError, AttributeError):
            if self.sock is not None:
                self.sock.shutdown(socket.SHUT_RDWR)
        self.join(5)
        self.response.close()
        self.connection.close()
        return frames
