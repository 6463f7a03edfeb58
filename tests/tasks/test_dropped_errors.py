"""Errors of tasks that end with the block that started them are logged, unless they are expected; no module drops them without a reason."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from typing import cast

import pytest

import kubeloop
from kubeloop.client.streams.commands import _collect
from kubeloop.client.streams.port_stream import PortStream, PortTransport
from kubeloop.client.streams.session import ExecSession
from kubeloop.http1.client_connection import ClientConnection
from kubeloop.reverseproxy.upgrade import relay
from kubeloop.tasks import end_tasks

_LOG = logging.getLogger("kubeloop.tests")
SOURCES = Path(kubeloop.__file__).parent
#: Drops what it catches: the errors of tasks, or all errors.
_DROPS = re.compile(r"return_exceptions=True|suppress\((Base)?Exception\)")

#: A line that is a comment for people, not for a tool.
_REASON = re.compile(r"^\s*# *(?!noqa|type:|pragma|fmt:|mypy:|ruff:)\S+")


async def _fail(error: Exception) -> None:
    raise error


async def test_all_errors_except_expected_ones_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    tasks = [asyncio.ensure_future(_fail(error)) for error in (OSError("gone"), KeyError("name"), ValueError("bad"))]
    await asyncio.wait(tasks)
    await end_tasks(*tasks, expected=(OSError,), logger=_LOG)
    assert [type(record.exc_info[1]) for record in caplog.records if record.exc_info] == [KeyError, ValueError]


async def test_expected_errors_are_not_raised() -> None:
    task = asyncio.ensure_future(_fail(OSError("gone")))
    await asyncio.wait([task])
    await end_tasks(task, expected=(OSError,))


async def test_the_error_that_the_block_ends_with_is_not_logged_as_well(caplog: pytest.LogCaptureFixture) -> None:
    async def first_of(*tasks: asyncio.Future[None]) -> None:
        try:
            await asyncio.wait(tasks)
            for task in tasks:
                task.result()
        finally:
            await end_tasks(*tasks, logger=_LOG)

    with pytest.raises(KeyError, match="raised"):
        await first_of(asyncio.ensure_future(_fail(KeyError("raised"))), asyncio.ensure_future(_fail(KeyError("lost"))))
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["'lost'"]


class _BrokenSession:
    """A command whose connection breaks by a fault of the client."""

    where = "exec in a pod"

    def __aiter__(self) -> _BrokenSession:
        return self

    async def __anext__(self) -> object:
        raise ValueError("the session is broken")


async def test_an_error_of_a_command_is_raised_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ValueError, match="the session is broken"):
        await _collect(cast("ExecSession", _BrokenSession()), None, 100)
    assert caplog.records == []


class _BrokenClient:
    async def read(self) -> bytes:
        raise KeyError("a fault of the server")

    async def write(self, data: bytes) -> None:
        pass


class _SilentKubelet:
    async def chunk(self) -> bytes:
        await asyncio.Event().wait()
        return b""


async def test_a_fault_of_the_server_in_a_stream_to_a_kubelet_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    await relay(_BrokenClient(), cast("ClientConnection", _SilentKubelet()))
    assert [type(record.exc_info[1]) for record in caplog.records if record.exc_info] == [KeyError]


class _Talkative:
    """A port that sends once."""

    def __init__(self) -> None:
        self.closed = False
        self._data = [b"hello"]

    async def read(self) -> bytes:
        return self._data.pop() if self._data else b""

    async def close(self) -> None:
        self.closed = True


class _Protocol(asyncio.Protocol):
    def __init__(self) -> None:
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        raise RuntimeError("the protocol is broken")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)


async def test_a_protocol_that_raises_loses_its_connection_and_the_log_says_why(caplog: pytest.LogCaptureFixture) -> None:
    stream, protocol = _Talkative(), _Protocol()
    transport = PortTransport(cast("PortStream", stream), protocol, {})
    async with asyncio.timeout(5):
        assert isinstance(await protocol.lost, RuntimeError)
        assert transport.closed is not None
        await transport.closed
    assert stream.closed
    assert [record.getMessage() for record in caplog.records] == ["a connection to a pod's port failed (RuntimeError)"]


def _reasonless(lines: list[str]) -> list[tuple[int, str]]:
    """Lines that drop errors, without a comment line above that gives a reason and without a name for the dropped error."""
    found = []
    for at, line in enumerate(lines):
        code = line.partition("#")[0]
        named = re.search(r"^\s*(\w+ = |for \w+ in )await ", code)
        if _DROPS.search(code) and not named and not any(_REASON.match(above) for above in lines[max(0, at - 2) : at]):
            found.append((at + 1, line.strip()))
    return found


def test_no_module_drops_errors_without_a_reason() -> None:
    found = {str(file.relative_to(SOURCES)): _reasonless(file.read_text().splitlines()) for file in sorted(SOURCES.rglob("*.py"))}
    assert {name: lines for name, lines in found.items() if lines} == {}, "use end_tasks, or say in a comment why the error cannot matter"


@pytest.mark.parametrize(
    ("above", "expected"),
    [
        pytest.param("    # The peer is gone, so no peer reads this.", 0, id="a comment gives the reason"),
        pytest.param("    # noqa: SIM105", 1, id="noqa is no reason"),
        pytest.param("    # type: ignore[misc]", 1, id="nor is a remark for a type checker"),
        pytest.param("    work()  # noqa: BLE001", 1, id="nor is a remark behind code"),
        pytest.param("    work()  # the next step", 1, id="nor is a comment about other code"),
        pytest.param('    name = "#1"', 1, id="nor is a text"),
    ],
)
def test_what_counts_as_a_reason(above: str, expected: int) -> None:
    assert len(_reasonless([above, "    with suppress(Exception):"])) == expected
