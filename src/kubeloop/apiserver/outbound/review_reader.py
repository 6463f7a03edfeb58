"""Parsing of a webhook's response: a JSON object of the review's kind, whose fields have the types of the API.

Source: admission/v1 and apiextensions/v1 review types; recorded errors of kube-apiserver 1.36, which come from Go's JSON decoder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kubeloop.apiserver.outbound.failure import CallFailed
from kubeloop.endpoints.go_json_errors import json_fault
from kubeloop.types import JSONObject

#: Go's name of a type, and the Python types that hold it.
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "bool": (bool,),
    "int32": (int,),
    "map[string]string": (dict,),
    "[]string": (list,),
    "[]runtime.RawExtension": (list,),
    "v1.Status": (dict,),
}
_GO_NAMES = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}
#: Upstream names the file in which its scheme was built; clients show the text.
_SCHEME = 'scheme "pkg/runtime/scheme.go:111"'
_TYPE_META = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'


def read_review(body: bytes, group: str, version: str, kind: str, fields: Mapping[str, str]) -> tuple[JSONObject | None, str]:
    """Parse the review that a webhook returned.

    Args:
        body: The body of the webhook's response.
        group: The expected API group, for example ``admission.k8s.io``.
        version: The expected version.
        kind: The expected kind, for example ``AdmissionReview``.
        fields: Fields of the review's ``response`` and their types in Go. Other fields are not checked.

    Returns:
        The ``response`` of the review, None if it has none; and the kind that the body states, as ``group/version, Kind=kind``.

    Raises:
        CallFailed: The body is not a JSON object, has another kind or version, or has a field of another type.
    """
    try:
        tree = json.loads(body)
    except (ValueError, RecursionError):
        raise CallFailed(f"couldn't get version/kind; json parse error: {json_fault(body) or 'invalid UTF-8'}") from None
    if not isinstance(tree, dict):
        met = _go_name(tree)
        raise CallFailed(f"couldn't get version/kind; json parse error: json: cannot unmarshal {met} into Go value of type {_TYPE_META}")
    given_version, given_kind = str(tree.get("apiVersion") or ""), str(tree.get("kind") or "")
    if given_kind not in ("", kind) or given_version.rpartition("/")[0] not in ("", group) or (given_version and "/" not in given_version):
        raise CallFailed(f'no kind "{given_kind}" is registered for version "{given_version}" in {_SCHEME}')
    given = given_version.rpartition("/")[2]
    if given not in ("", version):
        if given not in ("v1", "v1beta1"):
            raise CallFailed(f'no kind "{given_kind}" is registered for version "{given_version}" in {_SCHEME}')
        raise CallFailed(f"converting ({given}.{kind}) to ({version}.{kind}): unknown conversion")
    response = tree.get("response")
    if response is not None and not isinstance(response, dict):
        struct = kind.replace("Review", "Response")
        raise CallFailed(f"json: cannot unmarshal {_go_name(response)} into Go struct field {kind}.response of type {version}.{struct}")
    for name, type_ in fields.items():
        value = (response or {}).get(name)
        if value is not None:
            _check(value, type_, kind.replace("Review", "Response"), f"response.{name}")
    group_version, _, _ = given_version.rpartition("/")
    return response, f"{group_version}/{given}, Kind={given_kind}"


def _check(value: Any, type_: str, struct: str, path: str) -> None:
    if not isinstance(value, _TYPES[type_]) or (type_ == "int32" and isinstance(value, bool)):
        raise CallFailed(f"json: cannot unmarshal {_go_name(value)} into Go struct field {struct}.{path} of type {type_}")
    if type_ in ("[]string", "map[string]string"):
        for one in _items(value):
            if not isinstance(one, str | None):
                raise CallFailed(f"json: cannot unmarshal {_go_name(one)} into Go struct field {struct}.{path} of type string")


def _items(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else list(value)


def _go_name(value: Any) -> str:
    return _GO_NAMES.get(type(value), "null")
