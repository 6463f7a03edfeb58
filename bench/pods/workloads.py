"""The workloads of a cluster (6 DaemonSets, 12 StatefulSets, 42 Deployments, some with two live ReplicaSets) and which pods they have."""

from __future__ import annotations

import json
import random
from typing import Any

from bench.pods.words import AGENTS, ENV, EPOCH, NAMESPACES, SAFE, STATEFUL, WORDS, hexes, stamp, text, uid

JSON = dict[str, Any]


def container(rng: random.Random, name: str, app: str, main: bool = True) -> JSON:
    version = f"{rng.randint(0, 9)}.{rng.randint(0, 40)}.{rng.randint(0, 20)}"
    image = (
        f"registry.example.com/{rng.choice(['platform', 'team-a', 'team-b', 'mirror/library', 'ml'])}/{app if main else name}:v{version}"
    )
    c: JSON = {"name": name, "image": image}
    if rng.random() < 0.6:
        c["args"] = [
            f"--{rng.choice(WORDS)}={rng.choice(['true', 'info', '30s', '0.0.0.0:8080', '/etc/config/config.yaml'])}"
            for _ in range(rng.randint(1, 6))
        ]
    ports = rng.sample([8080, 8443, 9090, 9091, 50051, 3000, 6060, 15090], rng.randint(1, 2)) if main or rng.random() < 0.5 else []
    if ports:
        c["ports"] = [{"name": f"p-{p}", "containerPort": p, "protocol": "TCP"} for p in ports]
    env: list[JSON] = []
    for key in rng.sample(ENV, rng.choice([0, 0, 0, 1, 1, 2, 2, 3, 5, 9]) if main else rng.randint(0, 2)):
        if key.endswith(("PASSWORD", "SECRET", "DSN")):
            env.append({"name": key, "valueFrom": {"secretKeyRef": {"name": f"{app}-secrets", "key": key.lower().replace("_", "-")}}})
        elif key.endswith(("_URL", "ENDPOINT")):
            env.append(
                {
                    "name": key,
                    "value": f"http://{rng.choice(WORDS)}.{rng.choice(NAMESPACES)}.svc.cluster.local:"
                    f"{rng.choice([80, 8080, 4317, 6379])}/{rng.choice(['v1', 'v2', ''])}",
                }
            )
        else:
            env.append(
                {
                    "name": key,
                    "value": rng.choice(
                        [
                            "info",
                            "json",
                            "8080",
                            "true",
                            "false",
                            "production",
                            "eu-central-1",
                            "250",
                            f"{app}-{rng.randint(1, 9)}",
                            "service.version=1.4.2,deployment.environment=production",
                        ]
                    ),
                }
            )
    for key, path in (
        ("POD_NAME", "metadata.name"),
        ("POD_NAMESPACE", "metadata.namespace"),
        ("NODE_NAME", "spec.nodeName"),
        ("POD_IP", "status.podIP"),
    ):
        if rng.random() < (0.15 if main else 0.1):
            env.append({"name": key, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}})
    if env:
        c["env"] = env
    cpu, mem = rng.choice([50, 100, 200, 250, 500, 1000, 2000, 4000]), rng.choice([64, 128, 256, 512, 1024, 2048, 8192])

    def amounts(factor: int) -> JSON:
        c, m = cpu * factor, mem * factor  # in the canonical form that the API server answers
        return {"cpu": f"{c}m" if c % 1000 else str(c // 1000), "memory": f"{m}Mi" if m % 1024 else f"{m // 1024}Gi"}

    c["resources"] = {"requests": amounts(1)}
    if rng.random() < 0.6:
        c["resources"] = {"limits": amounts(2), **c["resources"]}
    c["volumeMounts"] = [
        {"name": v, "mountPath": p, **({"readOnly": True} if ro else {})}
        for v, p, ro in rng.sample(
            [
                ("config", "/etc/config", True),
                ("tmp", "/tmp", False),
                ("certs", "/var/run/certs", True),
                ("cache", "/var/cache/app", False),
            ],
            rng.choice([0, 0, 1, 1, 2, 3]) if main else rng.randint(0, 1),
        )
    ]
    if rng.random() < (0.35 if main else 0.2):
        port = ports[0] if ports else 8080

        def probe(path: str) -> JSON:
            return {
                "httpGet": {"path": path, "port": port, "scheme": "HTTP"},
                "initialDelaySeconds": rng.choice([0, 5, 10, 30]) or 1,
                "timeoutSeconds": rng.choice([1, 2, 5]),
                "periodSeconds": rng.choice([5, 10, 15]),
                "successThreshold": 1,
                "failureThreshold": 3,
            }

        c["livenessProbe"], c["readinessProbe"] = probe("/healthz"), probe("/readyz")
        if rng.random() < 0.15:
            c["startupProbe"] = probe("/startupz")
    if rng.random() < 0.2:
        c["lifecycle"] = {"preStop": {"exec": {"command": ["/bin/sh", "-c", f"sleep {rng.choice([5, 10, 15])}"]}}}
    c["terminationMessagePath"], c["terminationMessagePolicy"] = "/dev/termination-log", "File"
    c["imagePullPolicy"] = "IfNotPresent"
    if rng.random() < 0.45:
        c["securityContext"] = {
            "capabilities": {"drop": ["ALL"]},
            "runAsUser": 10001,
            "runAsNonRoot": True,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
        }
    return c


def workloads(seed: int) -> list[JSON]:
    rng = random.Random(f"{seed}-workloads")
    kinds = ["DaemonSet"] * 6 + ["StatefulSet"] * 12 + ["Deployment"] * 42
    result = []
    for i, kind in enumerate(kinds):
        if kind == "DaemonSet":
            app, ns = AGENTS[i], rng.choice(["kube-system", "monitoring", "logging"])
        elif kind == "StatefulSet":
            app, ns = STATEFUL[i - 6], rng.choice(NAMESPACES)
        else:
            app, ns = f"{rng.choice(NAMESPACES)[:6].rstrip('-')}-{rng.choice(WORDS)}-{i}", rng.choice(NAMESPACES)
        count = rng.choices([1, 2, 3, 4], [80, 14, 4, 2])[0]
        names = [
            app if len(app) < 30 else "app",
            *rng.sample(["istio-proxy", "log-agent", "config-reloader", "metrics", "vault-agent"], count - 1),
        ]
        w: JSON = {
            "kind": kind,
            "app": app,
            "namespace": ns,
            "owner_uid": [uid(rng), uid(rng)],
            "hash": [text(rng, SAFE, 10), text(rng, SAFE, 10)],
            "containers": [container(rng, n, app, k == 0) for k, n in enumerate(names)],
            "init": [container(rng, "init-" + rng.choice(["db", "perms", "config"]), app, False)] if rng.random() < 0.08 else [],
            "digests": [hexes(rng, 64) for _ in range(count + 1)],
            "token": kind == "DaemonSet" or rng.random() < 0.65,
        }
        w["labels"] = {
            "app.kubernetes.io/name": app,
            "app.kubernetes.io/instance": f"{app}-prod",
            "app.kubernetes.io/managed-by": "Helm",
            "app.kubernetes.io/version": w["containers"][0]["image"].rsplit(":", 1)[1],
            "app.kubernetes.io/part-of": ns,
            "helm.sh/chart": f"{app}-{rng.randint(0, 4)}.{rng.randint(0, 30)}.0",
            "team": rng.choice(["core", "growth", "ml", "sre", "data"]),
        }
        w["labels"] = dict(rng.sample(sorted(w["labels"].items()), rng.choice([0, 1, 1, 2, 3, 7])))
        w["labels"]["app"] = app
        a = {
            "prometheus.io/scrape": "true",
            "prometheus.io/port": "9090",
            "prometheus.io/path": "/metrics",
            "checksum/config": hexes(rng, 64),
            "checksum/secret": hexes(rng, 64),
            "kubectl.kubernetes.io/restartedAt": stamp(EPOCH - rng.randint(0, 10**6)).replace("Z", "+02:00"),
            "kubectl.kubernetes.io/default-container": w["containers"][0]["name"],
            "cluster-autoscaler.kubernetes.io/safe-to-evict": "true",
        }
        w["annotations"] = dict(rng.sample(sorted(a.items()), rng.choice([0, 1, 1, 2, 3, 6])))
        if "istio-proxy" in names:
            w["annotations"]["sidecar.istio.io/status"] = (
                '{"initContainers":["istio-init"],"containers":["istio-proxy"],"volumes":["workload-socket","istio-envoy","istio-data","istio-podinfo","istio-token"],"imagePullSecrets":null,"revision":"default"}'
            )
        w["calico"] = rng.random() < 0.3
        w["new_kubelet"] = rng.random() < 0.15  # a node pool that reports resources and mounts in the status
        w["affinity"] = rng.random() < 0.35
        w["spread"] = kind == "Deployment" and rng.random() < 0.4
        w["pull"] = rng.random() < 0.5
        w["priority"] = (
            rng.choice([None, None, ("business-critical", 100000), ("batch-low", -100)])
            if kind != "DaemonSet"
            else ("system-node-critical", 2000001000)
        )
        result.append(w)
    # Few workloads have most of the pods, and workloads with many replicas are rather the plain ones.
    deployments = [w for w in result if w["kind"] == "Deployment"]
    deployments.sort(key=lambda w: len(json.dumps([w["containers"], w["init"], w["annotations"], w["labels"]])) * rng.uniform(0.7, 1.4))
    for rank, w in enumerate(deployments):
        w["weight"] = 1.0 / (1 + rank) ** 0.8
    return result


def assign(works: list[JSON], n: int, nodes: int, seed: int) -> list[tuple[str, str, int, int]]:
    """(namespace, name, workload index, ordinal) of the n pods, in key order."""
    rng = random.Random(f"{seed}-assign")
    pods: list[tuple[str, str, int, int]] = []
    seen: set[tuple[str, str]] = set()

    def put(ns: str, name: str, w: int, ordinal: int) -> None:
        if (ns, name) not in seen:
            seen.add((ns, name))
            pods.append((ns, name, w, ordinal))

    per_daemon = min(nodes, max(1, n // 40))
    for i, w in enumerate(works):
        if w["kind"] == "DaemonSet":
            for k in range(per_daemon):
                put(w["namespace"], f"{w['app']}-{text(rng, SAFE, 5)}", i, k)
        elif w["kind"] == "StatefulSet":
            for k in range(max(1, n // 100)):
                put(w["namespace"], f"{w['app']}-{k}", i, k)
    deploys = [i for i, w in enumerate(works) if w["kind"] == "Deployment"]
    weights = [works[i]["weight"] for i in deploys]
    while len(pods) < n:
        i = rng.choices(deploys, weights)[0]
        w = works[i]
        revision = 0 if rng.random() < 0.85 else 1
        put(w["namespace"], f"{w['app']}-{w['hash'][revision]}-{text(rng, SAFE, 5)}", i, revision)
    del pods[n:]
    pods.sort()
    return pods
