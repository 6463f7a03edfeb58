"""YAML bodies, parsed as Kubernetes does: only the first document, YAML 1.1 booleans, dates as text, keys as strings."""

from __future__ import annotations

import json
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, SequenceNode

from kubeloop.codec.yaml import Loader, write_yaml
from kubeloop.codec.yaml_limits import DEEPEST, check_limits
from kubeloop.meta.errors import DecodeError
from kubeloop.schema.strict import RepeatedKeys


class _Loader(Loader):
    """A YAML loader that records repeated keys."""


def _construct_mapping(loader: Any, node: MappingNode) -> dict[str, Any]:
    loader.flatten_mapping(node)
    pairs = [(_key(loader, key), loader.construct_object(value, deep=True)) for key, value in node.value]
    pairs.sort(key=lambda pair: pair[0])  # upstream converts to JSON first, which sorts; the first fault found depends on it
    result = dict(pairs)
    if len(result) == len(pairs):
        return result
    repeated = RepeatedKeys(pairs)
    seen: set[str] = set()
    repeated.repeated = []
    for name, _ in pairs:
        if name in seen and name not in repeated.repeated:
            repeated.repeated.append(name)
        seen.add(name)
    return repeated


def _key(loader: Any, node: Node) -> str:
    value = loader.construct_object(node, deep=True)
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if value is None:
        return "null"
    raise DecodeError(f"yaml: invalid map key: {value!r}")


_Loader.add_constructor("tag:yaml.org,2002:map", _construct_mapping)


def parse_yaml(data: bytes) -> Any:
    """Return the first document of a YAML text as a JSON tree, or None if the document is empty.

    Raises:
        DecodeError: The text is not YAML, or holds a value that JSON cannot express. The message has the form ``yaml: line N: ...``.
    """
    scanner = loader = None
    try:
        scanner = _Loader(data)
        check_limits(scanner, documents=1)
        loader = _Loader(data)
        return loader.get_data() if loader.check_data() else None
    except yaml.MarkedYAMLError as fault:
        raise DecodeError(f"yaml: {_where(fault)}{fault.problem or fault.context}") from None
    except RecursionError:
        raise DecodeError(f"yaml: exceeded max depth of {DEEPEST}") from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as fault:
        raise DecodeError(f"yaml: {fault}") from None
    finally:
        for one in (scanner, loader):
            if one is not None:
                one.dispose()


def repeated_keys(data: bytes) -> list[tuple[int, str]]:
    """Return the repeated keys in the first document of a valid YAML text: the line of the value (from 1), and the quoted key."""
    loader = _Loader(data)
    try:
        root = loader.get_node() if loader.check_node() else None
        found: list[tuple[int, str]] = []
        if root is not None:
            _find_repeated(loader, root, found, set())
        return found
    finally:
        loader.dispose()


def _find_repeated(loader: Any, node: Node, repeated: list[tuple[int, str]], seen: set[int]) -> None:
    if id(node) in seen:
        return  # an alias
    seen.add(id(node))
    if isinstance(node, MappingNode):
        names: set[str] = set()
        for key, value in node.value:
            _find_repeated(loader, value, repeated, seen)
            name = _key(loader, key)
            if name in names:
                repeated.append((value.start_mark.line + 1, json.dumps(name, ensure_ascii=False)))
            names.add(name)
    elif isinstance(node, SequenceNode):
        for one in node.value:
            _find_repeated(loader, one, repeated, seen)


def _where(fault: yaml.MarkedYAMLError) -> str:
    line = 0
    if fault.problem_mark is not None and fault.problem_mark.line:
        line = fault.problem_mark.line + isinstance(fault, yaml.scanner.ScannerError)
    elif fault.context_mark is not None and fault.context_mark.line:
        line = fault.context_mark.line
    return f"line {line}: " if line else ""


def dump_yaml(tree: dict[str, Any]) -> bytes:
    """Encode a tree as the server's YAML: block style, sorted keys, lines folded at 80 columns."""
    return write_yaml(tree, sort_keys=True, width=80).encode()
