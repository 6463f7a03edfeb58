"""What updates of built-in kinds may change: a table that a Kubernetes 1.36 API server answered.

``updates.json`` holds, by path and sentence, an object as created, the places that change and the causes of the refusal.
Values and differences inside messages are left out: they show Kubernetes' internal types.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kubeloop.meta import Conflict, Invalid
from kubeloop.transport import Transport
from tests.apiserver.builtin.writes import create, update
from tests.servers import ServerUnderTest

_CASES = {
    name: (path, case["old"], case["changes"], sorted(map(tuple, case["causes"])))
    for path, cases in json.loads((Path(__file__).parent / "updates.json").read_text()).items()
    for name, case in cases.items()
}


def _changed(obj: dict[str, Any], changes: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """``a.0.b`` names a place, ``a.+`` the end of a list; None removes."""
    obj = copy.deepcopy(obj)
    for path, value in changes:
        at: Any = obj
        *above, last = path.split(".")
        for name in above:
            at = at[int(name) if isinstance(at, list) else name]
        if last == "+":
            at.append(value)
        elif value is None:
            at.pop(last, None)
        else:
            at[last] = value
    return obj


def _short(message: str) -> str:
    return re.sub(r"Invalid value: \{.*\}: ", "Invalid value: {}: ", message.partition("\n")[0])


def _causes(found: Iterable[tuple[str, str, str]]) -> list[tuple[str, ...]]:
    return sorted((field, _short(message), reason) for field, message, reason in found)


@pytest.mark.parametrize("name", _CASES)
def test_updates(name: str) -> None:
    path, body, changes, expected = _CASES[name]
    where = path.replace("{namespace}", "n")
    old = create(where, {"metadata": {"name": "a"}, **body})
    assert old.faults == []
    assert _causes(update(where, _changed(old.obj, changes), old.obj).causes) == expected


@pytest.mark.server
@pytest.mark.parametrize("name", _CASES)
async def test_updates_on_the_wire(name: str, server: ServerUnderTest, namespace: str) -> None:
    path, body, changes, expected = _CASES[name]
    where = path.replace("{namespace}", namespace)
    # Objects that belong to no namespace outlive the test's: each gets the namespace's name, and goes with the test.
    own = where == path
    name_of_it = namespace if own else "a"
    body = {**body, "metadata": {**body.get("metadata", {}), "name": name_of_it}}
    if where.endswith("/pods"):
        body = {**body, "spec": {**body["spec"], "schedulerName": "nobody"}}
    async with Transport(server.config) as transport:
        await transport.request("POST", where, body=json.dumps(body).encode())
        try:
            assert _causes(await _refusal(transport, f"{where}/{name_of_it}", changes)) == expected
        finally:
            if own:
                await transport.request("DELETE", f"{where}/{name_of_it}")


async def _refusal(transport: Transport, path: str, changes: list[tuple[str, Any]]) -> list[tuple[str, str, str]]:
    """Tried again when a controller was faster."""
    while True:
        old = json.loads((await transport.request("GET", path)).body)
        try:
            await transport.request("PUT", path, query={"dryRun": "All"}, body=json.dumps(_changed(old, changes)).encode())
        except Conflict:
            continue
        except Invalid as error:
            causes = error.status.details.causes if error.status.details else []
            return [(cause.field, cause.message, cause.reason) for cause in causes]
        return []
