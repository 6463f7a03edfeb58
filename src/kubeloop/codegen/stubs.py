"""Renders stubs of typed models, which editors and type checkers read instead of the modules, and ``help()`` shows.

A stub adds a link for each type, and for each field the wire name, whether it is required, default and values.
Values are a ``Literal`` in the stub only: at run time the field is a ``str``, because a newer server has more values.
The facts come from the schemas. No description is copied.
"""

from __future__ import annotations

from kubeloop.codegen.models import ModuleRenderer, render_modules
from kubeloop.codegen.naming import class_name
from kubeloop.codegen.types import PythonField
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.schema import Schemas, TypeSchema

_REFERENCE = "https://kubernetes.io/docs/reference/generated/kubernetes-api/v{version}/#{anchor}"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_LINE = 140


def render_stubs(schemas: Schemas) -> dict[str, str]:
    """Return source text by path below the package, ``core/v1.pyi`` and the like; deterministic."""
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
        """Return group and version as in the API reference; None for a type that is not Kubernetes' own."""
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
    """Return the allowed values of a text, or of the texts of a list."""
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
