"""Scope: all properties that distinguish two informers, in one value; and the settings that all informers of a factory share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kubeloop.cache.blobs.retention import LEAN, Retention
from kubeloop.cache.deltas import DeltaQueue, InformerQueue, Known
from kubeloop.cache.tasks import Progress
from kubeloop.client import ListOptions
from kubeloop.client.selector_text import Fields, Labels, field_text, label_text
from kubeloop.meta import Resource, kind_info, names
from kubeloop.meta.type_checks import described
from kubeloop.timing import Clock

R = TypeVar("R", bound=Resource)


@dataclass(frozen=True, slots=True, kw_only=True)
class InformerScope(Generic[R]):
    """The objects of an informer, their stored form and their queue. Equal scopes share one informer: one list and watch, one copy.

    Two scopes are equal, and hash alike, when their informers would be interchangeable; functions are compared by identity.
    Empty ``namespaces`` means all; several are sorted and unique.
    """

    kind: type[R]
    namespaces: tuple[str, ...] = ()
    label_selector: str | None = None
    field_selector: str | None = None
    #: The parts of a document that the cache stores.
    keep: Retention = LEAN
    #: Makes the queue of deltas for a store.
    queue: Callable[[Known], InformerQueue] = field(default=DeltaQueue)

    @classmethod
    def for_kind(
        cls,
        kind: type[R],
        *,
        namespace: str | Iterable[str] | None = None,
        label_selector: Labels | None = None,
        field_selector: Fields | None = None,
        keep: Retention = LEAN,
        queue: Callable[[Known], InformerQueue] = DeltaQueue,
    ) -> InformerScope[R]:
        """Return the scope for the arguments of ``InformerFactory.for_kind``, in canonical form.

        Args:
            kind: Class of the objects.
            namespace: One namespace, several, or None for all.
            label_selector: Cache only matching objects.
            field_selector: Cache only matching objects.
            keep: The parts of objects to store.
            queue: Makes the queue of deltas.

        Raises:
            ValueError: a namespace for a cluster-scoped kind, an empty list of namespaces, an invalid name of a namespace, or a
                selector that cannot be read or selects nothing.
            TypeError: a namespace is not a string, or a selector has a wrong type. UnknownKind: the class names no kind.
        """
        info = kind_info(kind)
        if namespace is None:
            namespaces: tuple[str, ...] = ()
        else:
            namespaces = _names(namespace)
            if info.namespaced is False:
                given = ", ".join(map(repr, namespaces)) or "an empty list"
                raise ValueError(f"{info.gvk.kind} is cluster-scoped: it has no namespace, {given} was given")
            if not all(namespaces) or not namespaces:
                raise ValueError(
                    f"namespace={described(namespace)} names no namespace; leave it out for the client's, or write ALL_NAMESPACES for all"
                )
            for name in namespaces:
                if faults := names.dns1123_label(name):
                    raise ValueError(f"namespace={name!r} cannot be a namespace: {'; '.join(faults)}")
        selectors = {"label_selector": label_text(label_selector), "field_selector": field_text(field_selector)}
        return cls(kind=kind, namespaces=namespaces, keep=keep, queue=queue, **selectors)

    @property
    def list_options(self) -> ListOptions:
        """The options of each list and watch, with the selectors."""
        return ListOptions(label_selector=self.label_selector, field_selector=self.field_selector)

    @property
    def feeds(self) -> tuple[str | None, ...]:
        """The namespaces that are listed and watched separately; (None,) for one watch of all namespaces."""
        return self.namespaces or (None,)

    def describe(self, namespace: str | None = None) -> str:
        """Describe the objects in words, such as ``pods in namespace "shop"``: all of them, or those of one namespace."""
        info = kind_info(self.kind)
        plural = info.plural or f"{info.gvk.kind} objects"
        words = [f"{plural}.{info.gvk.group}" if info.gvk.group else plural]
        names = self.namespaces if namespace is None else (namespace,)
        if not names:
            words.append("in all namespaces")
        else:
            words.append(f"in namespace{'s' if len(names) > 1 else ''} " + ", ".join(f'"{name}"' for name in names))
        if self.keep.metadata_only:
            words[0] = f"metadata of {words[0]}"
        chosen = [
            f'{kind} "{selector}"' for kind, selector in (("labels", self.label_selector), ("fields", self.field_selector)) if selector
        ]
        if chosen:
            words += ["with", " and ".join(chosen)]
        if self.keep.fields:
            words.append(f"({', '.join(self.keep.fields)} only)")
        if self.keep.transform is not None:
            words.append(f"(through {getattr(self.keep.transform, '__qualname__', 'a transform')})")
        return " ".join(words)


def _names(value: object) -> tuple[str, ...]:
    names: list[object] = [value] if isinstance(value, str | Mapping) or not isinstance(value, Iterable) else list(value)
    texts = {name for name in names if isinstance(name, str)}
    if odd := [name for name in names if not isinstance(name, str)]:
        raise TypeError(f"namespace={described(value)}: {described(odd[0])} is not a name; give a name, or a list of names")
    return tuple(sorted(texts))


@dataclass(frozen=True, slots=True)
class InformerDefaults:
    """Settings and services that all informers of one factory share.

    Attributes:
        cluster: name of the cluster in keys, logs and metrics.
        clock: measures all times.
        progress: wakes tasks that wait for a sync.
        resync: seconds between resyncs of handlers that set no period; 0 is never.
    """

    cluster: str
    clock: Clock
    progress: Progress
    resync: float = 0.0
