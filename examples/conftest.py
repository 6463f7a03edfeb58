"""The examples are tested on the same servers as everything else, with the built-in controllers: they are programs for a whole cluster."""

import pytest

from tests.conftest import client as client
from tests.conftest import local_cluster as local_cluster
from tests.conftest import namespace as namespace
from tests.conftest import pytest_collection_modifyitems as pytest_collection_modifyitems
from tests.conftest import pytest_sessionstart as pytest_sessionstart
from tests.conftest import server_with_controllers as server_with_controllers
from tests.kubectl.conftest import kubectl as kubectl
from tests.kubectl.conftest import kubectl_home as kubectl_home
from tests.kubectl.conftest import start_kubectl as start_kubectl
from tests.servers import ServerUnderTest


@pytest.fixture(scope="session")
def server(server_with_controllers: ServerUnderTest) -> ServerUnderTest:
    return server_with_controllers
