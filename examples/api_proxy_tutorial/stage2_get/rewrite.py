"""What clients see of a pod."""

from __future__ import annotations

from kubeloop.types import JSONObject


def rewrite(pod: JSONObject) -> JSONObject | None:
    """Return a pod as clients see it, or None to hide it."""
    if (pod["metadata"].get("labels") or {}).get("tier") == "internal":
        return None
    # managedFields repeats which fields the pod has.
    metadata = {name: value for name, value in pod["metadata"].items() if name != "managedFields"}
    return {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": "hidden"}}
