"""Secrets with a permanent token of a service account: filled when they are created, deleted with their account.

Source: Kubernetes pkg/controller/serviceaccount/tokens_controller.go; documentation, "Manually create an API token for a ServiceAccount".
"""

from __future__ import annotations

from kubeloop.api.core.v1 import Secret, ServiceAccount
from kubeloop.cache import Head
from kubeloop.codec import to_dict
from kubeloop.controller import Controller, Predicate, Watch
from kubeloop.meta import Conflict, NotFound, ObjectKey
from kubeloop.pki import SigningKey, legacy_token

KIND = "kubernetes.io/service-account-token"
_NAME, _UID = "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"
_ACCOUNT = "account"

_is_token = Predicate(lambda event: event.head.value("type") == KIND, ("type",))


class TokenSecretController(
    Controller[Secret],
    predicates=[_is_token],
    watches=[Watch(ServiceAccount, to="secrets_of")],
    indexes={Secret: {_ACCOUNT: f'metadata.annotations["{_NAME}"]'}},
    name="tokens-controller",
):
    """Sets ``token``, ``ca.crt`` and ``namespace`` in each Secret whose type and account name request them."""

    def __init__(self, authority: str, key: SigningKey) -> None:
        self._authority = authority.encode()
        self._key = key

    def secrets_of(self, account: Head) -> list[ObjectKey]:
        heads = self.lister(Secret).heads_by_index(_ACCOUNT, account.name)
        return [ObjectKey("", head.namespace, head.name) for head in heads if head.namespace == account.namespace]

    async def reconcile(self, secret: Secret) -> None:
        if secret.type != KIND or secret.metadata.deletion_timestamp is not None:
            return
        annotations = secret.metadata.annotations
        account = await self._account(annotations.get(_NAME, ""), secret.metadata.namespace)
        try:
            if account is None or annotations.get(_UID, account.metadata.uid) != account.metadata.uid:
                await self.client.delete(secret)
            elif self._fill(secret, account):
                await self.client.update(secret)
        except (Conflict, NotFound):
            return  # the Secret was changed or deleted; the watch will report it

    async def _account(self, name: str, namespace: str) -> ServiceAccount | None:
        """Return an account; read it from the server if the cache has none, because the cache may lag."""
        found = self.lister(ServiceAccount).get(name, namespace)
        if found is not None or not name:
            return found
        try:
            return await self.client.get(ServiceAccount, name, namespace=namespace)
        except NotFound:
            return None

    def _fill(self, secret: Secret, account: ServiceAccount) -> bool:
        """Set missing data; return whether any was missing."""
        data = secret.data
        missing = {"ca.crt": self._authority} if self._authority and data.get("ca.crt") != self._authority else {}
        if not data.get("namespace"):
            missing["namespace"] = secret.metadata.namespace.encode()
        if not data.get("token"):
            missing["token"] = legacy_token(self._key, to_dict(account), to_dict(secret)).encode()
        if missing:
            data.update(missing)
            secret.metadata.annotations |= {_NAME: account.metadata.name, _UID: account.metadata.uid}
        return bool(missing)
