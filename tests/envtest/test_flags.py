"""The flag tables of the launchers: each flag of the real programs is classified, and nothing is swallowed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kubeloop.envtest.apiserver import check_feature_gates, check_runtime_config, server_arguments
from kubeloop.envtest.apiserver_flags import APISERVER
from kubeloop.envtest.etcd_flags import ETCD
from kubeloop.envtest.flags import Flag, FlagError, FlagSet, Treatment, key_values, parse_bool

ORIGINAL = Path(__file__).parent / "original"


@pytest.mark.parametrize(
    ("flags", "recorded"),
    [
        pytest.param(APISERVER, "kube-apiserver-v1.36.3.txt", id="kube-apiserver"),
        pytest.param(ETCD, "etcd-3.6.8.txt", id="etcd"),
    ],
)
def test_the_table_has_exactly_the_flags_of_the_real_program(flags: FlagSet, recorded: str) -> None:
    assert sorted(flags.flags) == (ORIGINAL / recorded).read_text().splitlines()


def test_the_page_counts_the_flags_right() -> None:
    page = (Path(__file__).parents[2] / "docs" / "envtest.md").read_text()
    counted = {treatment: sum(flag.treatment is treatment for flag in APISERVER.flags.values()) for treatment in Treatment}
    found = {one: re.search(rf"(?m)^\| {one.value} \|[^|]+\| (\d+),", page) for one in Treatment}
    assert {one: int(match[1]) for one, match in found.items() if match} == counted


@pytest.mark.parametrize("flags", [pytest.param(APISERVER, id="kube-apiserver"), pytest.param(ETCD, id="etcd")])
def test_each_flag_that_is_not_implemented_says_why_or_what_to_do(flags: FlagSet) -> None:
    assert [flag.name for flag in flags.flags.values() if not flag.note and flag.treatment is not Treatment.IMPLEMENTED] == []


@pytest.mark.parametrize("flags", [pytest.param(APISERVER, id="kube-apiserver"), pytest.param(ETCD, id="etcd")])
def test_each_refused_flag_is_refused_by_name_with_a_value_that_changes_something(flags: FlagSet) -> None:
    swallowed = []
    for flag in flags.flags.values():
        if flag.treatment is not Treatment.REFUSED:
            continue
        value = str(not parse_bool(flag.default or "false")).lower() if flag.is_bool else "17"
        try:
            line = flags.parse([f"--{flag.name}={value}"])
        except FlagError as error:
            if f"--{flag.name}={value}: {flag.note}" not in str(error):
                swallowed.append(str(error))
        else:
            swallowed.append(f"{flag.name} {line}")
    assert swallowed == []


@pytest.mark.parametrize("flags", [pytest.param(APISERVER, id="kube-apiserver"), pytest.param(ETCD, id="etcd")])
def test_each_harmless_flag_is_named_with_its_value(flags: FlagSet) -> None:
    for flag in flags.flags.values():
        if flag.treatment is Treatment.HARMLESS:
            value = "true" if flag.is_bool else "17"
            assert flags.parse([f"--{flag.name}={value}"]).harmless == [(f"--{flag.name}={value}", flag.note)]


FLAGS = FlagSet(
    "program",
    "v1",
    [
        Flag("color", "string", "red", Treatment.IMPLEMENTED),
        Flag("names", "strings", "", Treatment.IMPLEMENTED),
        Flag("loud", "bool", "", Treatment.IMPLEMENTED),
        Flag("v", "Level", "", Treatment.IMPLEMENTED),
        Flag("size", "int", "", Treatment.HARMLESS, "tuning"),
        Flag("shadow-copies", "int", "", Treatment.REFUSED, "make them yourself"),
        Flag("mirror", "bool", "true", Treatment.REFUSED, "buy one"),
        Flag("help", "bool", "", Treatment.IMPLEMENTED),
        Flag("version", "version[=true]", "", Treatment.IMPLEMENTED),
    ],
    removed={"port": ("0",)},
)


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        pytest.param(["--color=blue"], {"color": ("blue",)}, id="a value after an equals sign"),
        pytest.param(["--color", "blue"], {"color": ("blue",)}, id="a value as the next argument"),
        pytest.param(["--color="], {"color": ("",)}, id="an empty value"),
        pytest.param(["--color=a=b"], {"color": ("a=b",)}, id="an equals sign in the value"),
        pytest.param(["--names=a,b", "--names=c"], {"names": ("a,b", "c")}, id="a flag that is repeated"),
        pytest.param(["--loud", "--color=x"], {"loud": ("true",), "color": ("x",)}, id="a boolean without a value"),
        pytest.param(["--loud=false"], {"loud": ("false",)}, id="a boolean with a value"),
        pytest.param(["-v=3"], {"v": ("3",)}, id="a short flag with an equals sign"),
        pytest.param(["-v3"], {"v": ("3",)}, id="a short flag with its value attached"),
        pytest.param(["-v", "3"], {"v": ("3",)}, id="a short flag with the next argument"),
        pytest.param(["-h"], {"help": ("true",)}, id="-h is --help"),
        pytest.param(["--version"], {"version": ("true",)}, id="--version needs no value"),
        pytest.param(["--version=raw"], {"version": ("raw",)}, id="--version may have a value"),
    ],
)
def test_values_are_read_as_pflag_reads_them(arguments: list[str], values: dict[str, tuple[str, ...]]) -> None:
    assert FLAGS.parse(arguments).values == values


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--colr=blue"], "unknown flag: --colr; program v1 has no such flag; did you mean --color?", id="a misspelt flag"),
        pytest.param(["--foo"], "unknown flag: --foo; program v1 has no such flag; remove it from Args", id="an unknown flag"),
        pytest.param(["-x"], "unknown flag: -x;", id="an unknown short flag"),
        pytest.param(["--port=80"], "unknown flag: --port;", id="a flag of an older version with a value that needs it"),
        pytest.param(["--color"], "flag needs an argument: --color; write --color=VALUE", id="a flag without its value"),
        pytest.param(["--loud=maybe"], "--loud", id="a boolean that is none"),
        pytest.param(["--size=big"], 'invalid argument "big" for "--size" flag', id="a number that is none"),
        pytest.param(["x", "y"], '"program" does not take any arguments, got ["x" "y"]', id="positional arguments"),
        pytest.param(
            ["--loud", "true"], '"program" does not take any arguments, got ["true"]', id="a boolean's value as the next argument"
        ),
        pytest.param(["--", "x"], '"program" does not take any arguments, got ["x"]', id="arguments after two dashes"),
        pytest.param(["--shadow-copies=2"], "does not implement --shadow-copies=2: make them yourself", id="a refused flag"),
        pytest.param(
            ["--mirror=false", "--shadow_copies=2"],
            "--mirror=false: buy one; nor --shadow-copies=2: make them yourself",
            id="two refused flags, one written with an underscore",
        ),
    ],
)
def test_an_unknown_flag_is_refused_by_name(arguments: list[str], message: str) -> None:
    with pytest.raises(FlagError, match=re.escape(message)):
        FLAGS.parse(arguments)


@pytest.mark.parametrize(
    "argument",
    [
        pytest.param("--mirror=true", id="a refused boolean"),
        pytest.param("--mirror", id="a refused boolean without a value"),
        pytest.param("--shadow-copies=0", id="zero of a refused number"),
        pytest.param("--port=0", id="a flag of an older version"),
    ],
)
def test_a_value_that_asks_for_the_default_is_harmless(argument: str) -> None:
    line = FLAGS.parse([argument])
    assert line.values == {}
    assert line.harmless[0][0].startswith(argument)


def test_etcd_takes_flags_with_one_dash_too() -> None:
    assert ETCD.parse(["-data-dir", "x", "--unsafe-no-fsync=true"]).values == {"data-dir": ("x",), "unsafe-no-fsync": ("true",)}


@pytest.mark.parametrize(
    ("flags", "searched", "expected"),
    [
        pytest.param(APISERVER, "insecure-port", False, id="the insecure port of old servers is not there"),
        pytest.param(APISERVER, "secure-port", True, id="the secure port is there"),
        pytest.param(ETCD, "unsafe-no-fsync", True, id="etcd's switch for fsync is there"),
    ],
)
def test_envtest_finds_flags_in_the_help(flags: FlagSet, searched: str, expected: bool) -> None:
    # How envtest searches: controller-runtime, State.CheckFlag.
    assert bool(re.search(rf"(?m)^\s*--{searched}\b", flags.help())) is expected


@pytest.mark.parametrize(
    "gates",
    [
        pytest.param("WatchList=true", id="a gate that is on"),
        pytest.param("CBORServingAndStorage=false,kube:WatchList=true", id="a gate that is off, and one of a component"),
        pytest.param("MutatingAdmissionPolicy=true", id="a gate that is generally available"),
    ],
)
def test_feature_gates_with_their_defaults_are_accepted(gates: str) -> None:
    check_feature_gates([gates])


@pytest.mark.parametrize(
    ("gates", "message"),
    [
        pytest.param("WatchList=false", "--feature-gates=WatchList=false: kubeloop behaves as Kubernetes 1.36 with WatchList on", id="off"),
        pytest.param("CBORServingAndStorage=true", "with CBORServingAndStorage off", id="on"),
        pytest.param("WatchLists=true", "unrecognized feature gate: WatchLists; did you mean WatchList?", id="misspelt"),
        pytest.param("Foo=true", "unrecognized feature gate: Foo; Kubernetes 1.36 has no such gate", id="unknown"),
        pytest.param("WatchList=perhaps", "'perhaps' is not a boolean", id="no boolean"),
        pytest.param("wardle:Foo=true", "component not registered: wardle", id="of another component"),
    ],
)
def test_other_feature_gates_are_refused_by_name(gates: str, message: str) -> None:
    with pytest.raises(FlagError, match=re.escape(message)):
        check_feature_gates([gates])


@pytest.mark.parametrize(
    "config",
    [
        pytest.param("apps/v1=true,v1=true,api/ga=true", id="versions that are served, switched on"),
        pytest.param("batch/v2alpha1=false,api/alpha=false,api/beta=false", id="versions that are not served, switched off"),
        pytest.param("api/legacy=true", id="the old name of the core group"),
        pytest.param("api/all=true", id="all versions"),
    ],
)
def test_a_runtime_config_that_asks_for_served_versions_is_accepted(config: str) -> None:
    check_runtime_config([config])


def test_a_runtime_config_for_all_versions_says_what_it_does_not_bring(capsys: pytest.CaptureFixture[str]) -> None:
    check_runtime_config(["api/beta=true"])
    assert "--runtime-config=api/beta=true: accepted, but no alpha or beta version is switched on by it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("config", "message"),
    [
        pytest.param("api/all=false", "--runtime-config=api/all=false: kubeloop cannot switch this off", id="no version"),
        pytest.param("batch/v1=false", "kubeloop cannot switch this off; of this group it serves batch/v1", id="a served version, off"),
        pytest.param("scheduling.k8s.io/v1alpha1=true", "it serves scheduling.k8s.io/v1", id="a version that is not served, on"),
        pytest.param("batch/v1=x", "'x' is not a boolean", id="no boolean"),
        pytest.param("apps/v1/deployments=false", "cannot switch this off", id="a single resource"),
    ],
)
def test_any_other_runtime_config_is_refused_by_name(config: str, message: str) -> None:
    with pytest.raises(FlagError, match=re.escape(message)):
        check_runtime_config([config])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(["--authorization-mode=RBAC"], "--authorization-mode=RBAC", id="a flag of kubeloop server goes through"),
        pytest.param(["--authorization-mode=Node", "--authorization-mode=RBAC"], "--authorization-mode=Node", id="all values of a list do"),
        pytest.param([], "--authorization-mode=AlwaysAllow", id="kube-apiserver's default mode allows everything"),
        pytest.param([], "--anonymous-auth=false", id="but then anonymous requests are refused"),
        pytest.param([], "--secure-port=6443", id="kube-apiserver's default port"),
        pytest.param(["--secure-port=1", "--secure-port=2"], "--secure-port=2", id="of a single value, the last one counts"),
        pytest.param(["--audit-log-path=-"], "--audit-log-maxsize=100", id="with an audit log, kube-apiserver's rotation"),
        pytest.param(["--etcd-compaction-interval=0"], "--etcd-compaction-interval=876000h", id="no compaction is one in a hundred years"),
        pytest.param(["--bind-address=127.0.0.2"], "--bind-address=127.0.0.2", id="an address of the loopback interface"),
    ],
)
def test_flags_become_those_of_kubeloop_server(arguments: list[str], expected: str) -> None:
    assert expected in server_arguments(APISERVER.parse(arguments))


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        pytest.param(["--service-account-max-token-expiration=0s"], "--service-account-max-token-expiration", id="zero for no limit"),
        pytest.param(["--token-auth-file="], "--token-auth-file", id="an empty file name"),
        pytest.param(["--authorization-mode=RBAC"], "--anonymous-auth", id="anonymous requests are allowed with RBAC"),
        pytest.param(["--feature-gates=WatchList=true", "--etcd-servers=http://x"], "--feature-gates", id="what the launcher handles"),
    ],
)
def test_what_says_the_default_is_left_out(arguments: list[str], absent: str) -> None:
    assert [one for one in server_arguments(APISERVER.parse(arguments)) if one.startswith(absent)] == []


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1", "localhost"])
def test_an_address_that_others_reach_is_refused(address: str) -> None:
    with pytest.raises(FlagError, match="--bind-address"):
        server_arguments(APISERVER.parse([f"--bind-address={address}"]))


def test_each_flag_that_is_passed_on_is_one_of_kubeloop_server() -> None:
    from kubeloop.cli.server import server
    from kubeloop.envtest.apiserver import _OWN

    known = {option for parameter in server.params for option in parameter.opts}
    passed = {f"--{flag.name}" for flag in APISERVER.flags.values() if flag.treatment is Treatment.IMPLEMENTED and flag.name not in _OWN}
    assert passed - known == set()


def test_pairs_without_a_key_are_refused() -> None:
    assert key_values(["a=1,b", "c=2"], "x") == {"a": "1", "b": "true", "c": "2"}
    with pytest.raises(FlagError, match="--x: '=1' has no key"):
        key_values(["=1"], "x")
