"""Renders typed models: one module per group version, classes ordered so that every name is defined before its use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from kubeloop.codegen.naming import ModuleName, camel_case, class_name, field_names, module_names
from kubeloop.codegen.types import ALWAYS_SENT, HAND_WRITTEN, INLINE, PythonField, TypeMapper
from kubeloop.codegen.write import MARK
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.schema import ResourceInfo, Schemas, TypeSchema

_HEADER = f'"""Typed models of {{what}}. {MARK}"""\n'
_OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_META_MODULE = ModuleName("meta", "v1")
_META_NAMES = {*HAND_WRITTEN.values(), "Any", "ClassVar", "GroupVersionKind", "KindInfo", "Model", "Resource"}
_LINE = 140


def render(schemas: Schemas) -> dict[str, str]:
    """Return the source text of each module by its path below the package, such as ``core/v1.py``; sorted and deterministic."""
    modules = _modules(schemas)
    files = render_modules(schemas, ModuleRenderer)
    for package in sorted({module.package for module in modules.values() if module.version}):
        files[f"{package}/__init__.py"] = _HEADER.format(what=f"the {package} group, one module for each version")
    files["__init__.py"] = _render_index(schemas, modules)
    return dict(sorted(files.items()))


def render_modules(schemas: Schemas, renderer: type[ModuleRenderer]) -> dict[str, str]:
    """Render the definitions of each module; return texts by path below the package, sorted."""
    modules = _modules(schemas)
    resources = {info.gvk: info for info in schemas.all_resources()}
    members: dict[ModuleName, list[str]] = {}
    for name, module in modules.items():
        members.setdefault(module, []).append(name)
    return {
        "/".join(module.parts) + ".py": renderer(schemas, module, modules, resources).render(members[module]) for module in sorted(members)
    }


def _modules(schemas: Schemas) -> dict[str, ModuleName]:
    return module_names([name for name in schemas.names() if name not in HAND_WRITTEN and name not in INLINE])


def _render_index(schemas: Schemas, modules: dict[str, ModuleName]) -> str:
    table: dict[tuple[str, str], str] = {}
    for gvk, name in schemas.kinds():
        if name in modules and _is_resource(schemas.definition(name)):
            table.setdefault((gvk.group, gvk.version), ".".join(modules[name].parts))
    rows = "".join(f'    ("{group}", "{version}"): "{module}",\n' for (group, version), module in sorted(table.items()))
    return (
        _HEADER.format(what="all groups")
        + "\nfrom __future__ import annotations\n\nimport importlib\n\n"
        + "from kubeloop.meta import GroupVersionKind, Resource\n\n"
        + f"_MODULES: dict[tuple[str, str], str] = {{\n{rows}}}\n\n\n"
        + "def find(gvk: GroupVersionKind) -> type[Resource] | None:\n"
        + '    """Return the class of a kind, and import its module if necessary; None if there is no class for the kind here."""\n'
        + "    module = _MODULES.get((gvk.group, gvk.version))\n"
        + "    if module is None:\n        return None\n"
        + '    found = getattr(importlib.import_module(f"{__name__}.{module}"), gvk.kind, None)\n'
        + "    return found if isinstance(found, type) and issubclass(found, Resource) else None\n"
    )


class ModuleRenderer:
    """Renders one module."""

    def __init__(
        self, schemas: Schemas, name: ModuleName, modules: dict[str, ModuleName], resources: dict[GroupVersionKind, ResourceInfo]
    ) -> None:
        """Prepare a module.

        Args:
            schemas: The definitions.
            name: The module's name.
            modules: The module of each definition.
            resources: The resource of each kind that has one.
        """
        self._schemas = schemas
        self._name = name
        self._modules = modules
        self._resources = resources
        self._imports: dict[str, set[str]] = {}
        self._names: dict[str, str] = {}
        self._defined: set[str] = set()
        self._forward = False
        self._types = TypeMapper(schemas, self._use)

    def render(self, definitions: list[str]) -> str:
        self._names = {class_name(definition): definition for definition in definitions}
        bodies = []
        for definition in _ordered(self._schemas, definitions):
            bodies.append(self._class(definition))
            self._defined.add(definition)
        text = "\n\n".join(bodies)
        for used in ("ClassVar", "Any"):
            if f"{used}[" in text or (used == "Any" and "Any" in text):
                self._import("typing", used)
        what = ".".join(self._name.parts)
        if self._name == _META_MODULE:
            for name in sorted(set(HAND_WRITTEN.values())):
                self._import("kubeloop.meta", f"{name} as {name}")
        return f"{_HEADER.format(what=what)}\n{self._render_imports('msgspec.' in text)}\n\n{text}"

    def _render_imports(self, msgspec: bool) -> str:
        def line(module: str) -> str:
            names = sorted(self._imports[module])
            text = f"from {module} import {', '.join(names)}\n"
            return text if len(text) <= _LINE else f"from {module} import (\n" + "".join(f"    {name},\n" for name in names) + ")\n"

        blocks = [
            "".join(line(module) for module in sorted(self._imports) if module == "typing"),
            "import msgspec\n" if msgspec else "",
            "".join(line(module) for module in sorted(self._imports) if module != "typing" and not module.startswith(".")),
            "".join(line(module) for module in sorted(self._imports) if module.startswith(".")),
        ]
        return "\n".join(block for block in blocks if block)

    def _import(self, module: str, name: str) -> None:
        self._imports.setdefault(module, set()).add(name)

    def _use(self, definition: str) -> str:
        """Return the Python name of a definition, importing it if it is in another module; record uses before definition."""
        if definition in HAND_WRITTEN:
            self._import("kubeloop.meta", HAND_WRITTEN[definition])
            return HAND_WRITTEN[definition]
        name = class_name(definition)
        module = self._modules[definition]
        if module == self._name:
            self._forward |= definition not in self._defined
            return name
        # Two modules may have classes of one name (two groups' ObjectReference): the first has it, others get their module as prefix.
        local = name
        if self._names.setdefault(local, definition) != definition or local in _META_NAMES:
            local = f"{''.join(part.title() for part in module.parts)}{name}"
        self._import("." * len(self._name.parts) + ".".join(module.parts), name if local == name else f"{name} as {local}")
        return local

    def _class(self, definition: str) -> str:
        node = self._schemas.definition(definition)
        gvk = GroupVersionKind(**node.kinds[0]) if node.kinds else None
        if gvk is not None and _is_resource(node):
            base, hidden = "Resource", {"apiVersion", "kind", "metadata"}
        else:
            base, hidden = "Model", {"apiVersion", "kind"} if gvk is not None else set()
        self._import("kubeloop.meta", base)
        lines = [f"class {class_name(definition)}({base}):", *self._class_lines(definition, base, node, gvk)]
        visible = [wire for wire in node.properties if wire not in hidden]
        names = field_names(visible)
        for wire in sorted(visible, key=names.__getitem__):
            always = wire in ALWAYS_SENT.get(definition, ())
            lines.append(self._field(names[wire], wire, node.properties[wire], wire in node.required, always=always))
        if len(lines) == 1:
            lines.append("    pass")
        return "\n".join(lines) + "\n"

    def _class_lines(self, definition: str, base: str, node: TypeSchema, gvk: GroupVersionKind | None) -> list[str]:  # noqa: ARG002
        """Return the lines of the class before its fields; ``definition`` is for stubs."""
        lines: list[str] = []
        if base == "Resource" and gvk is not None:
            self._import("kubeloop.meta", "KindInfo")
            self._import("kubeloop.meta", "GroupVersionKind")
            lines.append(f"    __kind_info__ = {self._kind_info(gvk)}")
        elif gvk is not None:
            lines.append(f'    api_version: ClassVar[str] = "{gvk.api_version}"')
            lines.append(f'    kind: ClassVar[str] = "{gvk.kind}"')
        keys = {wire: keys for wire, child in sorted(node.properties.items()) if (keys := _list_keys(child))}
        if keys:
            rows = ", ".join(f'"{wire}": {_tuple(names)}' for wire, names in keys.items())
            lines.append(f"    __list_keys__ = {{{rows}}}")
        return lines

    def _kind_info(self, gvk: GroupVersionKind) -> str:
        name = f'GroupVersionKind("{gvk.group}", "{gvk.version}", "{gvk.kind}")'
        info = self._resources.get(gvk)
        if info is None:
            return f"KindInfo({name}, None, None)"
        parts = [name, f'"{info.gvr.resource}"', str(info.namespaced), f'"{info.singular}"']
        if info.short_names or info.categories:
            parts.append(_tuple(info.short_names))
        if info.categories:
            parts.append(_tuple(info.categories))
        return f"KindInfo({', '.join(parts)})"

    def _field(self, name: str, wire: str, node: TypeSchema, required: bool, *, always: bool = False) -> str:
        self._forward = False
        field = self._types.field(node, required=required)
        if always:
            # msgspec leaves out a value that is identical to the default, but not a value that equals a factory's result.
            field = PythonField(field.annotation, field.annotation, factory=True)
        annotation = f'"{field.annotation}"' if self._forward else field.annotation
        arguments = [f"default_factory={field.default}" if field.factory else f"default={field.default}"]
        if field.default in ("[]", "{}"):
            arguments = [f"default_factory={'list' if field.default == '[]' else 'dict'}"]
        if camel_case(name) != wire:
            arguments.append(f'name="{wire}"')
        if len(arguments) == 1 and not field.factory:
            return f"    {name}: {annotation} = {field.default}"
        return f"    {name}: {annotation} = msgspec.field({', '.join(arguments)})"


def _is_resource(node: TypeSchema) -> bool:
    """Return whether a definition is a kind with an ObjectMeta; lists and options are kinds too, but not objects."""
    metadata = node.properties.get("metadata")
    return bool(node.kinds) and metadata is not None and metadata.ref == _OBJECT_META


def _tuple(values: tuple[str, ...]) -> str:
    inner = ", ".join(f'"{value}"' for value in values)
    return f"({inner},)" if len(values) == 1 else f"({inner})"


def _list_keys(node: TypeSchema) -> tuple[str, ...]:
    if node.list_map_keys:
        return node.list_map_keys
    return (node.patch_merge_key,) if node.patch_merge_key and "merge" in node.patch_strategy else ()


def _ordered(schemas: Schemas, definitions: Iterable[str]) -> list[str]:
    return ordered({name: _references(schemas.definition(name)) for name in definitions})


def ordered(references: Mapping[str, set[str]]) -> list[str]:
    """Sort names alphabetically, but each after the names that it refers to. A cycle is broken at its first name."""
    graph = {name: {ref for ref in references[name] if ref in references and ref != name} for name in sorted(references)}
    while True:
        try:
            sorter = TopologicalSorter(graph)
            sorter.prepare()
        except CycleError as error:
            cycle: list[str] = error.args[1]
            first = min(range(len(cycle) - 1), key=cycle.__getitem__)
            # graphlib lists a cycle in the order "is needed by".
            graph[cycle[first + 1]].discard(cycle[first])
            continue
        order: list[str] = []
        while sorter.is_active():
            ready = sorted(sorter.get_ready())
            order += ready
            sorter.done(*ready)
        return order


def _references(node: TypeSchema) -> set[str]:
    if node.ref in INLINE:
        return {part.partition("}")[0] for part in INLINE[node.ref].split("{")[1:]}
    found = {node.ref} if node.ref else set()
    for child in (*node.properties.values(), node.items, node.values):
        if child is not None:
            found |= _references(child)
    return found


# Renders stubs of typed models, which editors and type checkers read instead of the modules, and ``help()`` shows.
#
# A stub adds a link for each type, and for each field the wire name, whether it is required, default and values. Values are a ``Literal``
# in the stub only: at run time the field is a ``str``, because a newer server has more values. The facts come from the schemas. No
# description is copied.


_REFERENCE = "https://kubernetes.io/docs/reference/generated/kubernetes-api/v{version}/#{anchor}"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."


def render_stubs(schemas: Schemas) -> dict[str, str]:
    """Return the source text of each stub by its path below the package, such as ``core/v1.pyi``; deterministic."""
    return {path.replace(".py", ".pyi"): text for path, text in render_modules(schemas, _StubRenderer).items()}


class _StubRenderer(ModuleRenderer):
    """Renders one stub."""

    def _class_lines(self, definition: str, base: str, node: TypeSchema, gvk: GroupVersionKind | None) -> list[str]:  # noqa: ARG002
        lines = [f'    """{self._class_text(definition, gvk)}"""']
        if base != "Resource" and gvk is not None:
            lines += [f'    api_version: ClassVar[str] = "{gvk.api_version}"', f'    kind: ClassVar[str] = "{gvk.kind}"']
        return lines

    def _class_text(self, definition: str, gvk: GroupVersionKind | None) -> str:
        name = class_name(definition)
        group_version = self._group_version(definition)
        if not group_version:
            return f"{name}."
        group, version = group_version
        what = f"{name} of {group}/{version}." if group not in ("core", "meta") else f"{name} of {group} {version}."
        if gvk is not None and gvk.kind != name:
            what = f"{what} Its kind is {gvk.kind}."
        major = ".".join(self._schemas.version.removeprefix("v").split(".")[:2])
        anchor = f"{name.lower()}-{version}-{group.replace('.', '-')}"
        return f"{what}\n\n    {_REFERENCE.format(version=major, anchor=anchor)}\n    "

    def _group_version(self, definition: str) -> tuple[str, str] | None:
        """Return group and version as in the API reference, or None for a type that does not belong to Kubernetes."""
        if not definition.startswith("io.k8s.") or not self._schemas.version:
            return None
        if definition.startswith(_META):
            return "meta", "v1"
        return next(
            ((gvk.group or "core", gvk.version) for gvk, name in self._schemas.kinds() if self._modules.get(name) == self._name), None
        )

    def _field(self, name: str, wire: str, node: TypeSchema, required: bool, *, always: bool = False) -> str:  # noqa: ARG002 - of the base
        self._forward = False
        field = self._types.field(node, required=required)
        plain = self._types.type_of(node)
        choices = _choices(node)
        annotation = field.annotation
        if choices:
            self._import("typing", "Literal")
            annotation = annotation.replace("str", f"Literal[{', '.join(map(_quoted, choices))}]", 1) if "str" in plain else annotation
        line = f"    {name}: {annotation} = ..."
        if len(line) > _LINE and choices:
            values = "".join(f"        {_quoted(choice)},\n" for choice in choices)
            before, _, after = annotation.partition("Literal[")
            line = f"    {name}: {before}Literal[\n{values}    ]{after.partition(']')[2]} = ..."
        return f'{line}\n    """{_field_text(wire, node, field, required, choices)}"""'


def _choices(node: TypeSchema) -> list[str]:
    """Return the allowed values of a string, or of the strings in a list; empty if all values are allowed."""
    found = (node.enum or (node.items.enum if node.items is not None else None)) or []
    return [choice for choice in found if isinstance(choice, str)]


def _field_text(wire: str, node: TypeSchema, field: PythonField, required: bool, choices: list[str]) -> str:
    facts = [f"Wire name ``{wire}``, {'required' if required else 'optional'}"]
    if not required:
        facts[0] += f"; {_absent(field)} if absent"
    if node.has_default and node.default and isinstance(node.default, str | int | float | bool):
        facts.append(f"The server's default: ``{node.default}``")
    if choices:
        facts.append(f"One of {', '.join(_shown(choice) for choice in choices)}")
    if node.list_map_keys:
        facts.append(f"The key of an item is {', '.join(f'``{key}``' for key in node.list_map_keys)}")
    return ". ".join(facts) + "."


def _absent(field: PythonField) -> str:
    if field.factory or field.default in ("[]", "{}", '""', 'b""'):
        return "empty"
    return field.default


def _shown(choice: str) -> str:
    return f"``{choice}``" if choice else "the empty text"


def _quoted(choice: str) -> str:
    return f'"{choice}"'
