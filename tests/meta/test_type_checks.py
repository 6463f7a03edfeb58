"""Errors and log lines name what was passed without its contents, which may be secret."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.api.core.v1 import Pod, Secret
from kubeloop.meta import ObjectMeta
from kubeloop.meta.type_checks import described, described_word, require_kind

TREE: dict[str, Any] = {"kind": "Secret", "metadata": {"namespace": "shop", "name": "login"}, "data": {"password": "hunter2"}}
SECRET = Secret(metadata=ObjectMeta(namespace="shop", name="login"), string_data={"password": "hunter2"})


def _any(value: object) -> Any:
    return value


class _Raising(dict[str, str]):
    def __len__(self) -> int:
        raise KeyError("hunter2")

    def get(self, *_: object) -> Any:
        raise KeyError("hunter2")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param(None, "None", id="None"),
        pytest.param(3, "3", id="a number"),
        pytest.param(10**5000, "a whole number of 16610 bits", id="a number that Python does not print"),
        pytest.param("hunter2", "a text of 7 characters", id="a word"),
        pytest.param("", "''", id="an empty text"),
        pytest.param("x" * 100, "a text of 100 characters", id="a long text"),
        pytest.param("a: 1\npassword: hunter2", "a text of 22 characters", id="a document"),
        pytest.param(b"hunter2", "bytes of length 7", id="bytes"),
        pytest.param(SECRET, "the Secret shop/login", id="an object"),
        pytest.param(Secret, "the class Secret", id="a class"),
        pytest.param(TREE, "a dict (Secret shop/login)", id="a tree of an object"),
        pytest.param({"password": "hunter2"}, "a dict of 1 key", id="another tree"),
        pytest.param({}, "{}", id="an empty tree"),
        pytest.param({"a": 1, "hunter2": 2}, "a dict of 2 keys", id="a tree with secret keys"),
        pytest.param(["hunter2", "s3cret"], "a list of 2 items", id="a list of words"),
        pytest.param({"hunter2"}, "a set of 1 item", id="a set of words"),
        pytest.param([TREE], "a list of 1 item", id="a list of trees"),
        pytest.param(Pod(metadata=_any(None)), "the Pod unnamed", id="an object without metadata"),
        pytest.param(Pod(metadata=ObjectMeta(name=_any(TREE))), "the Pod unnamed", id="an object whose name is a tree"),
        pytest.param({"kind": TREE, "metadata": {"name": "a", "namespace": TREE}}, "a dict (object a)", id="a tree whose kind is a tree"),
        pytest.param(_Raising(), "a _Raising", id="an object whose methods raise"),
        pytest.param(object(), "an object", id="anything else"),
    ],
)
def test_a_value_is_named(value: object, text: str) -> None:
    assert described(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param("merg", "'merg'", id="a word is shown"),
        pytest.param("application/json-patch+json", "'application/json-patch+json'", id="a media type is shown"),
        pytest.param("x" * 100, "a text of 100 characters", id="a long text is not shown"),
        pytest.param("password: hunter2", "a text of 17 characters", id="a text with spaces is not shown"),
        pytest.param(["hunter2"], "a list of 1 item", id="a list is not shown"),
        pytest.param(TREE, "a dict (Secret shop/login)", id="a tree is named"),
    ],
)
def test_a_name_or_a_value_of_an_enumeration(value: object, text: str) -> None:
    assert described_word(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param("Pod", 'the text "Pod" was given where a kind is meant', id="a name of a kind is shown"),
        pytest.param("hunter2" * 100, "a text of 700 characters was given where a kind is meant", id="a long text is not shown"),
        pytest.param("p: hunter2", "a text of 10 characters was given where a kind is meant", id="a document is not shown"),
    ],
)
def test_a_text_in_the_place_of_a_kind(value: str, text: str) -> None:
    with pytest.raises(TypeError) as caught:
        require_kind(value)
    assert str(caught.value).startswith(text)
