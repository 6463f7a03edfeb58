"""The names of controllers: kube-controller-manager's, and the flag --controllers."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeloop.controlplane.catalogue import (
    KNOWN_CONTROLLERS,
    OWN_CONTROLLERS,
    ClusterKeys,
    ClusterTrust,
    create_controllers,
    select_controllers,
)
from kubeloop.meta import ConfigError
from kubeloop.pki import CertificateAuthority, SigningKey

_OURS = {name for name, entry in KNOWN_CONTROLLERS.items() if entry.create is not None}
_BY_DEFAULT = {name for name in _OURS if KNOWN_CONTROLLERS[name].on_by_default}
_NEED_KEYS = {"CertificateSigner", "TokenSecretController", "TokenReferenceController", "RootCertificatePublisher"}


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        pytest.param("*", _BY_DEFAULT, id="a star selects all that are on by default"),
        pytest.param("deployment-controller", {"deployment-controller"}, id="a name selects one"),
        pytest.param("deployment, replicaset", {"deployment-controller", "replicaset-controller"}, id="aliases and blanks are allowed"),
        pytest.param("*,-namespace", _BY_DEFAULT - {"namespace-controller"}, id="a dash deselects"),
        pytest.param("-namespace,*", _BY_DEFAULT - {"namespace-controller"}, id="the order of star and dash is of no importance"),
        pytest.param("namespace,-namespace", {"namespace-controller"}, id="the first that names a controller counts"),
        pytest.param("*,-selinux-warning-controller", _BY_DEFAULT, id="a controller that kubeloop lacks can be deselected"),
        pytest.param("-namespace", set(), id="without a star only named controllers run"),
        pytest.param("*,-default-scheduler", _BY_DEFAULT - {"default-scheduler"}, id="the scheduler has a name, too"),
    ],
)
def test_selection(flag: str, expected: set[str]) -> None:
    assert select_controllers(flag) == expected


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        pytest.param("*,-jobs", r'--controllers: "jobs" is not in the list of known controllers; these can .*', id="unknown name"),
        pytest.param("", r'--controllers: "" is not in the list of known controllers; .*', id="empty"),
        pytest.param("selinux-warning-controller", "--controllers: kubeloop has no selinux-warning-controller; docs/.*", id="missing"),
    ],
)
def test_a_name_that_selects_nothing_is_refused(flag: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}$"):
        select_controllers(flag)


def test_controllers_that_need_a_key_are_left_out_without_one() -> None:
    without = create_controllers(_OURS, ClusterTrust())
    assert not {type(one).__name__ for one in without} & _NEED_KEYS
    keys = ClusterKeys(CertificateAuthority.create("test"), SigningKey.create())
    created = {type(one).__name__ for one in create_controllers(_OURS, ClusterTrust("PEM", keys))}
    assert created - {type(one).__name__ for one in without} == _NEED_KEYS


def test_the_documentation_lists_every_controller_and_whether_it_is_here() -> None:
    page = (Path(__file__).parents[2] / "docs" / "server.md").read_text()
    section = page.partition("\n## Controllers\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")][2:]
    listed = {name: (present == "yes") for name, _, present, _ in rows}
    assert listed == {name: entry.create is not None for name, entry in KNOWN_CONTROLLERS.items() if name not in OWN_CONTROLLERS}
