"""Renders a package of models: a module per group version and an index of kinds; or everything in one module."""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Final

from kubeloop.codegen.naming import ModuleName, class_name, module_names
from kubeloop.codegen.typed.docs import Docs
from kubeloop.codegen.typed.formatting import formatted
from kubeloop.codegen.typed.literals import text
from kubeloop.codegen.typed.module import HEADER, ModuleWriter
from kubeloop.codegen.typed.source import ModelSource, references
from kubeloop.meta.errors import ConfigError

_INDEX: Final = '''
from __future__ import annotations

import importlib

from kubeloop.meta import GroupVersionKind, Resource

_MODULES: dict[tuple[str, str], str] = {{
{rows}}}


def find(gvk: GroupVersionKind) -> type[Resource] | None:
    """The class of a kind, from a module that is imported now if it was not before; None for a kind that has none here."""
    module = _MODULES.get((gvk.group, gvk.version))
    if module is None:
        return None
    for found in vars(importlib.import_module(f"{{__name__}}.{{module}}")).values():
        if isinstance(found, type) and issubclass(found, Resource) and (found.api_version, found.kind) == (gvk.api_version, gvk.kind):
            return found
    return None
'''


def render_package(source: ModelSource, *, docs: Docs = "short") -> dict[str, str]:
    """Return source text by path below the package; sorted and deterministic.

    Raises:
        ConfigError: there is no kind to write, or two group versions refer to each other.
    """
    names = _ours(source)
    modules = module_names(names)
    _refuse_circles(source, modules)
    members: dict[ModuleName, list[str]] = {}
    for name in names:
        members.setdefault(modules[name], []).append(name)
    files = {
        f"{'/'.join(module.parts)}.py": ModuleWriter(source, module, modules, docs).render(members[module]) for module in sorted(members)
    }
    for package in sorted({module.package for module in members if module.version}):
        files[f"{package}/__init__.py"] = HEADER.format(what=f"the {package} group, one module for each version")
    files["__init__.py"] = HEADER.format(what="all groups") + _INDEX.format(rows=_rows(source, modules))
    return dict(sorted(formatted(files).items()))


def render_module(source: ModelSource, name: str, *, docs: Docs = "short") -> str:
    """Render all classes into one module called ``name``.

    Raises:
        ConfigError: there is no kind to write, or two classes have one name (two versions of a kind).
    """
    names = _ours(source)
    module = ModuleName(name, "")
    seen: dict[str, str] = {}
    for definition in names:
        other = seen.setdefault(class_name(definition), definition)
        if other != definition:
            raise ConfigError(f"{other} and {definition} would be one class in one module; give --out a folder, or choose with --group")
    rendered = ModuleWriter(source, module, dict.fromkeys(names, module), docs).render(names)
    return formatted({f"{name}.py": rendered})[f"{name}.py"]


def _ours(source: ModelSource) -> list[str]:
    names = sorted(source.ours())
    if not names:
        raise ConfigError("nothing to generate: all of these kinds are in kubeloop.api already (--builtins generates them anyway)")
    return names


def _refuse_circles(source: ModelSource, modules: Mapping[str, ModuleName]) -> None:
    """Refuse modules that import each other. Go's packages never do; those of other generators may."""
    graph: dict[ModuleName, set[ModuleName]] = {}
    for name, module in modules.items():
        others = {modules[ref] for ref in references(source.definitions[name]) if ref in modules}
        graph.setdefault(module, set()).update(others - {module})
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = " -> ".join(".".join(module.parts) for module in error.args[1])
        raise ConfigError(f"group versions refer to each other ({circle}); give --out one module (NAME.py)") from None


def _rows(source: ModelSource, modules: Mapping[str, ModuleName]) -> str:
    table = {(gvk.group, gvk.version): ".".join(modules[name].parts) for name, gvk in sorted(source.kinds.items()) if name in modules}
    return "".join(f"    ({text(group)}, {text(version)}): {text(module)},\n" for (group, version), module in sorted(table.items()))
