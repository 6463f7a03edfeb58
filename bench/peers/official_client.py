"""The official client's SharedInformer. Runs in its own environment."""

from __future__ import annotations

from bench.peers import measure

args = measure.arguments()

import os  # noqa: E402 - after the arguments, as in the other clients
import threading  # noqa: E402
import time  # noqa: E402

import kubernetes  # noqa: E402
from kubernetes.informer import SharedInformer  # noqa: E402

api = kubernetes.client.CoreV1Api(kubernetes.client.ApiClient(kubernetes.client.Configuration(host=args.server)))
informer = SharedInformer(api.list_pod_for_all_namespaces)
done = threading.Event()
seen = 0


def updated(pod: kubernetes.client.V1Pod) -> None:
    global seen
    seen += 1
    if pod.metadata.resource_version == args.last_rv:
        done.set()


informer.add_event_handler("MODIFIED", updated)
meter = measure.start()
informer.start()
while informer._resource_version is None:  # it cannot be asked whether it has synced
    time.sleep(0.005)
meter.report("sync", len(informer.cache.list_keys()))
measure.check(len(informer.cache.list_keys()), args)
time.sleep(1)
meter = measure.go(args.server)
done.wait()
meter.report("events", seen)
measure.hold(len(informer.cache.list_keys()))
os._exit(0)  # its thread does not end
