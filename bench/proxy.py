"""The proxy beside kubectl proxy and mitmproxy: CPU of requests that pass, and of lists and watches that are filtered or rewritten.

The replay server is the API server, and a Go program the client: neither is measured. Every proxy runs in its own process, with the rules
of one measurement, and all of them in interleaved rounds.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import prepare
from bench.proxies import KUBECTL, KUBELOOP, MITMPROXY, RELAY, RunningProxy, authority_file, load_client, running_proxy, until_idle
from bench.replay import Replay
from bench.servers import resident_mib, scheduled_seconds
from bench.targets import Target

DIRECT = "direct"

#: A program's figures: name of a measurement to microseconds of CPU for one request, object or event, or another unit that the name says.
Figures = dict[str, float]

GET, GET_8 = "get", "get, 8 connections"
LATENCY = "get, median latency, wall time"
LIST, LIST_GZIP = "list, passed", "list, passed with gzip"
LIST_UNTOUCHED, LIST_HIDDEN, LIST_SET = "list, untouched", "list, filtered by label", "list, a field set"
WATCH, WATCH_UNTOUCHED, WATCH_HIDDEN, WATCH_SET = "event, passed", "event, untouched", "event, hidden by label", "event, a field set"
PEAK = "list of many, peak above idle, MiB"
CACHED_UPSTREAM, CACHED_WATCHER, CACHED_EVENT = "cache, upstream watches", "cache, KiB a watcher", "cache, event to a watcher"

#: Labels of the pods: all have ``app``, two of five have ``team``.
_ALL, _SOME, _NONE = "app", "team", "no-such-label"
_HIDDEN_NODE = "hidden"


@dataclass(frozen=True)
class Sizes:
    """How much is measured. ``copies`` of ``pods`` are the list whose memory is measured."""

    pods: int = 10_000
    events: int = 10_000
    copies: int = 5
    requests: int = 4_000
    lists: int = 3
    rounds: int = 3
    watchers: int = 1_000

    def smaller(self, scale: int) -> Sizes:
        """Return the sizes of a smoke run, which is not a measurement."""
        if scale == 1:
            return self
        return Sizes(max(20, self.pods // scale), max(20, self.events // scale), 2, max(20, self.requests // scale), 1, 1, 20)


@dataclass(frozen=True)
class BenchRule:
    """One rule of a measurement. ``effect`` is how mitmproxy's addon gets it: ``hide=LABEL``, ``set=VALUE``, or empty."""

    effect: str = ""

    def manifest(self) -> str:
        """Return the rule for kubeloop. Without an effect it is one for another resource."""
        kind, _, value = self.effect.partition("=")
        match: dict[str, object] = {"groups": [""], "resources": ["pods" if kind else "secrets"]}
        actions: list[dict[str, object]] = [{"set": {"spec.nodeName": value}}] if kind == "set" else [{"drop": True}]
        if kind == "hide":
            match["labelSelector"] = value
        return _manifest(kind or "none", match, actions)


def _manifest(name: str, match: dict[str, object], actions: list[dict[str, object]]) -> str:
    spec = {"match": [match], "actions": actions}
    return json.dumps({"apiVersion": "proxy.kubeloop.dev/v1alpha1", "kind": "RewriteRule", "metadata": {"name": name}, "spec": spec})


PASS, HIDE_ALL, HIDE_SOME, HIDE_NONE = BenchRule(), BenchRule(f"hide={_ALL}"), BenchRule(f"hide={_SOME}"), BenchRule(f"hide={_NONE}")
SET = BenchRule(f"set={_HIDDEN_NODE}")


def measure(
    sizes: Sizes, missing: Mapping[str, str], say: Callable[[str], None], only: Sequence[str] = ()
) -> tuple[dict[str, Figures], dict[str, str], dict[str, Figures]]:
    """Measure all programs.

    Args:
        sizes: How much.
        missing: Names of peers that cannot be prepared, and why.
        say: Gets a line about each step.
        only: Programs whose names begin so. Empty: all.

    Returns:
        The medians by program; why a program failed; the smallest value of each figure by program.
    """
    samples: dict[str, dict[str, list[float]]] = {}
    failed = {MITMPROXY: missing["mitmproxy"]} if "mitmproxy" in missing else {}

    def keep(name: str, take: Callable[[], Figures]) -> None:
        try:
            for figure, value in take().items():
                samples.setdefault(name, {}).setdefault(figure, []).append(value)
        except RuntimeError as error:
            failed[name] = str(error)

    data = prepare.pods(sizes.pods, max(sizes.events, sizes.pods))
    with Replay(data) as replay:
        for number in range(sizes.rounds):
            keep(DIRECT, lambda: _direct(replay, sizes))
            for name in (KUBELOOP, KUBECTL, MITMPROXY, RELAY):
                for rule in (PASS, HIDE_SOME, HIDE_ALL, HIDE_NONE, SET):
                    if name in failed or (only and not name.startswith(tuple(only))) or (name in (KUBECTL, RELAY) and rule.effect):
                        continue
                    say(f"round {number + 1} of {sizes.rounds}: {name} {rule.effect or 'passing'}")
                    keep(name, lambda name=name, rule=rule: _measured(name, rule, replay, sizes))  # type: ignore[misc]
        if not only or KUBELOOP.startswith(tuple(only)):
            keep(KUBELOOP, lambda: _cached(replay, sizes, say))
    if not only or KUBELOOP.startswith(tuple(only)):
        with Replay(data, sizes.copies) as replay:
            for number in range(sizes.rounds):
                say(f"round {number + 1} of {sizes.rounds}: a list of {sizes.pods * sizes.copies:,}")
                keep(KUBELOOP, lambda: _peak(replay, sizes))
    middle = {name: {each: statistics.median(values) for each, values in found.items()} for name, found in samples.items()}
    least = {name: {each: min(values) for each, values in found.items()} for name, found in samples.items()}
    return middle, failed, least


# ------------------------------------------------------------------------------------------------------------ measurements


def _measured(name: str, rule: BenchRule, replay: Replay, sizes: Sizes) -> Figures:
    with running_proxy(name, rule.manifest(), rule.effect, replay) as proxy:
        if rule is PASS:
            return (
                _gets(proxy, replay, sizes)
                | {LIST: _list(proxy, sizes, '"restartPolicy":', sizes.pods)}
                | {LIST_GZIP: _list(proxy, sizes, '"restartPolicy":', sizes.pods, "-gzip")}
                | {WATCH: _watch(proxy, replay, sizes, '"restartPolicy":', sizes.events)}
            )
        if rule is HIDE_SOME:
            return {LIST_HIDDEN: _list(proxy, sizes, f'"{_SOME}":', 0)}
        if rule is HIDE_ALL:
            return {WATCH_HIDDEN: _watch(proxy, replay, sizes, '"restartPolicy":', 0)}
        if rule is HIDE_NONE:
            listed = _list(proxy, sizes, '"restartPolicy":', sizes.pods)
            return {LIST_UNTOUCHED: listed, WATCH_UNTOUCHED: _watch(proxy, replay, sizes, '"restartPolicy":', sizes.events)}
        needle = f'"nodeName":"{_HIDDEN_NODE}"'
        return {LIST_SET: _list(proxy, sizes, needle, sizes.pods), WATCH_SET: _watch(proxy, replay, sizes, needle, sizes.events)}


def _direct(replay: Replay, sizes: Sizes) -> Figures:
    """Return the latency without a proxy."""
    with authority_file(replay) as ca, load_client(f"{replay.secure}{_pod(replay)}", "-ca", str(ca), *_requests(sizes, 1)) as client:
        return {LATENCY: client.finish()["p50_us"]}


def _gets(proxy: RunningProxy, replay: Replay, sizes: Sizes) -> Figures:
    found: Figures = {}
    for name, workers in ((GET, 1), (GET_8, 8)):
        with load_client(f"{proxy.url}{_pod(replay)}", *proxy.options, *_requests(sizes, workers)) as client:
            spent = scheduled_seconds(proxy.pid)
            answer = client.finish()
            found[name] = (scheduled_seconds(proxy.pid) - spent) / (max(1, sizes.requests // workers) * workers) * 1e6
        if workers == 1:
            found[LATENCY] = answer["p50_us"]
    return found


def _requests(sizes: Sizes, workers: int) -> tuple[str, ...]:
    return "-workers", str(workers), "-n", str(max(1, sizes.requests // workers)), "-warm", str(max(1, sizes.requests // 10 // workers))


def _list(proxy: RunningProxy, sizes: Sizes, needle: str, expected: int, *flags: str) -> float:
    """Return the CPU time of one object of a list.

    Args:
        proxy: The proxy.
        sizes: How much.
        needle: A text in the response.
        expected: How often the response has the text.
        flags: Further flags of the client.
    """
    url = f"{proxy.url}/api/v1/pods"
    with load_client(url, *proxy.options, "-n", str(sizes.lists), "-warm", "1", "-needle", needle, *flags) as client:
        spent = scheduled_seconds(proxy.pid)
        answer = client.finish()
        spent = scheduled_seconds(proxy.pid) - spent
    _check(answer, expected * sizes.lists, "list")
    return spent / (sizes.lists * sizes.pods) * 1e6


def _watch(proxy: RunningProxy, replay: Replay, sizes: Sizes, needle: str, expected: int) -> float:
    """Return the CPU time of one event. They are sent as fast as the proxy reads them."""
    replay.control("POST", f"reset?events={sizes.events}")
    version = replay.control("GET", "info")["list_rv"]
    with load_client(f"{proxy.url}/api/v1/pods?watch=1&resourceVersion={version}", *proxy.options, "-watch", "-needle", needle) as client:
        client.begin()
        until_idle(proxy.pid)
        spent = scheduled_seconds(proxy.pid)
        replay.control("POST", "go")
        until_idle(proxy.pid)
        spent = scheduled_seconds(proxy.pid) - spent
        answer = client.finish()
    _check(answer, expected, "watch")
    return spent / sizes.events * 1e6


def _check(answer: Mapping[str, float], expected: int, name: str) -> None:
    if answer["found"] != expected:
        raise RuntimeError(f"the {name} was not as expected: {answer['found']:.0f} objects or events instead of {expected}")


def _peak(replay: Replay, sizes: Sizes) -> Figures:
    """Return how far the memory of kubeloop's proxy rises for a long list, with a rule that hides objects and a rule that changes them."""
    rules = "\n---\n".join([HIDE_SOME.manifest(), SET.manifest()])
    with running_proxy(KUBELOOP, rules, "", replay) as proxy:
        with load_client(f"{proxy.url}/api/v1/pods?limit=1", *proxy.options) as client:
            client.finish()
        idle = resident_mib([proxy.pid])
        Path(f"/proc/{proxy.pid}/clear_refs").write_text("5")  # the highest value begins again at the present one: proc(5)
        needle = f'"nodeName":"{_HIDDEN_NODE}"'
        with load_client(f"{proxy.url}/api/v1/pods", *proxy.options, "-needle", needle) as client:
            answer = client.finish()
        if not 0 < answer["found"] < sizes.pods * sizes.copies:
            raise RuntimeError(f"the long list has {answer['found']:.0f} objects")
        return {PEAK: _highest_mib(proxy.pid) - idle}


def _cached(replay: Replay, sizes: Sizes, say: Callable[[str], None]) -> Figures:
    """Measure many watchers in the caching mode: upstream watches, memory of a watcher, CPU of an event to one of them."""
    text = subprocess.run([sys.executable, "-m", "kubeloop", "proxy", "--help"], capture_output=True, text=True, check=True).stdout
    if "--cache" not in text:
        say("kubeloop proxy has no flag --cache: the caching mode is not measured")
        return {}
    say(f"the caching mode with {sizes.watchers:,} watchers")
    events = max(1, sizes.events // 50)
    replay.control("POST", f"reset?events={events}")
    version = replay.control("GET", "info")["list_rv"]
    with running_proxy(KUBELOOP, PASS.manifest(), "", replay, ["--cache"]) as proxy:
        with load_client(f"{proxy.url}/api/v1/pods", *proxy.options) as client:
            client.finish()
        until_idle(proxy.pid)
        before = resident_mib([proxy.pid])
        watch = f"{proxy.url}/api/v1/pods?watch=1&resourceVersion={version}"
        arguments = (*proxy.options, "-watch", "-workers", str(sizes.watchers), "-needle", '"restartPolicy":')
        with load_client(watch, *arguments) as client:
            client.begin()
            until_idle(proxy.pid)
            a_watcher = (resident_mib([proxy.pid]) - before) * 1024 / sizes.watchers
            upstream = float(replay.control("GET", "info")["watches"])
            spent = scheduled_seconds(proxy.pid)
            replay.control("POST", "go")
            until_idle(proxy.pid)
            spent = scheduled_seconds(proxy.pid) - spent
            answer = client.finish()
        _check(answer, events * sizes.watchers, "cached watch")
    return {CACHED_UPSTREAM: upstream, CACHED_WATCHER: a_watcher, CACHED_EVENT: spent / (events * sizes.watchers) * 1e6}


def _highest_mib(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("VmHWM"))) / 1024


def _pod(replay: Replay) -> str:
    namespace, _, name = replay.control("GET", "info")["pod_key"].partition("/")
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


# ---------------------------------------------------------------------------------------------------------------- verdicts

#: Maximum microseconds of CPU of one request, object or event.
_LIMITS = {LIST: 3.0, LIST_GZIP: 3.0, LIST_HIDDEN: 10.0, LIST_SET: 60.0, WATCH: 15.0, WATCH_HIDDEN: 15.0, WATCH_SET: 60.0}
_LISTS = (LIST, LIST_HIDDEN, LIST_SET)
_MITMPROXY_SHARE = 0.1
_KUBECTL_SHARE = 1.5
#: What passes may cost beside the same bytes through a relay that knows nothing of HTTP (decision 261).
_RELAY_SHARE = 1.5


def judge(results: Mapping[str, Figures]) -> Iterator[Target]:
    """Yield the targets. What was not measured is not judged."""
    ours = results.get(KUBELOOP, {})

    def beside(figure: str, share: float, peer: str) -> Iterator[Target]:
        if figure in ours:
            theirs = results.get(peer, {}).get(figure)
            against = f"{share:g} of {peer}, which is not measured" if theirs is None else f"{share:g} x {theirs:.4g} of {peer}"
            yield Target(figure, "us", ours[figure], None if theirs is None else share * theirs, against)

    for figure in (GET, GET_8):
        yield from beside(figure, _KUBECTL_SHARE, KUBECTL)
        yield from beside(figure, _MITMPROXY_SHARE, MITMPROXY)
    direct = results.get(DIRECT, {}).get(LATENCY)
    if LATENCY in ours and direct is not None:
        yield Target("get, extra latency, median", "ms", (ours[LATENCY] - direct) / 1e3, 1.0, "")
    for figure, limit in _LIMITS.items():
        if figure in ours:
            yield Target(figure, "us", ours[figure], limit, "")
        if figure in _LISTS:
            yield from beside(figure, _MITMPROXY_SHARE, MITMPROXY)
        if figure in (LIST, WATCH):
            yield from beside(figure, _RELAY_SHARE, RELAY)
    for figure, unit, limit in ((PEAK, "MiB", 64.0), (CACHED_UPSTREAM, "", 1.0), (CACHED_WATCHER, "KiB", 64.0), (CACHED_EVENT, "us", 25.0)):
        if figure in ours:
            yield Target(figure.removesuffix(f", {unit}"), unit, ours[figure], limit, "")


def show(console: Console, title: str, results: Mapping[str, Figures], least: Mapping[str, Figures], failed: Mapping[str, str]) -> None:
    """Print a column for each program.

    Args:
        console: Where to print.
        title: Title of the table.
        results: Medians by program.
        least: Smallest values by program.
        failed: Why a program was not measured.
    """
    table = Table(title=title)
    table.add_column("us of CPU, unless a unit is given; (least)")
    for name in results:
        table.add_column(name, justify="right")
    ours = results.get(KUBELOOP, {})
    for figure in dict.fromkeys(figure for each in results.values() for figure in each):
        cells = [
            _cell(each.get(figure), least[name].get(figure), None if each is ours else ours.get(figure)) for name, each in results.items()
        ]
        table.add_row(figure, *cells)
    console.print(table)
    for name, why in failed.items():
        console.print(f"[yellow]without {name}: {why.strip().splitlines()[-1]}")


def _cell(value: float | None, least: float | None, ours: float | None) -> str:
    if value is None or least is None:
        return ""
    ratio = f" x{value / ours:.1f}" if ours else ""
    return f"{_shown(value)}{ratio} [dim]({_shown(least)})"


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
