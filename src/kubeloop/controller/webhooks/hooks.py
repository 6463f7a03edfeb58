"""Webhooks: a program's admission and conversion hooks, declared by decorators and typed by kind.

``Webhooks.answer`` answers reviews without knowing about sockets; ``WebhookServer`` serves it.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

from kubeloop.codec import decode, encode
from kubeloop.controller.errors import DeclarationError
from kubeloop.controller.webhooks.admission import Answered, answer_admission
from kubeloop.controller.webhooks.conversion import CONVERT_PATH, Converters, answer_conversion
from kubeloop.controller.webhooks.declared import DEFAULT_TIMEOUT, AdmissionHook, HookOptions, declare
from kubeloop.controller.webhooks.request import AdmissionRequest, AdmissionUser, Operation, Warnings
from kubeloop.controller.webhooks.reviews import Reviewed, review_of, reviewed
from kubeloop.meta import Resource
from kubeloop.meta.type_checks import described_word

if TYPE_CHECKING:
    from kubeloop.controller.webhooks.configurations import Configuration, Place

R = TypeVar("R", bound=Resource)
S = TypeVar("S", bound=Resource)
C = TypeVar("C")
V = TypeVar("V", bound=Awaitable[Warnings | None] | Warnings | None)
M = TypeVar("M", bound=Awaitable[Resource | None] | Resource | None)


class _Admitting:
    def __init__(self, add: Callable[[Any], None]) -> None:
        self._add = add

    def methods(self, hooks: type[C]) -> type[C]:
        """Decorate a class that has some of the methods ``create``, ``update``, ``delete`` and ``connect``; it is instantiated once."""
        self._add(hooks)
        return hooks


class Validating(_Admitting, Generic[R]):
    """Decorator of a hook that allows or denies a write."""

    @overload
    def __call__(self, hook: Callable[[R], V]) -> Callable[[R], V]: ...
    @overload
    def __call__(self, hook: Callable[[R, AdmissionRequest[R]], V]) -> Callable[[R, AdmissionRequest[R]], V]: ...
    def __call__(self, hook: Any) -> Any:
        self._add(hook)
        return hook


class Mutating(_Admitting, Generic[R]):
    """Decorator of a hook that changes the object."""

    @overload
    def __call__(self, hook: Callable[[R], M]) -> Callable[[R], M]: ...
    @overload
    def __call__(self, hook: Callable[[R, AdmissionRequest[R]], M]) -> Callable[[R, AdmissionRequest[R]], M]: ...
    def __call__(self, hook: Any) -> Any:
        self._add(hook)
        return hook


class Converting(Generic[R, S]):
    """Decorator of a function that converts one version of a kind to another."""

    def __init__(self, add: Callable[[Callable[[R], S]], None]) -> None:
        self._add = add

    def __call__(self, function: Callable[[R], S]) -> Callable[[R], S]:
        self._add(function)
        return function


class Webhooks:
    """The webhooks of a program. Decorators declare them.

    A hook is an ``async def``, or a synchronous function, which runs in a thread; or a class with a method for each operation
    (``@hooks.validating(Foo).methods``). It gets its own copy of the object (for DELETE the deleted object), and the request if it has a
    parameter for it.

    Guarantees
        The patch of a mutating hook names only changed fields of the typed object: fields that the class does not know are never touched.
        Without a change there is no patch. An exception of a hook denies one write, and never ends the server: ``Denied`` and ``ApiError``
        are sent as they are; any other exception is a 500 that names hook, class and trace id, with the traceback in the log only.

    Not guaranteed
        The end of a synchronous function at its timeout: its result is ignored, but the thread continues.
        One call per write: servers repeat calls, and mutating hooks may be called again.

    Raises
        DeclarationError: from the decorators: an invalid signature, kind, name or option.

    Example:
        >>> from kubeloop.controller.webhooks import Denied
        >>> hooks = Webhooks()
        >>> @hooks.validating(ConfigMap)
        ... def check(config_map: ConfigMap) -> None:
        ...     if len(config_map.data) > 1:
        ...         raise Denied("at most one key", field="data")
        >>> review = await hooks.review(check, ConfigMap(metadata=ObjectMeta(name="settings"), data={"a": "1", "b": "2"}))
        >>> review.allowed, review.message
        (False, 'ConfigMap "settings" is invalid: data: Invalid value: at most one key')
    """

    def __init__(self) -> None:
        self._hooks: dict[str, AdmissionHook] = {}
        self._targets: dict[int, AdmissionHook] = {}
        self._converters = Converters()

    @overload
    def validating(self, kind: type[R], **options: Unpack[HookOptions]) -> Validating[R]: ...
    @overload
    def validating(self, kind: type[Resource], *, body: type[S], **options: Unpack[HookOptions]) -> Validating[S]: ...
    def validating(self, kind: type[Resource], *, body: type[Resource] | None = None, **options: Unpack[HookOptions]) -> Any:
        """Declare a hook that API servers call before ``kind`` is written; see ``HookOptions``.

        ``body`` is the class of the object in the request, if a subresource has another one (scale, exec, eviction).
        """
        return Validating[Any](lambda target: self._declare(kind, body, target, options, mutating=False))

    @overload
    def mutating(self, kind: type[R], **options: Unpack[HookOptions]) -> Mutating[R]: ...
    @overload
    def mutating(self, kind: type[Resource], *, body: type[S], **options: Unpack[HookOptions]) -> Mutating[S]: ...
    def mutating(self, kind: type[Resource], *, body: type[Resource] | None = None, **options: Unpack[HookOptions]) -> Any:
        """Declare a hook that may change the written object, before it is validated. The arguments are the ones of ``validating``."""
        return Mutating[Any](lambda target: self._declare(kind, body, target, options, mutating=True))

    def conversion(self, source: type[R], target: type[S]) -> Converting[R, S]:
        """Declare a synchronous function that converts ``source`` to ``target``, another version of the kind; see ``Converters``.

        For ``Unstructured`` classes the function may return a JSON tree. If the result has no metadata, the metadata of the source is used.
        """
        return Converting(lambda function: self._converters.add(source, target, function))

    @property
    def hooks(self) -> Sequence[AdmissionHook]:
        """The admission hooks, in the order of their declaration."""
        return list(self._hooks.values())

    @property
    def converters(self) -> Converters:
        return self._converters

    def hook(self, which: str | Callable[..., Any]) -> AdmissionHook:
        """Return the hook with that name, function or class.

        Raises:
            LookupError: there is none; the message lists the hooks.
        """
        for hook in self._hooks.values():
            if which == hook.name or (not isinstance(which, str) and hook is self._targets.get(id(which))):
                return hook
        known = ", ".join(hook.name for hook in self._hooks.values()) or "none"
        raise LookupError(f"{described_word(which)} is not a hook here; there are: {known}")

    def check(self) -> None:
        """Check the complete set of declarations. ``WebhookServer`` calls it.

        Raises:
            DeclarationError: no hook is declared, or there is no converter to a version.
        """
        if not self._hooks and not self._converters:
            raise DeclarationError("no webhook is declared; use the decorators validating, mutating and conversion")
        self._converters.check()

    @property
    def paths(self) -> Sequence[str]:
        """The URL paths of all admission hooks, and of the conversion if there are converters."""
        return [*self._hooks, *([CONVERT_PATH] if self._converters else [])]

    async def answer(self, path: str, body: bytes, *, timeout: float = DEFAULT_TIMEOUT) -> Answered:
        """Return the review that answers the one in ``body``; an error of the hook becomes a denial in it. ``timeout`` in seconds.

        Raises:
            LookupError: nothing is served at ``path``.
            ReviewMalformed: ``body`` is not a review.
        """
        if path == CONVERT_PATH and self._converters:
            return await answer_conversion(self._converters, body, timeout)
        hook = self._hooks.get(path)
        if hook is None:
            raise LookupError(f"no webhook is served at {path}")
        return await answer_admission(hook, body, timeout)

    async def review(
        self,
        which: str | Callable[..., Any],
        obj: R,
        *,
        operation: Operation | None = None,
        old: R | None = None,
        user: AdmissionUser | None = None,
        dry_run: bool = False,
        subresource: str | None = None,
        options: dict[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Reviewed[R]:
        """Call one hook as an API server would, without a server; for tests. The whole review is encoded and decoded.

        Args:
            which: The hook's function, or its name.
            obj: The written object; for DELETE the deleted object. It is not changed.
            operation: The operation. None: the first operation of the hook.
            old: The stored object before an UPDATE. None: ``obj`` as it was read.
            user: The writer. None: an administrator.
            dry_run: The write is a dry run.
            subresource: The subresource. None: the hook's.
            options: Options of the write as a JSON tree.
            timeout: Seconds for the hook. None: the hook's.

        Returns:
            The decision of the hook, with the object that would be stored.

        Raises:
            LookupError: there is no such hook.
        """
        hook = self.hook(which)
        chosen = operation or hook.operations[0]
        body = review_of(hook, obj, chosen, old, user or AdmissionUser(), dry_run=dry_run, subresource=subresource, options=options or {})
        answered = await self.answer(hook.path, body, timeout=hook.timeout if timeout is None else timeout)
        return reviewed(obj, chosen, answered.body)

    def convert(self, obj: Resource, target: type[S]) -> S:
        """Return ``obj`` in the version of ``target``, converted by the declared converters.

        Raises:
            DecodeError: there is no converter to that version. For errors of converters, see ``Converters.convert``.
        """
        return decode(target, self._converters.convert(encode(obj), target.api_version), checked=True)

    def configurations(self, name: str, place: Place, *, ca: bytes = b"") -> list[Configuration]:
        """Return at most one MutatingWebhookConfiguration and one ValidatingWebhookConfiguration for the admission hooks.

        ``ca``: the CA bundle, as PEM, that API servers trust for the serving certificate; empty if another program fills it in.
        """
        from kubeloop.controller.webhooks.configurations import configurations

        return configurations(self.hooks, name, place, ca)

    def definitions(self, place: Place) -> dict[str, Callable[[bytes], dict[str, Any]]]:
        """Return a function for each CustomResourceDefinition of a kind with converters, by the definition's name.

        The function takes a CA bundle (PEM), and returns ``spec.conversion`` of the definition.

        Raises:
            DeclarationError: no class of a kind has the plural, which the name of its definition contains.
        """
        from kubeloop.controller.webhooks.configurations import conversion

        return {name: functools.partial(conversion, place) for name in self._converters.definitions()}

    def _declare(self, kind: type[Resource], body: type[Resource] | None, target: Any, options: HookOptions, *, mutating: bool) -> None:
        hook = declare(kind, body, target, options, mutating=mutating)
        for other in self._hooks.values():
            if hook.name == other.name or hook.path == other.path:
                same = f'the name "{hook.name}"' if hook.name == other.name else f'the path "{hook.path}"'
                raise DeclarationError(f"two webhooks have {same}; give one of them its own name=... (and path=...)")
        if hook.path == CONVERT_PATH:
            raise DeclarationError(f'{hook.name}: the path "{CONVERT_PATH}" is that of conversions')
        self._hooks[hook.path] = hook
        self._targets[id(target)] = hook
