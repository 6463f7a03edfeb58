"""The input of the renderers: complete definitions, their resources, and the facts of CRDs beside schemas."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from kubeloop.codegen.types import HAND_WRITTEN, INLINE
from kubeloop.meta.errors import ConfigError
from kubeloop.meta.kinds import GroupVersionKind, GroupVersionResource
from kubeloop.schema import ResourceInfo, builtin
from kubeloop.schema.classes.known import definition_schema
from kubeloop.types import JSONObject

#: Keywords that stay with the field when its struct becomes a class; all others move to the class.
_OF_THE_FIELD: Final = ("default", "nullable")
#: The path from the definition's name to a struct.
Way = tuple[str, ...]
#: Maximum characters of a class name; a longer one is shortened to these last steps.
_LONGEST: Final = 60
_LAST: Final = 3
_PLURAL_ES: Final = re.compile(r"(ss|x|z|ch|sh)es$")
_NO_PLURAL: Final = re.compile(r"(ss|us|is|as)$|^s$")


def lift(definitions: dict[str, JSONObject], stays: Callable[[JSONObject], bool] = lambda _: False) -> dict[str, JSONObject]:
    """Replace inline structs by references to new definitions: ``spec`` of Widget becomes ``WidgetSpec``, its ``ports`` ``WidgetSpecPort``.

    ``stays`` returns True for structs that stay inline, because a class for them exists.
    """
    lifted: dict[str, JSONObject] = {}

    def visit(node: JSONObject, way: Way) -> JSONObject:
        result = dict(node)
        if "properties" in node:
            result["properties"] = {wire: place(child, (*way, _title(wire))) for wire, child in node["properties"].items()}
        for key in ("items", "additionalProperties"):
            if isinstance(node.get(key), dict):
                result[key] = place(node[key], (*way[:-1], _item(way[-1])))
        return result

    def place(node: JSONObject, way: Way) -> JSONObject:
        if stays(node):
            return node
        if not node.get("properties"):
            return visit(node, way)
        name = _free(_name(way), definitions, lifted)
        lifted[name] = {}
        said = {key: value for key, value in node.items() if key not in _OF_THE_FIELD}
        lifted[name] = visit(said, way)
        return {"$ref": name} | {key: node[key] for key in _OF_THE_FIELD if key in node}

    own: dict[str, JSONObject] = {}
    for name, definition in definitions.items():
        properties = dict(definition.get("properties") or {})
        # Rules for a kind's metadata stay inline: metadata has a class.
        metadata = {"metadata": properties.pop("metadata")} if "metadata" in properties else {}
        own[name] = visit({**definition, "properties": properties} if metadata else definition, (name,))
        if metadata:
            own[name]["properties"] |= metadata
    return own | lifted


def _name(way: Way) -> str:
    """Return the class name of a struct: the definition's name and all steps of the path, or the last steps of a long path."""
    whole = "".join(way)
    if len(whole.rpartition(".")[2]) <= _LONGEST:
        return whole
    return way[0] + "".join(way[-_LAST:])


def _free(name: str, *taken: Container[str]) -> str:
    """Return the name itself, or the name with the first free number from 2 on."""
    numbered = (name if number == 1 else f"{name}{number}" for number in itertools.count(1))
    return next(one for one in numbered if not any(one in names for names in taken))


def _title(wire: str) -> str:
    """Convert ``hostAliases`` to a part of a class name."""
    parts = re.split(r"[\W_]+", wire)
    return "".join(part[:1].upper() + part[1:] for part in parts)


def _item(name: str) -> str:
    """Return the class name of a list's items: the singular (``...Port`` for ``...Ports``), or the name and ``Item`` if it is no plural."""
    if name.endswith("ies") and len(name) > 4:
        return f"{name[:-3]}y"
    if _PLURAL_ES.search(name):
        return name[:-2]
    if name.endswith("s") and not _NO_PLURAL.search(name):
        return name[:-1]
    return f"{name}Item"


OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_LIST_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"
#: Where the structs are defined that custom kinds reuse.
_WELL_KNOWN: Final = ("io.k8s.api.core.v1.", "io.k8s.apimachinery.pkg.apis.meta.v1.")
_NOT_NESTED: Final = (OBJECT_META,)


@dataclass(slots=True)
class ModelSource:
    """The input for rendering models.

    ``definitions``: schemas by name, with references by bare name and without inline structs (see ``lift``).
    ``strict``: names of the definitions whose required fields have no default.
    ``crds``: definition name -> the version in the CRD, which has the whole CRD under the key ``crd``.
    """

    definitions: dict[str, JSONObject] = field(default_factory=dict)
    resources: dict[GroupVersionKind, ResourceInfo] = field(default_factory=dict)
    kinds: dict[str, GroupVersionKind] = field(default_factory=dict)
    crds: dict[str, JSONObject] = field(default_factory=dict)
    strict: set[str] = field(default_factory=set)

    def add(self, other: ModelSource) -> None:
        """Add everything of ``other``, which takes precedence for definitions in both."""
        self.definitions.update(other.definitions)
        self.resources.update(other.resources)
        self.kinds.update(other.kinds)
        self.crds.update(other.crds)
        self.strict |= other.strict

    def within(self, groups: Iterable[str]) -> ModelSource:
        """Return only the kinds of these groups and the definitions they refer to.

        Raises:
            ConfigError: A group has no kind here.
        """
        wanted = set(groups)
        missing = wanted - {gvk.group for gvk in self.kinds.values()}
        if missing:
            known = ", ".join(sorted({gvk.group for gvk in self.kinds.values()})) or "none"
            raise ConfigError(f"no kind of group {', '.join(sorted(missing))} here; groups: {known}")
        reached: set[str] = set()
        ahead = [name for name, gvk in self.kinds.items() if gvk.group in wanted]
        while ahead:
            name = ahead.pop()
            if name not in reached and name in self.definitions:
                reached.add(name)
                ahead += references(self.definitions[name])
        return ModelSource(
            {name: node for name, node in self.definitions.items() if name in reached},
            {gvk: info for gvk, info in self.resources.items() if gvk.group in wanted},
            {name: gvk for name, gvk in self.kinds.items() if name in reached},
            {name: facts for name, facts in self.crds.items() if name in reached},
            self.strict & reached,
        )

    def names_to_generate(self) -> list[str]:
        """Return the names of the definitions that need a generated class, because kubeloop has no class for them."""
        known = builtin()
        return [name for name in self.definitions if name not in HAND_WRITTEN and name not in INLINE and name not in known]


def references(node: JSONObject) -> set[str]:
    """Return the names of the definitions that a node refers to."""
    found = {node["$ref"]} if "$ref" in node else set()
    for child in node.get("properties", {}).values():
        found |= references(child)
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            found |= references(node[key])
    return found


def source_of_crd(crd: JSONObject, source: str) -> ModelSource:
    """Return the input for models of all versions of a CustomResourceDefinition (apiextensions.k8s.io/v1), served or not.

    Raises:
        ConfigError: A required field is missing, or no version has a schema; the message begins with ``source``.
    """
    try:
        spec, name = crd["spec"], crd["metadata"]["name"]
        group, names, versions = spec["group"], spec["names"], spec["versions"]
        found = ModelSource()
        for version in versions:
            _add_version(found, crd, group, names, version)
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{source}: a CustomResourceDefinition without {error}; expected one of apiextensions.k8s.io/v1") from error
    if not found.definitions:
        raise ConfigError(f"{source}: {name} has no version with a schema")
    return found


def _add_version(source: ModelSource, crd: JSONObject, group: str, names: JSONObject, version: JSONObject) -> None:
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if schema is None:
        return
    gvk = GroupVersionKind(group, version["name"], names["kind"])
    name = f"{'.'.join(reversed(group.split('.')))}.{gvk.version}.{gvk.kind}"
    definitions = lift({name: schema}, stays=is_known)
    source.definitions.update(definitions)
    source.strict.update(definitions)
    source.kinds[name] = gvk
    source.resources[gvk] = ResourceInfo(
        gvr=GroupVersionResource(group, gvk.version, names["plural"]),
        kind=gvk.kind,
        singular=names.get("singular") or gvk.kind.lower(),
        namespaced=crd["spec"]["scope"] == "Namespaced",
        verbs=(),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
    )
    source.crds[name] = {**version, "crd": crd}


def source_of_definitions(definitions: dict[str, JSONObject], resources: Iterable[ResourceInfo]) -> ModelSource:
    """Return the input for models of OpenAPI definitions, in the form that ``openapi.normal`` returns with descriptions.

    Kinds whose structs are all inline came from a CustomResourceDefinition: their required fields must be given.
    Other required fields are Go's by-value fields: empty by default. Lists of kinds get no class: ``client.list`` is typed.
    """
    kinds: dict[str, GroupVersionKind] = {}
    inline: dict[str, JSONObject] = {}
    definitions = {name: node for name, node in definitions.items() if not _is_list(node)}
    for name, node in definitions.items():
        for gvk in node.get("x-kubernetes-group-version-kind", ())[:1]:
            kinds[name] = GroupVersionKind(gvk["group"], gvk["version"], gvk["kind"])
            if all(ref.startswith("io.k8s.apimachinery.") for ref in references(node)):
                inline[name] = node
    rest = {name: node for name, node in definitions.items() if name not in inline}
    ours = lift(inline, stays=is_known)
    lifted = lift(rest)
    return ModelSource({**lifted, **ours}, {info.gvk: info for info in resources}, kinds, {}, set(ours))


def _is_list(node: JSONObject) -> bool:
    properties = node.get("properties", {})
    return "x-kubernetes-group-version-kind" in node and properties.get("metadata", {}).get("$ref") == _LIST_META and "items" in properties


def is_known(node: JSONObject) -> bool:
    """Return whether an inline struct equals a struct of Kubernetes itself."""
    return known_struct(node) is not None


def known_struct(node: JSONObject) -> str | None:
    """Return the only definition of core/v1 or meta/v1 that equals ``node``, descriptions aside, or None if none or several do."""
    properties = node.get("properties")
    if not properties or "$ref" in node:
        return None
    result: set[str] = set()
    for name in _by_properties().get(frozenset(properties), ()):
        if without(node) == _of_definition(name):
            result.add(name)
    return result.pop() if len(result) == 1 else None


@cache
def _by_properties() -> dict[frozenset[str], list[str]]:
    index: dict[frozenset[str], list[str]] = {}
    for name in builtin().names():
        if name.startswith(_WELL_KNOWN) and name not in _NOT_NESTED:
            properties = builtin().definition(name).properties
            if len(properties) > 1:
                index.setdefault(frozenset(properties), []).append(name)
    return index


@cache
def _of_definition(name: str) -> JSONObject | None:
    try:
        found: JSONObject = without(definition_schema(name))
    except ConfigError:  # the definition contains itself
        return None
    return found


def without(tree: Any, *, named: bool = False) -> Any:
    """Return a schema without descriptions, and with lists of texts sorted, for comparisons.

    ``named`` is True for a map of properties, one of which may be named ``description``.
    """
    if isinstance(tree, dict):
        return {
            key: without(value, named=key == "properties" and not named) for key, value in tree.items() if named or key != "description"
        }
    if isinstance(tree, list):
        return sorted(tree, key=str) if all(isinstance(one, str) for one in tree) else [without(one) for one in tree]
    return tree
