"""Converters asked by whole reviews: which way is gone, and what of an object stays."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from kubeloop.controller.errors import DeclarationError
from kubeloop.controller.webhooks import Denied, ReviewMalformed, Webhooks
from kubeloop.meta import DecodeError, ObjectMeta, Unstructured
from kubeloop.types import JSONObject
from tests.controller.webhooks.foos import Foo, FooSpec, FooSpecV2, FooSpecV3, FooV2, FooV3


def hub_and_spokes() -> Webhooks:
    hooks = Webhooks()

    @hooks.conversion(Foo, FooV2)
    def up(foo: Foo) -> FooV2:
        return FooV2(spec=FooSpecV2(count=foo.spec.size))

    @hooks.conversion(FooV2, Foo)
    def down(foo: FooV2) -> Foo:
        return Foo(spec=FooSpec(size=foo.spec.count))

    @hooks.conversion(FooV3, FooV2)
    def from_v3(foo: FooV3) -> FooV2:
        return FooV2(spec=FooSpecV2(count=foo.spec.replicas))

    @hooks.conversion(FooV2, FooV3)
    def to_v3(foo: FooV2) -> FooV3:
        return FooV3(spec=FooSpecV3(replicas=foo.spec.count))

    return hooks


def review(version_name: str, *objects: Any, version: str = "v1") -> bytes:
    request = {"uid": "u-1", "desiredAPIVersion": f"example.com/{version_name}", "objects": list(objects)}
    return json.dumps({"apiVersion": f"apiextensions.k8s.io/{version}", "kind": "ConversionReview", "request": request}).encode()


def foo(version: str, metadata: JSONObject | None = None, **spec: Any) -> JSONObject:
    return {"apiVersion": f"example.com/{version}", "kind": "Foo", "metadata": {"name": "a", **(metadata or {})}, "spec": spec}


async def asked(hooks: Webhooks, body: bytes) -> JSONObject:
    answer: JSONObject = json.loads((await hooks.answer("/convert", body)).body)
    return answer


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_all_objects_are_converted_in_their_order(version: str) -> None:
    answer = await asked(hub_and_spokes(), review("v3", foo("v1", size=1), foo("v3", replicas=2), foo("v2", count=3), version=version))
    assert (answer["apiVersion"], answer["kind"]) == (f"apiextensions.k8s.io/{version}", "ConversionReview")
    response = answer["response"]
    assert (response["uid"], response["result"]) == ("u-1", {"status": "Success"})
    assert response["convertedObjects"] == [foo("v3", replicas=1), foo("v3", replicas=2), foo("v3", replicas=3)]


async def test_an_object_of_that_version_already_is_not_touched() -> None:
    given = foo("v2", count=1, unknown=[1.0, None])
    assert (await asked(hub_and_spokes(), review("v2", given)))["response"]["convertedObjects"] == [given]


async def test_metadata_stay_whole_with_unknown_fields() -> None:
    metadata = {
        "namespace": "shop",
        "uid": "7",
        "creationTimestamp": None,
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
        "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}],
        "ownerReferences": [{"apiVersion": "v1", "kind": "Bar", "name": "b", "uid": "8", "future": 1}],
        "future": {"x": 1.0},
    }
    (made,) = (await asked(hub_and_spokes(), review("v3", foo("v1", metadata, size=1))))["response"]["convertedObjects"]
    assert made == foo("v3", metadata, replicas=1)


async def test_a_converter_may_change_labels_and_annotations_and_nothing_else_of_the_metadata() -> None:
    hooks = Webhooks()

    @hooks.conversion(Foo, FooV2)
    def up(foo: Foo) -> FooV2:
        return FooV2(metadata=ObjectMeta(name="other", uid="9", labels={"new": "x"}, finalizers=["f/x"]))

    given = foo("v1", {"uid": "7", "labels": {"old": "x"}, "annotations": {"old": "x"}})
    (made,) = (await asked(hooks, review("v2", given)))["response"]["convertedObjects"]
    assert made["metadata"] == {"name": "a", "uid": "7", "labels": {"new": "x"}}


async def test_kinds_without_classes_are_converted_as_trees() -> None:
    hooks = Webhooks()
    v1, v2 = (Unstructured.for_kind(f"example.com/{version}", "Foo") for version in ("v1", "v2"))

    @hooks.conversion(v1, v2)
    def up(foo: Unstructured) -> Any:
        tree = foo.to_dict()
        tree["spec"]["count"] = tree["spec"].pop("size")
        return tree

    given = foo("v1", {"labels": {"a": "b"}}, size=1, unknown={"deep": 1.0})
    (made,) = (await asked(hooks, review("v2", given)))["response"]["convertedObjects"]
    assert made == foo("v2", {"labels": {"a": "b"}}, unknown={"deep": 1.0}, count=1)


async def test_a_typed_converter_can_follow_one_of_trees() -> None:
    hooks = Webhooks()

    @hooks.conversion(Unstructured.for_kind("example.com/v1", "Foo"), Unstructured.for_kind("example.com/v2", "Foo"))
    def up(foo: Unstructured) -> Any:
        return {"metadata": foo["metadata"], "spec": {"count": foo["spec"]["size"]}}

    @hooks.conversion(FooV2, FooV3)
    def to_v3(foo: FooV2) -> FooV3:
        return FooV3(spec=FooSpecV3(replicas=foo.spec.count))

    assert (await asked(hooks, review("v3", foo("v1", size=4))))["response"]["convertedObjects"] == [foo("v3", replicas=4)]


async def test_a_direct_converter_is_preferred_to_a_longer_way() -> None:
    hooks = hub_and_spokes()

    @hooks.conversion(Foo, FooV3)
    def direct(foo: Foo) -> FooV3:
        return FooV3(spec=FooSpecV3(replicas=99))

    assert hooks.convert(Foo(spec=FooSpec(size=1)), FooV3).spec.replicas == 99


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        pytest.param(Denied("too old"), 422, "too old", id="a refusal is sent"),
        pytest.param(
            ValueError("secret"), 500, "up of Foo a.* failed: ValueError .trace", id="an error is reported by converter, object and class"
        ),
        pytest.param(SystemExit(1), 500, "SystemExit", id="an exit is an error"),
    ],
)
async def test_a_converter_that_raises_fails_the_whole_review(error: BaseException, code: int, text: str) -> None:
    hooks = Webhooks()

    @hooks.conversion(Foo, FooV2)
    def up(foo: Foo) -> FooV2:
        raise error

    answered = await hooks.answer("/convert", review("v2", foo("v2"), foo("v1")))
    response = json.loads(answered.body)["response"]
    assert (answered.code, response["uid"], response["convertedObjects"], response["result"]["status"]) == (code, "u-1", [], "Failure")
    assert re.search(text, response["result"]["message"])
    assert "secret" not in response["result"]["message"]


FAILURES = [
    pytest.param(foo("v9"), "nothing converts Foo of example.com/v9 to example.com/v2", id="an unknown version"),
    pytest.param({**foo("v1"), "apiVersion": "other.com/v1"}, "nothing converts", id="another group"),
    pytest.param({"spec": {}}, "an item to convert is not an object", id="no object"),
    pytest.param(foo("v1", size="many"), "spec.size", id="a field of another type"),
]


@pytest.mark.parametrize(("document", "text"), FAILURES)
async def test_what_cannot_be_converted_is_said(document: JSONObject, text: str) -> None:
    result = (await asked(hub_and_spokes(), review("v2", document)))["response"]["result"]
    assert result["status"] == "Failure"
    assert text in result["message"]


async def test_another_kind_than_declared_fails() -> None:
    hooks = Webhooks()
    hooks.conversion(Foo, FooV2)(lambda foo: foo)  # type: ignore[arg-type,return-value]  # what a checker would have found
    assert "TypeError" in (await asked(hooks, review("v2", foo("v1"))))["response"]["result"]["message"]


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview"}', b'{"apiVersion":"v1","kind":"Pod"}']
)
async def test_a_body_that_is_no_review_is_malformed(body: bytes) -> None:
    with pytest.raises(ReviewMalformed):
        await hub_and_spokes().answer("/convert", body)


def test_a_version_that_cannot_be_reached_is_named() -> None:
    hooks = Webhooks()
    hooks.conversion(Foo, FooV2)(lambda foo: FooV2())
    with pytest.raises(DeclarationError, match="nothing converts v2 to v1"):
        hooks.check()


def test_converting_without_a_way_says_so() -> None:
    with pytest.raises(DecodeError, match="nothing converts"):
        Webhooks().convert(Foo(), FooV2)


async def _coroutine(foo: Any) -> Any:
    return foo


@pytest.mark.parametrize(
    ("source", "target", "function", "text"),
    [
        pytest.param(Foo, Foo, lambda foo: foo, "not two versions", id="a version to itself"),
        pytest.param(Foo, Unstructured.for_kind("example.com/v2", "Bar"), lambda foo: foo, "not two versions", id="another kind"),
        pytest.param(Foo, FooV2, _coroutine, "plain def", id="a coroutine function"),
        pytest.param(Foo, dict, lambda foo: foo, "is not a kind", id="no kind"),
    ],
)
def test_a_converter_that_cannot_work_is_refused(source: Any, target: Any, function: Any, text: str) -> None:
    with pytest.raises(DeclarationError, match=text):
        Webhooks().conversion(source, target)(function)


def test_two_converters_of_the_same_versions_are_refused() -> None:
    hooks = hub_and_spokes()
    with pytest.raises(DeclarationError, match="already"):
        hooks.conversion(Foo, FooV2)(lambda foo: FooV2())
