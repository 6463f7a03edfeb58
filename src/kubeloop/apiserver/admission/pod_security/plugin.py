"""The plug-in PodSecurity: rejects pods, warns about workloads, checks the labels of namespaces. It has no exemptions.

Source: k8s.io/pod-security-admission admission/admission.go; plugin/pkg/admission/security/podsecurity.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple, TypeVar

from kubeloop.apiserver.admission.chain import NAMESPACES, Attributes, join_messages, new_forbidden
from kubeloop.apiserver.admission.pod_security.baseline import BASELINE, Check, Pod, Violation
from kubeloop.apiserver.admission.pod_security.restricted import RESTRICTED
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.storage import prefix_end
from kubeloop.endpoints import api_errors
from kubeloop.meta.field_error import FieldError, invalid
from kubeloop.meta.kinds import GroupKind, GroupResource, GroupVersionResource
from kubeloop.types import JSONObject

# Levels and versions of the Pod Security Standards, and the policy in the labels of a namespace.
#
# Source: k8s.io/pod-security-admission api/helpers.go.


T = TypeVar("T")

PREFIX = "pod-security.kubernetes.io/"
#: From the least to the most restrictive level.
LEVELS = ("privileged", "baseline", "restricted")
#: The minor version of Kubernetes 1 that ``latest`` means: greater than any other.
LATEST = 1 << 62
_VERSION = re.compile(r"v1\.(0|[1-9][0-9]*)", re.ASCII)


class LevelVersion(NamedTuple):
    """A level of the Pod Security Standards, as of Kubernetes 1.``minor``."""

    level: str
    minor: int

    def __str__(self) -> str:
        return f"{self.level}:{'latest' if self.minor == LATEST else f'v1.{self.minor}'}"

    @property
    def strictness(self) -> int:
        """Position of the level in ``LEVELS``."""
        return LEVELS.index(self.level)


PRIVILEGED = LevelVersion("privileged", LATEST)


class NamespacePolicy(NamedTuple):
    """The levels that a namespace enforces, writes to the audit log, and warns about."""

    enforce: LevelVersion = PRIVILEGED
    audit: LevelVersion = PRIVILEGED
    warn: LevelVersion = PRIVILEGED


def parse_policy(labels: Mapping[str, str]) -> tuple[NamespacePolicy, list[FieldError]]:
    """Return the policy in the labels of a namespace, and the errors in these labels.

    An invalid level to enforce counts as restricted, any other invalid level as privileged, and an invalid version as the latest.
    """
    if not any(name.startswith(PREFIX) for name in labels):
        return NamespacePolicy(), []
    errors: list[FieldError] = []

    def read(name: str, parse: Callable[[str], T | None], missing: T, faulty: T, wrong: str) -> tuple[T, bool]:
        value = labels.get(PREFIX + name)
        if value is None:
            return missing, False
        parsed = parse(value)
        if parsed is None:
            errors.append(invalid(f"metadata.labels[{PREFIX}{name}]", value, wrong))
            return faulty, False
        return parsed, True

    def level(mode: str, faulty: str) -> tuple[str, bool]:
        return read(mode, lambda text: text if text in LEVELS else None, "privileged", faulty, f"must be one of {', '.join(LEVELS)}")

    def version(mode: str) -> int:
        return read(f"{mode}-version", _minor, LATEST, LATEST, 'must be "latest" or "v1.x"')[0]

    enforced, is_named = level("enforce", "restricted")
    enforce = LevelVersion(enforced, version("enforce"))
    audit = LevelVersion(level("audit", "privileged")[0], version("audit"))
    warn = LevelVersion(level("warn", "privileged")[0], version("warn"))
    if PREFIX + "warn" not in labels and is_named and enforce.strictness > warn.strictness:
        warn = LevelVersion(enforce.level, warn.minor if PREFIX + "warn-version" in labels else enforce.minor)
    return NamespacePolicy(enforce, audit, warn), errors


def _minor(text: str) -> int | None:
    if text == "latest":
        return LATEST
    match = _VERSION.fullmatch(text)
    # Upstream parses the number into 64 bits.
    return int(match[1]) if match is not None and len(match[1]) < 19 else None


# The checks of each level and version, and their results. Source: k8s.io/pod-security-admission policy/registry.go.


#: The newest version in which a check has changed.
_NEWEST = max(minor for versions in (*BASELINE.values(), *(one.versions for one in RESTRICTED.values())) for minor, _ in versions)


def violations(level: LevelVersion, pod: Pod) -> list[Violation]:
    """Return all violations of a pod, first those of baseline and then those of restricted, sorted by the names of the checks."""
    if level.level == "privileged":
        return []
    value = (check(pod) for check in _checks(level.level, min(level.minor, _NEWEST)))
    return [one for one in value if one is not None]


@cache
def _checks(level: str, minor: int) -> list[Check]:
    """Return the checks of a level. The cache is bounded: two levels of at most ``_NEWEST`` versions."""
    baseline = {name: check for name, versions in BASELINE.items() if (check := _as_of(versions, minor)) is not None}
    if level == "baseline":
        return [baseline[name] for name in sorted(baseline)]
    restricted: dict[str, Check] = {}
    for name, one in RESTRICTED.items():
        check = _as_of(one.versions, minor)
        if check is not None:
            restricted[name] = check
            baseline.pop(one.instead_of, None)
    return [baseline[name] for name in sorted(baseline)] + [restricted[name] for name in sorted(restricted)]


def _as_of(versions: tuple[tuple[int, Check], ...], minor: int) -> Check | None:
    return next((check for since, check in reversed(versions) if since <= minor), None)


#: Maximum number of pods of a namespace to check, as upstream.
MOST_PODS = 3000


def warnings_about(namespace: str, level: LevelVersion, pods: Iterable[JSONObject]) -> list[str]:
    """Return warnings about the existing pods of a namespace that violate ``level``.

    Source: k8s.io/pod-security-admission admission/admission.go, EvaluatePodsInNamespace.
    """
    ordered = _prioritized(pods)
    by_reason: dict[str, list[str]] = {}
    for pod in ordered[:MOST_PODS]:
        reason = ", ".join(one.reason for one in violations(level, Pod(pod["metadata"], pod["spec"])))
        if reason:
            by_reason.setdefault(reason, []).append(pod["metadata"]["name"])
    messages = []
    if len(ordered) > MOST_PODS:
        messages.append(f"new PodSecurity enforce level only checked against the first {MOST_PODS} of {len(ordered)} existing pods")
    if by_reason:
        messages.append(f'existing pods in namespace "{namespace}" violate the new PodSecurity enforce level "{level}"')
    return messages + sorted(_about(names, reason) for reason, names in by_reason.items())


def _prioritized(pods: Iterable[JSONObject]) -> list[JSONObject]:
    """Return the pods with one pod of each controller first, because the pods of one controller most likely have the same violations."""
    first: list[JSONObject] = []
    twins: list[JSONObject] = []
    seen: set[str] = set()
    for pod in pods:
        owner = next((one["uid"] for one in pod["metadata"].get("ownerReferences") or () if one.get("controller")), None)
        (twins if owner in seen else first).append(pod)
        if owner is not None:
            seen.add(owner)
    return first + twins


def _about(names: list[str], reason: str) -> str:
    others = len(names) - 1
    more = "" if not others else f" (and {others} other pod{'s' if others > 1 else ''})"
    return f"{min(names)}{more}: {reason}"


_PODS = GroupResource("", "pods")
#: Resources that contain a pod template, and the path to it.
_TEMPLATES: dict[GroupResource, tuple[str, ...]] = {
    GroupResource("", "podtemplates"): ("template",),
    GroupResource("", "replicationcontrollers"): ("spec", "template"),
    GroupResource("apps", "replicasets"): ("spec", "template"),
    GroupResource("apps", "deployments"): ("spec", "template"),
    GroupResource("apps", "statefulsets"): ("spec", "template"),
    GroupResource("apps", "daemonsets"): ("spec", "template"),
    GroupResource("batch", "jobs"): ("spec", "template"),
    GroupResource("batch", "cronjobs"): ("spec", "jobTemplate", "spec", "template"),
}
#: Subresources of pods that contain no pod or leave its spec unchanged.
_HARMLESS = frozenset({"exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"})


class PodSecurity:
    """Plug-in PodSecurity: applies the policy in the labels of the namespace, which it reads for each write. The plug-in has no state."""

    resources = frozenset({NAMESPACES, _PODS, *_TEMPLATES})

    def __init__(self, registry: Registry, objects: Objects) -> None:
        self._registry = registry
        self._objects = objects

    async def mutate(self, attributes: Attributes) -> None:
        """Do nothing: this plug-in only validates."""

    async def validate(self, attributes: Attributes) -> None:
        if attributes.operation not in ("CREATE", "UPDATE") or attributes.obj is None:
            return
        resource = attributes.resource.gvr.group_resource
        if resource == NAMESPACES:
            await self._check_namespace(attributes)
        elif resource == _PODS:
            await self._check_pod(attributes)
        elif not attributes.subresource:
            await self._check_template(attributes, _TEMPLATES[resource])

    async def _check_namespace(self, attributes: Attributes) -> None:
        if attributes.subresource:
            return
        assert attributes.obj is not None
        policy, errors = parse_policy(attributes.obj["metadata"].get("labels") or {})
        before, old_faults = NamespacePolicy(), list[FieldError]()
        if attributes.old is not None:
            before, old_faults = parse_policy(attributes.old["metadata"].get("labels") or {})
        if errors and errors != old_faults:
            raise api_errors.invalid(GroupKind("", "Namespace"), attributes.name or attributes.obj["metadata"].get("name", ""), errors)
        if attributes.operation == "CREATE" or policy.enforce == before.enforce or policy.enforce.level == "privileged":
            return
        if policy.enforce.minor == before.enforce.minor and policy.enforce.strictness <= before.enforce.strictness:
            return
        attributes.warnings.extend(warnings_about(attributes.name, policy.enforce, await self._pods(attributes.name)))

    async def _pods(self, namespace: str) -> list[JSONObject]:
        resource = self._registry.get(GroupVersionResource("", "v1", "pods"))
        if resource is None:
            return []
        prefix = Objects.prefix(resource, namespace)
        value = await self._objects.storage.range(prefix, prefix_end(prefix))
        return [self._objects.tree(resource, kv) for kv in value.items]

    async def _check_pod(self, attributes: Attributes) -> None:
        if attributes.subresource in _HARMLESS:
            return
        policy, errors = await self._policy(attributes.namespace)
        if not errors and policy.enforce.level == policy.audit.level == policy.warn.level == "privileged":
            attributes.audit_annotations[f"{PREFIX}enforce-policy"] = str(PRIVILEGED)
            return
        obj, old = attributes.obj, attributes.old
        assert obj is not None
        if attributes.operation == "UPDATE" and old is not None and not _is_significant(obj["spec"], old["spec"]):
            return
        self._judge(attributes, policy, errors, Pod(obj["metadata"], obj["spec"]), enforce=True)

    async def _check_template(self, attributes: Attributes, path: tuple[str, ...]) -> None:
        policy, errors = await self._policy(attributes.namespace)
        if not errors and policy.audit.level == policy.warn.level == "privileged":
            return
        template: Any = attributes.obj
        for name in path:
            template = (template or {}).get(name)
        if template is not None:
            self._judge(attributes, policy, errors, Pod(template.get("metadata") or {}, template.get("spec") or {}), enforce=False)

    async def _policy(self, namespace: str) -> tuple[NamespacePolicy, list[FieldError]]:
        resource = self._registry.get(GroupVersionResource("", "v1", "namespaces"))
        stored = await self._objects.get(resource, "", namespace) if resource is not None else None
        if stored is None:
            raise api_errors.internal(f'failed to lookup namespace "{namespace}"')
        return parse_policy(stored.obj["metadata"].get("labels") or {})

    @staticmethod
    def _judge(attributes: Attributes, policy: NamespacePolicy, errors: list[FieldError], pod: Pod, *, enforce: bool) -> None:
        known: dict[LevelVersion, str] = {}

        def judged(level: LevelVersion) -> str:
            if level not in known:
                known[level] = ", ".join(str(one) for one in violations(level, pod))
            return known[level]

        notes = attributes.audit_annotations
        if errors:
            notes[f"{PREFIX}error"] = f"Failed to parse policy: {join_messages(str(one) for one in errors)}"
        if enforce:
            notes[f"{PREFIX}enforce-policy"] = str(policy.enforce)
        if judged(policy.audit):
            notes[f"{PREFIX}audit-violations"] = f'would violate PodSecurity "{policy.audit}": {judged(policy.audit)}'
        if enforce and judged(policy.enforce):
            why = f'violates PodSecurity "{policy.enforce}": {judged(policy.enforce)}'
            raise new_forbidden(attributes, why)
        if judged(policy.warn):
            attributes.warnings.append(f'would violate PodSecurity "{policy.warn}": {judged(policy.warn)}')


def _is_significant(spec: JSONObject, old: JSONObject) -> bool:
    """Return whether an update of a pod can change the result of the checks: it adds containers, or changes an image."""
    for kind in ("containers", "initContainers"):
        now, before = spec.get(kind) or [], old.get(kind) or []
        if [one.get("image") for one in now] != [one.get("image") for one in before]:
            return True
    images = {one["name"]: one.get("image") for one in old.get("ephemeralContainers") or ()}
    return any(one["name"] not in images or images[one["name"]] != one.get("image") for one in spec.get("ephemeralContainers") or ())
