"""The official client. Runs in its own environment."""

from __future__ import annotations

import kubernetes

from bench.peers import measure
from bench.peers.requests import protocol

args = protocol.arguments()
kubernetes.config.load_kube_config()
api = kubernetes.client.CoreV1Api()
pod = api.read_namespaced_pod(args.name, args.namespace)


def update(number: int) -> None:
    global pod
    pod.metadata.labels["round"] = str(number)
    pod = api.replace_namespaced_pod(args.name, args.namespace, pod)


def patch(number: int) -> object:
    return api.patch_namespaced_pod(args.name, args.namespace, {"metadata": {"labels": {"round": str(number)}}})


protocol.each("get", args.requests, lambda _: api.read_namespaced_pod(args.name, args.namespace))
protocol.each("update", args.requests, update)
protocol.each("patch", args.requests, patch)
meter = protocol.fresh()
answer = api.list_pod_for_all_namespaces()
meter.report("list", len(answer.items))
measure.check(len(answer.items), args)
version = answer.metadata.resource_version
del answer
meter = protocol.fresh()
measure.go(args.server)
seen = 0
for event in kubernetes.watch.Watch().stream(api.list_pod_for_all_namespaces, resource_version=version):
    seen += 1
    if event["object"].metadata.resource_version == args.last_rv:
        break
meter.report("watch", seen)
measure.hold(0)
