"""kubernetes_asyncio: one typed pod, from the kubeconfig."""

import asyncio
import sys

import kubernetes_asyncio as k8s


async def main() -> None:
    await k8s.config.load_kube_config()
    async with k8s.client.ApiClient() as connection:
        pod = await k8s.client.CoreV1Api(connection).read_namespaced_pod(sys.argv[2], sys.argv[1])
        assert pod.spec.containers


asyncio.run(main())
