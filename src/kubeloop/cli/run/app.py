"""Makes a manager from the object at ``module:attribute``, for ``kubeloop run``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kubeloop.cli.run.webhooks import webhook_servers
from kubeloop.client import ALL_NAMESPACES
from kubeloop.controller import ControllerBase, Manager
from kubeloop.controller.manager.clusters import OnCluster, OnEachCluster, runnable_of
from kubeloop.controller.manager.settings import ManagerSettings, SettingsFile
from kubeloop.controller.runner.runner import Runner
from kubeloop.controller.webhooks import Webhooks
from kubeloop.meta.errors import ConfigError

if TYPE_CHECKING:
    from kubeloop.cli.run.options import RunOptions
    from kubeloop.client import Client

WANTED: Final = (
    "a controller, its class, a list of these, of Webhooks, and of other things that a Manager runs, "
    "or a function, async or not, that takes the client or nothing and returns one of these or a Manager"
)


class AppError(Exception):
    """The code of the program failed; ``__cause__`` is its exception."""


class DevelopmentSettings(SettingsFile):
    """The manager's settings from the file and the environment, adapted to development.

    Leader election is off unless it is requested, and ``--namespace`` replaces the namespaces of the settings.
    """

    def __init__(self, path: str | None, *, leader_election: bool, all_namespaces: bool) -> None:
        super().__init__(path)
        self._leader_election = leader_election
        self._all_namespaces = all_namespaces

    def load(self) -> ManagerSettings:
        found = super().load()
        if not self._leader_election:
            found = msgspec.structs.replace(found, leader_election=None)
        return found if self._all_namespaces else msgspec.structs.replace(found, namespaces=None)


async def manager_of(obj: Any, options: RunOptions, client: Client) -> Manager:
    """Return the manager to run for the object at MODULE:NAME: the manager that it returns, or a new manager of its controllers.

    Raises:
        ConfigError: the object has another type, or is a Manager while options require building one.
        AppError: The code of the program fails.
    """
    target = options.target
    made = await _made(obj, client, target) if inspect.isroutine(obj) else obj
    if isinstance(made, Manager):
        return _own(made, obj, options)
    items: list[Any] = list(made) if isinstance(made, Sequence) and not isinstance(made, str | bytes) else [made]
    if not items:
        raise ConfigError(f"{target}: holds no controller")
    hooks = [item for item in items if isinstance(item, Webhooks)]
    if len(hooks) > 1:
        raise ConfigError(f"{target}: holds {len(hooks)} Webhooks; declare all webhooks in one")
    servers = webhook_servers(hooks, client, options)
    ready = [_checked(_instance(item, target), target) for item in items if not isinstance(item, Webhooks)]
    settings = DevelopmentSettings(options.settings or None, leader_election=options.leader_election, all_namespaces=not options.namespace)
    if options.leader_election and settings.load().leader_election is None:
        raise ConfigError(
            "--leader-election: the settings do not name a Lease; set leaderElection: {name: ..., namespace: ...} in --settings FILE"
        )
    try:
        manager = Manager(
            client, ready, servers=servers, settings=settings, namespace=options.namespace or ALL_NAMESPACES, grace=options.grace
        )
    except ConfigError:
        raise
    except Exception as error:
        raise AppError(f"{target}: a manager cannot be made of it") from error
    return _within(manager, options.grace)


def controllers_of(manager: Manager) -> list[ControllerBase[Any]]:
    """Return the controllers among the manager's runnables."""
    return [runnable.controller for runnable in manager.runnables if isinstance(runnable, Runner)]


async def _made(function: Callable[..., Any], client: Client, target: str) -> Any:
    arguments = _arguments(function, client, target)
    name = getattr(function, "__name__", "it")
    try:
        made = function(*arguments)
        if inspect.isawaitable(made):
            made = await made
    except Exception as error:
        raise AppError(f"{target}: {name} failed") from error
    if made is None:
        raise ConfigError(f"{target}: {name} returned nothing; it must return controllers or a Manager (which it does not run itself)")
    return made


def _arguments(function: Callable[..., Any], client: Client, target: str) -> tuple[Any, ...]:
    signature = inspect.signature(function)
    for arguments in ((client,), ()):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        required = [one for one in signature.parameters.values() if one.default is one.empty and one.kind is not one.VAR_POSITIONAL]
        if arguments and not required and "client" not in signature.parameters:
            continue  # Optional parameters that have another meaning than a client.
        return arguments
    raise ConfigError(f"{target}: {getattr(function, '__name__', 'it')}{signature} cannot be called with a client, nor without arguments")


def _own(manager: Manager, obj: Any, options: RunOptions) -> Manager:
    if isinstance(obj, Manager):
        raise ConfigError(
            f"{options.target}: a Manager that is made on import does not know the cluster of this run; "
            "make it in a function: def app(client): return Manager(client, ...)"
        )
    given = {
        "--settings": options.settings,
        "--namespace": options.namespace,
        "--leader-election": options.leader_election,
        "--webhook-url": options.webhook_url,
    }
    for option, value in given.items():
        if value:
            raise ConfigError(
                f"{option} has no effect on a Manager that {options.target} makes; give it to that Manager, or return controllers only"
            )
    return _within(manager, options.grace)


def _within(manager: Manager, grace: float) -> Manager:
    """Shorten the manager's grace period: a developer does not wait longer."""
    manager.grace = grace if manager.grace is None else min(manager.grace, grace)
    return manager


def _instance(item: Any, target: str) -> Any:
    if not (isinstance(item, type) and issubclass(item, ControllerBase)):
        return item
    try:
        inspect.signature(item).bind()
    except TypeError:
        raise ConfigError(
            f"{target}: {item.__name__} takes arguments; make it in a function: def app(): return [{item.__name__}(...)]"
        ) from None
    try:
        return item()
    except Exception as error:
        raise AppError(f"{target}: {item.__name__}() failed") from error


def _checked(item: Any, target: str) -> Any:
    if isinstance(item, OnCluster | OnEachCluster):
        return item
    try:
        runnable_of(item)
    except Exception as error:
        if isinstance(item, ControllerBase):
            raise AppError(f"{target}: {type(item).__name__} cannot be run") from error
        raise ConfigError(f"{target}: {item!r} cannot be run; expected {WANTED}") from None
    return item
