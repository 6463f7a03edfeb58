"""Pods and later states of them. Pod i is a pure function of (seed, i), so that an event can be derived without keeping all pods."""

from __future__ import annotations

import random
from typing import Any

from bench.pods.field_sets import fields
from bench.pods.words import EPOCH, LIST_RV, SAFE, hexes, stamp, text, uid
from bench.pods.workloads import assign, workloads

JSON = dict[str, Any]

#: What a pod has from its workload's template; the rest of its spec comes from the scheduler and from defaulting.
FROM_TEMPLATE = (
    "restartPolicy",
    "terminationGracePeriodSeconds",
    "dnsPolicy",
    "nodeSelector",
    "serviceAccountName",
    "serviceAccount",
    "automountServiceAccountToken",
    "securityContext",
    "affinity",
    "schedulerName",
    "imagePullSecrets",
    "enableServiceLinks",
    "hostname",
    "subdomain",
    "priorityClassName",
    "topologySpreadConstraints",
)


class Cluster:
    """What differs between the pods of one workload is what differs in a cluster: names, uids, nodes, addresses, ids, times."""

    def __init__(self, seed: int, n: int, nodes: int = 500) -> None:
        self.seed, self.nodes = seed, nodes
        self.works = workloads(seed)
        self.pods = assign(self.works, n, nodes, seed)
        rng = random.Random(f"{seed}-rv")
        self.rvs = rng.sample(range(LIST_RV - 40 * n - 1000, LIST_RV), n)
        self.node_names = [f"ip-10-{64 + k // 128}-{(k * 37) % 256}-{k % 128 + 4}.eu-central-1.compute.internal" for k in range(nodes)]

    def pod(self, i: int) -> JSON:
        ns, name, wi, ordinal = self.pods[i]
        w = self.works[wi]
        rng = random.Random(f"{self.seed}-pod-{ns}/{name}")
        kind = w["kind"]
        node = ordinal % self.nodes if kind == "DaemonSet" else rng.randrange(self.nodes)
        node_name, host_ip = self.node_names[node], f"10.{64 + node // 128}.{(node * 37) % 256}.{node % 128 + 4}"
        pod_ip = f"100.{64 + node // 256}.{node % 256}.{rng.randint(2, 254)}"
        created = EPOCH - rng.randint(0, 40 * 86400)
        revision = ordinal if kind == "Deployment" else 0
        tmpl_hash, owner_uid = w["hash"][revision], w["owner_uid"][revision]
        labels, annotations = dict(w["labels"]), dict(w["annotations"])
        meta: JSON = {"name": name}
        owner: JSON = {
            "apiVersion": "apps/v1",
            "kind": kind,
            "name": w["app"],
            "uid": owner_uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
        if kind == "Deployment":
            labels["pod-template-hash"] = tmpl_hash
            meta["generateName"] = f"{w['app']}-{tmpl_hash}-"
            owner["kind"], owner["name"] = "ReplicaSet", f"{w['app']}-{tmpl_hash}"
        elif kind == "DaemonSet":
            labels["controller-revision-hash"], labels["pod-template-generation"] = tmpl_hash, "4"
            meta["generateName"] = f"{w['app']}-"
        else:
            labels["controller-revision-hash"] = f"{w['app']}-{tmpl_hash}"
            labels["statefulset.kubernetes.io/pod-name"], labels["apps.kubernetes.io/pod-index"] = name, str(ordinal)
            meta["generateName"] = f"{w['app']}-"
        template_annotations = dict(annotations)
        cni: JSON = {}
        if w["calico"]:
            cni = {
                "cni.projectcalico.org/containerID": hexes(rng, 64),
                "cni.projectcalico.org/podIP": f"{pod_ip}/32",
                "cni.projectcalico.org/podIPs": f"{pod_ip}/32",
            }
            annotations.update(cni)
        token = f"kube-api-access-{text(rng, SAFE, 5)}"
        token_mount = {"name": token, "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
        tokens = [token_mount] if w["token"] else []
        containers = [{**c, "volumeMounts": c["volumeMounts"] + tokens} for c in w["containers"]]
        inits = [{**c, "volumeMounts": c["volumeMounts"] + tokens} for c in w["init"]]
        volumes: list[JSON] = [
            {"name": "config", "configMap": {"name": f"{w['app']}-config", "defaultMode": 420}},
            {"name": "tmp", "emptyDir": {}},
            {"name": "certs", "secret": {"secretName": f"{w['app']}-tls", "defaultMode": 420}},
            {"name": "cache", "persistentVolumeClaim": {"claimName": f"cache-{name}"}}
            if kind == "StatefulSet"
            else {"name": "cache", "hostPath": {"path": f"/var/lib/{w['app']}", "type": "DirectoryOrCreate"}}
            if kind == "DaemonSet"
            else {"name": "cache", "emptyDir": {"sizeLimit": "1Gi"}},
        ]
        used = {m["name"] for c in containers + inits for m in c["volumeMounts"]}
        volumes = [v for v in volumes if v["name"] in used]
        template_spec: JSON = {"volumes": list(volumes)} if volumes else {}
        if w["token"]:
            volumes.append(
                {
                    "name": token,
                    "projected": {
                        "sources": [
                            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                            {
                                "downwardAPI": {
                                    "items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]
                                }
                            },
                        ],
                        "defaultMode": 420,
                    },
                }
            )
        spec: JSON = {"volumes": volumes} if volumes else {}
        if inits:
            spec["initContainers"] = inits
        spec |= {
            "containers": containers,
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30 if kind != "StatefulSet" else 120,
            "dnsPolicy": "ClusterFirst",
            **({"nodeSelector": {"kubernetes.io/os": "linux"}} if w["pull"] else {}),
            "serviceAccountName": w["app"],
            "serviceAccount": w["app"],
            **({} if w["token"] else {"automountServiceAccountToken": False}),
            "nodeName": node_name,
            "securityContext": {"runAsUser": 10001, "runAsGroup": 10001, "fsGroup": 10001} if w["affinity"] else {},
        }
        if w["pull"]:
            spec["imagePullSecrets"] = [{"name": "registry-credentials"}]
        if kind == "StatefulSet":
            spec["hostname"], spec["subdomain"] = name, f"{w['app']}-headless"
        if kind == "DaemonSet":
            spec["affinity"] = {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node_name]}]}]
                    }
                }
            }
        elif w["affinity"]:
            spec["affinity"] = {
                "podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 100,
                            "podAffinityTerm": {
                                "labelSelector": {"matchLabels": {"app": w["app"]}},
                                "topologyKey": "kubernetes.io/hostname",
                            },
                        }
                    ]
                }
            }
        spec["schedulerName"] = "default-scheduler"
        spec["tolerations"] = [
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        ]
        if kind == "DaemonSet":
            spec["tolerations"] = [{"operator": "Exists"}] + [
                {"key": f"node.kubernetes.io/{k}", "operator": "Exists", "effect": e}
                for k, e in (
                    ("not-ready", "NoExecute"),
                    ("unreachable", "NoExecute"),
                    ("disk-pressure", "NoSchedule"),
                    ("memory-pressure", "NoSchedule"),
                    ("pid-pressure", "NoSchedule"),
                    ("unschedulable", "NoSchedule"),
                )
            ]
        if w["priority"]:
            spec["priorityClassName"], spec["priority"] = w["priority"]
        else:
            spec["priority"] = 0
        spec["enableServiceLinks"], spec["preemptionPolicy"] = True, "PreemptLowerPriority"
        if w["spread"]:
            spec["topologySpreadConstraints"] = [
                {
                    "maxSkew": 1,
                    "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": {"app": w["app"]}},
                }
            ]
        t = [stamp(created + d) for d in (0, 1, 3, rng.randint(4, 9), rng.randint(10, 90))]
        restarts = rng.choices([0, 1, 2, 7], [80, 12, 6, 2])[0]

        def status_of(c: JSON, k: int, done: bool = False) -> JSON:
            s: JSON = {
                "name": c["name"],
                "state": {"running": {"startedAt": t[3]}}
                if not done
                else {
                    "terminated": {
                        "exitCode": 0,
                        "reason": "Completed",
                        "startedAt": t[2],
                        "finishedAt": t[3],
                        "containerID": f"containerd://{hexes(rng, 64)}",
                    }
                },
                "lastState": {},
                "ready": True,
                "restartCount": 0 if done or k else restarts,
                "image": c["image"],
                "imageID": f"{c['image'].rsplit(':', 1)[0]}@sha256:{w['digests'][k]}",
                "containerID": f"containerd://{hexes(rng, 64)}",
                "started": not done,
            }
            if w["new_kubelet"]:
                s |= {
                    "allocatedResources": c["resources"]["requests"],
                    "resources": c["resources"],
                    "volumeMounts": [
                        {**m, **({"readOnly": True, "recursiveReadOnly": "Disabled"} if m.get("readOnly") else {})}
                        for m in c["volumeMounts"]
                    ],
                }
            if not done and not k and restarts:
                s["lastState"] = {
                    "terminated": {
                        "exitCode": rng.choice([1, 137]),
                        "reason": rng.choice(["Error", "OOMKilled"]),
                        "startedAt": t[2],
                        "finishedAt": t[3],
                        "containerID": f"containerd://{hexes(rng, 64)}",
                    }
                }
            return s

        def condition(kind_: str, when: str) -> JSON:
            return {
                "type": kind_,
                **({"observedGeneration": 1} if w["new_kubelet"] else {}),
                "status": "True",
                "lastProbeTime": None,
                "lastTransitionTime": when,
            }

        status: JSON = {
            "observedGeneration": 1,
            "phase": "Running",
            "conditions": [
                condition("PodReadyToStartContainers", t[2]),
                condition("Initialized", t[2]),
                condition("Ready", t[4]),
                condition("ContainersReady", t[4]),
                condition("PodScheduled", t[0]),
            ],
            "hostIP": host_ip,
            "hostIPs": [{"ip": host_ip}],
            "podIP": pod_ip,
            "podIPs": [{"ip": pod_ip}],
            "startTime": t[0],
        }
        if inits:
            status["initContainerStatuses"] = [status_of(c, len(containers), True) for c in inits]
        status["containerStatuses"] = [status_of(c, k) for k, c in enumerate(containers)]
        status["qosClass"] = "Burstable"
        # who wrote what
        template_spec["containers"] = w["containers"]
        template_spec |= {k: spec[k] for k in FROM_TEMPLATE if k in spec}
        if inits:
            template_spec["initContainers"] = w["init"]
        managed: list[JSON] = [
            {
                "manager": "kube-controller-manager",
                "operation": "Update",
                "apiVersion": "v1",
                "time": t[0],
                "fieldsType": "FieldsV1",
                "fieldsV1": {
                    "f:metadata": {
                        "f:annotations": fields(template_annotations, "annotations"),
                        "f:generateName": {},
                        "f:labels": fields(labels, "labels"),
                        "f:ownerReferences": fields([owner], "ownerReferences"),
                    },
                    "f:spec": fields(template_spec),
                },
            }
        ]
        if cni:
            managed.append(
                {
                    "manager": "calico",
                    "operation": "Update",
                    "apiVersion": "v1",
                    "time": t[2],
                    "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:metadata": {"f:annotations": fields(cni)}},
                    "subresource": "status",
                }
            )
        kubelet = {k: v for k, v in status.items() if k != "qosClass"}
        kubelet["conditions"] = [c for c in status["conditions"] if c["type"] != "PodScheduled"]
        managed.append(
            {
                "manager": "kubelet",
                "operation": "Update",
                "apiVersion": "v1",
                "time": t[4],
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:status": fields(kubelet)},
                "subresource": "status",
            }
        )
        meta |= {
            "namespace": ns,
            "uid": uid(rng),
            "resourceVersion": str(self.rvs[i]),
            "generation": 1,
            "creationTimestamp": t[0],
            "labels": dict(sorted(labels.items())),
            "annotations": dict(sorted(annotations.items())),
            "ownerReferences": [owner],
            "managedFields": managed,
        }
        return {"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": spec, "status": status}

    def event(self, i: int, change: int, rv: int) -> JSON:
        """Pod i after its change-th status change (0, 1, ...): a crash, then a recovery, and so on."""
        pod = self.pod(i)
        rng = random.Random(f"{self.seed}-event-{i}-{change}")
        when = stamp(EPOCH + rv - LIST_RV)
        pod["metadata"]["resourceVersion"] = str(rv)
        pod["metadata"]["managedFields"][-1]["time"] = when
        down = change % 2 == 0
        s = pod["status"]["containerStatuses"][0]
        s["restartCount"] += change // 2 + 1
        s["lastState"] = {
            "terminated": {"exitCode": 1, "reason": "Error", "startedAt": when, "finishedAt": when, "containerID": s["containerID"]}
        }
        s["containerID"] = f"containerd://{hexes(rng, 64)}"
        s["state"] = (
            {
                "waiting": {
                    "reason": "CrashLoopBackOff",
                    "message": f"back-off 10s restarting failed container={s['name']} "
                    f"pod={pod['metadata']['name']}_{pod['metadata']['namespace']}({pod['metadata']['uid']})",
                }
            }
            if down
            else {"running": {"startedAt": when}}
        )
        s["ready"] = s["started"] = not down
        for c in pod["status"]["conditions"]:
            if c["type"] in ("Ready", "ContainersReady"):
                c["status"], c["lastTransitionTime"] = ("False" if down else "True"), when
                if down:
                    c["reason"], c["message"] = "ContainersNotReady", f"containers with unready status: [{s['name']}]"
        return pod
