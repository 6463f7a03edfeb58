"""YAML bodies, read as Kubernetes reads them: the first document, YAML 1.1 booleans, dates as text, keys as strings."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode

from kubeloop.meta.errors import DecodeError
from kubeloop.schema.strict import RepeatedKeys

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]  # the C loader exists only where libyaml was built in
    """Safe loader without dates. Resolvers are the class's own."""

    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, Any]]]] = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:bool")]
        for first, resolvers in _Base.yaml_implicit_resolvers.items()
    }


_BOOLEAN = re.compile(r"^(?:y|Y|yes|Yes|YES|n|N|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)$")
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOLEAN, list("yYnNtTfFoO"))


def _construct_bool(loader: Any, node: ScalarNode) -> bool:
    return str(loader.construct_scalar(node)).lower() in ("y", "yes", "true", "on")


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


_Loader.add_constructor("tag:yaml.org,2002:bool", _construct_bool)
_Loader.add_constructor("tag:yaml.org,2002:map", _construct_mapping)


def parse_yaml(data: bytes) -> Any:
    """The first document as a JSON tree; None for an empty one.

    Raises:
        DecodeError: not YAML, or something that JSON cannot say; ``yaml: line N: ...``.
    """
    loader = None
    try:
        loader = _Loader(data)
        return loader.get_data() if loader.check_data() else None
    except yaml.MarkedYAMLError as fault:
        raise DecodeError(f"yaml: {_where(fault)}{fault.problem or fault.context}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as fault:
        raise DecodeError(f"yaml: {fault}") from None
    finally:
        if loader is not None:
            loader.dispose()


def _where(fault: yaml.MarkedYAMLError) -> str:
    line = 0
    if fault.problem_mark is not None and fault.problem_mark.line:
        line = fault.problem_mark.line + isinstance(fault, yaml.scanner.ScannerError)
    elif fault.context_mark is not None and fault.context_mark.line:
        line = fault.context_mark.line
    return f"line {line}: " if line else ""


def dump_yaml(tree: object) -> bytes:
    """As the server answers: block style, keys sorted."""
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(tree, Dumper=dumper, default_flow_style=False, sort_keys=True, allow_unicode=True, width=2**31 - 1)
    return text.encode()
