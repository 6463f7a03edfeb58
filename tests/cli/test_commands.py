"""All commands alike: help, corrections, completion in real shells, and messages instead of tracebacks for arguments that are wrong."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kubeloop.cli import main
from kubeloop.cli.group import CommandGroup
from kubeloop.codec import write_yaml


def _commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            found = command.get_command(ctx, name)
            assert found is not None
            yield from _commands(found, (*path, name))


ALL = dict(_commands(main))
#: Written by the data's maintainers only.
HIDDEN = {("generate", "schema"), ("generate", "protobuf")}


@pytest.mark.parametrize("path", ALL, ids=lambda path: " ".join(path) or "kubeloop")
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_every_command_has_help(path: tuple[str, ...], option: str) -> None:
    result = CliRunner().invoke(main, [*path, option], terminal_width=80)
    assert result.exit_code == 0, result.output
    assert result.output.startswith("Usage: ")
    assert "..." not in result.output.split("Commands:")[-1] or "Commands:" not in result.output, "a command's help is cut off"


@pytest.mark.parametrize("path", ALL, ids=lambda path: " ".join(path) or "kubeloop")
def test_a_command_that_is_called_without_the_root_has_help_too(path: tuple[str, ...]) -> None:
    context = ALL[path].make_context(path[-1] if path else "kubeloop", [], resilient_parsing=True)
    assert context.help_option_names == ["-h", "--help"]


@pytest.mark.parametrize("path", sorted(HIDDEN), ids=" ".join)
def test_commands_of_maintainers_work_and_are_not_listed(path: tuple[str, ...]) -> None:
    assert ALL[path].hidden
    listed = CliRunner().invoke(main, [*path[:-1], "-h"]).output.partition("Commands:")[2]
    assert path[-1] not in listed
    assert "Missing option" in CliRunner().invoke(main, path).output


def test_nothing_else_is_hidden() -> None:
    assert {path for path, command in ALL.items() if command.hidden} == HIDDEN


def test_ctrl_c_ends_a_command_with_the_status_of_the_signal_and_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(**options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ALL["doctor",], "callback", interrupted)
    result = CliRunner().invoke(main, ["doctor"])
    assert (result.exit_code, result.output) == (130, "")


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        pytest.param(["doctro"], "No such command 'doctro'. Did you mean 'doctor'?", id="a command"),
        pytest.param(["generate", "modles"], "No such command 'modles'. Did you mean 'models'?", id="a command of a group"),
        pytest.param(["server", "snapshot", "sav"], "No such command 'sav'. Did you mean 'save'?", id="a command of a group in a group"),
        pytest.param(["config", "get-context"], "Did you mean 'get-contexts'?", id="a plural"),
        pytest.param(["frobnicate"], "The commands are add, completion, config,", id="a command that is like no other"),
        pytest.param(["new", "op"], "No such command 'op'. Did you mean 'operator'?", id="the beginning of a command"),
        pytest.param(["new", "web"], "No such command 'web'. The only command is 'operator'.", id="a group of one command"),
        pytest.param(["watch", "--namespce", "x", "pods"], "'--namespace'", id="an option"),
        pytest.param(["completion", "bahs"], "'bahs' is not one of 'bash', 'zsh', 'fish'", id="a shell"),
    ],
)
def test_the_error_for_a_misspelt_word_has_the_right_one(typed: list[str], message: str) -> None:
    result = CliRunner().invoke(main, typed)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


@pytest.mark.parametrize("group", [CommandGroup("all"), CommandGroup("all", {"secret": click.Command("secret", hidden=True)})])
def test_a_group_without_visible_commands_proposes_none(group: CommandGroup) -> None:
    result = CliRunner().invoke(group, ["frobnicate"])
    assert (result.exit_code, result.output.splitlines()[-1]) == (2, "Error: No such command 'frobnicate'.")


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """The environment of a shell that finds kubeloop."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "kubeloop"
    program.write_text(f"#!{sys.executable}\nfrom kubeloop.cli import main\nmain(prog_name='kubeloop')\n")
    program.chmod(0o755)
    return {
        **os.environ, "HOME": str(tmp_path), "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(sys.path)
    }  # fmt: skip


_BASH = """
eval "$(kubeloop completion bash)"
complete -p kubeloop > /dev/null || exit 1
COMP_WORDS=(kubeloop {words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_kubeloop_completion kubeloop
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        pytest.param("d", ["descriptions", "doctor"], id="a command"),
        pytest.param("generate ''", ["crd", "models", "rbac", "roles", "webhooks"], id="commands of a group, not those of maintainers"),
        pytest.param("watch --all-", ["--all-namespaces", "--all-fields"], id="options"),
        pytest.param("watch -o ''", ["text", "json", "name"], id="values of an option"),
    ],
)
def test_bash_completes(shell: dict[str, str], words: str, offered: list[str]) -> None:
    done = subprocess.run(["bash", "-c", _BASH.format(words=words)], env=shell, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.split()) == sorted(offered)


@pytest.mark.parametrize("name", ["zsh", "fish"])
def test_the_other_shells_take_the_script(shell: dict[str, str], name: str) -> None:
    script = subprocess.run(["kubeloop", "completion", name], env=shell, capture_output=True, text=True, check=True).stdout
    assert "_KUBELOOP_COMPLETE=" in script
    if name == "fish":
        assert "complete --no-files --command kubeloop" in script
    else:
        assert script.startswith("#compdef kubeloop")
    if (found := shutil.which(name)) is None:
        return  # the shell is not here: what its script asks kubeloop is tested all the same, below
    file = Path(shell["HOME"]) / f"completion.{name}"
    file.write_text(script)
    done = subprocess.run([found, "-n", str(file)], env=shell, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["zsh", "fish"])
def test_what_the_scripts_ask_is_answered(shell: dict[str, str], name: str) -> None:
    asked = {"COMP_WORDS": "kubeloop generate", "COMP_CWORD": "m" if name == "fish" else "2", "_KUBELOOP_COMPLETE": f"{name}_complete"}
    if name == "fish":
        asked["COMP_WORDS"] = "kubeloop generate m"
    done = subprocess.run(["kubeloop"], env={**shell, **asked}, capture_output=True, text=True, check=True)
    assert "models" in done.stdout
    assert "protobuf" not in done.stdout


def test_fish_completes(shell: dict[str, str]) -> None:
    if (fish := shutil.which("fish")) is None:
        return
    line = 'kubeloop completion fish | source; complete --do-complete "kubeloop generate m"'
    done = subprocess.run([fish, "-c", line], env=shell, capture_output=True, text=True, check=False)
    assert done.stdout.split("\t")[0] == "models", done.stderr


_DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: books.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: books, kind: Book}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object}}}}}
"""


@pytest.fixture
def bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Files that are not what they should be, and a cluster that does not answer."""
    monkeypatch.chdir(tmp_path)
    cluster = {"name": "gone", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "gone", "context": {"cluster": "gone", "user": "me"}}
    tree = {"apiVersion": "v1", "kind": "Config", "current-context": "gone", "clusters": [cluster], "contexts": [context]}
    (tmp_path / "config").write_text(write_yaml({**tree, "users": [{"name": "me", "user": {}}]}))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "list.yaml").write_text("- 1\n- [\n")
    (tmp_path / "definition.yaml").write_text(_DEFINITION)
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    return {"config": str(tmp_path / "config")}


#: For what a text may be wrong: a number, a path, a name, a target.
WRONG = [
    "", "-1", "x", "1e400", "99999999999999999999999", "nan", "\udcff", "a/b:c", "no_such_module:x", "os:path", ":", "json:", "é", "binary",
    "empty", "list.yaml", "folder", "loop", "missing/file", "x" * 5000, "../../../../../../../proc/self/mem",
]  # fmt: skip


def _attempts(path: tuple[str, ...], command: click.Command) -> Iterator[list[str]]:
    """For each parameter each wrong value, the others left out or plausible."""
    plausible = {
        "app": "no_such_module:x", "kind": "pods", "targets": "no_such_module:x", "name": "shop", "file": "missing", "revision": "0",
        "data": "missing", "shell": "bash", "v2": "list.yaml", "v3": "list.yaml", "facts": "folder", "out": "out/x", "sources": "folder",
    }  # fmt: skip
    # The server would run: with the kubeconfig of another cluster it refuses to begin. Controllers, a kubelet and an explanation would
    # wait for their cluster: they refuse a file and a context, because one of the two may be the option that is tried. Reloading would
    # wait for a change. Models are those of one kind: without a source they would be all of Kubernetes' own, again for each value.
    always = {
        ("server",): ["--kubeconfig", "config"],
        ("controlplane",): ["--root-ca-file", "missing", "--context", "missing"],
        ("kubelet",): ["--root-dir", "binary", "--image-map", "missing", "--context", "missing"],
        ("schedule", "explain"): ["--config", "missing", "--context", "missing"],
        ("run",): ["--no-reload"],
        ("generate", "models"): ["--crd", "definition.yaml"],
    }.get(path, [])
    attempted = set()
    for wrong in command.params:
        for value in WRONG:
            args = list(always)
            for one in command.params:
                given = value if one is wrong else plausible.get(str(one.name)) if one.required else None
                if (
                    given is None
                    or (isinstance(one, click.Option) and one.is_flag)
                    or (one is wrong and one.name == "kubeconfig" and path == ("server",))
                ):
                    continue
                args += [one.opts[0], given] if isinstance(one, click.Option) else ["--", given]
            arguments = [args[at + 1] for at, word in enumerate(args[:-1]) if word == "--"]
            flags = [word for at, word in enumerate(args) if word != "--" and (at == 0 or args[at - 1] != "--")]
            attempt = [*flags, *(["--", *arguments] if arguments else [])]
            # A parameter without a value, as a flag, leaves the same command line for each of the values.
            if tuple(attempt) not in attempted:
                attempted.add(tuple(attempt))
                yield attempt


@pytest.mark.parametrize(
    "path", [path for path, one in ALL.items() if not isinstance(one, click.Group) or path == ("server",)], ids=" ".join
)
@pytest.mark.usefixtures("forked_generate")
@pytest.mark.timeout(300)  # hundreds of command lines
def test_no_argument_leads_to_a_traceback(bad: dict[str, str], path: tuple[str, ...]) -> None:
    failures = []
    for args in _attempts(path, ALL[path]):
        result = CliRunner().invoke(main, [*path, *args])
        expected = result.exception is None or isinstance(result.exception, SystemExit)
        if not expected or "Traceback" in result.output:
            failures.append((args, repr(result.exception)))
    assert failures == []
