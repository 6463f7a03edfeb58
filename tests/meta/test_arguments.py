"""Errors and log lines name what was passed without its contents, which may be secret."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.api.core.v1 import Secret
from kubeloop.meta import ObjectMeta
from kubeloop.meta.arguments import described

TREE: dict[str, Any] = {"kind": "Secret", "metadata": {"namespace": "shop", "name": "login"}, "data": {"password": "hunter2"}}
SECRET = Secret(metadata=ObjectMeta(namespace="shop", name="login"), string_data={"password": "hunter2"})


@pytest.mark.parametrize(
    ("given", "text"),
    [
        pytest.param(None, "None", id="None"),
        pytest.param(3, "3", id="a number"),
        pytest.param("merg", "'merg'", id="a word"),
        pytest.param("x" * 100, "a text of 100 characters", id="a long text"),
        pytest.param("a: 1\npassword: hunter2", "a text of 22 characters", id="a document"),
        pytest.param(b"hunter2", "bytes of length 7", id="bytes"),
        pytest.param(SECRET, "the Secret shop/login", id="an object"),
        pytest.param(Secret, "the class Secret", id="a class"),
        pytest.param(TREE, "a dict (Secret shop/login)", id="a tree of an object"),
        pytest.param({"password": "hunter2"}, "a dict of 1 keys", id="another tree"),
        pytest.param({}, "{}", id="an empty tree"),
        pytest.param([1, "a"], "[1, 'a']", id="a short list of words"),
        pytest.param([TREE], "a list of 1 items", id="a list of trees"),
        pytest.param(object(), "an object", id="anything else"),
    ],
)
def test_a_value_is_named(given: object, text: str) -> None:
    assert described(given) == text
