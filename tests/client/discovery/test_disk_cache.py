"""Discovery in memory and on disk: repeated requests, kept documents, and their files."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kubeloop.client import Mapper
from kubeloop.client.discovery import ApiResource
from kubeloop.client.discovery.disk_cache import DiscoveryFile, cache_folder, folder_of
from kubeloop.meta import GroupVersionKind, UnknownKind
from kubeloop.timing import FakeClock
from kubeloop.transport import Transport
from tests.faults import FaultServer, Received, Reply, status

WIDGET = GroupVersionKind("example.com", "v1", "Widget")
EXTENSION = GroupVersionKind("down.io", "v1", "Thing")


class Cluster:
    """Answers in the older form; a test installs kinds and breaks servers. ``asked`` counts discoveries of everything."""

    def __init__(self) -> None:
        self.kinds = {"v1": ["Pod"]}
        self.broken: dict[str, Reply] = {}
        self.asked = 0
        self.paths: list[str] = []

    def __call__(self, received: Received) -> Reply:
        self.paths.append(received.path)
        if received.path == "/api":
            self.asked += 1
            return Reply(body={"kind": "APIVersions", "versions": ["v1"]})
        if received.path == "/apis":
            groups = [
                {"name": version.partition("/")[0], "versions": [{"groupVersion": version}]}
                for version in {**self.kinds, **self.broken}
                if "/" in version
            ]
            return Reply(body={"kind": "APIGroupList", "groups": groups})
        version = received.path.removeprefix("/apis/").removeprefix("/api/")
        if version in self.broken:
            return self.broken[version]
        entries = [{"name": f"{kind.lower()}s", "kind": kind, "namespaced": True, "verbs": ["get"]} for kind in self.kinds[version]]
        return Reply(body={"kind": "APIResourceList", "resources": entries})


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(datetime.now(UTC))


@pytest.fixture
async def mapper(cluster: Cluster, clock: FakeClock) -> AsyncIterator[Callable[[], Mapper]]:
    """Mappers of one server, each as that of a new process."""
    async with FaultServer(answer=cluster) as server, Transport(server.config(), max_retries=0) as transport:
        yield lambda: Mapper(transport, clock=clock)


async def test_o187_an_error_that_may_pass_is_asked_again_on_next_use_and_alone(cluster: Cluster, mapper: Callable[[], Mapper]) -> None:
    cluster.broken["down.io/v1"] = status(503, "ServiceUnavailable", "down")
    one = mapper()
    await one.find("pods")
    for _ in range(2):
        with pytest.raises(UnknownKind, match=r"the server behind down.io/v1 does not answer at the moment.*ServiceUnavailable: down"):
            await one.resource_of(EXTENSION)
    assert cluster.asked == 1
    assert cluster.paths.count("/apis/down.io/v1") == 3
    del cluster.broken["down.io/v1"]
    cluster.kinds["down.io/v1"] = ["Thing"]
    assert (await one.resource_of(EXTENSION)).gvr.resource == "things"
    assert cluster.asked == 1
    assert (await one.discovered()).fault == ""


async def test_o187_an_error_that_stays_is_kept(cluster: Cluster, mapper: Callable[[], Mapper]) -> None:
    cluster.broken["down.io/v1"] = status(403, "Forbidden", "no")
    one = mapper()
    await one.find("pods")
    asked = len(cluster.paths)
    assert (await one.discovered()).fault == "unable to retrieve the complete list of server APIs: down.io/v1: Forbidden: no"
    await one.find("pods")
    assert len(cluster.paths) == asked


async def test_o187_it_is_fresh_unless_it_came_from_a_file(cluster: Cluster, mapper: Callable[[], Mapper], tmp_path: Path) -> None:
    one, other = mapper(), mapper()
    assert not one.fresh
    for each in (one, other):
        each.keep_on_disk(tmp_path)
        await each.find("pods")
    assert (one.fresh, other.fresh, cluster.asked) == (True, False, 1)


async def test_o187_a_file_counts_for_its_time(cluster: Cluster, mapper: Callable[[], Mapper], tmp_path: Path, clock: FakeClock) -> None:
    for age, asked in ((0, 1), (6 * 3600 - 60, 1), (120, 2)):
        await clock.advance(age)
        one = mapper()
        one.keep_on_disk(tmp_path)
        await one.find("pods")
        assert cluster.asked == asked


async def test_o188_a_kind_made_after_the_cache_is_found_by_asking_once_more(
    cluster: Cluster, mapper: Callable[[], Mapper], tmp_path: Path
) -> None:
    first, later = mapper(), mapper()
    first.keep_on_disk(tmp_path)
    await first.find("pods")
    cluster.kinds["example.com/v1"] = ["Widget"]
    later.keep_on_disk(tmp_path)
    assert (await later.resource_of(WIDGET)).gvr.resource == "widgets"
    assert cluster.asked == 2
    assert (await first.find("widgets")).gvk == WIDGET


async def test_o188_a_fresh_document_is_not_requested_twice_in_one_lookup(cluster: Cluster, mapper: Callable[[], Mapper]) -> None:
    with pytest.raises(UnknownKind):
        await mapper().resource_of(WIDGET)
    assert cluster.asked == 1


async def test_looking_in_vain_is_limited(cluster: Cluster, mapper: Callable[[], Mapper], clock: FakeClock) -> None:
    one = mapper()
    for _ in range(30):
        with pytest.raises(UnknownKind):
            await one.find("widgets")
    assert cluster.asked == 11
    cluster.kinds["example.com/v1"] = ["Widget"]
    await clock.advance(10)
    assert (await one.find("widgets")).gvk == WIDGET


async def test_looking_is_not_limited_while_it_finds_what_was_installed(cluster: Cluster, mapper: Callable[[], Mapper]) -> None:
    one = mapper()
    await one.find("pods")
    for number in range(30):
        cluster.kinds[f"g{number}.example.com/v1"] = ["Widget"]
        assert (await one.resource_of(GroupVersionKind(f"g{number}.example.com", "v1", "Widget"))).gvr.resource == "widgets"
    with pytest.raises(UnknownKind, match=r"it serves Widget in (g\d+.example.com/v1(, )?){5} and 25 more: correct apiVersion"):
        await one.resource_of(WIDGET)


@pytest.mark.parametrize("before", [0, 1], ids=["the first request", "a repeated request"])
async def test_a_kind_installed_while_another_client_asks_is_found(cluster: Cluster, clock: FakeClock, before: int) -> None:
    looking: list[asyncio.Task[ApiResource]] = []

    def answer(received: Received) -> Reply:
        if received.path == "/api/v1" and cluster.asked > before and not looking:
            # The groups were answered already: the request under way will not know of this one.
            cluster.kinds["example.com/v1"] = ["Widget"]
            looking.append(asyncio.ensure_future(one.resource_of(WIDGET)))
        return cluster(received)

    async with FaultServer(answer=answer) as server, Transport(server.config(), max_retries=0) as transport:
        one = Mapper(transport, clock=clock)
        if before:
            await one.find("pods")
        with pytest.raises(UnknownKind):
            await one.find("gadgets")
        assert (await looking[0]).gvr.resource == "widgets"
    assert cluster.asked == before + 2


async def test_a_forgotten_document_is_requested_again_despite_its_file(
    cluster: Cluster, mapper: Callable[[], Mapper], tmp_path: Path
) -> None:
    one = mapper()
    one.keep_on_disk(tmp_path)
    await one.find("pods")
    one.forget()
    await one.find("pods")
    assert cluster.asked == 2


async def test_files_are_their_owners_alone_and_stand_beside_kubectls(
    cluster: Cluster, mapper: Callable[[], Mapper], tmp_path: Path
) -> None:
    one = mapper()
    one.keep_on_disk(tmp_path / "cache")
    await one.find("pods")
    [folder] = (tmp_path / "cache" / "discovery").iterdir()
    assert folder.name.startswith("127.0.0.1_")
    [file] = folder.iterdir()
    assert (file.name, stat.S_IMODE(file.stat().st_mode)) == ("kubeloop.json", 0o600)
    assert {stat.S_IMODE(one.stat().st_mode) for one in (folder, folder.parent, folder.parent.parent)} == {0o700}


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"form":1}', b'{"form":99,"discovered":{"resources":[]}}', b"\xff\xfe"])
async def test_a_damaged_file_is_discarded(cluster: Cluster, mapper: Callable[[], Mapper], tmp_path: Path, damage: bytes) -> None:
    first, second, third = mapper(), mapper(), mapper()
    for one in (first, second, third):
        one.keep_on_disk(tmp_path)
    await first.find("pods")
    [file] = tmp_path.rglob("kubeloop.json")
    file.write_bytes(damage)
    await second.find("pods")
    await third.find("pods")
    assert cluster.asked == 2


async def test_a_folder_that_cannot_be_written_costs_nothing_but_the_cache(
    cluster: Cluster, mapper: Callable[[], Mapper], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    one = mapper()
    one.keep_on_disk(tmp_path / "file")
    assert (await one.find("pods")).gvk.kind == "Pod"


@pytest.mark.parametrize(
    ("server", "folder"),
    [
        pytest.param("https://127.0.0.1:6443", "127.0.0.1_6443", id="host and port"),
        pytest.param("HTTPS://k8s.example.com", "k8s.example.com", id="host"),
        pytest.param("https://[::1]:6443", "___1__6443", id="an address of IPv6"),
        pytest.param("https://rancher.example/k8s/clusters/c-1", "rancher.example/k8s/clusters/c_1", id="a path"),
        pytest.param("https://host/../../etc", "host/_/_/etc", id="a path that climbs"),
    ],
)
def test_folders_are_kubectls(server: str, folder: str) -> None:
    assert folder_of(server) == folder


def test_the_cache_is_where_kubectl_has_it() -> None:
    assert cache_folder({}) == Path.home() / ".kube" / "cache"
    assert cache_folder({"KUBECACHEDIR": "/elsewhere"}) == Path("/elsewhere")


def test_a_file_is_too_old_by_its_time_of_writing(tmp_path: Path) -> None:
    from kubeloop.client.discovery import Discovered

    file = DiscoveryFile("https://host", folder=tmp_path, ttl=60)
    file.write(Discovered(()))
    os.utime(file.path, (1000, 1000))
    assert file.read(1060) == Discovered(())
    assert file.read(1061) is None
