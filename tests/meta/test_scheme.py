"""Scheme: kinds to classes."""

from __future__ import annotations

import pytest

from kubeloop.meta import GroupVersionKind, ObjectMeta, Resource, Scheme, UnknownKind, custom_resource

GVK = GroupVersionKind("example.com", "v1", "Foo")


@custom_resource("example.com/v1", plural="foos")
class Foo(Resource):
    pass


def test_a_class_is_found_by_its_kind() -> None:
    assert Scheme([Foo]).class_of(GVK) is Foo


def test_finders_are_asked_once_and_only_for_unknown_kinds() -> None:
    asked: list[GroupVersionKind] = []

    def finder(gvk: GroupVersionKind) -> type[Resource] | None:
        asked.append(gvk)
        return Foo if gvk == GVK else None

    scheme = Scheme(finders=[finder])
    assert scheme.class_of(GVK) is scheme.class_of(GVK) is Foo
    assert asked == [GVK]


def test_an_unknown_kind_is_named_with_the_way_out() -> None:
    with pytest.raises(UnknownKind, match=r"no class is known for example.com/v1, Kind=Foo; declare one with @custom_resource"):
        Scheme().class_of(GVK)
    assert GVK not in Scheme()


def test_a_key_names_namespace_and_name() -> None:
    foo = Foo(metadata=ObjectMeta(name="a", namespace="n"))
    assert (str(foo.object_key()), foo.object_key("east").cluster) == ("n/a", "east")
