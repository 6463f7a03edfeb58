"""lightkube. Runs in its own environment."""

from __future__ import annotations

import lightkube
from lightkube.resources.core_v1 import Pod
from lightkube.types import PatchType

from bench.peers import measure
from bench.peers.requests import protocol

args = protocol.arguments()
client = lightkube.Client()
if args.stream:
    seen = 0
    meter = measure.start()
    for pod in client.list(Pod, namespace="*", chunk_size=500):
        assert pod.spec.containers
        seen += 1
    meter.report("stream", seen)
    measure.check(seen, args)
    measure.hold(0)
    raise SystemExit
pod = client.get(Pod, args.name, namespace=args.namespace)


def update(number: int) -> None:
    global pod
    pod.metadata.labels["round"] = str(number)
    pod = client.replace(pod)


def patch(number: int) -> object:
    change = {"metadata": {"labels": {"round": str(number)}}}
    return client.patch(Pod, args.name, change, namespace=args.namespace, patch_type=PatchType.MERGE)


protocol.each("get", args.requests, lambda _: client.get(Pod, args.name, namespace=args.namespace))
protocol.each("update", args.requests, update)
protocol.each("patch", args.requests, patch)
meter = protocol.fresh()
answer = client.list(Pod, namespace="*")
pods = list(answer)
meter.report("list", len(pods))
measure.check(len(pods), args)
version = answer.resourceVersion
del pods, answer
meter = protocol.fresh()
measure.go(args.server)
seen = 0
for _, pod in client.watch(Pod, namespace="*", resource_version=version):
    seen += 1
    if pod.metadata.resourceVersion == args.last_rv:
        break
meter.report("watch", seen)
measure.hold(0)
