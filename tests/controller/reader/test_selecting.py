"""Whether a selection asks for no more than a cache keeps; an undecidable selection counts as no."""

import pytest

from kubeloop.controller.reader.reader import implies
from kubeloop.meta import parse_label_selector


@pytest.mark.parametrize(
    ("asked", "kept", "expected"),
    [
        pytest.param("app=web", "app=web", True, id="the same"),
        pytest.param("app=web,tier=db", "app=web", True, id="less"),
        pytest.param("tier=db", "app=web", False, id="something else"),
        pytest.param("app=api", "app=web", False, id="another value"),
        pytest.param("app=web", "app in (web, api)", True, id="one of several values"),
        pytest.param("app in (web, db)", "app in (web, api)", False, id="a value that is not kept"),
        pytest.param("app in (web)", "app=web", True, id="a set of one value"),
        pytest.param("app=web", "app", True, id="a value where any is kept"),
        pytest.param("app", "app=web", False, id="any value where one is kept"),
        pytest.param("app", "app", True, id="any value where any is kept"),
        pytest.param("app!=web", "app", False, id="not a value says nothing of existence"),
        pytest.param("app=web", "app!=api", True, id="a value where another one is left out"),
        pytest.param("app=api", "app!=api", False, id="the value that is left out"),
        pytest.param("app notin (api, db)", "app!=api", True, id="more is left out"),
        pytest.param("app!=api", "app notin (api, db)", False, id="less is left out"),
        pytest.param("!app", "app!=api", True, id="no label has no value"),
        pytest.param("!app", "!app", True, id="no label"),
        pytest.param("app=web", "!app", False, id="a label where none is kept"),
        pytest.param("size=5", "size>3", True, id="a number that is more"),
        pytest.param("size=2", "size>3", False, id="a number that is not"),
        pytest.param("size>3", "size>3", True, id="the same bound"),
        pytest.param("size>4", "size>3", False, id="another bound, which is not compared"),
        pytest.param("", "app=web", False, id="everything"),
        pytest.param("app=web", "", True, id="something where everything is kept"),
        pytest.param("a=1,b=2", "a=1,b=2", True, id="several, the same"),
        pytest.param("a=1", "a=1,b=2", False, id="one of two"),
    ],
)
def test_implies(asked: str, kept: str, expected: bool) -> None:
    assert implies(parse_label_selector(asked), parse_label_selector(kept)) is expected
