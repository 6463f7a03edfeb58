"""What admission fills into pods by default: priority, tolerations of dying nodes, the service account and its token volume.

Source: plugin/pkg/admission/{priority,defaulttolerationseconds,serviceaccount}.
"""

from __future__ import annotations

import random

from kubeloop.apiserver import refusals
from kubeloop.apiserver.admission import Attributes
from kubeloop.apiserver.builtin.pods.claims import MIRROR
from kubeloop.apiserver.builtin.pods.options import JSONObject
from kubeloop.apiserver.objects import Objects
from kubeloop.apiserver.registry import Registry
from kubeloop.meta.errors import ApiError
from kubeloop.meta.kinds import GroupResource, GroupVersionResource

PODS = GroupResource("", "pods")
_TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a path
_TOKEN_SECONDS = 3607
_SYSTEM_CLASSES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def _is_pod_write(attributes: Attributes, *operations: str) -> bool:
    return attributes.resource.gvr.group_resource == PODS and not attributes.subresource and attributes.operation in operations


def _refused(attributes: Attributes, why: str) -> ApiError:
    name = attributes.name or (attributes.obj or {}).get("metadata", {}).get("name", "")
    return refusals.forbidden(PODS, name or "Unknown", why)


class DefaultTolerations:
    """Pods stay five minutes on a node that is not ready or out of reach, unless they say otherwise."""

    async def mutate(self, attributes: Attributes) -> None:
        if attributes.obj is None or not _is_pod_write(attributes, "CREATE", "UPDATE"):
            return
        spec = attributes.obj["spec"]
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
            if not any(_tolerates(one, key) for one in spec.get("tolerations") or ()):
                default = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
                spec["tolerations"] = [*(spec.get("tolerations") or []), default]

    async def validate(self, attributes: Attributes) -> None:
        """Nothing is left to check."""


def _tolerates(toleration: JSONObject, key: str) -> bool:
    return toleration.get("key", "") in (key, "") and toleration.get("effect", "") in ("NoExecute", "")


class Priority:
    """A pod's priority is that of its class, or of the default class, or zero."""

    def __init__(self, registry: Registry, objects: Objects) -> None:
        self._registry = registry
        self._objects = objects

    async def mutate(self, attributes: Attributes) -> None:
        if attributes.obj is None:
            return
        spec = attributes.obj.get("spec") or {}
        if _is_pod_write(attributes, "UPDATE"):
            before = (attributes.old or {}).get("spec") or {}
            for name in ("priority", "preemptionPolicy"):
                if spec.get(name) is None and before.get(name) is not None:
                    spec[name] = before[name]
        elif _is_pod_write(attributes, "CREATE"):
            await self._set(attributes, spec)

    async def _set(self, attributes: Attributes, spec: JSONObject) -> None:
        name, value, policy = await self._class(attributes, spec.get("priorityClassName", ""))
        if name:
            spec["priorityClassName"] = name
        if spec.get("priority") is not None and spec["priority"] != value:
            why = f"priority admission controller computed {value} from the given PriorityClass name"
            raise _refused(attributes, f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; {why}")
        if spec.get("preemptionPolicy") is not None and spec["preemptionPolicy"] != policy:
            why = f"priority admission controller computed {policy} from the given PriorityClass name"
            given = spec["preemptionPolicy"]
            raise _refused(attributes, f"the string value of PreemptionPolicy ({given}) must not be provided in pod spec; {why}")
        spec["priority"], spec["preemptionPolicy"] = value, policy

    async def _class(self, attributes: Attributes, name: str) -> tuple[str, int, str]:
        classes = self._registry.get(GroupVersionResource("scheduling.k8s.io", "v1", "priorityclasses"))
        if name:
            found = await self._objects.get(classes, "", name) if classes else None
            if found is not None:
                return name, found.obj.get("value", 0), found.obj.get("preemptionPolicy", "PreemptLowerPriority")
            if name in _SYSTEM_CLASSES:
                return name, _SYSTEM_CLASSES[name], "PreemptLowerPriority"
            raise _refused(attributes, f"no PriorityClass with name {name} was found")
        listed = await self._objects.all(classes) if classes else []
        chosen = min((one for one in listed if one.get("globalDefault")), key=lambda one: int(one.get("value", 0)), default=None)
        if chosen is None:
            return "", 0, "PreemptLowerPriority"
        return chosen["metadata"]["name"], chosen.get("value", 0), chosen.get("preemptionPolicy", "PreemptLowerPriority")

    async def validate(self, attributes: Attributes) -> None:
        """Nothing is left to check."""


class ServiceAccounts:
    """Every pod acts as a service account of its namespace, ``default`` unless it says otherwise, and finds its token mounted.

    ``default_may_lack``: a pod is let in, without a token, although its namespace has no account ``default`` yet. kube-apiserver refuses
    it; there a controller creates the account with the namespace.
    """

    def __init__(self, registry: Registry, objects: Objects, *, default_may_lack: bool = False) -> None:
        self._registry = registry
        self._objects = objects
        self._default_may_lack = default_may_lack

    async def mutate(self, attributes: Attributes) -> None:
        obj = attributes.obj
        if obj is None or not _is_pod_write(attributes, "CREATE"):
            return
        spec = obj["spec"]
        if MIRROR in (obj["metadata"].get("annotations") or {}):
            self._check_mirror(attributes, spec)
            return
        name = spec.get("serviceAccountName") or "default"
        spec["serviceAccountName"] = spec["serviceAccount"] = name
        account = await self._account(attributes, name)
        if account is None:
            return
        if _mounts_token(account, spec):
            mount_token(spec)
        if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
            spec["imagePullSecrets"] = [{"name": one.get("name", "")} for one in account["imagePullSecrets"]]

    async def validate(self, attributes: Attributes) -> None:
        """Checked while the account was looked up."""

    async def _account(self, attributes: Attributes, name: str) -> JSONObject | None:
        resource = self._registry.get(GroupVersionResource("", "v1", "serviceaccounts"))
        found = await self._objects.get(resource, attributes.namespace, name) if resource else None
        if found is None and name == "default" and self._default_may_lack:
            return None
        if found is None:
            why = f'error looking up service account {attributes.namespace}/{name}: serviceaccount "{name}" not found'
            raise _refused(attributes, why)
        return found.obj

    @staticmethod
    def _check_mirror(attributes: Attributes, spec: JSONObject) -> None:
        if spec.get("serviceAccountName"):
            raise _refused(attributes, "a mirror pod may not reference service accounts")
        for volume in spec.get("volumes") or ():
            if volume.get("secret") is not None:
                raise _refused(attributes, "a mirror pod may not reference secrets")
            for source in (volume.get("projected") or {}).get("sources") or ():
                if source.get("serviceAccountToken") is not None:
                    raise _refused(attributes, "a mirror pod may not use ServiceAccountToken volume projections")


def _mounts_token(account: JSONObject, spec: JSONObject) -> bool:
    for one in (spec, account):
        if one.get("automountServiceAccountToken") is not None:
            return bool(one["automountServiceAccountToken"])
    return True


def mount_token(spec: JSONObject) -> None:
    """A projected volume with token, root certificate and namespace, in every container that mounts nothing else there."""
    prefix = "kube-api-access-"
    existing = next((one["name"] for one in spec.get("volumes") or () if one.get("name", "").startswith(prefix)), None)
    name = existing or prefix + "".join(random.choices(_LETTERS, k=5))
    needed = False
    for kind in ("initContainers", "containers"):
        for container in spec.get(kind) or ():
            mounts = container.get("volumeMounts") or []
            if not any(mount.get("mountPath") == _TOKEN_PATH for mount in mounts):
                container["volumeMounts"] = [*mounts, {"name": name, "readOnly": True, "mountPath": _TOKEN_PATH}]
                needed = True
    if needed and existing is None:
        sources = [
            {"serviceAccountToken": {"expirationSeconds": _TOKEN_SECONDS, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
        ]
        spec["volumes"] = [*(spec.get("volumes") or []), {"name": name, "projected": {"sources": sources, "defaultMode": 420}}]
