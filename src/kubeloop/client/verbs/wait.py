"""Waits until an object meets a condition, is ready, created, deleted or rolled out. Each wait has a deadline."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar

from kubeloop.client.selector_text import Fields, Labels
from kubeloop.client.verbs.get_list import Reading
from kubeloop.client.watches import Event
from kubeloop.meta import DeadlineError, Resource

if TYPE_CHECKING:
    from kubeloop.client.waits.conditions import WaitCondition

R = TypeVar("R", bound=Resource)


class Waiting(Reading):
    """The methods wait_for, wait_ready and other waits. ``timeout`` is in seconds and required.

    Raises
        DeadlineError: ``timeout`` passed; the text describes the object's last state, or says that it never existed.
        WaitFailed: the condition can no longer be met.
        ApiError: the server refuses (401, 403, 404 of the kind). While the server cannot be reached, the wait continues.
        TransportError: the client was closed.
    """

    async def wait_for(
        self,
        kind: type[R],
        name: str,
        want: Callable[[R], object] | str | WaitCondition[R],
        *,
        timeout: float,
        namespace: str | None = None,
    ) -> R:
        """Wait until the object exists and meets a condition; return it in that state.

        Args:
            kind: The class of the object.
            name: The object's name.
            want: A function that returns True for the object; or a text as in ``kubectl wait --for``: ``"condition=Ready"``,
                ``"condition=Ready=False"``, ``"jsonpath={.status.phase}=Running"``, ``"jsonpath={.status.podIP}"``. Conditions of an older
                generation do not count.
            timeout: Seconds.
            namespace: None: the client's.

        Raises:
            DeadlineError, WaitFailed: As the class describes. ValueError: the text is not a condition.
        """
        from kubeloop.client.waits.conditions import condition_for
        from kubeloop.client.waits.wait_loop import wait_for

        return await wait_for(self, kind, name, condition_for(want), timeout, await self._where(kind, namespace))

    async def wait_created(self, kind: type[R], name: str, *, timeout: float, namespace: str | None = None) -> R:
        """Wait until the object exists; return the first state that the watch shows.

        Args:
            kind: The class of the object.
            name: The object's name.
            timeout: Seconds.
            namespace: None: the client's.

        Raises:
            DeadlineError: As the class describes.
        """
        return await self.wait_for(kind, name, "create", timeout=timeout, namespace=namespace)

    async def wait_ready(self, kind: type[R], name: str, *, timeout: float, namespace: str | None = None) -> R:
        """Wait until the object is ready: a Pod is Ready or completed, a Deployment rolled out, a Job complete, a claim bound.

        Other kinds are ready when their condition Ready (or Available) is True and their controller has observed the newest spec; without
        such conditions, when they exist.

        Args:
            kind: The class of the object.
            name: The object's name.
            timeout: Seconds.
            namespace: None: the client's.

        Returns:
            The object in that state.

        Raises:
            DeadlineError, WaitFailed: As the class describes.
        """
        from kubeloop.client.waits.conditions import ready
        from kubeloop.client.waits.wait_loop import wait_for

        return await wait_for(self, kind, name, ready(), timeout, await self._where(kind, namespace))

    async def wait_gone(self, kind: type[Resource], name: str, *, timeout: float, namespace: str | None = None, uid: str = "") -> None:
        """Wait until the object does not exist.

        Args:
            kind: The class of the object.
            name: The object's name.
            timeout: Seconds.
            namespace: None: the client's.
            uid: Wait only for the deletion of the object with this uid. Empty: any object of that name.

        Raises:
            DeadlineError: ``timeout`` passed; the message names the finalizers of the object.
        """
        from kubeloop.client.waits.wait_loop import wait_gone

        await wait_gone(self, kind, name, timeout, await self._where(kind, namespace), uid)

    async def wait_rollout(self, kind: type[Resource], name: str, *, timeout: float, namespace: str | None = None) -> str:
        """Wait until the rollout of a Deployment, StatefulSet or DaemonSet is complete; return the last line of ``kubectl rollout status``.

        Args:
            kind: The class of the object.
            name: The object's name.
            timeout: Seconds.
            namespace: None: the client's.

        Raises:
            DeadlineError: With the last line. WaitFailed: the rollout exceeded its progress deadline. ValueError: the kind has no rollouts.
        """
        line = ""
        async with aclosing(self.rollout_status(kind, name, timeout=timeout, namespace=namespace)) as lines:
            async for text in lines:
                line = text
        return line

    async def rollout_status(
        self, kind: type[Resource], name: str, *, timeout: float, namespace: str | None = None
    ) -> AsyncGenerator[str, None]:
        """Yield the lines of ``kubectl rollout status`` as they change, until the rollout is complete.

        Args:
            kind: The class of the object.
            name: The object's name.
            timeout: Seconds.
            namespace: None: the client's.

        Raises:
            DeadlineError, WaitFailed, ValueError: See ``wait_rollout``.
        """
        from kubeloop.client.waits.wait_loop import rollout

        where = await self._where(kind, namespace)
        async with aclosing(rollout(self, kind, name, timeout, where)) as lines:
            async for line in lines:
                yield line

    async def wait_for_events(
        self,
        kind: type[R],
        *conditions: Callable[[Event[R]], object],
        timeout: float,
        namespace: str | None = None,
        label_selector: Labels | None = None,
        field_selector: Fields | None = None,
        resource_version: str | None = None,
    ) -> Event[R]:
        """Watch many objects until ``conditions`` have come true one after the other; return the event that met the last one.

        The event that meets a condition is also the first event for the next condition.

        Args:
            kind: The class of the objects.
            conditions: Functions that return True for an event.
            timeout: Seconds.
            namespace: None: the client's.
            label_selector: As for ``list``.
            field_selector: As for ``list``.
            resource_version: The version to start from. None: existing objects come first, as ADDED.

        Raises:
            DeadlineError: As the class describes. Expired: the server no longer has the version.
        """
        from kubeloop.client.waits.conditions import require_seconds
        from kubeloop.client.waits.wait_loop import wait_for_events
        from kubeloop.timing import TimeLimit

        require_seconds(timeout)

        watch = self.watch(
            kind, namespace=namespace, label_selector=label_selector, field_selector=field_selector, resource_version=resource_version
        )
        try:
            async with TimeLimit(self.clock, timeout), watch as events:
                met = await wait_for_events(aiter(events), conditions)
        except DeadlineError:
            raise
        except TimeoutError as error:
            raise DeadlineError(f"watch of {kind.kind}: not all of {len(conditions)} conditions came true within {timeout:g} s") from error
        assert met is not None  # a watch without a timeout does not end
        return met

    async def _where(self, kind: type[Resource], namespace: str | None) -> str | None:
        return self._namespace_of(await self.mapping(kind), namespace)
