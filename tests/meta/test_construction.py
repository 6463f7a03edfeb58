"""Constructors say which class has no such field, and what was probably meant."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable
from typing import Any, cast
from weakref import WeakKeyDictionary

import msgspec
import pytest

from kubeloop.api.core.v1 import Container, EnvVar, Pod, PodSpec, ServiceSpec
from kubeloop.codec import encode
from kubeloop.codec.encoding_checks import checked
from kubeloop.meta import Model, ObjectMeta, Resource
from kubeloop.meta.construction import explain_from_traceback
from kubeloop.meta.failure_log import FailureLog
from kubeloop.meta.model import ModelMeta
from kubeloop.meta.program import run


class Spec(Model):
    image: str
    mode: int
    size: int = 0


class Holder(Model):
    spec: Spec = msgspec.field(default_factory=cast("Callable[[], Spec]", Spec))


class Odd(Model):
    values: list[int] = msgspec.field(default_factory=lambda: cast("list[int]", len(cast("Any", 3))))


class Bare(Model):
    pass


def call(cls: Any, *arguments: Any, **fields: Any) -> Any:
    """A constructor that a type checker would not let pass."""
    return cls(*arguments, **fields)


@pytest.fixture(autouse=True)
def few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that other tests of this process called 10,000 times explain their errors again."""
    monkeypatch.setattr("kubeloop.meta.model._calls", WeakKeyDictionary())
    classes: list[Any] = [Container, EnvVar, Pod, PodSpec, ServiceSpec]
    for cls in classes:
        cls.__class__ = ModelMeta


@pytest.mark.parametrize(
    ("construct", "says"),
    [
        pytest.param(
            lambda: call(PodSpec, nodeName="n"), "PodSpec has no field 'nodeName'; the Python name is node_name", id="a wire name"
        ),
        pytest.param(
            lambda: call(ServiceSpec, clusterIP=""), "ServiceSpec has no field 'clusterIP'; the Python name is cluster_ip", id="IP"
        ),
        pytest.param(lambda: call(Pod, metdata=1), "Pod has no field 'metdata'; did you mean metadata?", id="a slip"),
        pytest.param(lambda: call(PodSpec, node_Name="n"), "PodSpec has no field 'node_Name'; did you mean node_name?", id="other case"),
        pytest.param(
            lambda: call(EnvVar, nam="x", foo=1),
            "EnvVar has no field 'nam'; did you mean name?; EnvVar has no field 'foo'; its fields: name, value, value_from",
            id="several",
        ),
        pytest.param(
            lambda: call(PodSpec, zz=1),
            re.compile(r"PodSpec has no field 'zz'; its fields: active_deadline_seconds, .* and \d+ more"),
            id="none near",
        ),
        pytest.param(lambda: call(Bare, a=1), "Bare has no field 'a'; it has no fields", id="a class without fields"),
        pytest.param(
            lambda: call(Pod, apiVersion="v1"),
            "Pod has no field 'apiVersion': leave it out, the class sets it (Pod.api_version, Pod.kind)",
            id="kind",
        ),
        pytest.param(lambda: call(Spec, size=1), "Spec needs image, mode: Spec(image=..., mode=...)", id="required fields"),
        pytest.param(
            lambda: call(EnvVar, "x"), "EnvVar takes keyword arguments only: EnvVar(name=..., value=..., value_from=...)", id="a position"
        ),
        pytest.param(
            Holder,
            "Holder needs spec: its default Spec() cannot be made, as Spec needs image, mode. "
            "Give spec=Spec(image=..., mode=...), or declare it as spec: Spec | None = None",
            id="a default that cannot be made",
        ),
        pytest.param(Odd, "object of type 'int' has no len()", id="an error of a factory is left alone"),
    ],
)
def test_a_wrong_argument_is_explained(construct: Callable[[], object], says: str | re.Pattern[str]) -> None:
    with pytest.raises(TypeError) as caught:
        construct()
    assert re.fullmatch(says if isinstance(says, re.Pattern) else re.escape(says), str(caught.value))


POD = call(Pod, metadata={"name": "x", "namespace": "shop"}, spec={"nodeName": "n"}, status=3)


@pytest.mark.parametrize(
    ("obj", "shown"),
    [
        pytest.param(POD, "Pod(shop/x, n)", id="dicts"),
        pytest.param(call(Pod, metadata=None, spec=[], status="Running"), "Pod(unnamed)", id="other values"),
        pytest.param(call(Container, name=3, resources={"a": 1}), "Container(name=3, resources={'a': 1})", id="a part"),
    ],
)
def test_what_was_constructed_with_wrong_values_is_shown(obj: Model, shown: str) -> None:
    assert repr(obj) == shown


@pytest.mark.parametrize(
    ("obj", "fault"),
    [
        pytest.param(POD, "Pod: metadata: expected ObjectMeta, got dict", id="metadata"),
        pytest.param(
            call(Pod, metadata=ObjectMeta(name="x"), spec={"nodeName": "n"}),
            'Pod "x": spec: expected PodSpec, got dict; PodSpec.from_dict reads a dict with wire names',
            id="a spec",
        ),
        pytest.param(
            Pod(metadata=ObjectMeta(name="x"), spec=PodSpec(containers=[call(dict, name="c")])),
            'Pod "x": spec.containers[0]: expected Container, got dict; Container.from_dict reads a dict with wire names',
            id="an item",
        ),
    ],
)
def test_a_dict_in_the_place_of_a_struct_is_refused_before_it_is_sent(obj: Resource, fault: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(fault)}$"):
        checked(obj, encode)


def test_a_class_that_was_called_often_is_constructed_by_msgspec_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubeloop.meta.model._EXPLAINED", 5)

    class Often(Model):
        size: int = 0

    for _ in range(2):
        Often(size=1)
        with pytest.raises(TypeError, match="Often has no field 'siez'; did you mean size"):
            call(Often, siez=1)
    assert call(Often, size=2).size == 2
    assert "__call__" not in vars(type(Often)), "no Python code stands between a call and msgspec"
    assert call(Often, size=2) == Often(size=2)
    with pytest.raises(TypeError, match="Unexpected keyword argument 'siez'"):
        call(Often, siez=1)

    class More(Often):
        more: int = 0

    with pytest.raises(TypeError, match="More has no field 'siez'; did you mean size"):
        call(More, siez=1)


class Worn(Model):
    """Called so often that msgspec constructs it alone."""

    image: str
    size: int = 0


Loose: Any = Worn  # which a type checker lets pass


class WornHolder(Model):
    worn: Worn = msgspec.field(default_factory=cast("Callable[[], Worn]", Worn))


@pytest.fixture
def worn(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("kubeloop.meta.model._EXPLAINED", 1)
    Worn(image="a")
    WornHolder(worn=Worn(image="a"))
    return sys.modules[__name__]


def _explained(source: Callable[[], object]) -> str:
    try:
        source()
    except TypeError as error:
        before = str(error)
        explain_from_traceback(error)
        return "" if str(error) == before else str(error)
    raise AssertionError("no error")


SIEZ = "Worn has no field 'siez'; did you mean size?"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        pytest.param(lambda _: Loose(siez=1, image="b"), SIEZ, id="a misspelt field"),
        pytest.param(lambda here: here.Worn(image="b", siez=2), SIEZ, id="of a class of a module"),
        pytest.param(lambda _: call_of(Worn)(siez=2), SIEZ, id="of a class in a variable"),
        pytest.param(
            lambda _: [
                Loose(image="b"),
                Loose(
                    image="ü", siez=3
                ),
            ],
            SIEZ,
            id="one call of several, over several lines",
        ),
        pytest.param(lambda _: Loose(image="ä") and Loose(image="b", siez=3), SIEZ, id="one call of a line"),
        pytest.param(lambda _: Loose(**dict.fromkeys(["siez"])), SIEZ, id="from a dict"),
        pytest.param(lambda _: Loose(size=2), "Worn needs image: Worn(image=...)", id="a missing field"),
        pytest.param(lambda _: Loose("a"), "Worn takes keyword arguments only: Worn(image=..., size=...)", id="a positional argument"),
        pytest.param(lambda _: [Loose][0](siez=1), "", id="an expression for the class stays as it is"),
        pytest.param(lambda here: here.WornHolder(), "", id="a default that cannot be made"),
        pytest.param(lambda _: _refuse(image="a"), "", id="an error with these words of another function"),
    ],
)  # fmt: skip
def test_an_error_of_msgspec_alone_is_explained_from_the_place_in_the_code(worn: Any, source: Callable[[Any], object], text: str) -> None:
    assert _explained(lambda: source(worn)) == text


def call_of(cls: Any) -> Any:
    return lambda **fields: cls(**fields)


def _refuse(**fields: object) -> None:
    raise TypeError("Unexpected keyword argument 'image'")


def test_an_error_without_its_source_stays_as_it_is(worn: Any) -> None:
    assert _explained(lambda: exec("Worn(image='a', siez=2)", {"Worn": worn.Worn})) == ""


def test_a_failure_that_is_logged_is_explained(worn: Any) -> None:
    failures: FailureLog[str] = FailureLog(logging.getLogger("explained"))
    with pytest.raises(TypeError) as raised:
        worn.Worn(image="a", siez=1)
    shown = failures.failed("key", raised.value)
    assert shown is not None
    assert str(shown[1]) == failures.text(raised.value) == SIEZ


def test_a_program_that_ends_with_it_is_explained(worn: Any) -> None:
    async def main() -> None:
        worn.Worn(image="a", siez=1)

    with pytest.raises(TypeError, match=f"^{re.escape(SIEZ)}$"):
        run(main())
