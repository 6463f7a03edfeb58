"""A class's structural schema, and the validation of objects against it."""

from __future__ import annotations

import base64
import enum
import types
import typing
from functools import cache
from typing import Any, Final, Union

import msgspec
from msgspec import NODEFAULT

from kubeloop.declare import Default, Marker, Opaque, Required, constraints_of
from kubeloop.meta.errors import ApiError, ConfigError
from kubeloop.meta.field_error import FieldError
from kubeloop.meta.quantity import Quantity
from kubeloop.meta.resource import Resource
from kubeloop.meta.status import Status, StatusCause, StatusDetails
from kubeloop.schema.classes.docs import class_text, field_texts
from kubeloop.schema.classes.known import INT_OR_STRING, kubernetes_own, scalar
from kubeloop.schema.classes.markers import apply
from kubeloop.schema.custom_objects import apply_defaults
from kubeloop.schema.node import TypeSchema
from kubeloop.schema.structural import parse
from kubeloop.schema.validation import validate
from kubeloop.types import JSONObject

_OPAQUE: Final[JSONObject] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
#: The order of keys for human readers.
_ORDER: Final = {
    name: place
    for place, name in enumerate(
        ("description", "title", "type", "format", "nullable", "default", "enum", "minimum", "exclusiveMinimum", "maximum",
         "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern", "minItems", "maxItems", "minProperties", "maxProperties",
         "items", "additionalProperties", "required", "properties", "allOf", "anyOf", "oneOf", "not")
    )
}  # fmt: skip


def schema_of(cls: type[msgspec.Struct], *, descriptions: bool = True) -> JSONObject:
    """Return the ``openAPIV3Schema`` of a kind, or the schema of a struct, as a new tree; docstrings become descriptions.

    It is not checked whether the result is a valid structural schema (``kubeloop generate crd`` does).

    Raises:
        ConfigError: A type cannot be expressed in a schema; the message names class and field.
    """
    own = kubernetes_own(cls)
    return _Reader(descriptions).struct(cls, ()) if own is None else own


def ordered(node: JSONObject) -> JSONObject:
    """Return a shallow copy of a node with its keys in the order for human readers."""
    return dict(sorted(node.items(), key=lambda item: (_ORDER.get(item[0], len(_ORDER)), item[0])))


class _Reader:
    """Builds schemas from classes and type hints. ``within`` are the enclosing classes, by which a recursive class is detected."""

    def __init__(self, descriptions: bool) -> None:
        self._descriptions = descriptions

    def struct(self, cls: type[msgspec.Struct], within: tuple[type, ...]) -> JSONObject:
        if cls in within:
            where = " -> ".join(one.__name__ for one in (*within[within.index(cls) :], cls))
            raise ConfigError(
                f"{_name(cls)} contains itself ({where}), which no structural schema can say; declare one field of the circle Opaque()"
            )
        properties: dict[str, JSONObject] = {}
        required: list[str] = []
        if issubclass(cls, Resource):
            properties = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
        texts = field_texts(cls) if self._descriptions else {}
        hints = _hints(cls)
        for info in msgspec.structs.fields(cls):
            hint = hints[info.name]
            where = f"{_name(cls)}.{info.name}"
            if info.name == "metadata" and issubclass(cls, Resource):
                properties["metadata"] = self._metadata(hint, where)
                continue
            node, markers = self._field(hint, where, (*within, cls))
            bare = info.default is NODEFAULT and info.default_factory is NODEFAULT
            if bare or any(isinstance(marker, Required) for marker in markers):
                required.append(info.encode_name)
            if bare and _may_be_none(hint):
                node["nullable"] = True
            if "default" not in node and not any(isinstance(marker, Default) for marker in markers):
                default = _default(info.default, where)
                if default is not None:
                    node["default"] = default
            if info.name in texts:
                node["description"] = texts[info.name]
            properties[info.encode_name] = ordered(node)
        result: JSONObject = {"type": "object"}
        if required:
            result["required"] = required
        if properties:
            result["properties"] = properties
        if self._descriptions and (text := class_text(cls)):
            result["description"] = text
        for marker in constraints_of(cls):
            apply(marker, result, _name(cls))
        return ordered(result)

    def _metadata(self, hint: Any, location: str) -> JSONObject:
        node: JSONObject = {"type": "object"}
        for marker in _split(hint)[1]:
            apply(marker, node, location)
        return ordered(node)

    def _field(self, hint: Any, location: str, within: tuple[type, ...]) -> tuple[JSONObject, list[Any]]:
        """Return the node of a field and the markers outside of its type (they may concern the field: Required)."""
        inner, markers = _split(hint)
        node = self._opaque(inner) if any(isinstance(marker, Opaque) for marker in markers) else self._type(inner, location, within)
        for marker in markers:
            apply(marker, node, location)
        return node, markers

    def _opaque(self, hint: Any) -> JSONObject:
        if typing.get_origin(hint) is list:
            return {"type": "array", "items": dict(_OPAQUE)}
        return dict(_OPAQUE)

    def node(self, hint: Any, location: str, within: tuple[type, ...]) -> JSONObject:
        """Return the node of an element of a list or map; it is nullable if the type includes None."""
        node = self._field(hint, location, within)[0]
        if _may_be_none(hint):
            node["nullable"] = True
        return ordered(node)

    def _type(self, hint: Any, location: str, within: tuple[type, ...]) -> JSONObject:
        found = scalar(hint)
        if found is not None:
            return found
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin in (Union, types.UnionType):
            if set(arguments) == {int, str}:
                return {**INT_OR_STRING, "anyOf": [dict(one) for one in INT_OR_STRING["anyOf"]]}
            raise ConfigError(f"{location}: no structural schema can express {hint}; use IntOrString, or Any with a matching Schema(...)")
        if origin is typing.Literal:
            return _choice(list(arguments), location)
        if origin is list:
            return {"type": "array", "items": self.node(arguments[0], f"{location}[]", within)}
        if origin is dict:
            if arguments[0] is not str:
                raise ConfigError(f"{location}: keys of a JSON object are strings, not {arguments[0].__name__}; declare it dict[str, ...]")
            if arguments[1] is Any:
                return dict(_OPAQUE)
            return {"type": "object", "additionalProperties": self.node(arguments[1], f"{location}{{}}", within)}
        if isinstance(hint, type):
            return self._class(hint, location, within)
        raise ConfigError(f"{location}: no schema is known for {hint!r}")

    def _class(self, cls: type, location: str, within: tuple[type, ...]) -> JSONObject:
        if issubclass(cls, enum.Enum):
            return _choice([member.value for member in cls], location)
        own = kubernetes_own(cls)
        if own is not None:
            return own
        if issubclass(cls, Resource):
            # apiVersion and kind belong to the class, and are written only at the root of a document.
            raise ConfigError(
                f"{location}: an object inside of another is a dict or a Model, not a {cls.__name__}; declare Annotated[dict[str, Any], "
                "Embedded()], or a Model with the fields api_version, kind and metadata and the marker Embedded()"
            )
        if issubclass(cls, msgspec.Struct):
            return self.struct(cls, within)
        raise ConfigError(f"{location}: no schema is known for {cls.__name__}; use a Model, a list, a dict[str, ...] or a plain type")


def _hints(cls: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except NameError as error:
        raise ConfigError(f"{_name(cls)}: {error}; models must be defined in a module, not in a function") from None


def _split(hint: Any) -> tuple[Any, list[Any]]:
    """Return the type without None, and the metadata of ``Annotated``, inside and outside of ``| None``."""
    markers: list[Any] = []
    while True:
        if typing.get_origin(hint) is typing.Annotated:
            markers = [*hint.__metadata__, *markers]
            hint = hint.__origin__
            continue
        members = typing.get_args(hint) if typing.get_origin(hint) in (Union, types.UnionType) else ()
        if type(None) not in members:
            return hint, [one for one in markers if isinstance(one, Marker | msgspec.Meta)]
        rest = [one for one in members if one is not type(None)]
        hint = rest[0] if len(rest) == 1 else Union[tuple(rest)]  # noqa: UP007 - made at run time


def _may_be_none(hint: Any) -> bool:
    if typing.get_origin(hint) is typing.Annotated:
        return _may_be_none(hint.__origin__)
    return typing.get_origin(hint) in (Union, types.UnionType) and type(None) in typing.get_args(hint)


def _default(value: Any, location: str) -> Any:
    """Return the default of a field for its schema, or None for an empty default, which means the same as a missing value.

    Raises:
        ConfigError: A schema cannot express a default of this type.
    """
    if value is NODEFAULT or value is None or isinstance(value, msgspec.Struct):
        return None
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Quantity):
        return str(value) if value else None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode() or None
    if isinstance(value, str | bool | int | float):
        return value or None
    if isinstance(value, msgspec.Raw):
        return msgspec.json.decode(value) or None
    raise ConfigError(
        f"{location}: a default of type {type(value).__name__} cannot be expressed here; use Annotated[..., Default(...)] and None"
    )


def _choice(values: list[Any], location: str) -> JSONObject:
    kinds = {bool: "boolean", int: "integer", str: "string"}
    result = {kinds.get(type(value), "") for value in values}
    if len(result) != 1 or "" in result:
        raise ConfigError(f"{location}: the choices {values!r} are not all strings or all whole numbers; use Any with Enum([...])")
    return {"type": result.pop(), "enum": values}


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def check(obj: Resource) -> list[FieldError]:
    """Return an error for every value that the class's schema refuses: types, bounds, patterns, choices, missing fields.

    It does not check CEL rules, names and metadata, or admission rules. Values that were read and not changed are checked too.

    Raises:
        ConfigError: The class declares something that no schema can express.
    """
    schema = _schema(type(obj))
    tree = _tree(obj)
    apply_defaults(tree, schema)
    return validate(tree, schema)


def require_valid(obj: Resource) -> None:
    """Raise the error with which the server would refuse the object, if ``check`` finds one.

    Raises:
        Invalid: The object breaks its schema; it has a cause for each wrong field.
        ConfigError: See ``check``.
    """
    faults = check(obj)
    if not faults:
        return
    kind = f"{obj.kind}.{obj.api_version.rpartition('/')[0]}".rstrip(".")
    texts = [str(fault) for fault in faults]
    said = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    name = obj.metadata.name
    raise ApiError.from_status(
        Status(
            status="Failure",
            reason="Invalid",
            code=422,
            message=f'{kind} "{name}" is invalid: {said}',
            details=StatusDetails(
                name=name,
                group=obj.api_version.rpartition("/")[0],
                kind=obj.kind,
                causes=[StatusCause(reason=fault.type.value, message=fault.body, field=fault.field) for fault in faults],
            ),
        ),
        "checked before it was sent",
    )


@cache
def _schema(cls: type[Resource]) -> TypeSchema:
    return parse(schema_of(cls, descriptions=False))


def _tree(obj: Resource) -> dict[str, Any]:
    tree: dict[str, Any] = msgspec.to_builtins(obj, enc_hook=_plain)
    return {"apiVersion": obj.api_version, "kind": obj.kind, **tree}


def _plain(value: Any) -> Any:
    if isinstance(value, Quantity):
        return str(value)
    if isinstance(value, msgspec.Raw):
        return msgspec.json.decode(value)
    raise TypeError(f"a field holds a {type(value).__name__}, which JSON cannot say")
