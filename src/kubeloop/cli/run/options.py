"""The options that ``kubeloop run`` (the starter) passes to the process of the program."""

from __future__ import annotations

import msgspec


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one run of the program.

    ``embedded``: the cluster belongs to ``kubeloop run``, so kinds and ``manifests`` are installed there. ``lifeline``: a pipe that closes
    when the starter has died, which ends the program. ``imports``: a file for the paths of the imported modules. ``grace``: grace period
    in seconds. ``webhook_url``: the address at which the cluster reaches the program's webhooks.
    """

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


#: Exit statuses besides 0: the program or its code failed; the command line must change.
FAILED = 1
MISUSED = 2
