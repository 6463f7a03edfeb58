"""Renders one module: imports, then classes, each after the classes that it names where possible."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Final

from kubeloop.codegen.models import ordered
from kubeloop.codegen.naming import ModuleName, class_name, field_names, module_names
from kubeloop.codegen.typed.fields import FieldWriter
from kubeloop.codegen.typed.markers import markers
from kubeloop.codegen.typed.python_text import Docs, call, docstring, formatted, literal, text
from kubeloop.codegen.typed.source import OBJECT_META, ModelSource, references
from kubeloop.codegen.typed.types import TypeNames
from kubeloop.codegen.types import HAND_WRITTEN
from kubeloop.codegen.write import MARK
from kubeloop.meta.errors import ConfigError
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.types import JSONObject

_COLUMN: Final = {"description": "description", "format": "format", "priority": "priority"}
#: Annotations that belong to the installation of a manifest, not to its author.
_NOT_OURS: Final = ("kubectl.kubernetes.io/last-applied-configuration",)


def crd_version(version: JSONObject) -> str:
    """Return the source of the ``declare.CrdVersion`` of a version, or an empty text if all its values are defaults.

    ``version`` is an item of ``spec.versions``, with the whole CustomResourceDefinition under the key ``crd``.
    """
    crd: JSONObject = version["crd"]
    spec = crd["spec"]
    said: list[str] = []
    columns = [_column(column) for column in version.get("additionalPrinterColumns") or ()]
    if columns:
        said.append(f"columns=({', '.join(columns)},)")
    subresources = version.get("subresources") or {}
    if subresources.get("scale"):
        said.append(f"scale={_scale(subresources['scale'])}")
    has_status = subresources.get("status") is not None
    properties = version["schema"]["openAPIV3Schema"].get("properties") or {}
    if has_status != ("status" in properties):
        said.append(f"status={has_status}")
    if not version.get("served", False):
        said.append("served=False")
    if len(spec["versions"]) > 1 and version.get("storage"):
        said.append("storage=True")
    if version.get("deprecated"):
        said.append("deprecated=True")
    if version.get("deprecationWarning"):
        said.append(f"deprecation_warning={literal(version['deprecationWarning'])}")
    fields = [literal(field["jsonPath"]) for field in version.get("selectableFields") or ()]
    if fields:
        said.append(f"selectable_fields=({', '.join(fields)},)")
    if version.get("storage"):
        said += _whole(crd)
    return f"declare.CrdVersion({', '.join(said)})" if said else ""


def _whole(crd: JSONObject) -> list[str]:
    spec, metadata = crd["spec"], crd["metadata"]
    said: list[str] = []
    kind = spec["names"]["kind"]
    if spec["names"].get("listKind", f"{kind}List") != f"{kind}List":
        said.append(f"list_kind={literal(spec['names']['listKind'])}")
    conversion = spec.get("conversion") or {}
    if conversion.get("strategy", "None") != "None":
        said.append(f"conversion={literal(conversion)}")
    for key in ("labels", "annotations"):
        kept = {name: value for name, value in (metadata.get(key) or {}).items() if name not in _NOT_OURS}
        if kept:
            said.append(f"{key}={literal(kept)}")
    return said


def _column(column: JSONObject) -> str:
    named = {name: column[wire] for wire, name in _COLUMN.items() if column.get(wire)}
    type_ = [] if column["type"] == "string" else [literal(column["type"])]
    return call("declare.Column", literal(column["name"]), literal(column["jsonPath"]), *type_, **named)


def _scale(scale: JSONObject) -> str:
    return call(
        "declare.Scale",
        literal(scale["specReplicasPath"]),
        literal(scale["statusReplicasPath"]),
        *([literal(scale["labelSelectorPath"])] if scale.get("labelSelectorPath") else []),
    )


HEADER: Final = f'"""Typed models of {{what}}. {MARK}"""\n'
#: Keywords of a struct's schema that the class and its fields express without markers.
_STRUCT: Final = ("type", "properties", "required", "x-kubernetes-group-version-kind", "x-kubernetes-selectable-fields")
_WIDTH: Final = 100


class ModuleWriter:
    """Renders one module. ``modules`` are the modules of all definitions with a class, including this one's."""

    def __init__(self, source: ModelSource, name: ModuleName, modules: Mapping[str, ModuleName], docs: Docs) -> None:
        """Prepare a module.

        Args:
            source: The definitions and their kinds.
            name: The module's name.
            modules: The module of each definition.
            docs: The form of the docstrings.
        """
        self._source = source
        self._name = name
        self._modules = modules
        self._docs = docs
        self._imports: dict[str, set[str]] = {}
        self._own: set[str] = set()
        self._taken: dict[str, str] = {}
        self._fields = FieldWriter(TypeNames(self._symbol, self._spelt, self._class_of), docs)

    def render(self, definitions: Iterable[str]) -> str:
        """Return the module's text; deterministic."""
        names = list(definitions)
        self._own = {class_name(name) for name in names}
        graph = {name: references(self._source.definitions[name]) for name in names}
        bodies = [self._class(name) for name in ordered(graph)]
        body = "\n\n\n".join("\n".join(lines) for lines in bodies)
        what = ".".join(self._name.parts)
        imports = self._render_imports(uses_msgspec="msgspec." in body)
        return f"{HEADER.format(what=what)}\nfrom __future__ import annotations\n\n{imports}\n\n{body}\n"

    def _render_imports(self, *, uses_msgspec: bool) -> str:
        def lines(modules: Iterable[str]) -> str:
            return "".join(_import(module, sorted(self._imports[module])) for module in sorted(modules))

        blocks = [
            lines(module for module in self._imports if module == "typing"),
            # For users both are third-party packages.
            ("import msgspec\n" if uses_msgspec else "") + lines(module for module in self._imports if module.startswith("kubeloop")),
            lines(module for module in self._imports if module.startswith(".")),
        ]
        return "\n".join(block for block in blocks if block)

    def _spelt(self, module: str, name: str) -> str:
        """Return the local spelling of a name of another module: an alias if a class or an import of this module has the same name."""
        local = f"_{name}" if name in self._own else name
        if self._taken.setdefault(local, module) != module:
            local = "".join(part.title().replace("_", "") for part in module.split(".") if part) + name
        return local

    def _symbol(self, module: str, name: str) -> str:
        local = self._spelt(module, name)
        self._imports.setdefault(module, set()).add(name if local == name else f"{name} as {local}")
        return local

    def _class_of(self, definition: str) -> str:
        if definition in HAND_WRITTEN:
            return self._symbol("kubeloop.meta", HAND_WRITTEN[definition])
        name = class_name(definition)
        module = self._modules.get(definition)
        if module == self._name:
            return name
        if module is not None:
            return self._symbol("." * len(self._name.parts) + ".".join(module.parts), name)
        package, version = definition.rsplit(".", 3)[1:3]
        return self._symbol(f"kubeloop.api.{package}.{version}" if version.startswith("v") else "kubeloop.api.version", name)

    def _class(self, definition: str) -> list[str]:
        node = self._source.definitions[definition]
        gvk = self._source.kinds.get(definition)
        base = self._base(definition, node, gvk)
        lines = [f"class {class_name(definition)}({self._symbol('kubeloop.meta', base)}):"]
        lines += docstring(node.get("description", ""), self._docs, 4)
        if lines[1:]:
            lines.append("")
        head = self._head(definition, node, gvk if base == "Resource" else None)
        if base == "Model" and gvk is not None:  # options and the like: kinds, but no objects
            named = self._symbol("typing", "ClassVar")
            head = [f"    api_version: {named}[str] = {text(gvk.api_version)}", f"    kind: {named}[str] = {text(gvk.kind)}", *head]
        if head:
            lines += [*head, ""]
        strict = definition in self._source.strict
        required = set(node.get("required") or ())
        properties: JSONObject = node.get("properties") or {}
        hidden = _OF_ALL if base == "Resource" else _OF_ALL[:2] if gvk is not None else ()
        visible = [wire for wire in properties if wire not in hidden]
        names = field_names(visible)
        for wire in visible:
            lines += self._fields.field(names[wire], wire, properties[wire], required=wire in required, strict=strict)
        while lines[-1] == "":
            lines.pop()
        if len(lines) == 1:
            lines.append("    pass")
        return lines

    def _base(self, definition: str, node: JSONObject, gvk: GroupVersionKind | None) -> str:
        if definition in self._source.crds:
            return "Resource"
        metadata = (node.get("properties") or {}).get("metadata") or {}
        return "Resource" if gvk is not None and metadata.get("$ref") == OBJECT_META else "Model"

    def _head(self, definition: str, node: JSONObject, gvk: GroupVersionKind | None) -> list[str]:
        """Return the lines of a class before its fields, such as ``__kind_info__``, ``__crd__`` and ``__constraints__``."""
        lines: list[str] = []
        if gvk is not None:
            lines += _assign("__kind_info__", self._kind_info(gvk))
        if definition in self._source.crds:
            said = crd_version(self._source.crds[definition])
            if said:
                self._symbol("kubeloop", "declare")
                lines += _assign("__crd__", said)
        extra = self._constraints(node, is_kind=gvk is not None)
        if extra:
            self._symbol("kubeloop", "declare")
            lines += _assign("__constraints__", f"({', '.join(extra)},)")
        lines += self._metadata(node) if gvk is not None else []
        return lines

    def _constraints(self, node: JSONObject, *, is_kind: bool) -> list[str]:
        rest = {key: value for key, value in node.items() if key not in _STRUCT}
        properties = set(node.get("properties") or ())
        unknown = [wire for wire in node.get("required") or () if wire not in properties or (is_kind and wire in _OF_ALL)]
        if unknown:
            rest["required"] = sorted(node["required"])
        if self._docs != "full":
            rest.pop("title", None)
        return markers({"type": "object", **rest}, {"type": "object"}, "struct")

    def _metadata(self, node: JSONObject) -> list[str]:
        """Return the line of the ``metadata`` field, or no line if its schema has no rules."""
        said = (node.get("properties") or {}).get("metadata") or {}
        extra = markers(
            {key: value for key, value in said.items() if key != "$ref"}, {"type": "object"} if "type" in said else {}, "struct"
        )
        if "$ref" in said or not extra:
            return []
        self._symbol("kubeloop", "declare")
        name = self._symbol("kubeloop.meta", "ObjectMeta")
        annotated = f"{self._symbol('typing', 'Annotated')}[{name}, {', '.join(extra)}]"
        return [f"    metadata: {annotated} = msgspec.field(default_factory={name})"]

    def _kind_info(self, gvk: GroupVersionKind) -> str:
        name = f"{self._symbol('kubeloop.meta', 'GroupVersionKind')}({text(gvk.group)}, {text(gvk.version)}, {text(gvk.kind)})"
        info = self._source.resources.get(gvk)
        kind_info = self._symbol("kubeloop.meta", "KindInfo")
        if info is None:
            return f"{kind_info}({name}, None, None)"
        parts = [name, text(info.gvr.resource), str(info.namespaced), text(info.singular)]
        if info.short_names or info.categories:
            parts.append(_tuple(info.short_names))
        if info.categories:
            parts.append(_tuple(info.categories))
        return f"{kind_info}({', '.join(parts)})"


_OF_ALL: Final = ("apiVersion", "kind", "metadata")


def _import(module: str, names: list[str]) -> str:
    plain, renamed = [name for name in names if " as " not in name], [name for name in names if " as " in name]
    if renamed:  # one per line, as import sorters require
        return (_import(module, plain) if plain else "") + "".join(f"from {module} import {name}\n" for name in renamed)
    line = f"from {module} import {', '.join(names)}\n"
    return line if len(line) <= _WIDTH else f"from {module} import (\n" + "".join(f"    {name},\n" for name in names) + ")\n"


def _assign(name: str, value: str) -> list[str]:
    return [f"    {name} = {value}"]


def _tuple(values: tuple[str, ...]) -> str:
    inner = ", ".join(map(text, values))
    return f"({inner},)" if len(values) == 1 else f"({inner})"


_INDEX: Final = '''
from __future__ import annotations

import importlib

from kubeloop.meta import GroupVersionKind, Resource

_MODULES: dict[tuple[str, str], str] = {{
{rows}}}


def find(gvk: GroupVersionKind) -> type[Resource] | None:
    """Return the class of a kind, and import its module if necessary; None if there is no class for the kind here."""
    module = _MODULES.get((gvk.group, gvk.version))
    if module is None:
        return None
    for found in vars(importlib.import_module(f"{{__name__}}.{{module}}")).values():
        if isinstance(found, type) and issubclass(found, Resource) and (found.api_version, found.kind) == (gvk.api_version, gvk.kind):
            return found
    return None
'''


def render_package(source: ModelSource, *, docs: Docs = "short") -> dict[str, str]:
    """Return the source text of each module by its path below the package; sorted and deterministic.

    Raises:
        ConfigError: There is no kind to write, or two group versions refer to each other.
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
        ConfigError: There is no kind to write, or two classes have one name (two versions of a kind).
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
    names = sorted(source.names_to_generate())
    if not names:
        raise ConfigError("nothing to generate: all of these kinds are in kubeloop.api already (--builtins generates them anyway)")
    return names


def _refuse_circles(source: ModelSource, modules: Mapping[str, ModuleName]) -> None:
    """Raise ConfigError if modules would import each other. Go's packages never do, but definitions of other generators may."""
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
