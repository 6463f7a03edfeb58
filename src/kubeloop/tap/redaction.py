"""Takes secrets out of recordings and of the live view: credentials in headers and bodies, values of Secrets, private keys.

A body that may contain a secret and cannot be decoded is left out as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from kubeloop.codec.protobuf import encode as encode_protobuf
from kubeloop.codec.redact_secrets import MASK
from kubeloop.endpoints.request_info import RequestInfo
from kubeloop.meta.errors import KubeloopError
from kubeloop.types import JSONObject

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_SECRET_HEADERS = frozenset(("cookie", "set-cookie", "x-api-key", "x-auth-token"))
_AUTHORIZATIONS = frozenset(("authorization", "proxy-authorization"))
#: WebSocket clients that cannot set headers send their token as a subprotocol (k8s.io/apiserver, authentication/request/websocket).
_BEARER_PROTOCOL = re.compile(r"(base64url\.bearer\.authorization\.k8s\.io\.)[A-Za-z0-9_\-=]+")

#: Masked in texts of all kinds: tokens in JWS form, private keys as PEM, the secrets of a kubeconfig.
_IN_TEXTS = (
    (re.compile(r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"), MASK),
    (re.compile(r"(-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----).*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|$)", re.DOTALL), rf"\1{MASK}\2"),
    (re.compile(r"((?:client-key-data|password|token)\\?[\"']?: *\\?[\"']?)[A-Za-z0-9+/=._~\-]{8,}"), rf"\1{MASK}"),
)
_MARKERS: Final = ("eyJ", "PRIVATE KEY", "client-key-data", "password", "token")
_OPTION = re.compile(r"^(--?(?:token|password)=).*", re.DOTALL)


def redacted_headers(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return headers without credentials. The scheme of an Authorization header stays."""
    return [(name, _header(name.lower(), value)) for name, value in headers]


def _header(name: str, value: str) -> str:
    if name in _AUTHORIZATIONS:
        scheme, blank, _ = value.partition(" ")
        return f"{scheme} {MASK}" if blank else MASK
    if name in _SECRET_HEADERS:
        return MASK
    return _BEARER_PROTOCOL.sub(rf"\1{MASK}", value) if name == "sec-websocket-protocol" else value


def redacted_command(command: Sequence[str]) -> list[str]:
    """Return a command line without the values of ``--token`` and ``--password``."""
    shown: list[str] = []
    hide = False
    for word in command:
        shown.append(MASK if hide else redacted_text(_OPTION.sub(rf"\1{MASK}", word)))
        hide = word in ("--token", "--password")
    return shown


def redacted_text(text: str) -> str:
    """Return a text without tokens and private keys."""
    if any(marker in text for marker in _MARKERS):
        for pattern, replacement in _IN_TEXTS:
            text = pattern.sub(replacement, text)
    return text


def may_be_secret(info: RequestInfo) -> bool:
    """Return whether the bodies of a request may contain secrets: Secrets, tokens, and reviews of tokens."""
    return info.resource in ("secrets", "tokenreviews") or info.subresource == "token"


def redacted_tree(tree: Any, info: RequestInfo | None = None) -> Any:
    """Return a decoded body without secrets: an object, a list, a Table, a watch event or a patch. The argument stays unchanged.

    ``info`` is the request: its resource tells more than the object's kind, which patches and metadata do not name.
    """
    return _Redaction(info is not None and info.resource == "secrets").of(tree)


class _Redaction:
    def __init__(self, secret: bool) -> None:
        self._secret = secret

    def of(self, tree: Any) -> Any:
        if isinstance(tree, list):  # a JSON patch
            return [self._operation(one) for one in tree]
        if not isinstance(tree, dict):
            return redacted_text(tree) if isinstance(tree, str) else tree
        kind = tree.get("kind")
        inner = _Redaction(self._secret or kind in ("Secret", "SecretList"))
        if isinstance(items := tree.get("items"), list):
            return {**inner._texts(tree, ("items",)), "items": [inner.of(item) for item in items]}
        if isinstance(rows := tree.get("rows"), list):
            return {**tree, "rows": [inner._row(row) for row in rows]}
        if isinstance(found := tree.get("object"), dict) and "type" in tree and "kind" not in tree:
            return {**tree, "object": self.of(found)}
        return inner._object(tree, str(kind))

    def _row(self, row: Any) -> Any:
        return {**self._texts(row, ("object",)), "object": self.of(row.get("object"))} if isinstance(row, dict) else row

    def _object(self, tree: JSONObject, kind: str) -> JSONObject:
        result = self._texts(tree, ())
        if self._secret:
            for name in ("data", "stringData"):
                if (values := result.get(name)) is not None:
                    result[name] = dict.fromkeys(values, MASK) if isinstance(values, dict) else MASK
            self._mask_last_applied(result)
        if kind == "TokenRequest" and isinstance(status := result.get("status"), dict) and "token" in status:
            result["status"] = {**status, "token": MASK}
        if kind == "TokenReview" and isinstance(spec := result.get("spec"), dict) and "token" in spec:
            result["spec"] = {**spec, "token": MASK}
        return result

    @staticmethod
    def _mask_last_applied(result: JSONObject) -> None:
        metadata = result.get("metadata")
        annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
        if isinstance(metadata, dict) and isinstance(annotations, dict) and _LAST_APPLIED in annotations:
            result["metadata"] = {**metadata, "annotations": {**annotations, _LAST_APPLIED: MASK}}

    def _operation(self, operation: Any) -> Any:
        if not isinstance(operation, dict) or "value" not in operation:
            return operation
        value = MASK if self._secret else self._text(operation["value"])
        return {**operation, "value": value}

    def _texts(self, tree: JSONObject, without: tuple[str, ...]) -> JSONObject:
        return {key: self._text(value) for key, value in tree.items() if key not in without}

    def _text(self, value: Any) -> Any:
        if isinstance(value, str):
            return redacted_text(value)
        if isinstance(value, dict):
            return {key: self._text(one) for key, one in value.items()}
        return [self._text(one) for one in value] if isinstance(value, list) else value


def redacted_body(tree: Any, info: RequestInfo, *, protobuf: bool) -> bytes | None:
    """Return the bytes of a decoded body without its secrets; None if it cannot be encoded again.

    Args:
        tree: The decoded body.
        info: The request.
        protobuf: Encode as protobuf instead of JSON.
    """
    shown = redacted_tree(tree, info)
    if not protobuf:
        return msgspec.json.encode(shown)
    try:
        if info.resource == "secrets":
            shown = _binary_values(shown)
        return encode_protobuf(shown)
    except (KubeloopError, ValueError, TypeError):
        return None


def _binary_values(tree: Any) -> Any:
    """Return the tree with masks that are valid base64, which the values of a Secret must be in protobuf."""
    if isinstance(tree, dict):
        shown = {key: _binary_values(value) for key, value in tree.items()}
        if isinstance(values := tree.get("data"), dict):
            shown["data"] = {key: "Kioq" if value == MASK else value for key, value in values.items()}  # base64 of ***
        return shown
    return [_binary_values(one) for one in tree] if isinstance(tree, list) else tree
