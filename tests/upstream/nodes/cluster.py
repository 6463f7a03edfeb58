"""A whole cluster: kubeloop's server, controllers and scheduler, and one real node with containerd, kubelet, kube-proxy and CoreDNS."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.realserver.building import CannotBuild, directory
from tests.upstream.nodes.images import PAUSE, archives
from tests.upstream.nodes.namespaces import Namespaces, cgroup, namespaces
from tests.upstream.nodes.programs import SOURCES, debian_files, programs

NODE = "node-1"
_ADDRESS = "192.168.77.10"
_POD_RANGE = "10.250.0.0/24"
_KEYS = "https://kubernetes.default.svc.cluster.local/openid/v1/jwks"
#: Seconds until a program must have started; machines that build at the same time are slow.
_PATIENCE = 300.0
_COREDNS = Path(__file__).with_name("coredns.yaml")

_CONTAINERD = f"""
version = 3
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{PAUSE}"
[plugins.'io.containerd.cri.v1.runtime']
  netns_mounts_under_state_dir = true
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "/etc/cni/net.d"
"""
_NETWORK = {
    "cniVersion": "1.0.0",
    "name": "pods",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "hairpinMode": True,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": _POD_RANGE}]], "routes": [{"dst": "0.0.0.0/0"}]},
        },
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ],
}
#: What this machine needs beside the files of ``kubeloop server node-config``: a kubelet without systemd, below a cgroup of its own.
_KUBELET = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
cgroupRoot: {cgroup}
evictionHard: {{memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}}
imageGCHighThresholdPercent: 100
maxPods: 200
"""
#: Namespaces may not set the machine's limits of connections.
_CONNTRACK = "conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}\n"
#: Nothing answers there: names outside of the cluster are not found.
_RESOLVER = "nameserver 192.0.2.53\n"


@dataclass(frozen=True)
class RealCluster:
    """A running cluster. ``kubeconfig`` is an administrator's; its server is reached inside the namespaces only."""

    namespaces: Namespaces
    kubeconfig: Path
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of programs inside: they find one another, and the project's packages."""
        root = Path(__file__).parents[3]
        return {
            "PATH": f"{programs()}{os.pathsep}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}",
            "HOME": str(self.home),
        }

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command inside, and return it with its output."""
        return subprocess.run(self.namespaces.command(*words), capture_output=True, text=True, env=self.environment)


@contextlib.contextmanager
def real_cluster(home: Path, *, server_flags: Sequence[str] = ()) -> Iterator[RealCluster]:
    """Run a cluster with one real node until the end of the block. All its logs are in ``home``.

    Args:
        home: An empty folder on a disk with some GB.
        server_flags: Further flags of ``kubeloop server``.

    Raises:
        CannotBuild: A program cannot be built, ended or was not ready in time; the message names its log.
    """
    built, debian = programs(), debian_files()
    stand_ins = archives(directory().absolute(), built, debian, _kubernetes_sources())
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(cgroup())
        spaces = stack.enter_context(namespaces(debian, home, [_ADDRESS]))
        _write_settings(spaces, home, group)
        cluster = RealCluster(spaces, home / "kubeconfig", home)

        def start(name: str, *command: str) -> Callable[[], bool]:
            log = stack.enter_context((home / f"{name}.log").open("w"))
            process = subprocess.Popen(
                spaces.command(*command), stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=cluster.environment, cwd=home
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            return lambda: process.poll() is None

        kubeloop = [sys.executable, "-m", "kubeloop", "server"]
        flags = ["--nodes=0", "--cert-dir=pki", "--kubelet-certificate-authority=pki/ca.crt", "--allow-remote-backends"]
        # Pods do not reach the loopback address at which the server would say that its keys are.
        flags += ["--enable-admission-plugins=NodeRestriction", f"--service-account-jwks-uri={_KEYS}"]
        alive = start("server", *kubeloop, *flags, f"--kubeconfig={cluster.kubeconfig}", *server_flags)
        _await("server", alive, lambda: "ready http" in (home / "server.log").read_text(), home)
        alive = start("containerd", str(built / "containerd"), "--config=/etc/containerd.toml")
        ctr = [str(built / "ctr"), "--namespace=k8s.io"]
        _await("containerd", alive, lambda: cluster.run(*ctr, "version").returncode == 0, home)
        for archive in stand_ins:
            _check(cluster.run(*ctr, "image", "import", str(archive)), f"import of {archive.name}")
        joining = ["node-config", NODE, f"--kubeconfig={cluster.kubeconfig}", f"--node-ip={_ADDRESS}", f"--out={home / NODE}"]
        _check(cluster.run(*kubeloop, *joining, f"--cluster-cidr={_POD_RANGE}"), "kubeloop server node-config")
        with (home / NODE / "kube-proxy.yaml").open("a") as settings:
            settings.write(_CONNTRACK)
        proxy = start("kube-proxy", str(home / NODE / "start-kube-proxy.sh"))
        alive = start("kubelet", str(home / NODE / "start-kubelet.sh"), "--config-dir=/etc/kubelet.conf.d")
        checks = [sys.executable, "-m", "tests.upstream.nodes.checks", str(cluster.kubeconfig)]
        _check(cluster.run(*checks, "node", NODE), "the node's start")
        _check(cluster.run(*checks, "apply", str(_COREDNS)), "the start of CoreDNS")
        _await("kube-proxy", proxy, proxy, home)
        yield cluster


def _write_settings(spaces: Namespaces, home: Path, group: str) -> None:
    """Write what the programs read in /etc."""
    files = {
        "containerd.toml": _CONTAINERD,
        "cni/net.d/10-pods.conflist": json.dumps(_NETWORK),
        "kubelet.conf.d/10-cgroup.conf": _KUBELET.format(cgroup=group),
        "resolv.conf": _RESOLVER,
        "hosts": f"127.0.0.1 localhost {os.uname().nodename}\n{_ADDRESS} {NODE}\n",
    }
    for name, content in files.items():
        script = 'mkdir -p "${1%/*}"; rm -f "$1"; cat > "$1"'
        subprocess.run(spaces.command("sh", "-c", script, "sh", f"/etc/{name}"), input=content, text=True, check=True)
    assert (home / "etc/containerd.toml").exists()


def _kubernetes_sources() -> Path:
    listing = subprocess.run(
        ["go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"], cwd=SOURCES / "kubernetes", capture_output=True, text=True, check=True
    )
    return Path(listing.stdout.strip())


def _await(name: str, alive: Callable[[], bool], ready: Callable[[], bool], home: Path) -> None:
    """Wait until a program is ready."""
    deadline = time.monotonic() + _PATIENCE
    while not ready():
        if not alive() or time.monotonic() > deadline:
            raise CannotBuild(f"{name} {'was not ready in time' if alive() else 'ended'}; see {home / name}.log")
        time.sleep(0.2)


def _check(done: subprocess.CompletedProcess[str], action: str) -> None:
    if done.returncode:
        raise CannotBuild(f"{action} failed:\n{done.stdout}{done.stderr}")
