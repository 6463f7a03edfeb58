"""``exec`` and ``attach``: finds the container and opens the channels; ``run`` also collects the whole output.

Source: kubectl pkg/cmd/exec and pkg/cmd/attach; https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from kubeloop.client.streams.channels import PIECE, StreamChannel, open_channels
from kubeloop.client.streams.errors import OutputTooLarge, StreamError
from kubeloop.client.streams.session import ExecResult, ExecSession
from kubeloop.client.streams.targets import ContainerLocation, Target, check_running, container_of, find_pod
from kubeloop.client.waits.conditions import require_seconds
from kubeloop.meta.errors import ApiError, DeadlineError, KubeloopError, TransportError
from kubeloop.tasks import end_tasks
from kubeloop.timing import TimeLimit

_LOG = logging.getLogger("kubeloop.client.streams")

if TYPE_CHECKING:
    from kubeloop.client.client import Client

#: Default of the maximum bytes of ``stdout``, and of ``stderr``, that ``exec`` stores.
MAX_OUTPUT = 16 << 20


@asynccontextmanager
async def exec_session(
    client: Client, target: Target, command: Sequence[str], *, namespace: str | None, container: str | None, stdin: bool, tty: bool
) -> AsyncIterator[ExecSession]:
    """Run a command with open input and output; the implementation of ``PodVerbs.exec_stream``."""
    if isinstance(command, str) or not command:
        raise ValueError(
            f'command is {type(command).__name__}: give a list of words such as ["ls", "-l"]; for a shell\'s line ["sh", "-c", "ls | wc"]'
        )
    pod = (await find_pod(client, target, namespace)).pod
    check_running(pod, "exec")
    place = ContainerLocation(pod.metadata.namespace, pod.metadata.name, container_of(pod, container).name)
    async with _session(client, place, "exec", list(command), stdin=stdin, tty=tty) as session:
        yield session


@asynccontextmanager
async def attach_session(
    client: Client, target: Target, *, namespace: str | None, container: str | None, stdin: bool
) -> AsyncIterator[ExecSession]:
    """Attach to a container's process; the implementation of ``PodVerbs.attach``."""
    pod = (await find_pod(client, target, namespace)).pod
    check_running(pod, "attach")
    wanted = container_of(pod, container)
    place = ContainerLocation(pod.metadata.namespace, pod.metadata.name, wanted.name)
    if stdin and not wanted.stdin:
        raise StreamError(f"{place} does not accept input: its container was created without stdin: true")
    # The container's spec decides whether there is a terminal. With a terminal, stdout and stderr arrive as one stream.
    async with _session(client, place, "attach", [], stdin=stdin, tty=bool(wanted.tty)) as session:
        yield session


async def run(
    client: Client,
    target: Target,
    command: Sequence[str],
    *,
    namespace: str | None,
    container: str | None,
    stdin: bytes | None,
    max_output: int,
    timeout: float | None,
) -> ExecResult:
    """Run a command and collect its output; the implementation of ``PodVerbs.exec``."""
    if timeout is not None:
        require_seconds(timeout)
    try:
        async with (
            TimeLimit(client.clock, timeout),
            exec_session(client, target, command, namespace=namespace, container=container, stdin=stdin is not None, tty=False) as session,
        ):
            return await _collect(session, stdin, max_output)
    except TimeoutError as error:
        if timeout is None or isinstance(error, DeadlineError):
            raise
        raise DeadlineError(
            f"exec of {command[0]!r} in {target if isinstance(target, str) else target.metadata.name}: not ended within {timeout:g} s; "
            "it may still be running in its container"
        ) from error


@asynccontextmanager
async def _session(
    client: Client, place: ContainerLocation, action: str, command: list[str], *, stdin: bool, tty: bool
) -> AsyncIterator[ExecSession]:
    where = f"{action} in {place}"
    query = {
        "container": place.container,
        "command": command or None,
        "stdin": stdin or None,
        "stdout": True,
        "stderr": None if tty else True,
        "tty": tty or None,
    }
    # With a terminal there is one output only, and its window may change.
    wanted = [StreamChannel.STDIN] if stdin else []
    wanted += [StreamChannel.STDOUT, StreamChannel.RESIZE] if tty else [StreamChannel.STDOUT, StreamChannel.STDERR]
    channels = open_channels(client.transport, place.path(action), query, wanted, client.clock, where, ends_input=stdin and not tty)
    async with contextlib.AsyncExitStack() as stack:
        try:
            opened = await stack.enter_async_context(channels)
        except ApiError as refusal:
            raise ApiError.from_status(refusal.status, where) from refusal
        yield ExecSession(opened, where, frozenset(wanted))


async def _collect(session: ExecSession, stdin: bytes | None, max_output: int) -> ExecResult:
    reading = asyncio.ensure_future(_read_all(session, max_output))
    tasks: list[asyncio.Future[Any]] = [reading]
    if stdin is not None:
        tasks.append(asyncio.ensure_future(_feed(session, stdin)))
    try:
        # The first failure ends both tasks. A command may end before it has read its whole input.
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        return await reading
    finally:
        await end_tasks(*tasks, expected=(KubeloopError, OSError), logger=_LOG)


async def _read_all(session: ExecSession, max_output: int) -> ExecResult:
    outputs = {"stdout": bytearray(), "stderr": bytearray()}
    async for output in session:
        kept = outputs[output.name]
        kept += output.data
        if len(kept) > max_output:
            raise OutputTooLarge(
                f"{session.where}: the command wrote more than {max_output} bytes to {output.name}; raise max_output=, or stream it "
                "with exec_stream"
            )
    return ExecResult(session.exit_code, bytes(outputs["stdout"]), bytes(outputs["stderr"]), session.where)


async def _feed(session: ExecSession, stdin: bytes) -> None:
    """Send the whole input concurrently with reading, because a command may write before it has read everything."""
    view = memoryview(stdin)
    # A command may end without reading its input; the status channel reports its exit code.
    with contextlib.suppress(TransportError):
        for at in range(0, len(view), PIECE):
            await session.write(bytes(view[at : at + PIECE]))
        await session.close_stdin()
