"""Errors of informers and listers about arguments of a wrong type do not show what was passed: a Secret's data would reach logs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kubeloop.api.core.v1 import Secret
from kubeloop.cache import InformerFactory, Lister, Sorted
from kubeloop.client import ALL_NAMESPACES, Client

TREE: Any = {"kind": "Secret", "metadata": {"namespace": "shop", "name": "login"}, "data": {"password": "hunter2"}}
NAMED = "a dict (Secret shop/login)"


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda lister: lister.get(TREE), id="the name of a read"),
        pytest.param(lambda lister: lister.get("login", TREE), id="the namespace of a read"),
        pytest.param(lambda lister: lister.by_key(TREE), id="a key"),
        pytest.param(lambda lister: lister.by_index(TREE, "x"), id="the name of an index"),
        pytest.param(lambda lister: lister.by_index("type", TREE), id="the value of an index"),
        pytest.param(lambda lister: lister.range("sorted", TREE), id="the bound of a range"),
        pytest.param(lambda lister: lister.list(TREE), id="the namespace of a list"),
        pytest.param(lambda lister: lister.list("shop", label_selector=[TREE]), id="labels"),
        pytest.param(lambda lister: lister.list("shop", field_selector={"type": TREE}), id="a value in field_selector"),
    ],
)
async def test_a_lister_names_the_kind_and_the_name_alone(api: Client, call: Callable[[Lister[Secret]], object]) -> None:
    informer = InformerFactory(api).for_kind(Secret, indexes={"type": "type", "sorted": Sorted("type")}, namespace=ALL_NAMESPACES)
    _check(lambda: call(informer.lister))


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"namespace": TREE}, id="a namespace"),
        pytest.param({"namespace": [TREE]}, id="one of several namespaces"),
        pytest.param({"indexes": {"a": TREE}}, id="an index"),
        pytest.param({"paths": TREE}, id="paths"),
        pytest.param({"paths": [TREE]}, id="one of several paths"),
        pytest.param({"page_size": TREE}, id="a page size"),
        pytest.param({"label_selector": [TREE]}, id="labels"),
    ],
)
async def test_informers_name_the_kind_and_the_name_alone(api: Client, options: dict[str, Any]) -> None:
    _check(lambda: InformerFactory(api).for_kind(Secret, **options))


async def test_a_tree_in_the_place_of_a_kind_is_named(api: Client) -> None:
    _check(lambda: InformerFactory(api).for_kind(TREE, namespace=ALL_NAMESPACES))


def _check(call: Callable[[], object]) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    assert "hunter2" not in str(caught.value)
