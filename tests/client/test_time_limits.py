"""``timeout`` means the same in every verb: the whole call ends with a DeadlineError after so many seconds of the client's clock."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

import pytest

from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.autoscaling.v1 import Scale
from kubeloop.api.core.v1 import ConfigMap, Pod
from kubeloop.api.policy.v1 import Eviction
from kubeloop.client import Client, Subresource
from kubeloop.client.streams.methods import PodVerbs
from kubeloop.client.verbs.subresources import CertificateVerbs, ServiceAccountVerbs
from kubeloop.codec import decode
from kubeloop.meta import DeadlineError, ObjectMeta
from kubeloop.timing import FakeClock
from kubeloop.transport import Transport
from tests.faults import SILENCE, FaultServer

OBJECT = ConfigMap(metadata=ObjectMeta(name="a", namespace="default"))
#: An object that was read, which ``update`` requires.
READ = decode(ConfigMap, b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"default","resourceVersion":"1"}}')

Call = Callable[[Client, Any], Awaitable[object]]


class Row(NamedTuple):
    """One verb: its name, the beginning of the error's message, and a call."""

    verb: str
    message: str
    call: Call


async def entered(block: AbstractAsyncContextManager[object]) -> None:
    async with block:
        raise AssertionError("the server is silent: nothing is open")


async def _rollout(client: Client, timeout: Any) -> None:
    async for _ in client.rollout_status(Deployment, "a", timeout=timeout):
        raise AssertionError("the server is silent: there is no line")


def _subresource(client: Client) -> Subresource:
    return client.subresource(ConfigMap, "a", "status")


VERBS = [
    Row("Client.get", "get ConfigMap", lambda c, t: c.get(ConfigMap, "a", timeout=t)),
    Row("Client.get_metadata", "get_metadata ConfigMap", lambda c, t: c.get_metadata(ConfigMap, "a", timeout=t)),
    Row("Client.get_owned", "get_owned ConfigMap", lambda c, t: c.get_owned(ConfigMap, "a", field_manager="m", timeout=t)),
    Row("Client.list", "list", lambda c, t: c.list(ConfigMap, timeout=t)),
    Row("Client.list", "list", lambda c, t: anext(aiter(c.list(ConfigMap, timeout=t)))),
    Row("Client.list_metadata", "list", lambda c, t: c.list_metadata(ConfigMap, timeout=t)),
    Row("Client.list_page", "list_page ConfigMap", lambda c, t: c.list_page(ConfigMap, timeout=t)),
    Row("Client.create", "create ConfigMap", lambda c, t: c.create(OBJECT, timeout=t)),
    Row("Client.update", "update ConfigMap", lambda c, t: c.update(READ, timeout=t)),
    Row("Client.update_status", "update_status ConfigMap", lambda c, t: c.update_status(READ, timeout=t)),
    Row("Client.patch", "patch ConfigMap", lambda c, t: c.patch(ConfigMap, "a", {}, timeout=t)),
    Row("Client.patch_metadata", "patch_metadata ConfigMap", lambda c, t: c.patch_metadata(ConfigMap, "a", {}, timeout=t)),
    Row("Client.apply", "apply ConfigMap", lambda c, t: c.apply(OBJECT, field_manager="m", timeout=t)),
    Row(
        "Client.upgrade_ownership",
        "upgrade_ownership ConfigMap",
        lambda c, t: c.upgrade_ownership(ConfigMap, "a", updaters=["u"], field_manager="m", timeout=t),
    ),
    Row("Client.delete", "delete ConfigMap", lambda c, t: c.delete(ConfigMap, "a", timeout=t)),
    Row("Client.delete_collection", "delete_collection ConfigMap", lambda c, t: c.delete_collection(ConfigMap, timeout=t)),
    Row("Client.update_with_retry", "update_with_retry ConfigMap", lambda c, t: c.update_with_retry(ConfigMap, "a", print, timeout=t)),
    Row("Client.create_or_update", "create_or_update ConfigMap", lambda c, t: c.create_or_update(OBJECT, print, timeout=t)),
    Row("Client.create_or_patch", "create_or_patch ConfigMap", lambda c, t: c.create_or_patch(OBJECT, print, timeout=t)),
    Row("Client.get_scale", "get_scale ConfigMap", lambda c, t: c.get_scale(ConfigMap, "a", timeout=t)),
    Row("Client.set_scale", "set_scale ConfigMap", lambda c, t: c.set_scale(ConfigMap, "a", 1, timeout=t)),
    Row("Client.wait_created", "", lambda c, t: c.wait_created(ConfigMap, "a", timeout=t)),
    Row("Client.wait_for", "", lambda c, t: c.wait_for(ConfigMap, "a", bool, timeout=t)),
    Row("Client.wait_for_events", "", lambda c, t: c.wait_for_events(ConfigMap, bool, timeout=t)),
    Row("Client.wait_gone", "", lambda c, t: c.wait_gone(ConfigMap, "a", timeout=t)),
    Row("Client.wait_ready", "", lambda c, t: c.wait_ready(ConfigMap, "a", timeout=t)),
    Row("Client.wait_rollout", "", lambda c, t: c.wait_rollout(Deployment, "a", timeout=t)),
    Row("Client.rollout_status", "", _rollout),
    Row("Subresource.get", "get Scale", lambda c, t: c.subresource(Pod, "a", "scale").get(Scale, timeout=t)),
    Row("Subresource.create", "create Eviction", lambda c, t: c.subresource(Pod, "a", "eviction").create(Eviction(), timeout=t)),
    Row("Subresource.update", "update ConfigMap", lambda c, t: _subresource(c).update(READ, timeout=t)),
    Row("Subresource.patch", "patch ConfigMap", lambda c, t: _subresource(c).patch(ConfigMap, {}, timeout=t)),
    Row("Subresource.apply", "apply ConfigMap", lambda c, t: _subresource(c).apply(OBJECT, field_manager="m", timeout=t)),
    Row("PodVerbs.logs", "logs a", lambda c, t: c.pods.logs("a", timeout=t)),
    Row("PodVerbs.logs", "logs a", lambda c, t: entered(c.pods.logs("a", timeout=t))),
    Row("PodVerbs.merged_logs", "merged_logs", lambda c, t: entered(c.pods.merged_logs("a", timeout=t))),
    Row("PodVerbs.exec", "exec of 'ls' in a", lambda c, t: c.pods.exec("a", ["ls"], timeout=t)),
    Row("PodVerbs.exec_stream", "exec_stream a", lambda c, t: entered(c.pods.exec_stream("a", ["ls"], timeout=t))),
    Row("PodVerbs.attach", "attach a", lambda c, t: entered(c.pods.attach("a", timeout=t))),
    Row("PodVerbs.port_forward", "port_forward a", lambda c, t: entered(c.pods.port_forward("a", ":80", timeout=t))),
    Row("PodVerbs.copy_to", "copy_to a", lambda c, t: c.pods.copy_to("a", __file__, "/tmp/copy", timeout=t)),
    Row("PodVerbs.copy_from", "copy_from a", lambda c, t: c.pods.copy_from("a", "/tmp/copy", "copy", timeout=t)),
    Row("PodVerbs.proxy", "proxy a", lambda c, t: c.pods.proxy("a", timeout=t)),
    Row("PodVerbs.proxy", "proxy a", lambda c, t: entered(c.pods.proxy("a", timeout=t))),
    Row("PodVerbs.evict", "evict a", lambda c, t: c.pods.evict("a", timeout=t)),
    Row("PodVerbs.bind", "bind a", lambda c, t: c.pods.bind("a", "node", timeout=t)),
    Row("CertificateVerbs.approve", "approve a", lambda c, t: c.certificates.approve("a", reason="R", timeout=t)),
    Row("CertificateVerbs.deny", "deny a", lambda c, t: c.certificates.deny("a", reason="R", timeout=t)),
    Row("ServiceAccountVerbs.create_token", "create_token a", lambda c, t: c.service_accounts.create_token("a", timeout=t)),
]
ROWS = [pytest.param(row, id=f"{row.verb}-{number}") for number, row in enumerate(VERBS)]

#: Methods that send nothing, or (``mapping``, ``close``) are no verbs.
WITHOUT_LIMIT = {"close", "from_config", "in_namespace", "mapping", "on_write", "subresource", "with_options"}
#: A watch ends after ``timeout`` without an error (tests/client/test_watches.py).
WITHOUT_ERROR = {"Client.watch", "Client.watch_metadata"}
GROUPS = (Client, PodVerbs, CertificateVerbs, ServiceAccountVerbs, Subresource)
NAMES = {
    f"{group.__name__}.{name}": function
    for group in GROUPS
    for name, function in inspect.getmembers(group, callable)
    if not name.startswith("_") and name not in WITHOUT_LIMIT
}


def test_every_verb_is_in_the_table() -> None:
    assert {row.verb for row in VERBS} | WITHOUT_ERROR == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_verb_takes_a_time_limit(name: str) -> None:
    assert inspect.signature(NAMES[name]).parameters["timeout"].kind is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.parametrize("row", ROWS)
async def test_a_verb_ends_when_its_seconds_have_passed_on_the_clock_of_the_client(row: Row) -> None:
    clock = FakeClock()
    async with FaultServer(SILENCE) as server, Client(Transport(server.config()), clock=clock) as client:
        call = asyncio.ensure_future(row.call(client, 5))
        await server.waiting.wait()
        await clock.advance(4.9)
        assert not call.done()
        await clock.advance(0.2)
        with pytest.raises(DeadlineError) as caught:
            await call
    assert str(caught.value).startswith(row.message)
    assert " 5 s" in str(caught.value)


@pytest.mark.parametrize("row", ROWS)
async def test_a_verb_with_zero_seconds_does_not_wait(row: Row) -> None:
    async with FaultServer(SILENCE) as server, Client(Transport(server.config()), clock=FakeClock()) as client:
        with pytest.raises(TimeoutError) as caught:
            await row.call(client, 0)
    assert isinstance(caught.value, DeadlineError)
    assert " 0 s" in str(caught.value)


@pytest.mark.parametrize("seconds", ["5", True, float("nan")])
@pytest.mark.parametrize("row", ROWS)
async def test_a_time_limit_is_a_number(row: Row, seconds: object) -> None:
    async with FaultServer(SILENCE) as server, Client(Transport(server.config())) as client:
        with pytest.raises(TypeError, match="must be a number of seconds"):
            await row.call(client, seconds)
        assert server.received == []


WRITES = ("create", "update", "patch", "apply", "delete", "evict", "bind", "approve", "deny", "set_scale", "upgrade_")
READS = ("list", "watch")


@pytest.mark.parametrize("name", [name for name in NAMES if name.partition(".")[2].startswith(WRITES + READS)])
def test_every_write_list_and_watch_takes_options(name: str) -> None:
    options = inspect.signature(NAMES[name]).parameters["options"]
    kind = "DeleteOptions" if ".delete" in name or ".evict" in name else "WriteOptions"
    kind = "ListOptions" if ".list" in name else "WatchOptions" if ".watch" in name else kind
    assert (options.kind, options.default, options.annotation) == (inspect.Parameter.KEYWORD_ONLY, None, f"{kind} | None")


@pytest.mark.parametrize("name", [name for name in NAMES if name.partition(".")[2].startswith("get")])
def test_every_read_of_one_object_takes_its_only_option(name: str) -> None:
    assert inspect.signature(NAMES[name]).parameters["resource_version"].annotation == "str | None"
