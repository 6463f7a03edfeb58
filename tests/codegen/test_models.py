import importlib
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

import kubeloop.api
from kubeloop.codegen.document import schemas_from
from kubeloop.codegen.models import render
from kubeloop.codegen.types import HAND_WRITTEN, INLINE
from kubeloop.codegen.write import write_modules
from kubeloop.meta import GroupVersionKind, ObjectMeta, Resource, kind_info
from kubeloop.schema import builtin

SAMPLE = Path(__file__).with_name("widgets.json")


@pytest.fixture
def widgets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    write_modules(render(schemas_from(SAMPLE)), tmp_path / "generated_widgets")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("generated_widgets.example.v1")
    for name in [name for name in sys.modules if name.startswith("generated_widgets")]:
        del sys.modules[name]


def test_the_committed_models_are_what_the_generator_makes_of_the_shipped_schemas() -> None:
    folder = Path(kubeloop.api.__file__).parent
    committed = {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*.py")}
    assert committed == render(builtin())


def test_the_same_schemas_give_the_same_text_and_no_descriptions() -> None:
    files = render(schemas_from(SAMPLE))
    assert files == render(schemas_from(SAMPLE))
    assert list(files) == sorted(files)
    assert "left out" not in "".join(files.values())


def test_partial_construction_needs_only_what_one_has_to_say(widgets: Any) -> None:
    widget = widgets.Widget(metadata=ObjectMeta(name="w"), spec=widgets.WidgetSpec(size=3))
    assert (widget.api_version, widget.kind) == ("example.com/v1", "Widget")
    assert widget.spec.node_name is None
    assert (widget.spec.pod_ips, widget.spec.labels, widget.spec.ports) == ([], {}, [])
    assert widget.template.children == []
    assert widgets.Widget().spec is None


def test_wire_names_and_types_are_the_schemas(widgets: Any) -> None:
    spec = {
        "size": 1,
        "nodeName": "n",
        "podIPs": ["10.0.0.1"],
        "from": "a",
        "int": 7,
        "started": "2026-01-02T03:04:05Z",
        "secret": "aGk=",
        "maxSurge": "25%",
        "free": {"a": [1]},
        "anything": [None],
        "open": {"b": 1},
        "ports": [{"port": 80, "name": "web"}],
        "parent": {"children": [{"other": {"height": 1.5}}]},
    }
    read = msgspec.json.decode(json.dumps(spec), type=widgets.WidgetSpec)
    assert (read.from_, read.int_, read.pod_ips, read.secret, read.max_surge) == ("a", 7, ["10.0.0.1"], b"hi", "25%")
    assert read.started == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert read.ports[0].port == 80
    assert read.parent.children[0].other.height == 1.5
    assert json.loads(msgspec.json.encode(read)) == spec


def test_lists_that_are_maps_name_their_keys(widgets: Any) -> None:
    assert widgets.WidgetSpec.__list_keys__ == {"ports": ("port",)}


def test_a_kind_knows_its_resource(widgets: Any) -> None:
    info = kind_info(widgets.Widget)
    assert (info.plural, info.namespaced, info.singular) == ("widgets", True, "widget")


def test_a_list_kind_is_typed(widgets: Any) -> None:
    assert widgets.WidgetList.kind == "WidgetList"
    decoded = msgspec.json.decode(b'{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"}}]}', type=widgets.WidgetList)
    assert isinstance(decoded.items[0], widgets.Widget)
    assert decoded.metadata.resource_version == "7"


def test_a_kind_is_found_by_its_name(widgets: Any) -> None:
    index: Any = importlib.import_module("generated_widgets")
    assert index.find(GroupVersionKind("example.com", "v1", "Widget")) is widgets.Widget
    assert index.find(GroupVersionKind("example.com", "v1", "WidgetList")) is None
    assert index.find(GroupVersionKind("example.com", "v2", "Widget")) is None


@pytest.mark.parametrize("gvk", [pytest.param(info.gvk, id=str(info.gvk)) for info in builtin().all_resources()])
def test_every_resource_has_a_model_that_knows_it(gvk: GroupVersionKind) -> None:
    info = next(info for info in builtin().all_resources() if info.gvk == gvk)
    model = kubeloop.api.find(gvk)
    assert model is not None
    assert issubclass(model, Resource)
    assert (model.api_version, model.kind) == (gvk.api_version, gvk.kind)
    assert (kind_info(model).gvr, kind_info(model).namespaced) == (info.gvr, info.namespaced)
    assert kind_info(model).short_names == info.short_names


def test_every_definition_is_a_generated_class_a_hand_written_one_or_a_plain_type() -> None:
    schemas = builtin()
    text = "".join(render(schemas).values())
    missing = [
        name
        for name in schemas.names()
        if name not in HAND_WRITTEN and name not in INLINE and f"class {name.rpartition('.')[2]}(" not in text
    ]
    assert missing == []


def test_every_field_has_its_wire_name() -> None:
    schemas = builtin()
    for gvk, name in schemas.kinds():
        model = kubeloop.api.find(gvk)
        if model is not None:
            assert set(model.__struct_encode_fields__) | {"apiVersion", "kind"} == set(schemas.definition(name).properties), gvk
