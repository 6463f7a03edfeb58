"""The errors of streams to pods, besides ``ApiError`` and ``TransportError``. Each message names the pod and its container, if any."""

from __future__ import annotations

from kubeloop.meta.errors import KubeloopError

#: Maximum characters of a command's error output in a message.
_SHOWN = 500


class StreamError(KubeloopError):
    """A stream to a pod is impossible in its present state, or the peer broke the protocol."""


class CommandFailed(StreamError):
    """A command ended with an exit code other than 0. ``stderr`` is its error output, possibly cut."""

    def __init__(self, description: str, exit_code: int, stderr: bytes = b"") -> None:
        self.where = description
        self.exit_code = exit_code
        self.stderr = stderr
        super().__init__(description, exit_code, stderr)

    def __str__(self) -> str:
        said = " ".join(self.stderr.decode("utf-8", "replace").split())[:_SHOWN]
        return f"{self.where}: the command ended with exit code {self.exit_code}" + (f": {said}" if said else "")


class OutputTooLarge(StreamError):
    """A command wrote more output than ``max_output`` allows to store in memory."""


class ForwardingError(StreamError):
    """A connection to a port of a pod failed; the text comes from the pod's node."""


class CopyError(StreamError):
    """Files could not be copied, or the received archive is not trustworthy."""
