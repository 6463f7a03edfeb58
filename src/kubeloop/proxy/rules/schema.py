"""The JSON Schema of rule documents. Editors complete and check by it, and ``structure.py`` checks documents with the same tree.

Only keywords that ``structure.py`` knows are used.
"""

from __future__ import annotations

from typing import Final

from kubeloop.merge.go_text import copy_tree
from kubeloop.types import JSONObject

API_VERSION: Final = "proxy.kubeloop.dev/v1alpha1"
KIND: Final = "RewriteRule"

#: Verbs of requests that have a rule. Source: Kubernetes documentation, "Authorization" (request verbs).
VERBS: Final = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "*")
#: Seconds of the longest call of a Python callable. A client waits for it.
MAX_TIMEOUT_SECONDS: Final = 60
_DNS_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"


def rule_schema() -> JSONObject:
    """Return the JSON Schema (2020-12) of a rule document.

    >>> rule_schema()["properties"]["kind"]["const"]
    'RewriteRule'
    """
    return copy_tree(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": f"https://{API_VERSION}/{KIND}.json",
            **_object(
                "RewriteRule", "A rule that changes or hides objects in the answers of an API server.", _DOCUMENT, _DOCUMENT_REQUIRED
            ),
        }
    )


def _object(title: str, description: str, properties: JSONObject, required: tuple[str, ...] = ()) -> JSONObject:
    """Return the schema of a mapping with these fields only.

    Args:
        title: Name of the field for people.
        description: A sentence about it.
        properties: The schema of each field.
        required: The fields that must be present.
    """
    made: JSONObject = {"title": title, "description": description, "type": "object", "properties": properties}
    if required:
        made["required"] = list(required)
    made["additionalProperties"] = False
    return made


def _text(title: str, description: str, example: str = "") -> JSONObject:
    return {"title": title, "description": description, "type": "string", "minLength": 1, **({"examples": [example]} if example else {})}


def _list(title: str, description: str, items: JSONObject, example: list[str] | None = None) -> JSONObject:
    """Return the schema of a list with at least one item.

    Args:
        title: Name of the field for people.
        description: A sentence about it.
        items: The schema of each item.
        example: A value of the field.
    """
    made: JSONObject = {"title": title, "description": description, "type": "array", "items": items, "minItems": 1}
    return {**made, "examples": [example]} if example else made


def _texts(title: str, description: str, example: list[str]) -> JSONObject:
    return _list(title, description, {"type": "string", "minLength": 1}, example)


_METADATA: Final[JSONObject] = {
    "name": {
        "title": "Name",
        "description": "The name of the rule, unique among all rules; logs, metrics and headers contain it.",
        "type": "string",
        "minLength": 1,
        "maxLength": 253,
        "pattern": rf"^{_DNS_LABEL}(\.{_DNS_LABEL})*$",
        "examples": ["hide-internal"],
    },
    "labels": {
        "title": "Labels",
        "description": "Labels for your own tools; the proxy ignores them.",
        "type": "object",
        "additionalProperties": {"type": "string"},
    },
    "annotations": {
        "title": "Annotations",
        "description": "Annotations for your own tools; the proxy ignores them.",
        "type": "object",
        "additionalProperties": {"type": "string"},
    },
}

_ENTRY: Final[JSONObject] = {
    "groups": _list(
        "API groups", 'API groups: "" is the core group, "*" any group. Default: any.', {"type": "string"}, ["", "discovery.k8s.io"]
    ),
    "versions": _texts("API versions", 'Versions of the API group; "*" is any version. Default: any.', ["v1"]),
    "resources": _list(
        "Resources",
        'Resources in plural: "pods", "pods/log", "pods/*", "*/status", "*", "*/*". "pods" and "*" include the subresources that return '
        "the object itself, such as status; others, such as scale, are named. Default: any such resource.",
        {"type": "string", "pattern": r"^(\*|[a-z0-9][-a-z0-9.]*)(/(\*|[a-z0-9][-a-z0-9]*))?$"},
        ["pods", "pods/log"],
    ),
    "verbs": _list("Verbs", "Verbs of the request. Default: any.", {"type": "string", "enum": list(VERBS)}, ["get", "list", "watch"]),
    "namespaces": _list(
        "Namespaces",
        'Names or patterns (*, ?, [a-z]) of the object\'s namespace; "" is that of cluster-scoped objects. The name of a Namespace counts '
        "as its namespace too. Default: any.",
        {"type": "string"},
        ["shop", "team-*"],
    ),
    "names": _texts("Names", "Names or patterns (*, ?, [a-z]) of the object. Default: any.", ["web-*"]),
    "labelSelector": {
        "title": "Label selector",
        "description": "Labels of the object, in the syntax of kubectl's --selector. Default: any.",
        "type": "string",
        "examples": ["tier=back,!public"],
    },
    "users": _texts("Users", "Names or patterns of the user who sends the request. Default: any.", ["system:serviceaccount:shop:*"]),
    "userGroups": _texts("User groups", "Names or patterns; the user is in at least one of the groups. Default: any.", ["devs"]),
    "userAgents": _texts("User agents", "Patterns of the header User-Agent. Default: any.", ["kubectl/*"]),
}

_OPERATION: Final[JSONObject] = {
    "op": {
        "title": "Operation",
        "description": "What the operation does.",
        "type": "string",
        "enum": ["add", "remove", "replace", "move", "copy", "test"],
    },
    "path": {
        "title": "Path",
        "description": 'JSON pointer of the field, with "~1" for "/" and "~0" for "~" in names.',
        "type": "string",
        "pattern": r"^(/([^~]|~[01])*)?$",
        "examples": ["/spec/replicas"],
    },
    "from": {
        "title": "Source",
        "description": "JSON pointer of the field that move and copy read.",
        "type": "string",
        "pattern": r"^(/([^~]|~[01])*)?$",
    },
    "value": {"title": "Value", "description": "The value of add, replace and test."},
}

_ACTION: Final[JSONObject] = {
    "drop": {"title": "Hide", "description": "Hide the object from the client.", "type": "boolean", "const": True},
    "set": {
        "title": "Set fields",
        "description": "Set fields by path; missing mappings are created, missing list items are not.",
        "type": "object",
        "additionalProperties": {"title": "Value", "description": "The value that clients see."},
        "minProperties": 1,
        "examples": [{"spec.nodeName": "hidden", "spec.containers[*].image": "hidden", 'metadata.labels["a.b/c"]': "x"}],
    },
    "remove": _texts(
        "Remove fields", "Remove fields by path; a missing field is no error.", ["metadata.annotations", "spec.containers[0].env"]
    ),
    "jsonPatch": _list(
        "JSON patch",
        "Apply a JSON patch (RFC 6902).",
        _object("Operation", "One operation of the patch.", _OPERATION, ("op", "path")),
    ),
    "mergePatch": {
        "title": "Merge patch",
        "description": "Apply a JSON merge patch (RFC 7386): null removes a field, mappings merge, everything else replaces.",
        "type": "object",
        "additionalProperties": {"title": "Value", "description": "The value to merge."},
        "minProperties": 1,
        "examples": [{"metadata": {"labels": {"seen": "yes"}}}],
    },
    "mapAddresses": _object(
        "Map addresses",
        "Replace the addresses of Endpoints, EndpointSlices, and Pods and their hosts.",
        {
            "to": _text("Address", "The IP address that clients see.", "127.0.0.9"),
            "port": {
                "title": "Port",
                "description": "The port that clients see in Endpoints and EndpointSlices. Default: unchanged.",
                "type": "integer",
                "minimum": 1,
                "maximum": 65535,
            },
        },
        ("to",),
    ),
    "python": _object(
        "Python callable",
        "Call a Python function with the object and the request; it returns the object to show, or None to hide it.",
        {
            "callable": {
                "title": "Callable",
                "description": 'A function, "module:function", sync or async.',
                "type": "string",
                "pattern": r"^[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*$",
                "examples": ["my.rules:rewrite"],
            },
            "timeoutSeconds": {
                "title": "Time limit",
                "description": "Seconds after which the call fails. Default: 1.",
                "type": "number",
                "exclusiveMinimum": 0,
                "maximum": MAX_TIMEOUT_SECONDS,
                "default": 1,
            },
        },
        ("callable",),
    ),
}

#: The names of the actions.
ACTIONS: Final = tuple(_ACTION)

_SPEC: Final[JSONObject] = {
    "match": _list(
        "Match",
        "Which requests and objects the rule is for: any of the entries matches, and every field of that entry does.",
        _object("Entry", "Matches if every given field matches; an entry without fields matches everything.", _ENTRY),
    ),
    "when": _text(
        "Condition",
        "A CEL expression over object, request and user. The rule applies where it returns true.",
        "object.metadata.name != 'web-0' && !('admins' in user.groups)",
    ),
    "actions": _list(
        "Actions",
        "What the rule does, in this order.",
        {
            **_object("Action", "Exactly one action.", _ACTION),
            "minProperties": 1,
            "maxProperties": 1,
        },
    ),
    "writes": {
        "title": "Writes",
        "description": "What happens to writes of objects that the rule changes: Deny refuses them, Pass sends them on as they are, "
        "Reverse puts the server's values back first. Default: Deny.",
        "type": "string",
        "enum": ["Deny", "Pass", "Reverse"],
        "default": "Deny",
    },
    "onError": {
        "title": "On error",
        "description": "What happens if the rule fails on an object: Fail answers with an error, Pass discards the rule's changes. "
        "Default: Fail.",
        "type": "string",
        "enum": ["Fail", "Pass"],
        "default": "Fail",
    },
}

_DOCUMENT_REQUIRED: Final = ("apiVersion", "kind", "metadata", "spec")
_DOCUMENT: Final[JSONObject] = {
    "apiVersion": {"title": "API version", "description": "The version of the rule's format.", "type": "string", "const": API_VERSION},
    "kind": {"title": "Kind", "description": "The kind of the document.", "type": "string", "const": KIND},
    "metadata": _object("Metadata", "The name of the rule.", _METADATA, ("name",)),
    "spec": _object("Specification", "Which objects the rule is for, and what it does to them.", _SPEC, ("match", "actions")),
}
