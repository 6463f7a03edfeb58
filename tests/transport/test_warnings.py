"""Each warning of each answer reaches the handler once; by default each text is logged once. Behaviours K152; row 41."""

from __future__ import annotations

import logging

import pytest

from kubeloop.meta import Forbidden
from kubeloop.transport import ServerWarning, Transport, WarningHandler, ignore_warnings, once_each
from kubeloop.transport.answer import REMEMBERED, warnings_in
from tests.faults import FaultServer, Reply

TWO = Reply(headers={"Warning": '299 - "v1 is \\"old\\", really", 299 kube-apiserver "second", 199 - "other"'})


async def heard(reply: Reply, handler: WarningHandler | None, times: int = 2) -> None:
    async with FaultServer(reply) as server, Transport(server.config(), warning_handler=handler) as transport:
        for _ in range(times):
            await transport.request("GET", "/api/v1/pods")


async def test_a_handler_hears_each_warning_of_each_answer_once_K152() -> None:
    said: list[ServerWarning] = []
    await heard(TWO, said.append)
    assert said == [ServerWarning('v1 is "old", really', "-", "list pods"), ServerWarning("second", "kube-apiserver", "list pods")] * 2


async def test_a_handler_can_get_each_text_once_K152() -> None:
    said: list[ServerWarning] = []
    await heard(TWO, once_each(said.append))
    assert [one.text for one in said] == ['v1 is "old", really', "second"]


async def test_by_default_each_text_is_logged_once_K152(caplog: pytest.LogCaptureFixture) -> None:
    await heard(TWO, None)
    logged = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert logged == ['the server warns: v1 is "old", really', "the server warns: second"]


async def test_warnings_can_be_dropped_K152(caplog: pytest.LogCaptureFixture) -> None:
    await heard(TWO, ignore_warnings)
    assert not caplog.records


async def test_streams_and_refusals_warn_too_K152() -> None:
    said: list[str] = []

    def hear(warning: ServerWarning) -> None:
        said.append(warning.text)

    headers = {"Warning": '299 - "old"'}
    script = [Reply(chunks=[b"x"], headers=headers), Reply(403, headers=headers)]
    async with FaultServer(*script) as server, Transport(server.config(), warning_handler=hear) as transport:
        async with transport.stream("GET", "/x"):
            assert said == ["old"]
        with pytest.raises(Forbidden):
            await transport.request("GET", "/x")
    assert said == ["old", "old"]


def test_warnings_of_other_codes_are_no_warnings_of_kubernetes() -> None:
    found = warnings_in(['110 - "stale"', '299 - ""', '299 agent "text" "Wed, 21 Oct 2026 07:28:00 GMT"'], "list pods")
    assert found == (ServerWarning("text", "agent", "list pods"),)


def test_a_server_that_makes_up_warnings_does_not_fill_the_memory() -> None:
    said: list[ServerWarning] = []
    hear = once_each(said.append)
    for number in range(REMEMBERED + 10):
        hear(ServerWarning(str(number)))
    assert len(said) == REMEMBERED
