"""Recorded writes as a table."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest

from kubeloop.api.core.v1 import ConfigMap, Secret
from kubeloop.client import Client
from kubeloop.meta import Conflict, ObjectMeta
from kubeloop.testing import Actions, HandlerServer, eventually, on

pytestmark = pytest.mark.embedded


@pytest.fixture
async def server() -> AsyncIterator[HandlerServer]:
    async with HandlerServer() as found:
        yield found


@pytest.fixture
def client(server: HandlerServer) -> Client:
    return server.client(user="under-test")


@pytest.fixture
async def actions(server: HandlerServer, client: Client) -> Actions:
    found = Actions(server.faults, server.clock).select(user="under-test")
    await server.client().create(ConfigMap(metadata=ObjectMeta(name="not-its-own")))
    await client.create(ConfigMap(metadata=ObjectMeta(name="a"), data={"k": "1"}))
    await client.create(Secret(metadata=ObjectMeta(generate_name="token-")))
    server.faults.refuse(Conflict, matching=on("patch"))
    with pytest.raises(Conflict):
        await client.patch(ConfigMap, "a", {"data": {"k": "two words"}})
    await client.get(ConfigMap, "a")
    await client.delete(ConfigMap, "a")
    return found


async def test_writes_of_one_user_are_compared_with_a_table(actions: Actions) -> None:
    actions.expect("""
        create ConfigMap  default/a        data.k=1
        create Secret     default/token-*  # made from generateName
        patch  ConfigMap  default/a        data.k='two words' =>409
        delete Config*    */a
    """)


async def test_the_order_counts_unless_it_is_said_not_to(actions: Actions) -> None:
    turned = "delete ConfigMap default/a\npatch ConfigMap */a =>409\ncreate ConfigMap default/a\ncreate Secret */*"
    actions.expect(turned, in_any_order=True)
    with pytest.raises(AssertionError, match="other writes than expected"):
        actions.expect(turned)


async def test_a_difference_shows_what_differs_and_nothing_else(actions: Actions) -> None:
    with pytest.raises(AssertionError) as failed:
        actions.without("Secret").accepted().expect("create ConfigMap default/a data.k=2\ndelete ConfigMap default/a")
    changed = [line for line in str(failed.value).splitlines() if re.match(r"[-+]\w", line)]
    assert changed == ["-create  ConfigMap         default/a  data.k=2", "+create  ConfigMap         default/a  data.k=1"]


async def test_they_are_narrowed_by_verb_kind_name_and_outcome(actions: Actions) -> None:
    assert [call.verb for call in actions.select(kind=ConfigMap)] == ["create", "patch", "delete"]
    assert [call.code for call in actions.refused()] == [409]
    assert len(actions.select("create")) == 2
    assert len(actions.select(name="token-*", namespace="default", subresource="")) == 1
    assert actions.without(ConfigMap, "Secret")[:] == []
    assert "create  Secret" in repr(actions)
    assert actions.select("patch").table("data.k") == "patch   ConfigMap         default/a  data.k='two words'  =>409\n"


async def test_more_of_them_are_awaited(server: HandlerServer, client: Client, actions: Actions) -> None:
    actions.clear()
    assert len(actions) == 0
    await client.create(Secret(metadata=ObjectMeta(name="s")))
    found = await eventually(actions.subject(), lambda writes: len(writes) == 1)
    assert found[0].kind == "Secret"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        pytest.param("create Secret", "an expected write is: VERB KIND", id="a line without an object"),
        pytest.param("create Secret a/b whatever", "neither PATH=VALUE nor =>STATUS", id="a word that is no field"),
        pytest.param("create Secret a/b spec[=1", "cannot read", id="a path that is none"),
    ],
)
def test_a_line_that_is_none_is_refused(line: str, words: str) -> None:
    server = HandlerServer()
    with pytest.raises(ValueError, match=words):
        Actions(server.faults, server.clock).expect(line)
