"""The default content of each namespace: the ``default`` service account, and a ConfigMap with the cluster's certificate authority.

Source: Kubernetes pkg/controller/serviceaccount/serviceaccounts_controller.go and pkg/controller/certificates/rootcacertpublisher.
"""

from __future__ import annotations

from typing import TypeVar

from kubeloop.api.core.v1 import ConfigMap, Namespace, ServiceAccount
from kubeloop.cache import Head
from kubeloop.controller import Controller, Watch
from kubeloop.meta import AlreadyExists, ApiError, NotFound, ObjectKey, ObjectMeta, Resource

R = TypeVar("R", bound=Resource)

ACCOUNT = "default"
AUTHORITY = "kube-root-ca.crt"
#: The annotation's text is part of the published object, and compared by users' tools.
_DESCRIPTION = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or "
    "kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."
)


def _namespace_of(head: Head) -> list[ObjectKey]:
    return [ObjectKey("", "", head.namespace)] if head.name in (ACCOUNT, AUTHORITY) else []


class ServiceAccountController(Controller[Namespace], watches=[Watch(ServiceAccount, to=_namespace_of)], name="serviceaccount-controller"):
    """Creates ``default`` in each namespace, and again after its deletion."""

    async def reconcile(self, namespace: Namespace) -> None:
        if _ends(namespace) or self.lister(ServiceAccount).head(ACCOUNT, namespace.metadata.name) is not None:
            return
        await _create(self, ServiceAccount(metadata=ObjectMeta(name=ACCOUNT, namespace=namespace.metadata.name)))


class RootCertificatePublisher(Controller[Namespace], watches=[Watch(ConfigMap, to=_namespace_of)], name="root-ca-certificate-publisher"):
    """Publishes the certificate authority of the API server (PEM) in each namespace, for pods that use it."""

    def __init__(self, authority: str) -> None:
        self._authority = authority

    async def reconcile(self, namespace: Namespace) -> None:
        if _ends(namespace):
            return
        wanted = {"ca.crt": self._authority}
        found = self.lister(ConfigMap).get(AUTHORITY, namespace.metadata.name)
        if found is None:
            annotations = {"kubernetes.io/description": _DESCRIPTION}
            metadata = ObjectMeta(name=AUTHORITY, namespace=namespace.metadata.name, annotations=annotations)
            await _create(self, ConfigMap(metadata=metadata, data=wanted))
        elif found.data != wanted:
            found.data = wanted
            await self.client.update(found)


def _ends(namespace: Namespace) -> bool:
    return namespace.metadata.deletion_timestamp is not None or namespace.status.phase == "Terminating"


async def _create(controller: Controller[Namespace], obj: Resource) -> None:
    try:
        await controller.client.create(obj)
    except (AlreadyExists, NotFound):
        return  # Made by another writer meanwhile, or the namespace is gone.
    except ApiError as error:
        if not error.has_cause("NamespaceTerminating"):
            raise
