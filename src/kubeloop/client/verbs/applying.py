"""Server-side apply: say what you want to own, and the server keeps track of who owns what.

Source: https://kubernetes.io/docs/reference/using-api/server-side-apply/; KEP-555.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

import msgspec

from kubeloop.client.managed_fields import extract
from kubeloop.client.options import WriteOptions
from kubeloop.client.verbs.base import Verbs, limited
from kubeloop.client.verbs.patching import PATCH_TYPES
from kubeloop.codec import decode, encode
from kubeloop.codec.apply_configuration import encode_applied
from kubeloop.codec.checking import checked, require_metadata
from kubeloop.meta import Resource
from kubeloop.meta.resource import source_of
from kubeloop.meta.type_checks import require_object

R = TypeVar("R", bound=Resource)


class Applying(Verbs):
    """apply, and what goes with owning fields."""

    @limited
    async def apply(
        self,
        obj: R,
        *,
        field_manager: str = "",
        force: bool = False,
        namespace: str | None = None,
        subresource: str | None = None,
        options: WriteOptions | None = None,
        timeout: float | None = None,
    ) -> R:
        """Create the object or bring it to what ``obj`` says; then ``field_manager`` owns the fields that ``obj`` sets, and no others.

        ``obj`` sets only what it means to own: fields left at the default of their class are not sent. What it owned before and no
        longer sets is removed from the object, unless somebody else owns it too. ``force`` takes fields over that others own.
        ``field_manager``: a name for the program, always the same; may be given to the client once (``with_options``).

        Raises:
            Conflict: others own fields that ``obj`` sets differently; each cause names one. Not with ``force``.
            ValueError: no field manager or name; ``obj`` was read from the server or has managedFields; a field of another type.
        """
        require_object(obj)
        options = self._options(options)
        manager = field_manager or options.field_manager
        if not manager:
            raise ValueError("apply needs a field manager: field_manager=..., the same for all that your program applies")
        body = applied(obj)
        path = await self._path(type(obj), obj.metadata.name, namespace or obj.metadata.namespace, subresource)
        query = msgspec.structs.replace(options, field_manager=manager, force=force or options.force or None).query()
        answer = await self.transport.request("PATCH", path, query=query, body=body, content_type=PATCH_TYPES["apply"])
        return await self._stored("patch", decode(type(obj), answer.body), options)

    @limited
    async def get_owned(
        self,
        kind: type[R],
        name: str,
        *,
        field_manager: str = "",
        namespace: str | None = None,
        subresource: str = "",
        timeout: float | None = None,
    ) -> R:
        """Read what ``field_manager`` owns of an object by apply: to be changed and applied again (see ``extract``).

        Raises:
            NotFound: no such object. ValueError: no field manager.
        """
        manager = field_manager or self._defaults.field_manager
        if not manager:
            raise ValueError("get_owned needs a field manager: field_manager=...")
        path = await self._path(kind, name, namespace)
        return extract(decode(kind, (await self.transport.request("GET", path)).body), manager, subresource=subresource)

    @limited
    async def upgrade_ownership(
        self,
        kind: type[R],
        name: str,
        *,
        updaters: Collection[str],
        field_manager: str,
        namespace: str | None = None,
        options: WriteOptions | None = None,
        timeout: float | None = None,
    ) -> R:
        """Let ``field_manager`` own by apply what ``updaters`` own by update: once, before a program's first apply to older objects.

        Repeated while others write at the same time, as ``retry_on_conflict``.

        Raises:
            NotFound: no such object. Conflict: others kept writing.
        """
        from kubeloop.client.conflict import retry_on_conflict
        from kubeloop.client.managed_fields import upgrade_patch

        path = await self._path(kind, name, namespace)

        async def attempt() -> R:
            found = decode(kind, (await self.transport.request("GET", path)).body)
            patch = upgrade_patch(found, updaters, field_manager)
            if not patch:
                return found
            body = msgspec.json.encode(patch)
            answer = await self.transport.request("PATCH", path, query=self._query(options), body=body, content_type=PATCH_TYPES["json"])
            return await self._stored("patch", decode(kind, answer.body), options)

        return await retry_on_conflict(attempt, clock=self.clock)


def applied(obj: Resource) -> bytes:
    """What to send to apply ``obj``.

    Raises:
        ValueError: see ``Applying.apply``.
    """
    require_object(obj)
    require_metadata(obj)
    if obj.metadata.managed_fields:
        raise ValueError(
            f'metadata.managedFields: {obj.kind} "{obj.object_key()}" has them, so it was read, not made to be applied; '
            "apply an object that sets only your fields, or what client.extract gives for your field manager"
        )
    if not obj.metadata.name:
        raise ValueError(f"metadata.name: the {obj.kind} has none; an apply needs it (metadata.generateName is for create)")
    if source_of(obj) is None:
        checked(obj, encode)
        return encode_applied(obj)
    return checked(obj, encode_applied)
