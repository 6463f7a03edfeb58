"""The OpenAPI v3 documents of a server, one per group version, requested once per hash in the server's index.

Source: KEP-2896; Kubernetes documentation, "OpenAPI V3"; client-go openapi3 and openapi/cached.
"""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from typing import Any

import msgspec

from kubeloop.client.discovery.disk_cache import cache_folder, folder_of, replace_file
from kubeloop.meta.errors import DecodeError, NotFound, TransportError, UnknownKind
from kubeloop.meta.kinds import GroupVersion, GroupVersionKind
from kubeloop.transport import Transport
from kubeloop.types import JSONObject

_LOG = logging.getLogger("kubeloop.client.discovery")

_INDEX = "/openapi/v3"
_KINDS = "x-kubernetes-group-version-kind"


class _Entry(msgspec.Struct, rename={"url": "serverRelativeURL"}):
    url: str = ""


class _Index(msgspec.Struct):
    paths: dict[str, _Entry]


class _StoredDocument(msgspec.Struct):
    """The content of a cached document's file."""

    url: str
    document: msgspec.Raw


class OpenApiDocuments:
    """The OpenAPI v3 documents of a server, cached as bytes under their URL in the index, which contains a hash of the document.

    Guarantees
        A document is requested again if and only if the server's index shows another hash. The index is requested at the first use, when
        a group version or kind is missing in the cached documents, and after ``forget``.

    Raises
        UnknownKind: the server has no document for the group version, or the document has no schema of the kind.
        ApiError, TransportError: the server refused, or no response arrived. DecodeError: a response is not an OpenAPI document.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._index: dict[str, str] | None = None
        self._bodies: dict[str, tuple[str, bytes]] = {}
        self._folder: Path | None = None
        self._lock = asyncio.Lock()

    def keep_on_disk(self, folder: Path | None = None) -> None:
        """Cache documents on disk too. A cached document is used until the server reports another hash for it.

        ``folder`` is the directory of the cache; None stands for KUBECACHEDIR or ``~/.kube/cache``.
        """
        self._folder = (folder or cache_folder()) / "openapi" / folder_of(self._transport.config.server)

    def forget(self) -> None:
        """Request the index at the next use; documents with the same hash stay cached."""
        self._index = None

    async def group_versions(self) -> tuple[GroupVersion, ...]:
        """Return the group versions that have a document."""
        async with self._lock:
            index = await self._known_index()
        return tuple(version for path in index if (version := _group_version(path)) is not None)

    async def document(self, version: GroupVersion) -> JSONObject:
        """Return the OpenAPI document of a group version. Each call decodes the cached bytes again."""
        async with self._lock:
            asked = self._index is None
            index = await self._known_index()
            if version.path[1:] not in index and not asked:
                self._index = None
                index = await self._known_index()
            if version.path[1:] not in index:
                raise UnknownKind(f"{self._server} has no OpenAPI document of {version.api_version}; is it served? see its discovery")
            body = await self._body(version.path[1:], index[version.path[1:]])
        return _decoded(body, version.path)

    async def schema(self, gvk: GroupVersionKind) -> JSONObject:
        """Return the schema of a kind; its ``$ref`` refer to the ``components`` of the same document."""
        found = _schema_of(await self.document(gvk.group_version), gvk)
        if found is None:
            self.forget()  # a kind may be younger than the index
            found = _schema_of(await self.document(gvk.group_version), gvk)
        if found is None:
            raise UnknownKind(f'{self._server} has no OpenAPI schema of "{gvk.kind}" in {gvk.api_version}')
        return found

    @property
    def _server(self) -> str:
        return self._transport.config.server

    async def _known_index(self) -> dict[str, str]:
        if self._index is None:
            try:
                answer = await self._transport.request("GET", _INDEX)
            except NotFound as error:
                raise UnknownKind(f"{self._server} has no OpenAPI v3 documents (Kubernetes before 1.24); use /openapi/v2") from error
            try:
                index = msgspec.json.decode(answer.body, type=_Index)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise DecodeError(f"{_INDEX}: the answer is not an index of OpenAPI documents: {error}") from error
            self._index = {path: entry.url or f"{_INDEX}/{path}" for path, entry in index.paths.items()}
        return self._index

    async def _body(self, path: str, url: str) -> bytes:
        kept = self._bodies.get(path)
        if kept is None or kept[0] != url:
            body = await asyncio.to_thread(self._read, path, url)
            if body is None:
                url, body = await self._ask(path, url)
                if not body:  # kube-apiserver sends an empty 200 for a moment after the last definition of a group version is deleted.
                    self.forget()
                    raise UnknownKind(f"{self._server} no longer has an OpenAPI document of {path}; its definitions are being removed")
                await asyncio.to_thread(self._write, path, url, body)
            kept = self._bodies[path] = url, body
        return kept[1]

    async def _ask(self, path: str, url: str) -> tuple[str, bytes]:
        """Request a document; return its final URL and its content."""
        if not url.startswith("/") or url.startswith("//"):
            raise DecodeError(f"{_INDEX}: {url!r} is not a path on the server itself")
        try:
            return url, (await self._get(url)).body
        except TransportError:
            # The document has changed, and the server redirects to its new hash. Redirects are not followed; the index has the new URL.
            self._index = None
            newer = (await self._known_index()).get(path, url)
            if newer == url:
                raise
            return newer, (await self._get(newer)).body

    async def _get(self, url: str) -> Any:
        path, _, query = url.partition("?")
        name, _, value = query.partition("=")
        return await self._transport.request("GET", path, query={name: value} if name else None)

    def _file(self, path: str) -> Path | None:
        return self._folder / (re.sub(r"[^\w.-]", "_", path, flags=re.ASCII) + ".json") if self._folder is not None else None

    def _read(self, path: str, url: str) -> bytes | None:
        file = self._file(path)
        if file is None:
            return None
        try:
            kept = msgspec.json.decode(file.read_bytes(), type=_StoredDocument)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None  # missing or damaged: it is requested and written again
        # Without a hash in its URL, a change cannot be detected.
        return bytes(kept.document) if kept.url == url and "hash=" in url else None

    def _write(self, path: str, url: str, body: bytes) -> None:
        file = self._file(path)
        if file is None or "hash=" not in url:
            return
        try:
            replace_file(file, msgspec.json.encode(_StoredDocument(url, msgspec.Raw(body))))
        except OSError as error:
            _LOG.debug("cannot cache OpenAPI documents on disk: %s", error)


def _decoded(body: bytes, path: str) -> JSONObject:
    try:
        return msgspec.json.decode(body, type=JSONObject)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"{_INDEX}{path}: the answer is not an OpenAPI document: {error}") from error


def _schema_of(document: JSONObject, gvk: GroupVersionKind) -> JSONObject | None:
    wanted = {"group": gvk.group, "version": gvk.version, "kind": gvk.kind}
    schemas: JSONObject = (document.get("components") or {}).get("schemas") or {}
    return next((one for one in schemas.values() if wanted in (one.get(_KINDS) or ())), None)


def _group_version(path: str) -> GroupVersion | None:
    """Return the group version of ``apis/apps/v1`` or ``api/v1``; None for other documents (``version``, ``apis``)."""
    match path.split("/"):
        case ["apis", group, version]:
            return GroupVersion(group, version)
        case ["api", version]:
            return GroupVersion("", version)
    return None
