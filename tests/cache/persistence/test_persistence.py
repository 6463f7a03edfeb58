"""Informers over a restart: resumed state, discarded state with the reason, and state that is never written."""

from __future__ import annotations

import asyncio
import logging
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubeloop.api.core.v1 import ConfigMap, Secret
from kubeloop.cache import InformerFactory
from kubeloop.cache.persistence import FolderInUse
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.meta import ConfigError, ObjectMeta
from kubeloop.testing import TlsTestServer
from kubeloop.timing import FakeClock
from kubeloop.transport import Transport
from tests.cache.persistence.conftest import Cluster
from tests.cache.source import status, until

JSON = dict[str, Any]


def persistent(api: Client, folder: Path, clock: FakeClock | None = None, **options: Any) -> InformerFactory:
    return InformerFactory(api, persist=folder, clock=clock, **options)


async def session(api: Client, folder: Path, **options: Any) -> None:
    """A program that syncs and ends."""
    async with persistent(api, folder) as informers:
        informers.for_kind(ConfigMap, **{"namespace": ALL_NAMESPACES, **options})
        await informers.wait_synced(5)


async def test_a_restart_resumes_the_watch_from_the_saved_version_and_lists_nothing(source: Cluster, api: Client, folder: Path) -> None:
    for name in "abc":
        source.put(name, k=name, label_app="web")
    await session(api, folder, indexes={"k": "data.k"})
    source.put("a", k="new")
    source.delete("b")
    source.put("d", k="d")
    source.requests.clear()
    seen: list[str] = []
    async with persistent(api, folder) as informers:
        maps = informers.for_kind(ConfigMap, indexes={"k": "data.k"}, namespace=ALL_NAMESPACES)
        maps.on_event(
            added=lambda event: seen.append(f"{'initial ' if event.initial else ''}ADDED {event.key.name}"),
            updated=lambda event: seen.append(f"MODIFIED {event.key.name} {event.old and event.old.value('data.k')}"),
            deleted=lambda event: seen.append(f"DELETED {event.key.name}"),
        )
        await informers.wait_synced(5)
        await until(lambda: len(seen) == 6)
        assert seen == ["initial ADDED a", "initial ADDED b", "initial ADDED c", "MODIFIED a a", "DELETED b", "ADDED d"]
        assert source.asked("list") == []
        assert [query["resourceVersion"] for kind, query in source.requests if kind == "watch"] == ["13"]
        assert sorted(each.metadata.name for each in maps.lister.list()) == ["a", "c", "d"]
        assert [each.metadata.name for each in maps.lister.by_index("k", "c")] == ["c"]
        assert [each.data["k"] for each in maps.lister.list(label_selector="app=web")] == ["c"]
        found = maps.lister.get("c", "default")
        assert found is not None
        assert (found.metadata.uid, found.metadata.labels) == (source.objects["c"]["metadata"]["uid"], {"app": "web"})


async def test_nothing_is_shown_before_the_server_has_accepted_the_watch(
    source: Cluster, api: Client, folder: Path, clock: FakeClock
) -> None:
    source.put("a")
    await session(api, folder)
    source.watch_faults = [status(503, "ServiceUnavailable")] * 3
    async with persistent(api, folder, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        await until(lambda: maps.failure is not None)
        assert not maps.synced
        assert maps.lister.list() == []


@pytest.mark.parametrize("as_event", [False, True], ids=["as the answer", "as the first event of the watch"])
async def test_a_version_that_the_server_has_forgotten_leads_to_a_full_list(
    source: Cluster, api: Client, folder: Path, as_event: bool
) -> None:
    source.put("a")
    source.put("gone")
    await session(api, folder)
    source.delete("gone")
    source.put("b")
    gone = status(410, "Expired", "too old resource version")
    source.compact()
    if as_event:
        source.compacted = 0
        source.hidden = {version for version, _, _ in source.events}
        source.short = {"type": "ERROR", "object": gone}
    source.requests.clear()
    seen: list[str] = []
    async with persistent(api, folder) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        maps.on_event(added=lambda event: seen.append(event.key.name), deleted=lambda event: seen.append(f"DELETED {event.key.name}"))
        await until(lambda: (source.watches == 0 and maps.failure is not None) or maps.synced)
        source.short = None
        await informers.wait_synced(5)
        assert sorted(each.metadata.name for each in maps.lister.list()) == ["a", "b"]
        await until(lambda: len(seen) == 2)
        assert seen == ["a", "b"], "what had vanished was never shown"
        assert len(source.asked("list")) == 1


async def test_the_state_is_saved_while_it_runs_so_that_a_kill_costs_only_what_came_since(
    source: Cluster, api: Client, folder: Path, clock: FakeClock
) -> None:
    source.put("a", k="1")
    async with persistent(api, folder, clock, persist_every=60) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        await until(lambda: maps.synced)
        before = set(folder.glob("*.state"))
        assert before == set()
        source.put("a", k="2")
        await until(lambda: maps.resource_version == "12")
        await clock.advance(60)
        await until(lambda: bool(list(folder.glob("*.state"))))
        copy = {path.name: path.read_bytes() for path in folder.glob("*.state")}
    for name, content in copy.items():
        (folder / name).write_bytes(content)  # as a kill would have left it
    async with persistent(api, folder) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        await informers.wait_synced(5)
        assert maps.lister.get("a", "default").data == {"k": "2"}  # type: ignore[union-attr]  # it is there


Harm = Callable[[bytes], bytes]


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(lambda content: b"", id="an empty file"),
        pytest.param(lambda content: content[:-1], id="a file without its last byte"),
        pytest.param(lambda content: content[: len(content) // 2], id="half a file"),
        pytest.param(lambda content: content[:16], id="a file that ends behind its first words"),
        pytest.param(lambda content: content + b"\0", id="a file with a byte too many"),
        pytest.param(lambda content: content + content, id="a file written twice"),
        pytest.param(lambda content: b"X" + content[1:], id="another kind of file"),
        pytest.param(lambda content: content[:16] + b"\xff" * 4 + content[20:], id="a length that exceeds all memory"),
        pytest.param(lambda content: content.replace(b"uid-a", b"uid-b"), id="a changed word"),
    ],
)
async def test_a_damaged_file_is_discarded_with_its_reason_and_everything_is_listed(
    source: Cluster, api: Client, folder: Path, caplog: pytest.LogCaptureFixture, harm: Harm
) -> None:
    source.put("a")
    await session(api, folder)
    (path,) = folder.glob("*.state")
    path.write_bytes(harm(path.read_bytes()))
    source.requests.clear()
    with caplog.at_level(logging.WARNING, "kubeloop.cache"):
        await session(api, folder)
    assert len(source.asked("list")) == 1
    assert "discarding the saved state and listing all objects: " in caplog.text
    source.requests.clear()
    await session(api, folder)
    assert source.asked("list") == [], "what was saved after it is good again"


@pytest.mark.parametrize(
    ("options", "listed"),
    [
        pytest.param({}, False, id="the same informer resumes"),
        pytest.param({"label_selector": "app=web"}, True, id="another selector is another state"),
        pytest.param({"managed_fields": True}, True, id="another retention is another state"),
        pytest.param({"fields": ["data.k"]}, True, id="other fields are another state"),
        pytest.param({"indexes": {"k": "data.k"}}, True, id="another index is another state"),
    ],
)
async def test_a_state_is_used_only_by_the_informer_that_it_was_saved_for(
    source: Cluster, api: Client, folder: Path, options: JSON, listed: bool
) -> None:
    source.put("a", k="1", label_app="web")
    await session(api, folder)
    source.requests.clear()
    await session(api, folder, **options)
    assert bool(source.asked("list")) is listed


async def test_a_state_of_another_server_is_discarded(source: Cluster, api: Client, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    source.put("a")
    await session(api, folder)
    source.requests.clear()
    source.uid = "another"
    with caplog.at_level(logging.WARNING, "kubeloop.cache"):
        await session(api, folder)
    assert len(source.asked("list")) == 1
    assert "it was written for another server" in caplog.text


async def test_without_the_right_to_read_the_identity_of_the_cluster_its_address_and_authority_identify_it(
    source: Cluster, api: Client, folder: Path
) -> None:
    source.uid = None
    source.put("a")
    await session(api, folder)
    source.requests.clear()
    await session(api, folder)
    assert source.asked("list") == []


async def test_the_folder_and_its_files_are_for_this_user_alone(source: Cluster, api: Client, folder: Path) -> None:
    await session(api, folder)
    modes = {path.name.partition(".")[2] or path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert modes == {"state": 0o600, "lock": 0o600}


async def test_a_folder_that_others_can_read_is_refused(api: Client, folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o755)
    with pytest.raises(ConfigError, match="is open to other users"):
        async with persistent(api, folder):
            pass


async def test_a_folder_is_used_by_one_at_a_time(api: Client, folder: Path) -> None:
    async with persistent(api, folder):
        with pytest.raises(FolderInUse, match="give each its own folder"):
            async with persistent(api, folder):
                pass
    async with persistent(api, folder):
        pass


async def test_half_a_file_that_a_kill_left_behind_is_removed(api: Client, folder: Path) -> None:
    folder.mkdir(mode=0o700)
    (folder / "configmap-x.state.half").write_bytes(b"half")
    async with persistent(api, folder):
        assert [path.name for path in folder.iterdir()] == ["lock"]


@pytest.mark.embedded
async def test_secrets_are_saved_only_on_request_and_removed_when_the_request_is_withdrawn(
    in_loop_server: TlsTestServer, folder: Path
) -> None:
    async with Client(Transport(in_loop_server.config)) as client:
        await client.create(Secret(metadata=ObjectMeta(name="a", namespace="default"), data={"password": b"hidden"}))
        for keep in (False, True, False):
            async with persistent(client, folder, persist_secrets=keep) as informers:
                informers.for_kind(Secret, namespace=ALL_NAMESPACES)
                informers.metadata(Secret, namespace=ALL_NAMESPACES)
                await informers.wait_synced(5)
            assert len(list(folder.glob("*.state"))) == (2 if keep else 0)


async def test_informers_with_a_transform_are_not_saved_because_the_transform_may_have_changed(
    source: Cluster, api: Client, folder: Path
) -> None:
    source.put("a")
    await session(api, folder, transform=lambda tree: None)
    assert list(folder.glob("*.state")) == []


async def test_an_informer_that_never_synced_saves_nothing_and_keeps_the_older_file(
    source: Cluster, api: Client, folder: Path, clock: FakeClock
) -> None:
    source.put("a")
    await session(api, folder)
    (path,) = folder.glob("*.state")
    before = path.read_bytes()
    source.watch_faults = [status(503, "ServiceUnavailable")] * 3
    async with persistent(api, folder, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        await until(lambda: maps.failure is not None)
    assert path.read_bytes() == before


async def test_which_cluster_it_is_must_be_known_before_a_state_is_used(
    source: Cluster, api: Client, folder: Path, clock: FakeClock
) -> None:
    source.put("a")
    await session(api, folder)
    source.identity_faults = [status(503, "ServiceUnavailable")]
    source.requests.clear()
    async with persistent(api, folder, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        await until(lambda: maps.failure is not None)
        assert source.requests == []
        assert maps.lister.heads() == []
        await clock.advance(5)
        async with asyncio.timeout(5):
            while not maps.synced:
                await clock.advance(0.1)
        assert source.asked("list") == []
        assert msgspec.json.decode(maps.lister.heads()[0].document())["metadata"]["name"] == "a"
