"""The mesh: after a round each daemon lists all others and nothing else, also if a request fails meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest

from examples.bitcoin_operator.mesh import COMPARE_AGAIN, Daemon, Mesh, MeshState, connect
from examples.bitcoin_operator.rpc import Credentials, RpcClient, RpcError, Unreachable, WarmingUp
from examples.bitcoin_operator.tests.scripted_daemons import CREDENTIALS, Fault, ScriptedDaemons

IPS = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"]


def daemon(ip: str, run: str = "1") -> Daemon:
    return Daemon(ip, run)


class Meshed:
    """A mesh whose clock the test moves."""

    def __init__(self, rpc: RpcClient) -> None:
        self.now = 0.0
        self.ended = asyncio.Event()
        self.mesh = Mesh(rpc, lambda: self.now, self.ended.set)

    async def round(self, daemons: Sequence[Daemon], *, wait: float = 5.0, credentials: Credentials = CREDENTIALS) -> MeshState:
        return await self.mesh.round(daemons, daemons, credentials, wait=wait)


@pytest.fixture
async def meshed(rpc: RpcClient) -> AsyncIterator[Meshed]:
    found = Meshed(rpc)
    yield found
    await found.mesh.close()


def full(ips: Sequence[str]) -> dict[str, set[str]]:
    """Return the lists of a full mesh."""
    return {ip: set(ips) - {ip} for ip in ips}


@pytest.mark.parametrize(
    ("added", "peers", "calls"),
    [
        pytest.param([], [], [], id="an empty list that should be empty stays"),
        pytest.param(["10.0.0.2"], ["10.0.0.2"], [], id="a list that is right stays"),
        pytest.param([], ["10.0.0.3", "10.0.0.2"], ["addnode 10.0.0.2 add", "addnode 10.0.0.3 add"], id="missing addresses are added"),
        pytest.param(["10.0.0.9"], [], ["addnode 10.0.0.9 remove"], id="an address that is not ready is removed"),
        pytest.param(
            ["10.0.0.9", "10.0.0.2"],
            ["10.0.0.2", "10.0.0.3"],
            ["addnode 10.0.0.3 add", "addnode 10.0.0.9 remove"],
            id="additions precede removals, and known addresses are left alone",
        ),
        pytest.param(["10.0.0.1"], [], ["addnode 10.0.0.1 remove"], id="the daemon's own address is removed"),
    ],
)
async def test_connect_sends(daemons: ScriptedDaemons, rpc: RpcClient, added: list[str], peers: list[str], calls: list[str]) -> None:
    daemons["10.0.0.1"].added += added
    changed = await connect(rpc, "10.0.0.1", frozenset(peers), CREDENTIALS)
    assert daemons.asked() == ["getaddednodeinfo", *calls]
    assert changed is bool(calls)
    assert set(daemons["10.0.0.1"].added) == set(peers)


@pytest.mark.parametrize("count", [0, 1, 2, 4])
async def test_a_round_makes_a_full_mesh_and_the_next_one_sends_nothing(daemons: ScriptedDaemons, meshed: Meshed, count: int) -> None:
    members = [daemon(ip) for ip in IPS[:count]]
    state = await meshed.round(members)
    assert state == MeshState(frozenset(members), frozenset())
    assert daemons.lists() == full(IPS[:count])
    daemons.requests.clear()
    assert await meshed.round(members) == state
    assert daemons.requests == []


@pytest.mark.parametrize(
    ("before", "after", "asked"),
    [
        pytest.param(IPS[:2], IPS[:3], IPS[:3], id="a new daemon is added everywhere"),
        pytest.param(IPS[:3], IPS[:2], IPS[:2], id="a daemon that left is removed from the others and is not asked"),
        pytest.param(IPS[:3], [*IPS[:2], IPS[3]], [*IPS[:2], IPS[3]], id="a daemon with another address replaces the old address"),
        pytest.param(IPS[:2], IPS[:1], IPS[:1], id="the last daemon has an empty list"),
        pytest.param(IPS[:2], [], [], id="a network of no daemons asks no daemon"),
    ],
)
async def test_a_changed_set(daemons: ScriptedDaemons, meshed: Meshed, before: list[str], after: list[str], asked: list[str]) -> None:
    await meshed.round([daemon(ip) for ip in before])
    daemons.requests.clear()
    state = await meshed.round([daemon(ip) for ip in after])
    assert {request.ip for request in daemons.requests} == set(asked)
    assert daemons.lists(after) == full(after)
    assert state.connected == {daemon(ip) for ip in after}


async def test_a_daemon_with_the_same_address_and_another_run_is_asked_again(daemons: ScriptedDaemons, meshed: Meshed) -> None:
    await meshed.round([daemon(ip) for ip in IPS[:2]])
    daemons["10.0.0.1"].restart()
    daemons.requests.clear()
    await meshed.round([daemon("10.0.0.1", "2"), daemon("10.0.0.2")])
    assert daemons.lists() == full(IPS[:2])
    assert {request.ip for request in daemons.requests} == {"10.0.0.1"}


async def test_daemons_with_older_credentials_are_peers_and_are_not_asked(daemons: ScriptedDaemons, meshed: Meshed) -> None:
    old, new = Daemon("10.0.0.1", "1", "1"), Daemon("10.0.0.2", "1", "2")
    state = await meshed.mesh.round([old, new], [new], CREDENTIALS, wait=5.0)
    assert state.connected == {new}
    assert daemons.lists() == {"10.0.0.2": {"10.0.0.1"}}


@pytest.mark.parametrize(
    ("failures", "delay"),
    [pytest.param(n, delay, id=f"failure {n}") for n, delay in enumerate([1, 2, 4, 8, 16, 32, 60, 60], 1)] + [pytest.param(20, 60)],
)
async def test_a_failed_daemon_is_tried_again_after(daemons: ScriptedDaemons, meshed: Meshed, failures: int, delay: float) -> None:
    members = [daemon(ip) for ip in IPS[:2]]
    daemons["10.0.0.1"].fault = Fault.NO_JSON
    state = await meshed.round(members)
    for _ in range(failures - 1):
        assert state.retry_after is not None
        meshed.now += state.retry_after
        state = await meshed.round(members)
    assert state.retry_after == delay
    assert [type(error) for error in state.failures.values()] == [RpcError]
    daemons.requests.clear()
    meshed.now += delay - 0.5
    assert (await meshed.round(members)).retry_after == 0.5
    assert daemons.requests == []
    daemons["10.0.0.1"].recover()
    meshed.now += 0.5
    assert await meshed.round(members) == MeshState(frozenset(members), frozenset())
    assert daemons.lists() == full(IPS[:2])


async def test_errors_of_different_kinds_share_one_back_off(daemons: ScriptedDaemons, meshed: Meshed) -> None:
    failing = daemons["10.0.0.1"]
    for delay, fault in ((1.0, Fault.RESET), (2.0, Fault.NO_JSON), (4.0, Fault.RESET)):
        failing.fault = fault
        assert (await meshed.round([daemon("10.0.0.1")])).retry_after == delay
        meshed.now += delay


async def test_a_list_is_compared_once_more_after_a_request_without_an_answer(daemons: ScriptedDaemons, meshed: Meshed) -> None:
    members = [daemon(ip) for ip in IPS[:2]]
    daemons["10.0.0.1"].fault = Fault.RESET
    await meshed.round(members)
    daemons["10.0.0.1"].recover()
    meshed.now += 1.0
    state = await meshed.round(members)
    assert (set(state.connected), state.retry_after) == (set(members), COMPARE_AGAIN)
    # The daemon carries out the older request only now.
    daemons["10.0.0.1"].added.append("10.0.0.9")
    meshed.now += COMPARE_AGAIN
    assert (await meshed.round(members)).retry_after is None
    assert daemons.lists() == full(IPS[:2])


async def test_a_daemon_that_starts_is_tried_again_each_second(daemons: ScriptedDaemons, meshed: Meshed) -> None:
    daemons["10.0.0.1"].warming_up = True
    for _ in range(5):
        state = await meshed.round([daemon("10.0.0.1")])
        assert ([type(error) for error in state.failures.values()], state.retry_after) == ([WarmingUp], 1.0)
        meshed.now += 1.0
    daemons["10.0.0.1"].recover()
    assert (await meshed.round([daemon("10.0.0.1")])).connected == {daemon("10.0.0.1")}


@pytest.mark.parametrize("after", [0, 1, 2])
async def test_a_daemon_that_dies_between_two_changes_is_completed_later(daemons: ScriptedDaemons, meshed: Meshed, after: int) -> None:
    members = [daemon(ip) for ip in IPS]
    daemons["10.0.0.1"].fail_after = after
    state = await meshed.round(members)
    assert state.connected == set(members[1:])
    assert len(daemons["10.0.0.1"].added) == after
    daemons["10.0.0.1"].recover()
    meshed.now += 1.0
    await meshed.round(members)
    assert daemons.lists() == full(IPS)


async def test_a_set_that_returns_after_a_change_that_failed_half_way_is_restored(daemons: ScriptedDaemons, meshed: Meshed) -> None:
    await meshed.round([daemon(ip) for ip in IPS[:2]])
    daemons["10.0.0.1"].fail_after = 1
    await meshed.round([daemon(ip) for ip in IPS])
    daemons["10.0.0.1"].recover()
    meshed.now += 1.0
    await meshed.round([daemon(ip) for ip in IPS[:2]])
    assert daemons.lists(IPS[:2]) == full(IPS[:2])


async def test_a_daemon_that_hangs_delays_neither_the_others_nor_the_caller(daemons: ScriptedDaemons, meshed: Meshed) -> None:
    members = [daemon(ip) for ip in IPS[:3]]
    daemons["10.0.0.1"].fault = Fault.HANG
    state = await meshed.round(members, wait=0.05)
    assert state == MeshState(frozenset(members[1:]), frozenset(members[:1]))
    assert not meshed.ended.is_set()
    daemons["10.0.0.1"].recover()
    await meshed.ended.wait()
    assert (await meshed.round(members)).connected == set(members)
    assert daemons.lists() == full(IPS[:3])


async def test_a_daemon_that_hangs_until_the_timeout_has_failed(daemons: ScriptedDaemons) -> None:
    daemons["10.0.0.1"].fault = Fault.HANG
    async with daemons.client(timeout=0.02) as client:
        meshed = Meshed(client)
        await meshed.round([daemon("10.0.0.1")], wait=0.0)
        await meshed.ended.wait()
        state = await meshed.round([daemon("10.0.0.1")], wait=0.0)
    assert [str(error) for error in state.failures.values()] == ["daemon 10.0.0.1 did not answer in 0.02 s"]
    assert state.retry_after == 1.0


async def test_a_set_that_changes_while_requests_run_leads_to_another_round(daemons: ScriptedDaemons, meshed: Meshed) -> None:
    daemons["10.0.0.1"].fault = Fault.HANG
    await meshed.round([daemon(ip) for ip in IPS[:2]], wait=0.01)
    members = [daemon(ip) for ip in IPS[:3]]
    state = await meshed.round(members, wait=0.01)
    assert daemon("10.0.0.1") in state.running
    daemons["10.0.0.1"].recover()
    await meshed.ended.wait()
    assert set(daemons["10.0.0.1"].added) == {"10.0.0.2"}
    # The end of the requests is one trigger of the next round; a caller that came earlier gets another.
    assert (await meshed.round(members)).connected == set(members)
    assert daemons.lists() == full(IPS[:3])


async def test_a_daemon_that_gets_an_older_list_late_leads_to_another_round(daemons: ScriptedDaemons, meshed: Meshed) -> None:
    daemons["10.0.0.1"].fault = Fault.HANG
    await meshed.round([daemon(ip) for ip in IPS[:2]], wait=0.3)
    members = [daemon(ip) for ip in IPS[:3]]
    state = await meshed.round(members)
    assert (set(state.connected), set(state.running)) == (set(members[1:]), {members[0]})
    daemons["10.0.0.1"].recover()
    await meshed.ended.wait()
    assert (await meshed.round(members)).connected == set(members)
    assert daemons.lists() == full(IPS[:3])


async def test_a_daemon_that_vanishes_while_its_requests_run_is_forgotten(daemons: ScriptedDaemons, meshed: Meshed) -> None:
    daemons["10.0.0.1"].fault = Fault.HANG
    await meshed.round([daemon(ip) for ip in IPS[:2]], wait=0.3)
    state = await meshed.round([daemon("10.0.0.2")])
    assert state == MeshState(frozenset([daemon("10.0.0.2")]), frozenset())
    daemons["10.0.0.1"].recover()
    assert daemons.lists() == {"10.0.0.1": set(), "10.0.0.2": set()}
    assert not meshed.ended.is_set()


async def test_a_failed_daemon_that_vanishes_and_returns_is_tried_at_once(daemons: ScriptedDaemons, meshed: Meshed) -> None:
    daemons["10.0.0.1"].warming_up = True
    assert (await meshed.round([daemon("10.0.0.1")])).failures
    assert await meshed.round([]) == MeshState(frozenset(), frozenset())
    daemons["10.0.0.1"].recover()
    assert (await meshed.round([daemon("10.0.0.1")])).connected == {daemon("10.0.0.1")}


async def test_close_ends_all_requests(daemons: ScriptedDaemons, meshed: Meshed) -> None:
    daemons["10.0.0.1"].fault = Fault.HANG
    state = await meshed.round([daemon("10.0.0.1")], wait=0.01)
    assert state.running == {daemon("10.0.0.1")}
    before = asyncio.all_tasks()
    assert [task for task in before if task.get_name() == "mesh of 10.0.0.1"] != []
    await meshed.mesh.close()
    assert [task for task in asyncio.all_tasks() if task.get_name() == "mesh of 10.0.0.1"] == []


async def test_close_waits_for_requests_to_daemons_that_are_no_longer_ready(
    meshed: Meshed, monkeypatch: pytest.MonkeyPatch, rpc: RpcClient
) -> None:
    ended: list[str] = []

    async def added_nodes(ip: str, _: Credentials) -> list[str]:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            ended.append(ip)
        return []

    monkeypatch.setattr(rpc, "added_nodes", added_nodes)
    await meshed.round([daemon(IPS[0]), daemon(IPS[1])], wait=0.01)
    await meshed.round([daemon(IPS[1])], wait=0.01)
    await meshed.mesh.close()
    assert sorted(ended) == IPS[:2]


async def test_a_request_that_fails_while_the_mesh_closes_does_not_keep_the_others_open(meshed: Meshed) -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    async def fail() -> None:
        try:
            await hang()
        finally:
            raise ValueError("a bug")

    tasks = [asyncio.create_task(fail()), asyncio.create_task(hang())]
    meshed.mesh._tasks = {daemon(ip): task for ip, task in zip(IPS, tasks, strict=False)}
    await asyncio.sleep(0)
    with pytest.raises(ValueError, match="a bug"):
        await meshed.mesh.close()
    assert [task.done() for task in tasks] == [True, True]


async def test_a_cancelled_request_that_ends_with_an_error_changes_nothing(
    meshed: Meshed, monkeypatch: pytest.MonkeyPatch, rpc: RpcClient
) -> None:
    hanging = asyncio.Event()

    async def added_nodes(ip: str, _: Credentials) -> list[str]:
        try:
            await hanging.wait()
        except asyncio.CancelledError:
            raise Unreachable(f"daemon {ip}: an HTTP library hides the cancellation") from None
        return []

    monkeypatch.setattr(rpc, "added_nodes", added_nodes)
    await meshed.round([daemon("10.0.0.1")], wait=0.01)
    (request,) = (task for task in asyncio.all_tasks() if task.get_name() == "mesh of 10.0.0.1")
    await meshed.round([])
    await request
    assert await meshed.round([]) == MeshState(frozenset(), frozenset())
    assert not meshed.ended.is_set()


async def test_a_cancelled_caller_leaves_the_requests_running(daemons: ScriptedDaemons, meshed: Meshed) -> None:
    daemons["10.0.0.1"].fault = Fault.HANG
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(meshed.round([daemon("10.0.0.1")]), 0.02)
    daemons["10.0.0.1"].recover()
    await meshed.ended.wait()
    assert (await meshed.round([daemon("10.0.0.1")])).connected == {daemon("10.0.0.1")}


async def test_a_bug_is_a_failure_that_is_logged_and_retried(
    daemons: ScriptedDaemons, meshed: Meshed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, rpc: RpcClient
) -> None:
    async def added_nodes(ip: str, _: Credentials) -> list[str]:
        raise KeyError(ip)

    with monkeypatch.context() as patch:
        patch.setattr(rpc, "added_nodes", added_nodes)
        state = await meshed.round([daemon("10.0.0.1")])
    assert [(type(error), str(error)) for error in state.failures.values()] == [
        (RpcError, "daemon 10.0.0.1: KeyError, see the operator's log")
    ]
    assert "daemon 10.0.0.1: connecting it failed unexpectedly" in caplog.text
    meshed.now += 1.0
    assert (await meshed.round([daemon("10.0.0.1")])).connected == {daemon("10.0.0.1")}
    assert daemons.asked() == ["getaddednodeinfo"]


async def test_a_daemon_that_fails_does_not_stop_the_others(daemons: ScriptedDaemons, meshed: Meshed) -> None:
    daemons[IPS[0]].fault, daemons[IPS[1]].fault = Fault.RESET, Fault.NO_JSON
    state = await meshed.round([daemon(ip) for ip in IPS])
    assert state.connected == {daemon(ip) for ip in IPS[2:]}
    assert daemons.lists(IPS[2:]) == {IPS[2]: {IPS[0], IPS[1], IPS[3]}, IPS[3]: {IPS[0], IPS[1], IPS[2]}}
