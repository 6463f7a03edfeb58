"""``client.pods``: what concerns pods only. Kept light: what a method needs is loaded when it is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from kubeloop.client.options import DeleteOptions, WriteOptions
from kubeloop.client.verbs.base import limited
from kubeloop.meta import Resource

if TYPE_CHECKING:
    from kubeloop.client.client import Client
    from kubeloop.client.selector_text import Labels
    from kubeloop.client.streams.copying import CopyProgress, CopyResult
    from kubeloop.client.streams.forwarding import PortForward
    from kubeloop.client.streams.logs import LogCall, Since
    from kubeloop.client.streams.merged_logs import MergedLogs
    from kubeloop.client.streams.proxying import ProxyCall
    from kubeloop.client.streams.session import ExecResult, ExecSession
    from kubeloop.client.streams.targets import PortSpec
    from kubeloop.transport import Query

Target: TypeAlias = str | Resource
"""A pod by name, anything with pods as kubectl spells it (``svc/web``, ``deploy/web``), or the object itself."""


class PodVerbs:
    """What concerns pods only, ``client.pods``: streams to and from them, eviction, binding.

    Which pod
        ``target`` is a pod's name; or ``svc/web``, ``deploy/web``, ``rs/``, ``sts/``, ``ds/``, ``job/``, ``rc/``; or such an object.
        Of many pods the best is taken, as by kubectl. ``container=None`` is the one that the annotation
        ``kubectl.kubernetes.io/default-container`` names, else the first.

    Raises
        ``ApiError``: the server, or the pod's node, refused; ``StreamError`` and its children (``kubeloop.client.streams``): the pod, its
        container or the peer is not what it should be; ``TransportError``: the connection broke. Each names pod and container.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def logs(
        self,
        target: Target,
        *,
        namespace: str | None = None,
        container: str | None = None,
        follow: bool = False,
        previous: bool = False,
        since: Since | None = None,
        tail: int | None = None,
        limit_bytes: int | None = None,
        timestamps: bool = False,
        resume: bool = True,
    ) -> LogCall:
        """The log of one container: ``await`` it for all of it as text, or ``async with`` it for a ``Log`` of lines or bytes.

        ``follow``: go on until the container ends; after a cut too, unless ``resume`` is False or ``limit_bytes`` is given.
        ``previous``: of the instance before the last restart. ``since``: seconds or a duration before now, or a moment; whole seconds
        count. ``tail``: only that many of the last lines. ``timestamps``: each line begins with its time.

        Raises:
            NotFound, BadRequest: there is no such pod; its container has not started. OutputTooLarge: awaited, and larger than 64 MiB.
        """
        from kubeloop.client.streams.logs import LogCall, LogOptions

        options = LogOptions(
            follow=follow,
            previous=previous,
            since=since,
            tail=tail,
            limit_bytes=limit_bytes,
            timestamps=timestamps,
            resume=resume,
        )
        return LogCall(self._client, target, namespace, container, options)

    def merged_logs(
        self,
        *targets: Target,
        label_selector: Labels | None = None,
        namespace: str | None = None,
        container: str | None = None,
        all_containers: bool = False,
        max_sources: int = 5,
        ignore_errors: bool = False,
        follow: bool = False,
        previous: bool = False,
        since: Since | None = None,
        tail: int | None = None,
        timestamps: bool = False,
    ) -> MergedLogs:
        """Logs of all pods of ``targets`` and of those that ``labels`` select, as one: ``async with`` it, then ``async for line in lines``.

        ``str(line)`` begins with pod and container. ``container`` is that of each pod; ``all_containers`` takes every one. At most
        ``max_sources`` are followed at once (kubectl's limit; more is an error). ``ignore_errors``: a source that fails is logged and left
        out. The rest as of ``logs``.
        """
        from kubeloop.client.streams.logs import LogOptions
        from kubeloop.client.streams.merged_logs import MergedLogs, Sources

        sources = Sources(
            targets=targets,
            label_selector=label_selector,
            namespace=namespace,
            container=container,
            all_containers=all_containers,
            max_sources=max_sources,
            ignore_errors=ignore_errors,
        )
        options = LogOptions(follow=follow, previous=previous, since=since, tail=tail, timestamps=timestamps)
        return MergedLogs(self._client, sources, options)

    async def exec(
        self,
        target: Target,
        command: Sequence[str],
        *,
        namespace: str | None = None,
        container: str | None = None,
        stdin: bytes | str | None = None,
        max_output: int = 16 << 20,
        timeout: float | None = None,
    ) -> ExecResult:
        """Run a command to its end: ``(await client.pods.exec("web-0", ["ls"])).text``. A code other than 0 is no error (see ``check``).

        ``stdin`` is all of its input, text as UTF-8; None: it has none. ``max_output`` in bytes, for stdout and stderr each. ``timeout``
        in seconds ends the waiting, not the command.

        Raises:
            OutputTooLarge, DeadlineError, and as the class says.
        """
        from kubeloop.client.streams.commands import run

        return await run(
            self._client,
            target,
            command,
            namespace=namespace,
            container=container,
            stdin=stdin.encode() if isinstance(stdin, str) else stdin,
            max_output=max_output,
            timeout=timeout,
        )

    def exec_stream(
        self,
        target: Target,
        command: Sequence[str],
        *,
        namespace: str | None = None,
        container: str | None = None,
        stdin: bool = False,
        tty: bool = False,
    ) -> AbstractAsyncContextManager[ExecSession]:
        """Run a command and talk to it while it runs: ``async with client.pods.exec_stream(...) as session``.

        ``stdin``: it takes input (``session.write``). ``tty``: it has a terminal, with one output, and a window (``session.resize``).
        """
        from kubeloop.client.streams.commands import exec_session

        return exec_session(self._client, target, command, namespace=namespace, container=container, stdin=stdin, tty=tty)

    def attach(
        self, target: Target, *, namespace: str | None = None, container: str | None = None, stdin: bool = False
    ) -> AbstractAsyncContextManager[ExecSession]:
        """Take part in what a container's own process reads and writes, from now on. Its end is the end of the session.

        A container that was made with ``tty: true`` has one output and a window, whether asked for or not.

        Raises:
            StreamError: also where ``stdin`` is asked of a container that was made without it.
        """
        from kubeloop.client.streams.commands import attach_session

        return attach_session(self._client, target, namespace=namespace, container=container, stdin=stdin)

    def port_forward(
        self, target: Target, *ports: PortSpec, namespace: str | None = None, address: str = "127.0.0.1"
    ) -> AbstractAsyncContextManager[PortForward]:
        """Ports of a pod as local sockets, and as connections within this process; ``async with`` it for a ``PortForward``.

        ``ports`` as kubectl takes them: ``8080``, ``"8080:80"``, ``":80"`` (any free local port: ``forward.ports[0].local``),
        ``"8080:http"``; of a service they are the service's. Without any, only ``forward.connect`` works. ``address`` is where the sockets
        listen: whoever can reach it reaches the pod.

        Raises:
            ValueError: that is no port. StreamError: the pod does not run or has no such port, or a local port is taken.
        """
        from kubeloop.client.streams.forwarding import forward_ports

        return forward_ports(self._client, target, ports, namespace=namespace, address=address)

    async def copy_to(
        self,
        target: Target,
        source: str | PathLike[str],
        destination: str,
        *,
        namespace: str | None = None,
        container: str | None = None,
        preserve: bool = True,
        progress: Callable[[CopyProgress], object] | None = None,
    ) -> CopyResult:
        """Copy a file or folder of this machine into a container, which needs ``tar``.

        As kubectl: where ``destination`` is a folder, ``source`` comes into it; else it gets that name. Symbolic links stay links; what is
        neither file, folder nor link is left out, and the result names it. ``preserve`` False: owners and modes are those of who runs tar
        there. ``progress`` is called as bytes go; what it raises ends the copy.

        Raises:
            CopyError: a file cannot be read, or tar says that not everything was copied.
        """
        from pathlib import Path

        from kubeloop.client.streams.copying import copy_to

        return await copy_to(
            self._client,
            target,
            Path(source),
            destination,
            namespace=namespace,
            container=container,
            preserve=preserve,
            progress=progress,
        )

    async def copy_from(
        self,
        target: Target,
        source: str,
        destination: str | PathLike[str],
        *,
        namespace: str | None = None,
        container: str | None = None,
        progress: Callable[[CopyProgress], object] | None = None,
    ) -> CopyResult:
        """Copy a file or folder of a container, which needs ``tar``, to this machine: it becomes ``destination``, as with kubectl.

        What the container sends is not trusted: nothing is written outside ``destination`` or through a link below it. Symbolic links are
        left out, as by kubectl; the result names them.

        Raises:
            CopyError: the archive leads elsewhere or breaks off, tar failed, or a file cannot be written. What was written stays.
        """
        from pathlib import Path

        from kubeloop.client.streams.copying import copy_from

        return await copy_from(self._client, target, source, Path(destination), namespace=namespace, container=container, progress=progress)

    def proxy(
        self,
        target: Target,
        path: str = "/",
        *,
        method: str = "GET",
        port: int | str | None = None,
        https: bool = False,
        query: Query | None = None,
        body: bytes | None = None,
        content_type: str = "application/octet-stream",
        headers: Mapping[str, str] | None = None,
        namespace: str | None = None,
    ) -> ProxyCall:
        """An HTTP request to a pod, or ``svc/NAME``, through the API server: ``await`` it for the answer, ``async with`` it for a stream.

        ``path`` is plain text, and is escaped here. ``port`` is a number or name, by default the first; ``https``: the server there speaks
        TLS, whose certificate the API server does not check. The request is sent once; redirects are errors.

        Raises:
            ApiError: the API server refuses, or the program there answers with 400 or above, which ``status.code`` and the message tell.
        """
        from kubeloop.client.streams.proxying import ProxyCall, ProxyRequest

        request = ProxyRequest(
            target=target,
            path=path,
            method=method,
            port=port,
            https=https,
            query=query,
            body=body,
            content_type=content_type,
            headers=headers,
            namespace=namespace,
        )
        return ProxyCall(self._client, request)

    @limited
    async def evict(
        self,
        pod: str,
        *,
        namespace: str | None = None,
        grace_period_seconds: int | None = None,
        options: DeleteOptions | None = None,
        timeout: float | None = None,
    ) -> None:
        """Delete a pod if its disruption budgets allow it. ``options`` as for ``delete``.

        Raises:
            TooManyRequests: a budget does not allow it now; the text says which. NotFound: no such pod. Conflict: a precondition.
        """
        from kubeloop.api.core.v1 import Pod

        mapping = await self._client.mapping(Pod)
        where = self._client._namespace_of(mapping, namespace)
        options = options or DeleteOptions()
        if grace_period_seconds is not None:
            options = msgspec.structs.replace(options, grace_period_seconds=grace_period_seconds)
        options = msgspec.structs.replace(options, dry_run=options.dry_run or self._client._defaults.dry_run)
        eviction: dict[str, Any] = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": where}}
        if options != DeleteOptions():
            eviction["deleteOptions"] = msgspec.Raw(options.body())
        await self._client.transport.request("POST", mapping.path(where, pod, "eviction"), body=msgspec.json.encode(eviction))

    @limited
    async def bind(
        self,
        pod: str,
        node: str,
        *,
        namespace: str | None = None,
        uid: str = "",
        options: WriteOptions | None = None,
        timeout: float | None = None,
    ) -> None:
        """Assign a pod to a node, as a scheduler does; with ``uid`` only that very pod.

        Raises:
            Conflict: it is assigned already, or another pod has its name now. NotFound: no such pod.
        """
        from kubeloop.api.core.v1 import Pod

        mapping = await self._client.mapping(Pod)
        where = self._client._namespace_of(mapping, namespace)
        metadata = {"name": pod, "namespace": where} | ({"uid": uid} if uid else {})
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        path = mapping.path(where, pod, "binding")
        await self._client.transport.request("POST", path, query=self._client._query(options), body=msgspec.json.encode(binding))
