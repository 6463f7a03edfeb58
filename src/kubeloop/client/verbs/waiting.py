"""Waiting: until an object is as wanted, ready, there, gone or rolled out; each wait has a deadline, and says then what was missing."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar

from kubeloop.client.selector_text import Fields, Labels
from kubeloop.client.verbs.reading import Reading
from kubeloop.client.watches import Event
from kubeloop.meta import DeadlineError, Resource

if TYPE_CHECKING:
    from kubeloop.client.waits.conditions import Want

R = TypeVar("R", bound=Resource)


class Waiting(Reading):
    """wait_for and its relatives. ``timeout`` is in seconds everywhere, and must be given.

    Raises
        DeadlineError: ``timeout`` passed; the text says what the object was like, or that it was never there.
        WaitFailed: what was waited for can no longer happen.
        ApiError: the server refuses (401, 403, 404 of the kind). While it cannot be reached, the wait goes on.
        TransportError: the client was closed.
    """

    async def wait_for(
        self,
        kind: type[R],
        name: str,
        want: Callable[[R], object] | str | Want[R],
        *,
        timeout: float,
        namespace: str | None = None,
    ) -> R:
        """Wait until the object is there and as wanted; gives that state.

        ``want``: a function that is true of it; or as ``kubectl wait --for`` says it: ``"condition=Ready"``, ``"condition=Ready=False"``,
        ``"jsonpath={.status.phase}=Running"``, ``"jsonpath={.status.podIP}"``. Conditions of an older generation do not count.

        Raises:
            DeadlineError, WaitFailed: see above. ValueError: the words are none of these.
        """
        from kubeloop.client.waits.conditions import wanted
        from kubeloop.client.waits.waiting import wait_for

        return await wait_for(self, kind, name, wanted(want), timeout, await self._where(kind, namespace))

    async def wait_created(self, kind: type[R], name: str, *, timeout: float, namespace: str | None = None) -> R:
        """Wait until the object is there; gives its first state that is seen.

        Raises:
            DeadlineError: see above.
        """
        return await self.wait_for(kind, name, "create", timeout=timeout, namespace=namespace)

    async def wait_ready(self, kind: type[R], name: str, *, timeout: float, namespace: str | None = None) -> R:
        """Wait until the object does what it was made for: a Pod is Ready or done, a Deployment rolled out, a Job complete, a claim bound.

        Kinds that are not known here are ready when their condition Ready (or Available) says so and their controller has seen the newest
        spec; without such conditions, when they are there.

        Raises:
            DeadlineError, WaitFailed: see above.
        """
        from kubeloop.client.waits.conditions import ready
        from kubeloop.client.waits.waiting import wait_for

        return await wait_for(self, kind, name, ready(), timeout, await self._where(kind, namespace))

    async def wait_gone(self, kind: type[Resource], name: str, *, timeout: float, namespace: str | None = None, uid: str = "") -> None:
        """Wait until there is no such object (or, with ``uid``, not that one).

        Raises:
            DeadlineError: ``timeout`` passed; the text names finalizers that hold the object.
        """
        from kubeloop.client.waits.waiting import wait_gone

        await wait_gone(self, kind, name, timeout, await self._where(kind, namespace), uid)

    async def wait_rollout(self, kind: type[Resource], name: str, *, timeout: float, namespace: str | None = None) -> str:
        """Wait until the rollout of a Deployment, StatefulSet or DaemonSet is done; gives the last line of ``kubectl rollout status``.

        Raises:
            DeadlineError: with the last line before. WaitFailed: it exceeded its progress deadline. ValueError: it has no rollouts.
        """
        line = ""
        async with aclosing(self.rollout_status(kind, name, timeout=timeout, namespace=namespace)) as lines:
            async for text in lines:
                line = text
        return line

    async def rollout_status(
        self, kind: type[Resource], name: str, *, timeout: float, namespace: str | None = None
    ) -> AsyncGenerator[str, None]:
        """The lines of ``kubectl rollout status``, as they change; ends when the rollout is done.

        Raises:
            DeadlineError, WaitFailed, ValueError: as ``wait_rollout``.
        """
        from kubeloop.client.waits.waiting import rollout

        where = await self._where(kind, namespace)
        async with aclosing(rollout(self, kind, name, timeout, where)) as lines:
            async for line in lines:
                yield line

    async def until(
        self,
        kind: type[R],
        *conditions: Callable[[Event[R]], object],
        timeout: float,
        namespace: str | None = None,
        label_selector: Labels | None = None,
        field_selector: Fields | None = None,
        resource_version: str | None = None,
    ) -> Event[R]:
        """Watch many objects until ``conditions`` came true one after the other; gives the event that met the last.

        The event that met one is the first that the next is asked about. Without ``resource_version`` what is there counts, as ADDED.

        Raises:
            DeadlineError: see above. Expired: the server has forgotten where the watch was.
        """
        from kubeloop.client.waits.conditions import require_seconds
        from kubeloop.client.waits.waiting import until
        from kubeloop.timing import TimeLimit

        require_seconds(timeout)

        watch = self.watch(
            kind, namespace=namespace, label_selector=label_selector, field_selector=field_selector, resource_version=resource_version
        )
        try:
            async with TimeLimit(self.clock, timeout), watch as events:
                met = await until(aiter(events), conditions)
        except DeadlineError:
            raise
        except TimeoutError as error:
            raise DeadlineError(f"watch of {kind.kind}: not all of {len(conditions)} conditions came true within {timeout:g} s") from error
        assert met is not None  # a watch without a timeout does not end
        return met

    async def _where(self, kind: type[Resource], namespace: str | None) -> str | None:
        return self._namespace_of(await self.mapping(kind), namespace)
