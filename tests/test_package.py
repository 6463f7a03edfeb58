"""The package as a whole: light to import, and every name it promises is there."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kubeloop
from kubeloop.version import VERSION


@pytest.mark.parametrize("name", [name for name in kubeloop.__all__ if name != "__version__"])
def test_every_name_it_promises_can_be_had(name: str) -> None:
    value = getattr(kubeloop, name)
    assert isinstance(value, str) or value.__module__.startswith("kubeloop.")


_LOADS = """
import importlib, pkgutil, sys, types
package = importlib.import_module(sys.argv[1])
for module in pkgutil.iter_modules(package.__path__):
    importlib.import_module(f"{package.__name__}.{module.name}")
print([name for name in package.__all__ if isinstance(getattr(package, name), types.ModuleType)])
"""


@pytest.mark.parametrize(
    "package",
    [
        "kubeloop",
        "kubeloop.blocking",
        "kubeloop.client.streams",
        "kubeloop.codec",
        "kubeloop.config",
        "kubeloop.controller",
        "kubeloop.controller.webhooks",
        "kubeloop.testing",
    ],
)
def test_a_name_that_a_package_loads_late_is_no_module_of_the_same_name(package: str) -> None:
    """Python stores a submodule as an attribute of its package, and ``__getattr__`` is not called for an attribute that exists."""
    done = subprocess.run([sys.executable, "-c", _LOADS, package], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_it_says_the_same_version_as_every_layer_and_the_distribution() -> None:
    assert kubeloop.__version__ == VERSION == importlib.metadata.version("kubeloop")


@pytest.mark.parametrize(
    ("package", "name", "hint"),
    [
        pytest.param("kubeloop", "HandlerServer", "it is in kubeloop.testing: from kubeloop.testing import HandlerServer", id="elsewhere"),
        pytest.param("kubeloop", "WebhookServer", "it is in kubeloop.controller.webhooks: "
                     "from kubeloop.controller.webhooks import WebhookServer", id="of a package in a package"),
        pytest.param("kubeloop", "ApiServer", "it is in kubeloop.apiserver.server: from kubeloop.apiserver.server import ApiServer",
                     id="of a module that no package promises"),
        pytest.param("kubeloop", "Deployment", "it is in kubeloop.api.apps.v1: from kubeloop.api.apps.v1 import Deployment", id="a model"),
        pytest.param("kubeloop", "Event", "it is in kubeloop.api.core.v1 and kubeloop.api.events.v1 and kubeloop.client: "
                     "from kubeloop.api.core.v1 import Event", id="of several modules"),
        pytest.param("kubeloop", "Cleint", "did you mean Client?", id="misspelt"),
        pytest.param("kubeloop", "HandlerSevrer", "did you mean HandlerServer? It is in kubeloop.testing: "
                     "from kubeloop.testing import HandlerServer",
                     id="of another package and misspelt"),
        pytest.param("kubeloop", "Nonsense", "", id="unknown"),
        pytest.param("kubeloop", "DictError", "", id="like no name"),
        pytest.param("kubeloop", "None_", "", id="a class is not proposed for it, nor a function"),
        pytest.param("kubeloop.testing", "Manager", "it is in kubeloop: from kubeloop import Manager", id="of the package above"),
        pytest.param("kubeloop.testing", "LocalClutser", "did you mean LocalCluster?", id="of testing and misspelt"),
        pytest.param("kubeloop.controller", "TlsTestServer", "it is in kubeloop.testing: from kubeloop.testing import TlsTestServer",
                     id="asked of controller, of testing"),
        pytest.param("kubeloop.controller.webhooks", "Managre", "did you mean Manager? It is in kubeloop: from kubeloop import Manager",
                     id="asked of webhooks, of the top and misspelt"),
        pytest.param("kubeloop.config", "load_confg", "did you mean load_config?", id="of config and misspelt"),
    ],
)  # fmt: skip
def test_a_name_that_a_package_does_not_have_is_an_error_that_says_where_it_is(package: str, name: str, hint: str) -> None:
    text = f"{package} has no name '{name}'" + (f"; {hint}" if hint else "")
    with pytest.raises(ImportError) as of_import:
        exec(f"from {package} import {name}")  # a type checker would refuse it as a statement
    assert str(of_import.value) == text
    module = importlib.import_module(package)
    with pytest.raises(AttributeError) as of_attribute:
        getattr(module, name)
    assert str(of_attribute.value) == text
    assert not hasattr(module, name)


@pytest.mark.parametrize("name", ["__wrapped__", "_private", "testing.LocalCluster", ""])
def test_a_name_that_no_package_promises_is_a_plain_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"^module 'kubeloop' has no attribute '{name}'$"):
        getattr(kubeloop, name)


def test_a_module_can_be_imported_from_the_package_and_is_named_before() -> None:
    code = (
        "import kubeloop\ntry: kubeloop.quota\n"
        "except AttributeError as error: print(error)\nfrom kubeloop import quota; print(quota.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["kubeloop has no name 'quota' yet; load the module first: import kubeloop.quota", "kubeloop.quota"]


@pytest.mark.parametrize("name", ["TlsTestServer", "ApiServer"])
def test_the_hint_names_the_extra_that_is_not_installed(name: str) -> None:
    code = f"import sys; sys.modules['cryptography'] = None; sys.modules['jwt'] = None\nfrom kubeloop import {name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: kubeloop has no name '{name}'; it is in kubeloop.")
    assert last.endswith("which is not installed: pip install 'kubeloop[server]'")


def test_asking_whether_it_has_a_name_imports_no_module_of_that_name() -> None:
    code = "import sys, kubeloop; hasattr(kubeloop, 'PersistentVolumeBinder'); print('kubeloop.controlplane' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_module_that_cannot_be_imported_does_not_hide_where_the_name_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise OSError(f"DLL load failed: {name}")

    monkeypatch.setattr("kubeloop.meta.missing_names.importlib.import_module", fail)
    with pytest.raises(ImportError, match=r"from kubeloop\.testing import HandlerServer$"):
        exec("from kubeloop import HandlerServer")  # a type checker would refuse it as a statement


def test_importing_it_loads_neither_models_nor_http() -> None:
    code = "import sys, kubeloop; print(*sys.modules, sep='\\n')"
    loaded = set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())
    assert "kubeloop" in loaded
    assert [name for name in loaded if name.startswith("kubeloop.")] == ["kubeloop.version"]
    assert not loaded & {"aiohttp", "msgspec", "rich"}


def test_a_logger_is_named_after_its_package_and_not_after_a_module() -> None:
    """``kubeloop.<package>[.<part>]`` (docs/observability.md): names stay when modules move, and one setting is enough for a package."""
    source = Path(kubeloop.__file__).parent
    call = re.compile(r"(?:getLogger|logger_with_context)\(([^)\n]+)\)")
    wrong = []
    for path in source.rglob("*.py"):
        package = path.relative_to(source).parts[0]
        name = re.compile(rf'f?"kubeloop\.{package}(\.[a-z_0-9]+|\.\{{.*)?"?')
        allowed = {'"kubeloop"', '"asyncio"', "name", "_REQUEST_LOG", "name: str", "ELECTION", ""}
        found = call.findall(path.read_text())
        wrong += [f"{path.relative_to(source)}: {text}" for text in found if text not in allowed and not name.fullmatch(text)]
    assert not wrong
