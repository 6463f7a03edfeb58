"""What streams to pods raise besides ``ApiError`` and ``TransportError``. Each message names the pod, and the container if there is one."""

from __future__ import annotations

from kubeloop.meta.errors import KubeloopError

#: Characters of a command's complaint that an error shows.
_SHOWN = 500


class StreamError(KubeloopError):
    """A stream to a pod cannot do what it was asked for, or the peer broke its protocol."""


class CommandFailed(StreamError):
    """A command ended with another exit code than 0. ``stderr`` is what it said, as far as it was kept."""

    def __init__(self, where: str, exit_code: int, stderr: bytes = b"") -> None:
        self.where = where
        self.exit_code = exit_code
        self.stderr = stderr
        super().__init__(where, exit_code, stderr)

    def __str__(self) -> str:
        said = " ".join(self.stderr.decode("utf-8", "replace").split())[:_SHOWN]
        return f"{self.where}: the command ended with exit code {self.exit_code}" + (f": {said}" if said else "")


class OutputTooLarge(StreamError):
    """A command wrote more than was to be kept in memory."""


class ForwardingError(StreamError):
    """One connection to a port of a pod failed; the text is that of the pod's node."""


class CopyError(StreamError):
    """Files could not be copied, or what came is not to be trusted."""
