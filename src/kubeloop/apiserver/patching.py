"""Patches: JSON patch, merge patch and strategic merge patch over the stored object, then on as an update.

Source: k8s.io/apiserver pkg/endpoints/handlers/patch.go; RFC 6902, RFC 7396. Server-side apply has a file of its own (``applying``).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from kubeloop.apiserver import refusals
from kubeloop.apiserver.decoding import Decoded, conform, kind_of
from kubeloop.apiserver.json_fault import json_fault
from kubeloop.apiserver.resource import ServedResource
from kubeloop.merge import PatchError, json_patch, merge_patch, strategic_merge
from kubeloop.meta.errors import ApiError, DecodeError
from kubeloop.meta.field_error import invalid
from kubeloop.meta.kinds import GroupKind, GroupVersionKind
from kubeloop.schema import Schemas, TypeSchema, strict

JSONObject = dict[str, Any]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

_BUILTIN_TYPES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH)


@dataclass(frozen=True, slots=True)
class Patch:
    """A patch as sent. ``kind`` is what it applies to: the resource's kind, or a subresource's."""

    media_type: str
    tree: Any

    def apply(self, obj: JSONObject, schema: TypeSchema | None, schemas: Schemas) -> JSONObject:
        """A fresh tree; ``obj`` stays as it is.

        Raises:
            ApiError: as the server answers a patch that is malformed or does not apply.
        """
        try:
            if self.media_type == JSON_PATCH:
                patched = json_patch(obj, self.tree)
            elif self.media_type == MERGE_PATCH:
                patched = merge_patch(obj, self.tree)
            else:
                patched = strategic_merge(obj, self.tree, schema, schemas)
        except PatchError as fault:
            if fault.code == 422:
                raise refusals.unprocessable() from None
            raise refusals.refusal(fault.code, fault.reason, fault.answer) from None
        if not isinstance(patched, dict):
            raise refusals.unprocessable()
        return patched


def read_patch(data: bytes, content_type: str, resource: ServedResource) -> Patch:
    """Raises UnsupportedMediaType, BadRequest."""
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type not in _BUILTIN_TYPES:
        raise refusals.unsupported_media_type()
    if resource.custom and media_type == STRATEGIC_PATCH:
        # A custom resource has no Go type, hence no merge keys.
        accepted = f"{JSON_PATCH}, {MERGE_PATCH}, application/apply-patch+yaml"
        text = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
        raise refusals.refusal(415, "UnsupportedMediaType", text)
    try:
        tree = strict.parse_json(data)
    except (ValueError, RecursionError):
        raise refusals.bad_request(f"error decoding patch: {json_fault(data) or 'invalid UTF-8'}") from None
    if media_type == STRATEGIC_PATCH and not isinstance(tree, dict):
        met = "array" if isinstance(tree, list) else type(tree).__name__
        raise refusals.bad_request(f"error decoding patch: json: cannot unmarshal {met} into Go value of type map[string]interface {{}}")
    return Patch(media_type, tree)


def conform_patched(tree: JSONObject, resource: ServedResource, gvk: GroupVersionKind) -> Decoded:
    """A patched tree as an object of its kind.

    Raises:
        Invalid: it no longer fits; the cause is the field ``patch`` with the whole document, as upstream.
    """

    def refuse(why: str) -> ApiError:
        return _refused(tree, why)

    try:
        met = kind_of(tree, gvk)
    except DecodeError as fault:
        raise refuse(str(fault)) from None
    return conform(tree, met, gvk, resource, refuse)


def strict_refusal(patched: JSONObject, problems: list[str]) -> ApiError:
    """For fieldValidation=Strict: unknown fields make the patch itself invalid."""
    return _refused(patched, f"strict decoding error: {', '.join(problems)}")


def _refused(tree: JSONObject, why: str) -> ApiError:
    """Upstream names neither kind nor object here."""
    shown = json.dumps(_upstream_order(tree), separators=(",", ":"), ensure_ascii=False)
    return refusals.invalid(GroupKind("", ""), "", [invalid("patch", shown, why)])


_METADATA_ORDER = (
    "name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
    "deletionGracePeriodSeconds", "labels", "annotations", "ownerReferences", "finalizers", "managedFields",
)  # fmt: skip


def _upstream_order(tree: JSONObject) -> JSONObject:
    """Names sorted, metadata in the order of its Go type."""
    ordered: JSONObject = {name: tree[name] for name in sorted(tree)}
    metadata = tree.get("metadata")
    if isinstance(metadata, dict):
        known = {name: metadata[name] for name in _METADATA_ORDER if name in metadata}
        ordered["metadata"] = known | metadata
    return ordered
