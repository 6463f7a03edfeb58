"""``client.pods``: the methods for pods. Each method loads its implementation when it is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from kubeloop.client.options import DeleteOptions, WriteOptions
from kubeloop.client.verbs.base import described_target, limited, opened_within
from kubeloop.meta import Resource

if TYPE_CHECKING:
    from kubeloop.client.client import Client
    from kubeloop.client.selector_text import Labels
    from kubeloop.client.streams.file_copy import CopyProgress, CopyResult
    from kubeloop.client.streams.logs import LogCall, Since
    from kubeloop.client.streams.merged_logs import MergedLogs
    from kubeloop.client.streams.pod_proxy import ProxyCall
    from kubeloop.client.streams.port_forward import PortForward
    from kubeloop.client.streams.session import ExecResult, ExecSession
    from kubeloop.client.streams.targets import PortSpec
    from kubeloop.transport import Query

Target: TypeAlias = str | Resource
"""The name of a pod, a service or workload in kubectl's form (``svc/web``, ``deploy/web``), or such an object."""


class PodVerbs:
    """The methods for pods, ``client.pods``: streams, eviction, binding.

    Target
        ``target`` is a pod's name; or ``svc/web``, ``deploy/web``, ``rs/``, ``sts/``, ``ds/``, ``job/``, ``rc/``; or such an object.
        If the target has several pods, the best one is chosen, as by kubectl. ``container=None`` means the container in the annotation
        ``kubectl.kubernetes.io/default-container``, or else the first container.

    Raises
        ``ApiError``: the server or the pod's node refused. ``StreamError`` and its subclasses (``kubeloop.client.streams``): pod, container
        or peer are not in the required state. ``TransportError``: the connection was lost. Each error names pod and container.
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
        timeout: float | None = None,
    ) -> LogCall:
        """Return the log of one container: ``await`` it for the whole text, or use ``async with`` for a ``Log`` of lines or bytes.

        Args:
            target: A pod, or an object with pods (see ``PodVerbs``).
            namespace: None: the client's.
            container: None: the default container.
            follow: Continue until the container ends, also after a lost connection, unless ``resume`` is False or ``limit_bytes`` is set.
            previous: Read the log of the instance before the last restart.
            since: Seconds or a duration before now, or a time; whole seconds count. None: from the beginning.
            tail: Only this number of last lines. None: all.
            limit_bytes: Maximum number of bytes. None: no limit.
            timestamps: Each line begins with its time.
            resume: Continue after a lost connection.
            timeout: Seconds for an awaited log, or until the log of a block is open. None: only each request is limited.

        Returns:
            A log that is not requested yet.

        Raises:
            NotFound, BadRequest: The pod does not exist; its container has not started. OutputTooLarge: awaited, and larger than 64 MiB.
            DeadlineError: ``timeout`` passed.
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
        return LogCall(self._client, target, namespace, container, options, timeout=timeout)

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
        timeout: float | None = None,
    ) -> MergedLogs:
        """Return the logs of all pods of ``targets`` and of all pods with matching labels as one stream of lines.

        Use ``async with``, then ``async for line in lines``. ``str(line)`` begins with pod and container.

        Args:
            targets: Pods, or objects with pods (see ``PodVerbs``).
            label_selector: Labels of further pods.
            namespace: None: the client's.
            container: A container of each pod. None: the default container.
            all_containers: Read all containers of each pod.
            max_sources: Maximum number of containers with ``follow``, as in kubectl; more are an error.
            ignore_errors: Log a container's failure and continue with the others.
            follow: As for ``logs``.
            previous: As for ``logs``.
            since: As for ``logs``.
            tail: As for ``logs``.
            timestamps: As for ``logs``.
            timeout: Seconds until all pods are found; the logs are requested when lines are read. None: only each request is limited.

        Returns:
            Logs that are not requested yet.
        """
        from kubeloop.client.streams.logs import LogOptions
        from kubeloop.client.streams.merged_logs import LogSources, MergedLogs

        sources = LogSources(
            targets=targets,
            label_selector=label_selector,
            namespace=namespace,
            container=container,
            all_containers=all_containers,
            max_sources=max_sources,
            ignore_errors=ignore_errors,
        )
        options = LogOptions(follow=follow, previous=previous, since=since, tail=tail, timestamps=timestamps)
        return MergedLogs(self._client, sources, options, timeout=timeout)

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
        """Run a command to its end: ``(await client.pods.exec("web-0", ["ls"])).text``.

        An exit code other than 0 is not an error (see ``ExecResult.check``).

        Args:
            target: A pod, or an object with pods (see ``PodVerbs``).
            command: The program and its arguments.
            namespace: None: the client's.
            container: None: the default container.
            stdin: The whole input; text is encoded as UTF-8. None: no input.
            max_output: Maximum number of bytes of stdout and of stderr.
            timeout: Seconds for the whole call; the command itself continues. None: only the request is limited.

        Returns:
            The exit code and the output.

        Raises:
            OutputTooLarge: The command wrote more than ``max_output`` bytes to stdout or to stderr.
            DeadlineError: ``timeout`` passed. For other errors see ``PodVerbs``.
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
        timeout: float | None = None,
    ) -> AbstractAsyncContextManager[ExecSession]:
        """Run a command with open input and output: ``async with client.pods.exec_stream(...) as session``.

        Args:
            target: A pod, or an object with pods (see ``PodVerbs``).
            command: The program and its arguments.
            namespace: None: the client's.
            container: None: the default container.
            stdin: The command gets input (``session.write``).
            tty: The command gets a terminal, with a single output and a window size (``session.resize``).
            timeout: Seconds until the session is open, not for its use. None: only each request is limited.

        Returns:
            A context manager whose value is the session.
        """
        from kubeloop.client.streams.commands import exec_session

        session = exec_session(self._client, target, command, namespace=namespace, container=container, stdin=stdin, tty=tty)
        return opened_within(session, timeout, self._client.clock, f"exec_stream {described_target(target)}")

    def attach(
        self,
        target: Target,
        *,
        namespace: str | None = None,
        container: str | None = None,
        stdin: bool = False,
        timeout: float | None = None,
    ) -> AbstractAsyncContextManager[ExecSession]:
        """Attach to the main process of a container: read its output from now on, and write its input. The session ends with the process.

        A container with ``tty: true`` has a single output and a window size.

        Args:
            target: A pod, or an object with pods (see ``PodVerbs``).
            namespace: None: the client's.
            container: None: the default container.
            stdin: Open the input of the process for ``session.write``.
            timeout: Seconds until the session is open, not for its use. None: only each request is limited.

        Returns:
            A context manager whose value is the session.

        Raises:
            StreamError: Also if ``stdin`` is True and the container has none.
        """
        from kubeloop.client.streams.commands import attach_session

        session = attach_session(self._client, target, namespace=namespace, container=container, stdin=stdin)
        return opened_within(session, timeout, self._client.clock, f"attach {described_target(target)}")

    def port_forward(
        self,
        target: Target,
        *ports: PortSpec,
        namespace: str | None = None,
        address: str = "127.0.0.1",
        timeout: float | None = None,
    ) -> AbstractAsyncContextManager[PortForward]:
        """Forward ports of a pod to local sockets, and to connections within this process: ``async with`` it for a ``PortForward``.

        Args:
            target: A pod, or an object with pods (see ``PodVerbs``).
            ports: As for kubectl: ``8080``, ``"8080:80"``, ``":80"`` (any free local port: ``forward.ports[0].local``), ``"8080:http"``;
                for a service they are its ports. Without any, only ``forward.connect`` works.
            namespace: None: the client's.
            address: The local address of the sockets. Everyone with access to it can reach the pod.
            timeout: Seconds until the forward is open, not for its use. None: only each request is limited.

        Returns:
            A context manager whose value is the forward.

        Raises:
            ValueError: A port is malformed. StreamError: the pod does not run or has no such port, or a local port is in use.
        """
        from kubeloop.client.streams.port_forward import forward_ports

        forward = forward_ports(self._client, target, ports, namespace=namespace, address=address)
        return opened_within(forward, timeout, self._client.clock, f"port_forward {described_target(target)}")

    @limited
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
        timeout: float | None = None,
    ) -> CopyResult:
        """Copy a local file or folder into a container, which needs ``tar``.

        As in kubectl, ``source`` is copied into ``destination`` if that is a folder; otherwise it gets that name. Symbolic links stay
        links; the result names skipped files, such as devices.

        Args:
            target: A pod, or an object with pods (see ``PodVerbs``).
            source: A local path.
            destination: A path in the container.
            namespace: None: the client's.
            container: None: the default container.
            preserve: Keep owners and modes; False: those of the user that runs tar there.
            progress: Called as bytes are sent; its errors end the copy.
            timeout: Seconds for the whole copy. None: only each request is limited.

        Returns:
            The numbers of files and bytes, and the skipped files.

        Raises:
            CopyError: A file cannot be read, or tar reports an incomplete copy.
            DeadlineError: ``timeout`` passed; a part of the files may be in the container.
        """
        from pathlib import Path

        from kubeloop.client.streams.file_copy import copy_to

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

    @limited
    async def copy_from(
        self,
        target: Target,
        source: str,
        destination: str | PathLike[str],
        *,
        namespace: str | None = None,
        container: str | None = None,
        progress: Callable[[CopyProgress], object] | None = None,
        timeout: float | None = None,
    ) -> CopyResult:
        """Copy a file or folder of a container, which needs ``tar``, to the local path ``destination``, as in kubectl.

        The archive from the container is not trusted: nothing is written outside ``destination`` or through a link below it. Symbolic links
        are skipped, as by kubectl; the result names them.

        Args:
            target: A pod, or an object with pods (see ``PodVerbs``).
            source: A path in the container.
            destination: A local path.
            namespace: None: the client's.
            container: None: the default container.
            progress: Called as bytes arrive; its errors end the copy.
            timeout: Seconds for the whole copy. None: only each request is limited.

        Returns:
            The numbers of files and bytes, and the skipped files.

        Raises:
            CopyError: The archive leads outside or is incomplete, tar failed, or a file cannot be written.
            DeadlineError: ``timeout`` passed. In both cases written files stay.
        """
        from pathlib import Path

        from kubeloop.client.streams.file_copy import copy_from

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
        timeout: float | None = None,
    ) -> ProxyCall:
        """Send an HTTP request to a pod, or to ``svc/NAME``, through the API server: ``await`` it, or use ``async with`` for a stream.

        The request is sent once; redirects are errors.

        Args:
            target: A pod or a service.
            path: The path as plain text; it is escaped here.
            method: The HTTP method.
            port: A port's number or name. None: the first.
            https: The server in the pod speaks TLS; the API server does not check its certificate.
            query: Parameters of the URL.
            body: The request's body. None: none.
            content_type: The body's media type.
            headers: Further headers.
            namespace: None: the client's.
            timeout: Seconds for an awaited response, or until the head of a stream arrives. None: only the request is limited.

        Returns:
            A request that is not sent yet.

        Raises:
            ApiError: The API server refused, or the program answered with 400 or above; ``status.code`` and the message show which.
        """
        from kubeloop.client.streams.pod_proxy import ProxyCall, ProxyRequest

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
        return ProxyCall(self._client, request, timeout=timeout)

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
        """Delete a pod if its disruption budgets allow that.

        Args:
            pod: The pod's name.
            namespace: None: the client's.
            grace_period_seconds: Seconds in which the pod may end. None: the pod's own.
            options: Further options, as for ``delete``.
            timeout: Seconds for the whole call. None: only the request is limited.

        Raises:
            TooManyRequests: a budget does not allow it now; the text names it. NotFound: the pod does not exist. Conflict: a precondition
                is not met.
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
        """Assign a pod to a node, as a scheduler does.

        Args:
            pod: The pod's name.
            node: The node's name.
            namespace: None: the client's.
            uid: The uid that the pod must have. Empty: any.
            options: Further options of the write.
            timeout: Seconds for the whole call. None: only the request is limited.

        Raises:
            Conflict: The pod is already assigned, or has another uid. NotFound: the pod does not exist.
        """
        from kubeloop.api.core.v1 import Pod

        mapping = await self._client.mapping(Pod)
        where = self._client._namespace_of(mapping, namespace)
        metadata = {"name": pod, "namespace": where} | ({"uid": uid} if uid else {})
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        path = mapping.path(where, pod, "binding")
        await self._client.transport.request("POST", path, query=self._client._query(options), body=msgspec.json.encode(binding))
