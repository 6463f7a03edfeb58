"""A whole cluster: kubeloop's server with its own or the real control plane, and nodes with containerd, kubelet, kube-proxy and CoreDNS."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.realserver.building import binaries, directory
from tests.upstream.controlplane import commands
from tests.upstream.nodes.images import archives
from tests.upstream.nodes.namespaces import Namespaces, cgroup, namespaces
from tests.upstream.nodes.node import RealNode, check, node_address, node_name
from tests.upstream.nodes.programs import SOURCES, debian_files, programs

_KEYS = "https://kubernetes.default.svc.cluster.local/openid/v1/jwks"
_COREDNS = Path(__file__).with_name("coredns.yaml")
_FLAGS = (
    "--nodes=0",
    "--cert-dir=pki",
    "--kubelet-certificate-authority=pki/ca.crt",
    "--allow-remote-backends",
    "--enable-admission-plugins=NodeRestriction",
    # Pods do not reach the loopback address at which the server would say that its keys are.
    f"--service-account-jwks-uri={_KEYS}",
)


@dataclass(frozen=True)
class RealCluster:
    """A running cluster. ``kubeconfig`` is an administrator's; its server is reached inside the namespaces only."""

    namespaces: Namespaces
    kubeconfig: Path
    home: Path
    environment: dict[str, str]


@contextlib.contextmanager
def real_cluster(home: Path, *, nodes: int = 1, real_control_plane: bool = False) -> Iterator[RealCluster]:
    """Run a cluster with real nodes until the end of the block. All its logs are in ``home``.

    The nodes have their own mounts, processes, bridges and ranges of pod addresses, and share a network: one kube-proxy serves all.

    Args:
        home: An empty folder on a disk with some GB.
        nodes: Number of nodes.
        real_control_plane: Run kube-controller-manager and kube-scheduler in place of kubeloop's controllers and scheduler.

    Raises:
        CannotBuild: A program cannot be built, ended or was not ready in time; the message names its log.
    """
    built, debian, images = programs(), debian_files(), stand_in_images()
    environment = _environment(built, home)
    kubeconfig = home / "kubeconfig"
    with contextlib.ExitStack() as stack:
        groups = [stack.enter_context(cgroup(number)) for number in range(1, nodes + 1)]
        first = stack.enter_context(namespaces(debian, home, node_address(1)))
        node = RealNode(1, first, home, environment)
        flags = [*_FLAGS, f"--kubeconfig={kubeconfig}", *(["--no-controllers"] if real_control_plane else [])]
        alive = node.start(stack, "server", sys.executable, "-m", "kubeloop", "server", *flags)
        node.wait("server", alive, lambda: "ready http" in (home / "server.log").read_text())
        if real_control_plane:
            manager = binaries(["kube-controller-manager", "kube-scheduler"]).absolute()
            for name, command in commands(manager, kubeconfig, home / "pki", home).items():
                node.start(stack, name, *command)
        node.join(stack, kubeconfig, groups[0], built, images)
        proxy = node.start_proxy(stack)
        for number in range(2, nodes + 1):
            folder = home / f"{node_name(number)}-home"
            folder.mkdir()
            spaces = stack.enter_context(namespaces(debian, folder, node_address(number), first))
            RealNode(number, spaces, folder, environment).join(stack, kubeconfig, groups[number - 1], built, images)
        checks = [sys.executable, "-m", "tests.upstream.nodes.checks", str(kubeconfig)]
        check(node.run(*checks, "apply", str(_COREDNS)), "the start of CoreDNS")
        node.wait("kube-proxy", proxy, proxy)
        yield RealCluster(first, kubeconfig, home, environment)


def stand_in_images() -> list[Path]:
    """Return the archives of the suite's images, written now if they are not there.

    Raises:
        CannotBuild: A program cannot be built, or this is no Debian.
    """
    return archives(directory().absolute(), programs(), debian_files(), _kubernetes_sources(), binaries(["etcd"]).absolute() / "etcd")


def _environment(built: Path, home: Path) -> dict[str, str]:
    """Return the environment of programs inside: they find one another, and the project's packages."""
    root = Path(__file__).parents[3]
    return {
        "PATH": f"{built}{os.pathsep}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}",
        "HOME": str(home),
    }


def _kubernetes_sources() -> Path:
    listing = subprocess.run(
        ["go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"], cwd=SOURCES / "kubernetes", capture_output=True, text=True, check=True
    )
    return Path(listing.stdout.strip())
