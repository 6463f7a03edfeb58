"""What no audit log shows: the data of Secrets, and tokens. Whoever may read the log must not learn credentials from it.

A deviation from kube-apiserver, which logs them at the levels Request and RequestResponse and leaves it to the policy not to.
"""

from __future__ import annotations

from typing import Any, Final

from kubeloop.apiserver.request_info import RequestInfo

#: Stands for each value that is not shown.
HIDDEN: Final = "<redacted>"

_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_DATA = frozenset({"data", "stringData"})
_AUTHENTICATION = "authentication.k8s.io"


def redact(info: RequestInfo, tree: Any) -> Any:
    """``tree`` is what a request sent or was answered (an object, a list, a Table, a patch); it is changed in place and returned."""
    if info.group == "" and info.resource == "secrets":
        return _secrets(tree)
    if info.group == "" and (info.resource, info.subresource) == ("serviceaccounts", "token"):
        _hide(tree, "status", "token")
    elif info.group == _AUTHENTICATION and info.resource == "tokenreviews":
        _hide(tree, "spec", "token")
        _without_applied(tree)
    return tree


def _secrets(tree: Any) -> Any:
    if isinstance(tree, list):  # a JSON patch: any value may be, or hold, data
        return [{**one, "value": HIDDEN} if isinstance(one, dict) and "value" in one else one for one in tree]
    if not isinstance(tree, dict):
        return HIDDEN
    for name in _DATA & tree.keys():
        values = tree[name]
        tree[name] = dict.fromkeys(values, HIDDEN) if isinstance(values, dict) else HIDDEN
    _without_applied(tree)
    for one in tree.get("items") or ():
        _secrets(one)
    for row in tree.get("rows") or ():
        if isinstance(row, dict) and isinstance(row.get("object"), dict):
            _secrets(row["object"])
    return tree


def _hide(tree: Any, part: str, name: str) -> None:
    inner = tree.get(part) if isinstance(tree, dict) else None
    if isinstance(inner, dict) and inner.get(name):
        inner[name] = HIDDEN


def _without_applied(tree: Any) -> None:
    """``kubectl apply`` keeps the whole object in an annotation."""
    metadata = tree.get("metadata") if isinstance(tree, dict) else None
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if isinstance(annotations, dict) and _APPLIED in annotations:
        annotations[_APPLIED] = HIDDEN
