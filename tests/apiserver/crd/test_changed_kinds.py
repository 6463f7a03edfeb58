"""Patches, applies and updates that change the kind in an object, on both servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.apiserver.crd.definitions import APPLY, JSON_PATCH, MERGE, Foos, defined, refusal, version
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server

SCHEMA = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer"}}}}}


@pytest.fixture(scope="module")
def foos(server: ServerUnderTest) -> Iterator[Foos]:
    with defined(server, version("v1", SCHEMA, storage=True, subresources={"status": {}})) as found:
        yield found


MISSING = "Internal error occurred: Object 'apiVersion' is missing in 'object has no apiVersion field'"


@pytest.mark.parametrize(
    ("patch", "code", "message"),
    [
        pytest.param({"kind": None}, 422, "Object 'Kind' is missing in '{\"apiVersion\":", id="without a kind it is no object"),
        pytest.param({"kind": ""}, 422, "Object 'Kind' is missing in '{\"apiVersion\":", id="an empty kind is none"),
        pytest.param({"kind": 3}, 422, "json: cannot unmarshal number into Go struct field .kind of type string", id="a kind is text"),
        pytest.param({"kind": "Bar"}, 422, 'Bar.GROUP "a" is invalid: kind: Invalid value: "Bar": must be Foo', id="another kind"),
        pytest.param({"apiVersion": None}, 500, MISSING, id="without a version it is read and goes nowhere"),
        pytest.param({"apiVersion": ""}, 500, MISSING, id="an empty version is none"),
        pytest.param(
            {"apiVersion": "a/b"}, 422, 'Foo.a "a" is invalid: apiVersion: Invalid value: "a/b": must be GROUP/v1',
            id="another group is invalid, and the refusal names it",
        ),
        pytest.param(
            {"apiVersion": "GROUP/v9"}, 422, 'Foo.GROUP "a" is invalid: apiVersion: Invalid value: "GROUP/v9": must be GROUP/v1',
            id="another version is invalid",
        ),
        pytest.param({"apiVersion": "a/b/c"}, 422, "unexpected GroupVersion string: a/b/c", id="a version has one slash at most"),
        pytest.param({"metadata": 3}, 422, "json: cannot unmarshal number into Go value of type v1.ObjectMeta", id="metadata is a map"),
        pytest.param(
            {"metadata": {"labels": 3}}, 422,
            "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type map[string]string",
            id="labels are a map",
        ),
        pytest.param(
            {"metadata": {"ownerReferences": [{"name": 3}]}}, 422,
            "json: cannot unmarshal number into Go struct field OwnerReference.ownerReferences.name of type string",
            id="a deeper field is named from metadata on",
        ),
    ],
)  # fmt: skip
async def test_a_merge_patch(foos: Foos, namespace: str, patch: dict[str, Any], code: int, message: str) -> None:
    await foos.ask("POST", foos.below(namespace), foos.foo(spec={"n": 1}))
    text = {name: value.replace("GROUP", foos.group) if isinstance(value, str) else value for name, value in patch.items()}
    met, answer = await foos.ask("PATCH", foos.below(namespace, "/a"), text, MERGE)
    assert met == code
    assert message.replace("GROUP", foos.group) in refusal(answer)


async def test_a_patch_shows_what_it_made_by_name(foos: Foos, namespace: str) -> None:
    await foos.ask("POST", foos.below(namespace), foos.foo(spec={"n": 1}))
    _, answer = await foos.ask("PATCH", foos.below(namespace, "/a"), [{"op": "remove", "path": "/kind"}], JSON_PATCH)
    shown = refusal(answer)
    assert (
        shown.index('\\"creationTimestamp\\"') < shown.index('\\"managedFields\\"') < shown.index('\\"name\\"') < shown.index('\\"uid\\"')
    )


async def test_a_version_that_is_null_cannot_be_read(foos: Foos, namespace: str) -> None:
    await foos.ask("POST", foos.below(namespace), foos.foo())
    why = ".apiVersion accessor error: <nil> is of the type <nil>, expected string"
    code, answer = await foos.ask("PATCH", foos.below(namespace, "/a"), [{"op": "add", "path": "/apiVersion", "value": None}], JSON_PATCH)
    assert (code, refusal(answer).endswith(why)) == (422, True)
    code, answer = await foos.ask("PUT", foos.below(namespace, "/a"), {**foos.foo(), "apiVersion": None})
    assert (code, refusal(answer)) == (400, f'Foo in version "" cannot be handled as a Foo: {why}')


async def test_a_status_is_taken_from_an_object_of_another_kind_and_its_owners_are_forgotten(foos: Foos, namespace: str) -> None:
    await foos.ask("POST", foos.below(namespace), foos.foo(spec={"n": 1}))
    code, answer = await foos.ask("PATCH", foos.below(namespace, "/a/status"), {"kind": "Bar"}, MERGE)
    assert (code, answer["kind"], "managedFields" in answer["metadata"]) == (200, "Foo", False)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        pytest.param({"kind": 3}, "GROUP/v1, Kind=", id="a kind that is no text"),
        pytest.param({"apiVersion": 3}, "/, Kind=Foo", id="a version that is no text"),
        pytest.param({"apiVersion": "a/b/c"}, "/, Kind=", id="a version that cannot be read"),
        pytest.param({"kind": "Bar"}, "GROUP/v1, Kind=Bar", id="another kind"),
    ],
)
async def test_a_refused_apply_names_the_kind_that_was_sent(foos: Foos, namespace: str, changes: dict[str, Any], named: str) -> None:
    code, answer = await foos.ask("PATCH", foos.below(namespace, "/a?fieldManager=m"), foos.foo() | changes, APPLY)
    assert (code, refusal(answer)) == (400, "invalid object type: " + named.replace("GROUP", foos.group))


async def test_malformed_metadata_without_an_owner_is_dropped_when_it_is_applied(foos: Foos, namespace: str) -> None:
    config = foos.foo(spec={"n": 1}) | {"metadata": {"name": "a", "creationTimestamp": 3}}
    code, answer = await foos.ask("PATCH", foos.below(namespace, "/a?fieldManager=m"), config, APPLY)
    assert (code, isinstance(answer["metadata"]["creationTimestamp"], str)) == (201, True)


@pytest.mark.parametrize(
    ("validation", "message"),
    [
        pytest.param("Ignore", "the API version in the data (GROUP/v9) does not match the expected API version (GROUP/v1)", id="not asked"),
        pytest.param("Strict", 'Foo in version "v9" cannot be handled as a Foo: strict decoding error: unknown field "spec"', id="strict"),
    ],
)
async def test_of_a_version_that_is_not_defined_no_field_is_known(foos: Foos, namespace: str, validation: str, message: str) -> None:
    body = foos.foo(spec={"n": 1}) | {"apiVersion": f"{foos.group}/v9"}
    code, answer = await foos.ask("POST", foos.below(namespace, f"?fieldValidation={validation}"), body)
    assert (code, refusal(answer)) == (400, message.replace("GROUP", foos.group))


async def test_another_namespace_is_refused_before_a_missing_version(foos: Foos, namespace: str) -> None:
    await foos.ask("POST", foos.below(namespace), foos.foo())
    code, answer = await foos.ask("PUT", foos.below(namespace, "/a"), foos.foo() | {"metadata": {"name": "a", "namespace": "other"}})
    assert (code, refusal(answer)) == (400, "the namespace of the provided object does not match the namespace sent on the request")
