"""Callables of rules for the tests: each takes an object and a request."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Mapping
from typing import Any

from kubeloop.types import JSONObject

#: Ends the calls of ``hang`` that are in threads.
released = threading.Event()
calls: list[tuple[JSONObject, Mapping[str, Any]]] = []


def record(tree: JSONObject, request: Mapping[str, Any]) -> JSONObject:
    calls.append((tree, request))
    return tree


def mark(tree: JSONObject, request: Mapping[str, Any]) -> JSONObject:
    tree["marked"] = request["user"]["name"]
    return tree


async def mark_later(tree: JSONObject, request: Mapping[str, Any]) -> JSONObject:
    await asyncio.sleep(0)
    return mark(tree, request)


class Marker:
    """An object with an asynchronous ``__call__``."""

    async def __call__(self, tree: JSONObject, request: Mapping[str, Any]) -> JSONObject:
        return await mark_later(tree, request)


marker = Marker()


def hide(tree: JSONObject, request: Mapping[str, Any]) -> None:
    tree.clear()


def rename(tree: JSONObject, request: Mapping[str, Any]) -> JSONObject:
    return {**tree, "metadata": {**tree["metadata"], "name": "other"}}


def fail(tree: JSONObject, request: Mapping[str, Any]) -> JSONObject:
    raise LookupError("no such colour")


def time_out(tree: JSONObject, request: Mapping[str, Any]) -> JSONObject:
    raise TimeoutError("of its database")


def end(tree: JSONObject, request: Mapping[str, Any]) -> JSONObject:
    sys.exit(3)


async def end_later(tree: JSONObject, request: Mapping[str, Any]) -> JSONObject:
    sys.exit(3)


def cancel(tree: JSONObject, request: Mapping[str, Any]) -> JSONObject:
    raise asyncio.CancelledError


async def cancel_later(tree: JSONObject, request: Mapping[str, Any]) -> JSONObject:
    raise asyncio.CancelledError


def return_list(tree: JSONObject, request: Mapping[str, Any]) -> Any:
    return [tree]


def return_set(tree: JSONObject, request: Mapping[str, Any]) -> Any:
    return {**tree, "a": {1}}


def return_number_key(tree: JSONObject, request: Mapping[str, Any]) -> Any:
    return {**tree, "a": [{1: 2}]}


def return_not_a_number(tree: JSONObject, request: Mapping[str, Any]) -> Any:
    return {**tree, "a": float("nan")}


def return_coroutine(tree: JSONObject, request: Mapping[str, Any]) -> Any:
    return mark_later(tree, request)


def return_cycle(tree: JSONObject, request: Mapping[str, Any]) -> Any:
    tree["self"] = tree
    return tree


#: Number of calls of ``hang``, which changes under the condition.
started = 0
changed = threading.Condition()


def wait_started(number: int) -> bool:
    """Wait until so many calls of ``hang`` have begun. Return whether they have."""
    with changed:
        return changed.wait_for(lambda: started >= number, timeout=20)


def hang(tree: JSONObject, request: Mapping[str, Any]) -> JSONObject:
    global started
    with changed:
        started += 1
        changed.notify_all()
    released.wait(30)
    return tree


async def hang_later(tree: JSONObject, request: Mapping[str, Any]) -> JSONObject:
    await asyncio.Event().wait()
    return tree


async def ignore_cancellation(tree: JSONObject, request: Mapping[str, Any]) -> JSONObject:
    for _ in range(2):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue
    return tree
