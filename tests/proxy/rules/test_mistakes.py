"""Mistakes in rule files: each is a line that names file, line, rule, field, and what was expected."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeloop.proxy.rules import RuleError, RuleSet
from tests.proxy.rules.rule_texts import request, rule, rules_of, text_of

HEAD = "apiVersion: proxy.kubeloop.dev/v1alpha1\nkind: RewriteRule\nmetadata: {name: r}\nspec:\n"


def lines_of(text: str) -> list[str]:
    with pytest.raises(RuleError) as caught:
        RuleSet.parse(text, "x.yaml")
    return str(caught.value).splitlines()


def spec(*lines: str, match: str = "  match: [{}]", actions: str = "  actions: [drop: true]") -> str:
    return HEAD + "\n".join((match, actions, *lines))


def action(text: str) -> str:
    return spec(actions=f"  actions:\n  - {text}")


PATHS = 'expected a path such as spec.nodeName, spec.containers[*].image or metadata.annotations["a.b/c"]'
REQUEST = "request has verb, group, version, resource, subresource, namespace, name, userAgent"
EMPTY = "the file is empty; expected YAML or JSON documents (a List may have no items)"
ACTIONS = "drop, set, remove, jsonPatch, mergePatch, mapAddresses, python"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", f"1: {EMPTY}", id="an empty file has no rule"),
        pytest.param("---\n# nothing\n---\n", f"1: {EMPTY}", id="empty documents are no rules"),
        pytest.param(
            "apiVersion: v1\nkind: List",
            '1: document 1: apiVersion: expected "proxy.kubeloop.dev/v1alpha1", got "v1"',
            id="a list without the field items is no list",
        ),
        pytest.param("a: [\n", "2: did not find expected node content", id="a text that is not YAML is refused with its line"),
        pytest.param("- 1", "1: document 1: expected a mapping, got a list", id="a document is a mapping"),
        pytest.param("a: &a [*a]", "1: anchor 'a' value contains itself", id="an alias within its own anchor is refused"),
        pytest.param("[" * 300 + "]" * 300, "1: exceeded max depth of 256", id="a deep document is refused"),
        pytest.param(
            HEAD.replace("v1alpha1", "v1"),
            '1: rule r: apiVersion: expected "proxy.kubeloop.dev/v1alpha1", got "proxy.kubeloop.dev/v1"',
            id="another version is refused",
        ),
        pytest.param(
            HEAD.replace("RewriteRule", "Rule"), '2: rule r: kind: expected "RewriteRule", got "Rule"', id="another kind is refused"
        ),
        pytest.param(
            HEAD.replace("{name: r}", "{}"), "3: document 1: metadata: name is missing, such as hide-internal", id="a rule needs a name"
        ),
        pytest.param(
            HEAD.replace("name: r", "name: Web_1"),
            '3: rule Web_1: metadata.name: expected a DNS name in lower case, such as "hide-internal", got "Web_1"',
            id="a name is a DNS name",
        ),
        pytest.param(
            HEAD.replace("name: r", 'name: "r\\n"'),
            '3: rule r : metadata.name: expected a DNS name in lower case, such as "hide-internal", got "r "',
            id="a line feed at the end of a name is seen",
        ),
        pytest.param(
            HEAD.replace("name: r", "name: yes"),
            "3: document 1: metadata.name: expected text, got true",
            id="a name that YAML reads as a boolean is refused",
        ),
        pytest.param(HEAD, "4: rule r: spec: expected a mapping, got nothing", id="a specification is a mapping"),
        pytest.param(
            spec("  matches: 1"), '7: rule r: spec.matches: unknown field; did you mean "match"?', id="an unknown field has a suggestion"
        ),
        pytest.param(
            spec("  zzz: 1"),
            '7: rule r: spec.zzz: unknown field; expected one of "match", "when", "actions", "writes", "onError"',
            id="an unlike field lists the known ones",
        ),
        pytest.param(
            spec("  writes: deny"),
            '7: rule r: spec.writes: "deny" is not a known value; did you mean "Deny"?',
            id="a word in other letters has a suggestion",
        ),
        pytest.param(spec("  onError: no"), "7: rule r: spec.onError: expected text, got false", id="no is a boolean"),
        pytest.param(
            spec("  writes: Deny", "  writes: Pass"), '8: the field "writes" appears twice in one mapping', id="a field appears once"
        ),
        pytest.param(
            spec(match="  match: []"), "5: rule r: spec.match: match needs at least one entry", id="a match without entries is refused"
        ),
        pytest.param(spec(match=""), "4: rule r: spec: match is missing", id="a rule without a match is refused"),
        pytest.param(spec(match="  match: {}"), "5: rule r: spec.match: expected a list, got a mapping", id="a match is a list"),
        pytest.param(
            spec(match="  match:\n  - {}\n  - {resource: [pods]}"),
            '7: rule r: spec.match[1].resource: unknown field; did you mean "resources"?',
            id="an item names its own line",
        ),
        pytest.param(
            spec(match="  match: [{resources: []}]"),
            "5: rule r: spec.match[0].resources: resources needs at least one item",
            id="an empty list would match nothing",
        ),
        pytest.param(
            spec(match="  match: [{resources: [Pod]}]"),
            "5: rule r: spec.match[0].resources[0]: "
            'expected a resource in plural and lower case, such as "pods", "pods/log" or "*", got "Pod"',
            id="a kind is no resource",
        ),
        pytest.param(
            spec(match="  match: [{verbs: [lst]}]"),
            '5: rule r: spec.match[0].verbs[0]: "lst" is not a known value; did you mean "list"?',
            id="an unknown verb has a suggestion",
        ),
        pytest.param(
            spec(match="  match: [{verbs: [read]}]"),
            '5: rule r: spec.match[0].verbs[0]: "read" is not a known value; expected one of '
            '"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "*"',
            id="a word that is no misspelling has no suggestion",
        ),
        pytest.param(
            spec(match="  match: [{fieldSelector: a=b}]"),
            "5: rule r: spec.match[0].fieldSelector: unknown field; expected one of "
            '"groups", "versions", "resources", "verbs", "namespaces", "names", "labelSelector", "users", "userGroups", "userAgents"',
            id="a field for something else is not suggested",
        ),
        pytest.param(
            spec(match="  match: [{users: [1]}]"), "5: rule r: spec.match[0].users[0]: expected text, got the number 1", id="a user is text"
        ),
        pytest.param(
            spec(match="  match: [{labelSelector: 'a=b=c'}]"),
            "5: rule r: spec.match[0].labelSelector: expected a label selector, such as tier=back,!public: "
            "found '=', expected: ',' or 'end of string'",
            id="a wrong selector has the message of Kubernetes",
        ),
        pytest.param(
            spec("  when: a && object"),
            "7: rule r: spec.when: ERROR: <input>:1:1: undeclared reference to 'a' (in container '')",
            id="a wrong expression has its position",
        ),
        pytest.param(
            spec("  when: request.verbb == 'get'"),
            f"7: rule r: spec.when: ERROR: <input>:1:8: undefined field 'verbb'; did you mean \"verb\"? {REQUEST}",
            id="a misspelt field of the request has a suggestion",
        ),
        pytest.param(
            spec("  when: has(user.email)"),
            "7: rule r: spec.when: ERROR: <input>:1:4: undefined field 'email'; user has name, uid, groups, extra",
            id="an unknown field of the user lists the known ones, also in has()",
        ),
        pytest.param(
            spec("  when: object.a.exists(x, x == request.user.name)"),
            f"7: rule r: spec.when: ERROR: <input>:1:32: undefined field 'user'; {REQUEST}",
            id="an unknown field of the request is found anywhere in an expression",
        ),
        pytest.param(
            spec("  when: user.groups == 'devs'"),
            "7: rule r: spec.when: ERROR: <input>:1:13: found no matching overload for '_==_' applied to '(list(string), string)'",
            id="a field of another type is refused",
        ),
        pytest.param(
            spec("  when: '1'"),
            "7: rule r: spec.when: expected an expression that returns bool, got int",
            id="an expression returns a boolean",
        ),
        pytest.param(spec("  when: true"), "7: rule r: spec.when: expected text, got true", id="an expression is text"),
        pytest.param(spec(actions="  actions: []"), "6: rule r: spec.actions: actions needs at least one item", id="a rule has an action"),
        pytest.param(
            action("{}"),
            f"7: rule r: spec.actions[0]: expected exactly one action of {ACTIONS}, got none",
            id="an entry without an action is refused",
        ),
        pytest.param(
            action("{drop: true, remove: [a]}"),
            f"7: rule r: spec.actions[0]: expected exactly one action of {ACTIONS}, got drop and remove",
            id="two actions in one entry are refused",
        ),
        pytest.param(
            action("drop: false"), "7: rule r: spec.actions[0].drop: expected true, got false", id="an action that does nothing is refused"
        ),
        pytest.param(
            action("set: [a]"), "7: rule r: spec.actions[0].set: expected a mapping of path to value, got a list", id="set has a mapping"
        ),
        pytest.param(
            action("set: {a..b: 1}"),
            f'7: rule r: spec.actions[0].set["a..b"]: wrong path at character 2; {PATHS}',
            id="a wrong path has its position",
        ),
        pytest.param(
            action("set: {'[0].a': 1}"),
            f'7: rule r: spec.actions[0].set["[0].a"]: wrong path at character 1; {PATHS}',
            id="an object has no items",
        ),
        pytest.param(
            action("set: {metadata.uid: x}"),
            '7: rule r: spec.actions[0].set["metadata.uid"]: metadata.uid cannot be changed; clients identify the object by it',
            id="identity cannot be set",
        ),
        pytest.param(
            action("set: {metadata: {}}"),
            "7: rule r: spec.actions[0].set.metadata: metadata.name, "
            "which is part of metadata, cannot be changed; clients identify the object by it",
            id="metadata cannot be replaced",
        ),
        pytest.param(
            action("set: {metadata.labels.a: yes}"),
            '7: rule r: spec.actions[0].set["metadata.labels.a"]: the value of "a" is a boolean, expected text; put it into quotes',
            id="yes is no label",
        ),
        pytest.param(
            action("set: {metadata.labels: x}"),
            '7: rule r: spec.actions[0].set["metadata.labels"]: metadata.labels is a mapping of text, got text',
            id="labels are a mapping",
        ),
        pytest.param(
            action("remove: [kind]"),
            "7: rule r: spec.actions[0].remove[0]: kind cannot be changed; clients identify the object by it",
            id="identity cannot be removed",
        ),
        pytest.param(
            action("jsonPatch: [{op: mov, path: /a}]"),
            '7: rule r: spec.actions[0].jsonPatch[0].op: "mov" is not a known value; did you mean "move"?',
            id="an unknown operation has a suggestion",
        ),
        pytest.param(
            action("jsonPatch: [{op: remove, path: a}]"),
            '7: rule r: spec.actions[0].jsonPatch[0].path: expected a JSON pointer, such as "/spec/replicas", got "a"',
            id="a pointer begins with a slash",
        ),
        pytest.param(
            action("jsonPatch: [{op: add, path: /a}]"),
            "7: rule r: spec.actions[0].jsonPatch[0]: value is missing; add needs it",
            id="add needs a value",
        ),
        pytest.param(
            action("jsonPatch: [{op: copy, path: /a}]"),
            "7: rule r: spec.actions[0].jsonPatch[0]: from is missing; copy needs it",
            id="copy needs a source",
        ),
        pytest.param(
            action("jsonPatch: [{op: remove, path: /a, value: 1}]"),
            "7: rule r: spec.actions[0].jsonPatch[0]: remove has no field value",
            id="remove has no value",
        ),
        pytest.param(
            action("jsonPatch: [{op: test, path: /a, value: 1, from: /b}]"),
            "7: rule r: spec.actions[0].jsonPatch[0]: test has no field from",
            id="test has no source",
        ),
        pytest.param(
            action("jsonPatch: [{op: move, from: /a, path: /a/b}]"),
            "7: rule r: spec.actions[0].jsonPatch[0]: a field cannot move into itself",
            id="a field cannot move into itself",
        ),
        pytest.param(
            action("jsonPatch: [{op: move, from: /metadata/name, path: /a}]"),
            "7: rule r: spec.actions[0].jsonPatch[0]: metadata.name cannot be changed; clients identify the object by it",
            id="identity cannot be moved away",
        ),
        pytest.param(
            action("jsonPatch: [{op: replace, path: '', value: {}}]"),
            "7: rule r: spec.actions[0].jsonPatch[0]: apiVersion, "
            "which is part of the object, cannot be changed; clients identify the object by it",
            id="the object cannot be replaced",
        ),
        pytest.param(
            action("jsonPatch: [{op: add, path: /metadata/labels/a, value: 1}]"),
            '7: rule r: spec.actions[0].jsonPatch[0]: the value of "a" is a number, expected text; put it into quotes',
            id="a patch writes labels as text",
        ),
        pytest.param(
            action("jsonPatch: [{op: replace, path: /metadata/labels, value: [a]}]"),
            "7: rule r: spec.actions[0].jsonPatch[0]: metadata.labels is a mapping of text, got a list",
            id="a patch replaces labels by a mapping",
        ),
        pytest.param(
            action("mergePatch: {}"), "7: rule r: spec.actions[0].mergePatch: expected at least one field", id="a merge patch has a field"
        ),
        pytest.param(
            action("mergePatch: {metadata: null}"),
            "7: rule r: spec.actions[0].mergePatch.metadata: metadata.name, "
            "which is part of metadata, cannot be changed; clients identify the object by it",
            id="a merge patch cannot remove metadata",
        ),
        pytest.param(
            action("mergePatch: {metadata: {namespace: x}}"),
            "7: rule r: spec.actions[0].mergePatch.metadata.namespace: metadata.namespace "
            "cannot be changed; clients identify the object by it",
            id="a merge patch cannot change identity",
        ),
        pytest.param(
            action("mergePatch: {metadata: {annotations: {a: 1}}}"),
            '7: rule r: spec.actions[0].mergePatch.metadata.annotations: the value of "a" is a number, expected text; put it into quotes',
            id="a merge patch writes annotations as text",
        ),
        pytest.param(
            action("mapAddresses: {to: web}"),
            '7: rule r: spec.actions[0].mapAddresses.to: expected an IP address, such as 127.0.0.9, got "web"',
            id="an address is an IP address",
        ),
        pytest.param(
            action("mapAddresses: {to: 10.0.0.1, port: 0}"),
            "7: rule r: spec.actions[0].mapAddresses.port: expected a number of at least 1 and at most 65535, got 0",
            id="a port is in its range",
        ),
        pytest.param(
            action("mapAddresses: {to: 10.0.0.1}").replace("[{}]", "[{resources: [nodes]}]"),
            "7: rule r: spec.actions[0].mapAddresses: it never applies; expected one of endpoints, endpointslices, pods in spec.match",
            id="addresses are mapped in kinds that have some",
        ),
        pytest.param(
            action("python: {callable: loads}"),
            '7: rule r: spec.actions[0].python.callable: expected "module:function", such as "my.rules:rewrite", got "loads"',
            id="a callable names its module",
        ),
        pytest.param(
            action("python: {callable: 'json:loads', timeoutSeconds: 0}"),
            "7: rule r: spec.actions[0].python.timeoutSeconds: expected a number of more than 0 and at most 60, got 0",
            id="a time limit is positive",
        ),
        pytest.param(
            action("python: {callable: 'no_such_module:f'}"),
            "7: rule r: spec.actions[0].python.callable: there is no module no_such_module; run the proxy in its folder, or set PYTHONPATH",
            id="a module must exist",
        ),
        pytest.param(
            action("python: {callable: 'json:nope'}"),
            "7: rule r: spec.actions[0].python.callable: json has no nope",
            id="a function must exist",
        ),
        pytest.param(
            action("python: {callable: 'math:pi'}"),
            "7: rule r: spec.actions[0].python.callable: math:pi is a float; expected a function",
            id="a callable can be called",
        ),
        pytest.param(
            action("python: {callable: 'textwrap:dedent'}"),
            "7: rule r: spec.actions[0].python.callable: "
            "textwrap:dedent(text) cannot be called with two arguments, the object and the request",
            id="a callable takes two arguments",
        ),
        pytest.param(
            action("set: {a: 1.0e999}"),
            "7: rule r: spec.actions[0].set.a: the number inf has no equivalent in JSON",
            id="a number is finite",
        ),
    ],
)
def test_a_mistake_names_its_place_and_the_expectation(text: str, expected: str) -> None:
    assert f"x.yaml:{expected}" in lines_of(text)


def test_all_mistakes_of_all_rules_are_reported_in_the_order_of_their_lines() -> None:
    text = (
        spec("  writes: x", "  when: foo || bar", match="  match: [{labelSelector: '=', verb: [get]}]")
        + "\n---\n"
        + action("set: {kind: x}")
    )
    assert [line.split(": ")[0] + ": " + line.split(": ")[2] for line in lines_of(text)] == [
        "x.yaml:5: spec.match[0].verb",
        "x.yaml:5: spec.match[0].labelSelector",
        "x.yaml:7: spec.writes",
        "x.yaml:8: spec.when",
        "x.yaml:8: spec.when",
        "x.yaml:12: metadata.name",
        "x.yaml:16: spec.actions[0].set.kind",
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param(action("set:\n      a: [{b: 1,\n      b: 2}]"), 9, id="in a list"),
        pytest.param(action("set: {a: &a [1], c: *a, d: *a,\n    e: {f: 1,\n    f: 2}}"), 9, id="beside aliases"),
    ],
)
def test_a_field_that_appears_twice_is_found_at_any_depth(text: str, line: int) -> None:
    (found,) = lines_of(text)
    assert found.startswith(f"x.yaml:{line}: the field ")


def test_aliases_that_multiply_are_refused() -> None:
    levels = "".join(f"      - &l{level} [*l{level - 1}, *l{level - 1}]\n" for level in range(1, 20))
    assert lines_of(action(f"mergePatch:\n      a:\n      - &l0 [x]\n{levels}")) == ["x.yaml:1: document contains excessive aliasing"]


def test_a_second_rule_of_a_name_is_refused_with_both_lines() -> None:
    (line,) = lines_of(spec() + "\n---\n" + spec())
    assert line == "x.yaml:10: rule r: metadata.name: another rule has this name, in x.yaml:3"


def test_two_rules_of_one_name_are_refused_even_on_one_line() -> None:
    (line,) = lines_of(f'{{"apiVersion": "v1", "kind": "List", "items": [{text_of(rule())}, {text_of(rule())}]}}')
    assert line == "x.yaml:1: rule r: metadata.name: another rule has this name, in x.yaml:1"


def test_a_text_cannot_add_lines_to_the_error() -> None:
    (line,) = lines_of(text_of(rule({"set": {"a\x1b[31m\n..b": 1}})))
    assert line.startswith("x.yaml:1: rule r: ")
    assert line.isprintable()


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({}, ["FOLDER:1: the folder contains no file; expected *.yaml, *.yml, *.json"], id="a folder without files"),
        pytest.param({"a.yaml": b"\xff"}, ["FOLDER/a.yaml:1: the file is not UTF-8 text"], id="a file that is not text"),
        pytest.param({"a.yaml": b"# \n\n\xff"}, ["FOLDER/a.yaml:3: the file is not UTF-8 text"], id="the line of a byte that is not text"),
        pytest.param(
            {"b.json": b"", "a.yaml": b"{"},
            [
                "FOLDER/a.yaml:2: did not find expected node content",
                f"FOLDER/b.json:1: {EMPTY}",
            ],
            id="a mistake in each of two files",
        ),
    ],
)
def test_a_folder_reports_the_mistakes_of_all_its_files(tmp_path: Path, files: dict[str, bytes], expected: list[str]) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(RuleError) as caught:
        RuleSet.load(tmp_path)
    assert str(caught.value).splitlines() == [line.replace("FOLDER", str(tmp_path)) for line in expected]


def test_a_file_that_does_not_exist_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match=r"nope\.yaml:1: no such file"):
        RuleSet.load(tmp_path / "nope.yaml")


def test_a_file_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    with file.open("wb") as stream:
        stream.truncate(2**33)  # sparse
    with pytest.raises(RuleError, match="the file has more than 8 MiB"):
        RuleSet.load(file)


def test_expressions_may_read_every_field_of_a_request_and_of_its_user() -> None:
    context = request("ann", ("devs",), {"team": ("red",)})
    for variable, values in (("request", context.request_values()), ("user", context.user_values())):
        for field in values:
            (loaded,) = rules_of(rule(when=f"has({variable}.{field})")).rules
            assert loaded.condition is not None
            assert loaded.condition.evaluate({variable: values}), (variable, field)
