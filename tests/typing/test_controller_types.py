"""What a type checker makes of controllers. The functions are checked, not run."""

from typing import assert_type

from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.core.v1 import ConfigMap, Pod
from kubeloop.cache import Informer, Lister
from kubeloop.client import Client
from kubeloop.controller import Controller, EventRecorder, KeyController, Manager, Result, WatchedKind, controller_of, to_same_name
from kubeloop.meta import ObjectKey, OwnerReference, PartialObject


class Typed(Controller[ConfigMap], owns=[Deployment], watches=[WatchedKind(Pod, to=to_same_name)], workers=2):
    async def reconcile(self, config: ConfigMap) -> Result | None:
        assert_type(self.client, Client)
        assert_type(self.events, EventRecorder)
        assert_type(self.lister(Deployment), Lister[Deployment])
        assert_type(self.informer(Deployment), Informer[Deployment])
        assert_type(self.lister(Deployment).get("d", "shop"), Deployment | None)
        assert_type(self.owned(Deployment, config), list[Deployment])
        assert_type(self.cached.get(Deployment, "d", "shop"), Deployment | None)
        assert_type(self.cached.list(Pod, "shop", label_selector="app=web"), list[Pod])
        assert_type(self.metadata_lister(Pod), Lister[PartialObject])
        assert_type(controller_of(config), OwnerReference | None)
        return Result(requeue_after=1)


class PlainController(Controller[ConfigMap]):
    def reconcile(self, config: ConfigMap) -> Result | None:
        return None


class ByKey(KeyController[ConfigMap]):
    async def reconcile(self, key: ObjectKey) -> None:
        assert_type(self.lister(ConfigMap).by_key(key), ConfigMap | None)


async def wrong() -> None:
    class Wrong(Controller[ConfigMap]):
        async def reconcile(self, pod: Pod) -> None: ...  # type: ignore[override]  # another kind than declared must not pass


async def manage(client: Client) -> None:
    manager = Manager(client, [Typed(), PlainController(), ByKey()])
    assert_type(await manager.run(), None)
    assert_type(Result(requeue_after=1).requeue_after, float | None)


def test_the_declared_kind_is_the_kind_at_run_time() -> None:
    assert Typed._declaration().kind is ConfigMap
    assert ByKey._declaration().kind is ConfigMap
