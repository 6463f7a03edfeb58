"""Tables as a client may see them: rows of hidden objects are removed, cells of changed objects are computed again.

Source: Kubernetes API concepts, "Receiving resources as Tables".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from kubeloop.endpoints.tables import partial_object, table
from kubeloop.endpoints.tables.layout import TableColumn
from kubeloop.endpoints.tables.printer_columns import columns_of
from kubeloop.meta.errors import ApiError
from kubeloop.meta.kinds import GroupResource
from kubeloop.proxy.rules import Rewritten
from kubeloop.proxy.upstream import Upstream, bad_gateway, parsed
from kubeloop.proxy.view import ClientView
from kubeloop.timing import Clock
from kubeloop.types import JSONObject

#: A cell that the proxy cannot compute for a changed object. The API server's cell would show the original value.
UNKNOWN: Final = "<unknown>"
#: Columns of resources for which an API server has no printer. Their Tables without objects have Go's nil slice of rows.
#: Source: k8s.io/apiserver pkg/registry/rest/table.go (defaultTableConvertor).
_DEFAULT_COLUMNS: Final = ["Name", "Created At"]
#: Seconds for which the printer columns of a custom resource are cached.
_COLUMNS_AGE: Final = 30.0

#: Annotation of the bookmark that ends a watch's initial events.
_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"

#: Returns the printer columns of a custom resource, or None for a built-in one.
Columns = Callable[[], Awaitable[Sequence[TableColumn] | None]]


class PrinterColumns:
    """Reads the printer columns of custom resources from their definitions, as the proxy's own user."""

    def __init__(self, upstream: Upstream, clock: Clock) -> None:
        self._upstream = upstream
        self._clock = clock
        self._known: dict[tuple[GroupResource, str], tuple[float, Sequence[TableColumn] | None]] = {}

    async def get(self, resource: GroupResource, version: str) -> Sequence[TableColumn] | None:
        """Return the columns; None if the resource has no definition, or if the proxy may not read it."""
        if "." not in resource.group:
            return None  # the groups of custom resources are domains; those of Kubernetes with a dot end with k8s.io and are read once
        key = resource, version
        known, now = self._known.get(key), self._clock.now()
        if known is not None and known[0] > now:
            return known[1]
        columns = await self._read(resource, version)
        self._known[key] = now + _COLUMNS_AGE, columns
        return columns

    async def _read(self, resource: GroupResource, version: str) -> Sequence[TableColumn] | None:
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{resource.resource}.{resource.group}"
        try:
            definition = parsed(await self._upstream.read(path, [("Accept", "application/json")]))
        except ApiError as error:
            if error.status.code in (403, 404):
                return None
            raise
        versions = (definition.get("spec") or {}).get("versions") or []
        return next((columns_of(found) for found in versions if found.get("name") == version), None)


class TableRewriter:
    """Rewrites Tables of one response.

    Args:
        view: What the client sees of each object.
        resource: The resource of the rows.
        include: The part of each object that the client wants in a row: ``Object``, ``Metadata``, ``None``, or empty for Metadata.
        columns: Returns the columns of a custom resource.
        clock: For ages.
    """

    def __init__(self, view: ClientView, resource: GroupResource, include: str, columns: Columns, clock: Clock) -> None:
        self._view = view
        self._resource = resource
        self._include = include or "Metadata"
        self._columns = columns
        self._clock = clock
        self._names: list[str] = []
        self._api_version = ""

    async def rewrite(self, document: JSONObject) -> JSONObject:
        """Return a Table as the client may see it.

        Args:
            document: The API server's Table, with whole objects in its rows.

        Raises:
            ApiError: A rule failed, or a row has no object, so that it cannot be checked.
        """
        self.learn(document)
        rows = []
        for row in document.get("rows") or ():
            rewritten = await self.row(row)
            if rewritten is not None:
                rows.append(rewritten)
        metadata = {name: value for name, value in (document.get("metadata") or {}).items() if name != "remainingItemCount"}
        return document | {"metadata": metadata, "rows": rows or self._no_rows(document)}

    def _no_rows(self, document: JSONObject) -> list[JSONObject] | None:
        """Return the rows of a Table without visible objects: null where the API server would write null."""
        if not document.get("rows"):
            return document.get("rows")
        return None if self._names == _DEFAULT_COLUMNS else []

    def learn(self, document: JSONObject) -> None:
        """Remember version and columns of a Table. Later Tables of a watch have no columns."""
        self._api_version = str(document.get("apiVersion", ""))
        definitions = document.get("columnDefinitions")
        if definitions:
            self._names = [str(definition.get("name", "")) for definition in definitions]

    async def row(self, row: JSONObject) -> JSONObject | None:
        """Return a row as the client may see it, or None if its object is hidden."""
        tree = object_of(row)
        result = await self._view.see_async(tree)
        if result.object is None:
            return None
        return await self.with_cells(row, result)

    async def with_cells(self, row: JSONObject, result: Rewritten) -> JSONObject:
        """Return a row with the cells of what the client sees.

        Args:
            row: The API server's row.
            result: What the client sees of its object, which is not hidden.
        """
        assert result.object is not None
        if result.changed:
            row = await self._computed(row, result.object)
        if self._include == "None":
            return row | {"object": None}
        return row | {"object": self._shown(result.object)}

    def of_bookmark(self, document: JSONObject) -> JSONObject:
        """Return the Table of a bookmark, whose row has the part of the object that the client wants. No rule concerns it."""
        rows = [row | {"object": self._of_bookmark(row["object"])} if row.get("object") else row for row in document.get("rows") or ()]
        return document | {"rows": rows or document.get("rows")}

    def _of_bookmark(self, tree: JSONObject) -> JSONObject | None:
        annotations = (tree.get("metadata") or {}).get("annotations") or {}
        # The end of the initial events is sent also to a client that wants no objects.
        return self._shown(tree) if self._include != "None" or _INITIAL_EVENTS_END in annotations else None

    def of_hidden(self, rest: JSONObject) -> JSONObject:
        """Return the row of an object that became hidden: its name, without other cells."""
        cells = [rest["metadata"].get("name", "") if name == "Name" else UNKNOWN for name in self._names]
        return {"cells": cells, "object": None if self._include == "None" else self._shown(rest)}

    def _shown(self, tree: JSONObject) -> JSONObject:
        """Return an object, or its metadata in the version of the Table."""
        return tree if self._include == "Object" else partial_object(tree) | {"apiVersion": self._api_version}

    async def _computed(self, row: JSONObject, tree: JSONObject) -> JSONObject:
        columns = await self._columns()
        own = table(self._resource, [tree], {}, now=self._clock.wall().timestamp(), columns=columns, include="None")
        computed: dict[str, Any] = {}
        rows = own["rows"] or [{"cells": []}]
        for definition, cell in zip(own["columnDefinitions"], rows[0]["cells"], strict=True):
            computed[definition["name"]] = cell
        kept = {name: value for name, value in row.items() if name != "conditions"}
        if "conditions" in rows[0]:
            kept["conditions"] = rows[0]["conditions"]
        return kept | {"cells": [computed.get(name, UNKNOWN) for name in self._names]}


class TablePages:
    """A Table that is made of several pages.

    Attributes:
        continue_token: The token of the next page; empty at the end of the list.
    """

    def __init__(self, document: JSONObject) -> None:
        self._document = document
        self.continue_token = str((document.get("metadata") or {}).get("continue") or "")

    @property
    def shown(self) -> int:
        """The number of rows."""
        return len(self._document["rows"] or ())

    def add(self, document: JSONObject) -> None:
        """Add the rows of another page."""
        if document["rows"]:
            self._document["rows"] = [*(self._document["rows"] or ()), *document["rows"]]
        self.continue_token = str(document["metadata"].get("continue") or "")

    def close(self) -> None:
        """Let the next page begin after the last row."""
        metadata = self._document["metadata"]
        metadata.pop("continue", None)
        if self.continue_token:
            metadata["continue"] = self.continue_token


def object_of(row: JSONObject) -> JSONObject:
    """Return the object of a row.

    Raises:
        ApiError: 502: the row has none, so that no rule can decide about it.
    """
    tree = row.get("object")
    if not isinstance(tree, dict) or not isinstance(tree.get("metadata"), dict):
        raise bad_gateway("the API server sent a Table with a row that has no object")
    return tree
