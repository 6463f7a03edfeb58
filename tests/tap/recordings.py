"""Recordings made up for tests: a controller's list and watch, of any length."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

SERVER = "https://127.0.0.1:6443"
START = datetime(2026, 5, 4, 10, 0, tzinfo=UTC)
AGENT = "manager/v0.0.0 (linux/amd64) kubernetes/$Format/leader-election"


def pod(name: str, version: int, phase: str = "Pending", **annotations: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop", "resourceVersion": str(version), "uid": f"uid-{name}", "annotations": annotations}
    conditions = [{"type": "Ready", "status": "True" if phase == "Running" else "False", "reason": f"Pod{phase}"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"nodeName": "node-1", "containers": [{"name": "web", "image": "nginx:1.27"}]},
        "status": {"phase": phase, "conditions": conditions},
    }


def entry(
    number: int, method: str, target: str, *, at: float, time: float, status: int = 200, body: Any = None, **more: Any
) -> dict[str, Any]:
    """An entry of a HAR file; times in milliseconds."""
    _, _, query = target.partition("?")
    pairs = [{"name": name, "value": value} for name, _, value in (pair.partition("=") for pair in query.split("&") if pair)]
    text = "" if body is None else json.dumps(body)
    return {
        "startedDateTime": (START + timedelta(milliseconds=at)).isoformat(timespec="milliseconds"),
        "time": time,
        "request": {
            "method": method,
            "url": SERVER + target,
            "httpVersion": "HTTP/1.1",
            "cookies": [],
            "headers": [{"name": "User-Agent", "value": AGENT}, {"name": "Accept", "value": "application/json"}],
            "queryString": pairs,
            "headersSize": -1,
            "bodySize": 0,
        },
        "response": {
            "status": status,
            "statusText": "",
            "httpVersion": "HTTP/1.1",
            "cookies": [],
            "headers": [{"name": "Content-Type", "value": "application/json"}],
            "content": {"size": len(text), "mimeType": "application/json", "text": text},
            "redirectURL": "",
            "headersSize": -1,
            "bodySize": len(text),
        },
        "cache": {},
        "timings": {
            "blocked": -1,
            "dns": -1,
            "connect": 2.5,
            "ssl": -1,
            "send": 0,
            "wait": min(time, 12.5),
            "receive": max(0.0, time - 15),
            "_firstByte": 16,
        },
        "connection": "1",
        "_request": number,
        "_offset": at,
        "_outcome": "",
        **more,
    }


def frame(at: float, kind: str, tree: dict[str, Any]) -> dict[str, Any]:
    data = json.dumps({"type": kind, "object": tree})
    return {"time": at, "size": len(data), "type": kind, "data": data}


def har(entries: list[dict[str, Any]], **details: Any) -> dict[str, Any]:
    known = {
        "format": 1,
        "server": SERVER,
        "context": "shop",
        "command": ["./manager", "--leader-elect"],
        "redacted": True,
        "started": START.isoformat(),
    }
    log = {
        "version": "1.2",
        "creator": {"name": "kubeloop tap", "version": "0"},
        "pages": [],
        "_kubeloop": {**known, **details},
        "entries": entries,
    }
    return {"log": log}


def controller_recording(events: int = 12) -> dict[str, Any]:
    """What a controller sends: discovery, list, watch, writes, an error; the watch has ``events`` events and a bookmark."""
    names = [f"web-{number}" for number in range(max(3, events // 20))]
    watched = [
        frame(
            20 + number * 7.0,
            "MODIFIED",
            pod(names[number % len(names)], 1001 + number, ("Pending", "Running")[number // len(names) % 2], step=str(number)),
        )
        for number in range(events)
    ]
    end = 20 + events * 7.0
    watched.append(frame(end, "BOOKMARK", {"apiVersion": "v1", "kind": "Pod", "metadata": {"resourceVersion": str(1001 + events)}}))
    watched.append(frame(end + 5, "DELETED", pod(names[0], 1002 + events, "Running")))
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": "Conflict",
        "message": 'Operation cannot be fulfilled on deployments.apps "web"',
        "code": 409,
    }
    listed = {"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "1000"}, "items": [pod(name, 900) for name in names]}
    web = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "resourceVersion": "950"},
        "spec": {"replicas": 2},
    }
    scaled = {**web, "metadata": {**web["metadata"], "resourceVersion": "1010"}, "spec": {"replicas": 3}}  # type: ignore[dict-item]
    pods, deployments = "/api/v1/namespaces/shop/pods", "/apis/apps/v1/namespaces/shop/deployments/web"
    entries = [
        entry(1, "GET", "/api?timeout=32s", at=3, time=9, body={"kind": "APIVersions", "versions": ["v1"]}, _verb="GET"),
        entry(2, "GET", f"{pods}?limit=500&resourceVersion=0", at=20, time=38, body=listed, _verb="LIST", _resource="pods"),
        entry(
            3,
            "GET",
            f"{pods}?allowWatchBookmarks=true&resourceVersion=1000&timeoutSeconds=432&watch=true",
            at=62,
            time=end + 40,
            _verb="WATCH",
            _resource="pods",
            _frames=watched,
            _outcome="the client closed the connection",
        ),
        entry(4, "GET", deployments, at=70, time=6, body=web, connection="2", _verb="GET"),
        entry(5, "PATCH", f"{deployments}?fieldManager=manager", at=81, time=22, body=scaled, connection="2", _verb="PATCH"),
        entry(6, "PUT", deployments, at=110, time=5, status=409, body=status, connection="2", _verb="UPDATE"),
    ]
    connections = [
        {"event": "opened", "time": 1.0, "connection": 1, "server": "127.0.0.1:6443", "tls": "TLSv1.3"},
        {
            "event": "failed",
            "time": 30.0,
            "connection": 3,
            "server": "127.0.0.1:6443",
            "reason": "the client does not trust the certificate of the tap",
        },
    ]
    return har(entries, connections=connections)


def write(path: Path, content: dict[str, Any]) -> Path:
    path.write_text(json.dumps(content))
    return path
