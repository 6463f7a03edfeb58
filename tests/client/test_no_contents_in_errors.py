"""Errors about arguments of a wrong type do not show what was passed: a Secret's data would reach logs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kubeloop.api.core.v1 import Secret
from kubeloop.client import Client
from kubeloop.client.waits.wants import jsonpath
from kubeloop.meta import ObjectMeta

TREE: Any = {"kind": "Secret", "metadata": {"namespace": "shop", "name": "login"}, "data": {"password": "hunter2"}}
NAMED = "a dict (Secret shop/login)"


@pytest.mark.embedded
@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda client: client.patch(Secret, "login", {}, type=TREE), id="the type of a patch"),
        pytest.param(lambda client: client.patch(Secret, TREE, {}), id="the name of a patch"),
        pytest.param(lambda client: client.get(Secret, TREE), id="the name of a read"),
        pytest.param(lambda client: client.get(Secret, "login", namespace=TREE), id="the namespace of a read"),
        pytest.param(lambda client: client.list(Secret, labels=[TREE]), id="labels"),
        pytest.param(lambda client: client.list(Secret, labels={"a": TREE}), id="the value of a label"),
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
