"""The package as a whole: light to import, and every name it promises is there."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

import kubeloop
from kubeloop.meta.version import VERSION


@pytest.mark.parametrize("name", [name for name in kubeloop.__all__ if name != "__version__"])
def test_every_name_it_promises_can_be_had(name: str) -> None:
    assert getattr(kubeloop, name).__module__.startswith("kubeloop.")


def test_it_says_the_same_version_as_every_layer_and_the_distribution() -> None:
    assert kubeloop.__version__ == VERSION == importlib.metadata.version("kubeloop")


def test_a_name_it_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        getattr(kubeloop, "Nonsense")  # noqa: B009 - a type checker would refuse the plain form


def test_importing_it_loads_neither_models_nor_http() -> None:
    code = "import sys, kubeloop; print(*sys.modules, sep='\\n')"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "kubeloop" in loaded
    assert not [name for name in loaded if name.split(".")[0] in ("aiohttp", "msgspec", "rich") or name.startswith("kubeloop.")]
