"""A proxy that rewrites lists of pods too."""

from __future__ import annotations

from examples.api_proxy_tutorial.stage2_get.proxy import GetProxy
from examples.api_proxy_tutorial.stage2_get.rewrite import rewrite
from kubeloop.endpoints.request_info import RequestInfo
from kubeloop.serving.answer import Answer, Reply
from kubeloop.serving.request import Request
from kubeloop.types import JSONObject


class ListProxy(GetProxy):
    """Rewrites each item of a list with the function that rewrites single pods."""

    async def pods(self, request: Request, info: RequestInfo) -> Reply:
        if info.verb != "list" or "as=Table" in request.header("Accept"):
            return await super().pods(request, info)
        status, document = await self.fetch(request)
        return Answer(status, object=rewritten_list(document) if status == 200 else document)


def rewritten_list(document: JSONObject) -> JSONObject:
    """Return a PodList as clients see it."""
    # The number of the items that remain would count hidden pods. resourceVersion and continue stay.
    metadata = {name: value for name, value in document["metadata"].items() if name != "remainingItemCount"}
    items = [seen for pod in document["items"] or () if (seen := rewrite(pod)) is not None]
    return {**document, "metadata": metadata, "items": items}
