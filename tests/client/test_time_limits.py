"""``timeout`` means the same in every verb: the whole call ends with a DeadlineError after so many seconds."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kubeloop.api.autoscaling.v1 import Scale
from kubeloop.api.core.v1 import ConfigMap, Pod
from kubeloop.client import Client, ListOptions
from kubeloop.client.streams.methods import PodVerbs
from kubeloop.client.verbs.subresources import CertificateVerbs, ServiceAccountVerbs
from kubeloop.meta import DeadlineError, ObjectMeta
from kubeloop.transport import Transport
from tests.faults import SILENCE, FaultServer

OBJECT = ConfigMap(metadata=ObjectMeta(name="a", namespace="default"))

Ask = Callable[[Client, Any], Awaitable[object]]

VERBS = [
    pytest.param(lambda c, t: c.get(ConfigMap, "a", timeout=t), "get ConfigMap", id="get"),
    pytest.param(lambda c, t: c.get_metadata(ConfigMap, "a", timeout=t), "get_metadata ConfigMap", id="get_metadata"),
    pytest.param(lambda c, t: c.list(ConfigMap, timeout=t), "list", id="list"),
    pytest.param(lambda c, t: anext(aiter(c.list(ConfigMap, timeout=t))), "list", id="the first page of a list"),
    pytest.param(lambda c, t: c.list_metadata(ConfigMap, timeout=t), "list", id="list_metadata"),
    pytest.param(lambda c, t: c.list_page(ConfigMap, ListOptions(), timeout=t), "list_page ConfigMap", id="list_page"),
    pytest.param(lambda c, t: c.create(OBJECT, timeout=t), "create ConfigMap", id="create"),
    pytest.param(lambda c, t: c.patch(ConfigMap, "a", {}, timeout=t), "patch ConfigMap", id="patch"),
    pytest.param(lambda c, t: c.apply(OBJECT, field_manager="m", timeout=t), "apply ConfigMap", id="apply"),
    pytest.param(lambda c, t: c.delete(ConfigMap, "a", timeout=t), "delete ConfigMap", id="delete"),
    pytest.param(lambda c, t: c.delete_collection(ConfigMap, timeout=t), "delete_collection ConfigMap", id="delete_collection"),
    pytest.param(lambda c, t: c.update_with_retry(ConfigMap, "a", print, timeout=t), "update_with_retry ConfigMap", id="update_with_retry"),
    pytest.param(lambda c, t: c.create_or_update(OBJECT, print, timeout=t), "create_or_update ConfigMap", id="create_or_update"),
    pytest.param(lambda c, t: c.set_scale(ConfigMap, "a", 1, timeout=t), "set_scale ConfigMap", id="set_scale"),
    pytest.param(lambda c, t: c.subresource(Pod, "a", "scale").get(Scale, timeout=t), "get Scale", id="a subresource"),
    pytest.param(lambda c, t: c.pods.evict("a", timeout=t), "evict a", id="evict"),
    pytest.param(lambda c, t: c.certificates.approve("a", reason="R", timeout=t), "approve a", id="approve"),
    pytest.param(lambda c, t: c.service_accounts.create_token("a", timeout=t), "create_token a", id="create_token"),
]


@pytest.mark.parametrize(("ask", "verb"), VERBS)
@pytest.mark.parametrize("seconds", [0, 0.01])
async def test_a_verb_ends_in_time(ask: Ask, verb: str, seconds: float) -> None:
    async with FaultServer(SILENCE) as server, Client(Transport(server.config())) as client:
        with pytest.raises(TimeoutError, match=f"^{verb}: not done within {seconds:g} s; the server may still carry it out$") as caught:
            await ask(client, seconds)
    assert isinstance(caught.value, DeadlineError)


@pytest.mark.parametrize("seconds", ["5", True, float("nan")])
async def test_a_time_limit_is_a_number(seconds: object) -> None:
    async with FaultServer(SILENCE) as server, Client(Transport(server.config())) as client:
        with pytest.raises(TypeError, match="must be a number of seconds"):
            await client.get(ConfigMap, "a", timeout=seconds)  # type: ignore[arg-type]  # what it is about
        assert server.received == []


def _verbs() -> list[Any]:
    groups = (Client, PodVerbs, CertificateVerbs, ServiceAccountVerbs)
    return [
        pytest.param(function, id=f"{group.__name__}.{name}")
        for group in groups
        for name, function in inspect.getmembers(group, inspect.iscoroutinefunction)
        if not name.startswith("_") and name not in ("close", "mapping", "copy_to", "copy_from")
    ]


@pytest.mark.parametrize("verb", _verbs())
def test_every_verb_takes_a_time_limit(verb: Callable[..., object]) -> None:
    assert "timeout" in inspect.signature(verb).parameters


WRITES = ("create", "update", "patch", "apply", "delete", "evict", "bind", "approve", "deny", "set_scale", "create_", "upgrade_")


@pytest.mark.parametrize("verb", [one for one in _verbs() if one.id and one.id.partition(".")[2].startswith(WRITES)])
def test_every_write_takes_options(verb: Callable[..., object]) -> None:
    assert "options" in inspect.signature(verb).parameters
