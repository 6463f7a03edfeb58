from __future__ import annotations

from pathlib import Path

import pytest

from tools import names

VOCABULARY = names.Vocabulary(
    classes={"Passage": "RequestState"},
    modules={"refusals": "api_errors"},
    allowed_paths=["tools", "tools/gone.py"],
    arguments=["what"],
    duplicates={"Event": 2, "Gone": 3},
    phrases={"hitherto": 1},
    other_phrases={"hitherto": 3},
)
A, B = Path("a.py"), Path("b.py")


@pytest.mark.parametrize(
    ("classes", "phrases", "other_phrases", "expected"),
    [
        pytest.param({"Event": [A, B], "Client": [A]}, 1, 3, [], id="figures that are as high as allowed are no problem"),
        pytest.param(
            {"Client": [A, B]},
            0,
            0,
            ["class Client is defined in 2 modules, allowed 1: a.py, b.py; give each its own name"],
            id="a class in two modules is a problem",
        ),
        pytest.param(
            {},
            2,
            0,
            ["'hitherto' is used 2 times in kubeloop, allowed 1; write a sentence with a subject and a verb"],
            id="a phrase in kubeloop is a problem above its ceiling",
        ),
        pytest.param(
            {},
            0,
            4,
            ["'hitherto' is used 4 times in tests and tools, allowed 3; write a sentence with a subject and a verb"],
            id="a phrase in tests is a problem above its own ceiling",
        ),
    ],
)
def test_each_problem_is_a_sentence(classes: dict[str, list[Path]], phrases: int, other_phrases: int, expected: list[str]) -> None:
    assert names.problems(VOCABULARY, classes, {"hitherto": phrases}, {"hitherto": other_phrases}) == expected


def test_an_update_lowers_figures_and_never_raises_one() -> None:
    lowered = names.lower(VOCABULARY, {"Event": [A, B], "Gone": [A]}, {"hitherto": 5}, {"hitherto": 2})
    assert (lowered.duplicates, lowered.phrases, lowered.other_phrases) == ({"Event": 2}, {"hitherto": 1}, {"hitherto": 2})
    assert lowered.allowed_paths == ["tools"]
    assert names.lower(VOCABULARY, {}, {"hitherto": 0}, {"hitherto": 9}).other_phrases == {"hitherto": 3}


def test_public_classes_and_phrases_are_found_in_files(tmp_path: Path) -> None:
    (tmp_path / "api").mkdir()
    (tmp_path / "api" / "generated.py").write_text("class Pod: ...\n")
    (tmp_path / "store.py").write_text(
        '"""Hitherto filled, hitherto; hithertofore."""\n\nclass Store:\n    class Inner: ...\n\nclass _Private: ...\n'
    )
    paths = names.sources(tmp_path)
    assert names.public_classes(paths) == {"Store": [tmp_path / "store.py"]}
    assert names.count_phrases(paths, ["hitherto"]) == {"hitherto": 2}


def test_phrases_are_found_in_names_of_test_functions_and_not_in_other_names(tmp_path: Path) -> None:
    module = tmp_path / "test_store.py"
    module.write_text("def test_a_store_is_hitherto_full(): ...\n\ndef store_is_hitherto_full(): ...\n")
    assert names.count_phrases([module], ["is hitherto"]) == {"is hitherto": 1}


def test_replaced_classes_are_found_private_and_nested(tmp_path: Path) -> None:
    module = tmp_path / "store.py"
    module.write_text("class _Passage:\n    class Passage: ...\n\nclass Passages: ...\n")
    assert names.replaced_classes([module], VOCABULARY.classes) == [
        f"{module}:1: class _Passage: use RequestState",
        f"{module}:2: class Passage: use RequestState",
    ]


def test_replaced_modules_and_folders_are_found_behind_the_prefix_of_tests(tmp_path: Path) -> None:
    root = tmp_path / "refusals"
    module, folder, clean = root / "test_refusals.py", root / "refusals", root / "test_store.py"
    paths = [module, folder / "store.py", clean]
    assert names.replaced_modules(paths, VOCABULARY.modules, root=root) == [
        f"{module}: a module refusals: use api_errors",
        f"{folder}: a folder refusals: use api_errors",
    ]
    assert names.replaced_modules(paths, VOCABULARY.modules, [module, folder], root) == []


def test_arguments_with_a_replaced_name_are_found_in_functions_and_lambdas(tmp_path: Path) -> None:
    module = tmp_path / "store.py"
    module.write_text("def get(key, *what): ...\n\nsort = lambda what: what\nwhat = 1\n\ndef put(whatever, *, key=what): ...\n")
    assert names.vague_arguments([module], ["what"]) == [f"{module}:1: what", f"{module}:3: what"]


def test_code_beside_kubeloop_is_found_with_its_pages(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "src").mkdir()
    paths = [tmp_path / "tests" / "test_store.py", tmp_path / "tests" / "README.md", tmp_path / "CHANGELOG.md"]
    for path in [*paths, tmp_path / "src" / "store.py"]:
        path.write_text("")
    assert names.other_files(tmp_path) == paths
