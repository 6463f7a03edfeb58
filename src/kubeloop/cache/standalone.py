"""A standalone, thread-safe store for anything with a key: client-go's Store and Indexer, without a server or an informer.

It stores references to the added objects. (Informers have another store, ``store.py``, which stores bytes.)
"""

from __future__ import annotations

import builtins
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Generic, TypeAlias, TypeVar

from kubeloop.cache.store.index import IndexValues, Postings
from kubeloop.cache.store.store import UnknownIndex
from kubeloop.meta.errors import KubeloopError
from kubeloop.meta.kinds import ObjectKey
from kubeloop.meta.type_checks import described
from kubeloop.timing import Clock, SystemClock


def meta_namespace_key(obj: object) -> str:
    """Return ``namespace/name``, or ``name`` for a cluster-scoped object.

    ``obj`` is a typed object, an object as JSON, an event, a head, an ``ObjectKey``, or a key itself. (client-go's key functions must
    unwrap tombstones; here an event has the object and a flag ``tombstone``.)

    Raises:
        ValueError: the object has no name, or its name contains a slash.
    """
    if isinstance(obj, str):
        namespace, name = split_meta_namespace_key(obj)
    else:
        namespace, name = _names(obj)
    if not name or "/" in namespace or "/" in name:
        raise ValueError(f"a key needs a name without slashes, this has namespace {namespace!r} and name {name!r}")
    return f"{namespace}/{name}" if namespace else name


def split_meta_namespace_key(key: str) -> tuple[str, str]:
    """Split a key into namespace ("" if there is none) and name.

    Raises:
        ValueError: the key has more than one slash.
    """
    parsed = ObjectKey.parse(key)
    return parsed.namespace, parsed.name


def meta_namespace(obj: object) -> str:
    """Return the namespace of an object, as an index function; "" if it is cluster-scoped. Raises the errors of ``meta_namespace_key``."""
    return split_meta_namespace_key(meta_namespace_key(obj))[0]


def _names(obj: object) -> tuple[str, str]:
    if isinstance(obj, Mapping):
        holder = obj.get("metadata")
        if isinstance(holder, Mapping):
            return str(holder.get("namespace") or ""), str(holder.get("name") or "")
    else:
        for holder in (getattr(obj, "metadata", None), obj, getattr(obj, "key", None)):
            if isinstance(getattr(holder, "name", None), str):
                return str(getattr(holder, "namespace", "") or ""), str(getattr(holder, "name", ""))
    raise ValueError(f"{type(obj).__name__} is not an object: it has neither metadata nor a name")


T = TypeVar("T")

#: Index name -> function that returns an object's index values: none, one, or several.
Indexers: TypeAlias = Mapping[str, Callable[[T], IndexValues]]


class ObjectKeyError(KubeloopError):
    """The key function raised for an object. ``object`` is the object, ``cause`` the error."""

    def __init__(self, obj: object, cause: Exception) -> None:
        # The type only: an object may hold secrets, and errors are logged.
        super().__init__(f"no key for an object of type {type(obj).__name__}: {cause}")
        self.object = obj
        self.cause = cause


class IndexFunctionError(KubeloopError):
    """An index function raised, or returned an invalid value; nothing was changed.

    ``index`` is the name of the index, ``key`` the key of the object, and ``cause`` the error.
    """

    def __init__(self, index: str, key: str, cause: Exception) -> None:
        super().__init__(f'index "{index}" failed for {key}: {type(cause).__name__}: {cause}; nothing was changed')
        self.index = index
        self.key = key
        self.cause = cause


# Behaviours G91 to G94, G98.
class ObjectStore(Generic[T]):
    """Thread-safe store of objects by key, with indexes; client-go's Store and Indexer.

    Guarantees
        Any method may be called from any thread. Each query is atomic; returned lists belong to the caller.
        A change is made as a whole or, when the key function or an index function raises, not at all.
        An object is indexed under the values that it had when it was added, even if it was changed in place since.

    Not guaranteed
        Copies (queries return the added object itself), and order.

    Source: k8s.io/client-go tools/cache (Store, Indexer).

    Args:
        key_function: Returns the key of an object. Default: ``namespace/name``.
        indexers: Name of an index -> function that returns the index values of an object.
        push: Called with all objects after each change, in the order of the changes (client-go's UndeltaStore). None: not called.

    Raises:
        ObjectKeyError: from every method that takes an object.
        IndexFunctionError: from methods that add objects.
        UnknownIndex: a query names an index that does not exist.

    Example:
        >>> store = ObjectStore[Pod](indexers={"namespace": lambda pod: [pod.metadata.namespace]})
        >>> store.add(Pod(metadata=ObjectMeta(name="web-0", namespace="shop")))
        >>> store.index_keys("namespace", "shop")
        ['shop/web-0']
    """

    def __init__(
        self,
        key_function: Callable[[T], str] = meta_namespace_key,
        indexers: Indexers[T] | None = None,
        *,
        push: Callable[[builtins.list[T]], object] | None = None,
    ) -> None:
        self._key_function = key_function
        self._push = push
        self._lock = threading.RLock()
        self._objects: dict[str, T] = {}
        self._indexes: dict[str, _KeyIndex[T]] = {}
        #: The ``resource_version`` that the last ``replace`` got.
        self.resource_version = ""
        self.add_indexers(indexers or {})

    # ------------------------------------------------------------------------------------------------------------------ Store

    def add(self, obj: T) -> None:
        """Add an object, or replace the object with the same key."""
        with self._lock:
            self._prune()
            self._put(self._key(obj), obj)
            self._pushed()

    def update(self, obj: T) -> None:
        """Add an object, or replace the object with the same key, as ``add`` does."""
        self.add(obj)

    def delete(self, obj: T) -> None:
        """Remove the object with the key of ``obj``; do nothing if there is none."""
        with self._lock:
            self._prune()
            self._take(self._key(obj))
            self._pushed()

    def list(self) -> builtins.list[T]:
        with self._lock:
            self._prune()
            return [*self._objects.values()]

    def list_keys(self) -> builtins.list[str]:
        with self._lock:
            self._prune()
            return [*self._objects]

    def get(self, obj: T) -> T | None:
        """Return the stored object with the key of ``obj``; None if there is none."""
        return self.get_by_key(self._key(obj))

    def get_by_key(self, key: str) -> T | None:
        with self._lock:
            self._prune()
            return self._objects.get(key)

    def replace(self, objects: Iterable[T], resource_version: str = "") -> None:
        """Replace the content with these objects. If two have the same key, the later one is stored."""
        with self._lock:
            new = {self._key(obj): obj for obj in objects}
            # All values are computed first, so that an exception leaves the old content unchanged.
            indexes = {name: _KeyIndex(name, index.function) for name, index in self._indexes.items()}
            for key, obj in new.items():
                for index in indexes.values():
                    index.set(key, index.values(key, obj))
            self._objects = new
            self._indexes = indexes
            self.resource_version = resource_version
            self._replaced()
            self._pushed()

    def resync(self) -> None:
        """Do nothing, since this store has no handlers. It exists for callers that accept any Store, such as a queue."""

    def __len__(self) -> int:
        with self._lock:
            self._prune()
            return len(self._objects)

    # ---------------------------------------------------------------------------------------------------------------- Indexer

    def index(self, name: str, obj: T) -> builtins.list[T]:
        """Return the objects that share an index value with ``obj``, each once. ``obj`` need not be in the store."""
        with self._lock:
            self._prune()
            index = self._index(name)
            values = index.values("the object of the query", obj)
            keys = dict.fromkeys(chain.from_iterable(map(index.keys, values)))
            return [self._objects[key] for key in keys]

    def index_keys(self, name: str, value: str) -> builtins.list[str]:
        """Return the keys of the objects that have this value."""
        with self._lock:
            self._prune()
            return self._index(name).keys(value)

    def list_index_func_values(self, name: str) -> builtins.list[str]:
        """Return the values that at least one object has."""
        with self._lock:
            self._prune()
            return self._index(name).all_values()

    def by_index(self, name: str, value: str) -> builtins.list[T]:
        """Return the objects that have this value."""
        with self._lock:
            self._prune()
            return [self._objects[key] for key in self._index(name).keys(value)]

    def get_indexers(self) -> dict[str, Callable[[T], IndexValues]]:
        with self._lock:
            return {name: index.function for name, index in self._indexes.items()}

    def add_indexers(self, indexers: Indexers[T]) -> None:
        """Add indexes and fill them with the stored objects.

        Raises:
            ValueError: an index of one of these names exists; none is added.
        """
        with self._lock:
            taken = sorted(indexers.keys() & self._indexes.keys())
            if taken:
                names = ", ".join(f'"{name}"' for name in taken)
                raise ValueError(f"index {names} exists already; choose another name")
            new = {name: _KeyIndex(name, function) for name, function in indexers.items()}
            for index in new.values():
                for key, obj in self._objects.items():
                    index.set(key, index.values(key, obj))
            self._indexes = {**self._indexes, **new}

    # ------------------------------------------------------------------------------------------------------------- inner parts

    def _key(self, obj: T) -> str:
        try:
            return self._key_function(obj)
        except Exception as error:
            raise ObjectKeyError(obj, error) from error

    def _put(self, key: str, obj: T) -> None:
        values = [(index, index.values(key, obj)) for index in self._indexes.values()]
        self._objects[key] = obj
        for index, found in values:
            index.set(key, found)

    def _take(self, key: str) -> None:
        if key in self._objects:
            del self._objects[key]
            for index in self._indexes.values():
                index.set(key, ())

    def _index(self, name: str) -> _KeyIndex[T]:
        index = self._indexes.get(name)
        if index is None:
            known = ", ".join(sorted(self._indexes)) or "none"
            raise UnknownIndex(f'no index "{name}" (there are: {known}); give it to ObjectStore(..., indexers={{"{name}": function}})')
        return index

    def _pushed(self) -> None:
        if self._push is not None:
            self._push([*self._objects.values()])

    def _prune(self) -> None:
        """Remove expired objects; overridden by subclasses. Called before each read and change."""

    def _replaced(self) -> None:
        """Update additional state of a subclass after all objects were replaced."""


class _KeyIndex(Generic[T]):
    """Keys by value, and the values of each key, so that the function is called only once per object."""

    def __init__(self, name: str, function: Callable[[T], IndexValues]) -> None:
        self.name = name
        self.function = function
        self._postings: Postings[str] = Postings()
        self._known: dict[str, tuple[str, ...]] = {}

    def values(self, key: str, obj: T) -> tuple[str, ...]:
        try:
            answer = self.function(obj)
            values = () if answer is None else (answer,) if isinstance(answer, str) else tuple(dict.fromkeys(answer))
            if not all(isinstance(value, str) for value in values):
                raise TypeError(f"{described(answer)} holds a value that is not text")
        except Exception as error:
            raise IndexFunctionError(self.name, key, error) from error
        return values

    def set(self, key: str, values: tuple[str, ...]) -> None:
        before = self._known.pop(key, ())
        if values:
            self._known[key] = values
        if values == before:
            return
        for value in before:
            self._postings.discard(value, key)
        for value in values:
            self._postings.add(value, key)

    def keys(self, value: str) -> list[str]:
        return self._postings.items(value)

    def all_values(self) -> list[str]:
        return self._postings.values()


# Behaviour G96.
class ExpiringStore(ObjectStore[T]):
    """``ObjectStore`` whose objects expire ``ttl`` seconds after they were added.

    Guarantees
        No query, by key, list or index, returns an object that was added more than ``ttl`` seconds ago. Adding it again restarts its time.
        Expired objects are removed by the next query or change, oldest first, without cost for the others. No timer runs.

    Source: k8s.io/client-go tools/cache (ExpirationCache).

    Args:
        ttl: Lifetime in seconds. 0 or less: objects never expire.
        key_function: See ``ObjectStore``.
        indexers: See ``ObjectStore``.
        clock: Clock of the lifetimes. None: the system's monotonic clock.

    Example:
        >>> tokens = ExpiringStore[Secret](ttl=600)
        >>> tokens.add(Secret(metadata=ObjectMeta(name="token", namespace="ops")))
        >>> tokens.get_by_key("ops/token").metadata.name
        'token'
    """

    def __init__(
        self,
        ttl: float,
        key_function: Callable[[T], str] = meta_namespace_key,
        indexers: Indexers[T] | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._ttl = ttl
        self._clock = clock or SystemClock()
        #: When each key was added, oldest first.
        self._since: OrderedDict[str, float] = OrderedDict()
        super().__init__(key_function, indexers)

    def _put(self, key: str, obj: T) -> None:
        super()._put(key, obj)
        self._since[key] = self._clock.now()
        self._since.move_to_end(key)

    def _take(self, key: str) -> None:
        super()._take(key)
        self._since.pop(key, None)

    def _replaced(self) -> None:
        self._since = OrderedDict.fromkeys(self._objects, self._clock.now())

    def _prune(self) -> None:
        if self._ttl <= 0:
            return
        now = self._clock.now()
        while self._since:
            key, since = next(iter(self._since.items()))
            if now - since <= self._ttl:
                return
            self._take(key)
