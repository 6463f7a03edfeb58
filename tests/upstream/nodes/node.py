"""One real node: containerd, kubelet and the files of ``kubeloop server node-config``, in namespaces of a test."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.realserver.building import CannotBuild
from tests.upstream.nodes.images import PAUSE
from tests.upstream.nodes.namespaces import Namespaces

#: Seconds until a program must have started; machines that build at the same time are slow.
_PATIENCE = 300.0
#: Pods of all nodes.
POD_RANGE = "10.250.0.0/16"

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
#: What this machine needs beside the files of ``kubeloop server node-config``: a kubelet without systemd, below a separate cgroup.
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
# The nodes share a network.
address: {address}
healthzPort: {health_port}
"""
#: Namespaces may not set the machine's limits of connections.
_CONNTRACK = "conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}\n"
#: Nothing answers there: names outside of the cluster are not found.
_RESOLVER = "nameserver 192.0.2.53\n"


@dataclass(frozen=True)
class RealNode:
    """One node, by its number from 1. ``home`` has its files and logs, ``environment`` is that of its programs."""

    number: int
    namespaces: Namespaces
    home: Path
    environment: Mapping[str, str]

    @property
    def name(self) -> str:
        """Return the name of the Node."""
        return node_name(self.number)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command inside, and return it with its output."""
        return subprocess.run(self.namespaces.command(*words), capture_output=True, text=True, env=self.environment)

    def start(self, stack: contextlib.ExitStack, name: str, *command: str) -> Callable[[], bool]:
        """Start a program inside until the end of the stack; its log is NAME.log. Returns whether it still runs."""
        log = stack.enter_context((self.home / f"{name}.log").open("w"))
        process = subprocess.Popen(
            self.namespaces.command(*command), stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self.environment
        )
        stack.callback(process.wait)
        stack.callback(process.kill)
        return lambda: process.poll() is None

    def join(self, stack: contextlib.ExitStack, administrator: Path, cgroup: str, built: Path, images: Sequence[Path]) -> None:
        """Start containerd with images and the kubelet, and wait until the Node is ready.

        Args:
            stack: Ends the programs.
            administrator: The kubeconfig of the server.
            cgroup: The cgroup of all pods.
            built: The folder of the programs.
            images: Archives of images.
        """
        self._write_settings(cgroup)
        alive = self.start(stack, "containerd", str(built / "containerd"), "--config=/etc/containerd.toml")
        ctr = [str(built / "ctr"), "--namespace=k8s.io"]
        self.wait("containerd", alive, lambda: self.run(*ctr, "version").returncode == 0)
        for archive in images:
            check(self.run(*ctr, "image", "import", str(archive)), f"import of {archive.name}")
        joining = ["node-config", self.name, f"--kubeconfig={administrator}", f"--node-ip={node_address(self.number)}"]
        joining += [f"--out={self.home / self.name}", f"--cluster-cidr={POD_RANGE}"]
        check(self.run(sys.executable, "-m", "kubeloop", "server", *joining), "kubeloop server node-config")
        self.start(stack, "kubelet", str(self.home / self.name / "start-kubelet.sh"), "--config-dir=/etc/kubelet.conf.d")
        check(
            self.run(sys.executable, "-m", "tests.upstream.nodes.checks", str(administrator), "node", self.name),
            f"the start of {self.name}",
        )

    def start_proxy(self, stack: contextlib.ExitStack) -> Callable[[], bool]:
        """Start kube-proxy. Returns whether it still runs."""
        with (self.home / self.name / "kube-proxy.yaml").open("a") as settings:
            settings.write(_CONNTRACK)
        return self.start(stack, "kube-proxy", str(self.home / self.name / "start-kube-proxy.sh"))

    def wait(self, name: str, alive: Callable[[], bool], ready: Callable[[], bool]) -> None:
        """Wait until a program is ready.

        Raises:
            CannotBuild: It ended, or it was not ready in time.
        """
        deadline = time.monotonic() + _PATIENCE
        while not ready():
            if not alive() or time.monotonic() > deadline:
                raise CannotBuild(f"{name} {'was not ready in time' if alive() else 'ended'}; see {self.home / name}.log")
            time.sleep(0.2)

    def _write_settings(self, cgroup: str) -> None:
        """Write what the programs read in /etc."""
        address = node_address(self.number)
        hosts = "".join(f"{node_address(number)} {node_name(number)}\n" for number in range(1, 10))
        files = {
            "containerd.toml": _CONTAINERD,
            "cni/net.d/10-pods.conflist": json.dumps(_network(self.number)),
            "kubelet.conf.d/10-cgroup.conf": _KUBELET.format(cgroup=cgroup, address=address, health_port=10200 + self.number),
            "resolv.conf": _RESOLVER,
            "hosts": f"127.0.0.1 localhost {os.uname().nodename}\n{hosts}",
        }
        for name, content in files.items():
            script = 'mkdir -p "${1%/*}"; rm -f "$1"; cat > "$1"'
            subprocess.run(self.namespaces.command("sh", "-c", script, "sh", f"/etc/{name}"), input=content, text=True, check=True)


def node_name(number: int) -> str:
    """Return the name of a node by its number."""
    return f"node-{number}"


def node_address(number: int) -> str:
    """Return the IP address of a node by its number."""
    return f"192.168.77.{10 + number}"


def check(done: subprocess.CompletedProcess[str], action: str) -> None:
    """Raise CannotBuild if a command failed."""
    if done.returncode:
        raise CannotBuild(f"{action} failed:\n{done.stdout}{done.stderr}")


def _network(number: int) -> dict[str, object]:
    """Return the CNI configuration: a bridge and a range of addresses for each node."""
    ranges = [[{"subnet": f"10.250.{number}.0/24"}]]
    ipam = {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]}
    bridge = {"type": "bridge", "bridge": f"cni{number}", "isGateway": True, "hairpinMode": True, "ipam": ipam}
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": f"pods{number}", "plugins": [bridge, ports]}
