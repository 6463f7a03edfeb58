"""Errors of controllers about arguments of a wrong type do not show what was passed: a Secret's data would reach logs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kubeloop.api.core.v1 import Secret
from kubeloop.controller import Children, Controller, Result, add_finalizer
from kubeloop.controller.handler.watch import Channel
from kubeloop.meta import ObjectKey, parse_time

TREE: Any = {"kind": "Secret", "metadata": {"namespace": "shop", "name": "login"}, "data": {"password": "hunter2"}}


class Secrets(Controller[Secret]):
    async def reconcile(self, obj: Secret) -> Result | None:
        return None


def _any(value: object) -> Any:
    return value


def _source(to: Callable[[Any], list[Any]] | None) -> Channel[Any]:
    return Channel(asyncio.Queue[Any](), to=to)


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda: Channel(TREE), id="a source"),
        pytest.param(lambda: _source(None).keys(TREE), id="what a source gives"),
        pytest.param(lambda: _source(lambda _: [TREE]).keys(TREE), id="what a source's mapping gives"),
        pytest.param(lambda: Secrets().enqueue(TREE), id="a key to reconcile"),
        pytest.param(lambda: Secrets().enqueue(ObjectKey("", "a", "b"), TREE), id="seconds"),
        pytest.param(lambda: Result(requeue_after=TREE), id="a result"),
        pytest.param(lambda: type("Broken", (Secrets,), {"workers": TREE}), id="a number of workers"),
        pytest.param(lambda: type("Broken", (Secrets,), {"indexes": {Secret: [TREE]}}), id="indexes"),
        pytest.param(lambda: type("Broken", (Secrets,), {"owns": [TREE]}), id="a kind"),
        pytest.param(lambda: Children(_any(Secrets), name="a", mode=TREE), id="a mode of children"),
        pytest.param(lambda: asyncio.run(add_finalizer(_any(None), Secret(), TREE)), id="a finalizer"),
        pytest.param(lambda: parse_time(TREE), id="a time"),
    ],
)
def test_an_error_does_not_show_the_contents(call: Callable[[], object]) -> None:
    with pytest.raises(Exception, match=r".") as caught:
        call()
    assert type(caught.value).__name__ in ("TypeError", "ValueError", "DeclarationError", "SourceError"), repr(caught.value)
    assert "hunter2" not in str(caught.value)
