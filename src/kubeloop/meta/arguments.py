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


def described(given: object) -> str:
    """Names an argument for an error or a log line, without its contents: they may be secret.

    Numbers, None and short words are shown as they are; of objects and trees the kind and the name, of everything else the type and size.

    Example:
        >>> described({"kind": "Secret", "metadata": {"namespace": "shop", "name": "login"}, "data": {"password": "..."}})
        'a dict (Secret shop/login)'
    """
    match given:
        case None | bool() | int() | float():
            return repr(given)
        case str():
            return repr(given) if len(given) <= _WORD and given.isprintable() else f"a text of {len(given)} characters"
        case bytes() | bytearray() | memoryview():
            return f"{type(given).__name__} of length {len(given)}"
        case type():
            return f"the class {given.__name__}"
        case Resource():
            return f"the {given.kind or type(given).__name__} {_place(given.metadata.namespace, given.metadata.name)}"
        case dict() if not given:
            return "{}"
        case dict():
            metadata = given.get("metadata")
            known = metadata if isinstance(metadata, dict) else {}
            kind, name, namespace = (
                one if isinstance(one, str) else "" for one in (given.get("kind"), known.get("name"), known.get("namespace"))
            )
            return f"a dict ({kind or 'object'} {_place(namespace, name)})" if kind or name else f"a dict of {len(given)} keys"
        case list() | tuple() | set() | frozenset():
            plain = all(one is None or isinstance(one, int | float) or (isinstance(one, str) and len(one) <= _WORD) for one in given)
            return repr(given) if plain and len(given) <= _ITEMS else f"{_article(type(given).__name__)} of {len(given)} items"
        case _:
            return f"{_article(type(given).__name__)}"


def _place(namespace: str, name: str) -> str:
    return f"{namespace}/{name or 'unnamed'}" if namespace else name or "unnamed"


#: Characters of a text that is shown whole, items of a list.
_WORD, _ITEMS = 60, 5
_UNTYPED = 'Unstructured.of("v1", "Pod")'


def _article(name: str) -> str:
    return f"{'an' if name[:1] in 'AEIOUaeiou' else 'a'} {name}"
