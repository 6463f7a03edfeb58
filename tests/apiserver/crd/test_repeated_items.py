"""Unique items in lists at any depth, on both servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.apiserver.crd.definitions import Foos, defined, refusal, version
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server

TEXT = {"type": "string"}
SET = {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT}
PARTS = {"k": TEXT, "n": {"type": "integer"}, "names": SET}
BY_KEY = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["k", "n"],
    "items": {"type": "object", "required": ["k", "n"], "properties": PARTS},
}
PAIR = {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": TEXT, "b": TEXT}}
SCHEMA = {
    "type": "object",
    "properties": {
        "list": BY_KEY,
        "nested": {"type": "array", "items": {"type": "object", "properties": {"list": BY_KEY}}},
        "pairs": {"type": "array", "x-kubernetes-list-type": "set", "items": PAIR},
    },
}


@pytest.fixture(scope="module")
def foos(server: ServerUnderTest) -> Iterator[Foos]:
    with defined(server, version("v1", SCHEMA, storage=True)) as found:
        yield found


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        pytest.param({"list": [{"k": "a", "n": 1}] * 3}, 'list[1]: Duplicate value: {"k":"a","n":1}', id="three of one are named once"),
        pytest.param(
            {"list": [{"k": "a", "n": 1}, {"k": "a", "n": 1.0}]},
            'list[1]: Duplicate value: {"k":"a","n":1}',
            id="numbers are equal by value",
        ),
        pytest.param(
            {"nested": [{"list": [{"k": "a", "n": 1, "names": ["x", "y", "x"]}]}]},
            'nested[0].list[0].names[2]: Duplicate value: "x"',
            id="a set within lists",
        ),
        pytest.param(
            {"pairs": [{"b": "2", "a": "1"}, {"b": "2", "a": "1"}]}, 'pairs[1]: Duplicate value: {"a":"1","b":"2"}', id="maps show by name"
        ),
    ],
)
async def test_an_item_that_is_there_twice_is_refused(foos: Foos, namespace: str, fields: dict[str, Any], fault: str) -> None:
    code, answer = await foos.ask("POST", foos.below(namespace, "?dryRun=All"), foos.foo(**fields))
    assert (code, refusal(answer)) == (422, f'Foo.{foos.group} "a" is invalid: {fault}')
