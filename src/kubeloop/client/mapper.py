"""REST mapping: which resource holds objects of a kind. Classes that know it are believed; the rest is asked from discovery.

Source: client-go restmapper (a kind that is not known is looked for once more in fresh discovery, so that a CRD made later is found).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kubeloop.client.mapping import ResourceMapping
from kubeloop.meta.errors import UnknownKind
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.meta.resource import Resource, kind_info
from kubeloop.transport import Transport

if TYPE_CHECKING:
    from kubeloop.client.discovery import ApiResource, Discovered


class Mapper:
    """Kinds and resources of one server. Discovery is asked when first needed, and again when a kind is not in it."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._known: dict[type[Resource], ResourceMapping] = {}
        self._discovered: Discovered | None = None
        self._asking = asyncio.Lock()

    async def mapping(self, cls: type[Resource]) -> ResourceMapping:
        """Where objects of ``cls`` live.

        Raises:
            UnknownKind: the class names no kind, or the server does not serve it.
            ApiError, TransportError: discovery was needed and failed.
        """
        known = self._known.get(cls)
        if known is None:
            info = kind_info(cls)
            if info.plural is not None and info.namespaced is not None:
                known = ResourceMapping(info.gvr, info.gvk, info.namespaced)
            else:
                found = await self.resource_of(info.gvk)
                known = ResourceMapping(found.gvr, found.gvk, found.namespaced)
            self._known[cls] = known
        return known

    async def resource_of(self, gvk: GroupVersionKind) -> ApiResource:
        """The resource of a kind.

        Raises:
            UnknownKind: not served, also after asking again.
        """
        before = self._discovered
        if before is not None and (found := _by_kind(before, gvk)) is not None:
            return found
        fresh = await self._refresh(before)
        found = _by_kind(fresh, gvk)
        if found is None:
            raise UnknownKind(self._unknown(gvk, fresh))
        return found

    async def find(self, name: str) -> ApiResource:
        """The resource that a person calls so: plural, singular, short name or kind, with ``.GROUP`` if need be; the core group first.

        Raises:
            UnknownKind: nothing is called so.
        """
        before = self._discovered
        if before is not None and (found := _by_name(before, name)) is not None:
            return found
        fresh = await self._refresh(before)
        found = _by_name(fresh, name)
        if found is None:
            names = {one.gvr.resource for one in fresh.resources}
            near = _similar(name.partition(".")[0].lower(), names)
            hint = f"; did you mean {', '.join(near)}?" if near else "; is its CustomResourceDefinition installed?"
            raise UnknownKind(f'{self._transport.config.server} serves no resource "{name}"{hint}')
        return found

    async def resources(self) -> tuple[ApiResource, ...]:
        """Everything that is served, from the cache if it was asked before."""
        return (self._discovered or await self._refresh(None)).resources

    def forget(self) -> None:
        """Ask the server anew next time."""
        self._discovered = None
        self._known.clear()

    async def _refresh(self, before: Discovered | None) -> Discovered:
        # Programs with typed kinds never come here, and start faster for it.
        from kubeloop.client.discovery import discover

        async with self._asking:
            # Whoever waited here takes what the first one got.
            if self._discovered is None or self._discovered is before:
                self._discovered = await discover(self._transport)
            return self._discovered

    def _unknown(self, gvk: GroupVersionKind, discovered: Discovered) -> str:
        text = f'{self._transport.config.server} serves no kind "{gvk.kind}" in {gvk.api_version}'
        elsewhere = sorted({one.gvk.api_version for one in discovered.resources if one.gvk.kind == gvk.kind})
        if elsewhere:
            return f"{text}; it serves {gvk.kind} in {', '.join(elsewhere)}: correct apiVersion"
        if gvk.group_version in discovered.failed:
            return f"{text}; the server behind {gvk.api_version} does not answer at the moment: see its APIService"
        near = _similar(gvk.kind, {one.gvk.kind for one in discovered.resources})
        if near:
            return f"{text}; did you mean {', '.join(near)}?"
        return f"{text}; install the CustomResourceDefinition that defines it, or correct apiVersion and kind"


def _similar(word: str, known: set[str]) -> list[str]:
    import difflib

    return difflib.get_close_matches(word, sorted(known), 3)


def _by_kind(discovered: Discovered, gvk: GroupVersionKind) -> ApiResource | None:
    # Several resources may answer with one kind; the one of the kind's own group version is meant.
    of_kind = [one for one in discovered.resources if one.gvk == gvk]
    return next((one for one in of_kind if one.gvr.group_version == gvk.group_version), of_kind[0] if of_kind else None)


def _by_name(discovered: Discovered, name: str) -> ApiResource | None:
    word, _, group = name.lower().partition(".")
    candidates = [
        one for one in discovered.resources if not group or one.gvr.group == group or f"{one.gvr.version}.{one.gvr.group}" == group
    ]
    for called in (_is_plural, _is_singular, _is_short):
        found = next((one for one in candidates if called(one, word)), None)
        if found is not None:
            return found
    return None


def _is_plural(one: ApiResource, word: str) -> bool:
    return one.gvr.resource == word


def _is_singular(one: ApiResource, word: str) -> bool:
    return word in (one.singular, one.gvk.kind.lower())


def _is_short(one: ApiResource, word: str) -> bool:
    return word in one.short_names
