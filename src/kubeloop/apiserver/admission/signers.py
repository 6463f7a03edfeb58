"""Who may approve, sign and attest for a signer: CertificateApproval, CertificateSigning, ClusterTrustBundleAttest.

Source: plugin/pkg/admission/certificates/{approval,signing,ctbattest}, pkg/certauthorization.
"""

from __future__ import annotations

from typing import Any

from kubeloop.apiserver.admission.chain import Attributes
from kubeloop.apiserver.admission.refusing import refused
from kubeloop.apiserver.authentication import User
from kubeloop.apiserver.authorization.access import Access, Authorizer
from kubeloop.meta.kinds import GroupResource

JSONObject = dict[str, Any]

_GROUP = "certificates.k8s.io"


async def may(authorizer: Authorizer, user: User, verb: str, signer: str) -> bool:
    """For the signer, or for all of its domain (``kubernetes.io/*``)."""
    await authorizer.prepare(user)
    names = (signer, f"{signer.partition('/')[0]}/*")
    return any(authorizer.authorize(Access(user, verb, _GROUP, "*", "signers", name=name)).allowed for name in names)


class CertificateApproval:
    resources = frozenset({GroupResource(_GROUP, "certificatesigningrequests")})

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def mutate(self, attributes: Attributes) -> None:
        """Nothing is changed."""

    async def validate(self, attributes: Attributes) -> None:
        if attributes.subresource != "approval" or attributes.operation != "UPDATE" or attributes.old is None:
            return
        signer = attributes.old["spec"].get("signerName", "")
        if not await may(self._authorizer, attributes.user, "approve", signer):
            raise refused(attributes, f'user not permitted to approve requests with signerName "{signer}"')


class CertificateSigning:
    """Asked when a certificate or a condition changes."""

    resources = frozenset({GroupResource(_GROUP, "certificatesigningrequests")})

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def mutate(self, attributes: Attributes) -> None:
        """Nothing is changed."""

    async def validate(self, attributes: Attributes) -> None:
        obj, old = attributes.obj, attributes.old
        if attributes.subresource != "status" or attributes.operation != "UPDATE" or obj is None or old is None:
            return
        before, after = old.get("status") or {}, obj.get("status") or {}
        if all((before.get(name) or None) == (after.get(name) or None) for name in ("certificate", "conditions")):
            return
        signer = old["spec"].get("signerName", "")
        if not await may(self._authorizer, attributes.user, "sign", signer):
            raise refused(attributes, f'user not permitted to sign requests with signerName "{signer}"')
