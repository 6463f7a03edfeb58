"""Resources: what a class knows of its kind, and what copies of an object carry along."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kubeloop.meta import (
    DocumentSource,
    KindInfo,
    Model,
    ObjectMeta,
    OwnerReference,
    Resource,
    UnknownKind,
    Unstructured,
    custom_resource,
    kind_info,
    set_source,
    source_of,
)


class FooSpec(Model):
    replicas: int | None = None


@custom_resource("samplecontroller.k8s.io/v1alpha1", plural="foos", short_names=("fo",))
class Foo(Resource):
    spec: FooSpec = msgspec.field(default_factory=FooSpec)


DOCUMENT = b'{"metadata":{"name":"a","uid":"u","resourceVersion":"7"},"spec":{"unknown":1}}'


def read() -> Foo:
    foo = Foo(metadata=ObjectMeta(name="a", uid="u", resource_version="7"))
    set_source(foo, DocumentSource(Foo, DOCUMENT))
    return foo


def document(foo: Resource) -> bytes | None:
    source = source_of(foo)
    return source.document if source else None


def test_a_class_knows_its_kind() -> None:
    assert (Foo.api_version, Foo.kind, Foo().kind) == ("samplecontroller.k8s.io/v1alpha1", "Foo", "Foo")
    info = kind_info(Foo)
    assert (str(info.gvr.group_resource), info.singular, info.namespaced) == ("foos.samplecontroller.k8s.io", "foo", True)
    assert kind_info(Foo()) is info


def test_a_class_without_a_kind_says_how_to_give_it_one() -> None:
    class Bare(Resource):
        pass

    with pytest.raises(UnknownKind, match="Bare names no kind; decorate it with @custom_resource"):
        kind_info(Bare)


def test_a_plural_that_only_a_server_knows_is_not_guessed() -> None:
    info: KindInfo = kind_info(Unstructured.for_kind("v1", "Thing"))
    with pytest.raises(UnknownKind, match="the plural of v1, Kind=Thing is not known here"):
        _ = info.gvr


@pytest.mark.parametrize(
    "twin",
    [
        pytest.param(copy.copy, id="copy"),
        pytest.param(copy.deepcopy, id="deepcopy"),
        pytest.param(lambda foo: pickle.loads(pickle.dumps(foo)), id="pickle"),
        pytest.param(lambda foo: msgspec.structs.replace(foo, spec=FooSpec(replicas=2)), id="msgspec's replace"),
        pytest.param(lambda foo: foo.__replace__(spec=FooSpec(replicas=2)), id="replace"),
        pytest.param(lambda foo: foo.__replace__(metadata=ObjectMeta(name="b")), id="replace of the metadata"),
    ],
)
def test_the_document_goes_along_with(twin: Callable[[Foo], Foo]) -> None:
    assert document(twin(read())) == DOCUMENT


def test_replace_changes_only_the_named_fields() -> None:
    foo = read()
    twin = foo.__replace__(spec=FooSpec(replicas=2))
    assert (twin.spec.replicas, foo.spec.replicas, twin.metadata) == (2, None, foo.metadata)


def test_another_object_with_lent_metadata_has_no_document() -> None:
    foo = read()
    other = Foo(metadata=foo.metadata)
    other.metadata.resource_version = ""
    assert document(other) is None

    @custom_resource("v1", plural="bars")
    class Bar(Resource):
        pass

    assert document(Bar(metadata=read().metadata)) is None


def test_the_document_is_neither_encoded_nor_compared() -> None:
    foo = read()
    assert b"unknown" not in msgspec.json.encode(foo)
    assert foo == Foo(metadata=ObjectMeta(name="a", uid="u", resource_version="7"))


def test_a_deep_copy_shares_nothing_with_its_original() -> None:
    foo = read()
    twin = copy.deepcopy(foo)
    twin.metadata.labels["a"] = "b"
    twin.spec.replicas = 3
    assert (foo.metadata.labels, foo.spec.replicas) == ({}, None)


class TestUnstructured:
    Deployment = Unstructured.for_kind("apps/v1", "Deployment")

    def made(self, **content: Any) -> Unstructured:
        return self.Deployment.from_dict({"metadata": {"name": "web"}, **content})

    def test_the_same_kind_is_the_same_class(self) -> None:
        assert Unstructured.for_kind("apps/v1", "Deployment") is self.Deployment
        assert (self.Deployment.api_version, self.Deployment.kind) == ("apps/v1", "Deployment")

    def test_typed_metadata_writes_through_to_the_tree(self) -> None:
        web = self.made()
        web.metadata.labels["app"] = "web"
        web.metadata.owner_references.append(OwnerReference(name="o", uid="u"))
        assert web["metadata"] == {"name": "web", "labels": {"app": "web"}, "ownerReferences": [{"name": "o", "uid": "u"}]}

    def test_the_tree_writes_through_to_typed_metadata(self) -> None:
        web = self.made()
        labels = web.metadata.labels
        web["metadata"]["labels"] = {"app": "web"}
        assert web.metadata.labels == {"app": "web"}
        assert labels == {"app": "web"}, "a map that the caller still holds"

    def test_changes_on_both_sides_are_kept(self) -> None:
        web = self.made()
        web.metadata.labels["typed"] = "1"
        web.content["metadata"]["annotations"] = {"tree": "2"}
        web.synchronize()
        assert web.metadata.annotations == {"tree": "2"}
        assert web.to_dict()["metadata"] == {"name": "web", "labels": {"typed": "1"}, "annotations": {"tree": "2"}}

    def test_unknown_metadata_and_nulls_stay(self) -> None:
        web = self.Deployment.from_dict({"metadata": {"name": "web", "labels": None, "future": {"a": 1}}})
        web.metadata.name = "db"
        assert web["metadata"] == {"name": "db", "labels": None, "future": {"a": 1}}

    def test_only_looking_changes_nothing(self) -> None:
        tree = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {}}
        web = Unstructured.from_dict(copy.deepcopy(tree))
        assert (web.metadata.labels, web.get("spec", "replicas", default=1)) == ({}, 1)
        assert web.to_dict() == tree

    def test_the_tree_chooses_the_class(self) -> None:
        web = Unstructured.from_dict({"apiVersion": "apps/v1", "kind": "Deployment"})
        assert type(web) is self.Deployment

    @pytest.mark.parametrize("twin", [copy.copy, copy.deepcopy, lambda obj: pickle.loads(pickle.dumps(obj))])
    def test_copies_and_pickles_are_equal_and_carry_the_document(self, twin: Callable[[Unstructured], Unstructured]) -> None:
        web = self.made(spec={"replicas": 1})
        set_source(web, DocumentSource(self.Deployment, b"{}"))
        assert twin(web) == web
        assert document(twin(web)) == b"{}"

    def test_one_made_from_typed_metadata_has_it_in_its_tree(self) -> None:
        web = self.Deployment(metadata=ObjectMeta(name="web"), content={"spec": {}})
        assert web.to_dict() == {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {}}
