"""The official client: one typed pod, from the kubeconfig."""

import sys

import kubernetes

kubernetes.config.load_kube_config()
assert kubernetes.client.CoreV1Api().read_namespaced_pod(sys.argv[2], sys.argv[1]).spec.containers
