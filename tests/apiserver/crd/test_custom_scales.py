"""``/scale`` of custom resources, on both servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.apiserver.crd.definitions import APPLY, MERGE, Foos, defined, refusal, version
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server

SCHEMA = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer"}}}}}
UNKNOWN = 'no kind is registered for the type v1.Scale in scheme "pkg/runtime/scheme.go:111"'
SCALE = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 2}}


@pytest.fixture(scope="module")
def foos(server: ServerUnderTest) -> Iterator[Foos]:
    scale = {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}
    with defined(server, version("v1", SCHEMA, storage=True, subresources={"scale": scale})) as found:
        yield found


@pytest.mark.parametrize(
    ("body", "query"),
    [
        pytest.param(SCALE | {"kind": "Foo"}, "", id="another kind"),
        pytest.param(SCALE | {"apiVersion": "v1", "kind": "Pod"}, "", id="a kind that it does not serve"),
        pytest.param(SCALE | {"apiVersion": "extensions/v1beta1"}, "", id="another version of Scale"),
        pytest.param(SCALE | {"spec": {"replicas": "x"}}, "", id="a field of another type"),
        pytest.param(SCALE | {"x": 1}, "?fieldValidation=Strict", id="an unknown field where that is refused"),
        pytest.param('{"a', "", id="half a body"),
    ],
)
async def test_what_cannot_be_read_is_refused_without_a_reason(foos: Foos, namespace: str, body: Any, query: str) -> None:
    await foos.ask("POST", foos.below(namespace), foos.foo(spec={"n": 1}))
    code, answer = await foos.ask("PUT", foos.below(namespace, f"/a/scale{query}"), body)
    assert (code, refusal(answer)) == (400, UNKNOWN)


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        pytest.param({"apiVersion": "v1", "kind": "Pod"}, 'no kind "Pod" is registered for version "v1" in scheme', id="a foreign kind"),
        pytest.param(
            {"apiVersion": "apps/v1beta2"}, "converting (v1beta2.Scale) to (v1.Scale): unknown conversion", id="another version of Scale",
        ),
    ],
)  # fmt: skip
async def test_a_patch_is_refused_with_a_reason(foos: Foos, namespace: str, patch: dict[str, Any], message: str) -> None:
    await foos.ask("POST", foos.below(namespace), foos.foo(spec={"n": 1}))
    code, answer = await foos.ask("PATCH", foos.below(namespace, "/a/scale"), patch, MERGE)
    assert code == 422
    assert message in refusal(answer)


async def test_replicas_that_an_object_does_not_say_must_be_given(foos: Foos, namespace: str) -> None:
    await foos.ask("POST", foos.below(namespace), foos.foo())
    code, answer = await foos.ask("PATCH", foos.below(namespace, "/a/scale"), {"metadata": {"labels": {}}}, MERGE)
    assert (code, refusal(answer)) == (400, 'the spec replicas field ".spec.n" cannot be empty')
    code, answer = await foos.ask("PATCH", foos.below(namespace, "/a/scale"), {"spec": {"replicas": 4}}, MERGE)
    assert (code, answer["spec"]) == (200, {"replicas": 4})


async def test_applying_a_scale_whose_replicas_have_no_owner_fails(foos: Foos, namespace: str) -> None:
    await foos.ask("POST", foos.below(namespace), foos.foo())
    why = (
        "failed to create manager for existing fields: failed to convert live object (/; autoscaling/v1, Kind=Scale) to proper version: "
        "request to convert CR to an invalid group/version: autoscaling/v1"
    )
    code, answer = await foos.ask("PATCH", foos.below(namespace, "/a/scale?fieldManager=m"), SCALE | {"spec": {"replicas": "x"}}, APPLY)
    assert (code, refusal(answer)) == (500, why)
