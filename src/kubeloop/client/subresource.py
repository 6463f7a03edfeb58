"""One subresource of one object, whatever it is called and whichever kind it speaks: ``client.subresource(Pod, "web-0", "resize")``."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from kubeloop.client.options import WriteOptions
from kubeloop.client.verbs.applying import applied
from kubeloop.client.verbs.base import limited
from kubeloop.client.verbs.patching import PATCH_TYPES, Patch, PatchType, patch_body
from kubeloop.client.write_hooks import Verb
from kubeloop.codec import decode, encode, require_document
from kubeloop.codec.checking import checked
from kubeloop.meta import Resource, Status
from kubeloop.transport import Query, Response

if TYPE_CHECKING:
    from kubeloop.client.verbs.base import Verbs

S = TypeVar("S", bound=Resource)


class Subresource:
    """Verbs on ``/NAME/SUBRESOURCE``. Made by ``client.subresource``; nothing is sent before a verb is called.

    The kind that goes over the wire is that of what is given or asked for: the object's own (``status``, ``ephemeralcontainers``,
    ``resize``) or one of the subresource's (``Scale``, ``TokenRequest``, ``Eviction``).

    Raises
        NotFound: also where the resource has no such subresource. MethodNotAllowed: it has, but not this verb.
    """

    def __init__(self, verbs: Verbs, kind: type[Resource], name: str, subresource: str, namespace: str | None) -> None:
        self._verbs = verbs
        self._kind = kind
        self._name = name
        self._subresource = subresource
        self._namespace = namespace

    @limited
    async def get(self, kind: type[S], *, timeout: float | None = None) -> S:
        """Read it as a ``kind``."""
        return decode(kind, (await self._verbs.transport.request("GET", await self._path())).body)

    @limited
    async def create(self, obj: S, *, options: WriteOptions | None = None, timeout: float | None = None) -> S | Status:
        """Send it with POST, as evictions, bindings and token requests want it; the answer is the same kind completed, or a ``Status``."""
        answer = await self._send("POST", checked(obj, encode), options)
        try:
            status = msgspec.json.decode(answer.body, type=Status)
        except (msgspec.DecodeError, UnicodeDecodeError):
            status = None
        if status is not None and (status.kind, status.api_version) == ("Status", "v1"):
            return status
        return decode(type(obj), answer.body)

    @limited
    async def update(self, obj: S, *, options: WriteOptions | None = None, timeout: float | None = None) -> S:
        """Replace it. An object of the kind itself must have been read, as for ``client.update``."""
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
        """Change parts of it, as ``client.patch``; the answer is read as a ``kind``."""
        answer = await self._send("PATCH", patch_body(kind, patch, type), options, PATCH_TYPES[type])
        return await self._read("patch", kind, answer, options)

    @limited
    async def apply(
        self, obj: S, *, field_manager: str = "", force: bool = False, options: WriteOptions | None = None, timeout: float | None = None
    ) -> S:
        """Server-side apply to it, as ``client.apply``."""
        asked = self._verbs._options(options)
        manager = field_manager or asked.field_manager
        if not manager:
            raise ValueError("apply needs a field manager: field_manager=..., the same for all that your program applies")
        asked = msgspec.structs.replace(asked, field_manager=manager, force=force or asked.force or None)
        answer = await self._send("PATCH", applied(obj), asked, PATCH_TYPES["apply"])
        return await self._read("patch", type(obj), answer, asked)

    async def _path(self) -> str:
        return await self._verbs._path(self._kind, self._name, self._namespace, self._subresource)

    async def _send(self, method: str, body: bytes, options: WriteOptions | None, content_type: str = "application/json") -> Response:
        query: Query = self._verbs._query(options)
        return await self._verbs.transport.request(method, await self._path(), query=query, body=body, content_type=content_type)

    async def _read(self, verb: Verb, kind: type[S], answer: Response, options: WriteOptions | None) -> S:
        obj = decode(kind, answer.body)
        # Only the object itself is worth telling: caches hold objects, not their scales.
        return await self._verbs._stored(verb, obj, options) if kind is self._kind else obj
