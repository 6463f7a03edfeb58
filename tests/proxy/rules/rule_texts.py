"""Rule documents, requests and objects for the tests of rules."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kubeloop.endpoints.access import User
from kubeloop.proxy.rules import RewriteContext, RuleSelection, RuleSet
from kubeloop.timing import Clock
from kubeloop.types import JSONObject

DROP: JSONObject = {"drop": True}
EVERYTHING: list[JSONObject] = [{}]


def rule(*actions: JSONObject, name: str = "r", match: list[JSONObject] = EVERYTHING, **spec: Any) -> JSONObject:
    """Return a rule document.

    Args:
        actions: The actions. Default: drop.
        name: The name of the rule.
        match: The entries of ``spec.match``.
        spec: Further fields of the specification.
    """
    return {
        "apiVersion": "proxy.kubeloop.dev/v1alpha1",
        "kind": "RewriteRule",
        "metadata": {"name": name},
        "spec": {"match": match, "actions": list(actions) or [DROP], **spec},
    }


def text_of(*rules: JSONObject) -> str:
    return "\n---\n".join(map(json.dumps, rules))


def rules_of(*rules: JSONObject, clock: Clock | None = None) -> RuleSet:
    return RuleSet.parse(text_of(*rules), clock=clock)


def request(
    user: str = "ann", groups: tuple[str, ...] = (), extra: Mapping[str, tuple[str, ...]] | None = None, **parts: str
) -> RewriteContext:
    """Return a request for the pod shop/web-0, except for the given parts.

    Args:
        user: The name of the user.
        groups: The groups of the user.
        extra: The extra attributes of the user.
        parts: Fields of the context.
    """
    defaults = {
        "verb": "get",
        "group": "",
        "version": "v1",
        "resource": "pods",
        "subresource": "",
        "namespace": "shop",
        "name": "web-0",
        "user_agent": "kubectl/v1.36.0",
    }
    return RewriteContext(User(user, groups, "u-1", extra or {}), **{**defaults, **parts})


def selection_of(*rules: JSONObject, clock: Clock | None = None, **parts: Any) -> RuleSelection:
    found = rules_of(*rules, clock=clock).select(request(**parts))
    assert found is not None
    return found


def pod(name: str = "web-0", namespace: str = "shop", **fields: Any) -> JSONObject:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": "u", "resourceVersion": "7", "labels": {"tier": "back"}},
        "spec": {"nodeName": "node-7", "containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]},
        **fields,
    }
