"""YAML as kubectl reads and writes it: one or more documents, plain values resolved by its rules, times left as text.

Source: sigs.k8s.io/yaml over go.yaml.in/yaml/v2 resolve.go: YAML 1.1 booleans, no sexagesimal numbers, timestamps are strings.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import IO, Any, ClassVar

import msgspec
import yaml

from kubeloop.codec.yaml_limits import check_limits
from kubeloop.meta.errors import DecodeError, NestedTooDeeply
from kubeloop.meta.type_checks import described

_TAG = "tag:yaml.org,2002:"
_INTEGER = r"[-+]?(?:0[bB][01_]+|0[xX][0-9a-fA-F_]+|0[oO]?[0-7_]+|[1-9][0-9_]*|0)"
_FLOAT = r"[-+]?(?:\.[0-9_]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?"
_TRUE = frozenset(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"))
_FALSE = frozenset(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"))
_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_ALTERNATIVES = {
    "bool": ("|".join(sorted(_TRUE | _FALSE)), "yYnNtTfFoO"),
    "int": (_INTEGER, "-+0123456789"),
    "float": (_FLOAT, "-+0123456789."),
    "null": ("~|null|Null|NULL|", ["~", "n", "N", ""]),
    "merge": ("<<", "<"),
}

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BaseDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class Loader(_Base):  # type: ignore[misc]  # PyYAML's C classes have no stubs
    """Resolves plain values as kubectl and the API server do; it returns only text, numbers, booleans, null, lists and maps."""

    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {}


class _Dumper(_BaseDumper):  # type: ignore[misc]  # as above
    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {}

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True


for _name, (_pattern, _first) in _ALTERNATIVES.items():
    Loader.add_implicit_resolver(_TAG + _name, re.compile(f"^(?:{_pattern})$"), list(_first))
    _Dumper.add_implicit_resolver(_TAG + _name, re.compile(f"^(?:{_pattern})$"), list(_first))
# Text that other readers of YAML 1.1 would take for a time or a base-60 number is quoted, though it is read as text here.
_Dumper.add_implicit_resolver(_TAG + "timestamp", re.compile(r"^\d{4}-\d\d?-\d\d?.*$|^[-+]?\d+(?::\d+)+(?:\.\d*)?$"), list("-+0123456789"))


#: Characters of a 64-bit integer, with its base and some zeros; digits of the largest float.
_LONGEST_INTEGER, _LONGEST_FLOAT = 70, 309


def _bool(loader: Any, node: Any) -> bool:
    text = loader.construct_scalar(node)
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise yaml.constructor.ConstructorError(None, None, f"cannot decode !!str `{text}` as a !!bool", node.start_mark)


def _int(loader: Any, node: Any) -> int | float | str:
    """Return the value of an integer literal. One beyond 64 bits becomes a float, and one beyond the range of floats stays text.

    Source: gopkg.in/yaml.v2 resolve.go.
    """
    written = str(loader.construct_scalar(node))
    text = written.replace("_", "")
    sign, digits = (text[:1], text[1:].lower()) if text[:1] in "+-" else ("", text.lower())
    based = digits.startswith(("0x", "0b", "0o"))
    if len(digits) <= _LONGEST_INTEGER:
        value = int(digits, 0) if based else int(digits, 8 if digits.startswith("0") and len(digits) > 1 else 10)
        value = -value if sign == "-" else value
        if -(2**63) <= value < 2**64:
            return value
    number = math.inf if based or len(digits) > _LONGEST_FLOAT else float(digits)
    if math.isinf(number):
        return written
    return -number if sign == "-" else number


def _float(loader: Any, node: Any) -> float:
    return float(loader.construct_scalar(node).replace("_", ""))


def _text(loader: Any, node: Any) -> str:
    return str(loader.construct_scalar(node))


def _no_such_type(loader: Any, node: Any) -> Any:  # noqa: ARG001 - PyYAML's signature
    raise yaml.constructor.ConstructorError(None, None, f"a {node.tag} has no equivalent in JSON", node.start_mark)


def _mapping(loader: Any, node: Any) -> dict[str, Any]:
    loader.flatten_mapping(node)
    return {_key(loader, key): loader.construct_object(value, deep=True) for key, value in node.value}


def _key(loader: Any, node: Any) -> str:
    """Convert a key to text, as JSON requires; numbers and booleans are written as JSON writes them."""
    key = loader.construct_object(node, deep=True)
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, list | dict):
        raise yaml.constructor.ConstructorError(None, None, f"a key is {described(key)}; keys are text", node.start_mark)
    return msgspec.json.encode(key).decode()


Loader.add_constructor(_TAG + "bool", _bool)
Loader.add_constructor(_TAG + "int", _int)
Loader.add_constructor(_TAG + "float", _float)
Loader.add_constructor(_TAG + "timestamp", _text)
Loader.add_constructor(_TAG + "binary", _text)
Loader.add_constructor(_TAG + "merge", _text)
Loader.add_constructor(_TAG + "map", _mapping)
# Tags of YAML 1.1 without a counterpart in JSON.
for _name in ("set", "omap", "pairs"):
    Loader.add_constructor(_TAG + _name, _no_such_type)


def _represent_text(dumper: Any, text: str) -> Any:
    """Represent a text in the style of Go's library: a block for several lines, double quotes if it would be read as another type."""
    style = "|" if "\n" in text else '"' if _is_read_otherwise(text) else None
    return dumper.represent_scalar(_TAG + "str", text, style=style)


def _is_read_otherwise(text: str) -> bool:
    return any(pattern.match(text) for _, pattern in _Dumper.yaml_implicit_resolvers.get(text[:1], ()))


_Dumper.add_representer(str, _represent_text)


def read_yaml(text: str | bytes | IO[str] | IO[bytes], *, name: str = "") -> list[dict[str, Any]]:
    """Return all documents of a YAML (or JSON) text. Empty documents are left out, and a ``List`` is replaced by its items.

    ``name`` is the file name for messages.

    Raises:
        DecodeError: The text is not YAML, or a document is not an object; the message names file and line.
    """
    where = name or str(getattr(text, "name", "")) or "YAML"
    result: list[dict[str, Any]] = []
    try:
        text = text if isinstance(text, str | bytes) else text.read()
        scanner = Loader(text)
        try:
            check_limits(scanner)
        except DecodeError as error:
            raise DecodeError(f"{where}: {str(error).removeprefix('yaml: ')}") from None
        finally:
            scanner.dispose()
        for number, document in enumerate(yaml.load_all(text, Loader=Loader), 1):
            if document is None:
                continue
            if not isinstance(document, dict):
                raise DecodeError(f"{where}: document {number} is not an object but {_name_of(document)}")
            result.extend(_items(document))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" line {mark.line + 1}" if mark is not None else ""
        raise DecodeError(f"{where}{place}: {getattr(error, 'problem', None) or error}") from None
    except (RecursionError, UnicodeDecodeError, ValueError) as error:
        raise DecodeError(f"{where}: {error}") from None
    return result


def _items(document: dict[str, Any]) -> Iterable[dict[str, Any]]:
    if document.get("kind") == "List" and document.get("apiVersion") == "v1" and isinstance(document.get("items"), list):
        return [item for item in document["items"] if isinstance(item, dict)]
    return [document]


def _name_of(value: Any) -> str:
    return "a list" if isinstance(value, list) else "text" if isinstance(value, str) else f"a {type(value).__name__}"


def write_yaml(*objects: dict[str, Any], sort_keys: bool = False, width: int = 10**9) -> str:
    """Write one document for each tree, keys in the trees' order or sorted, lists not indented, as kubectl prints them.

    ``width`` is the line length beyond which texts are folded at spaces.

    Raises:
        NestedTooDeeply: A tree has more levels than PyYAML can walk (about 250).
    """
    try:
        return yaml.dump_all(objects, Dumper=_Dumper, sort_keys=sort_keys, default_flow_style=False, allow_unicode=True, width=width)
    except RecursionError:
        raise NestedTooDeeply("the object is nested too deeply to be written as YAML; write it as JSON") from None
