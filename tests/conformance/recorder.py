"""Records scenarios from a real server: ``python -m tests.conformance --set with-scheduler --record [NAME ...]``.

A fresh kube-apiserver with etcd, and beside it kube-controller-manager and, for ``with-scheduler``, kube-scheduler. The set ``plain`` needs
a server that compacts its store on request; see README.md.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from kubeloop.config import load_config
from tests.conformance import recordings
from tests.conformance.scenario import Run, scenarios, write_tokens
from tests.conformance.wire import Server
from tests.realserver.building import binaries
from tests.realserver.controller_manager import controller_manager
from tests.realserver.kube_scheduler import kube_scheduler
from tests.realserver.serving import real_server
from tests.servers import ServerUnderTest

#: Seconds until a step that waits for something gives up.
_PATIENCE = 15.0


def record(which: str, only: tuple[str, ...], folder: Path) -> list[str]:
    """Record the scenarios of a set whose names begin with one of ``only`` (all if it is empty).

    Args:
        which: ``with-controllers`` or ``with-scheduler``.
        only: Beginnings of names.
        folder: The folder of the scenarios.

    Returns:
        The answers that the scripts did not expect.
    """
    surprises: list[str] = []
    with tempfile.TemporaryDirectory() as home, contextlib.ExitStack() as stack:
        tokens = Path(home, "tokens.csv")
        write_tokens(tokens)
        kubeconfig = stack.enter_context(real_server(binaries(), [f"--token-auth-file={tokens}"]))
        stack.enter_context(controller_manager(ServerUnderTest(kubeconfig)))
        if which == "with-scheduler":
            stack.enter_context(kube_scheduler(kubeconfig))
        url = load_config(kubeconfig).server
        server = Server(url, str(kubeconfig.parent / "ca.crt"), tokens, "")
        for name, scenario in scenarios(folder):
            if not only or name.startswith(only):
                run = Run(server, scenario, name, _PATIENCE)
                recordings.save(recordings.path_of(which, name), run.run())
                surprises += run.surprises
                print(f"recorded {name}", flush=True)
        server.close()
    return surprises
