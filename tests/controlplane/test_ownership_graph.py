"""Which objects deserve a look after each event, as the garbage collector's graph says."""

import hypothesis.strategies as st
from hypothesis import given, settings

from kubeloop.controlplane.garbage_collection.ownership_graph import FOREGROUND, ORPHAN, Item, Node, OwnerEdge, OwnershipGraph


def item(name: str) -> Item:
    return Item(f"uid-{name}", "v1", "ConfigMap", "shop", name)


def node(name: str, *owners: str, blocks: bool = False, deleting: bool = False, finalizers: tuple[str, ...] = ()) -> Node:
    references = tuple(OwnerEdge("v1", "ConfigMap", owner, f"uid-{owner}", blocks) for owner in owners)
    return Node(item(name), references, deleting=deleting, finalizers=finalizers)


def test_an_object_without_owners_needs_no_look() -> None:
    assert OwnershipGraph().put(node("a")) == []


def test_an_object_whose_owner_is_known_needs_no_look() -> None:
    graph = OwnershipGraph()
    graph.put(node("owner"))
    assert graph.put(node("child", "owner")) == []


def test_an_object_whose_owner_is_not_known_needs_a_look() -> None:
    assert OwnershipGraph().put(node("child", "owner")) == [item("child")]


def test_the_dependents_of_an_object_that_vanished_need_a_look_and_its_uid_is_known_to_be_gone() -> None:
    graph = OwnershipGraph()
    graph.put(node("owner"))
    graph.put(node("one", "owner"))
    graph.put(node("two", "owner"))
    graph.put(node("other"))
    assert graph.remove("uid-owner") == [item("one"), item("two")]
    assert graph.is_gone("uid-owner")
    assert not graph.is_gone("uid-other")


def test_an_object_of_the_same_name_and_another_uid_is_another_object() -> None:
    graph = OwnershipGraph()
    graph.put(node("owner"))
    graph.put(node("child", "owner"))
    graph.put(Node(Item("uid-new", "v1", "ConfigMap", "shop", "owner"), ()))
    assert graph.remove("uid-owner") == [item("child")]


def test_an_owner_that_orphans_needs_a_look_and_its_dependents_do_not() -> None:
    graph = OwnershipGraph()
    graph.put(node("owner"))
    graph.put(node("child", "owner"))
    assert graph.put(node("owner", deleting=True, finalizers=(ORPHAN,))) == [item("owner")]


def test_an_owner_that_begins_foreground_deletion_brings_its_dependents_along_once() -> None:
    graph = OwnershipGraph()
    graph.put(node("owner"))
    graph.put(node("child", "owner", blocks=True))
    waiting = node("owner", deleting=True, finalizers=(FOREGROUND,))
    assert graph.put(waiting) == [item("owner"), item("child")]
    assert graph.put(waiting) == [item("owner")]


def test_a_waiting_owner_needs_a_look_when_a_dependent_goes_or_stops_blocking_or_lets_it_go() -> None:
    for change in ("gone", "unblocked", "released"):
        graph = OwnershipGraph()
        graph.put(node("owner", deleting=True, finalizers=(FOREGROUND,)))
        graph.put(node("child", "owner", blocks=True, deleting=True))
        if change == "gone":
            assert item("owner") in graph.remove("uid-child")
        elif change == "unblocked":
            assert item("owner") in graph.put(node("child", "owner", deleting=True))
        else:
            assert item("owner") in graph.put(node("child", deleting=True))


def test_the_uids_of_a_kind_are_those_of_its_objects_and_of_unseen_owners() -> None:
    graph = OwnershipGraph()
    graph.put(node("a", "unseen"))
    graph.put(Node(Item("uid-x", "apps/v1", "ConfigMap", "shop", "x"), ()))
    assert graph.uids("", "ConfigMap") == {"uid-a", "uid-unseen"}


def test_items_print_as_people_name_them() -> None:
    assert str(item("a")) == "ConfigMap shop/a"
    assert str(Item("u", "v1", "Node", "", "n")) == "Node n"


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.sets(st.sampled_from("abcd"), max_size=3), st.booleans()),
        max_size=40,
    )
)
def test_dependents_agree_with_the_owner_references_of_existing_objects(history: list[tuple[str, set[str], bool]]) -> None:
    graph = OwnershipGraph()
    there: dict[str, set[str]] = {}
    for name, owners, put in history:
        if put:
            graph.put(node(name, *sorted(owners)))
            there[name] = owners
        else:
            graph.remove(f"uid-{name}")
            there.pop(name, None)
        for owner in "abcd":
            assert [one.item.name for one in graph.dependents(f"uid-{owner}")] == sorted(
                name for name, owners in there.items() if owner in owners
            )
        assert len(graph) == len(there)


def test_references_across_namespaces_are_invalid_once_both_objects_are_known() -> None:
    other = Node(Item("uid-o", "v1", "ConfigMap", "elsewhere", "o"), ())
    cluster_scoped = Node(Item("uid-c", "v1", "Node", "", "c"), ())
    dependent = node("d", "o", "c", "unknown")
    graph = OwnershipGraph()
    assert graph.invalid_references(dependent) == []
    graph.put(dependent)
    assert graph.invalid_references(other) == [(dependent.item, dependent.owners[0])]
    assert graph.invalid_references(cluster_scoped) == []
    graph.put(other)
    graph.put(cluster_scoped)
    assert graph.invalid_references(other) == []
    assert graph.invalid_references(dependent) == []
    late = node("late", "o")
    assert graph.invalid_references(late) == [(late.item, late.owners[0])]
