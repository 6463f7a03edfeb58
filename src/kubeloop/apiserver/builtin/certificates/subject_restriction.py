"""Nobody becomes an administrator by a certificate that was asked for. Source: plugin/pkg/admission/certificates/subjectrestriction."""

from __future__ import annotations

from kubeloop.apiserver import refusals
from kubeloop.apiserver.admission import Attributes
from kubeloop.meta.kinds import GroupResource

_REQUESTS = GroupResource("certificates.k8s.io", "certificatesigningrequests")
_SIGNER = "kubernetes.io/kube-apiserver-client"
_MASTERS = "system:masters"


class SubjectRestriction:
    """Refuses requests for a client certificate of kube-apiserver's signer that name the group system:masters."""

    resources = frozenset({_REQUESTS})

    async def mutate(self, attributes: Attributes) -> None:
        """Nothing is changed."""

    async def validate(self, attributes: Attributes) -> None:
        obj = attributes.obj
        if attributes.resource.gvr.group_resource != _REQUESTS or attributes.subresource or attributes.operation != "CREATE" or obj is None:
            return
        spec = obj.get("spec") or {}
        if spec.get("signerName") != _SIGNER:
            return
        from kubeloop.apiserver.builtin.certificates.pem import organizations_of

        if _MASTERS in organizations_of(spec.get("request")):
            why = f"use of {_SIGNER} signer with {_MASTERS} group is not allowed"
            raise refusals.forbidden(_REQUESTS, attributes.name or obj["metadata"].get("generateName") or "Unknown", why)
