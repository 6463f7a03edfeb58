from pathlib import Path

import pytest

from kubeloop.codegen.write import MARK, write_modules
from kubeloop.meta import ConfigError

TEXT = f'"""Models. {MARK}"""\n'


def test_modules_are_written_once_and_left_alone_when_unchanged(tmp_path: Path) -> None:
    assert write_modules({"core/v1.py": TEXT}, tmp_path / "out") == 1
    assert write_modules({"core/v1.py": TEXT}, tmp_path / "out") == 0


def test_a_generated_module_that_is_no_longer_made_is_removed(tmp_path: Path) -> None:
    write_modules({"a.py": TEXT, "b.py": TEXT}, tmp_path)
    write_modules({"a.py": TEXT}, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a.py"]


def test_somebodys_own_file_is_neither_overwritten_nor_removed(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("x = 1\n")
    write_modules({"a.py": TEXT}, tmp_path)
    with pytest.raises(ConfigError, match=r"own\.py: not a generated file"):
        write_modules({"b.py": TEXT, "own.py": TEXT}, tmp_path)
    assert (tmp_path / "own.py").read_text() == "x = 1\n"
    assert not (tmp_path / "b.py").exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write models"):
        write_modules({"a.py": TEXT}, tmp_path / "file" / "out")
