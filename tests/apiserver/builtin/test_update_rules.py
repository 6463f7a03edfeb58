"""What updates of built-in kinds may change: a table that a Kubernetes 1.36 API server answered.

``updates*.json`` hold, by path and sentence, an object as created, the places that change and the causes of the refusal, where there is
one a subresource. What differs from run to run inside of values is written as ``UID`` and ``NAME``.
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
from tests.apiserver.builtin.write_pipeline import create, update
from tests.servers import ServerUnderTest

_CASES = {
    name: (path, case["old"], case["changes"], sorted(map(tuple, case["causes"])), case.get("subresource", ""))
    for file in sorted(Path(__file__).parent.glob("updates*.json"))
    for path, cases in json.loads(file.read_text()).items()
    for name, case in cases.items()
}


def _changed(obj: dict[str, Any], changes: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """``a.0.b`` names a place, ``a.+`` the end of a list; None removes."""
    obj = copy.deepcopy(obj)
    for path, value in changes:
        at: Any = obj
        *above, last = path.split(".")
        for name in above:
            at = at[int(name)] if isinstance(at, list) else at.setdefault(name, {})
        if last == "+":
            at.append(value)
        elif value is None:
            at.pop(last, None)
        else:
            at[int(last) if isinstance(at, list) else last] = value
    return obj


def _causes(causes: Iterable[tuple[str, str, str]], uid: str, name: str) -> list[tuple[str, ...]]:
    return sorted((field, _steady(message, uid, name), reason) for field, message, reason in causes)


def _steady(message: str, uid: str, name: str) -> str:
    message = re.sub(f'"((?:batch.kubernetes.io/)?job-name)":( ?)"{re.escape(name)}"', r'"\1":\2"NAME"', message)
    return message.replace(f'"{uid}"', '"UID"')


def _with_name(path: str, body: dict[str, Any], name: str) -> dict[str, Any]:
    body = {**body, "metadata": {**body.get("metadata", {}), "name": name}}
    if path.endswith("/pods"):
        # No scheduler may bind it, on a cluster that has one.
        body = {**body, "spec": {**body["spec"], "schedulerName": "nobody"}}
    return body


@pytest.mark.parametrize("name", _CASES)
def test_updates(name: str) -> None:
    path, body, changes, expected, subresource = _CASES[name]
    where = path.replace("{namespace}", "n")
    old = create(where, _with_name(where, body, "a"))
    assert old.faults == []
    assert _causes(update(where, _changed(old.obj, changes), old.obj, subresource).causes, "u", "a") == expected


@pytest.mark.server
@pytest.mark.parametrize("path", dict.fromkeys(path for path, *_ in _CASES.values()))
async def test_updates_on_the_wire(path: str, server: ServerUnderTest, namespace: str) -> None:
    where = path.replace("{namespace}", namespace)
    # Objects that belong to no namespace outlive the test's: each bears the namespace's name, and goes with the test.
    own = where == path
    found, expected = {}, {}
    async with Transport(server.config) as transport:
        for number, (sentence, (_, body, changes, causes, subresource)) in enumerate(item for item in _CASES.items() if item[1][0] == path):
            name = f"{namespace}-{number}" if own else f"a{number}"
            created = await transport.request("POST", where, body=json.dumps(_with_name(where, body, name)).encode())
            uid = json.loads(created.body)["metadata"]["uid"]
            try:
                found[sentence] = _causes(await _refusal(transport, f"{where}/{name}", changes, subresource), uid, name)
            finally:
                if own:
                    await transport.request("DELETE", f"{where}/{name}")
            expected[sentence] = causes
    assert found == expected


async def _refusal(transport: Transport, path: str, changes: list[tuple[str, Any]], subresource: str) -> list[tuple[str, str, str]]:
    """Tried again when a controller was faster."""
    while True:
        old = json.loads((await transport.request("GET", path)).body)
        try:
            where = f"{path}/{subresource}".rstrip("/")
            await transport.request("PUT", where, query={"dryRun": "All"}, body=json.dumps(_changed(old, changes)).encode())
        except Conflict:
            continue
        except Invalid as error:
            causes = error.status.details.causes if error.status.details else []
            return [(cause.field, cause.message, cause.reason) for cause in causes]
        return []
