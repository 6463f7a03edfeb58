"""lightkube: list and watch into a dict (it has no informer); or one typed GET. Runs in its own environment."""

from __future__ import annotations

from bench.peers import measure

args = measure.arguments()
whole = measure.Meter()

import lightkube  # noqa: E402 - the meter of the start counts the imports
from lightkube.config.kubeconfig import KubeConfig  # noqa: E402
from lightkube.config.models import Cluster, User  # noqa: E402
from lightkube.resources.core_v1 import Pod  # noqa: E402

cluster = Cluster(server=args.server, insecure=args.server.startswith("https"))
client = lightkube.Client(config=KubeConfig.from_one(cluster=cluster, user=User(token="t")))
if args.get:
    assert client.get(Pod, args.name, namespace=args.namespace).spec.containers
    whole.report("get", 1)
    raise SystemExit
store = {}
meter = measure.start()
pods = client.list(Pod, namespace="*")
for pod in pods:
    store[pod.metadata.namespace, pod.metadata.name] = pod
version = pods.resourceVersion
del pods, pod
meter.report("sync", len(store))
measure.check(len(store), args)
meter = measure.go(args.server)
seen = 0
for _, pod in client.watch(Pod, namespace="*", resource_version=version):
    store[pod.metadata.namespace, pod.metadata.name] = pod
    seen += 1
    if pod.metadata.resourceVersion == args.last_rv:
        break
meter.report("events", seen)
measure.hold(len(store))
