"""Copies files and folders to and from containers with ``tar`` in the container, like kubectl cp; memory stays constant.

Source: kubectl pkg/cmd/cp. The container needs ``tar``, and for uploads ``test`` if the destination may be a folder.
"""

from __future__ import annotations

import asyncio
import logging
import os
import posixpath
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from kubeloop.client.streams.archives import Packing, Source, Unpacking
from kubeloop.client.streams.commands import exec_session, run
from kubeloop.client.streams.errors import CommandFailed, CopyError
from kubeloop.client.streams.session import ExecSession
from kubeloop.client.streams.targets import Target
from kubeloop.meta.errors import ApiError, KubeloopError
from kubeloop.tasks import end_tasks, result_of, wait_all

_LOG = logging.getLogger("kubeloop.client.streams")

if TYPE_CHECKING:
    from kubeloop.client.client import Client

#: Maximum bytes of tar's error output that are stored.
_COMPLAINTS = 8192
#: Maximum seconds for the check whether the destination is a folder, as in kubectl.
_TEST_TIME = 30.0


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """The progress of a copy: ``done`` of the ``size`` bytes of the file ``path``, and ``total`` bytes of all files.

    >>> progress = CopyProgress(path="logs/app.log", done=512, size=1024, total=4096)
    >>> f"{progress.path}: {progress.done / progress.size:.0%}"
    'logs/app.log: 50%'

    Paths are relative to the copied folder.
    """

    path: str
    done: int
    size: int
    total: int


@dataclass(frozen=True, slots=True)
class CopyResult:
    """The number of copied files and bytes; ``skipped`` names left out links and devices with the reason (at most 1,000 of them).

    >>> from kubeloop.testing import ScriptedKubelet
    >>> async with ScriptedKubelet(client, namespace=client.namespace) as kubelet:
    ...     pod = await kubelet.run_pod("web-0")
    ...     _ = (kubelet.files("web-0") / "data.csv").write_text("1,2")
    ...     print(await client.pods.copy_from("web-0", "data.csv", "data.csv"))
    CopyResult(files=1, bytes=3, skipped=())
    """

    files: int
    bytes: int
    skipped: tuple[str, ...]


OnProgress: TypeAlias = Callable[[CopyProgress], object]


async def copy_to(
    client: Client,
    target: Target,
    source: Path,
    destination: str,
    *,
    namespace: str | None,
    container: str | None,
    preserve: bool,
    progress: OnProgress | None,
) -> CopyResult:
    """Copy a local file or folder into a container; the implementation of ``PodVerbs.copy_to``."""
    if not await asyncio.to_thread(os.path.lexists, source):
        raise CopyError(f"{source} is not there")
    if not destination:
        raise ValueError("the destination in the container must not be empty")
    folder, name = posixpath.split(posixpath.normpath(destination))
    if name in ("", ".", "..") or await _is_folder(client, target, destination, namespace, container):
        folder, name = destination, _own_name(source)
    command = ["tar", *([] if preserve else ["--no-same-permissions", "--no-same-owner"]), "-xmf", "-", *(["-C", folder] if folder else [])]
    packing = Packing(source, name)
    async with exec_session(client, target, command, namespace=namespace, container=container, stdin=True, tty=False) as session:
        reading = asyncio.ensure_future(_complaints(session))
        sending = asyncio.ensure_future(_send(session, packing, progress))
        try:
            # If tar ends before all data is sent, its stderr says why.
            await asyncio.wait((reading, sending), return_when=asyncio.FIRST_COMPLETED)
            if sending.done() and not _ended_early(sending):
                sending.result()
            complaints = await reading
        finally:
            await end_tasks(reading, sending, expected=(KubeloopError, OSError), logger=_LOG)
        _check(session, complaints)
    return CopyResult(packing.files, packing.bytes, tuple(packing.skipped))


async def copy_from(
    client: Client,
    target: Target,
    source: str,
    destination: Path,
    *,
    namespace: str | None,
    container: str | None,
    progress: OnProgress | None,
) -> CopyResult:
    """Copy a file or folder of a container to this machine; the implementation of ``PodVerbs.copy_from``."""
    if not source:
        raise ValueError("the source in the container must not be empty")
    # tar would take a name that begins with "-" as an option.
    command = ["tar", "cf", "-", f"./{source}" if source.startswith("-") else source]
    async with exec_session(client, target, command, namespace=namespace, container=container, stdin=False, tty=False) as session:
        complaints = bytearray()

        async def more() -> bytes:
            """Return the next bytes of the archive, or empty bytes at its end."""
            if progress is not None and unpacking.progress is not None:
                told, unpacking.progress = unpacking.progress, None
                progress(CopyProgress(*told))
            async for output in session:
                if output.name == "stdout":
                    return output.data
                complaints.extend(output.data[: _COMPLAINTS - len(complaints)])
            return b""

        feed = Source(more, session.where)
        unpacking = Unpacking(feed, source, destination)
        # Files are written in a thread of the event loop's executor: a slow disk holds up this copy, and nothing else.
        thread = asyncio.get_running_loop().run_in_executor(None, unpacking.run)
        fault: KubeloopError | None = None
        try:
            await result_of(thread)
        except KubeloopError as error:
            fault = error
        finally:
            feed.stop()
            await wait_all(thread)
            # The error was raised above, or the thread ended because of the cancellation. Reading it keeps asyncio from logging it.
            if not thread.cancelled():
                thread.exception()
        if fault is None or feed.ended:
            # If the archive ended too early, tar's error output says why.
            while await more():
                pass
            _check(session, bytes(complaints), fault)
        if fault is not None:
            raise fault
    if progress is not None and unpacking.progress is not None:
        progress(CopyProgress(*unpacking.progress))
    return CopyResult(unpacking.files, unpacking.bytes, tuple(unpacking.skipped))


async def _is_folder(client: Client, target: Target, path: str, namespace: str | None, container: str | None) -> bool:
    try:
        answer = await run(
            client,
            target,
            ["test", "-d", path],
            namespace=namespace,
            container=container,
            stdin=None,
            max_output=_COMPLAINTS,
            timeout=_TEST_TIME,
        )
    except ApiError as error:
        # The container has no ``test``: the path is used as it is. The copy itself reports any other problem.
        if error.status.code not in (0, 500):
            raise
        return False
    return answer.ok


def _own_name(source: Path) -> str:
    return Path(os.path.abspath(source)).name  # noqa: PTH100 - ``..`` is taken away as a shell does, links stay


async def _send(session: ExecSession, packing: Packing, progress: OnProgress | None) -> None:
    async with aclosing(packing.pieces()) as pieces:
        async for piece in pieces:
            await session.write(piece)
            if progress is not None and packing.path:
                progress(CopyProgress(packing.path, packing.done, packing.size, packing.bytes))
    await session.close_stdin()


async def _complaints(session: ExecSession) -> bytes:
    said = bytearray()
    async for output in session:
        said.extend(output.data[: _COMPLAINTS - len(said)])
    return bytes(said)


def _ended_early(sending: asyncio.Future[None]) -> bool:
    """Return whether sending failed because the other end has ended."""
    error = sending.exception()
    return isinstance(error, KubeloopError) and not isinstance(error, CopyError)


def _check(session: ExecSession, complaints: bytes, fault: Exception | None = None) -> None:
    """Raise CopyError if tar reports an incomplete copy."""
    if session.exit_code:
        failed = CommandFailed(session.where, session.exit_code, complaints)
        hint = "; is there a tar in the container?" if session.exit_code in (126, 127) else ""
        raise CopyError(f"copy: {failed}{hint}") from fault
