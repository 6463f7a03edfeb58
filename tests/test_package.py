"""The package as a whole: light to import, and every name it promises is there."""

from __future__ import annotations

import subprocess
import sys

import pytest

import kubeloop


@pytest.mark.parametrize("name", [name for name in kubeloop.__all__ if name != "__version__"])
def test_every_name_it_promises_can_be_had(name: str) -> None:
    assert getattr(kubeloop, name).__module__.startswith("kubeloop.")


def test_a_name_it_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        _ = kubeloop.Nonsense  # type: ignore[attr-defined]  # the point of the test


def test_importing_it_loads_neither_models_nor_http() -> None:
    code = "import sys, kubeloop; print(*sys.modules, sep='\\n')"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "kubeloop" in loaded
    assert not [name for name in loaded if name.split(".")[0] in ("aiohttp", "msgspec", "rich") or name.startswith("kubeloop.")]
