"""A ``kubeloop proxy`` in front of the server that a suite runs against.

KUBELOOP_TEST_PROXY=1 runs it without rules, =rules with idle rules, =cache without rules in caching mode. Idle rules concern every
resource and touch no object: the answers are read, rewritten and the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kubeloop.config import load_config
from tests.proxy.rules.rule_texts import rule, text_of

#: A rule that could change every object and changes none.
IDLE = rule({"set": {"status.idle": True}}, name="idle", match=[{"labelSelector": "no-object-has-this-label"}], writes="Pass")


def caching_proxy_is_wanted() -> bool:
    return os.environ.get("KUBELOOP_TEST_PROXY") == "cache"


@contextmanager
def proxied(kubeconfig: Path, folder: Path) -> Iterator[Path]:
    """Start a proxy with the user of a kubeconfig, for the context; the kubeconfig for its clients.

    Args:
        kubeconfig: The server.
        folder: An empty folder for the proxy's files.
    """
    target, rules = folder / "kubeconfig", folder / "rules.yaml"
    command = [
        sys.executable,
        "-m",
        "kubeloop",
        "proxy",
        "--kubeconfig",
        str(kubeconfig),
        "--kubeconfig-out",
        str(target),
        "--exit-with-stdin",
    ]
    if os.environ.get("KUBELOOP_TEST_PROXY") == "rules":
        rules.write_text(text_of(IDLE))
        command += ["--rules", str(rules)]
    if caching_proxy_is_wanted():
        command.append("--cache")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        try:
            assert process.stdout is not None
            line = process.stdout.readline().decode()
            assert line.startswith("ready "), (folder / "log").read_text()
            yield target
        finally:
            process.communicate(timeout=30)


def authority_file(kubeconfig: Path) -> Path:
    """Return a file with the authority of a kubeconfig's server, beside it."""
    authority = load_config(kubeconfig).ca
    assert authority is not None
    file = kubeconfig.with_suffix(".ca.crt")
    file.write_bytes(authority.read())
    return file
