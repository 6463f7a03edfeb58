"""Requirements on nodes and on other pods: selector terms of nodes, tolerations of taints, terms of pod affinity. No I/O.

Source: Kubernetes component-helpers scheduling/corev1 (nodeaffinity, helpers.go) and k8s.io/api core/v1 toleration.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kubeloop.meta import Selector
from kubeloop.meta.strconv import decimal
from kubeloop.types import JSONObject

if TYPE_CHECKING:
    from kubeloop.controlplane.scheduling.facts import PodFacts

#: Effects of taints that prevent scheduling on a node.
BLOCKING_EFFECTS = ("NoSchedule", "NoExecute")


class AffinityTerm(NamedTuple):
    """One term of pod affinity or anti-affinity. ``weight`` is 0 for a required term."""

    topology_key: str
    namespaces: frozenset[str]
    namespace_selector: Selector
    selector: Selector
    weight: int = 0

    def matches(self, pod: PodFacts, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
        """Return whether the term matches a pod; ``namespaces`` has the labels of all namespaces by name."""
        return self.matches_labels(pod.namespace, pod.labels, namespaces)

    def matches_labels(self, namespace: str, labels: Mapping[str, str], namespaces: Mapping[str, Mapping[str, str]]) -> bool:
        """Return whether the term matches pods with certain labels in a namespace; ``namespaces`` has the labels of all namespaces."""
        near = namespace in self.namespaces or self.namespace_selector.matches(namespaces.get(namespace, {}))
        return near and self.selector.matches(labels)


def tolerates(tolerations: Iterable[JSONObject], taint: JSONObject) -> bool:
    """Return whether one of the tolerations tolerates a taint."""
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: JSONObject, taint: JSONObject) -> bool:
    """Return whether a toleration tolerates a taint. An empty key with the operator Exists tolerates every taint."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return (toleration.get("operator") or "Equal") == "Equal" and (toleration.get("value") or "") == (taint.get("value") or "")


def meets_any_term(terms: Iterable[JSONObject], labels: Mapping[str, str], name: str) -> bool:
    """Return whether a node meets one of the terms of a node selector."""
    return any(meets_term(term, labels, name) for term in terms)


def meets_term(term: JSONObject, labels: Mapping[str, str], name: str) -> bool:
    """Return whether a node with a name and labels meets a term of a node selector; a term without requirements matches no node."""
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    return all(_meets(one, labels) for one in expressions) and all(_meets(one, {"metadata.name": name}) for one in fields)


def meets_topology(term: JSONObject, labels: Mapping[str, str]) -> bool:
    """Return whether a node meets a term of a storage class's allowed topologies; a term without requirements matches no node."""
    expressions = term.get("matchLabelExpressions") or ()
    return bool(expressions) and all(labels.get(one["key"]) in one["values"] for one in expressions)


def named_nodes(terms: Iterable[JSONObject]) -> set[str] | None:
    """Return the names of the only nodes that terms of a node selector allow by ``metadata.name``; None if a term has no such field."""
    allowed: set[str] | None = None
    for term in terms:
        named = [
            set(one.get("values") or ())
            for one in term.get("matchFields") or ()
            if (one["key"], one["operator"]) == ("metadata.name", "In")
        ]
        if not named:
            return None
        allowed = (allowed or set()) | set.intersection(*named)
    return allowed


def _meets(requirement: JSONObject, labels: Mapping[str, str]) -> bool:
    value, operator, values = labels.get(requirement["key"]), requirement["operator"], requirement.get("values") or []
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    # A value that Go's ParseInt refuses is neither greater nor less (apimachinery pkg/labels/selector.go).
    number, bound = decimal(value or ""), decimal(values[0]) if len(values) == 1 else None
    if number is None or bound is None:
        return False
    return number > bound if operator == "Gt" else operator == "Lt" and number < bound
