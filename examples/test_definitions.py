"""The definitions that the examples apply are what ``kubeloop generate crd`` makes of their classes."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from examples.sample_controller.types import Foo
from kubeloop.codec.yaml import read_yaml
from kubeloop.codegen.crd import check_definition, definitions_of
from kubeloop.meta import Resource

HERE = Path(__file__).parent


def generated(cls: type[Resource]) -> dict[str, Any]:
    (definition,) = definitions_of([cls])
    assert check_definition(definition) == []
    return definition.document


def written(path: str) -> dict[str, Any]:
    (document,) = read_yaml((HERE / path).read_text(), name=path)
    return document


def test_the_sample_controllers_definition_is_its_classes() -> None:
    assert written("sample_controller/manifests/crd-status-subresource.yaml") == generated(Foo)


def test_the_one_without_a_status_subresource_differs_in_nothing_else() -> None:
    document = generated(Foo)
    del document["spec"]["versions"][0]["subresources"]
    assert written("sample_controller/manifests/crd.yaml") == document


def test_the_greetings_definition_is_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(program: Coroutine[Any, Any, None]) -> None:
        """The program starts when it is imported; here it does not."""
        program.close()

    monkeypatch.setattr(asyncio, "run", run)
    greeting: Any = importlib.import_module("examples.greeting.greeting")
    assert written("greeting/greeting.yaml") == generated(greeting.Greeting)
