"""What a class of handlers declares wrongly is refused when the class is made: by class and method, with the way out."""

from typing import Any

import pytest

from kubeloop.api.apps.v1 import Deployment
from kubeloop.controller import Controller, DeclarationError
from kubeloop.controller.decorators.decorators import every, on_change, on_create, on_delete, on_resume
from kubeloop.controller.decorators.handler_controller import HandlerController
from kubeloop.controller.decorators.handlers import handlers_of
from kubeloop.controller.decorators.progress import HandlerRecord, UnreadableRecord, Value, read_record, watched
from kubeloop.meta import Resource, Unstructured


def make(handler: Any, kind: type[Resource] = Deployment) -> Any:
    """As a class statement would."""
    return handlers_of(type("Web", (), {"handle": handler}), kind)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        pytest.param("spec.replica", r'no field "spec.replica"; did you mean "spec.replicas"\?', id="a slip of the pen"),
        pytest.param("spec.min_ready_seconds", r'did you mean "spec.minReadySeconds"\?', id="a name as Python has it"),
        pytest.param("spec.replicas.x", r'"spec.replicas" of Deployment holds nothing', id="below a number"),
        pytest.param("spec[*].x", r'no list at "spec"', id="a list that is none"),
        pytest.param("nothing", r'no field "nothing"; there are metadata, spec, status', id="a field that resembles none"),
        pytest.param("spec..x", r"cannot read", id="no path at all"),
        pytest.param("metadata", r"it would be called endlessly", id="what each write changes"),
        pytest.param("metadata.resourceVersion", r"it would be called endlessly", id="the version"),
        pytest.param("metadata.managedFields[*].time", r"name what matters: @on_change\(\"spec\"\)", id="who wrote last"),
    ],
)
def test_a_path_that_the_kind_does_not_have_is_refused(path: str, says: str) -> None:
    with pytest.raises(DeclarationError, match=rf"Web\.handle: .*{says}"):
        make(on_change(path)(lambda self, obj, old, new: None))


@pytest.mark.parametrize(
    "path", ["spec.replicas", "metadata.labels", 'metadata.labels["a.b/c"]', "spec.template.spec.containers[*].image", "status"]
)
def test_a_path_of_the_kind_is_taken(path: str) -> None:
    assert len(make(on_change(path)(lambda self, obj, old, new: None)).of("change")) == 1
    assert len(make(on_change(path + ".x")(lambda self, obj, old, new: None), Unstructured).all) == 1


@pytest.mark.parametrize(
    ("decorate", "says"),
    [
        pytest.param(on_change, r"handle: @on_change needs an argument; write @on_change\(\"spec.replicas\"\)", id="on_change"),
        pytest.param(every, r"handle: @every needs an argument; write @every\(60\)", id="every"),
    ],
)
def test_a_decorator_that_stands_bare_is_refused_and_does_not_swallow_the_method(decorate: Any, says: str) -> None:
    def handle(self: object, obj: object, old: object, new: object) -> None: ...

    with pytest.raises(DeclarationError, match=says):
        decorate(handle)


def test_a_handler_in_a_controller_that_calls_none_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"Web.begin is a handler .*derive Web from HandlerController"):

        class Web(Controller[Deployment]):
            @on_create
            async def begin(self, deployment: Deployment) -> None: ...

            async def reconcile(self, deployment: Deployment) -> None: ...


def test_handlers_of_changes_do_not_see_their_own_record_and_finalizer() -> None:
    """Else each record would be a change, for which another one is written."""
    metadata = {"name": "a", "annotations": {"handled.kubeloop.dev/web": "{}"}, "finalizers": ["kubeloop.dev/web"]}
    assert watched({"metadata": metadata, "spec": {}}, "kubeloop.dev/web") == {"metadata": {"name": "a"}, "spec": {}}
    metadata = {"annotations": {"handled.kubeloop.dev/other": "{}", "x": "y"}, "finalizers": ["kubeloop.dev/other"]}
    found = watched({"metadata": metadata}, "kubeloop.dev/web")
    assert found == {"metadata": {"annotations": {"x": "y"}, "finalizers": ["kubeloop.dev/other"]}}


# A type checker refuses these already; the messages are for those who use none.
create: Any = on_create
delete: Any = on_delete
change: Any = on_change
timer: Any = every


async def _generator(self: Any, obj: Any) -> Any:
    yield


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        pytest.param(create(lambda self: None), r"takes \(self\); write @on_create above `async def handle\(self, obj\)", id="too few"),
        pytest.param(delete(lambda self, obj, more: None), r"write @on_delete above", id="too many"),
        pytest.param(
            change("spec.replicas")(lambda self, obj: None),
            r"`async def handle\(self, obj, old, new\)",
            id="too few of a change",
        ),
        pytest.param(on_resume(_generator), r"yields, so that calling it does nothing", id="a generator"),
        pytest.param(timer(5)(staticmethod(lambda obj: None)), r"is not a method; write @every", id="a static method"),
        pytest.param(every(0)(lambda self, obj: None), r"every\(0\) must be a number of seconds above 0", id="a timer without a time"),
        pytest.param(on_create(retries=0)(lambda self, obj: None), r"retries=0 must be", id="no tries at all"),
        pytest.param(on_create(backoff=-1)(lambda self, obj: None), r"backoff=-1 must be", id="a pause before the start"),
        pytest.param(on_create(timeout=1)(lambda self, obj: None), r"a thread cannot be stopped", id="a thread with a timeout"),
    ],
)
def test_a_handler_that_cannot_be_called_is_refused(handler: Any, says: str) -> None:
    with pytest.raises(DeclarationError, match=rf"Web\.handle.*{says}"):
        make(handler)


def test_several_decorators_on_one_method_are_separate_handlers() -> None:
    both = make(on_create(on_resume(lambda self, obj: None)))
    assert sorted(one.id for one in both.all) == ["handle/create", "handle/resume"]


def test_two_handlers_of_one_id_are_refused() -> None:
    body = {"a": on_create(id="same")(lambda self, obj: None), "b": on_delete(id="same")(lambda self, obj: None)}
    with pytest.raises(DeclarationError, match=r'Web: 2 handlers have the id "same"'):
        handlers_of(type("Web", (), body), Deployment)


def test_a_class_without_handlers_or_with_its_own_reconcile_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"Empty has no handler; decorate a method with @on_create"):

        class Empty(HandlerController[Deployment]):
            pass

    with pytest.raises(DeclarationError, match=r"Both defines reconcile.*derive from Controller"):

        class Both(HandlerController[Deployment]):
            async def reconcile(self, key: Any, /) -> None:
                """Its own."""

            @on_create
            async def created(self, obj: Deployment) -> None:
                """A handler."""

    with pytest.raises(DeclarationError, match=r"its name is part of an annotation"):

        class Named(HandlerController[Deployment], name="not a name"):
            @on_create
            async def created(self, obj: Deployment) -> None:
                """A handler."""

    assert not issubclass(HandlerController, Controller), "the key is what it needs: of objects that are gone, too"


def test_handlers_are_inherited_and_overridden() -> None:
    class Base(HandlerController[Deployment]):
        @on_create
        async def first(self, obj: Deployment) -> None:
            """A handler."""

        @on_create
        async def second(self, obj: Deployment) -> None:
            """A handler."""

    class Derived(Base):
        async def first(self, obj: Deployment) -> None:
            """No handler any more."""

        @on_delete
        async def third(self, obj: Deployment) -> None:
            """A handler."""

    assert [one.id for one in handlers_of(Derived, Deployment).all] == ["second", "third"]


@pytest.mark.parametrize("value", [None, 3, 0, True, "text", "", [1, {"a": None}], {"b": 1, "a": [2]}, "x" * 5000])
def test_a_value_is_known_again(value: Any) -> None:
    record = HandlerRecord(["a"], {"h": Value.of(value, 3)}, ["g"])
    again = read_record(record.text())
    assert again == record
    assert again.seen["h"].is_of(value)
    assert not again.seen["h"].is_of("other")
    assert len(record.text()) < 1200


def test_one_and_true_are_two_values() -> None:
    assert not Value.of(1, 1).is_of(True)


def test_many_values_share_the_record() -> None:
    record = HandlerRecord([], {str(number): Value.of("x" * 900, 200) for number in range(200)})
    assert len(record.text()) < 16 * 1024


@pytest.mark.parametrize("text", ["", "nonsense", "[]", '{"create": 1}'])
def test_nonsense_is_no_record(text: str) -> None:
    with pytest.raises(UnreadableRecord):
        read_record(text)
