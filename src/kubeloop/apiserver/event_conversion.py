"""Events exist twice, in the core group and in events.k8s.io, under different field names; both are one stored object.

Source: k8s.io/kubernetes pkg/apis/events/v1/conversion.go, pkg/apis/core/v1.
"""

from __future__ import annotations

from kubeloop.types import JSONObject

#: Core name to the name in events.k8s.io; names in neither column are the same.
_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_BACK = {there: here for here, there in _NAMES.items()}
#: What Go's types always write, empty or not.
_ALWAYS: dict[str, JSONObject] = {
    "v1": {
        "involvedObject": {},
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "reportingComponent": "",
        "reportingInstance": "",
    },
    "events.k8s.io/v1": {"regarding": {}, "deprecatedSource": {}, "deprecatedFirstTimestamp": None, "deprecatedLastTimestamp": None},
}


def convert_event(obj: JSONObject, to: str) -> JSONObject:
    """``obj`` as ``v1`` or ``events.k8s.io/v1``, whichever it is now."""
    if obj.get("apiVersion") == to:
        return obj
    names = _BACK if to == "v1" else _NAMES
    converted: JSONObject = {"kind": "Event", "apiVersion": to, "metadata": obj["metadata"]}
    for name, value in obj.items():
        if name not in converted:
            converted[names.get(name, name)] = value
    for name, value in _ALWAYS[to].items():
        converted.setdefault(name, value)
    if to != "v1":
        for name in ("reportingInstance", "reportingController"):
            if not converted.get(name):
                converted.pop(name, None)
    return converted
