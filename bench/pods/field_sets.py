"""managedFields as structured-merge-diff writes them."""

from __future__ import annotations

import json
from typing import Any

MERGE = {
    "containers": ("name",),
    "initContainers": ("name",),
    "env": ("name",),
    "ports": ("containerPort", "protocol"),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
    "imagePullSecrets": ("name",),
    "conditions": ("type",),
    "podIPs": ("ip",),
    "ownerReferences": ("uid",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
}
ATOMIC = {
    "tolerations",
    "nodeSelector",
    "valueFrom",
    "args",
    "command",
    "selector",
    "containerStatuses",
    "initContainerStatuses",
    "hostIPs",
    "sources",
    "items",
    "drop",
    "labelSelector",
    "matchLabels",
}


def fields(value: Any, name: str = "") -> dict[str, Any]:
    """The FieldsV1 tree of a value, as structured-merge-diff writes it."""
    if name in ATOMIC or not isinstance(value, (dict, list)):
        return {}
    if isinstance(value, list):
        keys = MERGE.get(name)
        if not keys:
            return {}
        tree: dict[str, Any] = {".": {}}
        for item in value:
            k = json.dumps({key: item[key] for key in keys if key in item}, separators=(",", ":"))
            tree["k:" + k] = {} if name == "ownerReferences" else {".": {}, **fields(item)}
        return tree
    tree = {"f:" + k: fields(v, k) for k, v in value.items()}
    if name in ("labels", "annotations", "limits", "requests"):
        tree = {".": {}, **tree}
    return tree
