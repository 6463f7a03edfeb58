"""Random structural schemas as users write them, for properties of the generators."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from kubeloop.types import JSONObject

_WORDS = st.sampled_from(
    ["a", "size", "podIPs", "from", "class", "fooBar", "foo_bar", "x-y", "3d", "int", "items", "metadata", "Kind", "type"]
)
_TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=8)
_RULES = st.lists(
    st.fixed_dictionaries({"rule": st.sampled_from(["true", "self == self", "1 < 2"])}, optional={"message": st.just('no "way"')}),
    min_size=1,
    max_size=2,
)


def _some(**optional: st.SearchStrategy[Any]) -> st.SearchStrategy[JSONObject]:
    return st.fixed_dictionaries({}, optional=optional)


def _with(base: JSONObject, *more: st.SearchStrategy[JSONObject]) -> st.SearchStrategy[JSONObject]:
    return st.tuples(*more).map(lambda parts: {**base, **{key: value for one in parts for key, value in one.items()}})


_ANY_NODE = _some(**{"nullable": st.just(True), "x-kubernetes-validations": _RULES, "title": st.just("T")})
_BOUNDS = st.integers(-(2**63), 2**63 - 1)
_STRINGS = _with(
    {"type": "string"},
    _ANY_NODE,
    _some(
        default=_TEXTS,
        format=st.sampled_from(["uri", "byte", "date-time", "date", "duration"]),
        pattern=st.sampled_from(["^a$", r"^[\p{L}]+$", "[[:alpha:]]", "(?i)x", 'say "it"']),
        minLength=st.integers(0, 3),
        maxLength=st.integers(3, 9),
    ),
)
_CHOICES = _with(
    {"type": "string"},
    st.lists(_TEXTS, min_size=1, max_size=3, unique=True).map(lambda parts: {"enum": parts}),
    _some(default=_TEXTS),
)
_INTEGERS = _with(
    {"type": "integer"},
    _ANY_NODE,
    _some(
        default=st.integers(-3, 3),
        format=st.sampled_from(["int32", "int64"]),
        minimum=_BOUNDS,
        maximum=_BOUNDS,
        exclusiveMinimum=st.booleans(),
        exclusiveMaximum=st.just(True),
        multipleOf=st.integers(1, 9),
        enum=st.lists(st.integers(-3, 3), min_size=1, max_size=3, unique=True),
    ),
)
_NUMBERS = _with(
    {"type": "number"},
    _ANY_NODE,
    _some(default=st.sampled_from([0, 1, 0.5]), minimum=st.sampled_from([0, -1, 0.25]), format=st.just("double")),
)
_BOOLEANS = _with({"type": "boolean"}, _ANY_NODE, _some(default=st.booleans()))
_LOOSE: st.SearchStrategy[JSONObject] = st.sampled_from(
    [
        {"x-kubernetes-int-or-string": True},
        {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}], "default": "25%"},
        {"x-kubernetes-preserve-unknown-fields": True},
        {"type": "object"},
        {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "nullable": True},
        {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "x-kubernetes-embedded-resource": True},
        {"type": "object", "additionalProperties": True, "default": {"a": None}},
    ]
)


def _lists(nodes: st.SearchStrategy[JSONObject]) -> st.SearchStrategy[JSONObject]:
    kinds = _some(
        **{"x-kubernetes-list-type": st.sampled_from(["atomic", "set"]), "minItems": st.integers(0, 1), "maxItems": st.integers(1, 3)}
    )
    return st.tuples(nodes, _ANY_NODE, kinds, _some(default=st.just([]))).map(
        lambda parts: {"type": "array", "items": parts[0], **parts[1], **parts[2], **parts[3]}
    )


def _maps(nodes: st.SearchStrategy[JSONObject]) -> st.SearchStrategy[JSONObject]:
    kinds = _some(**{"x-kubernetes-map-type": st.sampled_from(["atomic", "granular"]), "maxProperties": st.integers(1, 3)})
    return st.tuples(nodes, _ANY_NODE, kinds).map(
        lambda parts: {"type": "object", "additionalProperties": parts[0], **parts[1], **parts[2]}
    )


@st.composite
def _structs(draw: st.DrawFn, nodes: st.SearchStrategy[JSONObject]) -> JSONObject:
    properties = draw(st.dictionaries(_WORDS, nodes, min_size=1, max_size=4))
    node: JSONObject = {"type": "object", "properties": properties, **draw(_ANY_NODE)}
    required = draw(st.lists(st.sampled_from(sorted(properties)), unique=True, max_size=3))
    if required:
        node["required"] = sorted(required)
    extra = _some(
        **{
            "x-kubernetes-preserve-unknown-fields": st.just(True),
            "x-kubernetes-map-type": st.sampled_from(["atomic", "granular"]),
            "minProperties": st.integers(0, 2),
            "default": st.just({}),
        }
    )
    return {**node, **draw(extra)}


nodes: st.SearchStrategy[JSONObject] = st.recursive(
    _STRINGS | _CHOICES | _INTEGERS | _NUMBERS | _BOOLEANS | _LOOSE,
    lambda inner: _lists(inner) | _maps(inner) | _structs(inner),
    max_leaves=8,
)


def crd_of(spec: JSONObject, status: JSONObject) -> JSONObject:
    """A definition with two fields of any schema."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"kind": "Thing", "listKind": "ThingList", "plural": "things", "singular": "thing"},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {
                                "apiVersion": {"type": "string"},
                                "kind": {"type": "string"},
                                "metadata": {"type": "object"},
                                "spec": spec,
                                "status": status,
                            },
                        }
                    },
                }
            ],
        },
    }


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3), lambda inner: st.lists(inner, max_size=2), max_leaves=3
)
_OF_FORMAT = {
    "byte": st.sampled_from(["", "aGk="]),
    "date-time": st.sampled_from(["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123+02:00"]),
    "date": st.just("2026-01-02"),
    "duration": st.just("1h30m"),
    "uri": st.just("https://example.com/a?b"),
}
_OF_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "integer": st.integers(-9, 9) | st.sampled_from([2**31 - 1, -(2**31)]),
    "number": st.integers(-2, 2) | st.sampled_from([0.5, 1e3, -0.25]),
    "boolean": st.booleans(),
    "string": st.text(max_size=4) | st.sampled_from(["a", "xX", "Größe", 'say "it"']),
}


@st.composite
def values(draw: st.DrawFn, node: JSONObject) -> Any:
    """JSON that a schema may allow; who needs to be sure must ask the validator."""
    if node.get("nullable") and draw(st.integers(0, 4)) == 0:
        return None
    if node.get("x-kubernetes-int-or-string"):
        return draw(st.integers(0, 9) | st.sampled_from(["50%", "http"]))
    if node.get("x-kubernetes-embedded-resource"):
        return {"apiVersion": "v1", "kind": "Any", "metadata": {"name": "a"}}
    if "enum" in node:
        return draw(st.sampled_from(node["enum"]))
    if node.get("type") == "array":
        return draw(st.lists(values(node["items"]), max_size=2))
    if node.get("type") == "object":
        return draw(_objects(node))
    if node.get("format") in _OF_FORMAT:
        return draw(_OF_FORMAT[node["format"]])
    return draw(_OF_TYPE.get(node.get("type", ""), _JSON))


@st.composite
def _objects(draw: st.DrawFn, node: JSONObject) -> JSONObject:
    inner = node.get("additionalProperties")
    if isinstance(inner, dict):
        found: JSONObject = draw(st.dictionaries(st.text(max_size=3), values(inner), max_size=2))
        return found
    required = node.get("required", ())
    return {name: draw(values(child)) for name, child in node.get("properties", {}).items() if name in required or draw(st.booleans())}
