"""A session with a running command or an attached container: input, output, window size, exit code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec

from kubeloop.client.streams.channels import Channels, StreamChannel
from kubeloop.client.streams.errors import CommandFailed, StreamError
from kubeloop.meta.errors import ApiError, TransportError
from kubeloop.meta.status import Status

_NON_ZERO = "NonZeroExitCode"
_EXIT_CODE = "ExitCode"


def exit_code(message: bytes, request: str) -> int:
    """Return the exit code from a command's result. ``request`` describes the request, for errors.

    Raises:
        ApiError: There is no exit code: the command could not run, or its container ended.
        StreamError: The result is malformed.
    """
    try:
        status = msgspec.json.decode(message, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        shown = message[:200].decode("utf-8", "replace")
        raise StreamError(f"{request}: the outcome is not a Status: {shown!r} ({error})") from error
    if status.status == "Success":
        return 0
    if status.reason != _NON_ZERO:
        raise ApiError.from_status(status, request)
    for cause in status.details.causes if status.details else ():
        if cause.reason == _EXIT_CODE and cause.message.isascii() and cause.message.isdecimal() and len(cause.message) < 4:
            return int(cause.message)
    raise StreamError(f"{request}: the command failed, and its outcome has no exit code: {status.message}")


OutputName: TypeAlias = Literal["stdout", "stderr"]

#: Maximum bytes of a command's result; a Status has a few hundred.
_OUTCOME = 1 << 20
#: Seconds to wait until the peer ends the connection after the command's result has arrived.
_GOODBYE = 10.0


@dataclass(frozen=True, slots=True)
class Output:
    """A piece of output, of any length. A terminal has only ``stdout``.

    >>> Output("stdout", b"ready").data.decode()
    'ready'
    """

    name: OutputName
    data: bytes


@dataclass(frozen=True, slots=True)
class ExecResult:
    """The result of a command. ``where`` names pod and container.

    >>> result = ExecResult(exit_code=1, stdout=b"", stderr=b"no such file")
    >>> result.ok
    False
    >>> result.check()
    Traceback (most recent call last):
        ...
    CommandFailed: ...
    """

    exit_code: int
    stdout: bytes
    stderr: bytes
    where: str = ""

    @property
    def ok(self) -> bool:
        """Whether the exit code is 0."""
        return self.exit_code == 0

    @property
    def text(self) -> str:
        """``stdout`` decoded as UTF-8; invalid bytes are replaced."""
        return self.stdout.decode("utf-8", "replace")

    def check(self) -> ExecResult:
        """Return the result itself if the exit code is 0.

        Raises:
            CommandFailed: The exit code is not 0.
        """
        if self.exit_code:
            raise CommandFailed(self.where, self.exit_code, self.stderr)
        return self


class ExecSession:
    """A running command with its input and output. ``client.pods.exec_stream`` and ``client.pods.attach`` create it.

    >>> from kubeloop.testing import ScriptedKubelet
    >>> async with ScriptedKubelet(client, namespace=client.namespace) as kubelet:
    ...     pod = await kubelet.run_pod("web-0")
    ...     script = kubelet.on_exec("web-0", ["ls"], stdout="app.py")
    ...     async with client.pods.exec_stream("web-0", ["ls"]) as session:
    ...         print([output.data async for output in session], session.exit_code)
    [b'app.py'] 0

    Guarantees
        Output comes in order within ``stdout`` and within ``stderr``. A slow reader delays the command; about 1 MiB at most is buffered.
        The iteration ends only after the command has ended with an exit code; otherwise it raises.
        Leaving the block, even by a cancellation, closes the connection at once.

    Not guaranteed
        The order between ``stdout`` and ``stderr`` is not preserved.
        The command may continue after the block: it loses its input and its readers, so that most commands end, but Kubernetes does not
        kill it.
    """

    def __init__(self, channels: Channels, description: str, stream_channels: frozenset[StreamChannel]) -> None:
        self.where = description
        self._channels = channels
        self._wanted = stream_channels
        self._outcome = bytearray()
        self._exit_code: int | None = None
        self._input_ended = False

    @property
    def protocol(self) -> str:
        """The version of the protocol that the server chose (``v5.channel.k8s.io``)."""
        return self._channels.protocol

    @property
    def exit_code(self) -> int:
        """The exit code, after the output was read to its end.

        Raises:
            StreamError: The command has not ended, or not all output was read.
        """
        if self._exit_code is None:
            raise StreamError(f"{self.where}: the command has not ended yet, as far as its output was read; read on, or await wait()")
        return self._exit_code

    async def write(self, data: bytes) -> None:
        """Send input; return when more can be sent. A command that does not read delays this.

        Raises:
            StreamError: The session has no ``stdin``, or its input has ended. TransportError: the connection has ended.
        """
        self._check(StreamChannel.STDIN, "stdin=True")
        if self._input_ended:
            raise StreamError(f"{self.where}: the input has ended already")
        await self._channels.send(StreamChannel.STDIN, data)

    async def close_stdin(self) -> None:
        """End the input; output can still arrive.

        Raises:
            StreamError: The session has no ``stdin``, or the server supports only v4, in which the input cannot end before the session.
        """
        self._check(StreamChannel.STDIN, "stdin=True")
        if not self._input_ended:
            await self._channels.end(StreamChannel.STDIN)
            self._input_ended = True

    async def resize(self, columns: int, rows: int) -> None:
        """Send the window size.

        Raises:
            StreamError: There is no terminal (``tty=True``).
        """
        self._check(StreamChannel.RESIZE, "tty=True")
        await self._channels.send(StreamChannel.RESIZE, msgspec.json.encode({"Width": columns, "Height": rows}))

    def __aiter__(self) -> AsyncIterator[Output]:
        return self

    async def __anext__(self) -> Output:
        """Return the next piece of output.

        Raises:
            ApiError: The command could not run. StreamError: the peer broke the protocol.
            TransportError: The connection ended before the command's result arrived.
        """
        while self._exit_code is None:
            received = await self._receive()
            if received is None:
                if not self._outcome:
                    raise TransportError(f"{self.where}: the connection ended before the command's outcome came")
                self._exit_code = exit_code(bytes(self._outcome), self.where)
                break
            channel, data = received
            if channel is StreamChannel.ERROR:
                self._outcome += data
                if len(self._outcome) > _OUTCOME:
                    raise StreamError(f"{self.where}: the outcome is longer than {_OUTCOME} bytes")
            else:
                return Output("stdout" if channel is StreamChannel.STDOUT else "stderr", data)
        raise StopAsyncIteration

    async def wait(self) -> int:
        """Discard the rest of the output and return the exit code. Raises the errors of the iteration."""
        async for _ in self:
            pass
        return self.exit_code

    async def _receive(self) -> tuple[StreamChannel, bytes] | None:
        if not self._outcome:
            return await self._channels.receive()
        try:
            async with asyncio.timeout(_GOODBYE):
                return await self._channels.receive()
        except (TimeoutError, TransportError):
            return None  # the result is complete

    def _check(self, channel: StreamChannel, argument: str) -> None:
        if channel not in self._wanted:
            raise StreamError(f"{self.where}: this session was opened without {argument}")
