"""Python callables as actions: what they get and return, time limits, and everything that they may do wrong."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kubeloop.proxy.rules import RuleFailed, RuleSelection
from kubeloop.proxy.rules.callables import MAX_THREADS
from kubeloop.timing import Clock, FakeClock
from kubeloop.types import JSONObject
from tests.proxy.rules import callables
from tests.proxy.rules.rule_texts import pod, rule, selection_of

MODULE = "tests.proxy.rules.callables"


def selection_of_callable(name: str, clock: Clock | None = None, **spec: Any) -> RuleSelection:
    action = {"python": {"callable": f"{MODULE}:{name}", "timeoutSeconds": 5}}
    return selection_of(rule(action, **spec), clock=clock)


@pytest.fixture(autouse=True)
def end_threads() -> Iterator[None]:
    callables.released.clear()
    callables.calls.clear()
    callables.started = 0
    yield
    callables.released.set()


@pytest.mark.parametrize("name", ["mark", "mark_later", "marker", "marker.__call__"])
async def test_a_callable_changes_an_object(name: str) -> None:
    tree = pod()
    result = await selection_of_callable(name).rewrite_async(tree)
    assert result.object == {**pod(), "marked": "ann"}
    assert (result.rules, result.changed) == (("r",), True)
    assert tree == pod()


async def test_a_callable_gets_a_copy_and_the_request() -> None:
    tree = pod()
    result = await selection_of_callable("record").rewrite_async(tree)
    ((given, request),) = callables.calls
    assert given == tree
    assert given["spec"] is not tree["spec"]
    assert dict(request) == {
        "verb": "get",
        "group": "",
        "version": "v1",
        "resource": "pods",
        "subresource": "",
        "namespace": "shop",
        "name": "web-0",
        "userAgent": "kubectl/v1.36.0",
        "user": {"name": "ann", "uid": "u-1", "groups": [], "extra": {}},
    }
    assert result.object is tree
    assert (result.rules, result.changed) == ((), False)


async def test_a_callable_hides_an_object() -> None:
    result = await selection_of_callable("hide").rewrite_async(pod())
    assert (result.object, result.rules, result.changed) == (None, ("r",), True)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        pytest.param("fail", "raised LookupError: no such colour", id="a callable raises"),
        pytest.param("time_out", "raised TimeoutError: of its database", id="a time limit inside a callable is not that of the rule"),
        pytest.param("end", "raised SystemExit: 3", id="a callable in a thread ends the program"),
        pytest.param("end_later", "raised SystemExit: 3", id="a callable in the loop ends the program"),
        pytest.param("cancel", "raised CancelledError: ", id="a callable in a thread raises a cancellation"),
        pytest.param("cancel_later", "cancelled itself", id="a callable in the loop cancels itself"),
        pytest.param("rename", "changed metadata.name; clients identify the object by it", id="a callable changes identity"),
        pytest.param("return_list", "returned a list; expected a dict, or None to hide the object", id="a list is no object"),
        pytest.param(
            "return_coroutine", "returned a coroutine; expected a dict, or None to hide the object", id="a coroutine is no object"
        ),
        pytest.param("return_set", "returned a value of type set, which JSON does not have", id="a set is not JSON"),
        pytest.param("return_number_key", "returned a key of type int; expected text", id="a key is text"),
        pytest.param("return_not_a_number", "returned the number nan, which JSON does not have", id="not a number is not JSON"),
        pytest.param("return_cycle", "returned an object that nests too deeply, or contains itself", id="an object contains itself"),
    ],
)
async def test_a_callable_that_goes_wrong_fails_the_rule(name: str, reason: str) -> None:
    with pytest.raises(RuleFailed) as caught:
        await selection_of_callable(name).rewrite_async(pod())
    assert (caught.value.rule, caught.value.reason) == ("r", f"{MODULE}:{name} {reason}")


async def test_a_callable_that_goes_wrong_changes_nothing_with_on_error_pass() -> None:
    tree = pod()
    result = await selection_of_callable("fail", onError="Pass").rewrite_async(tree)
    assert result.object is tree


@pytest.mark.parametrize("name", ["hang", "hang_later", "ignore_cancellation"])
async def test_a_call_fails_after_its_time_limit(name: str) -> None:
    clock = FakeClock()
    work = asyncio.create_task(selection_of_callable(name, clock).rewrite_async(pod()))
    await clock.advance(4.9)
    assert not work.done()
    await clock.advance(0.2)
    with pytest.raises(RuleFailed, match="did not return within 5 s"):
        await work
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


async def test_a_hung_thread_neither_blocks_other_calls_nor_the_end_of_the_program() -> None:
    clock = FakeClock()
    action: JSONObject = {"python": {"callable": f"{MODULE}:hang", "timeoutSeconds": 5}}
    selection = selection_of(
        rule(action, name="hang", match=[{"names": ["hang"]}]), rule({"python": {"callable": f"{MODULE}:mark"}}), clock=clock, verb="list"
    )
    hung = asyncio.create_task(selection.rewrite_async(pod("hang")))
    await clock.advance(1)
    assert (await selection.rewrite_async(pod())).changed
    threads = [thread for thread in threading.enumerate() if thread.name.startswith(f"rule-{MODULE}:hang")]
    assert [thread.daemon for thread in threads] == [True]
    callables.released.set()
    assert (await hung).object is not None


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(rule(name="first", match=[{"names": ["other"]}]), id="a rule for another object"),
        pytest.param(rule({"set": {"spec.nodeName.x": 1}}, name="first", onError="Pass"), id="a rule that fails and passes"),
        pytest.param(rule({"set": {"spec.a": 1}}, name="first"), id="a rule without a callable"),
    ],
)
async def test_a_callable_runs_after_any_rule(first: JSONObject) -> None:
    selection = selection_of(first, rule({"python": {"callable": f"{MODULE}:mark"}}), verb="list")
    result = await selection.rewrite_async(pod())
    assert result.object is not None
    assert result.object["marked"] == "ann"


async def test_calls_beyond_the_threads_of_a_callable_wait_and_fail_in_time() -> None:
    clock = FakeClock()
    selection = selection_of_callable("hang", clock)
    works = [asyncio.create_task(selection.rewrite_async(pod())) for _ in range(MAX_THREADS + 1)]
    assert await asyncio.to_thread(callables.wait_started, MAX_THREADS)
    await clock.advance(6)
    failures = await asyncio.gather(*works, return_exceptions=True)
    assert callables.started == MAX_THREADS
    assert all(isinstance(failure, RuleFailed) for failure in failures)
    # The abandoned calls end, and their threads serve again.
    callables.released.set()
    assert (await selection.rewrite_async(pod())).object is not None


async def test_a_cancelled_request_cancels_its_call() -> None:
    work = asyncio.create_task(selection_of_callable("hang_later", FakeClock()).rewrite_async(pod()))
    for _ in range(5):
        await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_rules_with_callables_are_not_synchronous() -> None:
    selection = selection_of_callable("mark")
    assert (selection.synchronous, selection.may_hide, selection.may_change, selection.immutable_visibility) == (False, True, True, False)


async def test_a_module_that_fails_at_its_import_is_a_mistake(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from kubeloop.proxy.rules.callables import import_callable

    (tmp_path / "broken_rules.py").write_text("raise RuntimeError('no database')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="the module broken_rules raised RuntimeError when it was imported: no database"):
        import_callable("broken_rules:f")


def test_a_module_of_the_working_directory_is_found(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from kubeloop.proxy.rules.callables import import_callable

    (tmp_path / "rules_beside_me.py").write_text("def f(tree, request): return tree")
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.chdir(tmp_path)
    assert import_callable("rules_beside_me:f")({}, {}) == {}
