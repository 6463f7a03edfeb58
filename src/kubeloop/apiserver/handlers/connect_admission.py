"""Admission of what is never stored as such: reviews, Bindings, Evictions, and connections seen as their options."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kubeloop.apiserver.admission.chain import Attributes, options_of
from kubeloop.apiserver.handlers.scope import RequestScope
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.types import JSONObject


async def _nothing() -> None:
    pass


async def ask_admission(
    scope: RequestScope,
    obj: JSONObject,
    *,
    kind: GroupVersionKind | None = None,
    name: str = "",
    dry_run: bool = False,
    between: Callable[[], Awaitable[None]] = _nothing,
) -> None:
    """Have plug-ins change and judge ``obj``, which is to be created, or (``kind`` ends in ``Options``) says how to connect.

    ``kind`` None: the resource's own. ``between`` is what the resource itself does after the changes and before the judgement.

    Raises:
        ApiError: whatever admission or ``between`` raises.
    """
    write, admission = scope.write(name=name, dry_run=dry_run), scope.services.writer.admission
    connects = kind is not None and kind.kind.endswith("Options")
    try:
        for step in (admission.mutate, admission.validate):
            if step == admission.validate:
                await between()
            operation, options = ("CONNECT", None) if connects else ("CREATE", options_of(write, "CREATE"))
            await step(Attributes(operation, write, obj, None, options, kind))
    finally:
        await write.finish()
