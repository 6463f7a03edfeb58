"""An operator with kopf: a Deployment for each Foo, its size kept, the available replicas reported. In a separate environment."""

import kopf
import kubernetes

GROUP, VERSION, PLURAL = "samplecontroller.k8s.io", "v1alpha1", "foos"


@kopf.on.startup()
def configure(settings, **_):
    settings.posting.enabled = False
    kubernetes.config.load_kube_config()


@kopf.on.resume(GROUP, VERSION, PLURAL)
@kopf.on.create(GROUP, VERSION, PLURAL)
@kopf.on.update(GROUP, VERSION, PLURAL, field="spec")
def reconcile(body, spec, namespace, **_):
    apps = kubernetes.client.AppsV1Api()
    deployment = render(spec)
    kopf.adopt(deployment, owner=body)
    try:
        apps.create_namespaced_deployment(namespace, deployment)
    except kubernetes.client.ApiException as error:
        if error.status != 409:
            raise
        change = {"spec": {"replicas": spec["replicas"]}}
        apps.patch_namespaced_deployment(spec["deploymentName"], namespace, change)


@kopf.on.event("apps", "v1", "deployments", labels={"controller": kopf.PRESENT})
def child_changed(event, labels, status, namespace, **_):
    foos = kubernetes.client.CustomObjectsApi()
    try:
        foo = foos.get_namespaced_custom_object(GROUP, VERSION, namespace, PLURAL, labels["controller"])
    except kubernetes.client.ApiException as error:
        if error.status == 404:
            return
        raise
    if event["type"] == "DELETED":
        reconcile(body=foo, spec=foo["spec"], namespace=namespace)
        return
    available = status.get("availableReplicas", 0)
    if foo.get("status", {}).get("availableReplicas", 0) != available:
        change = {"status": {"availableReplicas": available}}
        foos.patch_namespaced_custom_object_status(GROUP, VERSION, namespace, PLURAL, labels["controller"], change)


def render(spec):
    labels = {"app": "nginx", "controller": spec["deploymentName"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": spec["deploymentName"], "labels": labels},
        "spec": {
            "replicas": spec["replicas"],
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "nginx", "image": "nginx:latest"}]},
            },
        },
    }
