"""Log records carry cluster, controller and key of the work that wrote them."""

import asyncio
import logging

from kubeloop.controller.log_context import ContextFilter, current, working_for


def record() -> logging.LogRecord:
    made = logging.LogRecord("test", logging.INFO, __file__, 1, "hello", (), None)
    assert ContextFilter().filter(made)
    return made


def test_a_record_carries_the_context_in_which_it_was_written() -> None:
    with working_for(cluster="east", controller="foo"), working_for(key="shop/web"):
        made = record()
    assert (made.__dict__["cluster"], made.__dict__["controller"], made.__dict__["key"]) == ("east", "foo", "shop/web")
    assert made.__dict__["context"] == "cluster=east controller=foo key=shop/web"


def test_outside_of_any_work_the_fields_are_there_and_empty() -> None:
    assert record().__dict__["context"] == ""
    assert record().__dict__["key"] == ""


def test_what_the_caller_set_itself_stays() -> None:
    made = logging.LogRecord("test", logging.INFO, __file__, 1, "hello", (), None)
    made.__dict__["key"] = "mine"
    with working_for(key="other"):
        ContextFilter().filter(made)
    assert made.__dict__["key"] == "mine"


async def test_tasks_and_threads_inherit_it_and_do_not_disturb_each_other() -> None:
    async def look(name: str) -> str:
        with working_for(key=name):
            await asyncio.sleep(0)
            return (await asyncio.to_thread(current)).key

    with working_for(controller="foo"):
        assert list(await asyncio.gather(look("a"), look("b"))) == ["a", "b"]
        assert current().key == ""
