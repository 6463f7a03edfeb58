"""Decodes objects: one strict pass in C, and a lenient pass only when that fails. The object remembers the document it came from."""

from __future__ import annotations

import functools
import threading
from typing import Any, TypeVar

import msgspec

from kubeloop.codec.gc_pause import gc_paused
from kubeloop.codec.lenient import build, explain_error, normalise
from kubeloop.meta.errors import DecodeError, NestedTooDeeply
from kubeloop.meta.model import DocumentSource
from kubeloop.meta.object_meta import ListMeta
from kubeloop.meta.quantity import Quantity
from kubeloop.meta.resource import Resource, set_source
from kubeloop.meta.unstructured import BookmarkObject, Unstructured

R = TypeVar("R", bound=Resource)
M = TypeVar("M", bound=msgspec.Struct)
T = TypeVar("T")

Buffer = bytes | bytearray | memoryview

_FIRST_BYTES = 200


class _Head(msgspec.Struct):
    api_version: str | None = msgspec.field(default=None, name="apiVersion")
    kind: str | None = None


class _Name(msgspec.Struct):
    name: str | None = None
    namespace: str | None = None


class _Named(msgspec.Struct):
    metadata: _Name | None = None


class _Page(msgspec.Struct):
    items: list[msgspec.Raw] | msgspec.UnsetType | None = msgspec.UNSET
    api_version: str | None = msgspec.field(default=None, name="apiVersion")
    kind: str | None = None
    metadata: msgspec.Raw = msgspec.Raw(b"{}")


_HEAD = msgspec.json.Decoder(_Head)
_NAMED = msgspec.json.Decoder(_Named)
_PAGE = msgspec.json.Decoder(_Page)
_TREE = msgspec.json.Decoder(dict[str, Any])


def decode(cls: type[R], data: Buffer, *, checked: bool = False, partial: str = "") -> R:
    """Decode an object of a known kind from JSON.

    Null or missing where a list, a map or a required struct is expected gives the empty value; an optional struct stays None.

    Args:
        cls: The class of the object.
        data: The JSON document.
        checked: True if the caller has checked the kind already (an item of a list, a cached object).
        partial: Text for people that says why parts of the object are missing. Such an object cannot be encoded for an update.
            Empty: the object is complete.

    Raises:
        DecodeError: The document is not JSON, has another kind, or a field of another type; the message names the object and the field.
    """
    document = data if type(data) is bytes else bytes(data)
    if not checked and cls.kind:
        _check_kind(cls, document)
    if issubclass(cls, Unstructured):
        obj: R = cls.from_dict(_read(_TREE, document, cls.kind))
    else:
        obj = decode_struct(cls, document, cls.kind or cls.__name__)
    set_source(obj, DocumentSource(cls, document, partial))
    return obj


def decode_struct(cls: type[M], document: bytes, description: str) -> M:
    """Decode a struct leniently, without remembering the document.

    Raises:
        DecodeError: See ``decode``; ``description`` names the object in its text.
    """
    decoder = decoder_of(cls)
    try:
        return decoder.decode(document)
    except (msgspec.ValidationError, TypeError):  # TypeError: the default of a missing field cannot be made
        pass
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(_no_json(description, document, error)) from None
    except RecursionError:
        raise NestedTooDeeply(f"{description}: the document is nested too deeply for Python to read it") from None
    tree = None
    try:
        tree = normalise(cls, msgspec.json.decode(document))
        try:
            return decoder.decode(msgspec.json.encode(tree))
        except msgspec.ValidationError as error:
            return _forgiving(cls, tree, error)
    except RecursionError:
        raise NestedTooDeeply(f"{description}: the document is nested too deeply for Python to read it") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"{_describe(description, document)}: {explain_error(error, decoder, tree)}") from None


def _forgiving(cls: type[M], tree: Any, error: msgspec.ValidationError) -> M:
    """Decode a document that breaks declared choices and bounds; a value of another type is still an error."""
    try:
        return build(cls, tree, dec_hook)
    except TypeError:
        raise error from None


def decode_list(cls: type[R], data: Buffer) -> tuple[list[R], ListMeta]:
    """Decode a list. Each item keeps its own bytes, not those of the whole page.

    Raises:
        DecodeError: See ``decode``; also if the document is not a list, because no items would be a wrong result.
    """
    document = data if type(data) is bytes else bytes(data)
    what = f"{cls.kind or 'Partial'}List"
    page = _read(_PAGE, document, what)
    # A custom kind may choose the name of its list kind. Tables hold rows.
    if page.kind and not page.kind.endswith("List") and (page.items is msgspec.UNSET or page.kind == "Table"):
        raise DecodeError(f"expected a {what}, got {page.api_version}, Kind={page.kind}")
    read = _read_later if cls.kind and issubclass(cls, Unstructured) else functools.partial(decode, checked=True)
    with gc_paused():
        items: list[R] = [read(cls, bytes(raw)) for raw in page.items or ()]
    return items, decode_struct(ListMeta, bytes(page.metadata), what)


def _read_later(cls: type[R], document: bytes) -> R:
    """Return an object that is decoded at the first access to one of its fields."""
    assert issubclass(cls, Unstructured)
    obj = cls.from_text(document)
    set_source(obj, DocumentSource(cls, document))
    return obj


def decode_bookmark(data: Buffer) -> BookmarkObject:
    """Decode a bookmark as metadata only: the other fields are empty, with nulls where the kind requires values.

    Raises:
        DecodeError: The document is not JSON, or its metadata has fields of wrong types.
    """
    return decode_struct(BookmarkObject, bytes(data), "bookmark")


_decoders: dict[type[Any], msgspec.json.Decoder[Any]] = {}
#: msgspec stores what it knows of a struct on its class before it is complete. A second thread that made a decoder meanwhile would read
#: pointers that are not set yet, and the process would end with a segmentation fault (msgspec 0.22, StructInfo_Convert).
_making = threading.RLock()


def decoder_of(cls: type[M]) -> msgspec.json.Decoder[M]:
    """Return the strict decoder of a class; it is made once, and never by two threads at the same time.

    Raises:
        TypeError: The class names a type that its module does not define.
    """
    decoder = _decoders.get(cls)
    if decoder is None:
        with _making:
            decoder = _decoders.get(cls)
            if decoder is None:
                decoder = _decoders[cls] = _new_decoder(cls)
    return decoder


def _new_decoder(cls: type[Any]) -> msgspec.json.Decoder[Any]:
    try:
        return msgspec.json.Decoder(cls, dec_hook=dec_hook)
    except NameError as error:
        raise TypeError(f"{cls.__name__}: {error}; models must be defined in a module, not in a function") from None


def dec_hook(cls: type, value: Any) -> Any:
    """Decode a type that JSON does not have (a ``Quantity``); the ``dec_hook`` of msgspec's decoders.

    Raises:
        TypeError: The class is not ``Quantity``, or the value is neither text nor a number.
    """
    if cls is Quantity and isinstance(value, str | int | float) and not isinstance(value, bool):
        return Quantity(value if isinstance(value, str) else repr(value))
    raise TypeError(f"Expected `{cls.__name__}`, got `{type(value).__name__}`")


def _check_kind(cls: type[Resource], document: bytes) -> None:
    # Servers write kind and apiVersion first: usually this prefix check is enough.
    first = document[:_FIRST_BYTES]
    if b'"kind":"%b"' % cls.kind.encode() in first and b'"apiVersion":"%b"' % cls.api_version.encode() in first:
        return
    head = _read(_HEAD, document, cls.kind)
    if (head.kind or cls.kind, head.api_version or cls.api_version) != (cls.kind, cls.api_version):
        raise DecodeError(f"expected {cls.api_version}, Kind={cls.kind}, got {head.api_version}, Kind={head.kind}")


def _read(decoder: msgspec.json.Decoder[T], document: bytes, description: str) -> T:
    try:
        return decoder.decode(document)
    except msgspec.ValidationError as error:
        raise DecodeError(f"{_describe(description, document)}: {explain_error(error)}") from None
    except RecursionError:
        raise NestedTooDeeply(f"{description}: the document is nested too deeply for Python to read it") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(_no_json(description, document, error)) from None


def _no_json(description: str, document: bytes, error: Exception) -> str:
    """Describe a document that is not JSON, often a proxy's error page. If it begins like JSON it is not quoted: it may be a Secret."""
    text = f"{description}: the body is not JSON: {error}"
    begin = document[:200].lstrip()
    if not begin:
        return f"{description}: the body is empty where JSON was expected"
    if begin[:1] in b'{["':
        return text
    shown = "".join(one if one.isprintable() else " " for one in begin[:60].decode("utf-8", "replace"))
    return f'{text}; it begins with "{shown}": does a proxy or a login page answer in the server\'s place?'


def _describe(description: str, document: bytes) -> str:
    try:
        named = _NAMED.decode(document).metadata
    except (msgspec.DecodeError, UnicodeDecodeError):
        return description
    if named is None or not named.name:
        return description
    return f'{description} "{named.namespace}/{named.name}"' if named.namespace else f'{description} "{named.name}"'
