"""The entries of ``spec.match``: the part that a request decides, and the part that an object's metadata decides."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from kubeloop.meta.label_requirement import Operator, Requirement
from kubeloop.meta.selectors import Selector
from kubeloop.proxy.rules.context import RewriteContext
from kubeloop.types import JSONObject

#: Subresources whose answer is the object itself. Source: Kubernetes API reference (pods, certificatesigningrequests, namespaces).
SELF_SUBRESOURCES: Final = frozenset({"", "status", "ephemeralcontainers", "resize", "finalize", "approval"})
#: Verbs of requests for many objects. A name in such a request comes from a field selector, which some servers ignore.
_MANY: Final = frozenset({"list", "watch", "deletecollection"})
#: The groups of events; both serve the same objects.
_EVENT_GROUPS: Final = frozenset({"", "events.k8s.io"})

TextMatcher: TypeAlias = Callable[[str], bool]
LabelMatcher: TypeAlias = Callable[[Mapping[str, str]], bool]


@dataclass(frozen=True, slots=True)
class ObjectCriteria:
    """The criteria that an object's metadata decides. None: any."""

    namespaces: TextMatcher | None = None
    names: TextMatcher | None = None
    labels: LabelMatcher | None = None
    #: The name of a Namespace is its namespace as well.
    of_namespace: bool = False

    @property
    def everything(self) -> bool:
        return self.namespaces is None and self.names is None and self.labels is None

    def match(self, namespace: str, name: str, labels: Mapping[str, str] | None) -> bool:
        """Return whether an object matches.

        Args:
            namespace: The object's namespace; empty for a cluster-scoped object.
            name: The object's name.
            labels: The object's labels. None: it has none.
        """
        if self.labels is not None and not self.labels(labels or {}):
            return False
        if self.names is not None and not self.names(name):
            return False
        if self.namespaces is None or self.namespaces(namespace):
            return True
        return self.of_namespace and self.namespaces(name)


@dataclass(frozen=True, slots=True)
class MatchEntry:
    """One entry of ``spec.match``: every given criterion must match. None: any.

    >>> entry = MatchEntry.from_tree({"resources": ["pods"], "names": ["web-*"]}, None)
    >>> entry.could_match("", "v1", "pods", "log")
    False
    """

    groups: frozenset[str] | None
    versions: frozenset[str] | None
    resources: frozenset[tuple[str, str]] | None
    verbs: frozenset[str] | None
    users: TextMatcher | None
    user_groups: TextMatcher | None
    user_agents: TextMatcher | None
    namespaces: TextMatcher | None
    names: TextMatcher | None
    selector: Selector | None
    labels: LabelMatcher | None

    @classmethod
    def from_tree(cls, entry: JSONObject, selector: Selector | None) -> MatchEntry:
        """Return the entry for a mapping whose structure is valid; ``selector`` is its parsed label selector."""
        resources = [(resource, subresource) for resource, _, subresource in (text.partition("/") for text in entry.get("resources", ()))]
        return cls(
            groups=_words(entry.get("groups")),
            versions=_words(entry.get("versions")),
            resources=frozenset(resources) if resources else None,
            verbs=_words(entry.get("verbs")),
            users=text_matcher(entry.get("users")),
            user_groups=text_matcher(entry.get("userGroups")),
            user_agents=text_matcher(entry.get("userAgents")),
            namespaces=text_matcher(entry.get("namespaces")),
            names=text_matcher(entry.get("names")),
            selector=selector,
            labels=label_matcher(selector),
        )

    @property
    def uses_users(self) -> bool:
        return self.users is not None or self.user_groups is not None

    def could_match(self, group: str, version: str, resource: str, subresource: str) -> bool:
        """Return whether a request for the resource of any user could match.

        Args:
            group: API group; empty for the core group.
            version: API version.
            resource: Resource in plural.
            subresource: Subresource, or empty.
        """
        if self.groups is not None and group not in self.groups:
            is_event = resource == "events" and group in _EVENT_GROUPS
            if not is_event or not self.groups & _EVENT_GROUPS:
                return False
        if self.versions is not None and version not in self.versions:
            return False
        return self.resources is None or any(_names(pattern, resource, subresource) for pattern in self.resources)

    def select(self, context: RewriteContext) -> ObjectCriteria | None:
        """Return the criteria that are left for objects, or None if no object in an answer to the request can match."""
        if not self.could_match(context.group, context.version, context.resource, context.subresource):
            return None
        if self.verbs is not None and context.verb not in self.verbs:
            return None
        if self.users is not None and not self.users(context.user.name):
            return None
        if self.user_groups is not None and not any(map(self.user_groups, context.user.groups)):
            return None
        if self.user_agents is not None and not self.user_agents(context.user_agent):
            return None
        namespaces, names = self.namespaces, self.names
        of_namespace = context.group == "" and context.resource == "namespaces"
        # A request for a Namespace names it as its namespace; its object decides below.
        if namespaces is not None and context.namespace and not of_namespace:
            if not namespaces(context.namespace):
                return None
            namespaces = None
        if names is not None and context.name and context.verb not in _MANY:
            if not names(context.name):
                return None
            names = None
        return ObjectCriteria(namespaces, names, self.labels, of_namespace)


def text_matcher(patterns: Iterable[str] | None) -> TextMatcher | None:
    """Return a function that matches a text against names and shell-style patterns; None for no patterns at all."""
    if patterns is None:
        return None
    patterns = tuple(patterns)
    exact = frozenset(pattern for pattern in patterns if not any(character in pattern for character in "*?["))
    globs = [fnmatch.translate(pattern) for pattern in patterns if pattern not in exact]
    if not globs:
        return exact.__contains__
    expression = re.compile("|".join(globs)).match
    return lambda text: text in exact or expression(text) is not None


def label_matcher(selector: Selector | None) -> LabelMatcher | None:
    """Return a function that matches labels as ``Selector.matches``, in half of the time."""
    if selector is None or selector.everything:
        return None
    if selector.nothing:
        return selector.matches
    matchers = [_requirement_matcher(requirement) for requirement in selector.requirements]
    if len(matchers) == 1:
        return matchers[0]
    return lambda labels: all(matches(labels) for matches in matchers)


def _requirement_matcher(requirement: Requirement) -> LabelMatcher:
    key, values = requirement.key, frozenset(requirement.values)
    match requirement.operator:
        case Operator.EQUALS | Operator.DOUBLE_EQUALS | Operator.IN:
            return lambda labels: labels.get(key) in values
        case Operator.NOT_EQUALS | Operator.NOT_IN:
            return lambda labels: labels.get(key) not in values
        case Operator.EXISTS:
            return lambda labels: labels.get(key) is not None
        case Operator.DOES_NOT_EXIST:
            return lambda labels: labels.get(key) is None
    return requirement.matches


def _words(words: Iterable[str] | None) -> frozenset[str] | None:
    """Return the words as a set; None for no words at all, and if one is ``*``."""
    found = frozenset(words or ())
    return None if not found or "*" in found else found


def _names(pattern: tuple[str, str], resource: str, subresource: str) -> bool:
    """Return whether a pattern such as ``pods/log`` or ``*/status`` names a resource with a subresource."""
    if pattern[0] not in (resource, "*"):
        return False
    if not pattern[1]:
        return subresource in SELF_SUBRESOURCES
    return pattern[1] == subresource or (pattern[1] == "*" and bool(subresource or pattern[0] == "*"))
