"""Numbers of custom objects are stored and answered as Go writes them. On both servers."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.apiserver.ownership.conftest import Managers, Reply
from tests.apiserver.ownership.conftest import managers as managers

pytestmark = pytest.mark.server

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = "application/merge-patch+json"
GROUP = f"numbers{os.getpid()}.example.com"
PATH = f"/apis/{GROUP}/v1/namespaces/{{ns}}/numbers"

_NUMBER = {"type": "number"}
_FREE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_SPEC = {
    "number": _NUMBER,
    "whole": {"type": "integer"},
    "either": {"x-kubernetes-int-or-string": True},
    "free": _FREE,
    "embedded": {**_FREE, "x-kubernetes-embedded-resource": True},
    "few": {"type": "number", "enum": [1.0, 2.5]},
    "most": {"type": "number", "maximum": 1000000.0},
    "set": {"type": "array", "items": _NUMBER, "x-kubernetes-list-type": "set"},
}
_DEFAULTED = {"properties": {"given": {"type": "number", "default": 1000000.0}}, "type": "object"}


@pytest.fixture
async def numbers(managers: Managers) -> AsyncIterator[Managers]:
    properties = {"spec": {"type": "object", "properties": _SPEC}, "defaulted": _DEFAULTED}
    schema = {"type": "object", "properties": properties}
    columns = [{"name": type_, "type": type_, "jsonPath": ".spec.number"} for type_ in ("number", "string")]
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, "additionalPrinterColumns": columns}
    spec = {"group": GROUP, "scope": "Namespaced", "names": {"plural": "numbers", "kind": "Number"}, "versions": [version]}
    definition = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"numbers.{GROUP}"}}
    assert (await managers("POST", CRDS, {**definition, "spec": spec})).status == 201
    async with asyncio.timeout(20):
        while (await managers("GET", PATH)).status != 200:
            await asyncio.sleep(0.02)
    yield managers
    await managers("DELETE", f"{CRDS}/numbers.{GROUP}")
    async with asyncio.timeout(20):
        while (await managers("GET", f"{CRDS}/numbers.{GROUP}")).status != 404:
            await asyncio.sleep(0.02)


def _text(name: str, spec: str) -> bytes:
    return f'{{"apiVersion":"{GROUP}/v1","kind":"Number","metadata":{{"name":"{name}"}},"spec":{spec}}}'.encode()


async def _create(numbers: Managers, spec: str, name: str = "a") -> Reply:
    return await numbers("POST", PATH, _text(name, spec))


def _written(value: Any) -> str:
    """With the types of numbers: 1 is not 1.0."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        pytest.param("1000000.0", "1000000", id="a million"),
        pytest.param("1e3", "1000", id="an exponent"),
        pytest.param("1E3", "1000", id="a large E"),
        pytest.param("-0.0", "0", id="negative zero"),
        pytest.param("-0", "0", id="negative zero as an integer"),
        pytest.param("1e16", "10000000000000000", id="seventeen digits"),
        pytest.param("123456789012345678.0", "123456789012345680", id="more digits than a float has"),
        pytest.param("1e20", "100000000000000000000", id="beyond int64"),
        pytest.param("18446744073709551616", "18446744073709552000", id="an integer beyond uint64"),
        pytest.param("1.5", "1.5", id="a fraction"),
        pytest.param("2.50", "2.5", id="a fraction with a zero"),
    ],
)
async def test_a_number_is_stored_as_go_writes_it(numbers: Managers, sent: str, stored: str) -> None:
    spec = f'{{"number":{sent},"free":{{"a":[{sent},"1.0, 1e5"],"1.0,":"1e5"}}}}'
    expected = f'{{"free":{{"1.0,":"1e5","a":[{stored},"1.0, 1e5"]}},"number":{stored}}}'
    assert _written((await _create(numbers, spec)).body["spec"]) == expected
    assert _written((await numbers("GET", f"{PATH}/a")).body["spec"]) == expected
    assert _written((await numbers("GET", PATH)).body["items"][0]["spec"]) == expected


@pytest.mark.parametrize(
    ("field", "sent", "stored"),
    [
        pytest.param("whole", "1.0", "1", id="an integer field"),
        pytest.param("either", "1.0", "1", id="an integer or string"),
        pytest.param("embedded", '{"apiVersion":"v1","kind":"X","n":1e3}', '{"apiVersion":"v1","kind":"X","n":1000}', id="embedded"),
        pytest.param("few", "1", "1", id="a member of an enum that was written 1.0"),
        pytest.param("few", "1.5", "1.5", id="a number whose integer part is a member of an enum"),
        pytest.param("set", "[1.0,1]", "[1,1]", id="a set that was sent with 1.0 and 1"),
    ],
)
async def test_a_field_with_a_float_is_stored(numbers: Managers, field: str, sent: str, stored: str) -> None:
    made = await _create(numbers, f'{{"{field}":{sent}}}')
    assert (made.status, _written(made.body["spec"][field])) == (201, stored)


@pytest.mark.parametrize(
    ("field", "sent", "message"),
    [
        pytest.param("few", "7.0", 'Unsupported value: 7: supported values: "1", "2.5"', id="enum"),
        pytest.param(
            "most", "2e6", "Invalid value: 2e+06: spec.most in body should be less than or equal to 1e+06", id="maximum of a float"
        ),
        pytest.param(
            "most", "2000000", "Invalid value: 2000000: spec.most in body should be less than or equal to 1000000", id="an integer"
        ),
    ],
)
async def test_a_refusal_shows_numbers_as_go_prints_them(numbers: Managers, field: str, sent: str, message: str) -> None:
    refused = await _create(numbers, f'{{"{field}":{sent}}}')
    assert refused.causes == [(f"spec.{field}", message)]


async def test_a_definition_shows_its_defaults_as_go_writes_them(numbers: Managers) -> None:
    definition = (await numbers("GET", f"{CRDS}/numbers.{GROUP}")).body
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    assert _written(schema["defaulted"]["properties"]["given"]["default"]) == "1000000"
    assert _written(schema["spec"]["properties"]["few"]["enum"]) == "[1,2.5]"


async def test_an_apply_and_patches_store_whole_floats_as_integers(numbers: Managers) -> None:
    applied = await numbers("PATCH", f"{PATH}/a?fieldManager=x", _text("a", '{"number":7.0}'), content="application/apply-patch+yaml")
    assert (applied.status, _written(applied.body["spec"])) == (201, '{"number":7}')
    merged = await numbers("PATCH", f"{PATH}/a", b'{"spec":{"number":8.0}}', content=MERGE)
    assert _written(merged.body["spec"]) == '{"number":8}'
    changed = await numbers("PATCH", f"{PATH}/a", b'[{"op":"add","path":"/defaulted","value":{}}]', content="application/json-patch+json")
    assert _written(changed.body["defaulted"]) == '{"given":1000000}'


async def test_a_whole_float_over_an_equal_integer_raises_the_generation(numbers: Managers) -> None:
    await _create(numbers, '{"number":5}')
    assert (await numbers("PATCH", f"{PATH}/a", b'{"spec":{"number":5}}', content=MERGE)).body["metadata"]["generation"] == 1
    assert (await numbers("PATCH", f"{PATH}/a", b'{"spec":{"number":5.0}}', content=MERGE)).body["metadata"]["generation"] == 2


async def test_cells_show_floats_as_go_prints_them(numbers: Managers) -> None:
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    for name, number in (("a", "1000000.0"), ("b", "1e20"), ("c", "1.5")):
        await _create(numbers, f'{{"number":{number}}}', name)
    rows = (await numbers("GET", PATH, headers={"Accept": table})).body["rows"]
    assert _written([row["cells"] for row in rows]) == '[["a",1000000,"1000000"],["b",100000000000000000000,"1e+20"],["c",1.5,"1.5"]]'
