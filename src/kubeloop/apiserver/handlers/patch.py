"""PATCH requests: JSON patch, merge patch and strategic merge patch, which continue as updates, and server-side apply.

Source: k8s.io/apiserver pkg/endpoints/handlers/patch.go; RFC 6902, RFC 7396.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from kubeloop.apiserver.handlers.scope import RequestScope
from kubeloop.apiserver.ownership import Scope
from kubeloop.apiserver.registry.decoding import Decoded, conform, kind_missing, kind_of, plain, repeated_fields
from kubeloop.apiserver.registry.object_meta import check_name, metadata_of, set_namespace
from kubeloop.apiserver.registry.options import WriteOptions, write_options
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.store.writer import Outcome
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.encoding import in_declared_order
from kubeloop.endpoints.go_json_errors import json_fault
from kubeloop.merge import PatchError, json_patch, merge_patch
from kubeloop.merge.go_text import copy_tree, go_text, json_type
from kubeloop.merge.strategic import merge_in
from kubeloop.meta.errors import ApiError, DecodeError
from kubeloop.meta.field_error import invalid
from kubeloop.meta.kinds import GroupKind, GroupVersionKind
from kubeloop.meta.strconv import go_quoted
from kubeloop.schema import Schemas, TypeSchema, strict
from kubeloop.schema.strict_types import in_go_order, wire_types
from kubeloop.serving.request import Request
from kubeloop.types import JSONObject

# Server-side apply: the body lists the fields that a manager sets; the object is created if it does not exist.
# Source: k8s.io/apiserver pkg/endpoints/handlers/patch.go (applyPatcher); Kubernetes documentation "Server-Side Apply".


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


JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

_OPERATION_MEMBERS = frozenset({"op", "path", "from", "value"})
_BUILTIN_TYPES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH)


@dataclass
class Patch:
    """A patch as sent, read when it is first needed: whether there is something to patch is found out before."""

    media_type: str
    data: bytes
    #: Whether it is for an object without a Go type, which upstream writes by name, at all depths.
    sorted: bool = False
    #: Whether nobody asked for unknown fields (``fieldValidation=Ignore``): upstream then leaves reading to the library that patches.
    lenient: bool = False
    #: The kind of what is patched, where it has a Go type.
    gvk: GroupVersionKind | None = None
    #: What merging has left of a strategic merge patch.
    left: Any = field(default=None, init=False)

    @cached_property
    def tree(self) -> Any:
        """Raises BadRequest."""
        return _parse(self.data, self.media_type, lenient=self.lenient)

    def apply(self, obj: JSONObject, schema: TypeSchema | None, schemas: Schemas) -> JSONObject:
        """A fresh tree; ``obj`` stays as it is.

        Raises:
            ApiError: as the server answers a patch that is malformed or does not apply.
        """
        try:
            if self.media_type == JSON_PATCH:
                patched = json_patch(obj, self.tree, lenient=self.lenient)
            elif self.media_type == MERGE_PATCH:
                patched = merge_patch(obj, self.tree)
            else:
                self.left = copy_tree(self.tree)
                patched = merge_in(obj, self.left, schema, schemas)
        except PatchError as fault:
            if fault.code == 422:
                raise api_errors.unprocessable() from None
            answer = f"Request entity too large: {fault.answer}" if fault.code == 413 else fault.answer
            raise api_errors.refusal(fault.code, fault.reason, answer) from None
        if not isinstance(patched, dict):
            raise api_errors.unprocessable()
        return patched

    def refused(self, patched: JSONObject, why: str) -> ApiError:
        """The patch does not give an object of its kind. Upstream names neither kind nor object here, but shows what it gave."""
        # Upstream never writes what a strategic merge made as JSON, and quotes the patch, which merging has taken apart.
        shown = go_text(self.left) if self.media_type == STRATEGIC_PATCH else self.text_of(patched)
        return api_errors.invalid(GroupKind("", ""), "", [invalid("patch", shown, why)])

    def text_of(self, patched: JSONObject) -> str:
        """What it made as JSON, as upstream orders it."""
        index = wire_types().kind(self.gvk) if self.gvk is not None else None
        declared = patched if index is None else in_go_order(patched, index)
        ordered = patched if self.sorted else _upstream_order(declared, self._touched())
        return json.dumps(ordered, separators=(",", ":"), ensure_ascii=False, sort_keys=self.sorted)

    def judge(self, patched: JSONObject, decoded: Decoded, field_validation: str) -> list[str]:
        """Warnings of unknown and repeated fields, of the patch itself and of what it made.

        Raises:
            Invalid: with Strict, which makes the patch itself the invalid field.
        """
        if field_validation == "Ignore":
            return []
        problems = self._problems() + decoded.problems
        if problems and field_validation == "Strict":
            raise self.refused(patched, f"strict decoding error: {', '.join(problems)}")
        return problems

    def _problems(self) -> list[str]:
        found = repeated_fields(self.tree, "")
        if self.media_type != JSON_PATCH:
            return found
        for at, operation in enumerate(self.tree):
            found += [f"unknown field {go_quoted(f'[{at}].{name}')}" for name in operation if name not in _OPERATION_MEMBERS]
        return [f"json patch {problem}" for problem in found]

    def _touched(self) -> JSONObject:
        """The maps that the patch reaches into, as a tree of names."""
        if self.media_type != JSON_PATCH:
            return self.tree if isinstance(self.tree, dict) else {}
        touched: JSONObject = {}
        for operation in self.tree:
            level = touched
            for part in str(operation.get("path") or "").split("/")[1:-1]:
                level = level.setdefault(part.replace("~1", "/").replace("~0", "~"), {})
        return touched


def read_patch(data: bytes, content_type: str, resource: ServedResource, *, typed: bool = False) -> Patch:
    """``typed``: what is patched has a Go type, though the resource has none (a Scale).

    Raises:
        UnsupportedMediaType
    """
    media_type = content_type.partition(";")[0].strip()
    if media_type not in _BUILTIN_TYPES and not resource.custom:
        raise api_errors.unsupported_media_type()
    if resource.custom and media_type not in (JSON_PATCH, MERGE_PATCH):
        # A custom resource has no Go type, hence no merge keys.
        accepted = f"{JSON_PATCH}, {MERGE_PATCH}, application/apply-patch+yaml"
        text = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
        raise api_errors.refusal(415, "UnsupportedMediaType", text)
    return Patch(media_type, data, sorted=resource.custom and not typed, gvk=None if resource.custom or typed else resource.gvk)


def _parse(data: bytes, media_type: str, *, lenient: bool) -> Any:
    strategic = media_type == STRATEGIC_PATCH
    decoding = "" if strategic or lenient else "error decoding patch: "
    try:
        tree = strict.parse_json(data)
    except (ValueError, RecursionError):
        if lenient and media_type == MERGE_PATCH:
            raise api_errors.bad_request("Invalid JSON Patch") from None
        raise api_errors.bad_request(f"{decoding}{json_fault(data) or 'invalid UTF-8'}") from None
    if tree is None:
        if media_type == MERGE_PATCH:
            raise api_errors.bad_request("Invalid JSON Patch")
        tree = {} if strategic else []  # as Go's decoder leaves what null is read into
    if strategic and not isinstance(tree, dict):
        raise api_errors.bad_request(f"json: cannot unmarshal {json_type(tree)} into Go value of type map[string]interface {{}}")
    return tree


def conform_patched(sent: Patch, tree: JSONObject, resource: ServedResource, gvk: GroupVersionKind) -> Decoded:
    """What ``sent`` made, as an object of its kind.

    Raises:
        Invalid: it no longer fits; the cause is the field ``patch`` with the whole document, as upstream.
    """

    def refuse(why: str) -> ApiError:
        return sent.refused(tree, why)

    if sent.media_type == STRATEGIC_PATCH:
        # Upstream has the object already that it reads the maps into: kind and apiVersion are fields like any other.
        decoded = conform(tree, gvk, gvk, resource, refuse, merged=True)
        return replace(decoded, problems=sorted(decoded.problems))
    try:
        met = kind_of(tree, gvk)
    except DecodeError as fault:
        raise refuse(str(fault)) from None
    if not resource.custom or gvk != resource.gvk:
        return conform(tree, met, gvk, resource, refuse)
    if not tree.get("kind"):
        raise refuse(kind_missing(sent.text_of(tree)))
    decoded = conform(tree, met, gvk, resource, refuse)
    if not tree.get("apiVersion"):
        raise api_errors.internal_error("Object 'apiVersion' is missing in 'object has no apiVersion field'")
    return decoded


def _upstream_order(tree: JSONObject, touched: JSONObject) -> JSONObject:
    """Names sorted in each map that the patch reached into; what it did not touch stays as its Go type has it."""
    ordered: JSONObject = {}
    for name in sorted(tree):
        value, reached = tree[name], touched.get(name)
        if isinstance(value, dict) and isinstance(reached, dict):
            ordered[name] = _upstream_order(value, reached)
        elif name == "metadata" and isinstance(value, dict):
            ordered[name] = in_declared_order(value)
        else:
            ordered[name] = value
    return ordered
