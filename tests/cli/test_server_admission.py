"""Flags of ``kubeloop server`` that say which plug-ins of admission run."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from kubeloop.cli.server import server
from kubeloop.cli.server_flags import AdmissionFlags


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        pytest.param(
            ["--enable-admission-plugins=Nothing"], 'enable-admission-plugins plugin "Nothing" is unknown', id="an unknown plug-in"
        ),
        pytest.param(
            ["--enable-admission-plugins=PodNodeSelector"],
            "this server does not have the plug-in PodNodeSelector",
            id="a plugin that does not exist",
        ),
        pytest.param(
            ["--enable-admission-plugins=NodeRestriction", "--disable-admission-plugins=PodSecurity,NodeRestriction"],
            "[NodeRestriction] in enable-admission-plugins and disable-admission-plugins overlapped",
            id="one on both sides",
        ),
    ],
)
def test_the_server_does_not_start_with(flags: list[str], message: str) -> None:
    result = CliRunner().invoke(server, flags)
    assert result.exit_code == 1
    assert message in result.output


def test_lists_and_repeated_flags_are_one() -> None:
    options = AdmissionFlags(("NodeRestriction,AlwaysPullImages", "NamespaceExists"), ()).options()
    assert options.enable == ("NodeRestriction", "AlwaysPullImages", "NamespaceExists")
