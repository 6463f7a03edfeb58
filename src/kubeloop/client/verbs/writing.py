"""Writing whole objects: create, update, and a status that is written apart."""

from __future__ import annotations

from typing import TypeVar

from kubeloop.client.options import WriteOptions
from kubeloop.client.verbs.base import Verbs
from kubeloop.codec import decode, encode, require_document
from kubeloop.codec.checking import checked
from kubeloop.meta import Resource

R = TypeVar("R", bound=Resource)


class Writing(Verbs):
    """create and update.

    Raises
        ValueError: a field holds a value of another type; the text names it, and nothing was sent.
    """

    async def create(self, obj: R, *, namespace: str | None = None, options: WriteOptions | None = None) -> R:
        """Store a new object; gives it back as the server stored it, defaults filled in.

        Raises:
            AlreadyExists: the name is taken. Invalid: with a cause per field.
        """
        body = checked(obj, encode)
        mapping = await self.mapping(type(obj))
        path = mapping.path(self._namespace_of(mapping, namespace or obj.metadata.namespace))
        sent = self._writes.now()
        answer = await self.transport.request("POST", path, query=self._query(options), body=body)
        return await self._stored("create", decode(type(obj), answer.body), options, sent)

    async def update(self, obj: R, *, namespace: str | None = None, options: WriteOptions | None = None) -> R:
        """Replace an object by ``obj``: the document that it was read from, with the caller's changes; unknown fields survive.

        With ``metadata.resource_version`` set (as in every object that was read) the write is refused if somebody wrote in between.

        Raises:
            Conflict: somebody did. IncompleteObject: only a part of the object is known here, and sending that would erase the rest.
        """
        return await self._put(obj, namespace, options, None)

    async def update_status(self, obj: R, *, namespace: str | None = None, options: WriteOptions | None = None) -> R:
        """Replace an object's status; the spec is left as it is, whatever ``obj`` says (some kinds take labels and annotations too).

        Raises:
            Conflict, IncompleteObject: as ``update``. NotFound: also where the kind has no status subresource.
        """
        return await self._put(obj, namespace, options, "status")

    async def _put(self, obj: R, namespace: str | None, options: WriteOptions | None, subresource: str | None) -> R:
        body = checked(obj, require_document)  # before anything else: what is only metadata has no kind to find a path by
        path = await self._path(type(obj), obj.metadata.name, namespace or obj.metadata.namespace, subresource)
        answer = await self.transport.request("PUT", path, query=self._query(options), body=body)
        return await self._stored("update", decode(type(obj), answer.body), options)
