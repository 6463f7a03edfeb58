"""Reads of one object, or of one page of a list from a snapshot; selectors and continue tokens.

Source: Kubernetes API concepts, "Resource versions", "Retrieving large results sets in chunks".
"""

from __future__ import annotations

import base64
import binascii
import json
import posixpath
from dataclasses import dataclass

from kubeloop.apiserver.registry.objects import Objects, StoredObject
from kubeloop.apiserver.registry.options import ListParameters, invalid_version, resource_version_number
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.storage import Compacted, FutureRevision, KeyValue, Range, prefix_end
from kubeloop.apiserver.storage.watch_cache import WatchCache
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.go_json_errors import json_fault
from kubeloop.meta.selectors import FieldSelector, Selector, parse_field_selector, parse_label_selector
from kubeloop.meta.strconv import decimal
from kubeloop.timing import Clock, within
from kubeloop.types import JSONObject

# Label and field selectors of lists, watches and deletecollection.
# Source: Kubernetes documentation, "Labels and Selectors", "Field Selectors"; recorded answers for unknown fields.


_ALWAYS = ("metadata.name", "metadata.namespace")


class Selection:
    """The label and field selectors of a list or watch.

    Raises BadRequest, with Kubernetes' message, for malformed selectors and for fields that the resource does not support.
    """

    def __init__(self, resource: ServedResource, label_selector: str, field_selector: str) -> None:
        self._resource = resource
        try:
            self.labels: Selector = parse_label_selector(label_selector)
            self.fields: FieldSelector = parse_field_selector(field_selector)
        except ValueError as error:
            raise api_errors.bad_request(str(error)) from None
        aliases = resource.strategy.field_aliases
        if aliases:
            self.fields = self.fields.transformed(lambda name, value: (aliases.get(name, name), value))
        for term in self.fields.terms:
            self._check(term.field)
        self._by_fields = not self.fields.everything
        self._kind_fields = any(term.field not in _ALWAYS for term in self.fields.terms)
        self.everything = self.labels.everything and not self._by_fields

    @property
    def name(self) -> str | None:
        """The only name that can match, if the field selector requires one."""
        return self.fields.exact_value("metadata.name")

    def matches(self, obj: JSONObject) -> bool:
        """Return whether an object matches both selectors."""
        if self.everything:
            return True
        metadata = obj["metadata"]
        if not self.labels.matches(metadata.get("labels")):
            return False
        if not self._by_fields:
            return True
        fields = {"metadata.name": metadata["name"], "metadata.namespace": metadata.get("namespace", "")}
        if self._kind_fields:
            fields.update(self._resource.strategy.selectable_fields(obj))
        return self.fields.matches(fields)

    def _check(self, field: str) -> None:
        strategy = self._resource.strategy
        if field in _ALWAYS or field in strategy.field_labels:
            return
        if strategy.field_labels or self._resource.custom:
            version = self._resource.gvr.group_version.api_version
            raise api_errors.bad_request(strategy.unknown_field.format(field=field, version=version))
        raise api_errors.bad_request(f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"')


# Continue tokens of paged lists: the next key and the revision. Opaque to clients.
# Source: k8s.io/apiserver pkg/storage/continue.go.


_VERSION = "meta.k8s.io/v1"
#: Revision of a token that continues at the newest revision: an inconsistent list, requested by the client.
ANY_REVISION = -1


@dataclass(frozen=True, slots=True)
class ContinueToken:
    """A parsed continue token. ``start`` is the key at which the next page begins, relative to the key prefix of the list."""

    start: str
    revision: int

    def __str__(self) -> str:
        tree = {"v": _VERSION, "rv": self.revision, "start": self.start}
        return base64.urlsafe_b64encode(json.dumps(tree, separators=(",", ":")).encode()).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> ContinueToken:
        """Decode a continue token.

        Raises:
            BadRequest: The text is not a token of this server.
        """
        tree = _decode(text)
        version, revision, start = tree.get("v") or "", tree.get("rv") or 0, tree.get("start") or ""
        if version != _VERSION:
            raise _refused(f"server does not recognize this encoded version {version}")
        if not isinstance(revision, int) or not revision or decimal(str(revision)) is None:
            raise _refused(f"incorrect encoded start resourceVersion (version {_VERSION})")
        if not isinstance(start, str) or not start:
            raise _refused(f"encoded start key empty (version {_VERSION})")
        key = f"/{start.removeprefix('/')}"
        if posixpath.normpath(key) != key:
            raise _refused(start)  # it could point outside the list
        return cls(start.removeprefix("/"), revision)


def _decode(text: str) -> dict[str, object]:
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        # Go reports the position of the first invalid letter, or of the last incomplete group of four.
        last = len(text) - len(text) % 4
        at = next((index for index, char in enumerate(text) if not (char.isascii() and (char.isalnum() or char in "-_"))), last)
        raise _refused(f"illegal base64 data at input byte {at}") from None
    try:
        tree = json.loads(data)
    except ValueError:
        raise _refused(json_fault(data) or "invalid UTF-8") from None
    if not isinstance(tree, dict):
        raise _refused("it is not an object")
    return tree


def _refused(reason: str) -> Exception:
    return api_errors.bad_request(f"invalid continue token: continue key is not valid: {reason}")


#: Seconds for which a read waits for a future version, as in upstream's watch cache.
_PATIENCE = 3.0

_TOO_OLD = "The resourceVersion for the provided list is too old."
_CONTINUE_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue "
    "parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token "
    "results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and "
    "now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a list at ``revision``. ``remaining`` is the number of further items, or None if a selector makes it unknown."""

    items: list[KeyValue]
    revision: int
    continue_token: str = ""
    remaining: int | None = None


class Reader:
    """Reads objects of any resource at requested versions."""

    def __init__(self, objects: Objects, cache: WatchCache, clock: Clock) -> None:
        self._objects = objects
        self._cache = cache
        self._clock = clock

    async def get(self, resource: ServedResource, namespace: str, name: str, resource_version: str = "") -> StoredObject:
        """Return an object at ``resource_version`` or newer.

        Args:
            resource: The resource.
            namespace: Namespace; empty for cluster-scoped resources.
            name: Name of the object.
            resource_version: Minimum version; empty: the newest.

        Raises:
            NotFound: The object does not exist.
            Timeout: The version does not exist within three seconds.
            InternalError: The version is no number (as upstream).
        """
        if resource_version:
            number = resource_version_number(resource_version)
            if number is None:
                raise api_errors.internal(invalid_version(resource_version))
            await self.at_least(number)
        stored = await self._objects.get(resource, namespace, name)
        if stored is None:
            raise api_errors.not_found(resource.gvr.group_resource, name)
        return stored

    async def at_least(self, revision: int) -> None:
        """Wait until ``revision`` exists.

        Raises:
            Timeout: The revision does not exist after three seconds.
        """
        current = await self._objects.storage.revision()
        if revision <= current:
            return
        try:
            await within(self._clock, _PATIENCE, self._cache.wait_until(revision))
        except TimeoutError:
            raise api_errors.version_too_large(revision, await self._objects.storage.revision()) from None

    async def page(self, resource: ServedResource, namespace: str, options: ListParameters, selection: Selection) -> Page:
        """Return one page of a list.

        Args:
            resource: The resource.
            namespace: Namespace; empty: all namespaces.
            options: Options of the list.
            selection: The selectors of the list.

        Raises:
            BadRequest: The continue token or version is invalid.
            Expired: The revision of the token was compacted.
            Timeout: The version does not exist within three seconds.
        """
        prefix = self._objects.prefix(resource, namespace)
        start, revision, limit = prefix, 0, max(options.limit, 0)
        consistent = True
        token = ContinueToken.parse(options.continue_token) if options.continue_token else None
        if token is not None and options.resource_version not in ("", "0"):
            raise api_errors.bad_request("specifying resource version is not allowed when using continue")
        version = self._version(options)
        if options.resource_version == "0":
            limit = 0  # as upstream, which returns the whole (rest of the) list from its cache
        if selection.name and (namespace or not resource.namespaced):
            limit = 0  # as upstream, which reads the single object by its key
        if token is not None:
            start, consistent = prefix + token.start, token.revision != ANY_REVISION
            revision = token.revision if consistent else 0
        elif version:
            await self.at_least(version)
            if options.resource_version_match == "Exact" or (limit and not options.resource_version_match):
                revision = version
        return await self._collect(resource, prefix, start, revision, limit, selection, continued=bool(options.continue_token))

    async def _collect(
        self, resource: ServedResource, prefix: str, start: str, revision: int, limit: int, selection: Selection, *, continued: bool
    ) -> Page:
        end = prefix_end(prefix)
        items: list[KeyValue] = []
        step = limit
        while True:
            page = await self._range(prefix, start, end, revision, step, continued=continued)
            revision = page.revision
            items += self._selected(resource, await self._objects.to_requested_version(resource, page.items), selection)
            # With a selection, the last step may find more objects than the limit.
            if not page.more and (not limit or len(items) <= limit):
                return Page(items, revision)
            start = page.items[-1].key + "\0"
            if len(items) >= limit:
                break
            step = min(max(step * 2, 500), 10_000)
        if len(items) > limit:
            items = items[:limit]
            start = items[-1].key + "\0"
        token = ContinueToken("/" + start[len(prefix) :], revision)
        remaining = page.total - len(page.items) if selection.everything else None
        return Page(items, revision, str(token), remaining)

    async def _range(self, prefix: str, start: str, end: str, revision: int, limit: int, *, continued: bool) -> Range:
        try:
            return await self._objects.storage.range(start, end, revision=revision, limit=limit)
        except Compacted:
            if not continued:
                raise api_errors.gone(_TOO_OLD) from None
            expired = api_errors.gone(_CONTINUE_TOO_OLD)
            expired.status.metadata = {"continue": str(ContinueToken(start[len(prefix) :], ANY_REVISION))}
            raise expired from None
        except FutureRevision as error:
            raise api_errors.version_too_large(revision, error.current) from None

    def _selected(self, resource: ServedResource, items: list[KeyValue], selection: Selection) -> list[KeyValue]:
        if selection.everything:
            return items
        name = selection.name
        if name is not None:
            items = [kv for kv in items if kv.key.rpartition("/")[2] == name]
        return [kv for kv in items if selection.matches(self._objects.tree(resource, kv))]

    @staticmethod
    def _version(options: ListParameters) -> int:
        if not options.resource_version:
            return 0
        number = resource_version_number(options.resource_version)
        if number is None:
            raise api_errors.bad_request(f"invalid resource version: {invalid_version(options.resource_version)}")
        return number
