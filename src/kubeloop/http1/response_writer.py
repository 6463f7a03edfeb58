"""The head of an answer as bytes."""

from __future__ import annotations

import time
from collections.abc import Iterable
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

_REASONS = {one.value: one.phrase for one in HTTPStatus}


def response_head(minor: int, status: int, fields: Iterable[tuple[str, str]]) -> bytes:
    """Status line and fields, ``Date`` among them; line breaks within a field become blanks, so that none can begin another."""
    lines = [f"HTTP/1.{1 if minor else 0} {status} {_REASONS.get(status, f'status code {status}')}"]
    lines += [f"{name}: {value}" for name, value in fields]
    text = "\n".join(lines)
    if "\r" in text or text.count("\n") >= len(lines):
        text = "\n".join(line.replace("\r", " ").replace("\n", " ") for line in lines)
    return f"{text}\nDate: {_now()}\n\n".replace("\n", "\r\n").encode()


def has_body(status: int) -> bool:
    """Whether answers of this status may have a body (RFC 9110, section 6.4.1)."""
    return status >= 200 and status not in (204, 304)


def _now() -> str:
    return _written(int(time.time()))


@lru_cache(maxsize=1)
def _written(second: int) -> str:
    return formatdate(second, usegmt=True)
