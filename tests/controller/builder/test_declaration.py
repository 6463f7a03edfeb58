"""The declarations of a controller class, and the errors of a wrong one."""

import types

import pytest

from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.core.v1 import ConfigMap, Pod, Secret
from kubeloop.controller import (
    Controller,
    ControllerBase,
    DeclarationError,
    HandlerController,
    KeyController,
    Owns,
    Result,
    WatchedKind,
    generation_changed,
    on_create,
    to_same_name,
)
from kubeloop.meta import ObjectKey, Resource, Unstructured


class PlainController(Controller[ConfigMap]):
    async def reconcile(self, config: ConfigMap) -> None: ...


def test_the_kind_comes_from_the_class_and_the_name_from_the_kind() -> None:
    declared = PlainController._declaration()
    assert (declared.kind, declared.name, declared.workers, declared.owns) == (ConfigMap, "configmap", 1, ())


def test_declarations_may_be_keywords_of_the_class() -> None:
    class Declared(
        Controller[ConfigMap],
        owns=[Secret, Deployment],
        watches=[WatchedKind(Pod, to=to_same_name)],
        predicates=[generation_changed],
        workers=4,
        timeout=3.0,
        debounce=0.5,
        name="mine",
    ):
        async def reconcile(self, config: ConfigMap) -> Result | None: ...

    declared = Declared._declaration()
    assert ([owned.kind for owned in declared.owns], declared.workers, declared.timeout, declared.name) == (
        [Secret, Deployment],
        4,
        3.0,
        "mine",
    )
    assert [watch.kind for watch in declared.watches] == [Pod]
    assert declared.predicates == (generation_changed,)
    assert declared.debounce == 0.5


def test_declarations_may_be_attributes_and_are_inherited() -> None:
    class Parent(Controller[ConfigMap]):
        owns = (Secret,)
        workers = 3

        async def reconcile(self, config: ConfigMap) -> None: ...

    class Child(Parent, workers=5):
        pass

    assert (Child._declaration().kind, Child._declaration().owns, Child._declaration().workers) == (ConfigMap, (Owns(Secret),), 5)
    assert Parent._declaration().workers == 3


def test_a_key_controller_takes_keys() -> None:
    class ByKey(KeyController[ConfigMap]):
        async def reconcile(self, key: ObjectKey) -> None: ...

    assert ByKey._declaration().kind is ConfigMap


def test_the_error_for_a_controller_that_takes_a_key_names_the_base_to_use() -> None:
    with pytest.raises(DeclarationError, match="derive from KeyController"):

        class Wrong(Controller[ConfigMap]):
            async def reconcile(self, key: ObjectKey) -> None: ...  # type: ignore[override]  # the mistake under test


def test_the_error_for_a_controller_without_a_kind_says_how_to_name_one() -> None:
    class Nameless(Controller):  # type: ignore[type-arg]  # the mistake under test
        async def reconcile(self, obj: object) -> None: ...

    with pytest.raises(DeclarationError, match=r"write class Nameless\(Controller\[Foo\]\)"):
        Nameless._declaration()


def test_a_kind_that_is_none_is_refused() -> None:
    with pytest.raises(DeclarationError, match="is not a kind"):

        class Wrong(Controller[int]):  # type: ignore[type-var]  # the mistake under test
            async def reconcile(self, number: int) -> None: ...


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        pytest.param({"owns": Secret}, r"owns must be a list, such as owns=\[...\]", id="a kind where a list of kinds is wanted"),
        pytest.param({"owns": [5]}, "owns holds 5, which is not a kind", id="something that is no kind"),
        pytest.param({"watches": [Pod]}, "which is not a WatchedKind", id="a kind where a watch is wanted"),
        pytest.param({"predicates": [lambda event: True]}, "which is not a Predicate", id="a function where a predicate is wanted"),
        pytest.param({"workers": 0}, "workers must be a number of at least 1", id="no workers"),
    ],
)
def test_refused(declared: dict[str, object], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        type("Wrong", (ControllerBase,), {}, **declared)


def test_reading_the_client_of_a_controller_that_does_not_run_is_an_error_that_says_so() -> None:
    with pytest.raises(DeclarationError, match="give it to a Manager"):
        _ = PlainController().client


class Nameless(Resource):
    """A kind whose decorator was forgotten."""


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        pytest.param(Nameless, "Nameless names no kind; decorate it with @custom_resource", id="a class without its decorator"),
        pytest.param(
            Unstructured, r"Unstructured alone is not a kind; say which: Unstructured.for_kind\(", id="unstructured without a kind"
        ),
    ],
)
def test_a_kind_without_a_name_is_refused_wherever_it_stands(kind: type[Resource], way: str) -> None:
    with pytest.raises(DeclarationError, match=rf"Main: Controller\[{kind.__name__}\]: {way}"):
        type("Main", (types.resolve_bases((Controller[kind],))[0],), {"__orig_bases__": (Controller[kind],)})  # type: ignore[valid-type]
    for what in ("owns", "reads", "writes"):
        with pytest.raises(DeclarationError, match=f"Other: {what}: {way}"):
            type("Other", (PlainController,), {what: [kind]})
    with pytest.raises(DeclarationError, match=f"Other: watches: {way}"):
        type("Other", (PlainController,), {"watches": [WatchedKind(kind, to=to_same_name)]})


def test_type_checkers_see_the_types_of_keywords() -> None:
    """Each line would be no error if a subclass hid the signature; mypy then calls the comment unused."""
    with pytest.raises(DeclarationError):

        class Workers(Controller[ConfigMap], workers="2"):  # type: ignore[arg-type]
            async def reconcile(self, config: ConfigMap) -> None: ...

    with pytest.raises(DeclarationError):

        class Owned(KeyController[ConfigMap], owns=["Secret"]):  # type: ignore[list-item]
            async def reconcile(self, key: ObjectKey) -> None: ...

    with pytest.raises(DeclarationError):

        class Handled(HandlerController[ConfigMap], timeout="3"):  # type: ignore[arg-type]
            @on_create
            async def begin(self, config: ConfigMap) -> None: ...
