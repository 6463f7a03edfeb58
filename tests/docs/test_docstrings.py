"""The examples in the docstrings of public classes run, and every public class has one. ``examples.py`` says what an example knows."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from kubeloop.api.core.v1 import Namespace
from kubeloop.client import Client
from kubeloop.meta import ObjectMeta
from kubeloop.testing import LocalCluster
from kubeloop.transport import Transport
from tests.docs.examples import failures, names_for, statements
from tools.public_api import PACKAGES, classes_for_examples

pytestmark = pytest.mark.embedded

_NUMBERS = itertools.count(1)


class Correct:
    """An example whose outputs are right.

    >>> print("one", end="")
    one
    >>> await asyncio.sleep(0, 2)
    2
    >>> raise KeyError("three")
    Traceback (most recent call last):
        ...
    KeyError: 'three'
    """


class Wrong:
    """An example with a wrong output, and an exception that it does not state.

    >>> 1 + 1
    3
    >>> int("x")
    """


async def test_a_correct_example_has_no_failures() -> None:
    assert await failures(Correct, names_for(Correct)) == []


async def test_a_wrong_output_and_an_unexpected_exception_are_failures() -> None:
    other_output, exception = await failures(Wrong, names_for(Wrong))
    assert other_output.splitlines() == ["Wrong: 1 + 1", "Expected:", "    3", "Got:", "    2"]
    assert exception.startswith('Wrong: int("x")\nraises ValueError')


@pytest.mark.parametrize("package", PACKAGES)
async def test_the_examples_of_a_package_run(
    package: str, local_cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(local_cluster.kubeconfig))
    differences: list[str] = []
    for cls in classes_for_examples(package).values():
        if not any("client" in statement.source for statement in statements(cls)):
            differences += await failures(cls, {**names_for(cls), "cluster": local_cluster})
            continue
        namespace = f"example-{os.getpid()}-{next(_NUMBERS)}"
        async with Client(Transport(local_cluster.config), namespace=namespace) as client:
            await client.create(Namespace(metadata=ObjectMeta(name=namespace)))
            differences += await failures(cls, {**names_for(cls), "client": client, "cluster": local_cluster})
    assert not differences, "\n".join(differences)
