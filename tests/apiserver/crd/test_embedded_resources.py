"""Resources inside of custom objects: their kind and their metadata; the same on both servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.apiserver.crd.definitions import APPLY, Foos, defined, refusal, version
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server

RESOURCE = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
SCHEMA = {"type": "object", "properties": {"t": RESOURCE, "all": {"type": "array", "items": RESOURCE}}}
OWNER = {"apiVersion": "v1", "kind": "A", "name": "a", "uid": "u"}


@pytest.fixture(scope="module")
def foos(server: ServerUnderTest) -> Iterator[Foos]:
    with defined(server, version("v1", SCHEMA, storage=True)) as found:
        yield found


def pod(metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        pytest.param({"name": "a/b"}, "t.metadata.name: Invalid value: \"a/b\": may not contain '/'", id="a name fits into a path"),
        pytest.param({"generateName": "a%"}, "t.metadata.generateName: Invalid value: \"a%\": may not contain '%'", id="its prefix too"),
        pytest.param({"namespace": "A_"}, 't.metadata.namespace: Invalid value: "A_": a lowercase RFC 1123 label', id="namespaces"),
        pytest.param({"labels": {"a": "b c"}}, 't.metadata.labels: Invalid value: "b c": a valid label must be', id="values of labels"),
        pytest.param({"labels": {"a b": "c"}}, 't.metadata.labels: Invalid value: "a b": name part must consist', id="keys of labels"),
        pytest.param({"annotations": {"x/y/z": ""}}, 't.metadata.annotations: Invalid value: "x/y/z"', id="keys of annotations"),
        pytest.param({"annotations": {"a": "x" * 270000}}, "t.metadata.annotations: Too long", id="the size of annotations"),
        pytest.param({"generation": -1}, "t.metadata.generation: Invalid value: -1: must be greater than or equal to 0", id="generations"),
        pytest.param(
            {"ownerReferences": [OWNER | {"kind": "Event"}]}, "t.metadata.ownerReferences: Invalid value: ", id="owners that cannot own",
        ),
        pytest.param(
            {"ownerReferences": [OWNER | {"controller": True}, OWNER | {"uid": "v", "controller": True}]},
            "Only one reference can have Controller set to true", id="one controller",
        ),
        pytest.param({"finalizers": ["a b"]}, 't.metadata.finalizers: Invalid value: "a b": name part must consist', id="finalizers"),
        pytest.param(
            {"finalizers": ["orphan", "foregroundDeletion"]}, "finalizer orphan and foregroundDeletion cannot be both set",
            id="finalizers that contradict each other",
        ),
        pytest.param(
            {"managedFields": [{"manager": "x", "operation": "Foo", "fieldsType": "FieldsV1"}]},
            't.metadata.managedFields[0].operation: Invalid value: "Foo": must be `Apply` or `Update`', id="owners of fields",
        ),
    ],
)  # fmt: skip
async def test_metadata_is_judged_as_any_object_s_is(foos: Foos, namespace: str, metadata: dict[str, Any], message: str) -> None:
    code, answer = await foos.ask("POST", foos.below(namespace, "?dryRun=All"), foos.foo(t=pod(metadata)))
    assert code == 422
    assert message in refusal(answer)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param(
            {"metadata": 3}, "t.metadata: Invalid value: 3: json: cannot unmarshal number into Go value of type v1.ObjectMeta", id="a map"
        ),
        pytest.param(
            {"metadata": {"labels": {"a": 3}}},
            't.metadata: Invalid value: {"labels":{"a":3}}: '
            "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string",
            id="labels are texts",
        ),
        pytest.param({"kind": 3}, "t.kind: Invalid value: 3: must be a string", id="a kind is text"),
    ],
)
async def test_what_has_another_type_cannot_be_read(foos: Foos, namespace: str, fields: dict[str, Any], message: str) -> None:
    code, answer = await foos.ask("POST", foos.below(namespace, "?dryRun=All"), foos.foo(t=pod({}) | fields))
    assert (code, refusal(answer)) == (400, f'Foo in version "v1" cannot be handled as a Foo: {message}')


async def test_applied_objects_are_normalised_too(foos: Foos, namespace: str) -> None:
    config = foos.foo(t=pod({"labels": {"a": None}, "namespace": ""}))
    code, answer = await foos.ask("PATCH", foos.below(namespace, "/a?fieldManager=m"), config, APPLY)
    assert (code, answer["t"]["metadata"]) == (201, {"labels": {"a": ""}})


async def test_unknown_fields_of_metadata_are_named_by_the_whole_path(foos: Foos, namespace: str) -> None:
    body = foos.foo(all=[pod({}), pod({"b": 1, "a": 1})])
    code, answer = await foos.ask("POST", foos.below(namespace, "?dryRun=All&fieldValidation=Strict"), body)
    assert (code, refusal(answer).partition("strict decoding error: ")[2]) == (
        400, 'unknown field "all[1].metadata.a", unknown field "all[1].metadata.b"',
    )  # fmt: skip
