"""Documents with thousands of levels: each way to read, write or show one works, or raises an error that says why. None crashes."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from kubeloop import codec
from kubeloop.api.core.v1 import ConfigMap
from kubeloop.meta import DecodeError, NestedTooDeeply, Resource, Unstructured

Widget = Unstructured.for_kind("example.com/v1", "Widget")


def document(cls: type[Resource], levels: int) -> bytes:
    head = f'{{"apiVersion":"{cls.api_version}","kind":"{cls.kind}","metadata":{{"name":"deep"}},"extra":'
    return head.encode() + b'{"a":' * levels + b"1" + b"}" * levels + b"}"


def relabelled(obj: Resource) -> bytes:
    obj.metadata.labels["tier"] = "web"
    return codec.encode(obj)


USES: dict[str, Callable[[Any], object]] = {
    "to_yaml": lambda obj: obj.to_yaml(),
    "to_dict": lambda obj: obj.to_dict(),
    "from_dict": lambda obj: type(obj).from_dict(obj.to_dict()),
    "encode": codec.encode,
    "encode after a change": relabelled,
    "repr": repr,
    "copy": copy.copy,
    "compare": lambda obj: obj == copy.copy(obj),
    "pickle of a typed object": lambda obj: None if isinstance(obj, Unstructured) else pickle.loads(pickle.dumps(obj)),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("levels", [300, 800, 5_000, 200_000])
@pytest.mark.parametrize("cls", [ConfigMap, Widget], ids=["typed", "unstructured"])
def test_an_object_with_very_many_levels_is_usable_or_refused_with_a_reason(cls: type[Resource], levels: int, use: str) -> None:
    try:
        USES[use](codec.decode(cls, document(cls, levels)))
    except NestedTooDeeply as error:
        assert "nested too deeply" in str(error)  # noqa: PT017  # both outcomes are right: which one depends on Python's version


@pytest.mark.parametrize("cls", [ConfigMap, Widget], ids=["typed", "unstructured"])
def test_yaml_of_an_object_that_is_nested_too_deeply_names_the_way_out(cls: type[Resource]) -> None:
    with pytest.raises(NestedTooDeeply, match="too deeply to be written as YAML; write it as JSON"):
        codec.decode(cls, document(cls, 600)).to_yaml()


def test_yaml_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(DecodeError, match="exceeded max depth of 256"):
        ConfigMap.from_yaml(document(ConfigMap, 600))
