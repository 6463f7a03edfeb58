"""Whatever a schema says, its classes say the same, can be imported, and read what they wrote."""

from __future__ import annotations

import json
import sys
from types import ModuleType
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kubeloop.codec import decode, encode
from kubeloop.codec.encoding_checks import fault_of
from kubeloop.codegen.crd import definitions_of
from kubeloop.codegen.naming import module_names
from kubeloop.codegen.typed import ModelSource, source_of_crd
from kubeloop.codegen.typed.module import ModuleWriter
from kubeloop.meta import Resource
from kubeloop.schema.structural import parse
from kubeloop.schema.validation import validate
from tests.codegen.round_trip import comparable
from tests.codegen.schemas import crd_of, nodes, values

NAME = "any_schema_under_test"


def thing_of(source: ModelSource) -> type[Resource]:
    """The class, imported from text without a file."""
    names = source.names_to_generate()
    modules = module_names(names)
    text = ModuleWriter(source, modules[names[0]], modules, "full").render(sorted(names))
    module = ModuleType(NAME)
    sys.modules[NAME] = module
    exec(compile(text, NAME, "exec"), module.__dict__)
    found: type[Resource] = module.__dict__["Thing"]
    return found


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(nodes, nodes)
def test_a_definition_comes_back_from_its_classes(spec: dict[str, Any], status: dict[str, Any]) -> None:
    crd = crd_of(spec, status)
    try:
        (first,) = definitions_of([thing_of(source_of_crd(crd, "first"))])
        assert comparable(first.document) == comparable(crd)
        (second,) = definitions_of([thing_of(source_of_crd(first.document, "second"))])
        assert second.document == first.document
    finally:
        sys.modules.pop(NAME, None)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(nodes.flatmap(lambda node: st.tuples(st.just(node), values(node))))
def test_what_a_server_may_store_is_read_kept_and_may_be_sent_again(example: tuple[dict[str, Any], Any]) -> None:
    schema, value = example
    assume(not validate(value, parse(schema)))
    document = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": value}
    body = json.dumps(document).encode()
    try:
        cls = thing_of(source_of_crd(crd_of(schema, {"type": "object"}), "any"))
        obj = decode(cls, body)
        assert fault_of(cls, body) == ""
        obj.metadata.labels["changed"] = "here"
        written = json.loads(encode(obj))
        assert written["metadata"].pop("labels") == {"changed": "here"}
        assert written == document
    finally:
        sys.modules.pop(NAME, None)
