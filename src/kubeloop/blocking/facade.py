"""Facades: blocking versions of the asynchronous classes, created from them method by method at their first use."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterator
from types import GenericAlias, TracebackType
from typing import Any, ClassVar, Self

from kubeloop.blocking.call import RunningCall
from kubeloop.blocking.contexts import EnteredContext
from kubeloop.blocking.iterators import BlockingIterator
from kubeloop.blocking.loop import LoopThread, shared_loop
from kubeloop.blocking.rules import DIRECT, EITHER, STREAM, WITHOUT, public, returned_name
from kubeloop.blocking.wrappers import Parameters, wrap

_OWN = frozenset({"_wrapped", "_loop", "_keep", "_held"})


class Facade:
    """An object of the asynchronous interface with blocking methods.

    Two facades are equal, and have the same hash, if they wrap the same object. Attributes are read and written through.
    """

    __slots__ = ("__weakref__", "_held", "_keep", "_loop", "_wrapped")
    _behind: ClassVar[type[Any]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        loop = shared_loop()
        made = loop.call(lambda call: _make(self._behind, self._behind.__init__, call, args, kwargs))
        # Facades among the arguments stay open as long as this object is in use.
        self._set(made, loop, [one for one in (*args, *kwargs.values()) if isinstance(one, Facade)])
        self._close_when_forgotten()

    @classmethod
    def _adopt(cls, wrapped: Any, loop: LoopThread, keep: object) -> Self:
        found = cls.__new__(cls)
        found._set(wrapped, loop, keep)
        return found

    def _set(self, wrapped: Any, loop: LoopThread, keep: object) -> None:
        for name, value in (("_wrapped", wrapped), ("_loop", loop), ("_keep", keep), ("_held", [])):
            object.__setattr__(self, name, value)

    def _close_when_forgotten(self) -> None:
        close = getattr(self._wrapped, "close", None)
        if inspect.iscoroutinefunction(close):
            self._loop.close_with(self, close)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in WITHOUT.get(type(self).__name__, ()):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return wrap(getattr(self._wrapped, name), self._loop, self)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN:
            object.__setattr__(self, name, value)
        elif name.startswith("_") or not hasattr(self._wrapped, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        else:
            setattr(self._wrapped, name, value)

    def __dir__(self) -> list[str]:
        own = (name for name in getattr(self._wrapped, "__dict__", {}) if not name.startswith("_"))
        return sorted({*object.__dir__(self), *own} - WITHOUT.get(type(self).__name__, frozenset()) - _OWN)

    def __eq__(self, other: object) -> bool:
        return self._wrapped is other._wrapped if isinstance(other, Facade) else NotImplemented

    def __hash__(self) -> int:
        return hash(id(self._wrapped))

    def __repr__(self) -> str:
        shown = repr(self._wrapped).removeprefix("<").removesuffix(">")
        own = any("__repr__" in vars(base) for base in type(self._wrapped).__mro__[:-1])
        return f"<blocking {shown if own else type(self).__name__}>"

    def __reduce_ex__(self, protocol: object) -> Any:
        raise TypeError(f"a {type(self).__name__} holds connections and cannot be copied or pickled; make a new one where it is needed")


_facades: dict[type[Any], type[Facade]] = {}


def facade_of(cls: type[Any]) -> type[Facade]:
    """Return the facade class of an asynchronous class; it is created once."""
    found = _facades.get(cls)
    if found is None:
        found = _facades.setdefault(cls, _build(cls))
    return found


def _build(cls: type[Any]) -> type[Facade]:
    body: dict[str, Any] = {
        "__doc__": cls.__doc__,
        "__module__": "kubeloop.blocking",
        "__slots__": (),
        "_behind": cls,
        "__class_getitem__": classmethod(GenericAlias),
    }
    for name, raw in public(cls).items():
        if isinstance(raw, property):
            body[name] = _property(name, raw)
        elif isinstance(raw, classmethod):
            body[name] = classmethod(_maker(name, raw.__func__))
        elif isinstance(raw, staticmethod):
            body[name] = raw
        elif inspect.isfunction(raw):
            body |= _methods(name, raw, direct=cls.__name__ in DIRECT)
    body |= _special(cls)
    if "__init__" in vars(cls):
        body["__init__"] = functools.wraps(cls.__init__)(lambda self, *args, **kwargs: Facade.__init__(self, *args, **kwargs))
    return type(cls.__name__, (Facade,), body)


def blocking_function(function: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    """Convert a coroutine function to a blocking function."""
    parameters = Parameters(function)

    @functools.wraps(function)
    def wait(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        loop = shared_loop()
        return wrap(loop.call(lambda call: _begun(function, parameters, call, args, kwargs)), loop)

    return wait


def _begun(
    function: Callable[..., Coroutine[Any, Any, Any]],
    parameters: Parameters,
    call: RunningCall[Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Coroutine[Any, Any, Any]:
    given, named = parameters.adapt(call, args, kwargs)
    return function(*given, **named)


async def _make(
    maker: Callable[..., Any], function: Callable[..., Any], call: RunningCall[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call a constructor in the loop's thread."""
    given, named = Parameters(function).adapt(call, args, kwargs)
    return maker(*given, **named)


def _maker(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the blocking version of a class method that creates an object, such as ``Client.from_config``."""

    @functools.wraps(function)
    def make(cls: type[Facade], *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        loop = shared_loop()
        made = wrap(loop.call(lambda call: _make(getattr(cls._behind, name), function, call, args, kwargs)), loop)
        if isinstance(made, Facade):
            made._close_when_forgotten()
        return made

    return make


def _property(name: str, raw: property) -> property:
    def read(self: Facade) -> Any:
        return wrap(getattr(self._wrapped, name), self._loop, self)

    def write(self: Facade, value: Any) -> None:
        setattr(self._wrapped, name, value)

    return property(read, write if raw.fset is not None else None, doc=raw.__doc__)


def _methods(name: str, function: Callable[..., Any], *, direct: bool) -> dict[str, Callable[..., Any]]:
    """Return the blocking versions of a method by name: one, or two if the result may be awaited or else iterated (``rules.EITHER``)."""
    parameters = Parameters(function)
    if inspect.iscoroutinefunction(function):
        return {name: _waiting(name, function, parameters)}
    if inspect.isasyncgenfunction(function) or direct:
        return {name: _plain(name, function, parameters)}
    if returned_name(function) in EITHER:
        return {name: _whole(name, function, parameters), name + STREAM: _in_loop(name, function, parameters)}
    return {name: _in_loop(name, function, parameters)}


def _waiting(name: str, function: Callable[..., Any], parameters: Parameters) -> Callable[..., Any]:
    """Return a method that runs the coroutine method ``name`` and waits for its result."""

    @functools.wraps(function)
    def method(self: Facade, /, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        result = self._loop.call(lambda call: _begun(getattr(self._wrapped, name), parameters, call, args, kwargs))
        return wrap(result, self._loop, self)

    return method


def _plain(name: str, function: Callable[..., Any], parameters: Parameters) -> Callable[..., Any]:
    """Return a method that calls the method ``name`` in the caller's thread."""

    @functools.wraps(function)
    def method(self: Facade, /, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        given, named = parameters.adapt(None, args, kwargs)
        return wrap(getattr(self._wrapped, name)(*given, **named), self._loop, self)

    return method


def _in_loop(name: str, function: Callable[..., Any], parameters: Parameters) -> Callable[..., Any]:
    """Return a method that calls the method ``name`` in the thread of the loop."""

    @functools.wraps(function)
    def method(self: Facade, /, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True

        async def run(_: RunningCall[Any]) -> Any:
            given, named = parameters.adapt(None, args, kwargs)
            return getattr(self._wrapped, name)(*given, **named)

        return wrap(self._loop.call(run), self._loop, self)

    return method


def _whole(name: str, function: Callable[..., Any], parameters: Parameters) -> Callable[..., Any]:
    """Return a method that calls the method ``name`` and waits for its awaitable result, such as a ``ListCall``."""

    @functools.wraps(function)
    def method(self: Facade, /, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True

        async def run(_: RunningCall[Any]) -> Any:
            given, named = parameters.adapt(None, args, kwargs)
            return await getattr(self._wrapped, name)(*given, **named)

        return wrap(self._loop.call(run), self._loop, self)

    return method


def _special(cls: type[Any]) -> dict[str, Any]:
    """Return the special methods of a facade: for ``with``, iteration, ``len()``, ``in`` and indexing."""
    body: dict[str, Any] = {}
    if hasattr(cls, "__aenter__"):
        body |= {"__enter__": _enter, "__exit__": _exit}
    if hasattr(cls, "__aiter__"):
        body["__iter__"] = _iterate_async
    elif hasattr(cls, "__iter__"):
        body["__iter__"] = _iterate
    if hasattr(cls, "__anext__"):
        body["__next__"] = _next
    for name in ("__len__", "__contains__", "__getitem__"):
        if hasattr(cls, name):
            body[name] = _plain(name, getattr(cls, name), Parameters(getattr(cls, name)))
    return body


def _enter(self: Facade) -> Any:
    __tracebackhide__ = True
    self._loop.check()
    held: EnteredContext[Any] = EnteredContext(self._loop, self._wrapped)
    try:
        entered = held.enter()
        found = self if entered is self._wrapped else wrap(entered, self._loop, self)
        self._held.append(held)
    except BaseException:
        held.abandon()
        raise
    return found


def _exit(self: Facade, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
    __tracebackhide__ = True
    if not self._held:
        raise RuntimeError(f"this {type(self).__name__} was never entered")
    return bool(self._held.pop().leave(kind, error, trace))


def _iterate_async(self: Facade) -> Iterator[Any]:
    __tracebackhide__ = True

    async def begin(_: RunningCall[Any]) -> Any:
        return aiter(self._wrapped)

    return BlockingIterator(self._loop, self._loop.call(begin), self)


def _iterate(self: Facade) -> Iterator[Any]:
    return (wrap(one, self._loop, self) for one in self._wrapped)


def _next(self: Facade) -> Any:
    __tracebackhide__ = True
    return next(_iterate_async(self))
