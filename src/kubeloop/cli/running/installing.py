"""Fills the embedded server of a run: the definitions of the program's custom kinds, made from its classes, and manifests."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from kubeloop.api.apiextensions.v1 import CustomResourceDefinition
from kubeloop.client import Client
from kubeloop.codec import read_yaml
from kubeloop.codegen.crd import check_definition, definitions_of, version_warnings
from kubeloop.meta import KubeloopError, Resource, Unstructured, kind_info
from kubeloop.meta.errors import DecodeError

_LOG = logging.getLogger(__name__)

JSONObject = dict[str, Any]

_MANAGER: Final = "kubeloop-run"
#: Kinds that others need to be there first.
_FIRST = ("CustomResourceDefinition", "Namespace")
#: Seconds for a definition to be served.
_SERVED = 120.0


class InstallError(KubeloopError):
    """The server refuses it, or it cannot be read; names file, kind and object."""


async def install(client: Client, kinds: Iterable[type[Resource]], manifests: Iterable[Path], namespace: str) -> list[str]:
    """Apply it all, over what may be there from an earlier run; returns a line for each object. ``namespace`` is made if it is named.

    A definition among the manifests is taken instead of one made from a class.

    Raises:
        InstallError: see there.
    """
    documents = sorted(_documents(manifests), key=lambda one: one[1].get("kind") not in _FIRST)
    given = {_name(document) for _, document in documents if document.get("kind") == "CustomResourceDefinition"}
    for definition in definitions_of(custom_kinds(kinds)):
        if definition.name not in given:
            if faults := check_definition(definition):
                raise InstallError(f"{definition.name}: " + "; ".join(faults))
            for warning in version_warnings(definition):
                _LOG.warning("%s", warning)
            documents.insert(0, (f"the definition of {definition.classes[0].kind}", definition.document))
    if namespace:
        documents.insert(0, ("--namespace", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
    done: dict[tuple[str, str, str, str], list[str]] = {}
    for where, document in documents:
        try:
            made = await client.apply(Unstructured.from_dict(document), field_manager=_MANAGER, force=True)
            if document.get("kind") == "CustomResourceDefinition":
                await client.wait_ready(CustomResourceDefinition, made.metadata.name, timeout=_SERVED)
        except (KubeloopError, ValueError) as error:
            what = f"{document.get('kind', '')} {_name(document)}".strip()
            raise InstallError(f"{where}: {f'{what}: ' if what else ''}{error}") from error
        group, _, version = made.api_version.rpartition("/")
        done.setdefault((group, made.kind, made.metadata.namespace, made.metadata.name), []).append(version)
    # Manifests may hold one object in several versions: it is one line.
    return [
        f"{kind} {name}" + (f" ({', '.join(dict.fromkeys(versions))})" if len(versions) > 1 else "")
        for (_, kind, _, name), versions in done.items()
    ]


def custom_kinds(kinds: Iterable[type[Resource]]) -> list[type[Resource]]:
    """Those of the program, with their other versions that are imported: kinds of Kubernetes and those without a schema are left out."""
    own = [kind for kind in kinds if _is_custom(kind)]
    resources = {kind_info(kind).gvr.group_resource for kind in own}
    versions = [kind for kind in _subclasses(Resource) if _is_custom(kind) and kind_info(kind).gvr.group_resource in resources]
    latest: dict[tuple[str, str], type[Resource]] = {}
    for kind in [*versions, *own]:
        latest[(kind.api_version, kind.kind)] = kind
    return list(latest.values())


def _is_custom(kind: type[Resource]) -> bool:
    info = kind.__dict__.get("__kind_info__")
    complete = info is not None and info.plural is not None and info.namespaced is not None
    return complete and kind.__module__.partition(".")[0] != "kubeloop"


def _subclasses(cls: type[Resource]) -> Iterator[type[Resource]]:
    for one in cls.__subclasses__():
        yield one
        yield from _subclasses(one)


def _documents(manifests: Iterable[Path]) -> Iterator[tuple[str, JSONObject]]:
    for path in manifests:
        for file in sorted(one for one in path.rglob("*") if one.suffix in (".yaml", ".yml", ".json")) if path.is_dir() else [path]:
            try:
                found = read_yaml(file.read_bytes(), name=str(file))
            except (OSError, DecodeError) as error:
                raise InstallError(f"{file}: cannot be read: {error}") from error
            for document in found:
                items = document["items"] if document.get("kind") == "List" and isinstance(document.get("items"), list) else [document]
                yield from ((str(file), item) for item in items)


def _name(document: JSONObject) -> str:
    metadata = document.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""
