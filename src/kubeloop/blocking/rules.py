"""The rules by which an asynchronous class becomes a blocking one, for the facades and for their stub."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import msgspec

#: Result types of methods that may be awaited, or else opened or iterated. The blocking method NAME waits for the result; NAME_stream
#: returns an object to open or to iterate over.
EITHER = frozenset({"ListCall", "LogCall", "ProxyCall"})
STREAM = "_stream"

#: Classes that callers construct; methods return the objects of other classes.
CONSTRUCTED = frozenset({"Client", "InformerFactory", "LocalCluster", "Transport"})

#: Classes whose plain methods may be called from any thread; a facade calls them in the caller's thread.
DIRECT = frozenset({"Lister", "LocalCluster"})

#: Names without a blocking version: they are for programs with an event loop, or internal.
WITHOUT: dict[str, frozenset[str]] = {
    "Informer": frozenset({"check", "feeds", "forsake", "close", "reader", "scope", "snapshot", "start", "wrote"}),
    "InformerFactory": frozenset({"dump_on_signal"}),
    "LocalCluster": frozenset({"closing"}),
    "Log": frozenset({"open"}),
    "PortForward": frozenset({"close", "create_connection", "listen"}),
    "Registration": frozenset({"check", "initial_end", "meter", "offer", "oldest", "replay", "resync", "run", "timer", "waiting_for"}),
    "StreamReader": frozenset({"exception", "feed_data", "feed_eof", "set_exception", "set_transport"}),
    "StreamWriter": frozenset({"get_extra_info", "start_tls", "transport"}),
    "Transport": frozenset({"figures", "places", "upgrade"}),
}

#: Parameters of these types accept functions that may block: they run in a separate thread, one event at a time.
HANDLER = "Handler"

_ASYNC_METHODS = ("__aenter__", "__aiter__", "__anext__", "__await__")
_known: dict[type, bool] = {}


def is_async(cls: type[Any]) -> bool:
    """Return whether objects of a class get a facade: the class is public and has a member to await."""
    found = _known.get(cls)
    if found is None:
        found = _known[cls] = _is_async(cls)
    return found


def _is_async(cls: type[Any]) -> bool:
    if cls in (asyncio.StreamReader, asyncio.StreamWriter):
        return True
    module = cls.__module__
    # Callers pass clocks and similar objects, which are written for the loop.
    if not module.startswith("kubeloop.") or module.startswith(("kubeloop.timing", "kubeloop.blocking")):
        return False
    if issubclass(cls, msgspec.Struct | BaseException) or getattr(cls, "_is_protocol", False):
        return False
    if any(hasattr(cls, name) for name in _ASYNC_METHODS):
        return True
    return any(
        inspect.iscoroutinefunction(raw) or inspect.isasyncgenfunction(raw)
        for name, raw in inspect.getmembers_static(cls)
        if not name.startswith("_")
    )


def returned_name(function: Any) -> str:
    """Return the bare name of a function's result type: ``ListCall`` for ``ListCall[R]``."""
    said = inspect.get_annotations(function).get("return", "")
    text = said if isinstance(said, str) else getattr(said, "__name__", "")
    return text.partition("[")[0].strip("\"'").rpartition(".")[2]


def public(cls: type[Any]) -> dict[str, Any]:
    """Return the members of a class that its facade has, by name (functions unbound, properties as such)."""
    without = WITHOUT.get(cls.__name__, frozenset())
    return {name: raw for name, raw in inspect.getmembers_static(cls) if not name.startswith("_") and name not in without}
