"""ComponentStatuses, which are never stored."""

from __future__ import annotations

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
    assert (await api("GET", _PATH, accept=TABLE)).body["rows"][0]["cells"] == ["etcd-0", "Healthy", "ok", ""]
    assert (await api("GET", _PATH, accept=PARTIAL_LIST)).body["items"][0]["metadata"] == {"name": "etcd-0"}


async def test_a_component_that_is_not_known_is_not_found(api: Api) -> None:
    found = await api("GET", f"{_PATH}/nosuch")
    assert (found.status, found.message) == (404, 'componentstatus "nosuch" not found')


async def test_components_are_not_watched(api: Api) -> None:
    found = await api("GET", f"{_PATH}?watch=1")
    assert (found.status, found.message) == (405, 'watch is not supported on resources of kind "componentstatuses"')
