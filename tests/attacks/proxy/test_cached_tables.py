"""The tables of attacks on reads, against the proxy in caching mode.

The table that counts requests to the API server is left out: a consistent read takes one or two, by what others have written.
"""

from __future__ import annotations

import pytest

from tests.attacks.proxy.conftest import Proxied
from tests.attacks.proxy.test_forms import (  # noqa: F401 - collected by pytest
    answers,
    test_no_form_of_an_answer_shows_more,
    test_no_header_of_a_read_shows_more,
    test_no_parameter_of_a_list_shows_more,
    test_no_spelling_of_a_path_leads_to_a_hidden_object,
    test_no_upgrade_leads_round_the_rules,
    test_selectors_see_what_the_client_sees,
)
from tests.attacks.proxy.test_hidden_names import (  # noqa: F401 - collected by pytest
    test_a_client_without_rights_does_not_learn_that_a_changed_object_exists,
    test_a_hidden_object_is_as_a_missing_one,
    test_to_a_client_without_rights_a_hidden_object_is_as_a_missing_one,
)
from tests.attacks.proxy.test_paging import crowd, test_pages_are_as_if_hidden_objects_did_not_exist  # noqa: F401


@pytest.fixture(scope="module")
def proxied(caching: Proxied) -> Proxied:
    """The proxy in caching mode, in place of the other one."""
    return caching
