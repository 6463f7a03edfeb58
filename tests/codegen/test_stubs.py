"""Stubs of models: what editors, type checkers and ``help()`` say of each field."""

from __future__ import annotations

import ast
import importlib
import pydoc
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest

import kubeloop.api
import kubeloop.meta
from kubeloop.api.core.v1 import Container, Pod, PodSpec
from kubeloop.codec import decode
from kubeloop.codegen.models import render, render_stubs
from kubeloop.codegen.naming import class_name
from kubeloop.codegen.types import HAND_WRITTEN, INLINE
from kubeloop.meta import Model, Resource, custom_resource
from kubeloop.schema import builtin

FOLDER = Path(kubeloop.api.__file__).parent
PATHS = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.pyi"))
REFERENCE = re.compile(r"https://kubernetes\.io/docs/reference/generated/kubernetes-api/v1\.\d+/#[a-z0-9]+-v[0-9a-z]+-[-a-z0-9]+")


@cache
def stubs() -> dict[str, str]:
    return render_stubs(builtin())


@cache
def classes(path: str) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in ast.parse(stubs()[path]).body if isinstance(node, ast.ClassDef)}


def texts(cls: ast.ClassDef) -> dict[str, str]:
    """Field to the string below it."""
    pairs = [(one, below) for one, below in zip(cls.body, cls.body[1:], strict=False) if isinstance(one, ast.AnnAssign)]
    found = {
        ast.unparse(one.target): below.value.value
        for one, below in pairs
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
    }
    return {name: str(text) for name, text in found.items()}


def test_the_committed_stubs_are_what_the_generator_makes_of_the_shipped_schemas() -> None:
    assert {path.relative_to(FOLDER).as_posix(): path.read_text() for path in FOLDER.rglob("*.pyi")} == stubs()
    assert {path.removesuffix("i") for path in stubs()} <= set(render(builtin()))


@pytest.mark.parametrize("path", PATHS)
def test_a_stub_has_the_classes_fields_and_types_of_its_module(path: str) -> None:
    module = importlib.import_module(f"kubeloop.api.{path.removesuffix('.pyi').replace('/', '.')}")
    stubs = classes(path)
    models = {
        name: cls
        for name, cls in vars(module).items()
        if isinstance(cls, type) and issubclass(cls, Model) and cls.__module__ == module.__name__
    }
    assert stubs.keys() == models.keys()
    for name, cls in models.items():
        own = {field for field in cls.__struct_fields__ if field not in Resource.__struct_fields__ or not issubclass(cls, Resource)}
        said = texts(stubs[name])
        assert said.keys() == own, name
        wires = dict(zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True))
        assert all(text.startswith(f"Wire name ``{wires[field]}``, ") for field, text in said.items())


def test_each_class_of_a_group_links_to_the_api_reference() -> None:
    docs = {name: ast.get_docstring(cls) or "" for path in stubs() if path != "version.pyi" for name, cls in classes(path).items()}
    assert [name for name, text in docs.items() if not REFERENCE.search(text)] == []
    assert "/#podspec-v1-core" in docs["PodSpec"]
    assert "/#networkpolicy-v1-networking-k8s-io" in docs["NetworkPolicy"]
    assert "/#deleteoptions-v1-meta" in docs["DeleteOptions"]


def test_each_choice_of_the_schemas_is_a_literal_in_the_stub_and_a_text_at_run_time() -> None:
    schemas, found = builtin(), 0
    for definition in schemas.names():
        if definition in HAND_WRITTEN or definition in INLINE:
            continue
        for wire, node in schemas.definition(definition).properties.items():
            values = node.enum or (node.items.enum if node.items is not None else None)
            if not values:
                continue
            found += 1
            *_, version, name = definition.split(".")
            path = next(path for path in stubs() if path.endswith(f"{version}.pyi") and name in classes(path) and of(path, definition))
            (text,) = [text for text in texts(classes(path)[name]).values() if text.startswith(f"Wire name ``{wire}``,")]
            assert all(f"``{value}``" in text or value == "" for value in values), f"{definition}.{wire}: {text}"
    assert found > 90
    assert get_type_hints(PodSpec)["restart_policy"] == str | None
    stub = classes("core/v1.pyi")["PodSpec"]
    annotations = {ast.unparse(one.target): ast.unparse(one.annotation) for one in stub.body if isinstance(one, ast.AnnAssign)}
    assert annotations["restart_policy"] == "Literal['Always', 'Never', 'OnFailure'] | None"


def of(path: str, definition: str) -> bool:
    """Whether a definition belongs to the module at ``path``."""
    return definition.split(".")[-3:-1] == path.removesuffix(".pyi").split("/")


def test_a_value_that_only_a_newer_server_knows_is_read() -> None:
    container = msgspec.json.decode(b'{"name":"a","imagePullPolicy":"Sometimes"}', type=Container)
    assert container.image_pull_policy == "Sometimes"  # type: ignore[comparison-overlap] # which the stub does not know


def test_help_shows_each_field_and_the_reference() -> None:
    text = pydoc.plain(pydoc.render_doc(PodSpec))
    assert "/#podspec-v1-core" in text
    assert "restart_policy: Literal['Always', 'Never', 'OnFailure'] | None\n |          Wire name ``restartPolicy``, optional" in text
    assert "node_name: str | None\n |          Wire name ``nodeName``" in text


HAND_WRITTEN_MODELS = {
    definition: getattr(kubeloop.meta, name)
    for definition, name in HAND_WRITTEN.items()
    if isinstance(cls := getattr(kubeloop.meta, name), type) and issubclass(cls, msgspec.Struct)
}


def summary_of(wire: str, info: msgspec.structs.FieldInfo, required: bool) -> str:
    if required:
        return f"Wire name ``{wire}``, required. "
    default = info.default_factory() if info.default_factory is not msgspec.NODEFAULT else info.default
    absent = (
        "None"
        if default is None
        else str(default)
        if default == 0
        else "empty"
        if default in ("", [], {}, msgspec.Raw(b"{}"))
        else f"``{default}``"
    )
    return f"Wire name ``{wire}``, optional; {absent} if absent. "


@pytest.mark.parametrize(
    ("definition", "cls"), HAND_WRITTEN_MODELS.items(), ids=lambda value: value.__name__ if isinstance(value, type) else ""
)
def test_the_text_of_each_hand_written_field_says_what_the_schema_and_the_class_say(definition: str, cls: type[msgspec.Struct]) -> None:
    node = builtin().definition(definition)
    module = ast.parse(Path(str(sys.modules[cls.__module__].__file__)).read_text())
    source = next(one for one in module.body if isinstance(one, ast.ClassDef) and one.name == cls.__name__)
    said = {name: " ".join(text.split()) for name, text in texts(source).items()}
    fields = {info.encode_name: info for info in msgspec.structs.fields(cls)}
    assert fields.keys() == node.properties.keys()
    assert set(said) == {info.name for info in fields.values()}
    for wire, info in fields.items():
        facts = summary_of(wire, info, wire in node.required)
        assert said[info.name].startswith(facts)
        assert len(said[info.name]) > len(facts), f"{info.name} has no text beyond the facts"
        keys = node.properties[wire].list_map_keys
        assert not keys or re.search(rf"The key of an item is (?:its )?``{keys[0]}``\.", said[info.name])


@pytest.mark.parametrize(
    ("definition", "cls"), HAND_WRITTEN_MODELS.items(), ids=lambda value: value.__name__ if isinstance(value, type) else ""
)
def test_help_of_a_hand_written_model_shows_reference_and_fields(definition: str, cls: type[msgspec.Struct]) -> None:
    text = pydoc.plain(pydoc.render_doc(cls))
    version = ".".join(builtin().version.removeprefix("v").split(".")[:2])
    anchor = f"{class_name(definition).lower()}-v1-meta"
    assert f"https://kubernetes.io/docs/reference/generated/kubernetes-api/v{version}/#{anchor}\n" in text
    for info in msgspec.structs.fields(cls):
        assert re.search(rf"^ \|      {info.name}: .+\n \|          Wire name ``{info.encode_name}``, ", text, re.MULTILINE), info.name


def test_help_shows_a_field_that_a_kind_has_from_its_base() -> None:
    assert "    metadata: ObjectMeta\n        Wire name ``metadata``, optional; empty if absent. Name, version" in str(Pod.__doc__)


class Described(Model):
    """Has a docstring."""

    image: str
    """The image
    that runs."""
    size: int = 4


def test_help_shows_the_strings_below_the_fields_of_a_users_class() -> None:
    assert str(Described.__doc__).splitlines() == [
        "Has a docstring.",
        "",
        "Fields:",
        "    image: str",
        "        Wire name ``image``, required. The image that runs.",
        "    size: int",
        "        Wire name ``size``, optional; 4 if absent.",
    ]


class Spec(Model):
    image: str
    node_name: str | None = None
    size: int = 4


@custom_resource("example.com/v1", plural="documented")
class Documented(Resource):
    """Has its own docstring."""

    spec: Spec


def test_a_model_without_a_docstring_says_its_fields_and_a_docstring_stays() -> None:
    cls: Any = Spec
    assert cls.__doc__.splitlines() == [
        "Spec.",
        "",
        "Fields:",
        "    image: str",
        "        Wire name ``image``, required.",
        "    node_name: str | None",
        "        Wire name ``nodeName``, optional.",
        "    size: int",
        "        Wire name ``size``, optional; 4 if absent.",
    ]
    assert Documented.__doc__ == "Has its own docstring."
    assert decode(Documented, b'{"apiVersion":"example.com/v1","kind":"Documented"}').__doc__ == Documented.__doc__


def test_an_import_reads_no_stub() -> None:
    code = "import sys, kubeloop.api.core.v1; print('kubeloop.meta.repr' in sys.modules, 'kubeloop.meta.construction' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False False\n"
