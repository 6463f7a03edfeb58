"""Fills the embedded server of a run with the definitions of the program's custom kinds, and manifests."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Final, Literal

from kubeloop.api.apiextensions.v1 import CustomResourceDefinition
from kubeloop.client import Client, WriteOptions
from kubeloop.codec import read_yaml
from kubeloop.codegen.crd import check_definition, definitions_of, version_warnings
from kubeloop.meta import KubeloopError, Resource, Unstructured, kind_info
from kubeloop.meta.errors import ApiError, DecodeError, Invalid, NotFound
from kubeloop.meta.repr import counted
from kubeloop.types import JSONObject

_LOG = logging.getLogger("kubeloop.cli.run")


_MANAGER: Final = "kubeloop-run"
#: Kinds that other objects depend on; they are applied first.
_FIRST = ("CustomResourceDefinition", "Namespace")
#: Timeout in seconds for a definition to be served.
_SERVED = 120.0

Outcome = Literal["created", "configured", "unchanged"]


class InstallError(KubeloopError):
    """The server refuses an object, or a file cannot be read; the message names file, kind and object."""


async def install(client: Client, kinds: Iterable[type[Resource]], manifests: Iterable[Path], namespace: str) -> list[str]:
    """Apply the definitions of the kinds, the manifests and the namespace, over the objects of an earlier run.

    Args:
        client: A client of the embedded server.
        kinds: The kinds of the program. A definition among the manifests replaces the definition that is made from a class.
        manifests: Files and folders.
        namespace: A namespace to create. Empty: none.

    Returns:
        A line for each object that was created or configured, as kubectl apply prints it, and a line with the number of unchanged objects.

    Raises:
        InstallError: The server refuses an object, or would refuse it if the object did not exist yet; or a file cannot be read.
    """
    documents = sorted(_documents(manifests), key=lambda item: item[1].get("kind") not in _FIRST)
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
    custom = {defined for _, document in documents if (defined := _defined_kind(document)) is not None}
    done: dict[tuple[str, str, str], Outcome] = {}
    for where, document in documents:
        try:
            made, outcome = await _apply(client, document, custom)
            if document.get("kind") == "CustomResourceDefinition":
                await client.wait_ready(CustomResourceDefinition, made.metadata.name, timeout=_SERVED)
        except (KubeloopError, ValueError) as error:
            what = f"{document.get('kind', '')} {_name(document)}".strip()
            raise InstallError(f"{where}: {f'{what}: ' if what else ''}{error}") from error
        group = made.api_version.rpartition("/")[0]
        kind = ".".join(filter(None, (made.kind.lower(), group)))
        # Manifests may contain one object in several versions: the output has one line, for the first change.
        key = (kind, made.metadata.namespace, made.metadata.name)
        if done.get(key, "unchanged") == "unchanged":
            done[key] = outcome
    lines = [f"{kind}/{name} {outcome}" for (kind, _, name), outcome in done.items() if outcome != "unchanged"]
    unchanged = len(done) - len(lines)
    return [*lines, f"{counted(unchanged, 'object')} unchanged"] if unchanged else lines


async def _apply(client: Client, document: JSONObject, custom: Container[tuple[str, str]]) -> tuple[Unstructured, Outcome]:
    wanted = Unstructured.from_dict(document)
    try:
        before = await client.get(type(wanted), wanted.metadata.name, namespace=wanted.metadata.namespace or None)
    except NotFound:
        return await client.apply(wanted, field_manager=_MANAGER, force=True), "created"
    made = await client.apply(wanted, field_manager=_MANAGER, force=True)
    if (made.api_version.rpartition("/")[0], made.kind) in custom:
        await _check_as_new(client, document)
    return made, "unchanged" if _state(before) == _state(made) else "configured"


async def _check_as_new(client: Client, document: JSONObject) -> None:
    """Raise InstallError if a server that does not have the object would refuse it."""
    # The server lets a stored object keep what a new definition does not allow, as long as that part does not change (validation
    # ratcheting). The object in the file is for clusters that do not have it yet.
    copy = Unstructured.from_dict({**document, "metadata": {**_without_name(document), "generateName": f"{_name(document)}-"}})
    try:
        await client.create(copy, options=WriteOptions(dry_run=True))
    except Invalid as error:
        raise InstallError(f"{_causes(error)}; the stored object is older than this rule: correct the file, or the class") from error
    except ApiError:
        pass  # Such as a quota that the object itself uses up.


def _defined_kind(document: JSONObject) -> tuple[str, str] | None:
    """Return the group and kind that a CustomResourceDefinition defines, or None for other objects."""
    if document.get("kind") != "CustomResourceDefinition":
        return None
    spec = document.get("spec", {})
    return str(spec.get("group", "")), str(spec.get("names", {}).get("kind", ""))


def _without_name(document: JSONObject) -> JSONObject:
    return {name: value for name, value in document["metadata"].items() if name not in ("name", "resourceVersion", "uid")}


def _causes(error: Invalid) -> str:
    causes = [f"{one.field}: {one.message}" for one in error.causes]
    return "; ".join(causes) or str(error)


def _state(obj: Unstructured) -> JSONObject:
    """Return an object as a tree without its status and server-set metadata, to find out whether it was changed."""
    tree = obj.to_dict()
    metadata = {name: value for name, value in tree["metadata"].items() if name not in ("resourceVersion", "generation", "managedFields")}
    return {**tree, "metadata": metadata, "status": None}


def custom_kinds(kinds: Iterable[type[Resource]]) -> list[type[Resource]]:
    """Return the program's custom kinds with a schema, including their other imported versions."""
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
