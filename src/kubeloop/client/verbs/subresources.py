"""Subresources: any one by its name (``client.subresource``), and those with methods (scale, tokens, approval)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from kubeloop.client.conflict import retry_on_conflict
from kubeloop.client.options import WriteOptions
from kubeloop.client.verbs.apply import apply_body
from kubeloop.client.verbs.base import Verbs, limited
from kubeloop.client.verbs.patch import PATCH_TYPES, Patch, PatchType, patch_body
from kubeloop.client.write_hooks import Verb
from kubeloop.codec import decode, encode, require_document
from kubeloop.codec.encoding_checks import checked
from kubeloop.meta import DecodeError, Resource, Status, kind_info
from kubeloop.meta.type_checks import described_word
from kubeloop.transport import Query, Response

if TYPE_CHECKING:
    from kubeloop.api.authentication.v1 import TokenRequest
    from kubeloop.api.autoscaling.v1 import Scale
    from kubeloop.api.certificates.v1 import CertificateSigningRequest

S = TypeVar("S", bound=Resource)


class Subresource:
    """The methods of one subresource of one object (``/NAME/SUBRESOURCE``).

    >>> node = await client.create(Node(metadata=ObjectMeta(name="node-7")))
    >>> status = client.subresource(Node, "node-7", "status")
    >>> (await status.patch(Node, {"status": {"phase": "Running"}})).status.phase
    'Running'

    ``client.subresource`` creates it and sends nothing. The kind in requests and responses is the kind of the argument: the object's own
    (``status``, ``ephemeralcontainers``, ``resize``) or a kind of the subresource (``Scale``, ``TokenRequest``, ``Eviction``).

    Raises
        NotFound: the object or the subresource does not exist. MethodNotAllowed: the subresource does not support the verb.
    """

    def __init__(self, verbs: Verbs, kind: type[Resource], name: str, subresource: str, namespace: str | None) -> None:
        """Create an instance. Programs call ``client.subresource`` instead.

        Args:
            verbs: The client's methods.
            kind: The class of the object.
            name: The object's name.
            subresource: The subresource's name.
            namespace: None: the client's.
        """
        self._verbs = verbs
        self._kind = kind
        self._name = name
        self._subresource = subresource
        self._namespace = namespace

    @limited
    async def get(self, kind: type[S], *, resource_version: str | None = None, timeout: float | None = None) -> S:
        """Read the subresource as a ``kind``. For ``resource_version`` see ``client.get``."""
        response = await self._verbs.transport.request("GET", await self._path(), query={"resourceVersion": resource_version})
        return decode(kind, response.body)

    @limited
    async def create(self, obj: S, *, options: WriteOptions | None = None, timeout: float | None = None) -> S | Status:
        """Send ``obj`` with POST, for evictions, bindings and token requests; return the completed object or a ``Status``."""
        response = await self._send("POST", checked(obj, encode), options)
        try:
            status = msgspec.json.decode(response.body, type=Status)
        except (msgspec.DecodeError, UnicodeDecodeError):
            status = None
        if status is not None and (status.kind, status.api_version) == ("Status", "v1"):
            return status
        return decode(type(obj), response.body)

    @limited
    async def update(self, obj: S, *, options: WriteOptions | None = None, timeout: float | None = None) -> S:
        """Replace the subresource. An object of the kind itself must have been read, as for ``client.update``."""
        body = checked(obj, require_document if type(obj) is self._kind else encode)
        return await self._read("update", type(obj), await self._send("PUT", body, options), options)

    @limited
    async def patch(
        self,
        kind: type[S],
        patch: Patch | S,
        *,
        type: PatchType = "merge",  # noqa: A002 - the field's own word
        options: WriteOptions | None = None,
        timeout: float | None = None,
    ) -> S:
        """Change parts of the subresource, as ``client.patch`` does.

        Args:
            kind: The class of the response.
            patch: A tree, a list of operations for ``json``, encoded bytes, or a typed part.
            type: ``merge``, ``json``, ``strategic`` or ``apply``.
            options: Further options of the write.
            timeout: Seconds for the whole call. None: only the request is limited.

        Returns:
            The response as a ``kind``.
        """
        response = await self._send("PATCH", patch_body(kind, patch, type), options, PATCH_TYPES[type])
        return await self._read("patch", kind, response, options)

    @limited
    async def apply(
        self, obj: S, *, field_manager: str = "", force: bool = False, options: WriteOptions | None = None, timeout: float | None = None
    ) -> S:
        """Apply fields to the subresource, as ``client.apply`` does.

        Args:
            obj: The fields to own.
            field_manager: Empty: the client's own (``with_options``).
            force: Take over fields that others own.
            options: Further options of the write.
            timeout: Seconds for the whole call. None: only the request is limited.

        Returns:
            The object as the server stored it.

        Raises:
            Conflict, ValueError: As ``client.apply``.
        """
        asked = self._verbs._options(options)
        manager = field_manager or asked.field_manager
        if not manager:
            raise ValueError("apply needs a field manager: field_manager=..., the same for all that your program applies")
        asked = msgspec.structs.replace(asked, field_manager=manager, force=force or asked.force or None)
        response = await self._send("PATCH", apply_body(obj), asked, PATCH_TYPES["apply"])
        return await self._read("patch", type(obj), response, asked)

    async def _path(self) -> str:
        return await self._verbs._path(self._kind, self._name, self._namespace, self._subresource)

    async def _send(self, method: str, body: bytes, options: WriteOptions | None, content_type: str = "application/json") -> Response:
        query: Query = self._verbs._query(options)
        return await self._verbs.transport.request(method, await self._path(), query=query, body=body, content_type=content_type)

    async def _read(self, verb: Verb, kind: type[S], response: Response, options: WriteOptions | None) -> S:
        obj = decode(kind, response.body)
        # Listeners get only objects of the kind itself: caches store objects, not their Scales.
        return await self._verbs._stored(verb, obj, options) if kind is self._kind else obj


# A Scale in any group version that a server may send, read as ``autoscaling/v1``.
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
    """Decode a Scale of any known group version as ``autoscaling/v1``.

    Raises:
        DecodeError: It is not a Scale of a known version.
    """
    from kubeloop.api.autoscaling.v1 import Scale

    try:
        head = msgspec.json.decode(body, type=_Head)
        if head.api_version not in _OLDER or head.kind != "Scale":
            return decode(Scale, body)
        older = msgspec.json.decode(body, type=_Older)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"the answer is not a Scale: {error}") from None
    selector = older.status.target_selector or ",".join(f"{key}={value}" for key, value in sorted((older.status.selector or {}).items()))
    status = {"replicas": older.status.replicas} | ({"selector": selector} if selector else {})
    tree = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": older.metadata, "spec": older.spec, "status": status}
    return decode(Scale, msgspec.json.encode(tree))


class Subresources(Verbs):
    """Methods of common subresources, and ``subresource`` for all others."""

    def subresource(self, kind: type[Resource], name: str, subresource: str, *, namespace: str | None = None) -> Subresource:
        """Return any subresource of one object: ``client.subresource(Pod, "web-0", "ephemeralcontainers")``.

        Args:
            kind: The class of the object.
            name: The object's name.
            subresource: The subresource's name.
            namespace: None: the client's.

        Returns:
            An object with the subresource's methods; nothing is sent yet.
        """
        return Subresource(self, kind, name, subresource, namespace)

    @limited
    async def get_scale(
        self,
        kind: type[Resource],
        name: str,
        *,
        namespace: str | None = None,
        resource_version: str | None = None,
        timeout: float | None = None,
    ) -> Scale:
        """Read the numbers of desired and existing replicas.

        Args:
            kind: The class of the object.
            name: The object's name.
            namespace: None: the client's.
            resource_version: As for ``get``.
            timeout: Seconds for the whole call. None: only the request is limited.

        Returns:
            The Scale.

        Raises:
            NotFound: The object, or the kind's scale subresource, does not exist.
        """
        path = await self._path(kind, name, namespace, "scale")
        return read_scale((await self.transport.request("GET", path, query={"resourceVersion": resource_version})).body)

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
        """Set the number of desired replicas.

        Args:
            kind: The class of the object.
            name: The object's name.
            replicas: The desired number.
            namespace: None: the client's.
            resource_version: The version that the object must have. Empty: any.
            options: Further options of the write.
            timeout: Seconds for the whole call. None: only each request is limited.

        Returns:
            The Scale as the server stored it.

        Raises:
            NotFound: See ``get_scale``. ValueError: ``replicas`` is not a number, or negative. Conflict: the object has another version.
        """
        if type(replicas) is not int or replicas < 0:
            raise ValueError(f"replicas={described_word(replicas)}: must be a whole number, 0 or more")
        change: dict[str, Any] = {"spec": {"replicas": replicas}}
        if resource_version:
            change["metadata"] = {"resourceVersion": resource_version}
        path = await self._path(kind, name, namespace, "scale")
        body = msgspec.json.encode(change)
        response = await self.transport.request("PATCH", path, query=self._query(options), body=body, content_type=PATCH_TYPES["merge"])
        return read_scale(response.body)


class ServiceAccountVerbs:
    """Methods for service accounts: ``client.service_accounts``."""

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
        """Request a token of a service account; ``status.token`` is the secret, ``status.expiration_timestamp`` its expiry.

        Args:
            service_account: The service account's name.
            namespace: None: the client's.
            audiences: The servers that accept the token. Empty: the API server.
            expiration_seconds: The requested lifetime, at least 600. None: the server's default.
            bound_to: A Pod, Secret or Node; the token becomes invalid when this object is deleted.
            options: Further options of the write.
            timeout: Seconds for the whole call. None: only the request is limited.

        Returns:
            The completed TokenRequest.

        Raises:
            NotFound: The service account does not exist. Invalid: the lifetime is below ten minutes, or ``bound_to`` has another kind.
        """
        from kubeloop.api.authentication.v1 import BoundObjectReference, TokenRequest, TokenRequestSpec
        from kubeloop.api.core.v1 import ServiceAccount

        spec = TokenRequestSpec(audiences=list(audiences), expiration_seconds=expiration_seconds)
        if bound_to is not None:
            info, metadata = kind_info(bound_to), bound_to.metadata
            spec.bound_object_ref = BoundObjectReference(
                api_version=info.gvk.api_version, kind=info.gvk.kind, name=metadata.name, uid=metadata.uid
            )
        response = await self._verbs.subresource(ServiceAccount, service_account, "token", namespace=namespace).create(
            TokenRequest(spec=spec), options=options
        )
        assert isinstance(response, TokenRequest)
        return response


class CertificateVerbs:
    """Methods for CertificateSigningRequests: ``client.certificates``."""

    def __init__(self, verbs: Subresources) -> None:
        self._verbs = verbs

    @limited
    async def approve(
        self, name: str, *, reason: str, message: str = "", options: WriteOptions | None = None, timeout: float | None = None
    ) -> CertificateSigningRequest:
        """Approve a CertificateSigningRequest, so that its signer issues the certificate.

        Args:
            name: The request's name.
            reason: One word in camel case.
            message: A text for people.
            options: Further options of the write.
            timeout: Seconds for the whole call. None: only each request is limited.

        Returns:
            The request with its new condition.

        Raises:
            NotFound: The request does not exist. Invalid: it was denied before.
        """
        return await self._decide(name, "Approved", reason, message, options)

    @limited
    async def deny(
        self, name: str, *, reason: str, message: str = "", options: WriteOptions | None = None, timeout: float | None = None
    ) -> CertificateSigningRequest:
        """Deny a CertificateSigningRequest.

        Args:
            name: The request's name.
            reason: One word in camel case.
            message: A text for people.
            options: Further options of the write.
            timeout: Seconds for the whole call. None: only each request is limited.

        Returns:
            The request with its new condition.

        Raises:
            NotFound: The request does not exist. Invalid: it was approved before.
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
