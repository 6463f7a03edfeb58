"""On the embedded server a role is in force when its write was answered, in memory and on disk, and after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeloop.apiserver.authorization import Authorization
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.server import ApiServer, ServerOptions
from kubeloop.apiserver.storage import MemoryStorage, StorageEvent
from kubeloop.apiserver.storage.watch_cache import WatchCache
from kubeloop.endpoints.access import MASTERS, Access, User
from kubeloop.meta import ConfigError
from kubeloop.testing import TlsTestServer
from kubeloop.timing import FakeClock
from kubeloop.transport import Transport
from tests.apiserver.authorization.conftest import RBAC, As, rule

pytestmark = pytest.mark.embedded


@pytest.mark.parametrize("on_disk", [pytest.param(False, id="in memory"), pytest.param(True, id="on disk")])
async def test_the_next_request_knows_of_a_write_and_of_a_removal(on_disk: bool, tmp_path: Path) -> None:
    async with TlsTestServer(data=tmp_path / "data" if on_disk else None) as server, Transport(server.config) as transport:
        as_ = As(transport, "default")
        configmaps = "/api/v1/namespaces/default/configmaps"
        for _ in range(5):
            assert (await as_("GET", configmaps, user="eve"))[0] == 403
            await as_.role("reader", rule("list", "configmaps"))
            await as_.bind("reader", "eve")
            assert (await as_("GET", configmaps, user="eve"))[0] == 200
            await as_("PATCH", f"{RBAC}/namespaces/default/roles/reader", {"rules": []}, content="application/merge-patch+json")
            assert (await as_("GET", configmaps, user="eve"))[0] == 403
            await as_("DELETE", f"{RBAC}/namespaces/default/roles")
            await as_("DELETE", f"{RBAC}/namespaces/default/rolebindings/reader")


async def test_a_user_with_the_right_to_its_path_may_compact() -> None:
    async with TlsTestServer() as server, Transport(server.config) as transport:
        as_, path = As(transport, ""), "/debug/compact?revision=2"
        _, refused = await as_("POST", path, user="eve")
        assert refused["message"] == 'forbidden: User "eve" cannot post path "/debug/compact"'
        await as_.role("compactor", {"verbs": ["post"], "nonResourceURLs": ["/debug/*"]}, everywhere=True)
        await as_.bind("compactor", "eve", everywhere=True)
        assert (await as_("POST", path, user="eve"))[0] == 200


async def test_without_news_of_changes_no_user_keeps_rights_that_may_have_been_revoked(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: StorageEvent) -> None:
        raise ValueError("no such thing")

    async with TlsTestServer() as server, Transport(server.config) as transport:
        as_, configmaps = As(transport, "default"), "/api/v1/namespaces/default/configmaps"
        await as_.role("reader", rule("list", "configmaps"))
        await as_.bind("reader", "eve")
        assert (await as_("GET", configmaps, user="eve"))[0] == 200
        server.api.cache.observe("/registry/core/configmaps/", fail)
        await as_("POST", configmaps, {"metadata": {"name": "one"}})
        status, refused = await as_("DELETE", f"{RBAC}/namespaces/default/rolebindings/reader")
        why = "changes are no longer followed (ValueError: no such thing); restart the server"
        assert (status, why in refused["message"]) == (500, True)
        status, refused = await as_("GET", configmaps, user="eve")
        assert (status, refused["message"].endswith(why)) == (403, True)
        assert (await as_("GET", configmaps))[0] == 200
        assert (await as_("GET", "/readyz"))[0] == 500
    assert why in caplog.text


async def test_what_was_stored_is_in_force_after_a_restart(tmp_path: Path) -> None:
    for run in range(2):
        async with TlsTestServer(data=tmp_path / "data") as server, Transport(server.config) as transport:
            as_ = As(transport, "default")
            if not run:
                await as_.role("reader", rule("list", "configmaps"))
                await as_.bind("reader", "eve")
            assert (await as_("GET", "/api/v1/namespaces/default/configmaps", user="eve"))[0] == 200


async def test_default_roles_get_back_what_they_lack_at_the_next_start_and_keep_what_was_added(tmp_path: Path) -> None:
    merge = "application/merge-patch+json"
    basic, viewer, discovery = (f"{RBAC}/clusterroles/system:{one}" for one in ("basic-user", "public-info-viewer", "discovery"))
    binding, rebound = (f"{RBAC}/clusterrolebindings/system:{one}" for one in ("basic-user", "discovery"))
    async with TlsTestServer(data=tmp_path / "data") as server, Transport(server.config) as transport:
        as_ = As(transport, "")
        complete = {path: (await as_("GET", path))[1] for path in (basic, viewer, discovery, binding, rebound)}
        added = rule("get", "pods")
        await as_("PATCH", basic, {"rules": [added], "metadata": {"labels": None}}, content=merge)
        left_alone = {"metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}}, "rules": []}
        await as_("PATCH", viewer, left_alone, content=merge)
        await as_("DELETE", discovery)
        await as_("PATCH", binding, {"subjects": []}, content=merge)
        await as_("DELETE", rebound)
        role = {**complete[rebound]["roleRef"], "name": "view"}
        await as_("POST", f"{RBAC}/clusterrolebindings", {"metadata": {"name": "system:discovery"}, "roleRef": role})
    async with TlsTestServer(data=tmp_path / "data") as server, Transport(server.config) as transport:
        as_ = As(transport, "")
        found = {path: (await as_("GET", path))[1] for path in complete}
        each = [{**one, "resources": [name]} for one in complete[basic]["rules"] for name in one["resources"]]
        assert found[basic]["rules"] == [added, *each]
        assert found[basic]["metadata"]["labels"] == complete[basic]["metadata"]["labels"]
        assert found[viewer].get("rules") in ([], None)
        assert found[discovery]["rules"] == complete[discovery]["rules"]
        assert found[binding]["subjects"] == complete[binding]["subjects"]
        assert found[rebound]["roleRef"] == complete[rebound]["roleRef"]


@pytest.mark.parametrize(
    ("modes", "allowed", "reason"),
    [
        pytest.param(("Node", "RBAC"), False, "", id="roles and nodes, and no other user"),
        pytest.param(("AlwaysAllow",), True, "", id="all users"),
        pytest.param(("AlwaysDeny",), False, "Everything is forbidden.", id="no user"),
        pytest.param(("AlwaysDeny", "AlwaysAllow"), True, "", id="AlwaysDeny has no opinion, so that a later one may allow"),
    ],
)
async def test_modes_decide_after_the_superusers(modes: tuple[str, ...], allowed: bool, reason: str) -> None:
    server = ApiServer(ServerOptions(listen=False, provision=False, authorization=modes))
    try:
        await server.start()
        found = server.authorization.authorize(Access(User("eve"), "get", resource="pods"))
        assert (found.allowed, found.reason) == (allowed, reason)
        assert server.authorization.authorize(Access(User("root", (MASTERS,)), "get", resource="pods")).allowed
    finally:
        await server.stop()


@pytest.mark.parametrize(
    ("modes", "words"),
    [
        pytest.param((), "names no mode", id="none"),
        pytest.param(("Webhook",), "'Webhook' is not a mode of this server; known: Node, RBAC", id="an unknown one"),
        pytest.param(("RBAC", "RBAC"), "names RBAC more than once", id="one twice"),
    ],
)
def test_modes_are_refused(modes: tuple[str, ...], words: str) -> None:
    storage = MemoryStorage(FakeClock())
    with pytest.raises(ConfigError, match=words):
        Authorization(Objects(storage), WatchCache(storage), modes)
