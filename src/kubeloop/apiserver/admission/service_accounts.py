"""ServiceAccount: sets the service account of each pod (``default`` by default) and mounts its token.

Source: plugin/pkg/admission/serviceaccount.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from kubeloop.apiserver.admission.chain import Attributes, new_forbidden
from kubeloop.apiserver.builtin.pods.references import MIRROR, environment_names, secret_names
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.meta.kinds import GroupResource, GroupVersionResource
from kubeloop.timing import Clock
from kubeloop.types import JSONObject

_PODS = GroupResource("", "pods")
_TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a path
_TOKEN_SECONDS = 3607
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_DEFAULT = "default"
#: Attempts to read the account ``default``, which a controller creates shortly after its namespace.
_ATTEMPTS = 10
_ENFORCES = "kubernetes.io/enforce-mountable-secrets"
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})


class ServiceAccountPlugin:
    """Plug-in ServiceAccount: sets the account of a new pod, mounts its token, and rejects a pod whose account does not exist.

    It waits up to two seconds for the account ``default``.
    """

    resources = frozenset({_PODS})

    def __init__(self, registry: Registry, objects: Objects, clock: Clock) -> None:
        self._registry = registry
        self._objects = objects
        self._clock = clock

    async def mutate(self, attributes: Attributes) -> None:
        obj = attributes.obj
        if obj is None or attributes.operation != "CREATE" or attributes.subresource:
            return
        spec = obj["spec"]
        if _is_mirror(obj):
            self._check_mirror(attributes, spec, unnamed=True)
            return
        name = spec.get("serviceAccountName") or _DEFAULT
        spec["serviceAccountName"] = spec["serviceAccount"] = name
        account = await self._account(attributes, name, unnamed=True)
        if _mounts_token(account, spec):
            mount_token(spec)
        if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
            spec["imagePullSecrets"] = [{"name": one.get("name", "")} for one in account["imagePullSecrets"]]
        self._check_secrets(attributes, account, _foreign_secrets(account, spec), unnamed=True)

    async def validate(self, attributes: Attributes) -> None:
        obj = attributes.obj
        if obj is None:
            return
        if attributes.operation == "UPDATE" and attributes.subresource == "ephemeralcontainers":
            account = await self._named_account(attributes, obj)
            self._check_secrets(attributes, account, _foreign_ephemeral_secrets(account, obj["spec"]))
        elif attributes.operation == "CREATE" and not attributes.subresource:
            if _is_mirror(obj):
                self._check_mirror(attributes, obj["spec"])
                return
            account = await self._named_account(attributes, obj)
            self._check_secrets(attributes, account, _foreign_secrets(account, obj["spec"]))

    async def _named_account(self, attributes: Attributes, obj: JSONObject) -> JSONObject:
        name = obj["spec"].get("serviceAccountName")
        if not name:
            raise new_forbidden(
                attributes, f"no service account specified for pod {attributes.namespace}/{obj['metadata'].get('name', '')}"
            )
        return await self._account(attributes, name)

    async def _account(self, attributes: Attributes, name: str, *, unnamed: bool = False) -> JSONObject:
        resource = self._registry.get(GroupVersionResource("", "v1", "serviceaccounts"))
        pause = random.uniform(0.1, 0.2)
        for attempt in range(_ATTEMPTS if name == _DEFAULT else 1):
            if attempt:
                await self._clock.sleep(pause)
            stored = await self._objects.get(resource, attributes.namespace, name) if resource else None
            if stored is not None:
                return stored.obj
        why = f'error looking up service account {attributes.namespace}/{name}: serviceaccount "{name}" not found'
        raise new_forbidden(attributes, why, unnamed=unnamed)

    @staticmethod
    def _check_mirror(attributes: Attributes, spec: JSONObject, *, unnamed: bool = False) -> None:
        if spec.get("serviceAccountName"):
            raise new_forbidden(attributes, "a mirror pod may not reference service accounts", unnamed=unnamed)
        if any(True for _ in secret_names(spec)):
            raise new_forbidden(attributes, "a mirror pod may not reference secrets", unnamed=unnamed)
        for volume in spec.get("volumes") or ():
            if any(one.get("serviceAccountToken") is not None for one in (volume.get("projected") or {}).get("sources") or ()):
                raise new_forbidden(attributes, "a mirror pod may not use ServiceAccountToken volume projections", unnamed=unnamed)

    @staticmethod
    def _check_secrets(attributes: Attributes, account: JSONObject, foreign: Iterator[str], *, unnamed: bool = False) -> None:
        """Check that a pod uses only Secrets that its account lists, if the account has the annotation that requires it.

        Args:
            attributes: The write.
            account: The ServiceAccount.
            foreign: Yields messages about the Secrets that the account does not list.
            unnamed: Leave a generated name of the pod out of the message.

        Raises:
            Forbidden: The pod uses another Secret.
        """
        if (account["metadata"].get("annotations") or {}).get(_ENFORCES) not in _TRUE:
            return
        value = next(foreign, None)
        if value is not None:
            raise new_forbidden(attributes, value, unnamed=unnamed)


def _is_mirror(pod: JSONObject) -> bool:
    return MIRROR in (pod["metadata"].get("annotations") or {})


def _foreign_secrets(account: JSONObject, spec: JSONObject) -> Iterator[str]:
    who = account["metadata"]["name"]
    own = {one.get("name", "") for one in account.get("secrets") or ()}
    unnamed = f"is not allowed because service account {who} does not reference that"
    for volume in spec.get("volumes") or ():
        name = (volume.get("secret") or {}).get("secretName", "")
        if volume.get("secret") is not None and name not in own:
            yield f'volume with secret.secretName="{name}" {unnamed} secret'
    yield from _foreign_environment(spec, "initContainers", "init container", own, unnamed)
    yield from _foreign_environment(spec, "containers", "container", own, unnamed)
    pulls = {one.get("name", "") for one in account.get("imagePullSecrets") or ()}
    for index, reference in enumerate(spec.get("imagePullSecrets") or ()):
        name = reference.get("name", "")
        if name not in pulls:
            yield f'imagePullSecrets[{index}].name="{name}" {unnamed} imagePullSecret'


def _foreign_ephemeral_secrets(account: JSONObject, spec: JSONObject) -> Iterator[str]:
    own = {one.get("name", "") for one in account.get("secrets") or ()}
    unnamed = f"is not allowed because service account {account['metadata']['name']} does not reference that"
    yield from _foreign_environment(spec, "ephemeralContainers", "ephemeral container", own, unnamed)


def _foreign_environment(spec: JSONObject, kind: str, word: str, account_secrets: set[str], unnamed: str) -> Iterator[str]:
    for container in spec.get(kind) or ():
        value = list(environment_names(container))
        # Upstream checks single variables before whole Secrets.
        for variable, name in sorted(value, key=lambda reference: not reference[0]):
            if name not in account_secrets:
                place = f"envVar {variable}" if variable else "envFrom"
                yield f'{word} {container.get("name", "")} with {place} referencing secret.secretName="{name}" {unnamed} secret'


def _mounts_token(account: JSONObject, spec: JSONObject) -> bool:
    for one in (spec, account):
        if one.get("automountServiceAccountToken") is not None:
            return bool(one["automountServiceAccountToken"])
    return True


def mount_token(spec: JSONObject) -> None:
    """Mount a projected volume with token, root certificate and namespace in each container that has no mount at its path."""
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
