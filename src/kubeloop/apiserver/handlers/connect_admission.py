"""Admission of objects that are never stored: reviews, Bindings, Evictions, and the options of connections."""

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
    """Run admission on an object.

    Args:
        scope: The request.
        obj: The object to create, or the options of a connection.
        kind: Kind of ``obj``; None: that of the resource. A kind that ends in ``Options`` is a connection.
        name: Name of the object; empty: the one in the path.
        dry_run: Nothing is stored.
        between: The resource's own work between mutating and validating admission.

    Raises:
        ApiError: Admission or ``between`` rejects the request.
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
