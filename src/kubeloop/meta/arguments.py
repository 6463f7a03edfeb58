"""What callers hand over by mistake where a kind or an object is meant: text, trees, classes, instances; named with the way out."""

from __future__ import annotations

from kubeloop.meta.resource import Resource
from kubeloop.meta.unstructured import Unstructured


def require_kind(given: object) -> None:
    """Refuse what is not a class of objects.

    Raises:
        TypeError: the text says what was given, and what to give.
    """
    if isinstance(given, type):
        if issubclass(given, Resource) and given is not Unstructured:
            return
        if given is Unstructured:
            text = f"Unstructured alone is no kind; say which: {_UNTYPED}"
        elif issubclass(given, type):
            text = "a class was given where an object is meant"
        else:
            text = f"{_article(given.__name__)} was given where a kind is meant: a class of kubeloop.api, your own, or {_UNTYPED}"
    elif isinstance(given, Resource):
        name = type(given).__name__
        text = f"{_article(name)} object was given where a kind is meant; give the class: {name}"
    elif isinstance(given, str):
        text = f'the text "{given}" was given where a kind is meant: a class of kubeloop.api, your own, or {_UNTYPED}'
    else:
        text = f"{_article(type(given).__name__)} was given where a kind is meant: a class of kubeloop.api, your own, or {_UNTYPED}"
    raise TypeError(text)


def require_object(given: object) -> None:
    """Refuse what is not an object of some kind.

    Raises:
        TypeError: the text says what was given, and what to give.
    """
    if isinstance(given, Resource):
        return
    if isinstance(given, dict):
        raise TypeError("a dict was given where an object is meant; make one of it: Unstructured.from_dict(tree), or KIND.from_dict(tree)")
    if isinstance(given, type):
        raise TypeError(f"the class {given.__name__} was given where an object is meant; make one: {given.__name__}(metadata=...)")
    raise TypeError(f"{_article(type(given).__name__)} was given where an object is meant")


_UNTYPED = 'Unstructured.of("v1", "Pod")'


def _article(name: str) -> str:
    return f"{'an' if name[:1] in 'AEIOUaeiou' else 'a'} {name}"
