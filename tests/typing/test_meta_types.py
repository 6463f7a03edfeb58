"""What a type checker knows about the core types. Run by mypy; running it as a test only proves that it is true."""

from __future__ import annotations

from typing import assert_type

from kubeloop.api.core.v1 import Container, Pod, PodSpec
from kubeloop.codec import decode, decode_list, document_of, encode, to_dict
from kubeloop.meta import (
    FieldSelector,
    KindInfo,
    ListMeta,
    Model,
    ObjectMeta,
    Quantity,
    Resource,
    Selector,
    Unstructured,
    custom_resource,
    kind_info,
    parse_field_selector,
    parse_label_selector,
)


class FooSpec(Model):
    replicas: int | None = None


@custom_resource("example.com/v1", plural="foos")
class Foo(Resource):
    spec: FooSpec


def test_models_are_typed_by_keyword() -> None:
    pod = Pod(metadata=ObjectMeta(name="a", labels={"x": "y"}), spec=PodSpec(containers=[Container(name="c")]))
    assert_type(pod.metadata.labels, dict[str, str])
    assert_type(pod.metadata.labels["x"], str)
    assert_type(pod.spec.containers, list[Container])
    assert_type(pod.kind, str)
    assert_type(Pod.api_version, str)


def test_reading_gives_the_class_that_was_asked_for() -> None:
    pod = decode(Pod, b'{"kind":"Pod","apiVersion":"v1"}')
    assert_type(pod, Pod)
    assert_type(decode_list(Pod, b"{}"), tuple[list[Pod], ListMeta])
    assert_type(encode(pod), bytes)
    assert_type(document_of(pod), bytes | None)
    assert to_dict(pod)["kind"] == "Pod"


def test_a_custom_class_keeps_its_type() -> None:
    foo = Foo(spec=FooSpec(replicas=2))
    assert_type(foo.spec.replicas, int | None)
    assert_type(kind_info(Foo), KindInfo)
    assert_type(decode(Foo, encode(foo)), Foo)


def test_unstructured_classes_are_classes() -> None:
    widget = Unstructured.for_kind("example.com/v1", "Widget")
    assert_type(widget, type[Unstructured])
    assert_type(widget.from_dict({}), Unstructured)
    assert_type(widget.from_dict({}).metadata, ObjectMeta)


def test_quantities_and_selectors() -> None:
    assert_type(Quantity("1") + 1, Quantity)
    assert_type(Quantity("1") / 2, Quantity)
    assert_type(parse_label_selector("a"), Selector)
    assert_type(parse_field_selector("a=b"), FieldSelector)
