"""Errors about arguments of a wrong type do not show what was passed: a Secret's data would reach logs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kubeloop.api.core.v1 import ConfigMap, Node, Secret
from kubeloop.client import Client
from kubeloop.client.waits.conditions import condition_for, jsonpath
from kubeloop.meta import ApiError, DeadlineError, ObjectMeta, Unstructured

TREE: Any = {"kind": "Secret", "metadata": {"namespace": "shop", "name": "login"}, "data": {"password": "hunter2"}}
NAMED = "a dict (Secret shop/login)"
APPLIED = Unstructured.from_dict({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"}, "stringData": {"p": ["hunter2"]}})


@pytest.mark.embedded
@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda client: client.patch(Secret, "login", {}, type=TREE), id="the type of a patch"),
        pytest.param(lambda client: client.patch(Secret, TREE, {}), id="the name of a patch"),
        pytest.param(lambda client: client.get(Secret, TREE), id="the name of a read"),
        pytest.param(lambda client: client.get(Secret, "login", namespace=TREE), id="the namespace of a read"),
        pytest.param(lambda client: client.get(Node, "login", namespace=TREE), id="the namespace of a read of a cluster-scoped kind"),
        pytest.param(lambda client: client.get(Secret, "login", resource_version=TREE), id="the version of a read"),
        pytest.param(lambda client: client.list(Secret, resource_version=TREE), id="the version of a list"),
        pytest.param(lambda client: client.pods.proxy("web", port=TREE), id="the port of a proxy"),
        pytest.param(lambda client: client.pods.port_forward("web", TREE).__aenter__(), id="a port to forward"),
        pytest.param(lambda client: client.list(Secret, label_selector=[TREE]), id="labels"),
        pytest.param(lambda client: client.list(Secret, label_selector={"a": TREE}), id="the value of a label"),
        pytest.param(lambda client: client.list(Secret, field_selector={"a": TREE}), id="the value of a field"),
    ],
)
async def test_an_error_names_the_kind_and_the_name_alone(client: Client, call: Callable[[Client], Awaitable[object]]) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        await call(client)
    assert "hunter2" not in str(caught.value)
    assert NAMED in str(caught.value) or "a list of 1 item" in str(caught.value)


def test_a_wait_for_a_value_of_a_secret_does_not_show_the_value() -> None:
    secret = Secret(metadata=ObjectMeta(name="login"), data={"password": b"hunter2"})
    want = jsonpath("{.data.password}", "other")
    assert want.seen(secret) == "{.data.password} has another value"


@pytest.mark.embedded
@pytest.mark.parametrize("kind", [Secret, Unstructured.for_kind("v1", "Secret")], ids=["typed", "a tree"])
@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda client, kind: client.patch(kind, "login", {"data": {"p": "hunter2!!"}}), id="a patch that is not base64"),
        pytest.param(lambda client, kind: client.patch(kind, "login", {"data": ["hunter2"]}), id="a patch of another type"),
        pytest.param(lambda client, kind: client.patch(kind, "login", {"data": "hunter2"}, type="strategic"), id="a strategic patch"),
        pytest.param(lambda client, kind: client.patch(kind, "login", {"type": "hunter2"}), id="a field that cannot be changed"),
        pytest.param(lambda client, _: client.apply(APPLIED, field_manager="test"), id="an applied object of another type"),
    ],
)
async def test_a_refused_write_of_a_secret_does_not_show_its_values(
    client: Client, kind: type[Any], call: Callable[[Client, type[Any]], Awaitable[object]]
) -> None:
    await client.create(Secret(metadata=ObjectMeta(name="login"), data={"password": b"hunter2"}))
    with pytest.raises(ApiError) as caught:
        await call(client, kind)
    error = caught.value
    assert "(hidden)" in str(error)
    assert not [shown for shown in (str(error), error.brief, repr(error)) for value in ("hunter2", "aHVudGVyMg") if value in shown]
    assert "secrets" in str(error), "what was asked is still shown"


@pytest.mark.embedded
async def test_a_refused_write_of_another_kind_shows_the_value(client: Client) -> None:
    await client.create(ConfigMap(metadata=ObjectMeta(name="settings")))
    with pytest.raises(ApiError, match=r"Invalid value: .*colour"):
        await client.patch(ConfigMap, "settings", {"data": ["colour"]})


@pytest.mark.embedded
@pytest.mark.parametrize("kind", [Secret, Unstructured.for_kind("v1", "Secret")], ids=["typed", "a tree"])
async def test_a_wait_for_a_secret_shows_neither_the_value_nor_the_wanted_one(client: Client, kind: type[Any]) -> None:
    await client.create(Secret(metadata=ObjectMeta(name="login"), data={"password": b"hunter2"}))
    with pytest.raises(DeadlineError) as caught:
        await client.wait_for(kind, "login", "jsonpath={.data.password}=b3RoZXI=", timeout=0.05)
    assert "not {.data.password} with the wanted value within 0.05 s: " in str(caught.value)
    assert not [value for value in ("hunter2", "aHVudGVyMg", "=b3RoZXI") if value in str(caught.value)]


def test_misspelt_words_of_a_wait_do_not_show_the_value() -> None:
    with pytest.raises(ValueError, match=r'^"jsonpth=\.\.\." cannot be waited for') as caught:
        condition_for("jsonpth={.data.password}=b3RoZXI=")
    assert "b3RoZXI" not in str(caught.value)
