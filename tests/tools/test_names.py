from __future__ import annotations

from pathlib import Path

import pytest

from tools import names

VOCABULARY = names.Vocabulary({"Passage": "RequestState"}, {"refusals": "api_errors"}, ["what"], {"Event": 2, "Gone": 3}, {"anew": 1})
A, B, C = Path("a.py"), Path("b.py"), Path("refusals.py")


@pytest.mark.parametrize(
    ("classes", "paths", "phrases", "expected"),
    [
        pytest.param({"Event": [A, B], "Client": [A]}, [A, B], {"anew": 1}, [], id="as much as is allowed"),
        pytest.param({"Passage": [A]}, [A], {"anew": 0}, ["a.py: class Passage: use RequestState"], id="a replaced class"),
        pytest.param({}, [C], {"anew": 0}, ["refusals.py: a module refusals: use api_errors"], id="a replaced module"),
        pytest.param(
            {"Client": [A, B]},
            [A, B],
            {"anew": 0},
            ["class Client is defined in 2 modules, allowed 1: a.py, b.py; give each its own name"],
            id="a class in two modules",
        ),
        pytest.param({}, [], {"anew": 2}, ["'anew' is used 2 times, allowed 1; write a sentence with a subject and a verb"], id="a phrase"),
    ],
)
def test_each_problem_is_a_sentence(
    classes: dict[str, list[Path]], paths: list[Path], phrases: dict[str, int], expected: list[str]
) -> None:
    assert names.problems(VOCABULARY, classes, paths, phrases) == expected


def test_an_update_lowers_figures_and_never_raises_one() -> None:
    lowered = names.lower(VOCABULARY, {"Event": [A, B, C], "Gone": [A]}, {"anew": 5})
    assert (lowered.duplicates, lowered.phrases) == ({"Event": 2}, {"anew": 1})
    assert names.lower(VOCABULARY, {}, {"anew": 0}).phrases == {"anew": 0}


def test_public_classes_and_phrases_are_found_in_files(tmp_path: Path) -> None:
    (tmp_path / "api").mkdir()
    (tmp_path / "api" / "generated.py").write_text("class Pod: ...\n")
    (tmp_path / "store.py").write_text('"""Filled anew, Anew; renewed."""\n\nclass Store:\n    class Inner: ...\n\nclass _Private: ...\n')
    paths = names.sources(tmp_path)
    assert names.public_classes(paths) == {"Store": [tmp_path / "store.py"]}
    assert names.count_phrases(paths, ["anew"]) == {"anew": 2}


def test_arguments_with_a_replaced_name_are_found_in_functions_and_lambdas(tmp_path: Path) -> None:
    module = tmp_path / "store.py"
    module.write_text("def get(key, *what): ...\n\nsort = lambda what: what\nwhat = 1\n\ndef put(whatever, *, key=what): ...\n")
    assert names.vague_arguments([module], ["what"]) == [f"{module}:1: what", f"{module}:3: what"]
