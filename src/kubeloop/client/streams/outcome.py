"""How a command ended, from the Status on the error channel (protocols v4 and v5; client-go tools/remotecommand/v4.go)."""

from __future__ import annotations

import msgspec

from kubeloop.client.streams.errors import StreamError
from kubeloop.meta.errors import ApiError
from kubeloop.meta.status import Status

_NON_ZERO = "NonZeroExitCode"
_EXIT_CODE = "ExitCode"


def exit_code(message: bytes, request: str) -> int:
    """0 for success, else the code that the command ended with. ``request`` says in words what was asked, for errors.

    Raises:
        ApiError: there was no exit code to tell of: the command could not be run, or its container went away.
        StreamError: the outcome cannot be read.
    """
    try:
        status = msgspec.json.decode(message, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        shown = message[:200].decode("utf-8", "replace")
        raise StreamError(f"{request}: the outcome is no Status: {shown!r} ({error})") from error
    if status.status == "Success":
        return 0
    if status.reason != _NON_ZERO:
        raise ApiError.of(status, request)
    for cause in status.details.causes if status.details else ():
        if cause.reason == _EXIT_CODE and cause.message.isascii() and cause.message.isdecimal() and len(cause.message) < 4:
            return int(cause.message)
    raise StreamError(f"{request}: the command failed, and its outcome tells no exit code: {status.message}")
