"""Objects that were stored before their definition changed the type of a field; the same on both servers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.apiserver.crd.definitions import APPLY, MERGE, Foos, defined, redefine, refusal, version
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server


def schema(a: str) -> dict[str, Any]:
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": a}, "b": {"type": "string"}}}}}


async def retyped(foos: Foos, namespace: str) -> None:
    """From here on ``spec.a`` is a number."""
    await redefine(foos, version("v1", schema("integer"), storage=True))
    async with asyncio.timeout(30):
        while (await foos.ask("POST", foos.below(namespace, "?dryRun=All"), foos.foo("probe", spec={"a": 1})))[0] != 201:
            await asyncio.sleep(0.05)


def test_a_field_whose_type_changed_under_stored_objects(server: ServerUnderTest) -> None:
    with defined(server, version("v1", schema("string"), storage=True)) as foos:
        asyncio.run(_story(foos, "default"))


async def _story(foos: Foos, namespace: str) -> None:
    for name in ("one", "two"):
        await foos.ask("POST", foos.below(namespace, "?fieldManager=m"), foos.foo(name, spec={"a": "x", "b": "y"}))
    await retyped(foos, namespace)
    misfit = ".spec.a: expected numeric (int or float), got string"
    one, two = (f"{namespace}/{name}; {foos.group}/v1, Kind=Foo" for name in ("one", "two"))

    # It is still read as it is, and writes that do not touch the field succeed; but the owners of the fields are lost.
    code, read = await foos.ask("GET", foos.below(namespace, "/one"))
    assert (code, read["spec"]["a"]) == (200, "x")
    code, labelled = await foos.ask("PATCH", foos.below(namespace, "/one"), {"metadata": {"labels": {"l": "m"}}}, MERGE)
    assert (code, "managedFields" in labelled["metadata"]) == (200, False)

    code, answer = await foos.ask("PATCH", foos.below(namespace, "/one?fieldManager=n"), foos.foo("one", spec={"b": "z"}), APPLY)
    why = f"failed to create manager for existing fields: failed to convert new object ({one}) to smd typed: {misfit}"
    assert (code, refusal(answer)) == (500, why)
    code, answer = await foos.ask("PATCH", foos.below(namespace, "/two?fieldManager=n"), foos.foo("two", spec={"b": "z"}), APPLY)
    assert (code, refusal(answer)) == (500, f"failed to create typed live object ({two}): {misfit}")

    # Once it fits, it can be applied again.
    assert (await foos.ask("PATCH", foos.below(namespace, "/two"), {"spec": {"a": 3}}, MERGE))[0] == 200
    code, answer = await foos.ask("PATCH", foos.below(namespace, "/two?fieldManager=n&force=true"), foos.foo("two", spec={"b": "z"}), APPLY)
    assert (code, answer["spec"]) == (200, {"a": 3, "b": "z"})
