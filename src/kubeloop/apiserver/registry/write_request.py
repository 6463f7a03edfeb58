"""The write request: one create, update, delete or connect, as strategies, admission and the store see it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.endpoints.access import User
from kubeloop.meta.field_error import FieldError
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.types import JSONObject


class View(Protocol):
    """A subresource that shows an object as another kind (Scale). Admission sees a write through it as a write of that kind."""

    kind: GroupVersionKind

    def show(self, obj: JSONObject) -> JSONObject:
        """Return the view of an object as a new tree of ``kind``."""

    def keep(self, obj: JSONObject, view: JSONObject) -> None:
        """Apply the changes in ``view`` to ``obj``."""


@dataclass(slots=True)
class WriteRequest:
    """One write of one object.

    A handler creates it from the scope of its request (``RequestScope.write``); the server creates it directly for its own writes. Lists
    and dictionaries are shared with that scope, so that warnings and audit annotations of the write become those of the request.

    Example:
        >>> request = WriteRequest(namespaces, "", "shop", SYSTEM, manager=SERVER)
        >>> await writer.create(request, {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "shop"}})
    """

    resource: ServedResource
    namespace: str
    name: str
    user: User
    subresource: str = ""
    dry_run: bool = False
    #: Field manager; empty leaves ``managedFields`` unchanged.
    manager: str = ""
    #: Time of the request, RFC 3339.
    time: str = ""
    #: The body before it was conformed to the kind.
    sent: Any = None
    #: Texts for Warning headers of the answer.
    warnings: list[str] = field(default_factory=list)
    #: Annotations that admission adds to the audit events of the request.
    audit_annotations: dict[str, str] = field(default_factory=dict)
    #: Callbacks of admission plug-ins, called when the write is stored or rejected.
    after: list[Callable[[], None]] = field(default_factory=list)
    #: Coroutine functions of admission plug-ins, awaited at that time, before the request is answered.
    settling: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    #: Options of the request without kind, as admission webhooks see them.
    options: JSONObject = field(default_factory=dict)
    #: The form in which admission sees an update, where that is not the object itself.
    view: View | None = None
    #: True for one of many objects that a request deletes: admission sees no name.
    of_collection: bool = False
    #: Verb of the request.
    verb: str = ""
    #: Name in the path of the request, if any.
    name_in_path: str = ""
    #: True for an update, also where it creates the object.
    by_update: bool = False
    #: Errors that admission adds to those of validation.
    findings: list[FieldError] = field(default_factory=list)

    async def finish(self) -> None:
        """Call and await the callbacks of admission plug-ins, after the write was stored or rejected."""
        while self.after:
            self.after.pop()()
        while self.settling:
            await self.settling.pop()()


#: Returns the new object for the shared old one, which it must not change. Called again after a concurrent write.
Change = Callable[[JSONObject], Awaitable[JSONObject]]


class ObjectWriter(Protocol):
    """Creates and updates objects (``store.writer``), for admission plug-ins that write."""

    async def create(self, request: WriteRequest, obj: JSONObject, /) -> object:
        """Create an object."""

    async def update(
        self, request: WriteRequest, change: Callable[[JSONObject], Awaitable[JSONObject]], /, *, status: bool = False
    ) -> object:
        """Replace an object by the result of ``change`` for its current state."""
