"""What one run of the program is told by the process that starts it."""

from __future__ import annotations

import msgspec


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """``embedded``: the cluster is ours, so kinds and ``manifests`` are installed there. ``lifeline``: a pipe that ends when the program is
    to end, as whoever started it has gone. ``imports``: a file for the paths of the modules that are imported. ``grace``: seconds.
    ``webhook_url``: where the cluster reaches webhooks of the program."""

    target: str
    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    settings: str = ""
    leader_election: bool = False
    embedded: bool = False
    manifests: tuple[str, ...] = ()
    live: bool = False
    verbose: bool = False
    grace: float = 10.0
    lifeline: int = -1
    imports: int = -1
    webhook_url: str = ""


#: Ends of a run beside 0: what it ran, or its code, failed; the command line has to be another.
FAILED = 1
MISUSED = 2
