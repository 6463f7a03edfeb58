"""The pytest fixtures, in a separate project."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeloop.testing import LocalCluster

# Projects run in separate processes.
pytestmark = [pytest.mark.embedded, pytest.mark.timeout(300)]

pytest_plugins = ["pytester"]

CONFTEST = 'pytest_plugins = ["kubeloop.testing.plugin"]\n'
INI = "[pytest]\nasyncio_mode = MODE\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n"

SHARED = """\
import pytest

from kubeloop import Controller
from kubeloop.api.core.v1 import ConfigMap, Secret
from kubeloop.controller import set_controller_reference
from kubeloop.meta import ConfigError, ObjectMeta
from kubeloop.testing import eventually, one


@pytest.mark.asyncio
@pytest.mark.parametrize("turn", [1, 2])
async def test_it(kube_client, turn):
    await kube_client.create(ConfigMap(metadata=ObjectMeta(name="a"), data={"turn": str(turn)}))
    assert (await kube_client.get(ConfigMap, "a")).data == {"turn": str(turn)}


@pytest.mark.asyncio
async def test_without_a_socket(in_process_server):
    await in_process_server.client().create(ConfigMap(metadata=ObjectMeta(name="a")))
    assert [call.verb for call in in_process_server.faults.calls] == ["create"]


@pytest.mark.asyncio
async def test_one_namespace_for_all_fixtures_of_a_test(kube_cluster, kube_client):
    assert kube_cluster.isolation == "namespace"
    assert kube_cluster.namespace == kube_client.namespace
    assert kube_cluster.kubeconfig.exists()
    with pytest.raises(ConfigError, match="faults and recorded actions: not on a shared server; .*isolation=.server"):
        kube_cluster.faults
    with pytest.raises(ConfigError, match="to send requests as .eve."):
        kube_cluster.client(user="eve")


class Secrets(Controller[ConfigMap], owns=[Secret], name="secrets"):
    async def reconcile(self, config: ConfigMap) -> None:
        if config.metadata.name == "wanted" and not self.owned(Secret, config):
            secret = Secret(metadata=ObjectMeta(name="made", namespace=config.metadata.namespace))
            set_controller_reference(config, secret)
            await self.client.create(secret)


@pytest.mark.asyncio
async def test_a_manager_sees_the_namespace_of_its_test_only(kube_client, kube_manager):
    manager = await kube_manager(Secrets())
    await kube_client.create(ConfigMap(metadata=ObjectMeta(name="wanted")))
    await eventually(one(kube_client, Secret, "made"), lambda secret: secret.metadata.owner_references, within=60)
    assert {obj.metadata.namespace for obj in manager.informers.for_kind(ConfigMap, namespace=kube_client.namespace).lister.list()} == {
        kube_client.namespace
    }


def test_in_step(kubeloop_cluster):
    assert kubeloop_cluster.kubeconfig.exists()
"""

OWN = """\
import pytest

from kubeloop import Controller, Result
from kubeloop.api.core.v1 import ConfigMap, Secret
from kubeloop.controller import set_controller_reference
from kubeloop.meta import ConfigError, Conflict, ObjectMeta
from kubeloop.testing import assert_golden, consistently, eventually, many, on, one


class Secrets(Controller[ConfigMap], owns=[Secret], name="secrets"):
    async def reconcile(self, config: ConfigMap) -> Result | None:
        if not self.owned(Secret, config):
            secret = Secret(metadata=ObjectMeta(name=config.metadata.name, namespace=config.metadata.namespace))
            set_controller_reference(config, secret)
            await self.client.create(secret)
        return Result(requeue_after=3600)


def config(name):
    return ConfigMap(metadata=ObjectMeta(name=name))


async def test_the_manager_runs_on_fake_time_and_its_writes_are_recorded(kube_client, kube_manager, kube_clock, kube_faults, kube_actions):
    kube_faults.refuse(Conflict, times=3, matching=on("create", Secret))
    manager = await kube_manager(Secrets())
    begun = kube_clock.now()
    await kube_client.create(config("a"))
    await eventually(one(kube_client, Secret, "a"), lambda secret: secret.metadata.owner_references)
    await consistently(many(kube_client, Secret), [{"metadata": {"name": "a"}}], seconds=7300)
    assert kube_clock.now() - begun > 7300
    (stats,) = manager.stats
    assert stats.counts.reconciles >= 3 + 1 + 2
    kube_actions.accepted().expect("create Secret default/a metadata.name=a")
    assert len(kube_actions.refused()) == 3
    assert_golden(await kube_client.get(Secret, "a"), "golden/secret.yaml")


@pytest.mark.kube(isolation="server")
async def test_two_servers_have_nothing_in_common(kube_cluster, kube_client):
    assert await kube_client.list(ConfigMap) == []
    with pytest.raises(ConfigError, match="without a socket"):
        kube_cluster.kubeconfig
"""


def project(folder: Path, mode: str, **tests: str) -> None:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text(INI.replace("MODE", mode))
    for name, text in tests.items():
        (folder / f"{name}.py").write_text(text)


def test_a_project_gets_one_cluster_and_a_namespace_for_each_test(pytester: pytest.Pytester) -> None:
    project(pytester.path, "strict", test_it=SHARED)
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=6)


def test_a_separate_server_has_a_clock_faults_and_a_record(pytester: pytest.Pytester) -> None:
    project(pytester.path, "auto", test_own=OWN)
    pytester.runpytest_subprocess("-q", "--update-golden").assert_outcomes(passed=2)
    golden = pytester.path / "golden" / "secret.yaml"
    assert "uid" not in golden.read_text()
    golden.write_text(golden.read_text().replace("type: Opaque", "type: other"))
    different = pytester.runpytest_subprocess("-q")
    different.assert_outcomes(passed=1, failed=1)
    different.stdout.fnmatch_lines(["*not as golden/secret.yaml says*", "*-type: other", "*+type: Opaque"])


def test_tests_that_share_a_server_run_against_any_cluster(pytester: pytest.Pytester, local_cluster: LocalCluster) -> None:
    text = f"""\
async def test_it(kube_cluster, kube_client):
    assert str(kube_cluster.kubeconfig) == {str(local_cluster.kubeconfig)!r}
    assert kube_client.transport.config.server == {local_cluster.url!r}
"""
    project(pytester.path, "auto", test_it=text)
    pytester.runpytest_subprocess("-q", f"--kube-config={local_cluster.kubeconfig}").assert_outcomes(passed=1)


def test_a_shared_server_for_what_needs_its_own_is_refused_with_the_way_out(pytester: pytest.Pytester) -> None:
    text = 'import pytest\n\n@pytest.mark.kube(isolation="namespace")\nasync def test_it(kube_faults): ...\n'
    project(pytester.path, "auto", test_it=text)
    result = pytester.runpytest_subprocess("-q")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(['*test_it: the fixture kube_faults: not on a shared server; mark the test *isolation="server"*'])


@pytest.mark.parametrize(
    ("ini", "flag"),
    [
        pytest.param("", ["--kube-isolation=server"], id="by the flag"),
        pytest.param("kube_isolation = server\n", [], id="by the configuration"),
    ],
)
def test_the_isolation_of_all_tests_is_chosen(pytester: pytest.Pytester, ini: str, flag: list[str]) -> None:
    text = 'async def test_it(kube_cluster):\n    assert kube_cluster.isolation == "server"\n'
    project(pytester.path, "auto", test_it=text)
    with (pytester.path / "pytest.ini").open("a") as file:
        file.write(ini)
    pytester.runpytest_subprocess("-q", *flag).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("flags", "has_frames"),
    [
        pytest.param((), False, id="the report of an error leaves the frames of kubeloop out"),
        pytest.param(("--full-trace",), True, id="--full-trace shows all frames"),
    ],
)
def test_reports_of_errors(pytester: pytest.Pytester, flags: tuple[str, ...], has_frames: bool) -> None:
    text = (
        "from kubeloop.api.core.v1 import Pod\n\n"
        'async def test_it(in_process_server):\n    await in_process_server.client().get(Pod, "web-0")\n'
    )
    project(pytester.path, "auto", test_it=text)
    result = pytester.runpytest_subprocess(*flags)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(['>*get(Pod, "web-0")', 'E *NotFound: pods "web-0" not found*'])
    assert ("transport.py" in result.stdout.str()) is has_frames


def test_async_fixtures_without_a_plugin_that_runs_them_say_which_to_install(pytester: pytest.Pytester) -> None:
    missing = 'import sys\n\nsys.modules["pytest_asyncio"] = sys.modules["anyio"] = None\n'
    pytester.makeconftest(missing + CONFTEST)
    pytester.makepyfile("def test_it(kube_client): ...\n")
    result = pytester.runpytest_subprocess("-p", "no:asyncio", "-p", "no:anyio")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["the fixture kube_c* needs pytest-asyncio: pip install pytest-asyncio"])
