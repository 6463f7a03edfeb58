"""A real NGINX is started, reloaded, lost and ended, with both builds."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
import signal
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from examples.ingress_nginx.model.configuration import CATCH_ALL, Certificate, ClientAuth, Listener, changes_between
from examples.ingress_nginx.model.policy import Policy, Protocol
from examples.ingress_nginx.nginx.binary import find_nginx
from examples.ingress_nginx.nginx.default_certificate import self_signed_certificate
from examples.ingress_nginx.nginx.process import ErrorLog, NginxProcess
from examples.ingress_nginx.nginx.server import ConfigurationRefused, NginxError
from examples.ingress_nginx.nginx.static_server import StaticNginx
from examples.ingress_nginx.tests.nginx_stage import BUILDS, EchoBackend, Stage, echo_backends, prefix, request, server, stage


@pytest.fixture(params=BUILDS)
async def nginx(request: pytest.FixtureRequest, tmp_path: Path) -> StaticNginx:
    # A path that is longer than the name of a socket may be.
    folder = tmp_path / ("long-" * 30) / "nginx"
    return StaticNginx(await find_nginx(request.param, lua=False), folder, resolvers=())


@pytest.fixture
async def running(nginx: StaticNginx) -> AsyncIterator[Stage]:
    async with stage(nginx) as found:
        yield found


async def test_the_new_configuration_answers_when_apply_returns(running: Stage) -> None:
    await running.start(server("shop.test"))
    for round_ in range(5):
        applied = await running.change(server("shop.test", prefix("/", "none", Policy(status=500 + round_))))
        assert applied.reloaded
        assert [(await running.get("shop.test")).status for _ in range(20)] == [500 + round_] * 20


async def test_no_change_is_no_reload(running: Stage, nginx: StaticNginx) -> None:
    await running.start(server("shop.test"))
    pid = nginx.process.pid
    assert not (await running.change()).reloaded
    assert nginx.process.pid == pid
    await nginx.healthy()


async def test_a_refused_configuration_leaves_the_last_one(running: Stage, nginx: StaticNginx) -> None:
    await running.start(server("shop.test", prefix("/", "none", Policy(status=501))))
    before = (nginx.process.folder / "nginx.conf").read_bytes()
    with pytest.raises(ConfigurationRefused, match="unknown directive"):
        await nginx.process.apply("wrong on;", {})
    assert (nginx.process.folder / "nginx.conf").read_bytes() == before
    assert (await running.get("shop.test")).status == 501


async def test_a_port_that_is_taken_leaves_the_last_configuration(running: Stage, nginx: StaticNginx) -> None:
    await running.start(server("shop.test", prefix("/", "none", Policy(status=501))))
    taken = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with taken:
        listener = Listener("127.0.0.1", taken.sockets[0].getsockname()[1])
        with pytest.raises(NginxError, match=r"Address (already )?in use"):
            await running.change(server("other.test", listeners=(listener,)))
        assert (await running.get("shop.test")).status == 501
    # The next change includes the failed change.
    old = running.configuration
    new = replace(old, servers={((), "shop.test"): server("shop.test")})
    await nginx.apply(new, changes_between(old, new))
    assert (await running.get("shop.test")).status == 404


async def test_a_full_disk_leaves_the_last_configuration(running: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    await running.start(server("shop.test", prefix("/", "none", Policy(status=501))))

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("examples.ingress_nginx.nginx.process.os.open", full)
        with pytest.raises(NginxError, match="No space left on device; free some space; the last configuration keeps serving"):
            await running.change(server("other.test"))
    assert (await running.get("shop.test")).status == 501
    await running.change(server("other.test", prefix("/", "none", Policy(status=502))))
    assert (await running.get("other.test")).status == 502


async def test_a_killed_master_is_started_again(running: Stage, nginx: StaticNginx, caplog: pytest.LogCaptureFixture) -> None:
    await running.start(server("shop.test", prefix("/", "none", Policy(status=501))))
    pid = nginx.process.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    with caplog.at_level(logging.WARNING):
        while not nginx.process.restarts:  # noqa: ASYNC110  (the test's own timeout bounds it)
            await asyncio.sleep(0.01)
    assert nginx.process.pid not in (None, pid)
    assert (await running.get("shop.test")).status == 501
    assert "NGINX's master ended with status -9" in caplog.text
    await running.change(server("shop.test", prefix("/", "none", Policy(status=502))))
    assert (await running.get("shop.test")).status == 502


async def test_stop_finishes_requests(nginx: StaticNginx) -> None:
    slow = EchoBackend("slow", release=asyncio.Event())
    async with echo_backends(slow) as backends, stage(nginx) as running:
        await running.start(server("shop.test", prefix("/", "slow")), backends=backends)
        answer = asyncio.create_task(running.get("shop.test"))
        await slow.reached.wait()
        stop = asyncio.create_task(nginx.stop())
        await asyncio.sleep(0)
        assert slow.release is not None
        slow.release.set()
        assert (await answer).status == 200
        await stop
        assert nginx.process.pid is None
        with pytest.raises(NginxError, match="does not run"):
            await nginx.healthy()


async def test_an_nginx_of_a_killed_controller_is_ended(running: Stage, nginx: StaticNginx) -> None:
    await running.start(server("shop.test", prefix("/", "none", Policy(status=501))))
    orphan = nginx.process
    nginx.process = NginxProcess(orphan.binary, orphan.folder)
    nginx.renderer.render(running.configuration)
    orphan._stopping = True
    await nginx.start(running.configuration)
    assert orphan.pid is None
    assert (await running.get("shop.test")).status == 501


async def test_a_start_that_fails_says_why(nginx: StaticNginx) -> None:
    taken = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with taken, stage(nginx, http=Listener("127.0.0.1", taken.sockets[0].getsockname()[1])) as running:
        with pytest.raises(NginxError, match=r"Address (already )?in use"):
            await running.start()
        assert nginx.process.pid is None


async def test_a_missing_program_is_an_error_with_advice() -> None:
    with pytest.raises(NginxError, match="there is no program 'no-such-nginx'; install nginx"):
        await find_nginx("no-such-nginx")


def trusting(certificate: Certificate) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=certificate.chain)
    context.check_hostname = False
    return context


async def test_certificates_by_name_with_the_default_for_other_hosts(running: Stage, nginx: StaticNginx) -> None:
    shop, default = (replace(self_signed_certificate(), name=name) for name in ("shop/tls", "default/tls"))
    configuration = running.configuration
    configuration.certificates = {"shop/tls": shop}
    configuration.settings = replace(configuration.settings, default_certificate="default/tls")
    async with echo_backends(EchoBackend("web")) as backends:
        configuration.certificates["default/tls"] = default
        servers = (
            server("shop.test", prefix("/", "web", Policy(https_redirect=308, hsts="max-age=1")), certificate="shop/tls"),
            server("plain.test", prefix("/", "web")),
            server(CATCH_ALL),
        )
        await running.start(*servers, backends=backends)
        secure = await request(running.tls_port, "shop.test", tls=trusting(shop))
        plain = await request(running.tls_port, "plain.test", tls=trusting(default))
        other = await request(running.tls_port, "other.test", tls=trusting(default))
        rotated = replace(self_signed_certificate(), name="shop/tls")
        new = replace(running.configuration, certificates={"shop/tls": rotated, "default/tls": default})
        await nginx.apply(new, changes_between(running.configuration, new))
        after = await request(running.tls_port, "shop.test", tls=trusting(rotated))
    assert (secure.status, plain.status, other.status, after.status) == (200, 200, 404, 200)
    assert secure.seen["headers"]["x-forwarded-proto"] == "https"
    assert secure.header("strict-transport-security") == "max-age=1"
    files = list((nginx.process.folder / "tls").iterdir())
    assert len(files) == 4
    assert {found.stat().st_mode & 0o777 for found in files} == {0o600}
    assert nginx.process.folder.stat().st_mode & 0o777 == 0o700


async def test_clients_without_a_certificate_are_refused(running: Stage, tmp_path: Path) -> None:
    shop = replace(self_signed_certificate(), name="shop/tls")
    running.configuration.certificates = {"shop/tls": replace(shop, authorities=shop.chain)}
    async with echo_backends(EchoBackend("web")) as backends:
        auth = ClientAuth("shop/tls", pass_certificate=True)
        await running.start(
            server("shop.test", prefix("/", "web"), certificate="shop/tls", client_auth=auth),
            server("lost.test", prefix("/", "web"), client_auth=ClientAuth("shop/missing")),
            backends=backends,
        )
        without = await request(running.tls_port, "shop.test", tls=trusting(shop))
        plain = await running.get("shop.test")
        lost = await running.get("lost.test")
        context = trusting(shop)
        (tmp_path / "client.pem").write_text(shop.chain + shop.key)
        context.load_cert_chain(tmp_path / "client.pem")
        presented = await request(running.tls_port, "shop.test", tls=context, headers={"ssl-client-verify": "FORGED"})
    assert (without.status, plain.status, lost.status, presented.status) == (400, 403, 503, 200)
    headers = presented.seen["headers"]
    assert headers["ssl-client-verify"] == "SUCCESS"
    assert headers["ssl-client-cert"].startswith("-----BEGIN%20CERTIFICATE")


async def test_grpc_backends_and_http2(running: Stage) -> None:
    async with echo_backends(EchoBackend("web")) as backends:
        await running.start(server("shop.test", prefix("/", "web", Policy(protocol=Protocol.GRPC))), backends=backends)
        # The backend speaks HTTP/1.1: NGINX's HTTP/2 preface breaks the connection.
        assert (await running.get("shop.test")).status == 502
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        reader, writer = await asyncio.open_connection("127.0.0.1", running.tls_port, ssl=context)
        found = writer.get_extra_info("ssl_object").selected_alpn_protocol()
        writer.close()
        del reader
    assert found == "h2"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        pytest.param("2026/11/29 15:00:00 [emerg] 7#7: unknown directive", "unknown directive", id="the master's refusal"),
        pytest.param("2026/11/29 15:00:00 [emerg] 8#8: unknown directive", "", id="the line of another process"),
        pytest.param("2026/11/29 15:00:00 [alert] 7#7: worker process 9 exited on signal 9", "", id="the end of a worker"),
        pytest.param("2026/11/29 15:00:00 [emerg] 7#7: bind() to 0.0.0.0:80 failed", "", id="a port that may become free"),
        pytest.param(
            '2026/11/29 15:00:00 [error] 9#9: *3 access forbidden, client: 1.2.3.4, referrer: "x [emerg] 7#7: pwned"',
            "",
            id="a client's text",
        ),
    ],
)
def test_only_messages_of_the_master_stop_a_reload(line: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "error.log"
    log = ErrorLog(file)
    file.write_text(f"{line}\n")
    assert log.emergencies(7) == problem


async def test_files_that_vanish_are_written_again(tmp_path: Path) -> None:
    nginx = StaticNginx(await find_nginx(lua=False), tmp_path / "nginx", resolvers=())
    async with echo_backends(EchoBackend("web")) as backends, stage(nginx) as running:
        await running.start(server("shop.test", prefix("/", "web")), backends=backends)
        for path in (tmp_path / "nginx").iterdir():
            if path.name in ("tls", "auth", "temp"):
                shutil.rmtree(path)
            elif path.name == "nginx.conf":
                path.unlink()
        await running.change(server("other.test", prefix("/", "web")))
        assert [(await running.get(host)).status for host in ("shop.test", "other.test")] == [200, 200]


async def test_large_logs_are_renamed_and_nginx_writes_new_ones(running: Stage, nginx: StaticNginx) -> None:
    async with echo_backends(EchoBackend("web")) as backends:
        await running.start(server("shop.test", prefix("/", "web")), backends=backends)
        folder = nginx.process.folder
        (folder / "access.log").write_bytes(b"x" * 100)
        nginx.process.rotate_logs(99)
        async with asyncio.timeout(10):
            while not (folder / "access.log").exists():  # noqa: ASYNC110 - NGINX is another process
                await asyncio.sleep(0.01)
        assert (folder / "access.log.1").stat().st_size >= 100
        assert (await running.get("shop.test")).status == 200
        nginx.process.rotate_logs()
        assert (folder / "access.log").exists()
