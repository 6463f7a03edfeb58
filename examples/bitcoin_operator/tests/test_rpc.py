"""The RPC client: answers of daemons become results and errors, and a password appears in no text."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from examples.bitcoin_operator import rpc as rpc_module
from examples.bitcoin_operator.rpc import (
    ALREADY_ADDED,
    Credentials,
    CredentialsRejected,
    RpcCall,
    RpcClient,
    RpcError,
    Unreachable,
    WarmingUp,
    daemon_url,
)
from examples.bitcoin_operator.tests.scripted_daemons import CREDENTIALS, Fault, RecordedRequest, ScriptedDaemon, ScriptedDaemons

IP = "10.0.0.1"
#: A password that appears in no other text.
HUNTER = Credentials("john", "hunter2")

Prepare = Callable[[ScriptedDaemon], None]


def plain(_: ScriptedDaemon) -> None:
    """A daemon with an empty list."""


def with_peers(daemon: ScriptedDaemon) -> None:
    daemon.added += ["10.0.0.2", "10.0.0.3"]


def warming_up(daemon: ScriptedDaemon) -> None:
    daemon.warming_up = True


def other_password(daemon: ScriptedDaemon) -> None:
    daemon.credentials = HUNTER


def failing(fault: Fault) -> Prepare:
    def prepare(daemon: ScriptedDaemon) -> None:
        daemon.fault = fault

    return prepare


@pytest.mark.parametrize(
    ("prepare", "call", "result"),
    [
        pytest.param(plain, RpcCall("addnode", ("10.0.0.2", "add")), None, id="an added node gives null"),
        pytest.param(plain, RpcCall("getaddednodeinfo"), [], id="a new daemon has an empty list"),
        pytest.param(
            with_peers, RpcCall("addnode", ("10.0.0.2", "add"), frozenset({ALREADY_ADDED})), None, id="an accepted code is no error"
        ),
    ],
)
async def test_an_answer_is_a_result(daemons: ScriptedDaemons, rpc: RpcClient, prepare: Prepare, call: RpcCall, result: Any) -> None:
    prepare(daemons[IP])
    assert await rpc.call(IP, CREDENTIALS, call) == result


@pytest.mark.parametrize(
    ("prepare", "call", "kind", "code", "text"),
    [
        pytest.param(
            with_peers,
            RpcCall("addnode", ("10.0.0.2", "add")),
            RpcError,
            -23,
            "daemon 10.0.0.1: addnode: Error: Node already added (code -23)",
            id="a node that is added twice has code -23",
        ),
        pytest.param(
            plain,
            RpcCall("addnode", ("10.0.0.2", "remove")),
            RpcError,
            -24,
            "daemon 10.0.0.1: addnode: Error: Node has not been added. (code -24)",
            id="an unknown node that is removed has code -24",
        ),
        pytest.param(
            plain,
            RpcCall("dance"),
            RpcError,
            -32601,
            "daemon 10.0.0.1: dance: Method not found (code -32601)",
            id="an unknown method has code -32601",
        ),
        pytest.param(
            warming_up,
            RpcCall("getaddednodeinfo"),
            WarmingUp,
            -28,
            "daemon 10.0.0.1 is starting",
            id="a daemon that starts is warming up",
        ),
        pytest.param(
            other_password,
            RpcCall("getaddednodeinfo"),
            CredentialsRejected,
            0,
            "daemon 10.0.0.1 rejected the RPC credentials",
            id="401 with an empty body is a rejection",
        ),
        pytest.param(
            failing(Fault.NO_JSON),
            RpcCall("getaddednodeinfo"),
            RpcError,
            0,
            "daemon 10.0.0.1 answered with HTTP status 502 and no JSON",
            id="a page of HTML names the HTTP status",
        ),
        pytest.param(
            failing(Fault.RESET),
            RpcCall("getaddednodeinfo"),
            Unreachable,
            0,
            "daemon 10.0.0.1 cannot be reached: ",
            id="a broken connection is unreachable",
        ),
        pytest.param(
            failing(Fault.ENDLESS),
            RpcCall("getaddednodeinfo"),
            Unreachable,
            0,
            "the answer is longer than 65536 bytes",
            id="a body without an end is refused at the limit",
        ),
    ],
)
async def test_an_answer_is_an_error(
    daemons: ScriptedDaemons,
    rpc: RpcClient,
    monkeypatch: pytest.MonkeyPatch,
    prepare: Prepare,
    call: RpcCall,
    kind: type[RpcError],
    code: int,
    text: str,
) -> None:
    monkeypatch.setattr(rpc_module, "MAX_BODY", 65536)
    prepare(daemons[IP])
    with pytest.raises(RpcError) as raised:
        await rpc.call(IP, CREDENTIALS, call)
    assert (type(raised.value), raised.value.code) == (kind, code)
    assert text in str(raised.value)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param("text", id="a text is no list of added nodes"),
        pytest.param([{"addednode": 1}], id="an address that is a number is no list of added nodes"),
        pytest.param(["10.0.0.2"], id="a list of texts is no list of added nodes"),
    ],
)
async def test_a_result_of_another_form_is_an_error(
    daemons: ScriptedDaemons, rpc: RpcClient, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    body = {"result": answer, "error": None, "id": "0"}
    monkeypatch.setattr(daemons[IP], "answer", lambda *_: (200, body))
    with pytest.raises(RpcError, match=r"^daemon 10\.0\.0\.1: getaddednodeinfo returned no list of added nodes$"):
        await rpc.added_nodes(IP, CREDENTIALS)


@pytest.mark.parametrize(
    ("status", "answer", "text"),
    [
        pytest.param(200, [], "addnode got no answer", id="a batch without answers"),
        pytest.param(200, ["text", {"id": "7"}], "addnode got no answer", id="a batch with the answers of other calls"),
        pytest.param(500, {}, "addnode got an answer without result and error", id="an object without an error instead of an array"),
        pytest.param(500, "text", "addnode got an answer without result and error", id="a text instead of an array"),
        pytest.param(200, [{"id": "0", "error": "text"}], "without result and error", id="an error that is a text"),
        pytest.param(200, [{"id": "0", "error": {"code": "x", "message": "m" * 999}}], "m" * 200 + " (code 0)", id="a long message is cut"),
    ],
)
async def test_an_answer_to_a_batch_that_has_another_form_is_an_error(
    daemons: ScriptedDaemons, rpc: RpcClient, monkeypatch: pytest.MonkeyPatch, status: int, answer: Any, text: str
) -> None:
    monkeypatch.setattr(daemons[IP], "answer", lambda *_: (status, answer))
    with pytest.raises(RpcError) as raised:
        await rpc.change_nodes(IP, CREDENTIALS, add=["10.0.0.2"])
    assert text in str(raised.value)


async def test_nodes_are_added_and_removed_in_one_request(daemons: ScriptedDaemons, rpc: RpcClient) -> None:
    daemons[IP].added += ["10.0.0.2", "10.0.0.3"]
    await rpc.change_nodes(IP, CREDENTIALS, add=["10.0.0.2", "10.0.0.4"], remove=["10.0.0.3", "10.0.0.9"])
    assert await rpc.added_nodes(IP, CREDENTIALS) == ["10.0.0.2", "10.0.0.4"]
    calls = ("addnode 10.0.0.2 add", "addnode 10.0.0.4 add", "addnode 10.0.0.3 remove", "addnode 10.0.0.9 remove")
    assert daemons.requests[0] == RecordedRequest(IP, calls, batch=True)


async def test_no_change_sends_no_request(daemons: ScriptedDaemons, rpc: RpcClient) -> None:
    await rpc.change_nodes(IP, CREDENTIALS)
    assert daemons.requests == []


async def test_a_batch_of_a_daemon_that_starts_is_warming_up(daemons: ScriptedDaemons, rpc: RpcClient) -> None:
    daemons[IP].warming_up = True
    with pytest.raises(WarmingUp, match=r"daemon 10\.0\.0\.1 is starting"):
        await rpc.change_nodes(IP, CREDENTIALS, add=["10.0.0.2"])


async def test_the_other_changes_of_a_batch_with_a_refused_one_are_done(daemons: ScriptedDaemons, rpc: RpcClient) -> None:
    calls = [RpcCall("addnode", ("10.0.0.2", "add")), RpcCall("dance"), RpcCall("addnode", ("10.0.0.3", "add"))]
    with pytest.raises(RpcError, match="dance: Method not found"):
        await rpc.batch(IP, CREDENTIALS, calls)
    assert daemons[IP].added == ["10.0.0.2", "10.0.0.3"]


async def test_a_daemon_that_hangs_is_unreachable_after_the_timeout(daemons: ScriptedDaemons) -> None:
    daemons[IP].fault = Fault.HANG
    async with daemons.client(timeout=0.02) as client:
        with pytest.raises(Unreachable, match=r"^daemon 10\.0\.0\.1 did not answer in 0\.02 s$"):
            await client.added_nodes(IP, CREDENTIALS)


async def test_a_daemon_that_does_not_run_is_unreachable(daemons: ScriptedDaemons) -> None:
    async with RpcClient(url_of=lambda _: "http://127.0.0.1:1/") as client:
        with pytest.raises(Unreachable, match=r"^daemon 10\.0\.0\.1 cannot be reached: "):
            await client.added_nodes(IP, CREDENTIALS)
    assert daemons.requests == []


async def test_requests_reuse_a_connection(daemons: ScriptedDaemons, rpc: RpcClient) -> None:
    for _ in range(4):
        await rpc.added_nodes(IP, CREDENTIALS)
    assert [request.connection for request in daemons.requests] == [0, 0, 0, 0]


async def test_concurrent_requests_to_one_daemon_use_two_connections(daemons: ScriptedDaemons, rpc: RpcClient) -> None:
    await asyncio.gather(*(rpc.added_nodes(IP, CREDENTIALS) for _ in range(8)))
    assert {request.connection for request in daemons.requests} == {0, 1}


@pytest.mark.parametrize(
    ("ip", "url"),
    [
        pytest.param("10.0.0.1", "http://10.0.0.1:18332/", id="an IPv4 address"),
        pytest.param("fd00::1", "http://[fd00::1]:18332/", id="an IPv6 address is in brackets"),
    ],
)
def test_the_url_of_a_daemon(ip: str, url: str) -> None:
    assert daemon_url(ip) == url


async def test_a_client_that_is_not_entered_says_how_to_use_it() -> None:
    with pytest.raises(RuntimeError, match="async with RpcClient"):
        await RpcClient().added_nodes(IP, CREDENTIALS)
    await RpcClient().__aexit__(None, None, None)


async def test_credentials_may_have_any_letters(daemons: ScriptedDaemons, rpc: RpcClient) -> None:
    daemons[IP].credentials = Credentials("jürgen", "pässwört:☃")
    assert await rpc.added_nodes(IP, Credentials("jürgen", "pässwört:☃")) == []


@pytest.mark.parametrize(
    "prepare",
    [
        pytest.param(plain, id="a daemon with other credentials"),
        pytest.param(failing(Fault.RESET), id="a daemon that breaks connections"),
        pytest.param(failing(Fault.HANG), id="a daemon that hangs"),
        pytest.param(failing(Fault.NO_JSON), id="a daemon that sends no JSON"),
    ],
)
async def test_the_password_appears_in_no_error_and_no_log(
    daemons: ScriptedDaemons, caplog: pytest.LogCaptureFixture, prepare: Prepare
) -> None:
    caplog.set_level(logging.DEBUG)
    prepare(daemons[IP])
    async with daemons.client(timeout=0.05) as client:
        with pytest.raises(RpcError) as raised:
            await client.added_nodes(IP, HUNTER)
    chain = [raised.value, raised.value.__cause__]
    assert not [text for error in chain for text in (str(error), repr(error)) if "hunter2" in text]
    assert "hunter2" not in caplog.text


def test_the_password_is_not_in_the_text_of_credentials() -> None:
    assert [str(HUNTER), repr(HUNTER)] == ["Credentials(user='john')"] * 2


async def test_a_cancelled_request_leaves_the_client_usable(daemons: ScriptedDaemons, rpc: RpcClient) -> None:
    daemons[IP].fault = Fault.HANG
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(rpc.added_nodes(IP, CREDENTIALS), 0.02)
    daemons[IP].fault = None
    assert await rpc.added_nodes(IP, CREDENTIALS) == []


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        pytest.param({"error": {"code": -1, "message": "a\ud800\n\x1b[31m"}}, "getaddednodeinfo: a???[31m (code -1)", id="odd characters"),
        pytest.param({"error": {"code": 10**4000, "message": "m"}}, "getaddednodeinfo: m (code 0)", id="a code of 4,000 digits"),
        pytest.param({"error": {"code": [], "message": "m"}}, "getaddednodeinfo: m (code 0)", id="a code that is no number"),
        pytest.param({"result": [{"addednode": "a"}] * 1001}, "1001 added nodes, more than 1000", id="a list that is too long"),
    ],
)
async def test_a_hostile_answer_is_an_error_of_one_short_line(
    rpc: RpcClient, monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any], text: str
) -> None:
    async def post(*_: object) -> dict[str, Any]:
        return answer

    monkeypatch.setattr(rpc, "_post", post)
    with pytest.raises(RpcError) as raised:
        await rpc.added_nodes(IP, CREDENTIALS)
    assert text in str(raised.value)
    assert len(str(raised.value)) < 300


async def test_identities_of_a_batch_that_are_no_text_are_ignored(rpc: RpcClient, monkeypatch: pytest.MonkeyPatch) -> None:
    async def post(*_: object) -> list[Any]:
        return [{"id": {}, "result": 1}, {"id": "0", "result": 2}, 7]

    monkeypatch.setattr(rpc, "_post", post)
    assert await rpc.batch(IP, CREDENTIALS, [RpcCall("getaddednodeinfo")]) == [2]
