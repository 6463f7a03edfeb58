"""kubeloop's public informer beside its peers: one client at a time, the same pods, rounds interleaved, CPU time.

python -m bench            the table of all targets, about 10 minutes
python -m bench requests   the client's plain requests beside its peers, about 5 minutes
python -m bench controllers  a controller beside controller-runtime and kopf, about 10 minutes
python -m bench queues     the work queues beside client-go's and controller-runtime's, about half a minute
python -m bench million    1,000,000 pods, about 3 minutes
python -m bench servers    the embedded API server beside kube-apiserver with etcd, about 3 minutes
python -m bench scheduler  the scheduler beside kube-scheduler: 5,000 pods on 500 nodes, about 10 minutes
python -m bench guarded    the same as a user with rights from a role, with an audit log and a policy
python -m bench controlplane  a Deployment of 1,000 replicas beside Kubernetes' own control plane and kwok, about 7 minutes
python -m bench idle       1,000 nodes and 10,000 pods of which none changes, about 8 minutes
python -m bench process-pod  a Deployment of one process pod, from kubectl apply to Ready, a quarter of a minute
python -m bench bitcoin    the bitcoin operator: three real daemons, 50 nodes that do not change, 200 networks at start; about 5 minutes
python -m bench ingress    the ingress controller with 1,000 Ingresses of 10 paths, on NGINX with Lua and without, about 6 minutes
python -m bench proxy      the proxy beside kubectl proxy and mitmproxy, about 10 minutes
python -m bench stations   where the time of one event goes, in one process
python -m bench plots      docs/plots/*.svg from the last results
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console

from bench import (
    bitcoin,
    clients,
    controllers,
    controlplane,
    ingress,
    operators,
    plots,
    prepare,
    proxy,
    queues,
    report,
    requests,
    scheduler,
    servers,
    stations,
    targets,
)
from bench.clients import Peer, Stage
from bench.figures import Run, figures, queries
from bench.replay import Replay, wait_quiet

#: Others may use this share of the machine while a client runs; above it we wait.
_QUIET = 0.15


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = ["all", "requests", "controllers", "queues", "million", "servers", "scheduler", "guarded", "controlplane", "idle"]
    kinds += ["process-pod", "bitcoin", "ingress", "proxy", "stations", "plots"]
    parser.add_argument("what", nargs="?", default="all", choices=kinds)
    parser.add_argument("--stage", action="append", choices=[stage.name for stage in clients.STAGES], help="these only (may be repeated)")
    parser.add_argument("--only", action="append", metavar="CLIENT", help="clients whose names begin so (may be repeated)")
    parser.add_argument("--rounds", type=int, default=int(os.environ.get("KUBELOOP_BENCH_ROUNDS", "0")), help="instead of each stage's own")
    parser.add_argument("--scale", type=int, default=1, help="divide pods and events by this: a smoke run, not a measurement")
    parser.add_argument("--patience", type=float, default=20, help="seconds to wait for a quiet machine before each run")
    parser.add_argument("--results", type=Path, help="where figures are kept (bench/.build/results.json; smoke.json of a smoke run)")
    parser.add_argument("--judge", action="store_true", help="exit with status 1 if a target is not met")
    args = parser.parse_args()
    args.results = args.results or prepare.BUILD / ("results.json" if args.scale == 1 else "smoke.json")
    return args


class _Bench:
    def __init__(self, args: argparse.Namespace, console: Console) -> None:
        self._args = args
        self._console = console
        self._missing: dict[str, str] = {}
        self._targets: list[targets.Target] = []
        self.results = report.Results(args.results)

    def prepare(self, peers: list[Peer]) -> None:
        """Raises CannotPrepare: without Go there is no server to measure against."""
        self._missing = prepare.peers(["go", *(peer.needs for peer in peers)])
        if "go" in self._missing:
            raise prepare.CannotPrepare(self._missing["go"])

    def peers(self, stage: Stage) -> list[Peer]:
        return [peer for peer in stage.peers if not self._args.only or peer.name.startswith(tuple(self._args.only))]

    def stage(self, stage: Stage) -> None:
        args = self._args
        packed, events = max(1, stage.packed // args.scale), max(1, stage.events // args.scale)
        data = prepare.pods(packed, max(events, 20_000 // args.scale) if stage.packed > 2000 else events)
        runs: dict[str, list[Run]] = {}
        failed: dict[str, str] = {}
        rounds = args.rounds or stage.rounds
        with Replay(data, stage.copies) as replay:
            for number in range(rounds):
                for peer in self.peers(stage):
                    if peer.needs in self._missing:
                        failed[peer.name] = self._missing[peer.needs]
                        continue
                    share = wait_quiet(_QUIET, args.patience)
                    noisy = f", others use {share:.0%} of the machine" if share > _QUIET else ""
                    self._console.print(f"[dim]{stage.name}, round {number + 1} of {rounds}: {peer.name}{noisy}")
                    try:
                        run = replay.run(peer, events=events, tls=stage.tls)
                    except RuntimeError as error:
                        failed[peer.name] = str(error)
                        self._console.print(str(error), style="red", markup=False, highlight=False)
                    else:
                        runs.setdefault(peer.name, []).append(run)
        if clients.KUBELOOP_QUERIES.name in runs:
            found = queries(runs.pop(clients.KUBELOOP_QUERIES.name))
            self.results.put("queries", stage.name, asdict(found))
            self._judge("queries", list(targets.reading(found)))
        if runs or failed:
            informers = {name: figures(each) for name, each in runs.items() if each}
            self.results.put("runs", stage.name, runs)
            self.results.put("stages", stage.name, {name: asdict(each) for name, each in informers.items()})
            how = "TLS" if stage.tls else "HTTP"
            report.show_informers(self._console, f"{packed * stage.copies:,} pods, {events:,} events, {how}", informers, failed)

    def starts(self) -> None:
        samples: dict[str, list[float]] = {}
        with Replay(prepare.pods(10_000 // self._args.scale, 20_000 // self._args.scale)) as replay:
            for _ in range(7):
                for peer in clients.STARTERS:
                    if peer.needs not in self._missing:
                        samples.setdefault(peer.name, []).append(replay.start(peer))
        starts = {name: statistics.median(each) for name, each in samples.items()}
        self.results.put("starts", "cpu_s", starts)
        report.show_starts(self._console, starts)
        self._judge("starts", list(targets.starts(starts)))

    def requests(self) -> bool:
        """The client beside its peers, request by request; whether each target was met."""
        args = self._args
        missing = prepare.peers(["go", *(peer.needs for peer in requests.REQUESTS.values())])
        if "go" in missing:
            raise prepare.CannotPrepare(missing["go"])
        sizes = requests.Sizes().smaller(args.scale)
        if args.rounds:
            sizes = replace(sizes, rounds=args.rounds)
        bench = requests.Requests(sizes, missing, lambda text: self._console.print(f"[dim]{text}"))
        found = bench.run(args.only or ())
        self.results.put("requests", "us", found)
        requests.show(self._console, f"{sizes.pods:,} pods over TLS, CPU for one; medians of {sizes.rounds}", found, bench.failed)
        self._console.print(f"[dim]the middle half of kubeloop's samples lies within {bench.noise():.0%} of their median")
        self._judge("requests", list(requests.judge(found)))
        report.show_targets(self._console, self._targets)
        return all(target.met is not False for target in self._targets)

    def controllers(self) -> bool:
        """A controller beside its peers; whether each target was met."""
        args = self._args
        missing = prepare.peers(["go", *(peer.needs for peer in controllers.PEERS)])
        if "go" in missing:
            raise prepare.CannotPrepare(missing["go"])
        pods = 10_000 // args.scale
        found, failed = controllers.measure(
            pods=pods, rounds=args.rounds or 3, only=args.only or (), missing=missing, say=lambda text: self._console.print(f"[dim]{text}")
        )
        self.results.put("controllers", "figures", {name: asdict(each) for name, each in found.items()})
        controllers.show(self._console, f"{pods:,} pods, an event for each, HTTP", found, failed)
        self._judge("controllers", list(controllers.judge(found)))
        without = {operators.KOPF_NAME: missing["kopf"]} if "kopf" in missing else {}
        foos = 200 // min(args.scale, 20)
        lives, failed = operators.run(foos, args.rounds or 3, args.only or (), without, lambda text: self._console.print(f"[dim]{text}"))
        self.results.put("operators", "figures", {name: asdict(each) for name, each in lives.items()})
        operators.show(self._console, f"one operator, written twice; {foos} Foos", lives, failed)
        self._judge("operators", list(operators.judge(lives)))
        report.show_targets(self._console, self._targets)
        return all(target.met is not False for target in self._targets)

    def queues(self) -> bool:
        """The work queues beside their peers; whether each target was met."""
        count = 100_000 // self._args.scale
        rounds = self._args.rounds or 5
        found = queues.measure(
            count=count, rounds=rounds, timeout=self._args.patience, say=lambda text: self._console.print(f"[dim]{text}")
        )
        self.results.put("queues", "us", found)
        queues.show(self._console, f"{count:,} distinct keys", found)
        self._judge("queues", list(queues.judge(found)))
        report.show_targets(self._console, self._targets)
        return all(target.met is not False for target in self._targets)

    def scheduler(self) -> bool:
        """The scheduler beside kube-scheduler; whether each target was met."""
        scale = self._args.scale
        pods, nodes = 5000 // scale, max(500 // scale, 10)
        found = scheduler.measure(pods=pods, nodes=nodes, only=self._args.only or (), say=lambda text: self._console.print(f"[dim]{text}"))
        self.results.put(
            "scheduler", "figures", {stage: {name: asdict(one) for name, one in each.items()} for stage, each in found.items()}
        )
        scheduler.show(self._console, f"{pods:,} pods on {nodes} nodes, the embedded server", found)
        self._judge("scheduler", list(scheduler.judge(found)))
        report.show_targets(self._console, self._targets)
        return all(target.met is not False for target in self._targets)

    def servers(self, section: str) -> bool:
        """The embedded server in memory and on disk, and the real one; whether each target was met."""
        scale, guarded = self._args.scale, section == "guarded"
        found = {}
        for name in (servers.MEMORY, servers.DISK, servers.REAL):
            self._console.print(f"[dim]{name}")
            fill = 100_000 // scale if name == servers.MEMORY and not guarded else 0
            found[name] = servers.measure(name, requests=2000 // scale, pods=500 // scale, fill=fill, guarded=guarded)
            self.results.put(section, name, found[name].as_json())
        report.show_servers(self._console, found)
        self._judge(section, list(targets.servers(found)))
        report.show_targets(self._console, self._targets)
        return all(target.met is not False for target in self._targets)

    def controlplane(self) -> bool:
        """The control plane beside Kubernetes' own; whether each target was met."""
        replicas, nodes = 1000 // self._args.scale, max(1, 100 // self._args.scale)
        runs: dict[str, list[controlplane.ControlPlaneRun]] = {
            name: [] for name in (controlplane.KUBELOOP, controlplane.TWO_PROCESSES, controlplane.REAL)
        }
        for number in range(1, (self._args.rounds or 3) + 1):
            for name, measured in runs.items():
                self._console.print(f"[dim]round {number}: {name}")
                measured.append(controlplane.measure(name, replicas=replicas, nodes=nodes))
        found = {name: controlplane.median_of(measured) for name, measured in runs.items()}
        for name, median in found.items():
            self.results.put("controlplane", name, median.as_json())
        report.show_control_planes(self._console, replicas, nodes, found)
        self._judge("controlplane", list(targets.control_planes(found)))
        report.show_targets(self._console, self._targets)
        return all(target.met is not False for target in self._targets)

    def idle(self) -> bool:
        """A large cluster in which nothing changes; whether the target was met."""
        nodes, pods = max(1, 1000 // self._args.scale), 10_000 // self._args.scale
        found = controlplane.measure_idle(nodes=nodes, pods=pods)
        self.results.put("idle", controlplane.KUBELOOP, asdict(found))
        report.show_idle(self._console, nodes, pods, found)
        self._judge("idle", [targets.idle_cluster(found)])
        report.show_targets(self._console, self._targets)
        return all(target.met is not False for target in self._targets)

    def process_pod(self) -> bool:
        """A Deployment of one process pod, from kubectl apply to Ready; whether the target was met."""
        found = controlplane.measure_process_pod(rounds=self._args.rounds or 7)
        self.results.put("process-pod", controlplane.KUBELOOP, {"seconds": found})
        report.show_process_pod(self._console, found)
        self._judge("process-pod", [targets.process_pod(found)])
        report.show_targets(self._console, self._targets)
        return all(target.met is not False for target in self._targets)

    def bitcoin(self) -> bool:
        """The bitcoin operator; whether each target was met."""
        found = bitcoin.measure_bitcoin(nodes=max(1, 50 // self._args.scale), networks=max(1, 200 // self._args.scale))
        self.results.put("bitcoin", controlplane.KUBELOOP, asdict(found))
        report.show_bitcoin(self._console, found)
        self._judge("bitcoin", list(targets.bitcoin_operator(found)))
        report.show_targets(self._console, self._targets)
        return all(target.met is not False for target in self._targets)

    def ingress(self) -> bool:
        """The ingress controller in both modes; whether each target was met."""
        found = ingress.measure_ingress(hosts=max(10, 1000 // self._args.scale), rounds=self._args.rounds or 5)
        for run in found:
            self.results.put(f"ingress {run.mode}", controlplane.KUBELOOP, asdict(run))
        report.show_ingress(self._console, found)
        self._judge("ingress", [target for run in found for target in targets.ingress(run)])
        report.show_targets(self._console, self._targets)
        return all(target.met is not False for target in self._targets)

    def proxy(self) -> bool:
        """The proxy beside its peers; whether each target was met."""
        missing = prepare.peers(["go", "mitmproxy"])
        if "go" in missing:
            raise prepare.CannotPrepare(missing["go"])
        sizes = proxy.Sizes().smaller(self._args.scale)
        if self._args.rounds:
            sizes = replace(sizes, rounds=self._args.rounds)
        found, failed, least = proxy.measure(sizes, missing, lambda text: self._console.print(f"[dim]{text}"), self._args.only or ())
        self.results.put("proxy", "figures", found)
        self.results.put("proxy", "least", least)
        proxy.show(self._console, f"{sizes.pods:,} pods, {sizes.events:,} events; medians of {sizes.rounds}", found, least, failed)
        self._judge("proxy", list(proxy.judge(found)))
        report.show_targets(self._console, self._targets)
        return all(target.met is not False for target in self._targets)

    def _judge(self, section: str, results: list[targets.Target]) -> None:
        self.results.put_targets(section, results)
        self._targets += results

    def verdict(self, which: str) -> bool:
        """Show all targets; whether each was met."""
        stages = self.results.stages()
        self._judge(which, list(targets.million(stages) if which == "million" else targets.informers(stages)))
        report.show_targets(self._console, self._targets)
        return all(target.met is not False for target in self._targets)


def main() -> int:
    args = _arguments()
    # Tables and their words of explanation need some width, in a log file too.
    console = Console() if sys.stdout.isatty() else Console(width=150)
    # Installed packages have their byte code; without it every start would measure the compiler.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    bench = _Bench(args, console)
    if args.what == "plots":
        for path in plots.write(bench.results.stages(), prepare.HERE.parent / "docs" / "plots"):
            console.print(f"wrote {path}")
        return 0
    chosen = clients.MILLION if args.what == "million" else [each for each in clients.STAGES if not args.stage or each.name in args.stage]
    try:
        if args.what == "stations":
            prepare.programs()
            stations.show(console, prepare.pods(10_000, 20_000))
            return 0
        if args.what in ("servers", "guarded"):
            prepare.programs()
            return 1 if not bench.servers(args.what) and args.judge else 0
        if args.what == "controlplane":
            return 1 if not bench.controlplane() and args.judge else 0
        if args.what == "process-pod":
            return 1 if not bench.process_pod() and args.judge else 0
        if args.what == "bitcoin":
            return 1 if not bench.bitcoin() and args.judge else 0
        if args.what == "ingress":
            return 1 if not bench.ingress() and args.judge else 0
        if args.what == "proxy":
            return 1 if not bench.proxy() and args.judge else 0
        if args.what == "idle":
            return 1 if not bench.idle() and args.judge else 0
        if args.what == "scheduler":
            return 1 if not bench.scheduler() and args.judge else 0
        if args.what == "queues":
            prepare.programs()
            return 1 if not bench.queues() and args.judge else 0
        if args.what == "controllers":
            return 1 if not bench.controllers() and args.judge else 0
        if args.what == "requests":
            return 1 if not bench.requests() and args.judge else 0
        bench.prepare([peer for stage in chosen for peer in bench.peers(stage)])
        for stage in chosen:
            bench.stage(stage if args.scale == 1 else replace(stage, copies=min(2, stage.copies)))
        if args.what == "all" and not args.stage and not args.only:
            bench.starts()
        met = bench.verdict("million" if args.what == "million" else "informers")
    except prepare.CannotPrepare as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    return 1 if args.judge and not met else 0


if __name__ == "__main__":
    sys.exit(main())
