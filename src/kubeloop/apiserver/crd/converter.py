"""Custom objects from version to version through a webhook: defaulted and pruned by the schemas on both sides, answers remembered.

Source: apiextensions-apiserver pkg/apiserver (customresource_handler.go: storage decodes, defaults, converts, prunes).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from kubeloop.apiserver import refusals
from kubeloop.apiserver.encoding import decode, encode
from kubeloop.apiserver.resource import ConversionNeeded
from kubeloop.apiserver.strategy import Strategy
from kubeloop.apiserver.webhooks.conversion import ConversionWebhook

JSONObject = dict[str, Any]

_Key = tuple[bytes, str]
#: Answers remembered. One is a few KiB.
_MOST_KNOWN = 4096


class WebhookConverter:
    """Converts objects of one definition, whatever versions they are in.

    Guarantees
        The webhook is asked once for an object and version while its answer is remembered, however many want it at the same time.
        All objects of one call that are not known go to the webhook in one review.
    """

    def __init__(self, webhook: ConversionWebhook, strategies: Mapping[str, Strategy]) -> None:
        """``strategies`` by version (``v1``)."""
        self._webhook = webhook
        self._strategies = strategies
        self._known: OrderedDict[_Key, bytes] = OrderedDict()
        self._asked: dict[_Key, asyncio.Task[dict[_Key, bytes]]] = {}

    async def convert(self, objects: list[JSONObject], to: str, *, stored: bool = False) -> list[JSONObject]:
        """Fresh trees in the API version ``to``. ``stored``: they come from storage, so that defaults of their version are filled in.

        Raises:
            ApiError: the webhook failed.
        """
        sources = [self._source(one, to, stored=stored) for one in objects]
        keys = [(source, to) for source in sources]
        found = {key: self._known[key] for key in keys if key in self._known}
        missing = [key for key in dict.fromkeys(keys) if key not in found and key not in self._asked]
        if missing:
            task = asyncio.create_task(self._ask(missing, to), name=f"conversion to {to}")
            task.add_done_callback(lambda ended: self._done(ended, missing))
            self._asked |= dict.fromkeys(missing, task)
        for task in {self._asked[key] for key in keys if key not in found}:
            found |= await asyncio.shield(task)
        return [decode(found[key]) for key in keys]

    def known(self, obj: JSONObject, to: str) -> JSONObject:
        """The same for what has been converted before.

        Raises:
            ConversionNeeded: it has not, or was forgotten.
        """
        found = self._known.get((self._source(obj, to, stored=False), to))
        if found is None:
            raise ConversionNeeded(obj, to)
        tree: JSONObject = decode(found)
        return tree

    def _source(self, obj: JSONObject, to: str, *, stored: bool) -> bytes:
        """What the webhook is shown."""
        if obj.get("apiVersion") == to:
            return encode(obj)
        strategy = self._strategies.get(_version(obj))
        if strategy is None:
            raise refusals.undefined_version(obj.get("apiVersion", ""))
        if stored:
            strategy.conform(obj)
            strategy.default(obj)
        return encode(obj)

    async def _ask(self, keys: list[_Key], to: str) -> dict[_Key, bytes]:
        trees: dict[_Key, JSONObject] = {key: decode(key[0]) for key in keys}
        foreign = [key for key, tree in trees.items() if tree.get("apiVersion") != to]
        made = await self._webhook.convert([trees[key] for key in foreign], to) if foreign else []
        target = self._strategies.get(to.rpartition("/")[2])
        for key, tree in zip(foreign, made, strict=True):
            if target is not None:
                target.conform(tree)
            trees[key] = tree
        return {key: encode(tree) for key, tree in trees.items()}

    def _done(self, task: asyncio.Task[dict[_Key, bytes]], keys: list[_Key]) -> None:
        for key in keys:
            self._asked.pop(key, None)
        if task.cancelled() or task.exception() is not None:
            return  # whoever waits is told; nobody may be left
        for key, value in task.result().items():
            self._known[key] = value
        while len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)


def _version(obj: JSONObject) -> str:
    return str(obj.get("apiVersion", "")).rpartition("/")[2]
