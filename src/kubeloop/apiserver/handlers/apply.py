"""Server-side apply: PATCH with a configuration that says what its manager wants, and creates the object when there is none.

Source: k8s.io/apiserver pkg/endpoints/handlers/patch.go (applyPatcher); Kubernetes documentation "Server-Side Apply".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from kubeloop.apiserver.handlers.scope import RequestScope
from kubeloop.apiserver.ownership import Scope
from kubeloop.apiserver.registry.decoding import conform, plain
from kubeloop.apiserver.registry.object_meta import check_name, metadata_of, set_namespace
from kubeloop.apiserver.registry.options import WriteOptions, write_options
from kubeloop.apiserver.store.writer import Outcome
from kubeloop.endpoints import api_errors
from kubeloop.meta.errors import ApiError, DecodeError
from kubeloop.serving.request import Request
from kubeloop.types import JSONObject

#: JSON is YAML too. The same in CBOR is refused as an unknown media type, as by a server whose alpha features are off.
MEDIA_TYPE = "application/apply-patch+yaml"


def is_apply(request: Request) -> bool:
    return request.header("Content-Type").partition(";")[0].strip().lower() == MEDIA_TYPE


class Configuration:
    """The body of an apply, read when it is first needed: whether there is something to apply it to is found out before."""

    def __init__(self, data: bytes, options: WriteOptions, warnings: list[str]) -> None:
        self.options = options
        self._data = data
        self._warnings = warnings
        self._plain: JSONObject | None = None

    def read(self) -> JSONObject:
        """The tree, which must not be changed.

        Raises:
            BadRequest
        """
        if self._plain is None:
            self._plain = _plain_json(self._data)
        return self._read_yaml() if self._plain is None else self._plain

    def _read_yaml(self) -> JSONObject:
        from kubeloop.endpoints.yaml_body import parse_yaml

        try:
            tree = plain(parse_yaml(self._data))
        except DecodeError as fault:
            raise api_errors.bad_request(f"error decoding YAML: error converting YAML to JSON: {fault}") from None
        if tree is None:
            return {}
        if not isinstance(tree, dict):
            why = f"json: cannot unmarshal {_json_type(tree)} into Go value of type map[string]interface {{}}"
            raise api_errors.bad_request(f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {why}")
        return tree

    def check_repeated(self) -> None:
        """Keys that are there twice: an error (Strict), a warning (Warn), nothing (Ignore).

        Raises:
            BadRequest
        """
        if self._plain is not None or self.options.field_validation == "Ignore":
            return
        from kubeloop.endpoints.yaml_body import repeated_keys

        repeated = repeated_keys(self._data)
        if not repeated:
            return
        faults = [f"line {line}: key {name} already set in map" for line, name in repeated]
        if self.options.field_validation == "Strict":
            shown = "".join(f"\n  {fault}" for fault in faults)
            raise api_errors.bad_request(f"error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:{shown}")
        self._warnings.extend(fault for fault in faults if fault not in self._warnings)


def _plain_json(data: bytes) -> JSONObject | None:
    """A body that reads the same as JSON and as YAML, and so in a tenth of the time; None for any other.

    Repeated keys, fractions, numbers of many digits and escaped surrogates are YAML's to judge.
    """
    if not data.startswith(b"{") or _DOUBTFUL.search(data) is not None:
        return None
    try:
        tree: JSONObject = json.loads(data.decode(), object_pairs_hook=_distinct, parse_float=_refused, parse_constant=_refused)
    except (ValueError, RecursionError):
        return None
    return tree


_DOUBTFUL = re.compile(rb"[0-9]{18}|\\u[dD]")


def _distinct(pairs: list[tuple[str, Any]]) -> JSONObject:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


def _refused(text: str) -> Any:
    raise ValueError(text)


async def read_configuration(scope: RequestScope) -> Configuration:
    """Raises Invalid (options), RequestEntityTooLarge."""
    data = await scope.body()
    scope.audit_sent_patch(data)
    return Configuration(data, write_options(scope.request, "PatchOptions", apply=True), scope.warnings)


async def apply(scope: RequestScope, *, status: bool) -> Outcome:
    """Apply to the resource itself, or through ``/status``, which creates only what any update creates (Services, for one).

    Raises:
        BadRequest, Conflict, NotFound, Invalid; whatever admission raises.
    """
    configuration = await read_configuration(scope)
    resource, name, options = scope.resource, scope.info.name, configuration.options
    owners = scope.services.writer.owners
    field_scope = owners.scope(resource, scope.info.subresource)

    def merged(live: JSONObject) -> JSONObject:
        config = configuration.read()
        tree = owners.applied(field_scope, live, config, options.field_manager, force=options.force)
        configuration.check_repeated()
        write.sent = tree
        return conform(tree, field_scope.gvk, field_scope.gvk, resource, unconvertible(config, field_scope), applied=True).obj

    async def change(live: JSONObject) -> JSONObject:
        obj = merged(live)
        _check_place(obj, scope)
        return obj

    def create() -> JSONObject:
        obj = merged(field_scope.empty)
        metadata = metadata_of(obj)
        if uid := metadata.get("uid"):
            why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise api_errors.conflict(resource.gvr.group_resource, name, why)
        _check_place(obj, scope)
        return obj

    write = scope.write(dry_run=options.dry_run)
    create_always = not scope.info.subresource
    return await scope.services.writer.update(write, change, status=status, retry=True, create=create, create_always=create_always)


def unconvertible(config: JSONObject, field_scope: Scope) -> Callable[[str], ApiError]:
    """For an object that fits the schema, but not the Go type."""
    metadata = config.get("metadata") or {}
    kind = f"{field_scope.gvk.group}/{field_scope.gvk.version}, Kind={field_scope.gvk.kind}"
    named = f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}; {kind}"

    def refuse(why: str) -> ApiError:
        converting = f"unable to convert unstructured object to {kind}: {why}"
        return api_errors.internal(f"failed to convert new object ({named}) to proper version: {converting}")

    return refuse


def _check_place(obj: JSONObject, scope: RequestScope) -> None:
    """Raises BadRequest when the object is somewhere else than the path says."""
    metadata = metadata_of(obj)
    set_namespace(metadata, scope.namespace)
    check_name(metadata, scope.info.name)


def _json_type(value: Any) -> str:
    match value:
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case str():
            return "string"
        case _:
            return "array"
