"""Caching mode: reads that the proxy answers from its own lists and watches, under Kubernetes' rules for resourceVersions.

A request that the cache cannot answer exactly as the API server would is left to the normal path: ``read`` returns None.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable
from typing import Final

from kubeloop.client import Client
from kubeloop.config import ClusterConfig
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.audit_id import AUDIT_ID, audit_id_of
from kubeloop.endpoints.metrics_text import Exposition
from kubeloop.endpoints.negotiation import JSON
from kubeloop.endpoints.responses import compress_list, status_answer
from kubeloop.meta.errors import ApiError, Forbidden
from kubeloop.proxy.cached.authorization import ReadAuthorizer, Resolve
from kubeloop.proxy.cached.lists import Headers, ListWriter, list_reply, object_answer
from kubeloop.proxy.cached.queries import ObjectMatcher, ReadQuery, matcher_of, read_query
from kubeloop.proxy.cached.resource import CacheableResource, CachedResource, ReflectorSource, ResourceKey, find_resource, list_watch
from kubeloop.proxy.cached.shared_call import SharedCall
from kubeloop.proxy.cached.watch_group import WatchGroup
from kubeloop.proxy.cached.watchers import CachedWatch, pulled_frames
from kubeloop.proxy.continuity import rules_changed
from kubeloop.proxy.lists import ListRewriter
from kubeloop.proxy.reads import RULES_HEADER, ReadHandler, ReadServices
from kubeloop.proxy.scope import ProxiedRequest
from kubeloop.proxy.selections import SelectedRules
from kubeloop.proxy.view import ClientView, RuleCounters
from kubeloop.serving.answer import Reply, StreamingResponse
from kubeloop.tasks import Supervisor, close_all
from kubeloop.transport import Transport

_LOG = logging.getLogger("kubeloop.proxy")

#: Seconds after its last request or watch that a cache is kept.
IDLE: Final = 300.0
_SWEEP: Final = 30.0
#: Seconds until the API server is asked again for a resource that it did not serve, or not to the proxy's own user.
_UNKNOWN: Final = 30.0
#: Objects of a cache up to which a consistent list of some of them is worth a comparison of all: one page of metadata.
_SMALL: Final = 500


class CachedReads:
    """Answers gets, lists and watches of all clients from one list and watch per resource.

    Guarantees
        A read shows a state that the API server could have shown for it: consistent reads are confirmed by the API server, reads at a
        version wait for it, and each client gets only what the API server allows it and the rules show it.

    Not guaranteed
        A use of the cache: Tables, answers in protobuf alone, pages, exact versions, watches from a version before the cache's begin, rules
        with Python callables and selectors by other fields are forwarded. Intermediate states after a new list.

    Args:
        config: The cluster, with the proxy's own credentials.
        services: The parts of the proxy that reads share.
        resolve: Returns the user of a client, for messages.
        make_source: Makes the list and watch of a resource. None: those of the cluster.
    """

    def __init__(
        self,
        config: ClusterConfig,
        services: ReadServices,
        resolve: Resolve,
        *,
        make_source: Callable[[CacheableResource], ReflectorSource] | None = None,
    ) -> None:
        self._services = services
        self._clock = services.clock
        self._reader = ReadHandler(services)
        self._client = Client(Transport(config, clock=self._clock), clock=self._clock)
        self._make_source = make_source or (lambda served: list_watch(self._client, served, self._clock))
        self._authorizer = ReadAuthorizer(services.upstream, self._clock, resolve)
        self._tasks = Supervisor(self._clock, _LOG)
        self._resources: dict[ResourceKey, CachedResource] = {}
        self._finding: dict[ResourceKey, SharedCall[CacheableResource | None]] = {}
        self._unknown: dict[ResourceKey, float] = {}
        self._rng = random.Random()
        self._sweeping = False
        self._closed = False
        #: Number of requests by their outcome: cached or forwarded.
        self.requests: Counter[str] = Counter()

    async def close(self) -> None:
        """End all watches and close all connections."""
        self._closed = True
        resources = [*self._resources.values()]
        self._resources.clear()
        calls = [call.close for call in self._finding.values()]
        await close_all(*[resource.close for resource in resources], *calls, self._tasks.stop, self._client.close)

    async def read(self, scope: ProxiedRequest, selection: SelectedRules | None) -> Reply | None:
        """Answer a read from the cache; None: the normal path has to answer it.

        Args:
            scope: The request.
            selection: The rules that apply; None: no rules.

        Raises:
            ApiError: The client may not read; the object does not exist; the cache has not reached the version; a rule failed; the API
                server sent no response.
        """
        reply = await self._read(scope, selection)
        self.requests["forwarded" if reply is None else "cached"] += 1
        return reply

    def expire(self, concerns: Callable[[str, str, str], bool]) -> int:
        """End the watches of the resources for which ``concerns(group, version, resource)`` is true. Return their number."""
        return sum(resource.expire() for key, resource in self._resources.items() if concerns(*key))

    @property
    def watchers(self) -> int:
        """Number of watches of clients."""
        return sum(resource.watchers for resource in self._resources.values())

    def fault(self) -> str:
        """Return why the cache does not work; empty if it does."""
        return "" if self._tasks.healthy("proxy-cache") else "proxy-cache failed: see the log"

    def write_metrics(self, text: Exposition) -> None:
        """Add the metrics of the cache."""
        labelled = [({"group": key[0], "version": key[1], "resource": key[2]}, each) for key, each in sorted(self._resources.items())]
        text.gauge("kubeloop_proxy_cache_objects", "Objects in the cache.", [(labels, len(each.objects)) for labels, each in labelled])
        text.gauge("kubeloop_proxy_cache_watchers", "Watches of clients.", [(labels, each.watchers) for labels, each in labelled])
        watches = [(labels, int(each.watching)) for labels, each in labelled]
        text.gauge("kubeloop_proxy_cache_upstream_watches", "Watches at the API server that feed the cache.", watches)
        compared = [(labels, each.progress.compared) for labels, each in labelled]
        text.counter("kubeloop_proxy_cache_comparisons_total", "Comparisons of the cache with a list of metadata.", compared)
        early = [({**labels, "outcome": name}, number) for labels, each in labelled for name, number in sorted(each.early_watches.items())]
        text.counter("kubeloop_proxy_cache_early_watches_total", "Watches from a version before the cache's begin.", early)
        outcomes = [({"outcome": name}, number) for name, number in sorted(self.requests.items())]
        text.counter("kubeloop_proxy_cache_requests_total", "Reads by outcome.", outcomes)

    # --------------------------------------------------------------------------------------------------------------- reads

    async def _read(self, scope: ProxiedRequest, selection: SelectedRules | None) -> Reply | None:
        services, info = self._services, scope.info
        generation = services.continuity.generation  # of ``selection``: the rules may be loaded again during each wait
        query = read_query(scope.request, info)
        if query is None or self._closed:
            return None
        if selection is not None and (services.dry_run or not selection.synchronous):
            return None  # these wait, or log each object, which cannot be shared
        key = info.group, info.version, info.resource
        audit_id = audit_id_of(scope.request)
        # Only an allowed request may begin a cache.
        try:
            if self._unknown.get(key, 0.0) > self._clock.now() or not await self._authorizer.check(scope, audit_id):
                return None
        except Forbidden as error:
            refusal = status_answer(error.status)
            refusal.headers += [*self._headers(audit_id), ("X-Content-Type-Options", "nosniff")]
            return refusal
        view = self._reader.view(scope, selection) if selection is not None else None
        resource = await self._resource(key)
        if resource is None:
            return None
        served = resource.served
        namespace = "" if info.resource == "namespaces" else info.namespace
        if bool(namespace) > served.namespaced:
            return None  # the API server answers that there is no such path
        matcher = matcher_of(
            view.query if view is not None else scope.request.query_string,
            namespace,
            is_pods=served.is_pods,
            namespaced=served.namespaced,
        )
        if matcher is None:
            return None
        if query.resumes and resource.forwards_early_watch(query.version):
            return None
        if query.resumes and selection is not None:
            await self._reader.check_continuity(scope, str(query.version))
        if not await self._at_version(resource, query, matcher):
            return None
        if generation != services.continuity.generation:
            raise rules_changed()  # while the request waited
        if query.verb == "get":
            return await self._get(scope, resource, query, view, audit_id)
        headers = self._headers(audit_id, selection.rules if selection is not None else None)
        if query.verb == "list":
            return await self._list(scope, resource, query, matcher, view, headers)
        return self._watch(scope, resource, query, matcher, view, headers)

    async def _at_version(self, resource: CachedResource, query: ReadQuery, matcher: ObjectMatcher) -> bool:
        """Wait until the cache has the state that a read wants. Return whether the cache can answer it.

        Raises:
            ApiError: 504: the API server itself has not reached the version. 503 or others: it sent no response.
        """
        if query.resumes or not (query.version or query.consistent):
            return True
        objects = resource.objects
        if query.consistent:
            small = query.verb == "watch" or matcher.everything or len(objects) <= _SMALL
            confirmed = await resource.progress.confirm(compare=small)
            if confirmed or query.verb != "watch":
                return confirmed and objects.synced
            raise api_errors.version_too_large(await resource.progress.newest(), objects.version)
        if query.verb == "get":
            return objects.version >= query.version
        if not await resource.progress.reach(query.version):
            raise api_errors.version_too_large(query.version, objects.version)
        return objects.synced

    async def _get(
        self, scope: ProxiedRequest, resource: CachedResource, query: ReadQuery, view: ClientView | None, audit_id: str
    ) -> Reply:
        info = scope.info
        head = resource.objects.get((info.namespace if resource.served.namespaced else "", info.name))
        headers = self._headers(audit_id)
        found = await object_answer(head, view, query.form, headers) if head is not None else None
        if found is None:
            error = api_errors.not_found(info.group_resource, info.name)
            missing = status_answer(error.status)
            missing.headers += headers
            return missing
        if view is not None:
            found.headers = self._headers(audit_id, tuple(view.touched))
        return found

    async def _list(
        self,
        scope: ProxiedRequest,
        resource: CachedResource,
        query: ReadQuery,
        matcher: ObjectMatcher,
        view: ClientView | None,
        headers: Headers,
    ) -> Reply:
        writer = ListWriter(resource, matcher)
        if view is None:
            parts = writer.plain(query.form)
        else:
            services = self._services
            # Watches that follow show by it that their client has listed under the present rules.
            services.continuity.record(scope.list_scope(), writer.version, services.continuity.generation, None)
            parts = writer.rewritten(ListRewriter(view, query.form, collect=False))
        reply = await list_reply(parts, headers)
        if isinstance(reply, StreamingResponse):
            compress_list(scope.request, reply)
        return reply

    def _watch(
        self,
        scope: ProxiedRequest,
        resource: CachedResource,
        query: ReadQuery,
        matcher: ObjectMatcher,
        view: ClientView | None,
        headers: Headers,
    ) -> Reply:
        request = scope.request
        selection = view.selection if view is not None else None
        key = (matcher.namespace, request.parameter("labelSelector"), request.parameter("fieldSelector"), query.form, selection)

        def make() -> WatchGroup:
            previous = ClientView(selection, request, RuleCounters()) if selection is not None else None
            return WatchGroup(resource.objects.log, matcher, view, previous, query.form)

        watcher = CachedWatch(resource, resource.group(key, make), query, self._clock, self._rng)
        return StreamingResponse(pulled_frames(watcher), JSON, headers, close=watcher.close, push=watcher.run)

    def _headers(self, audit_id: str, rules: tuple[str, ...] | None = None) -> Headers:
        # Without X-Kubernetes-Pf-Flowschema-Uid and -Prioritylevel-Uid: the API server has not classified the request.
        headers = [(AUDIT_ID, audit_id), ("Cache-Control", "no-cache, private")]
        if rules is not None and self._services.explain:
            headers.append((RULES_HEADER, ", ".join(rules)))
        return headers

    # ----------------------------------------------------------------------------------------------------------- resources

    async def _resource(self, key: ResourceKey) -> CachedResource | None:
        """Return the cache of a resource, which begins with its first request; None if it cannot be cached now."""
        resource = self._resources.get(key)
        if resource is None:
            call = self._finding.setdefault(key, SharedCall(lambda: find_resource(self._services.upstream, key)))
            try:
                served = await call()
            except ApiError:
                return None  # the API server answers the forwarded request itself, such as that of an unavailable aggregated API
            finally:
                self._finding.pop(key, None)
            if served is None:
                self._forget(key)
                return None
            resource = self._resources.get(key)
            if resource is None:
                if self._closed:
                    return None
                resource = CachedResource(self._make_source(served), self._services.upstream, served, self._clock, self._tasks)
                self._resources[key] = resource
                self._sweep()
        if await resource.ready():
            return resource
        if resource.objects.unusable and self._resources.get(key) is resource:
            del self._resources[key]
            self._forget(key)
            await resource.close()
        return None

    def _forget(self, key: ResourceKey) -> None:
        """Forward the requests for a resource for some time."""
        now = self._clock.now()
        self._unknown = {each: until for each, until in self._unknown.items() if until > now} | {key: now + _UNKNOWN}

    def _sweep(self) -> None:
        """Begin to remove unused caches."""
        if not self._sweeping:
            self._sweeping = True
            self._tasks.start(self._remove_idle, name="proxy-cache-sweep")

    async def _remove_idle(self) -> None:
        while True:
            await self._clock.sleep(_SWEEP)
            now = self._clock.now()
            for key, resource in [*self._resources.items()]:
                if not resource.watchers and now - resource.used > IDLE:
                    del self._resources[key]
                    await resource.close()
