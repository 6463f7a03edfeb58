"""Hooks see each try and its outcome, may add headers, and cannot leave half a call behind. Over real TLS sockets."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.config import Credentials, ImpersonatedUser
from kubeloop.meta import Forbidden, TransportError
from kubeloop.timing import FakeClock
from kubeloop.transport import Hook, Outcome, SentRequest, Transport
from tests.faults import DROP, SILENCE, FaultServer, Reply, status


class Recorder(Hook):
    def __init__(self, name: str = "", into: list[str] | None = None) -> None:
        self.name = name
        self.order = into if into is not None else []
        self.sent: list[SentRequest] = []
        self.outcomes: list[Outcome] = []

    def sending(self, request: SentRequest) -> None:
        self.order.append(f"{self.name}>")
        self.sent.append(request)

    def answered(self, request: SentRequest, outcome: Outcome) -> None:
        assert self.sent[-1] is request
        self.order.append(f"<{self.name}")
        self.outcomes.append(outcome)


async def test_a_hook_sees_the_request_and_the_response() -> None:
    hook = Recorder()
    async with FaultServer(Reply(201, b"made", {"X-Own": "1"})) as server, Transport(server.config(), hooks=[hook]) as transport:
        await transport.request("POST", "/api/v1/namespaces/shop/pods", query={"dryRun": "All"}, body=b"{}")
    sent, outcome = hook.sent[0], hook.outcomes[0]
    assert (sent.method, sent.verb, sent.path, sent.body, sent.attempt) == ("POST", "create", "/api/v1/namespaces/shop/pods", b"{}", 0)
    assert sent.url == f"https://127.0.0.1:{server.port}/api/v1/namespaces/shop/pods?dryRun=All"
    assert sent.description == 'create pods in namespace "shop"'
    assert sent.get("authorization") == "Bearer secret-token"
    assert "secret" not in repr(sent)
    assert (outcome.status, outcome.headers["x-own"], outcome.size, outcome.error) == (201, "1", 4, None)


async def test_a_hook_adds_and_replaces_headers() -> None:
    class Own(Hook):
        def sending(self, request: SentRequest) -> None:
            request.add("X-Request-Id", "7")
            request.add("accept", "application/yaml")

    who = Credentials(token="t", impersonate=ImpersonatedUser(user="jane", groups=("devs", "ops")))
    async with FaultServer(Reply()) as server, Transport(server.config(credentials=who), hooks=[Own()]) as transport:
        await transport.request("GET", "/x")
    headers = server.received[0].headers
    assert (headers["x-request-id"], headers["accept"], headers["impersonate-group"]) == ("7", "application/yaml", "devs, ops")


async def test_a_header_that_would_be_another_request_is_refused_also_from_a_hook() -> None:
    class Bad(Hook):
        def sending(self, request: SentRequest) -> None:
            request.add("X-A", "1\r\nX-B: 2")

    async with FaultServer(Reply()) as server, Transport(server.config(), hooks=[Bad()]) as transport:
        with pytest.raises(ValueError, match="line break"):
            await transport.request("GET", "/x")
    assert not server.received


async def test_each_try_is_seen_with_its_number_and_its_own_outcome() -> None:
    hook = Recorder()
    script = [DROP, Reply(503, headers={"Retry-After": "0"}), Reply(body=b"done")]
    async with FaultServer(*script) as server, Transport(server.config(), clock=FakeClock(), hooks=[hook]) as transport:
        await transport.request("GET", "/x")
    assert [one.attempt for one in hook.sent] == [0, 1, 2]
    assert [one.status for one in hook.outcomes] == [None, 503, 200]
    assert isinstance(hook.outcomes[0].error, TransportError)


async def test_answers_pass_hooks_in_reverse() -> None:
    order: list[str] = []
    hooks = [Recorder("a", order), Recorder("b", order)]
    async with FaultServer(Reply()) as server, Transport(server.config(), hooks=hooks) as transport:
        await transport.request("GET", "/x")
    assert order == ["a>", "b>", "<b", "<a"]


async def test_streams_changes_of_protocol_refusals_and_cancelled_calls_have_an_outcome_too() -> None:
    hook = Recorder()
    async with (
        FaultServer(Reply(chunks=[b"x"])) as server,
        Transport(server.config(), hooks=[hook]) as transport,
        transport.stream("GET", "/api/v1/pods", query={"watch": True}),
    ):
        assert (hook.sent[-1].verb, hook.outcomes[-1].status, hook.outcomes[-1].size) == ("watch", 200, None)
    async with FaultServer(status(403, "Forbidden", "no")) as server, Transport(server.config(), hooks=[hook]) as transport:
        with pytest.raises(Forbidden):
            async with transport.upgrade("GET", "/x", protocol="websocket"):
                pytest.fail("the block must not run")
    assert hook.outcomes[-1].status == 403
    async with FaultServer(SILENCE) as server, Transport(server.config(), hooks=[hook]) as transport:
        call = asyncio.create_task(transport.request("GET", "/x"))
        await server.waiting.wait()
        call.cancel()
        await asyncio.wait([call])
    assert isinstance(hook.outcomes[-1].error, asyncio.CancelledError)
    assert len(hook.sent) == len(hook.outcomes)


async def test_what_a_hook_raises_ends_the_call_and_those_before_it_hear_of_it() -> None:
    class Veto(Hook):
        def sending(self, request: SentRequest) -> None:
            raise PermissionError("not in this program")

    first, last = Recorder(), Recorder()
    async with FaultServer(Reply()) as server, Transport(server.config(), hooks=[first, Veto(), last]) as transport:
        with pytest.raises(PermissionError, match="not in this program"):
            await transport.request("GET", "/x")
    assert (len(server.received), len(last.sent)) == (0, 0)
    assert isinstance(first.outcomes[0].error, PermissionError)


async def test_a_hook_that_fails_on_an_answer_leaves_no_connection_behind() -> None:
    class Broken(Hook):
        def answered(self, request: SentRequest, outcome: Outcome) -> None:
            raise LookupError("broken")

    async with FaultServer(Reply(chunks=[b"x"], end="hang")) as server, Transport(server.config(), hooks=[Broken()]) as transport:
        with pytest.raises(LookupError):
            async with transport.stream("GET", "/x"):
                pytest.fail("the block must not run")
        async with asyncio.timeout(30):
            await server.gone.wait()
