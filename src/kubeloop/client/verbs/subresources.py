"""What is beside an object's own document: scale, tokens, approval; and any other subresource by its name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from kubeloop.client.conflict import retry_on_conflict
from kubeloop.client.options import WriteOptions
from kubeloop.client.subresource import Subresource
from kubeloop.client.verbs.base import Verbs, limited
from kubeloop.client.verbs.patching import PATCH_TYPES
from kubeloop.codec import decode
from kubeloop.meta import DecodeError, Resource, kind_info
from kubeloop.meta.type_checks import described_word

if TYPE_CHECKING:
    from kubeloop.api.authentication.v1 import TokenRequest
    from kubeloop.api.autoscaling.v1 import Scale
    from kubeloop.api.certificates.v1 import CertificateSigningRequest

# Scale, of whichever group version a resource answers with, read as ``autoscaling/v1``.
#
# Source: client-go scale/scheme: extensions/v1beta1, apps/v1beta1 and apps/v1beta2 have the selector as a map and ``targetSelector`` as
# text.


_OLDER = ("extensions/v1beta1", "apps/v1beta1", "apps/v1beta2")


class _Head(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""


class _OlderStatus(msgspec.Struct, rename="camel"):
    replicas: int = 0
    selector: dict[str, str] | None = None
    target_selector: str = ""


class _Older(msgspec.Struct):
    metadata: msgspec.Raw = msgspec.Raw(b"{}")
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: _OlderStatus = msgspec.field(default_factory=_OlderStatus)


def read_scale(body: bytes) -> Scale:
    """The Scale in an answer.

    Raises:
        DecodeError: it is no Scale of a known version.
    """
    from kubeloop.api.autoscaling.v1 import Scale

    try:
        head = msgspec.json.decode(body, type=_Head)
        if head.api_version not in _OLDER or head.kind != "Scale":
            return decode(Scale, body)
        older = msgspec.json.decode(body, type=_Older)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"Scale: the answer is none: {error}") from None
    selector = older.status.target_selector or ",".join(f"{key}={value}" for key, value in sorted((older.status.selector or {}).items()))
    status = {"replicas": older.status.replicas} | ({"selector": selector} if selector else {})
    tree = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": older.metadata, "spec": older.spec, "status": status}
    return decode(Scale, msgspec.json.encode(tree))


class Subresources(Verbs):
    """The subresources that have a verb of their own, and ``subresource`` for all others."""

    def subresource(self, kind: type[Resource], name: str, subresource: str, *, namespace: str | None = None) -> Subresource:
        """Any subresource of one object: ``client.subresource(Pod, "web-0", "ephemeralcontainers")``."""
        return Subresource(self, kind, name, subresource, namespace)

    @limited
    async def get_scale(self, kind: type[Resource], name: str, *, namespace: str | None = None, timeout: float | None = None) -> Scale:
        """How many replicas are wanted and there.

        Raises:
            NotFound: also where the kind has no scale subresource.
        """
        path = await self._path(kind, name, namespace, "scale")
        return read_scale((await self.transport.request("GET", path)).body)

    @limited
    async def set_scale(
        self,
        kind: type[Resource],
        name: str,
        replicas: int,
        *,
        namespace: str | None = None,
        resource_version: str = "",
        options: WriteOptions | None = None,
        timeout: float | None = None,
    ) -> Scale:
        """Ask for so many replicas, whatever was asked for before; with ``resource_version`` only if nobody wrote since.

        Raises:
            NotFound: as ``get_scale``. ValueError: no number, or a negative one. Conflict: it is at another version.
        """
        if type(replicas) is not int or replicas < 0:
            raise ValueError(f"replicas={described_word(replicas)}: must be a whole number, 0 or more")
        change: dict[str, Any] = {"spec": {"replicas": replicas}}
        if resource_version:
            change["metadata"] = {"resourceVersion": resource_version}
        path = await self._path(kind, name, namespace, "scale")
        body = msgspec.json.encode(change)
        answer = await self.transport.request("PATCH", path, query=self._query(options), body=body, content_type=PATCH_TYPES["merge"])
        return read_scale(answer.body)


class ServiceAccountVerbs:
    """What concerns service accounts only: ``client.service_accounts``."""

    def __init__(self, verbs: Subresources) -> None:
        self._verbs = verbs

    @limited
    async def create_token(
        self,
        service_account: str,
        *,
        namespace: str | None = None,
        audiences: Sequence[str] = (),
        expiration_seconds: int | None = None,
        bound_to: Resource | None = None,
        options: WriteOptions | None = None,
        timeout: float | None = None,
    ) -> TokenRequest:
        """A token of a service account; ``status.token`` is the secret, ``status.expiration_timestamp`` its end.

        ``audiences``: who shall accept it; none: the API server itself. ``bound_to``: a Pod, Secret or Node with whose end it ends.

        Raises:
            NotFound: no such service account. Invalid: a time shorter than ten minutes, or a bound object of another kind.
        """
        from kubeloop.api.authentication.v1 import BoundObjectReference, TokenRequest, TokenRequestSpec
        from kubeloop.api.core.v1 import ServiceAccount

        spec = TokenRequestSpec(audiences=list(audiences), expiration_seconds=expiration_seconds)
        if bound_to is not None:
            info, metadata = kind_info(bound_to), bound_to.metadata
            spec.bound_object_ref = BoundObjectReference(
                api_version=info.gvk.api_version, kind=info.gvk.kind, name=metadata.name, uid=metadata.uid
            )
        answer = await self._verbs.subresource(ServiceAccount, service_account, "token", namespace=namespace).create(
            TokenRequest(spec=spec)
        )
        assert isinstance(answer, TokenRequest)
        return answer


class CertificateVerbs:
    """What concerns CertificateSigningRequests only: ``client.certificates``."""

    def __init__(self, verbs: Subresources) -> None:
        self._verbs = verbs

    @limited
    async def approve(
        self, name: str, *, reason: str, message: str = "", options: WriteOptions | None = None, timeout: float | None = None
    ) -> CertificateSigningRequest:
        """Approve a CertificateSigningRequest, so that its signer issues the certificate. ``reason``: one word in camel case.

        Raises:
            NotFound: no such request. Invalid: it was denied before.
        """
        return await self._decide(name, "Approved", reason, message, options)

    @limited
    async def deny(
        self, name: str, *, reason: str, message: str = "", options: WriteOptions | None = None, timeout: float | None = None
    ) -> CertificateSigningRequest:
        """Deny a CertificateSigningRequest.

        Raises:
            NotFound: no such request. Invalid: it was approved before.
        """
        return await self._decide(name, "Denied", reason, message, options)

    async def _decide(self, name: str, verdict: str, reason: str, message: str, options: WriteOptions | None) -> CertificateSigningRequest:
        from kubeloop.api.certificates.v1 import CertificateSigningRequest, CertificateSigningRequestCondition

        path = await self._verbs._path(CertificateSigningRequest, name, None)
        approval = self._verbs.subresource(CertificateSigningRequest, name, "approval")

        async def attempt() -> CertificateSigningRequest:
            found = decode(CertificateSigningRequest, (await self._verbs.transport.request("GET", path)).body)
            if any(one.type == verdict for one in found.status.conditions):
                return found
            condition = CertificateSigningRequestCondition(type=verdict, status="True", reason=reason, message=message)
            found.status.conditions.append(condition)
            return await approval.update(found, options=options)

        return await retry_on_conflict(attempt, clock=self._verbs.clock)
