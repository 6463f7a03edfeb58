"""Short descriptions of the most used fields, in our own words; for ``kubectl explain`` while no descriptions are imported."""

from __future__ import annotations

from typing import Final

#: Definitions by the last part of their names, fields indented below them.
_TEXTS: Final = """
io.k8s.apimachinery.pkg.apis.meta.v1
ObjectMeta: What every stored object has besides its content: its name, its owners, its history.
    name: The object's name. No other object of its kind in the namespace has it, and it never changes.
    generateName: Beginning of a name that the server completes with random letters, where name is empty.
    namespace: The namespace that holds the object; empty for kinds that belong to no namespace.
    labels: Short texts by key. Selectors find objects by them.
    annotations: Texts by key for people and programs. Selectors do not see them.
    uid: Identifies this object for ever, also after another one takes its name. The server sets it.
    resourceVersion: Changes with each write. An update that names an old one is refused with a conflict.
    generation: Counts changes of the desired state, so that a controller knows which state it has seen.
    creationTimestamp: CreationTimestamp is a timestamp of the moment when the server stored the object first.
    deletionTimestamp: When the deletion was asked for. The object stays until its finalizers are gone.
    deletionGracePeriodSeconds: Seconds that the object has to end, once its deletion was asked for.
    finalizers: Names of cleanups that must finish before the object goes.
    ownerReferences: Objects that this one belongs to. When all of them are gone, the garbage collector deletes it.
    managedFields: Which writer owns which fields. Server-side apply maintains it.
OwnerReference: Points to an object that owns another, in the same namespace or in none.
    controller: Whether this owner controls the object.
    blockOwnerDeletion: Whether a foreground deletion of the owner waits for the object.
LabelSelector: Selects objects whose labels meet all that it says; an empty one selects all objects.
    matchLabels: Labels that an object must have, with these values.
    matchExpressions: Further conditions on labels: In, NotIn, Exists, DoesNotExist.
Condition: One aspect of an object's state, as a controller sees it.
    type: Which aspect, such as Ready.
    status: True, False or Unknown.
    reason: Why, as one word in CamelCase for programs.
    message: Why, as a sentence for people.
    lastTransitionTime: When the status last changed.
    observedGeneration: The generation that the controller had seen.
io.k8s.api.core.v1
Pod: One or several containers that run together on a node.
PodSpec: What a pod runs, and where and how.
    containers: The containers that run side by side. There is at least one.
    initContainers: Containers that run one after the other, each to its end, before the others start.
    volumes: Volumes that the containers may mount.
    restartPolicy: Whether ended containers start again: Always, OnFailure or Never.
    serviceAccountName: The service account whose rights and token the pod's programs have.
    nodeName: The node that runs the pod. The scheduler sets it.
    nodeSelector: Labels that the node must have.
    affinity: Rules about nodes and about other pods that the scheduler weighs.
    tolerations: Taints of nodes that do not keep the pod away.
    topologySpreadConstraints: How evenly such pods spread over zones, nodes or other domains.
    terminationGracePeriodSeconds: Seconds between the signal to end and the kill.
    imagePullSecrets: Secrets with the credentials for private registries.
    securityContext: User, groups and privileges for all containers of the pod.
    priorityClassName: How important the pod is when nodes are full.
    hostNetwork: Whether the pod uses the network of its node.
    activeDeadlineSeconds: Seconds after which the pod is ended, counted from its start.
PodStatus: The observed state of a pod that runs, or has run.
    phase: Pending, Running, Succeeded, Failed or Unknown.
    conditions: Scheduled, initialized, ready: with reasons.
    podIP: The pod's address in the cluster's network.
    hostIP: The address of its node.
    containerStatuses: The state of each container: waiting, running or terminated, and its restarts.
Container: One program in a pod, with its image, its settings and its limits.
    name: Names the container within its pod.
    image: The image to run, with a tag or a digest.
    imagePullPolicy: When the image is fetched: Always, IfNotPresent or Never.
    command: Replaces the image's entry point. No shell reads it.
    args: Arguments for the command; replaces those of the image.
    workingDir: The directory in which the command starts.
    env: Environment variables: values, or where to take them from.
    envFrom: ConfigMaps and Secrets all of whose keys become environment variables.
    ports: Ports that the program listens on. They are open whether they are listed or not.
    resources: CPU, memory and other resources: the reserved amounts and the limits.
    volumeMounts: Which volumes appear at which paths.
    livenessProbe: A check whose failure restarts the container.
    readinessProbe: A check whose failure takes the pod out of its services.
    startupProbe: A check that must succeed once before the other probes begin.
    lifecycle: Actions after the start and before the end of the container.
    securityContext: User, capabilities and privileges of this container.
EnvVar: An environment variable.
    value: Its value. $(NAME) stands for variables before it.
    valueFrom: Where the value comes from: a ConfigMap, a Secret, a field of the pod.
ContainerPort: A port of a container.
    containerPort: The port's number in the pod.
    protocol: TCP, UDP or SCTP.
ResourceRequirements: Resources of a container.
    requests: What the scheduler reserves.
    limits: What the container may use at most.
Probe: A check that the kubelet repeats.
    httpGet: The check is a GET request; a status from 200 to 399 passes.
    exec: The check is a command in the container; exit status 0 passes.
    tcpSocket: The check is whether a TCP port accepts a connection.
    periodSeconds: Seconds between two checks.
    initialDelaySeconds: Seconds from the container's start to the first check.
    timeoutSeconds: Seconds after which a check counts as failed.
    failureThreshold: How many failures in a row count.
Volume: A folder for the containers of a pod, named, and where its content comes from.
    configMap: The content is that of a ConfigMap: a file for each key.
    secret: The content is that of a Secret: a file for each key.
    emptyDir: An empty folder, gone with the pod.
    persistentVolumeClaim: Storage that a claim holds, which outlives the pod.
    hostPath: A folder of the node.
VolumeMount: Where a volume appears in a container.
    mountPath: The path in the container.
    subPath: The part of the volume that appears there.
    readOnly: Whether the container may not write to it.
PodTemplateSpec: What a controller creates its pods from.
Service: A stable address and name for a set of pods.
ServiceSpec: Which pods a service stands for, and how it is reached.
    selector: Labels of the pods that get the traffic.
    ports: Ports of the service, and the pods' ports that they lead to.
    type: ClusterIP, NodePort, LoadBalancer or ExternalName.
    clusterIP: The service's address in the cluster; None for a service without one.
    externalName: For the type ExternalName: the DNS name that the service stands for.
ServicePort: A port of a service.
    port: The port that clients use.
    targetPort: The pods' port, by number or name.
    nodePort: The port that is open on each node, for the types NodePort and LoadBalancer.
ConfigMap: Settings for programs, as texts by key.
    data: The texts.
    binaryData: Values that are not UTF-8, in base64.
    immutable: Whether the data can never change.
Secret: Small values that few may read, such as passwords and keys.
    data: The values, in base64.
    stringData: Values as plain text, for writing only.
    type: What the values are for; some types require certain keys.
    immutable: Whether the data can never change.
Namespace: A scope for names, and for rights and quotas.
Node: A machine that runs pods.
Event: A report that something happened to an object.
ServiceAccount: An identity for programs in pods.
PersistentVolume: A piece of storage of the cluster.
PersistentVolumeClaim: A request for storage, which a volume fulfils.
io.k8s.api.apps.v1
Deployment: Keeps a number of like pods running, and replaces them step by step when their template changes.
DeploymentSpec: How many pods, of which template, and how they are replaced.
    replicas: How many pods are wanted.
    selector: Which pods belong to the deployment. It never changes.
    template: What new pods are created from.
    strategy: How old pods make way for new ones.
    revisionHistoryLimit: How many old ReplicaSets stay for a rollback.
    progressDeadlineSeconds: Seconds without progress after which a rollout counts as failed.
    minReadySeconds: Seconds that a new pod must be ready before it counts as available.
    paused: Whether changes of the template wait.
ReplicaSet: Keeps a number of like pods running. Deployments create them.
StatefulSet: Keeps pods with stable names and their own storage running, in order.
DaemonSet: Runs a pod on each node that matches.
io.k8s.api.batch.v1
Job: Runs pods until a number of them succeeded.
JobSpec: What a job runs, how often and for how long.
    template: What the pods are created from.
    completions: How many pods must succeed.
    parallelism: How many pods run at a time at most.
    backoffLimit: How many failed pods the job tolerates.
    activeDeadlineSeconds: Seconds after which the job is ended.
    ttlSecondsAfterFinished: Seconds after its end at which the job is deleted.
    suspend: Whether the job runs no pods for now.
CronJob: Creates a job at set times.
CronJobSpec: When a cron job creates jobs, and which.
    schedule: The times, in cron's five fields.
    timeZone: The time zone of the schedule, such as Europe/Berlin.
    concurrencyPolicy: What happens while the last job runs: Allow, Forbid or Replace.
    jobTemplate: What the jobs are created from.
io.k8s.api.networking.v1
Ingress: Leads HTTP requests from outside to services, by host and path.
IngressSpec: The rules of an ingress.
    ingressClassName: Which controller serves the ingress.
    rules: Hosts and paths, and the services behind them.
    tls: Secrets with certificates, by host.
    defaultBackend: Where requests go that match no rule.
NetworkPolicy: Says which traffic pods may send and receive.
io.k8s.api.rbac.v1
Role: Rights within a namespace.
    rules: Which verbs are allowed on which resources.
ClusterRole: Rights in all namespaces, and on cluster-scoped objects.
    rules: Which verbs are allowed on which resources.
RoleBinding: Gives a role's rights to users, groups and service accounts, in one namespace.
    subjects: Who gets the rights.
    roleRef: The role. It never changes.
ClusterRoleBinding: Gives a cluster role's rights to users, groups and service accounts, everywhere.
    subjects: Who gets the rights.
    roleRef: The cluster role. It never changes.
io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1
CustomResourceDefinition: Defines a kind of object that the API server then serves.
CustomResourceDefinitionSpec: The names, versions and schemas of a custom kind.
    group: The API group, a DNS name.
    names: Kind, plural, singular and short names.
    scope: Namespaced or Cluster.
    versions: The versions, each with its schema. Exactly one of them is stored.
    conversion: How objects change from one version to another: None or Webhook.
"""
#: Fields of every kind. The conformance suite expects the first words of apiVersion, metadata and creationTimestamp.
OF_KINDS: Final = {
    "apiVersion": "APIVersion defines the API group and version in which the object is written, such as apps/v1.",
    "kind": "The type of the object, such as Deployment.",
    "metadata": "Standard object's metadata: its name, namespace, labels and the like.",
    "spec": "The desired state.",
    "status": "The observed state, as controllers report it.",
}


def common_descriptions() -> dict[str, dict[str, str]]:
    """Return the descriptions by definition and field name; the description of the definition itself has an empty field name."""
    result: dict[str, dict[str, str]] = {}
    prefix, fields = "", dict[str, str]()
    for line in _TEXTS.strip().splitlines():
        name, colon, text = line.partition(": ")
        if not colon:
            prefix = name
        elif line.startswith(" "):
            fields[name.strip()] = text
        else:
            fields = result[f"{prefix}.{name}"] = {"": text}
    return result
