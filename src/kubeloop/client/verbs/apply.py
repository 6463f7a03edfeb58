"""Server-side apply: sends the fields that a manager wants to own; the server records the owner of each field.

Source: https://kubernetes.io/docs/reference/using-api/server-side-apply/; KEP-555.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

import msgspec

from kubeloop.client.managed_fields import extract
from kubeloop.client.options import WriteOptions
from kubeloop.client.verbs.base import Verbs, limited
from kubeloop.client.verbs.patch import PATCH_TYPES
from kubeloop.codec import decode, encode
from kubeloop.codec.apply_configuration import encode_applied
from kubeloop.codec.encoding_checks import checked, require_metadata
from kubeloop.meta import Resource
from kubeloop.meta.resource import source_of
from kubeloop.meta.type_checks import require_object

R = TypeVar("R", bound=Resource)


class Applying(Verbs):
    """Server-side apply, and the ownership of fields."""

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
        """Create or change an object so that it has the fields of ``obj``; afterwards ``field_manager`` owns exactly these fields.

        ``obj`` sets only the fields that the manager wants to own: fields with the default of their class are not sent. The server removes
        fields that the manager owned before and no longer sets, unless another manager owns them too.

        Args:
            obj: A new object, or one from ``get_owned``.
            field_manager: A constant name for the program. Empty: the client's own (``with_options``).
            force: Take over fields that others own.
            namespace: None: the object's own, else the client's.
            subresource: Name of the subresource to apply to, such as ``status``.
            options: Further options of the write.
            timeout: Seconds for the whole call. None: only each request is limited.

        Returns:
            The object as the server stored it.

        Raises:
            Conflict: Others own fields that ``obj`` sets differently; each cause names one. Not with ``force``.
            ValueError: There is no field manager or name; ``obj`` was read from the server or has managedFields; a field has another type.
        """
        require_object(obj)
        options = self._options(options)
        manager = field_manager or options.field_manager
        if not manager:
            raise ValueError("apply needs a field manager: field_manager=..., the same for all that your program applies")
        body = apply_body(obj)
        path = await self._path(type(obj), obj.metadata.name, namespace or obj.metadata.namespace, subresource)
        query = msgspec.structs.replace(options, field_manager=manager, force=force or options.force or None).query()
        response = await self.transport.request("PATCH", path, query=query, body=body, content_type=PATCH_TYPES["apply"])
        return await self._stored("patch", decode(type(obj), response.body), options)

    @limited
    async def get_owned(
        self,
        kind: type[R],
        name: str,
        *,
        field_manager: str = "",
        namespace: str | None = None,
        subresource: str = "",
        resource_version: str | None = None,
        timeout: float | None = None,
    ) -> R:
        """Read the fields of an object that ``field_manager`` owns by apply, to change and apply them again (see ``extract``).

        Args:
            kind: The class of the object.
            name: The object's name.
            field_manager: Empty: the client's own (``with_options``).
            namespace: None: the client's.
            subresource: The subresource that was applied; empty for the object itself.
            resource_version: As for ``get``.
            timeout: Seconds for the whole call. None: only the request is limited.

        Returns:
            An object with only these fields, and with name and namespace.

        Raises:
            NotFound: The object does not exist. ValueError: there is no field manager.
        """
        manager = field_manager or self._defaults.field_manager
        if not manager:
            raise ValueError("get_owned needs a field manager: field_manager=...")
        path = await self._path(kind, name, namespace)
        response = await self.transport.request("GET", path, query={"resourceVersion": resource_version})
        return extract(decode(kind, response.body), manager, subresource=subresource)

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
        """Move fields from updates to server-side apply. Call it once, before a program's first apply to objects that it updated before.

        The call repeats on conflict, as ``retry_on_conflict`` does.

        Args:
            kind: The class of the object.
            name: The object's name.
            updaters: Managers that own fields by update.
            field_manager: The manager that owns these fields by apply afterwards.
            namespace: None: the client's.
            options: Further options of the write.
            timeout: Seconds for the whole call. None: only each request is limited.

        Returns:
            The object as the server stored it.

        Raises:
            NotFound: The object does not exist. Conflict: others changed it at every attempt.
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
            response = await self.transport.request("PATCH", path, query=self._query(options), body=body, content_type=PATCH_TYPES["json"])
            return await self._stored("patch", decode(kind, response.body), options)

        return await retry_on_conflict(attempt, clock=self.clock)


def apply_body(obj: Resource) -> bytes:
    """Return the body of a request that applies ``obj``.

    Raises:
        ValueError: See ``Applying.apply``.
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
