"""What can be waited for, in kubectl's words and as functions; and what a deadline says that there was instead."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kubeloop.api.core.v1 import Pod
from kubeloop.client.waits.conditions import WaitCondition, condition_for
from kubeloop.codec import decode
from kubeloop.meta import Unstructured


def pod(**status: Any) -> Pod:
    tree = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "generation": 2, "resourceVersion": "7"}, "status": status}
    return decode(Pod, msgspec.json.encode(tree))


READY = {"conditions": [{"type": "Ready", "status": "True"}]}


@pytest.mark.parametrize(
    ("want", "object_", "expected"),
    [
        pytest.param("condition=Ready", pod(**READY), True, id="a condition is true by default"),
        pytest.param("condition=ready=TRUE", pod(**READY), True, id="case does not count"),
        pytest.param("condition=Ready=False", pod(**READY), False, id="another status does"),
        pytest.param("condition=Ready", pod(), False, id="a condition that there is not"),
        pytest.param("condition=Ready", pod(observedGeneration=1, **READY), False, id="a condition of an older generation does not count"),
        pytest.param(
            "condition=Ready",
            pod(observedGeneration=1, conditions=[{"type": "Ready", "status": "True", "observedGeneration": 2}]),
            True,
            id="the condition's own generation comes first",
        ),
        pytest.param("jsonpath={.status.phase}=Running", pod(phase="Running"), True, id="a value"),
        pytest.param("jsonpath={.status.phase}=Running", pod(phase="Pending"), False, id="another value"),
        pytest.param("jsonpath={.status.phase}=Running", pod(), False, id="no value yet"),
        pytest.param("jsonpath={.status.podIP}", pod(podIP="192.0.2.1"), True, id="any value"),
        pytest.param("jsonpath={.status.podIP}", pod(), False, id="none"),
        pytest.param("jsonpath={.metadata.generation}=2", pod(), True, id="a number as its text"),
        pytest.param('jsonpath={.status.conditions[?(@.type=="Ready")].status}=True', pod(**READY), True, id="a filter"),
        pytest.param("create", pod(), True, id="whatever is there"),
    ],
)
def test_want(want: str, object_: Pod, expected: bool) -> None:
    wants: WaitCondition[Pod] = condition_for(want)
    assert bool(wants.met(object_)) is expected


@pytest.mark.parametrize(
    "want",
    [
        pytest.param("condition=", id="no condition"),
        pytest.param("delete", id="an end, which is wait_gone"),
        pytest.param("Ready", id="no form"),
        pytest.param("jsonpath={.status", id="a path that does not end"),
    ],
)
def test_words_that_are_none(want: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be waited for; use condition=|jsonpath="):
        condition_for(want)


@pytest.mark.parametrize(
    ("want", "fault"),
    [
        pytest.param("jsonpath={.status.conditions[*].type}=x", "matches more than one value", id="two values"),
        pytest.param("jsonpath={.status.phase}{.status.podIP}=x", "cannot be waited for|more than one list", id="two paths"),
        pytest.param("jsonpath={.status.conditions[0]}=x", "leads to a nested object or list", id="an object"),
    ],
)
def test_values_that_cannot_be_compared(want: str, fault: str) -> None:
    two = pod(phase="x", podIP="x", conditions=[{"type": "a"}, {"type": "b"}])
    wants: WaitCondition[Pod] = condition_for(want)
    with pytest.raises(ValueError, match=fault):
        wants.met(two)


@pytest.mark.parametrize(
    ("want", "text", "seen"),
    [
        pytest.param("condition=Ready", "Ready=True", "no condition Ready", id="a condition"),
        pytest.param("jsonpath={.status.phase}=Running", "{.status.phase}=Running", "{.status.phase} is 'Pending'", id="a value"),
        pytest.param("jsonpath={.status.podIP}", "anything at {.status.podIP}", "nothing at {.status.podIP}", id="any value"),
        pytest.param("create", "there", "last seen at resourceVersion 7", id="its being there"),
    ],
)
def test_what_a_deadline_says(want: str, text: str, seen: str) -> None:
    found: WaitCondition[Pod] = condition_for(want)
    assert (found.text, found.seen(pod(phase="Pending"))) == (text, seen)


def test_a_function_and_a_want_are_taken_as_they_are() -> None:
    want: WaitCondition[Pod] = WaitCondition("x", bool, str)
    assert condition_for(want) is want
    assert condition_for(lambda _: True).text == "as wanted"


def test_kinds_without_a_class_are_read_as_the_trees_that_they_are() -> None:
    tree = {"apiVersion": "example.com/v1", "kind": "Foo", "status": READY}
    wants: WaitCondition[Unstructured] = condition_for("condition=Ready")
    assert wants.met(Unstructured.from_dict(tree))
