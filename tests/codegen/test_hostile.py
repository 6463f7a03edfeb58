"""Whatever a cluster's definitions hold, generated modules hold it as data: no code of theirs runs, no file lies elsewhere."""

from __future__ import annotations

import ast
from pathlib import PurePosixPath
from typing import Any

import pytest

from kubeloop.codegen.typed import Docs, render_package, source_of_crd
from tests.codegen.schemas import crd_of

HOSTILE = (
    '"""\nimport os\nos.system("x")\n"""',
    "'; import os; os.system('x') #",
    '"); import os  # \\',
    "\\",
    "../../etc/passwd",
    "a\nimport os",
    "{0}{1}%s\x00\u2028",
    '"' * 7 + "'''",
)
ALLOWED = {"__future__", "importlib", "kubeloop", "msgspec", "typing"}


def with_everywhere(tree: Any, text: str) -> Any:
    """The same tree with ``text`` in place of every string that is no word of the schema language."""
    words = {"v1", "string", "object", "array", "integer", "Namespaced", "CustomResourceDefinition", "apiextensions.k8s.io/v1"}
    if isinstance(tree, dict):
        named = {"PROPERTY": text}
        return {named.get(key, key): with_everywhere(value, text) for key, value in tree.items()}
    if isinstance(tree, list):
        return [with_everywhere(one, text) for one in tree]
    return text if isinstance(tree, str) and tree not in words else tree


@pytest.mark.parametrize("docs", ["short", "full"])
@pytest.mark.parametrize("text", HOSTILE)
def test_strings_stay_strings(text: str, docs: Docs) -> None:
    spec = {
        "type": "object",
        "description": "TEXT",
        "required": ["TEXT"],
        "x-kubernetes-validations": [{"rule": "TEXT", "message": "TEXT"}],
        "properties": {
            "PROPERTY": {
                "type": "object",
                "description": "TEXT",
                "properties": {"PROPERTY": {"type": "string", "enum": ["TEXT", "other"]}},
            },
            "plain": {"type": "string", "default": "TEXT", "pattern": "TEXT", "format": "TEXT", "title": "TEXT", "description": "TEXT"},
            "list": {"type": "array", "items": {"type": "object", "properties": {"PROPERTY": {"type": "integer"}}}, "default": ["TEXT"]},
        },
    }
    crd = with_everywhere(crd_of(spec, {"type": "object"}), text)
    crd["spec"]["versions"][0] |= {"deprecated": True, "deprecationWarning": text, "selectableFields": [{"jsonPath": text}]}
    crd["spec"]["versions"][0]["additionalPrinterColumns"] = [{"name": text, "type": text, "jsonPath": text}]
    crd["metadata"]["labels"] = {text: text}
    files = render_package(source_of_crd(crd, "hostile"), docs=docs)
    for path, module in files.items():
        assert all(part.isidentifier() for part in PurePosixPath(path).with_suffix("").parts)
        tree = ast.parse(module)
        names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
        names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level]
        assert {name.partition(".")[0] for name in names} <= ALLOWED
        assert "os" not in {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        compile(module, path, "exec")
