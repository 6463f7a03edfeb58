"""Names, order and defaults of plug-ins, and the errors for names that are not available."""

from __future__ import annotations

import pytest

from kubeloop.apiserver.admission.table import LACKING, OFF_BY_DEFAULT, ORDER, enabled_plugins, split_names
from kubeloop.meta.errors import ConfigError
from kubeloop.testing import HandlerServer


def test_every_name_stands_once() -> None:
    assert len(set(ORDER)) == len(ORDER)
    assert set(ORDER) >= OFF_BY_DEFAULT
    assert OFF_BY_DEFAULT >= LACKING


def test_without_flags_the_plugins_are_those_of_a_default_server() -> None:
    found = enabled_plugins()
    assert {"NamespaceLifecycle", "LimitRanger", "ServiceAccount", "PodSecurity", "ResourceQuota", "DefaultStorageClass"} <= found
    assert not {"NodeRestriction", "AlwaysDeny", "OwnerReferencesPermissionEnforcement"} & found


def test_plugins_are_turned_on_and_off_by_name() -> None:
    found = enabled_plugins(["NodeRestriction"], ["PodSecurity"])
    assert "NodeRestriction" in found
    assert "PodSecurity" not in found


@pytest.mark.parametrize(
    ("enable", "disable", "message"),
    [
        pytest.param(["Nothing"], [], 'enable-admission-plugins plugin "Nothing" is unknown; known are ', id="an unknown name"),
        pytest.param([], ["limitranger"], 'plugin "limitranger" is unknown; its name is LimitRanger', id="a name in another case"),
        pytest.param(
            ["PodSecurity"],
            ["PodSecurity"],
            r"\[PodSecurity\] in enable-admission-plugins and disable-admission-plugins overlapped",
            id="a name on both sides",
        ),
        pytest.param(["EventRateLimit"], [], "this server does not have the plug-in EventRateLimit", id="a plug-in that is not there"),
    ],
)
def test_is_refused(enable: list[str], disable: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        enabled_plugins(enable, disable)


def test_a_flag_may_be_repeated_and_hold_lists() -> None:
    assert split_names(["A,B", " C ,", ""]) == ("A", "B", "C")


async def test_a_plugin_is_not_asked_about_resources_that_it_has_nothing_to_do_with() -> None:
    async with HandlerServer() as server:
        by_resource = {}
        for one in server.api.registry:
            if one.gvr.resource in ("pods", "configmaps", "persistentvolumeclaims") and not one.gvr.group:
                by_resource[one.gvr.resource] = [type(plugin).__name__ for plugin in server.api.admission.plugins_for(one)]
    assert {"PodSecurity", "LimitRanger", "PriorityPlugin"} <= set(by_resource["pods"])
    assert {"DefaultStorageClass", "LimitRanger", "PersistentVolumeClaimResize"} <= set(by_resource["persistentvolumeclaims"])
    assert not {"PodSecurity", "LimitRanger", "PriorityPlugin", "DefaultStorageClass"} & set(by_resource["configmaps"])
    assert "QuotaAdmission" in by_resource["configmaps"]
