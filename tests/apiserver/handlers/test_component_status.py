"""ComponentStatuses, which are never stored."""

from __future__ import annotations

import socket

import pytest

from kubeloop.apiserver.handlers import component_status
from tests.apiserver.conftest import PARTIAL_LIST, TABLE, Api

_PATH = "/api/v1/componentstatuses"


async def test_the_storage_is_healthy_while_it_answers(api: Api) -> None:
    found = await api("GET", f"{_PATH}/etcd-0")
    assert found.body["conditions"] == [{"type": "Healthy", "status": "True", "message": "ok"}]
    assert found.warnings == ['299 - "v1 ComponentStatus is deprecated in v1.19+"']


async def test_a_list_has_no_version_and_can_be_selected_from(api: Api) -> None:
    found = (await api("GET", f"{_PATH}?fieldSelector=metadata.name=etcd-0")).body
    assert (found["kind"], found["metadata"], len(found["items"])) == ("ComponentStatusList", {}, 1)
    assert (await api("GET", f"{_PATH}?labelSelector=a=b")).body["items"] == []


async def test_a_list_may_be_a_table_or_metadata_only(api: Api) -> None:
    assert (await api("GET", _PATH, accept=TABLE)).body["rows"][-1]["cells"] == ["etcd-0", "Healthy", "ok", ""]
    names = [one["metadata"]["name"] for one in (await api("GET", _PATH, accept=PARTIAL_LIST)).body["items"]]
    assert names == ["controller-manager", "scheduler", "etcd-0"]


async def test_a_component_that_is_not_known_is_not_found(api: Api) -> None:
    found = await api("GET", f"{_PATH}/nosuch")
    assert (found.status, found.message) == (404, 'componentstatus "nosuch" not found')


async def test_components_are_not_watched(api: Api) -> None:
    found = await api("GET", f"{_PATH}?watch=1")
    assert (found.status, found.message) == (405, 'watch is not supported on resources of kind "componentstatuses"')


async def test_a_component_that_runs_beside_the_server_reports_its_own_health(api: Api) -> None:
    api.server.api.components["scheduler"] = str
    api.server.api.components["controller-manager"] = lambda: "caches are not synced"
    rows = (await api("GET", _PATH, accept=TABLE)).body["rows"]
    assert [row["cells"] for row in rows] == [
        ["controller-manager", "Unhealthy", "caches are not synced", ""],
        ["scheduler", "Healthy", "ok", ""],
        ["etcd-0", "Healthy", "ok", ""],
    ]


async def test_a_component_that_is_not_there_is_refused_a_connection(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        monkeypatch.setitem(component_status._PORTS, "scheduler", port)
        (condition,) = (await api("GET", f"{_PATH}/scheduler")).body["conditions"]
    why = f'Get "https://127.0.0.1:{port}/healthz": dial tcp 127.0.0.1:{port}: connect: connection refused'
    assert condition == {"type": "Healthy", "status": "False", "message": why}
