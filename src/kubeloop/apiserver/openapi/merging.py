"""Swagger documents of other servers taken into this server's own: their paths, and the definitions and parameters that these use.

Source: kube-openapi pkg/aggregator (FilterSpecByPaths, MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

from kubeloop.apiserver.aggregation.api_services import ApiServiceTable
from kubeloop.types import JSONObject

_LOG = logging.getLogger("kubeloop.apiserver.openapi")


_REF: Final = "$ref"
_SECTIONS: Final = ("definitions", "parameters")
_KINDS: Final = "x-kubernetes-group-version-kind"


def with_others(own: JSONObject, table: ApiServiceTable) -> JSONObject:
    """``own`` with what the table's servers describe, as a new tree. A document that makes no sense is left out, and logged."""
    merged = {**own, **{section: dict(own.get(section) or {}) for section in ("paths", *_SECTIONS)}}
    for service in sorted(table.remote(), key=lambda one: one.name):
        document = table.swagger.get(service.name)
        if document is None:
            continue
        try:
            _merge(merged, document, service.path)
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as fault:
            _LOG.warning("OpenAPI v2 of APIService %s: %s %s", service.name, type(fault).__name__, fault)
    return {**merged, **{section: dict(sorted(merged[section].items())) for section in ("paths", "definitions")}}


def _merge(merged: JSONObject, document: JSONObject, path: str) -> None:
    wanted = {name: item for name, item in document["paths"].items() if name == path or name.startswith(f"{path}/")}
    found: dict[str, JSONObject] = {section: {} for section in _SECTIONS}
    waiting = [wanted]
    while waiting:
        for section, name in _references(waiting.pop()):
            if name not in found[section]:
                found[section][name] = document[section][name]
                waiting.append(found[section][name])
    used = [(section, name, tree) for section in _SECTIONS for name, tree in found[section].items()]
    renamed = {f"#/{section}/{name}": f"#/{section}/{_free(merged[section], name, tree)}" for section, name, tree in used}
    for section, name, tree in used:
        merged[section].setdefault(renamed[f"#/{section}/{name}"].rpartition("/")[2], _pointing(tree, renamed))
    for name, item in wanted.items():
        merged["paths"].setdefault(name, _pointing(item, renamed))


def _free(taken: JSONObject, name: str, tree: Any) -> str:
    """A name under which ``tree`` stands already, or can."""
    shown, number = name, 1
    while shown in taken and _bare(taken[shown]) != _bare(tree):
        number += 1
        shown = f"{name}_v{number}"
    return shown


def _bare(tree: Any) -> Any:
    """What a definition says, without how it says it, and of which kinds."""
    if isinstance(tree, dict):
        return {name: _bare(value) for name, value in tree.items() if name not in ("description", _KINDS)}
    return [_bare(one) for one in tree] if isinstance(tree, list) else tree


def _references(tree: Any) -> Iterator[tuple[str, str]]:
    if isinstance(tree, dict):
        reference = tree.get(_REF)
        if isinstance(reference, str) and reference.startswith("#/"):
            _, section, name = reference.split("/", 2)
            if section not in _SECTIONS:
                raise ValueError(f"a reference to {reference}")
            yield section, name
        for value in tree.values():
            yield from _references(value)
    elif isinstance(tree, list):
        for one in tree:
            yield from _references(one)


def _pointing(tree: Any, renamed: dict[str, str]) -> Any:
    if isinstance(tree, dict):
        return {
            name: renamed[value] if name == _REF and isinstance(value, str) and value in renamed else _pointing(value, renamed)
            for name, value in tree.items()
        }
    return [_pointing(one, renamed) for one in tree] if isinstance(tree, list) else tree
