"""Reviews as an API server sends and reads them, so that a test can call a hook without a server."""

from __future__ import annotations

import base64
import uuid
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from kubeloop.codec import decode, document_of, encode
from kubeloop.controller.webhooks.declared import AdmissionHook
from kubeloop.controller.webhooks.request import ADMISSION, AdmissionUser, Operation
from kubeloop.merge.json_patch import json_patch
from kubeloop.meta import Resource
from kubeloop.meta.resource import kind_info
from kubeloop.meta.status import Status
from kubeloop.types import JSONObject

R = TypeVar("R", bound=Resource)


@dataclass(frozen=True, slots=True)
class Reviewed(Generic[R]):
    """The response of a hook. ``object`` is the state to store, with the patch applied; None if the write was denied or is a deletion.

    Example:
        >>> from kubeloop.controller.webhooks import Webhooks
        >>> hooks = Webhooks()
        >>> @hooks.mutating(ConfigMap)
        ... def defaults(config_map: ConfigMap) -> None:
        ...     config_map.data = {"mode": "fast"}
        >>> reviewed = await hooks.review(defaults, ConfigMap(metadata=ObjectMeta(name="settings", namespace="shop")))
        >>> reviewed.allowed, reviewed.object.data
        (True, {'mode': 'fast'})
    """

    allowed: bool
    object: R | None
    patch: list[JSONObject]
    status: Status | None
    warnings: tuple[str, ...]
    audit_annotations: dict[str, str]

    @property
    def message(self) -> str:
        """Reason of the denial; empty if the write was allowed."""
        return self.status.message if self.status is not None else ""

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that a denial names."""
        details = self.status.details if self.status is not None else None
        return tuple(cause.field for cause in details.causes) if details is not None else ()


def review_of(
    hook: AdmissionHook,
    obj: Resource,
    operation: Operation,
    old: Resource | None,
    user: AdmissionUser,
    *,
    dry_run: bool,
    subresource: str | None,
    options: JSONObject,
) -> bytes:
    """Return an AdmissionReview v1 as kube-apiserver sends it.

    Args:
        hook: The hook to call.
        obj: The written object; for DELETE the deleted object.
        operation: The operation.
        old: The stored object before an UPDATE. None: ``obj`` as it was read.
        user: The author of the write.
        dry_run: The write is a dry run.
        subresource: The subresource. None: the hook's.
        options: Options of the write as a JSON tree.
    """
    kind, resource = kind_info(hook.body).gvk._asdict(), hook.gvr._asdict()
    below = hook.subresource if subresource is None else subresource
    before: bytes | None = None
    if operation == "DELETE":
        before = encode(obj)
    elif operation == "UPDATE":
        before = encode(old) if old is not None else document_of(obj) or encode(obj)
    request: JSONObject = {
        "uid": str(uuid.uuid4()),
        "kind": kind,
        "resource": resource,
        "subResource": below,
        "requestKind": kind,
        "requestResource": resource,
        "requestSubResource": below,
        "name": obj.metadata.name,
        "namespace": obj.metadata.namespace,
        "operation": operation,
        "userInfo": {"username": user.username, "uid": user.uid, "groups": list(user.groups), "extra": user.extra},
        "object": None if operation == "DELETE" else msgspec.Raw(encode(obj)),
        "oldObject": None if before is None else msgspec.Raw(before),
        "dryRun": dry_run,
        "options": options or None,
    }
    return msgspec.json.encode({"apiVersion": f"{ADMISSION}/v1", "kind": "AdmissionReview", "request": request})


class _Response(msgspec.Struct, rename="camel"):
    uid: str
    allowed: bool
    status: Status | None = None
    patch: str = ""
    warnings: list[str] = []
    audit_annotations: dict[str, str] = {}


class _Review(msgspec.Struct):
    response: _Response


def reviewed(obj: R, operation: Operation, body: bytes) -> Reviewed[R]:
    """Return the decision in the answered review ``body``, applied to ``obj``."""
    response = msgspec.json.decode(body, type=_Review).response
    patch: list[JSONObject] = msgspec.json.decode(base64.b64decode(response.patch)) if response.patch else []
    stored: R | None = None
    if response.allowed and operation != "DELETE":
        tree = json_patch(msgspec.json.decode(encode(obj)), patch)
        stored = decode(type(obj), msgspec.json.encode(tree), checked=True)
    return Reviewed(response.allowed, stored, patch, response.status, tuple(response.warnings), response.audit_annotations)
