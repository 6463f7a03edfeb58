"""Clients of the proxy whose stores are compared: client-go's informers, in a Go program, and kubeloop's."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol, Self

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import Informer, InformerEvent, InformerFactory, WatchPolicy
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.config import load_config
from kubeloop.timing import Backoff
from kubeloop.transport import Transport
from tests.foreign.building import program

#: Key -> labels, data and version, as a client sees an object.
Store = dict[str, Any]

#: Data that every rule set removes: no client may ever see it.
SECRET = "secret"


class Mirror(Protocol):
    """A client of the proxy with a store."""

    name: str

    async def stores(self) -> Mapping[str, Store]:
        """Return the stores by name."""

    def faults(self) -> list[str]:
        """Return what the client was shown that it should not have been shown."""

    async def close(self) -> None:
        """End the client."""


class GoMirror:
    """The Go program: a typed informer (protobuf) and a dynamic one (JSON), with client-go's defaults."""

    name = "client-go"

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._faults: list[str] = []

    @classmethod
    async def start(cls, kubeconfig: Path) -> Self:
        """Start the program, which is built if needed."""
        command = await asyncio.to_thread(program, "go")
        process = await asyncio.create_subprocess_exec(
            str(command),
            "mirror",
            "default",
            env={"KUBECONFIG": str(kubeconfig), "HOME": "/nonexistent"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=1 << 26,
        )
        return cls(process)

    async def stores(self) -> Mapping[str, Store]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        answer = json.loads(await self._process.stdout.readline())
        self._faults = [f"{name}: {fault}" for name, found in answer.items() for fault in found["faults"] or ()]
        return {f"client-go {name}": _without_empty(found["store"]) for name, found in answer.items()}

    def faults(self) -> list[str]:
        return self._faults

    async def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.communicate()


class KubeloopMirror:
    """An informer of kubeloop."""

    name = "kubeloop"

    def __init__(self, kubeconfig: Path) -> None:
        self._stack = AsyncExitStack()
        self._kubeconfig = kubeconfig
        self._informer: Informer[ConfigMap] | None = None
        self._known: set[str] = set()
        self._faults: list[str] = []

    @classmethod
    async def start(cls, kubeconfig: Path, *, watch_list: bool) -> Self:
        """Start the informer. ``watch_list``: it streams its initial state; otherwise it lists."""
        made = cls(kubeconfig)
        client = await made._stack.enter_async_context(Client(Transport(load_config(kubeconfig))))
        # The default back-off waits up to a minute after the faults of a round.
        policy = WatchPolicy(watch_list=watch_list, backoff=lambda: Backoff(0.05, cap=0.5))
        factory = InformerFactory(client, policy=policy)
        made._informer = factory.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        made._informer.on_event(added=made._added, updated=made._updated, deleted=made._deleted)
        await made._stack.enter_async_context(factory)
        return made

    async def stores(self) -> Mapping[str, Store]:
        assert self._informer is not None
        return {"kubeloop": {_key(found): shown(found.to_dict()) for found in self._informer.lister.list()}}

    def faults(self) -> list[str]:
        return self._faults

    async def close(self) -> None:
        await self._stack.aclose()

    def _added(self, event: InformerEvent[ConfigMap]) -> None:
        self._see("addition", event, known=False)
        self._known.add(_named(event))

    def _updated(self, event: InformerEvent[ConfigMap]) -> None:
        self._see("update", event, known=True)

    def _deleted(self, event: InformerEvent[ConfigMap]) -> None:
        self._see("deletion", event, known=True)
        self._known.discard(_named(event))

    def _see(self, change: str, event: InformerEvent[ConfigMap], *, known: bool) -> None:
        key = _named(event)
        if (key in self._known) is not known:
            self._faults.append(f"kubeloop: {change} of {key}, which was known: {key in self._known}")
        if SECRET in (event.object.data or {}):
            self._faults.append(f"kubeloop: {change} of {key} shows its secret")


def _named(event: InformerEvent[ConfigMap]) -> str:
    return f"{event.key.namespace}/{event.key.name}"


def shown(tree: dict[str, Any]) -> dict[str, Any]:
    """Return the part of an object that is compared."""
    metadata = tree.get("metadata") or {}
    return {"labels": metadata.get("labels") or {}, "data": tree.get("data") or {}, "version": metadata.get("resourceVersion", "")}


def _key(config_map: ConfigMap) -> str:
    return f"{config_map.metadata.namespace}/{config_map.metadata.name}"


def _without_empty(store: Store) -> Store:
    return {key: {name: value if value is not None else {} for name, value in found.items()} for key, found in store.items()}
