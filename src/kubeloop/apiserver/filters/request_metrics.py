"""Counters of requests. A scrape reads them (``server.metrics``)."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from typing import Final

from kubeloop.apiserver.handlers.scope import RequestScope
from kubeloop.endpoints.metrics_text import Histogram

#: kube-apiserver's buckets, in seconds and in bytes.
SECONDS: Final = (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60)
BYTES: Final = (1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9)

_VERBS = {"create": "POST", "update": "PUT", "deletecollection": "DELETE"}
_CONNECTING = frozenset({"exec", "attach", "portforward", "proxy"})
#: Paths with a series each. All others share one, since a client may invent any number of them.
_PATHS = ("/healthz", "/livez", "/readyz", "/metrics", "/version", "/openapi/v2", "/openapi/v3", "/apis", "/api", "/openid/v1/jwks")
_READING = frozenset({"GET", "LIST"})
_APPLY = "application/apply-patch"


class Series:
    """The counters of requests with the same labels."""

    __slots__ = ("codes", "dry_run", "durations", "labels", "running", "sizes")

    def __init__(self, labels: Mapping[str, str], dry_run: str) -> None:
        self.labels = labels
        self.dry_run = dry_run
        self.codes: Counter[int] = Counter()
        #: Streams that are open; None: there has been none.
        self.running: int | None = None
        self.durations = Histogram(SECONDS)
        self.sizes = Histogram(BYTES) if labels["verb"] in _READING else None


class RequestMetrics:
    """Counts requests. All requests for unknown resources share one series, so that no client can add series."""

    def __init__(self) -> None:
        self._series: dict[tuple[object, ...], Series] = {}
        #: Requests by how their authentication ended.
        self.attempts: Counter[str] = Counter()
        self.audit_levels: Counter[str] = Counter()
        self.audit_events = 0

    @property
    def series(self) -> list[Series]:
        return list(self._series.values())

    def of(self, scope: RequestScope) -> Series:
        """Return the series of a request."""
        info, request = scope.info, scope.request
        dry_run = "All" if request.query.get("dryRun") else ""
        applied = info.verb == "patch" and request.header("Content-Type").startswith(_APPLY)
        if scope.known:
            key: tuple[object, ...] = (
                info.verb,
                info.group,
                info.version,
                info.resource,
                info.subresource,
                bool(info.namespace),
                info.name_in_path,
                dry_run,
                applied,
            )
        else:
            key = (request.method if request.method in _METHODS else "other", _path(info.path))
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = Series(_labels(scope, applied=applied), dry_run)
        return series

    def ended(self, series: Series, status: int, seconds: float, size: int | None) -> None:
        """``size`` None: it was a stream."""
        series.codes[status] += 1
        durations = series.durations
        durations.counts[bisect_left(SECONDS, seconds)] += 1
        durations.sum += seconds
        if size is not None and series.sizes is not None:
            series.sizes.counts[bisect_left(BYTES, size)] += 1
            series.sizes.sum += size


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def _path(path: str) -> str:
    return next((one for one in _PATHS if path == one or path.startswith(f"{one}/")), "")


def _labels(scope: RequestScope, *, applied: bool) -> dict[str, str]:
    info = scope.info
    if not scope.known:
        verb = scope.request.method
        names = ("", "", "", "", _path(info.path), verb if verb in _METHODS else "other", "")
    else:
        verb = "APPLY" if applied else "CONNECT" if info.subresource in _CONNECTING else _VERBS.get(info.verb, info.verb.upper())
        named = info.name_in_path or info.verb == "create"
        level = "resource" if named else "namespace" if info.namespace else "cluster"
        names = ("apiserver", info.group, info.resource, level, info.subresource, verb, info.version)
    return dict(zip(("component", "group", "resource", "scope", "subresource", "verb", "version"), names, strict=True))
