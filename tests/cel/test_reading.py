"""Expressions as text: how they are parsed, how deep they may nest, and which texts are no expressions."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.cel import CompileError, Environment, compile_expression, types
from kubeloop.cel.expression_reader import read
from kubeloop.cel.faults import render
from kubeloop.cel.parser import parse
from kubeloop.cel.syntax import CallNode, Comprehension, Const, EntryNode, Ident, ListLiteral, MapLiteral, Node, Select, StructLiteral
from kubeloop.cel.tokens import SyntaxErrorReport


def shown(node: Node) -> str:
    """With each call as a function, so that the precedence of operators is visible."""
    match node:
        case Const():
            return repr(node.value)
        case Ident():
            return node.name
        case Select():
            return f"has({shown(node.operand)}.{node.field})" if node.test_only else f"{shown(node.operand)}.{node.field}"
        case CallNode():
            target = "" if node.target is None else f"{shown(node.target)}->"
            return f"{target}{node.function}({', '.join(shown(one) for one in node.args)})"
        case ListLiteral():
            marked = ("?" * (index in node.optional) + shown(one) for index, one in enumerate(node.elements))
            return f"[{', '.join(marked)}]"
        case MapLiteral() | StructLiteral():
            return f"{getattr(node, 'name', '')}{{{', '.join(_entry(one) for one in node.entries)}}}"
        case Comprehension():
            return f"fold({node.variable} of {shown(node.over)}: {shown(node.step)})"


def _entry(entry: EntryNode) -> str:
    key = entry.key if isinstance(entry.key, str) else shown(entry.key)
    return f"{'?' * entry.optional}{key}: {shown(entry.value)}"


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        pytest.param("1 + 2 * 3 - 4", "_-_(_+_(1, _*_(2, 3)), 4)", id="products before sums, from the left"),
        pytest.param("a < b == c in d", "@in(_==_(_<_(a, b), c), d)", id="relations from the left"),
        pytest.param("a && b && c && d", "_&&_(_&&_(a, b), _&&_(c, d))", id="a chain of conditions is balanced"),
        pytest.param("a || b && c", "_||_(a, _&&_(b, c))", id="and before or"),
        pytest.param("a ? b : c ? d : e", "_?_:_(a, b, _?_:_(c, d, e))", id="ternaries from the right"),
        pytest.param("-1", "-1", id="a number has its sign"),
        pytest.param("-a.b(c)[d]", "-_(_[_](a->b(c), d))", id="a sign is for all that follows its name"),
        pytest.param("!!a", "a", id="two nots are none"),
        pytest.param("---a", "-_(a)", id="three signs are one"),
        pytest.param("a - -1", "_-_(a, -1)", id="a sign behind a sign"),
        pytest.param("a.b.c{d: 1, ?e: f}", "a.b.c{d: 1, ?e: f}", id="a message"),
        pytest.param(".a.b", ".a.b", id="a name from the root"),
        pytest.param("[1, ?a, 2,]", "[1, ?a, 2]", id="a list with an optional element, and a comma more"),
        pytest.param("{?'a': b, c: {},}", "{?'a': b, c: {}}", id="a map with an optional entry"),
        pytest.param("a.?b[?c]", "_[?_](_?._(a, 'b'), c)", id="optional fields and elements"),
        pytest.param("has(a.b.c)", "has(a.b.c)", id="whether a field is there"),
        pytest.param("a.all(x, x > 0)", "fold(x of a: _&&_(@result, _>_(x, 0)))", id="a macro"),
        pytest.param("a.map(x, b, c)", "fold(x of a: _?_:_(b, _+_(@result, [c]), @result))", id="a macro with a condition"),
        pytest.param(
            "a.optMap(x, y)", "_?_:_(a->hasValue(), optional.of(fold(#unused of []: x)), optional.none())", id="a macro of optional values"
        ),
        pytest.param("'\\x41\\u00e9\\101\\n' // end", repr("Aé" + "A\n"), id="escapes, and a comment"),
        pytest.param(r"r'\d' + '''a''b'''", r"_+_('\\d', " + repr("a''b") + ")", id="raw texts, and quotes within three"),
        pytest.param(r"b'é\xff'", repr("é".encode() + b"\xff"), id="bytes"),
        pytest.param("0xFFu", "255", id="hexadecimal"),
    ],
)
def test_what_a_text_is_read_as(text: str, tree: str) -> None:
    assert shown(parse(text).root) == tree


ANYTHING = Environment({"a": types.DYN})
TOO_DEEP = "ERROR: <input>:-1:0: expression recursion limit exceeded: 250"
TOO_MANY = "ERROR: <input>:-1:0: max recursion depth exceeded"


@pytest.mark.parametrize(
    ("deep", "fault"),
    [
        pytest.param(lambda n: "(" * n + "true" + ")" * n, TOO_DEEP, id="parentheses"),
        pytest.param(lambda n: "dyn(" * n + "true" + ")" * n, TOO_DEEP, id="calls"),
        pytest.param(lambda n: "true?true:" * n + "true", TOO_DEEP, id="ternaries"),
        pytest.param(lambda n: "1" + "+1" * (n + 1), TOO_MANY, id="sums"),
        pytest.param(lambda n: "a" + ".b" * (n + 1), TOO_MANY, id="selections"),
    ],
)
def test_an_expression_nests_250_levels_and_no_more(deep: Any, fault: str) -> None:
    compile_expression(deep(249), ANYTHING).most_cost(lambda path: None)
    with pytest.raises(CompileError) as caught:
        compile_expression(deep(250), ANYTHING)
    assert str(caught.value) == fault


def test_sums_within_sums_count_twice() -> None:
    """As deep as the grammar's rules stand within themselves: a sum in the right side of a sum is two deep."""
    compile_expression("(1+" * 124 + "1" + ")" * 124, ANYTHING)
    with pytest.raises(CompileError, match="expression recursion limit exceeded: 250"):
        compile_expression("(1+" * 125 + "1" + ")" * 125, ANYTHING)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param("for", "ERROR: <input>:1:1: reserved identifier: for\n | for\n | ^", id="a reserved word"),
        pytest.param("1 + 9223372036854775808", "ERROR: <input>:1:5: invalid int literal", id="a number that is too large"),
        pytest.param("1e999", "ERROR: <input>:1:1: invalid double literal", id="a fraction that is too large"),
        pytest.param(r"'\U00110000'", "ERROR: <input>:1:1: invalid unicode code point", id="a character that there is not"),
        pytest.param(r"b'\u00e9'", "ERROR: <input>:1:1: unable to unescape string", id="a character among bytes"),
        pytest.param("a.all(1, true)", "ERROR: <input>:1:7: argument must be a simple name", id="a variable that is no name"),
        pytest.param(
            "[1].map(as, 1)",
            "ERROR: <input>:1:9: reserved identifier: as\n"
            " | [1].map(as, 1)\n | ........^\nERROR: <input>:1:9: argument is not an identifier",
            id="a variable that is a reserved word",
        ),
        pytest.param("has(a)", "ERROR: <input>:1:5: invalid argument to has() macro", id="a field that is none"),
        pytest.param("a.`b`", "ERROR: <input>:1:3: unsupported syntax: '`'", id="a quoted name"),
    ],
)
def test_what_the_grammar_allows_and_is_wrong_all_the_same(text: str, fault: str) -> None:
    with pytest.raises(CompileError) as caught:
        parse(text)
    assert str(caught.value).startswith(fault)


OPERAND = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        pytest.param("1 +", [f"1:4: Syntax error: mismatched input '<EOF>' expecting {OPERAND}"], id="an operand lacks"),
        pytest.param("== a", [f"1:1: Syntax error: extraneous input '==' expecting {OPERAND}"], id="an operator too many"),
        pytest.param("(1", ["1:3: Syntax error: missing ')' at '<EOF>'"], id="a bracket lacks"),
        pytest.param("1)", ["1:2: Syntax error: extraneous input ')' expecting <EOF>"], id="a bracket too many"),
        pytest.param("a b c", ["1:3: Syntax error: mismatched input 'b' expecting <EOF>"], id="words that follow each other"),
        pytest.param("a.", ["1:3: Syntax error: no viable alternative at input '.'"], id="a field lacks"),
        pytest.param("a.true", ["1:3: Syntax error: mismatched input 'true' expecting IDENTIFIER"], id="a field that is a constant"),
        pytest.param(
            "a.?true",
            ["1:4: Syntax error: mismatched input 'true' expecting {IDENTIFIER, ESC_IDENTIFIER}", "1:4: unsupported ident kind"],
            id="an optional field that is a constant",
        ),
        pytest.param("[1", ["1:3: Syntax error: mismatched input '<EOF>' expecting {']', ','}"], id="the end of a list lacks"),
        pytest.param("[1,", ["1:4: Syntax error: missing ']' at '<EOF>'"], id="the end of a list lacks behind a comma"),
        pytest.param("{'a' 1}", ["1:6: Syntax error: missing ':' at '1'"], id="a colon lacks"),
        pytest.param("a ? b", ["1:6: Syntax error: mismatched input '<EOF>' expecting ':'"], id="half a ternary"),
        pytest.param("f(1,)", [f"1:5: Syntax error: mismatched input ')' expecting {OPERAND}"], id="an argument lacks"),
        pytest.param(
            "a = b",
            ["1:3: Syntax error: token recognition error at: '= '", "1:5: Syntax error: extraneous input 'b' expecting <EOF>"],
            id="an entry that is no word is left out",
        ),
        pytest.param(
            "'a",
            ["1:1: Syntax error: token recognition error at: ''a'", f"1:3: Syntax error: mismatched input '<EOF>' expecting {OPERAND}"],
            id="a text without its end",
        ),
        pytest.param("a & b || c", ["1:3: Syntax error: token recognition error at: '& '", "1:5: Syntax error: "], id="half a sign"),
    ],
)
def test_usual_mistakes_read_as_kubernetes_tells_them(text: str, faults: list[str]) -> None:
    try:
        issues = read(text)[1]
    except SyntaxErrorReport as fault:
        issues = fault.issues
    reported = [line.removeprefix("ERROR: <input>:") for line in render(text, issues).split("\n") if line.startswith("ERROR")]
    assert len(reported) == len(faults)
    assert all(one.startswith(fault) for one, fault in zip(reported, faults, strict=True)), reported


@pytest.mark.parametrize("text", ["", "1 +", "(1", "1)", "a b", "a.", "[1", "{1}", "a ? b", "f(1,)", "'a", "a ? b ? c : d : e", "a#b"])
def test_an_invalid_expression_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(CompileError, match=r"\AERROR: <input>:1:\d+: Syntax error: "):
        parse(text)
