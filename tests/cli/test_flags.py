from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kubeloop.cli.flags import FILE, flag, with_flags


@dataclass(frozen=True, slots=True)
class _Log:
    log_file: Path | None = flag(type=FILE, help="File to write to.")
    verbose: bool = flag(False, help="Log more.")
    level: int = flag(2, "-l", "--level", type=click.IntRange(0, 4), show_default=True, help="Level.")


@dataclass(frozen=True, slots=True)
class _Names:
    name: tuple[str, ...] = flag((), metavar="NAME", help="Names.")
    color: bool = flag(True, type=click.BOOL, help="Write in colors.")


@click.command()
@with_flags(log=_Log, names=_Names)
@click.option("--dry-run", is_flag=True)
def _command(log: _Log, names: _Names, dry_run: bool) -> None:
    click.echo(f"{log} {names} {dry_run}")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param([], f"{_Log()} {_Names()} False\n", id="without flags the fields have their defaults"),
        pytest.param(["--verbose"], f"{_Log(verbose=True)} {_Names()} False\n", id="a default of False makes a flag without a value"),
        pytest.param(["--log-file", "a"], f"{_Log(log_file=Path('a'))} {_Names()} False\n", id="an underscore is a dash"),
        pytest.param(["-l", "3"], f"{_Log(level=3)} {_Names()} False\n", id="a short name"),
        pytest.param(
            ["--name", "a", "--name", "b"], f"{_Log()} {_Names(name=('a', 'b'))} False\n", id="a default of () makes it repeatable"
        ),
        pytest.param(["--color", "false"], f"{_Log()} {_Names(color=False)} False\n", id="a boolean with a value"),
        pytest.param(["--dry-run"], f"{_Log()} {_Names()} True\n", id="the command's own options stay"),
    ],
)
def test_a_command_gets_one_object_for_each_group_of_flags(line: list[str], expected: str) -> None:
    result = CliRunner().invoke(_command, line)
    assert (result.exit_code, result.output) == (0, expected)


def test_help_lists_the_flags_in_the_order_of_their_fields() -> None:
    output = CliRunner().invoke(_command, ["--help"]).output
    positions = [
        output.index(text)
        for text in ("--log-file FILE", "--verbose", "-l, --level", "[default: 2;", "--name NAME", "--color", "--dry-run")
    ]
    assert positions == sorted(positions)
    assert "File to write to." in output
