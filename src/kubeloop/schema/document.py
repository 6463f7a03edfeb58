"""The schema document that ships with the package: every definition of Kubernetes' API, and the resources of a default server.

``kubeloop generate schema`` makes it from a server's OpenAPI documents and discovery; it has no descriptions. Definitions are
decoded at the first use.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from kubeloop.meta.kinds import GroupVersion, GroupVersionKind, GroupVersionResource
from kubeloop.schema.node import TypeSchema

DOCUMENT = "kubernetes.json.gz"
PATHS = "kubernetes-paths.json.gz"


class SubresourceInfo(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A subresource such as ``status`` or ``scale``: its kind (``autoscaling/v1 Scale`` for scale) and its verbs.

    >>> deployments = next(info for info in builtin().resources() if info.gvr.resource == "deployments")
    >>> deployments.subresource("scale").kind.kind
    'Scale'
    """

    name: str
    kind: GroupVersionKind
    verbs: tuple[str, ...]


class ResourceInfo(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A resource in one version, as discovery lists it.

    >>> pods = next(info for info in builtin().resources() if info.gvr.resource == "pods")
    >>> pods.kind, pods.short_names
    ('Pod', ('po',))
    """

    gvr: GroupVersionResource
    kind: str
    singular: str
    namespaced: bool
    verbs: tuple[str, ...]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[SubresourceInfo, ...] = ()
    #: Fields that selectors of this resource may name, in the server's words; empty where it is unknown (create-only resources).
    selectable_fields: tuple[str, ...] = ()
    #: The storage version hash of legacy discovery, from which clients guess whether the stored encoding changed.
    storage_version_hash: str = ""
    #: Whether a default server serves it; alpha and beta versions are known but disabled.
    served: bool = True

    @property
    def gvk(self) -> GroupVersionKind:
        return GroupVersionKind(self.gvr.group, self.gvr.version, self.kind)

    @property
    def list_kind(self) -> str:
        return f"{self.kind}List"

    def subresource(self, name: str) -> SubresourceInfo | None:
        return next((sub for sub in self.subresources if sub.name == name), None)


class GroupInfo(msgspec.Struct, frozen=True, rename="camel"):
    """A served group with its versions, the preferred one first; the core group is the empty string.

    >>> [group.preferred.api_version for group in builtin().groups() if group.name == "apps"]
    ['apps/v1']
    """

    name: str
    versions: tuple[str, ...]

    @property
    def preferred(self) -> GroupVersion:
        return GroupVersion(self.name, self.versions[0])


class SchemaDocument(msgspec.Struct, rename="camel"):
    """The content of the schema file that ships with the package."""

    #: The Kubernetes release it was made from: "1.36".
    version: str
    #: The groups in the order of discovery, the core group first.
    groups: tuple[GroupInfo, ...]
    resources: tuple[ResourceInfo, ...]
    #: "GROUP/VERSION/KIND" to definition name.
    kinds: dict[str, str]
    #: Definition name to a ``TypeSchema``, not yet decoded.
    definitions: dict[str, msgspec.Raw]


class Schemas:
    """Definitions by name and by kind, and the resources that serve them.

    >>> node = builtin().kind(GroupVersionKind("apps", "v1", "Deployment"))
    >>> sorted(node.properties)
    ['apiVersion', 'kind', 'metadata', 'spec', 'status']

    Guarantees
        The same definition always gives the same node object. Reading never fails for a name that ``names()`` yields.

    Not guaranteed
        Descriptions are missing, and so are defaults and enums of versions that a default server does not serve.

    Raises
        KeyError: ``definition`` and ``resolve`` raise it for a name that the document does not have.
    """

    def __init__(self, document: SchemaDocument) -> None:
        self._document = document
        self._nodes: dict[str, TypeSchema] = {}
        self._decoder = msgspec.json.Decoder(TypeSchema)

    @classmethod
    def decode(cls, data: bytes) -> Schemas:
        """Decode the bytes of a (decompressed) document.

        Raises:
            msgspec.DecodeError: the bytes are not a schema document.
        """
        return cls(msgspec.json.decode(data, type=SchemaDocument))

    @property
    def version(self) -> str:
        return self._document.version

    def names(self) -> Iterator[str]:
        """Yield the names of all definitions, sorted."""
        return iter(self._document.definitions)

    def __contains__(self, name: object) -> bool:
        return name in self._document.definitions

    def definition(self, name: str) -> TypeSchema:
        node = self._nodes.get(name)
        if node is None:
            raw = self._document.definitions.get(name)
            if raw is None:
                raise KeyError(f'schema document {self.version} has no definition "{name}"')
            node = self._nodes[name] = self._decoder.decode(raw)
        return node

    def resolve(self, node: TypeSchema) -> TypeSchema:
        """Return the definition that a reference names, or ``node`` itself if it is no reference.

        Siblings of the reference, such as its default, are only on ``node``.
        """
        while node.ref:
            node = self.definition(node.ref)
        return node

    def kind_name(self, gvk: GroupVersionKind) -> str | None:
        """Return the name of the definition of a kind (lists and options too), or None for a kind that is not built in."""
        return self._document.kinds.get("/".join(gvk))

    def kind(self, gvk: GroupVersionKind) -> TypeSchema | None:
        name = self.kind_name(gvk)
        return None if name is None else self.definition(name)

    def kinds(self) -> Iterator[tuple[GroupVersionKind, str]]:
        """Yield every kind with the name of its definition."""
        for key, name in self._document.kinds.items():
            group, version, kind = key.rsplit("/", 2)
            yield GroupVersionKind(group, version, kind), name

    def groups(self) -> tuple[GroupInfo, ...]:
        """Return the served groups in discovery's order."""
        return self._document.groups

    def resources(self) -> tuple[ResourceInfo, ...]:
        """Return the resources of a default server, in discovery's order."""
        return tuple(resource for resource in self._document.resources if resource.served)

    def all_resources(self) -> tuple[ResourceInfo, ...]:
        """Return all resources, including the alpha and beta ones that a default server disables."""
        return self._document.resources


def _read(name: str) -> bytes:
    # Importing the gzip module costs more than reading the document.
    return zlib.decompress(Path(__file__).with_name(name).read_bytes(), wbits=zlib.MAX_WBITS | 16)


@cache
def builtin() -> Schemas:
    """Return the schemas of the built-in kinds. They are read once per process."""
    return Schemas.decode(_read(DOCUMENT))


@cache
def _paths() -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(_read(PATHS), type=dict[str, msgspec.Raw])


def openapi_paths() -> Mapping[str, msgspec.Raw]:
    """Return ``paths`` of each OpenAPI v3 document of a default server (``api/v1``, ``apis/apps``, ``version`` ...), without descriptions.

    Read on demand and cached: about 1.2 MB of JSON. Decode one with ``openapi_paths_of``.
    """
    return _paths()


def openapi_paths_of(document: str) -> dict[str, Any]:
    """Return a new tree of the paths of one OpenAPI v3 document.

    Raises:
        KeyError: A default server has no such document.
    """
    tree: dict[str, Any] = msgspec.json.decode(_paths()[document])
    return tree
