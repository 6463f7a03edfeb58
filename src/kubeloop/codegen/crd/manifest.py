"""Converts classes to CustomResourceDefinitions: one per group and plural, each version from one class."""

from __future__ import annotations

import copy
import re
import typing
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from kubeloop.apiserver.crd import definition as defaults
from kubeloop.apiserver.crd import validation
from kubeloop.codec.yaml import write_yaml
from kubeloop.declare import Column, CrdVersion, Scale, crd_version
from kubeloop.meta.errors import ConfigError
from kubeloop.meta.field_error import FieldError
from kubeloop.meta.kinds import GroupResource
from kubeloop.meta.resource import KindInfo, Resource, kind_info
from kubeloop.schema.classes import schema_of
from kubeloop.types import JSONObject

_VERSION = re.compile(r"^v(\d+)(?:(alpha|beta)(\d+))?$")


class Definition(NamedTuple):
    """A CustomResourceDefinition as a tree, and its classes in the order of its versions."""

    document: JSONObject
    classes: tuple[type[Resource], ...]

    @property
    def name(self) -> str:
        name: str = self.document["metadata"]["name"]
        return name


def definitions_of(classes: Iterable[type[Resource]], *, descriptions: bool = True) -> list[Definition]:
    """Return a definition for each kind among ``classes``, by name; versions newest and most stable first, as discovery ranks them.

    Raises:
        ConfigError: Classes of one kind contradict each other, none or several of them are storage versions, or a type has no schema;
            the text names the class.
    """
    kinds: dict[GroupResource, list[type[Resource]]] = {}
    for cls in classes:
        kinds.setdefault(kind_info(cls).gvr.group_resource, []).append(cls)
    return [_definition(resource, members, descriptions) for resource, members in sorted(kinds.items(), key=lambda item: str(item[0]))]


def to_yaml(definitions: Iterable[Definition]) -> str:
    """Return the definitions as YAML documents, ready for ``kubectl apply``."""
    return write_yaml(*(definition.document for definition in definitions))


def _definition(resource: GroupResource, members: list[type[Resource]], descriptions: bool) -> Definition:
    classes = tuple(sorted(members, key=lambda cls: _rank(kind_info(cls).gvk.version), reverse=True))
    infos = {cls: kind_info(cls) for cls in classes}
    first = infos[classes[0]]
    for cls, info in infos.items():
        for what in ("namespaced", "singular", "short_names", "categories"):
            if getattr(info, what) != getattr(first, what):
                raise ConfigError(
                    f"{_name(cls)}: {what} is {getattr(info, what)!r}, but {_name(classes[0])} of the same kind "
                    f"says {getattr(first, what)!r}; they apply to all versions"
                )
        if info.gvk.kind != first.gvk.kind:
            raise ConfigError(f"{_name(cls)}: kind {info.gvk.kind} for {resource}, which {_name(classes[0])} calls {first.gvk.kind}")
    versions = [info.gvk.version for info in infos.values()]
    for version in versions:
        if versions.count(version) > 1:
            raise ConfigError(f"{resource}: {version} is declared twice: {', '.join(_name(cls) for cls in classes)}")
    said = {cls: crd_version(cls) for cls in classes}
    stored = _stored(resource, said)
    whole = said[stored]
    metadata: JSONObject = {"name": f"{resource.resource}.{resource.group}"}
    for key in ("annotations", "labels"):
        if getattr(whole, key):
            metadata[key] = dict(getattr(whole, key))
    spec: JSONObject = {
        "group": resource.group,
        "names": _names(first, whole),
        "scope": "Namespaced" if first.namespaced else "Cluster",
        "versions": [_version(cls, said[cls], cls is stored, descriptions) for cls in classes],
    }
    if whole.conversion:
        spec["conversion"] = dict(whole.conversion)
    document = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata, "spec": spec}
    return Definition(document, classes)


def _stored(resource: GroupResource, declarations: dict[type[Resource], CrdVersion]) -> type[Resource]:
    if len(declarations) == 1:
        return next(iter(declarations))
    stored = [cls for cls, version in declarations.items() if version.storage]
    if len(stored) != 1:
        found = " and ".join(_name(cls) for cls in stored) or "none"
        raise ConfigError(
            f"{resource}: exactly one of its versions is stored, here: {found}; "
            f"set @crd(storage=True) on one of {', '.join(map(_name, declarations))}"
        )
    return stored[0]


def _names(info: KindInfo, declaration: CrdVersion) -> JSONObject:
    kind = info.gvk.kind
    names: JSONObject = {"kind": kind, "listKind": declaration.list_kind or f"{kind}List", "plural": info.plural, "singular": info.singular}
    if info.short_names:
        names["shortNames"] = list(info.short_names)
    if info.categories:
        names["categories"] = list(info.categories)
    return names


def _version(cls: type[Resource], declaration: CrdVersion, stored: bool, descriptions: bool) -> JSONObject:
    version: JSONObject = {"name": kind_info(cls).gvk.version, "served": declaration.served, "storage": stored}
    if declaration.deprecated:
        version["deprecated"] = True
    if declaration.deprecation_warning:
        version["deprecationWarning"] = declaration.deprecation_warning
    if declaration.columns:
        version["additionalPrinterColumns"] = [_column(column) for column in declaration.columns]
    if declaration.selectable_fields:
        version["selectableFields"] = [{"jsonPath": path} for path in declaration.selectable_fields]
    subresources: JSONObject = {}
    if (
        declaration.status
        if declaration.status is not None
        else any(field.encode_name == "status" for field in msgspec.structs.fields(cls))
    ):
        subresources["status"] = {}
    if declaration.scale is not None:
        subresources["scale"] = _scale(declaration.scale)
    if subresources:
        version["subresources"] = subresources
    version["schema"] = {"openAPIV3Schema": schema_of(cls, descriptions=descriptions)}
    return version


def _column(column: Column) -> JSONObject:
    said: JSONObject = {"name": column.name, "type": column.type, "jsonPath": column.json_path}
    for key in ("description", "format", "priority"):
        if getattr(column, key):
            said[key] = getattr(column, key)
    return said


def _scale(scale: Scale) -> JSONObject:
    said = {"specReplicasPath": scale.spec_replicas, "statusReplicasPath": scale.status_replicas}
    if scale.label_selector:
        said["labelSelectorPath"] = scale.label_selector
    return said


def _rank(version: str) -> tuple[int, int, int, str]:
    """Return the sort key of discovery's order: GA over beta over alpha, then higher numbers; other names last.

    Source: k8s.io/apimachinery pkg/version CompareKubeAwareVersionStrings.
    """
    match = _VERSION.match(version)
    if match is None:
        return (0, 0, 0, version)
    stage = {"alpha": 1, "beta": 2}.get(match[2] or "", 3)
    return (stage, int(match[1]), int(match[3] or 0), version)


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


_SCHEMA = re.compile(r"^spec\.(?:versions\[(\d+)\]\.schema|validation)\.openAPIV3Schema(.*)$")
_VERSION_INDEX = re.compile(r"^spec\.versions\[(\d+)\]")
_STEP = re.compile(r"\.properties\[([^\]]+)\]|\.(items|additionalProperties)\b(?!\[)")


def check_definition(definition: Definition) -> list[str]:
    """Return the faults for which a server would refuse the definition, one line each: ``module.Class.field: fault``.

    CEL rules are compiled and their cost is estimated.
    """
    faults = _faults(copy.deepcopy(definition.document))
    return list(dict.fromkeys(f"{_blamed(definition, fault.field)}: {fault.body} ({fault.field})" for fault in faults))


def version_warnings(definition: Definition) -> list[str]:
    """Return fields that one served version declares and another does not, one line each, where no webhook converts.

    A server accepts such a definition. A write in the other version drops the field, and while field managers use both versions, a
    server-side apply of the field is answered with 500 ``field not declared in schema``.
    """
    spec = definition.document["spec"]
    if (spec.get("conversion") or {}).get("strategy", "None") != "None":
        return []
    served = [(version["name"], version["schema"]["openAPIV3Schema"]) for version in spec["versions"] if version.get("served")]
    return [
        f"{definition.name}: version {name} declares {path} and version {other} does not: a write in {other} drops it, and "
        f"server-side apply in both versions fails with 500; declare it in {other} too, or convert with a webhook "
        "(kubeloop generate crd --webhooks)"
        for name, schema in served
        for other, other_schema in served
        if name != other
        for path in _undeclared(schema, other_schema, "")
    ]


def _undeclared(schema: JSONObject, other: JSONObject, path: str) -> Iterator[str]:
    """Yield the paths of the outermost fields of ``schema`` that ``other`` would prune."""
    if other.get("x-kubernetes-preserve-unknown-fields"):
        return
    declared = other.get("properties") or {}
    for name, below in (schema.get("properties") or {}).items():
        if name in declared:
            yield from _undeclared(below, declared[name], f"{path}.{name}")
        elif not other.get("additionalProperties"):
            yield f"{path}.{name}"
    for keyword, step in (("items", "[]"), ("additionalProperties", "[*]")):
        inner, other_inner = schema.get(keyword), other.get(keyword)
        if isinstance(inner, dict) and isinstance(other_inner, dict):
            yield from _undeclared(inner, other_inner, f"{path}{step}")


def _faults(document: JSONObject) -> list[FieldError]:
    defaults.apply(document)
    document["status"]["acceptedNames"] = copy.deepcopy(document["spec"]["names"])
    return validation.check_create(document)


def _blamed(definition: Definition, path: str) -> str:
    match = _SCHEMA.match(path)
    if match is None:
        version = _VERSION_INDEX.match(path)
        cls = definition.classes[int(version[1]) if version else 0]
        return f"{cls.__module__}.{cls.__qualname__}"
    cls = definition.classes[int(match[1] or 0)]
    named = f"{cls.__module__}.{cls.__qualname__}"
    hint: Any = cls
    for step in _STEP.finditer(match[2]):
        if step[2]:
            hint = _inside(hint)
            continue
        owner = _struct(hint)
        if owner is None:
            break
        field = next((one for one in msgspec.structs.fields(owner) if one.encode_name == step[1]), None)
        if field is None:
            break
        named = f"{owner.__module__}.{owner.__qualname__}.{field.name}"
        hint = typing.get_type_hints(owner)[field.name]
    return named


def _inside(hint: Any) -> Any:
    """Return the element type of a list or map."""
    for one in _members(hint):
        if typing.get_origin(one) in (list, dict):
            return typing.get_args(one)[-1]
    return None


def _struct(hint: Any) -> type[msgspec.Struct] | None:
    return next((one for one in _members(hint) if isinstance(one, type) and issubclass(one, msgspec.Struct)), None)


def _members(hint: Any) -> tuple[Any, ...]:
    if hint is None or isinstance(hint, type) or typing.get_origin(hint) in (list, dict):
        return (hint,)
    return typing.get_args(hint)
