"""A proxy that rewrites the Tables of kubectl."""

from __future__ import annotations

import time
from dataclasses import replace

from examples.api_proxy_tutorial.stage2_get.rewrite import rewrite
from examples.api_proxy_tutorial.stage5_watch.proxy import WatchProxy
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.request_info import RequestInfo
from kubeloop.endpoints.tables import table
from kubeloop.serving.answer import Answer, Reply
from kubeloop.serving.request import Request

_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


class TableProxy(WatchProxy):
    """Computes the rows of Tables from the pods that clients see."""

    async def pods(self, request: Request, info: RequestInfo) -> Reply:
        if info.verb not in ("get", "list") or "as=Table" not in request.header("Accept"):
            return await super().pods(request, info)
        # The rows of a Table hold the metadata of their objects. With the whole object the proxy can rewrite it.
        query = "&".join([pair for pair in request.query_string.split("&") if pair] + ["includeObject=Object"])
        reply = await self.open(replace(request, query_string=query), _TABLE)
        status, document = await self.document_of(reply)
        if status != 200:
            return Answer(status, object=document)
        pods = [seen for row in document["rows"] or () if (seen := rewrite(row["object"])) is not None]
        if info.verb == "get" and not pods:
            raise api_errors.not_found(info.group_resource, info.name)
        metadata = {name: value for name, value in document["metadata"].items() if name != "remainingItemCount"}
        return Answer(object=table(info.group_resource, pods, metadata, now=time.time()))
