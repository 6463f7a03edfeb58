"""Controllers of CertificateSigningRequests: approve client certificates of kubelets, sign approved requests, delete old requests.

Source: Kubernetes pkg/controller/certificates (approver, signer, cleaner).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.x509.oid import NameOID

from kubeloop.api.authorization.v1 import ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec
from kubeloop.api.certificates.v1 import CertificateSigningRequest, CertificateSigningRequestCondition
from kubeloop.controller import Controller, Result
from kubeloop.meta import NotFound, ObjectKey
from kubeloop.pki import CertificateAuthority
from kubeloop.pki.signing_requests import SigningRefused, alternative_names, read_request, sign
from kubeloop.timing import Clock
from kubeloop.workqueue import ExponentialLimiter, Limiter

# The rules for requests to each of the built-in signers.
#
# Source: Kubernetes pkg/apis/certificates/helpers.go; documentation, "Certificates and Certificate Signing Requests".


CLIENT = "kubernetes.io/kube-apiserver-client"
KUBELET_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING = "kubernetes.io/kubelet-serving"

_NODES = "system:nodes"
_NODE = "system:node:"


def common_name(request: x509.CertificateSigningRequest) -> str:
    """Return the common name of a request's subject, or an empty text. Of several common names the last counts, as in Go."""
    result = request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(result[-1].value) if result else ""


def check_client(_: x509.CertificateSigningRequest, usages: Collection[str]) -> None:
    """Check a request to the signer for API clients (kube-apiserver-client). Raises SigningRefused."""
    for usage in usages:
        if usage not in ("digital signature", "key encipherment", "client auth"):
            raise SigningRefused(f"invalid usage for client certificate: {usage}")
    if "client auth" not in usages:
        raise SigningRefused("missing required usage for client certificate: client auth")


def check_kubelet_client(request: x509.CertificateSigningRequest, usages: Collection[str]) -> None:
    """Check a request to the signer for client certificates of kubelets (kube-apiserver-client-kubelet). Raises SigningRefused."""
    _check_organization(request)
    names = alternative_names(request)
    for kind, description in (
        (x509.DNSName, "DNS"),
        (x509.RFC822Name, "Email"),
        (x509.IPAddress, "IP"),
        (x509.UniformResourceIdentifier, "URI"),
    ):
        if names.get_values_for_type(kind):
            raise SigningRefused(f"{description} subjectAltNames are not allowed")
    _check_node(request)
    _check_usages(usages, "client auth")


def check_kubelet_serving(request: x509.CertificateSigningRequest, usages: Collection[str]) -> None:
    """Check a request to the signer for serving certificates of kubelets (kubelet-serving). Raises SigningRefused."""
    _check_organization(request)
    names = alternative_names(request)
    if not names.get_values_for_type(x509.DNSName) and not names.get_values_for_type(x509.IPAddress):
        raise SigningRefused("DNS or IP subjectAltName is required")
    if names.get_values_for_type(x509.RFC822Name):
        raise SigningRefused("Email subjectAltNames are not allowed")
    if names.get_values_for_type(x509.UniformResourceIdentifier):
        raise SigningRefused("URI subjectAltNames are not allowed")
    _check_usages(usages, "server auth")
    _check_node(request)


#: Checks by signer; each raises SigningRefused with upstream's message.
CHECKS: dict[str, Callable[[x509.CertificateSigningRequest, Collection[str]], None]] = {
    CLIENT: check_client,
    KUBELET_CLIENT: check_kubelet_client,
    KUBELET_SERVING: check_kubelet_serving,
}


def _check_organization(request: x509.CertificateSigningRequest) -> None:
    if [one.value for one in request.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)] != [_NODES]:
        raise SigningRefused(f"subject organization is not {_NODES}")


def _check_node(request: x509.CertificateSigningRequest) -> None:
    if not common_name(request).startswith(_NODE):
        raise SigningRefused(f"subject common name does not begin with {_NODE}")


def _check_usages(usages: Collection[str], purpose: str) -> None:
    """Check the key usages; key encipherment is optional, because EC keys do not support it."""
    if set(usages) not in ({"digital signature", purpose}, {"digital signature", "key encipherment", purpose}):
        desired = " ".join(sorted(("digital signature", "key encipherment", purpose)))
        raise SigningRefused(f"usages did not match [{desired}]")


#: Maximum (by default) and minimum validity of a certificate (kube-controller-manager --cluster-signing-duration).
LIFETIME = timedelta(days=365)
_SHORTEST = timedelta(minutes=10)

#: Seconds before the first retry of a request whose requester is not authorized, and the maximum (certificate_controller.go).
_FIRST_RETRY, _LONGEST_RETRY = 0.2, 1000.0

#: Retention of requests after the decision, and of requests without a decision or certificate.
_DONE, _WAITING = timedelta(hours=1), timedelta(hours=24)


def _has(request: CertificateSigningRequest, kind: str) -> bool:
    return any(one.type == kind and one.status != "False" for one in request.status.conditions)


class CertificateSigner(Controller[CertificateSigningRequest], name="csr-signer"):
    """Signs approved requests to three signers with the cluster's CA: for API clients, and for kubelets as clients and as servers.

    A request that its signer cannot sign gets the condition Failed with the reason.
    """

    def __init__(self, authority: CertificateAuthority, *, lifetime: timedelta = LIFETIME) -> None:
        self._authority = authority
        self._lifetime = lifetime

    async def reconcile(self, request: CertificateSigningRequest) -> None:
        check = CHECKS.get(request.spec.signer_name)
        if check is None or request.status.certificate or not _has(request, "Approved") or _has(request, "Failed"):
            return
        now = self.clock.wall().replace(microsecond=0)
        try:
            requested = read_request(request.spec.request)
            check(requested, request.spec.usages)
            request.status.certificate = sign(self._authority, requested, request.spec.usages, self._lasts(request), now)
        except SigningRefused as reason:
            failed = CertificateSigningRequestCondition(
                type="Failed", status="True", reason="SignerValidationFailure", message=str(reason), last_update_time=now
            )
            request.status.conditions.append(failed)
        with contextlib.suppress(NotFound):
            await self.client.update_status(request)

    def _lasts(self, request: CertificateSigningRequest) -> timedelta:
        requested = request.spec.expiration_seconds
        return self._lifetime if requested is None else min(max(timedelta(seconds=requested), _SHORTEST), self._lifetime)


class CertificateApprover(Controller[CertificateSigningRequest], name="csr-approver"):
    """Approves client certificates of kubelets if the requester is authorized.

    The requester needs the permission to ``create`` ``certificatesigningrequests/selfnodeclient``, for a certificate of the requesting
    node itself, or ``certificatesigningrequests/nodeclient``, for a certificate of any node. A request whose requester is not authorized is
    retried with back-off.

    Guarantees:
        Only the request that was reviewed is approved, not another one of the same name, and not a request that was denied meanwhile.
    """

    def retry_limiter(self, clock: Clock) -> Limiter[ObjectKey]:  # noqa: ARG002  # it has no clock
        return ExponentialLimiter(_FIRST_RETRY, _LONGEST_RETRY)

    async def reconcile(self, request: CertificateSigningRequest) -> Result | None:
        decided = _has(request, "Approved") or _has(request, "Denied")
        if request.spec.signer_name != KUBELET_CLIENT or request.status.certificate or decided:
            return None
        try:
            requested = read_request(request.spec.request)
            check_kubelet_client(requested, request.spec.usages)
        except SigningRefused:
            return None  # another approver may decide
        kinds = [("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview.")]
        if request.spec.username == common_name(requested):
            kinds.insert(0, ("selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview."))
        for subresource, message in kinds:
            if await self._may(request, subresource):
                await self._approve(request, message)
                return None
        return Result(requeue=True)  # the requester may be authorized later

    async def _approve(self, request: CertificateSigningRequest, message: str) -> None:
        approved = CertificateSigningRequestCondition(type="Approved", status="True", reason="AutoApproved", message=message)
        request.status.conditions.append(approved)
        # The request's resource version makes a conflict of each change since the review; ``certificates.approve`` reads the request again.
        with contextlib.suppress(NotFound):
            await self.client.subresource(CertificateSigningRequest, request.metadata.name, "approval").update(request)

    async def _may(self, request: CertificateSigningRequest, subresource: str) -> bool:
        description = ResourceAttributes(
            group="certificates.k8s.io", version="*", resource="certificatesigningrequests", subresource=subresource, verb="create"
        )
        spec = SubjectAccessReviewSpec(
            user=request.spec.username or "",
            groups=request.spec.groups,
            uid=request.spec.uid,
            extra=request.spec.extra,
            resource_attributes=description,
        )
        review = await self.client.create(SubjectAccessReview(spec=spec))
        return bool(review.status.allowed)


class CertificateCleaner(Controller[CertificateSigningRequest], name="csr-cleaner"):
    """Deletes a request an hour after its decision, a day after creation or approval without a certificate, or at its expiry."""

    async def reconcile(self, request: CertificateSigningRequest) -> Result | None:
        end = deletion_time(request)
        if end is None:
            return None
        left = (end - self.clock.wall()).total_seconds()
        if left > 0:
            return Result(requeue_after=left)
        with contextlib.suppress(NotFound):
            await self.client.delete(request)
        return None


def deletion_time(request: CertificateSigningRequest) -> datetime | None:
    """Return the time after which a request is deleted, or None if it is not deleted."""
    ends: list[datetime] = []
    made = request.metadata.creation_timestamp
    if not request.status.conditions and made is not None:
        ends.append(made + _WAITING)
    for condition in request.status.conditions:
        since = condition.last_update_time
        if condition.type == "Approved" and request.status.certificate:
            ends += _end_of(request.status.certificate)
        if since is None:
            continue
        if condition.type in ("Denied", "Failed"):
            ends.append(since + _DONE)
        elif condition.type == "Approved":
            ends.append(since + (_DONE if request.status.certificate else _WAITING))
    return min(ends, default=None)


def _end_of(certificate: bytes) -> list[datetime]:
    try:
        return [x509.load_pem_x509_certificate(certificate).not_valid_after_utc]
    except ValueError:
        return []  # another signer wrote it; the time of its approval counts
