"""Controllers for service accounts and their rights: default accounts, token Secrets, CA ConfigMaps, aggregated cluster roles."""

from __future__ import annotations

from typing import TypeVar

from kubeloop.api.core.v1 import ConfigMap, Namespace, Secret, ServiceAccount
from kubeloop.api.rbac.v1 import ClusterRole, PolicyRule
from kubeloop.cache import EventType, Head
from kubeloop.codec import to_dict
from kubeloop.controller import Controller, KeyController, Predicate, WatchedKind
from kubeloop.meta import AlreadyExists, ApiError, Conflict, NotFound, ObjectKey, ObjectMeta, Resource, selector_from
from kubeloop.pki import SigningKey, legacy_token

# The default content of each namespace: the ``default`` service account, and a ConfigMap with the cluster's certificate authority.
# Source: Kubernetes pkg/controller/serviceaccount/serviceaccounts_controller.go and pkg/controller/certificates/rootcacertpublisher.


R = TypeVar("R", bound=Resource)

ACCOUNT = "default"
AUTHORITY = "kube-root-ca.crt"
_DESCRIBED = "kubernetes.io/description"
#: The annotation's text is part of the published object, and compared by users' tools.
_DESCRIPTION = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or "
    "kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."
)


def _namespace_of(head: Head) -> list[ObjectKey]:
    return [ObjectKey("", "", head.namespace)] if head.name in (ACCOUNT, AUTHORITY) else []


class ServiceAccountController(
    Controller[Namespace], watches=[WatchedKind(ServiceAccount, to=_namespace_of)], name="serviceaccount-controller"
):
    """Creates the service account ``default`` in each namespace, and creates it again after its deletion."""

    async def reconcile(self, namespace: Namespace) -> None:
        if _ends(namespace) or self.lister(ServiceAccount).head(ACCOUNT, namespace.metadata.name) is not None:
            return
        await _create(self, ServiceAccount(metadata=ObjectMeta(name=ACCOUNT, namespace=namespace.metadata.name)))


class RootCertificatePublisher(
    Controller[Namespace], watches=[WatchedKind(ConfigMap, to=_namespace_of)], name="root-ca-certificate-publisher"
):
    """Publishes the CA of the API server, in PEM, in the ConfigMap ``kube-root-ca.crt`` of each namespace."""

    def __init__(self, authority: str) -> None:
        self._authority = authority

    async def reconcile(self, namespace: Namespace) -> None:
        if _ends(namespace):
            return
        desired, annotations = {"ca.crt": self._authority}, {_DESCRIBED: _DESCRIPTION}
        result = self.lister(ConfigMap).get(AUTHORITY, namespace.metadata.name)
        if result is None:
            metadata = ObjectMeta(name=AUTHORITY, namespace=namespace.metadata.name, annotations=annotations)
            await _create(self, ConfigMap(metadata=metadata, data=desired))
        elif result.data != desired or not result.metadata.annotations.get(_DESCRIBED):
            result.data = desired
            result.metadata.annotations |= annotations
            await self.client.update(result)


def _ends(namespace: Namespace) -> bool:
    return namespace.metadata.deletion_timestamp is not None or namespace.status.phase == "Terminating"


async def _create(controller: Controller[Namespace], obj: Resource) -> None:
    try:
        await controller.client.create(obj)
    except (AlreadyExists, NotFound):
        return  # Another client has created the object meanwhile, or the namespace is deleted.
    except ApiError as error:
        if not error.has_cause("NamespaceTerminating"):
            raise


# Secrets with a permanent token of a service account: filled when they are created, deleted with their account.
# Source: Kubernetes pkg/controller/serviceaccount/tokens_controller.go; documentation, "Manually create an API token for a ServiceAccount".


KIND = "kubernetes.io/service-account-token"
_NAME, _UID = "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"
_ACCOUNT = "account"

_ACCOUNT_PATH, _UID_PATH = f'metadata.annotations["{_NAME}"]', f'metadata.annotations["{_UID}"]'
_is_token = Predicate(lambda event: event.head.value("type") == KIND, ("type",))
_is_deleted_token = _is_token & Predicate(lambda event: event.type is EventType.DELETED)


class TokenSecretController(
    Controller[Secret],
    predicates=[_is_token],
    watches=[WatchedKind(ServiceAccount, to="secrets_of")],
    indexes={Secret: {_ACCOUNT: _ACCOUNT_PATH}},
    name="tokens-controller",
):
    """Sets ``token``, ``ca.crt`` and ``namespace`` in each Secret of type ``kubernetes.io/service-account-token``.

    It deletes a Secret whose service account does not exist or has another uid.
    """

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
        account = await self._account(annotations.get(_NAME, ""), annotations.get(_UID, ""), secret.metadata.namespace)
        try:
            if account is None:
                await self.client.delete(secret)
            elif self._fill(secret, account):
                await self.client.update(secret)
        except (Conflict, NotFound):
            return  # the Secret was changed or deleted; the watch will report it

    async def _account(self, name: str, uid: str, namespace: str) -> ServiceAccount | None:
        """Return the service account with a name and a uid ("": any), or None.

        The account is read from the server if the cache does not have it, because the cache may lag.
        """
        result = self.lister(ServiceAccount).get(name, namespace)
        if name and (result is None or uid not in ("", result.metadata.uid)):
            try:
                result = await self.client.get(ServiceAccount, name, namespace=namespace)
            except NotFound:
                return None
        return result if result is not None and uid in ("", result.metadata.uid) else None

    def _fill(self, secret: Secret, account: ServiceAccount) -> bool:
        """Set missing data, and a CA that differs, in a token Secret; return whether anything changed."""
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


class TokenReferenceController(
    KeyController[ServiceAccount],
    watches=[WatchedKind(Secret, to="references_to", paths=("type", _ACCOUNT_PATH, _UID_PATH), predicates=(_is_deleted_token,))],
    name="token-references",
):
    """Removes a deleted token Secret from ``secrets`` of its service account.

    A key that stands for a reference is account, uid and Secret, separated by ``/``; no service account has such a name.
    """

    def references_to(self, secret: Head) -> list[ObjectKey]:
        account, uid = secret.value(_ACCOUNT_PATH), secret.value(_UID_PATH) or ""
        return [ObjectKey("", secret.namespace, f"{account}/{uid}/{secret.name}")] if account else []

    async def reconcile(self, key: ObjectKey) -> None:
        name, *reference = key.name.split("/")
        if not reference:
            return
        uid, secret = reference
        try:
            account = await self.client.get(ServiceAccount, name, namespace=key.namespace)
            remaining = [one for one in account.secrets if one.name != secret]
            if uid not in ("", account.metadata.uid) or len(remaining) == len(account.secrets):
                return
            account.secrets = remaining
            await self.client.update(account)
        except NotFound:
            return


# Aggregated cluster roles, such as ``view``, ``edit`` and ``admin``.
# Source: Kubernetes pkg/controller/clusterroleaggregation; documentation, "Aggregated ClusterRoles".


#: The field manager of upstream's controller, so that the two control planes can replace each other.
MANAGER = "clusterrole-aggregation-controller"
_RULE = "aggregationRule"


class ClusterRoleAggregator(Controller[ClusterRole], watches=[WatchedKind(ClusterRole, to="all_aggregated", paths=(_RULE,))], name=MANAGER):
    """Sets the rules of a ClusterRole with an ``aggregationRule`` to those of the roles that its selectors match, without duplicates."""

    def all_aggregated(self, _: Head) -> list[ObjectKey]:
        """Return the keys of all aggregated roles: there are few, and each role may contribute to each of them."""
        return [ObjectKey("", "", head.name) for head in self.lister(ClusterRole).heads() if head.value(_RULE)]

    async def reconcile(self, role: ClusterRole) -> None:
        if role.aggregation_rule is None:
            return
        desired: list[PolicyRule] = []
        for one in role.aggregation_rule.cluster_role_selectors:
            chosen = self.lister(ClusterRole).each(label_selector=selector_from(one))
            for source in sorted(chosen, key=lambda result: result.metadata.name):
                if source.metadata.name != role.metadata.name:
                    desired += [rule for rule in source.rules if rule not in desired]
        if desired == role.rules:
            return
        try:
            applied = ClusterRole(metadata=ObjectMeta(name=role.metadata.name), rules=desired)
            await self.client.apply(applied, field_manager=MANAGER, force=True)
        except NotFound:
            return
