"""Gets and lists from the cache, in the forms in which an API server writes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Final

import msgspec

from kubeloop.cache.blobs.head import Head
from kubeloop.endpoints.encoding import encode
from kubeloop.endpoints.negotiation import JSON
from kubeloop.meta.errors import ApiError
from kubeloop.proxy.cached.queries import ObjectMatcher
from kubeloop.proxy.cached.resource import CacheableResource, CachedResource
from kubeloop.proxy.encodings import Form, shaped
from kubeloop.proxy.lists import ListRewriter, begin, joined
from kubeloop.proxy.view import ClientView
from kubeloop.serving.answer import Aborted, Answer, Reply, StreamingResponse

#: Bytes of items that are written at once.
_PART: Final = 64 << 10
#: Objects between which other connections get their turn.
_TURN: Final = 64
_decode = msgspec.json.Decoder(dict[str, Any]).decode

Headers = list[tuple[str, str]]


class ListWriter:
    """Writes the objects of a cache as an API server writes a list: items of built-in kinds have no kind.

    Attributes:
        version: The resourceVersion of the list.
    """

    def __init__(self, resource: CachedResource, matcher: ObjectMatcher) -> None:
        self._served = resource.served
        self._matcher = matcher
        self._heads = resource.objects.snapshot()
        self.version = str(resource.objects.version)
        self._opening = _opening_of(resource.served)

    async def plain(self, form: Form) -> AsyncGenerator[bytes, None]:
        """Yield the list without rules."""
        kind, api_version = self._served.list_kind, self._served.api_version
        if form.is_metadata:
            kind, api_version = "PartialObjectMetadataList", form.api_version
        parts = [self._begin(kind, api_version, is_metadata=form.is_metadata)]
        size, separator = 0, b"["
        for number, head in enumerate(self._heads):
            if number % _TURN == _TURN - 1:
                await asyncio.sleep(0)
            if not self._matcher(head):
                continue
            document = head.document()
            item = encode(shaped(_decode(document), form)) if form.is_metadata else self._item(document)
            parts += (separator, item)
            separator = b","
            size += len(item)
            if size >= _PART:
                yield b"".join(parts)
                parts.clear()
                size = 0
        if separator == b"[":
            parts.append(b"null}\n" if form.is_metadata else b"[]}\n")  # as a kube-apiserver writes lists without items
        else:
            parts.append(b"]}\n")
        yield b"".join(parts)

    async def rewritten(self, rewriter: ListRewriter) -> AsyncGenerator[bytes, None]:
        """Yield the list as rules show it.

        Raises:
            ApiError: A rule failed.
        """
        async for part in self.plain(Form(JSON)):
            data = await rewriter.feed(part)
            if data:
                yield data
        yield await rewriter.finish()

    def _begin(self, kind: str, api_version: str, *, is_metadata: bool) -> bytes:
        metadata = {"resourceVersion": self.version}
        if self._served.is_custom and not is_metadata:
            metadata = {"continue": "", **metadata}
        return encode({"kind": kind, "apiVersion": api_version, "metadata": metadata})[:-1] + b',"items":'

    def _item(self, document: bytes) -> bytes:
        return b"{" + document[len(self._opening) :] if document.startswith(self._opening) else document


def _opening_of(served: CacheableResource) -> bytes:
    """Return the begin of a built-in object. Custom objects, whose items keep their kind, begin with apiVersion."""
    return encode({"kind": served.gvk.kind, "apiVersion": served.api_version})[:-1] + b","


async def list_reply(parts: AsyncGenerator[bytes, None], headers: Headers) -> Reply:
    """Return a list: complete if it is short, otherwise as a stream, which is cut if a rule fails.

    Args:
        parts: The body.
        headers: The headers.

    Raises:
        ApiError: A rule failed at the begin.
    """
    try:
        first, complete = await begin(parts)
    except BaseException:
        await parts.aclose()
        raise
    if complete:
        return Answer(body=first.removesuffix(b"\n"), content_type=JSON, headers=headers)
    return StreamingResponse(_or_aborted(joined(first, parts)), JSON, headers)


async def object_answer(head: Head, view: ClientView | None, form: Form, headers: Headers) -> Answer | None:
    """Return one object; None if rules hide it.

    Args:
        head: The object.
        view: What the client sees; None: the object unchanged.
        form: The form of the response.
        headers: The headers.

    Raises:
        ApiError: A rule failed.
    """
    document = head.document()
    if view is None:
        tree, changed = (_decode(document) if form.is_metadata else None), False
    else:
        result = await view.see_async(_decode(document))
        if result.object is None:
            return None
        tree, changed = result.object, result.changed
    if tree is None or (not changed and not form.is_metadata):
        return Answer(body=document, content_type=JSON, headers=headers)
    return Answer(object=shaped(tree, form), content_type=JSON, headers=headers)


async def _or_aborted(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the parts of a list whose begin is sent. A failure cuts the connection: clients must not take a part for the whole."""
    try:
        async for part in parts:
            yield part
    except ApiError as error:
        raise Aborted(str(error)) from None
