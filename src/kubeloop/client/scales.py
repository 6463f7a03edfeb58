"""Scale, of whichever group version a resource answers with, read as ``autoscaling/v1``.

Source: client-go scale/scheme: extensions/v1beta1, apps/v1beta1 and apps/v1beta2 have the selector as a map and ``targetSelector`` as text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kubeloop.codec import decode
from kubeloop.meta import DecodeError

if TYPE_CHECKING:
    from kubeloop.api.autoscaling.v1 import Scale

_OLDER = ("extensions/v1beta1", "apps/v1beta1", "apps/v1beta2")


class _Head(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""


class _OlderStatus(msgspec.Struct, rename="camel"):
    replicas: int = 0
    selector: dict[str, str] | None = None
    target_selector: str = ""


class _Older(msgspec.Struct):
    metadata: msgspec.Raw = msgspec.Raw(b"{}")
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: _OlderStatus = msgspec.field(default_factory=_OlderStatus)


def read_scale(body: bytes) -> Scale:
    """The Scale in an answer.

    Raises:
        DecodeError: it is no Scale of a known version.
    """
    from kubeloop.api.autoscaling.v1 import Scale

    try:
        head = msgspec.json.decode(body, type=_Head)
        if head.api_version not in _OLDER or head.kind != "Scale":
            return decode(Scale, body)
        older = msgspec.json.decode(body, type=_Older)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"Scale: the answer is none: {error}") from None
    selector = older.status.target_selector or ",".join(f"{key}={value}" for key, value in sorted((older.status.selector or {}).items()))
    status = {"replicas": older.status.replicas} | ({"selector": selector} if selector else {})
    tree = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": older.metadata, "spec": older.spec, "status": status}
    return decode(Scale, msgspec.json.encode(tree))
