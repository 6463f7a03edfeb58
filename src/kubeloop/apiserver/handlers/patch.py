"""PATCH requests: JSON patch, merge patch and strategic merge patch, which continue as updates, and server-side apply.

Source: k8s.io/apiserver pkg/endpoints/handlers/patch.go; RFC 6902, RFC 7396.
"""

from __future__ import annotations

import contextlib
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
from kubeloop.apiserver.registry.options import WriteParameters, write_options
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.store.writer import WriteResult
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


#: JSON is valid YAML. CBOR is rejected as unknown, as by a server without alpha features.
MEDIA_TYPE = "application/apply-patch+yaml"


def is_apply(request: Request) -> bool:
    """Return whether a PATCH is a server-side apply."""
    return request.header("Content-Type").partition(";")[0].strip().lower() == MEDIA_TYPE


class AppliedConfiguration:
    """The body of a server-side apply. It is decoded when it is first needed, after the check that the object exists."""

    def __init__(self, data: bytes, options: WriteParameters, warnings: list[str]) -> None:
        self.options = options
        self._data = data
        self._warnings = warnings
        self._plain: JSONObject | None = None

    def read(self) -> JSONObject:
        """Return the decoded tree, which must not be changed.

        Raises:
            BadRequest: The body is malformed.
        """
        if self._plain is None:
            self._plain = _plain_json(self._data)
        return self._read_yaml() if self._plain is None else self._plain

    def _read_yaml(self) -> JSONObject:
        from kubeloop.endpoints.yaml_body import parse_yaml

        try:
            tree = plain(parse_yaml(self._data))
        except DecodeError as error:
            raise api_errors.bad_request(f"error decoding YAML: error converting YAML to JSON: {error}") from None
        if tree is None:
            return {}
        if not isinstance(tree, dict):
            reason = f"json: cannot unmarshal {_json_type(tree)} into Go value of type map[string]interface {{}}"
            raise api_errors.bad_request(f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {reason}")
        return tree

    def check_repeated(self) -> None:
        """Report repeated keys: as an error (Strict), a warning (Warn) or not at all (Ignore).

        Raises:
            BadRequest: There are repeated keys and validation is Strict.
        """
        if self._plain is not None or self.options.field_validation == "Ignore":
            return
        from kubeloop.endpoints.yaml_body import repeated_keys

        repeated = repeated_keys(self._data)
        if not repeated:
            return
        faults = [f"line {line}: key {name} already set in map" for line, name in repeated]
        if self.options.field_validation == "Strict":
            view = "".join(f"\n  {error}" for error in faults)
            raise api_errors.bad_request(f"error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:{view}")
        self._warnings.extend(error for error in faults if error not in self._warnings)


def _plain_json(data: bytes) -> JSONObject | None:
    """Decode a body with the JSON decoder, ten times as fast as YAML. Return None if JSON and YAML may differ for the body.

    Bodies with repeated keys, fractions, long numbers or escaped surrogates need the YAML decoder.
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
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key is there twice")
    return result


def _refused(text: str) -> Any:
    raise ValueError(text)


async def read_configuration(scope: RequestScope) -> AppliedConfiguration:
    """Return the body of a server-side apply. Raises Invalid (options), RequestEntityTooLarge."""
    data = await scope.body()
    scope.audit_sent_patch(data)
    return AppliedConfiguration(data, write_options(scope.request, "PatchOptions", apply=True), scope.warnings)


async def apply(scope: RequestScope, *, status: bool) -> WriteResult:
    """Apply a configuration to the resource or its ``/status``. An apply to ``/status`` creates only kinds that an update may create.

    Raises:
        BadRequest, Conflict, NotFound, Invalid; any error of admission.
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
        return conform(tree, field_scope.gvk, field_scope.gvk, resource, conversion_error(config, field_scope), applied=True).obj

    async def change(live: JSONObject) -> JSONObject:
        obj = merged(live)
        _check_place(obj, scope)
        return obj

    def create() -> JSONObject:
        obj = merged(field_scope.empty)
        metadata = metadata_of(obj)
        if uid := metadata.get("uid"):
            reason = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise api_errors.conflict(resource.gvr.group_resource, name, reason)
        _check_place(obj, scope)
        return obj

    write = scope.write(dry_run=options.dry_run)
    create_always = not scope.info.subresource
    return await scope.services.writer.update(write, change, status=status, retry=True, create=create, create_always=create_always)


def conversion_error(config: JSONObject, field_scope: Scope) -> Callable[[str], ApiError]:
    """Return a function that creates the error for an object that fits the schema, but not the Go type."""
    metadata = config.get("metadata") or {}
    kind = f"{field_scope.gvk.group}/{field_scope.gvk.version}, Kind={field_scope.gvk.kind}"
    named = f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}; {kind}"

    def refuse(reason: str) -> ApiError:
        converting = f"unable to convert unstructured object to {kind}: {reason}"
        return api_errors.internal(f"failed to convert new object ({named}) to proper version: {converting}")

    return refuse


def _check_place(obj: JSONObject, scope: RequestScope) -> None:
    """Check that name and namespace of the object match the path. Raises BadRequest if they do not."""
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
    """A patch. It is decoded when it is first needed, after the check that the object exists."""

    media_type: str
    data: bytes
    #: The object has no Go type, so upstream sorts its fields by name at all levels.
    sorted: bool = False
    #: With ``fieldValidation=Ignore`` upstream lets the patch library decode the patch.
    lenient: bool = False
    #: Kind of the patched object, if it has a Go type.
    gvk: GroupVersionKind | None = None
    #: The rest of a strategic merge patch after the merge.
    left: Any = field(default=None, init=False)

    @cached_property
    def tree(self) -> Any:
        """Return the decoded patch. Raises BadRequest."""
        return _parse(self.data, self.media_type, lenient=self.lenient)

    def apply(self, obj: JSONObject, schema: TypeSchema | None, schemas: Schemas) -> JSONObject:
        """Return the patched copy of ``obj``.

        Args:
            obj: The object, which does not change.
            schema: Schema of its kind with merge keys; None for a custom resource.
            schemas: All schemas.

        Raises:
            ApiError: The patch is malformed or does not apply.
        """
        try:
            if self.media_type == JSON_PATCH:
                patched = json_patch(obj, self.tree, lenient=self.lenient)
            elif self.media_type == MERGE_PATCH:
                patched = merge_patch(obj, self.tree)
            else:
                self.left = copy_tree(self.tree)
                patched = merge_in(obj, self.left, schema, schemas)
        except PatchError as error:
            if error.code == 422:
                raise api_errors.unprocessable() from None
            answer = f"Request entity too large: {error.answer}" if error.code == 413 else error.answer
            raise api_errors.refusal(error.code, error.reason, answer) from None
        if not isinstance(patched, dict):
            raise api_errors.unprocessable()
        return patched

    def refused(self, patched: JSONObject, reason: str) -> ApiError:
        """Return the error for a patch whose result does not fit its kind.

        As upstream, the error shows the result instead of kind and name.
        """
        # Upstream does not encode the result of a strategic merge, and quotes the rest of the patch instead.
        view = go_text(self.left) if self.media_type == STRATEGIC_PATCH else self.text_of(patched)
        return api_errors.invalid(GroupKind("", ""), "", [invalid("patch", view, reason)])

    def text_of(self, patched: JSONObject) -> str:
        """Return the result as JSON in the field order of upstream."""
        index = wire_types().kind(self.gvk) if self.gvk is not None else None
        declared = patched if index is None else in_go_order(patched, index)
        ordered = patched if self.sorted else _upstream_order(declared, self._touched())
        return json.dumps(ordered, separators=(",", ":"), ensure_ascii=False, sort_keys=self.sorted)

    def check_fields(self, patched: JSONObject, decoded: Decoded, field_validation: str) -> list[str]:
        """Return warnings about unknown and repeated fields of the patch and its result.

        Args:
            patched: The result.
            decoded: The result as an object of its kind.
            field_validation: Ignore, Warn or Strict.

        Raises:
            Invalid: Validation is Strict and there are such fields. The error names the field ``patch``.
        """
        if field_validation == "Ignore":
            return []
        problems = self._problems() + decoded.problems
        if problems and field_validation == "Strict":
            raise self.refused(patched, f"strict decoding error: {', '.join(problems)}")
        return problems

    def _problems(self) -> list[str]:
        result = repeated_fields(self.tree, "")
        if self.media_type != JSON_PATCH:
            return result
        for at, operation in enumerate(self.tree):
            result += [f"unknown field {go_quoted(f'[{at}].{name}')}" for name in operation if name not in _OPERATION_MEMBERS]
        return [f"json patch {problem}" for problem in result]

    def _touched(self) -> JSONObject:
        """Return the maps that the patch changes, as a tree of names."""
        if self.media_type != JSON_PATCH:
            return self.tree if isinstance(self.tree, dict) else {}
        touched: JSONObject = {}
        for operation in self.tree:
            level = touched
            for part in str(operation.get("path") or "").split("/")[1:-1]:
                level = level.setdefault(part.replace("~1", "/").replace("~0", "~"), {})
        return touched


def read_patch(data: bytes, content_type: str, resource: ServedResource, *, typed: bool = False) -> Patch:
    """Return the patch of a request.

    Args:
        data: The body.
        content_type: Content-Type of the request.
        resource: The resource.
        typed: The patched object has a Go type even though the resource has none (a Scale).

    Raises:
        UnsupportedMediaType: The type of the patch is not supported.
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
        tree = {} if strategic else []  # Go's decoder leaves the target of null unchanged
    if strategic and not isinstance(tree, dict):
        raise api_errors.bad_request(f"json: cannot unmarshal {json_type(tree)} into Go value of type map[string]interface {{}}")
    return tree


def conform_patched(
    sent: Patch, tree: JSONObject, resource: ServedResource, gvk: GroupVersionKind, old: JSONObject | None = None
) -> Decoded:
    """Return the result of a patch as an object of its kind.

    Args:
        sent: The patch.
        tree: Its result.
        resource: The resource.
        gvk: The kind.
        old: The stored object that was patched. Parts of it that the patch does not name (``spec`` of a patch of the status) conform to the
            kind already and are not conformed again. None: all parts are conformed.

    Raises:
        Invalid: The result does not fit the kind. As upstream, the field is ``patch`` and the value the whole document.
    """

    def refuse(reason: str) -> ApiError:
        return sent.refused(tree, reason)

    if old is not None and (untouched := _untouched(sent, old)) and not resource.custom and gvk == resource.gvk:
        with contextlib.suppress(ApiError):  # an error must show the whole result, which the code below conforms
            decoded = conform_patched(sent, {name: value for name, value in tree.items() if name not in untouched}, resource, gvk)
            kept = decoded.obj | {name: tree[name] for name in untouched if name in tree}
            in_order = {name: kept[name] for name in tree if name in kept}
            return replace(decoded, obj=in_order | kept, sent=tree)
    if sent.media_type == STRATEGIC_PATCH:
        # Upstream decodes into an existing object, so kind and apiVersion are ordinary fields.
        decoded = conform(tree, gvk, gvk, resource, refuse, merged=True)
        return replace(decoded, problems=sorted(decoded.problems))
    try:
        actual = kind_of(tree, gvk)
    except DecodeError as error:
        raise refuse(str(error)) from None
    if not resource.custom or gvk != resource.gvk:
        return conform(tree, actual, gvk, resource, refuse)
    if not tree.get("kind"):
        raise refuse(kind_missing(sent.text_of(tree)))
    decoded = conform(tree, actual, gvk, resource, refuse)
    if not tree.get("apiVersion"):
        raise api_errors.internal_error("Object 'apiVersion' is missing in 'object has no apiVersion field'")
    return decoded


def _untouched(sent: Patch, old: JSONObject) -> frozenset[str]:
    """Return the names of the parts of an object, such as ``spec``, that a merge patch does not change."""
    if sent.media_type == JSON_PATCH or not isinstance(sent.tree, dict) or any(name.startswith("$") for name in sent.tree):
        return frozenset()
    return frozenset(old.keys() - sent.tree.keys() - {"apiVersion", "kind", "metadata"})


def _upstream_order(tree: JSONObject, touched: JSONObject) -> JSONObject:
    """Return a tree with sorted names in each map that the patch changed. Other maps have the order of their Go type."""
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
