"""A user with few rights tries to get more, by every way that objects offer."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kubeloop.api.rbac.v1 import ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject
from kubeloop.client import Client
from kubeloop.meta import ObjectMeta
from kubeloop.types import JSONObject
from tests.attacks.conftest import Answered, Thief

pytestmark = pytest.mark.server


RBAC = "rbac.authorization.k8s.io"
CLUSTER = f"/apis/{RBAC}/v1"
HOME = f"/apis/{RBAC}/v1/namespaces/{{home}}"
EVERYTHING = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
_PATIENCE = 30.0


@pytest.fixture
async def clerk(thief: Thief, client: Client) -> AsyncIterator[Thief]:
    """May write roles and bindings of all kinds, service accounts, their tokens, pods and signing requests, and impersonate users; but
    neither escalate nor bind."""
    verbs = ["get", "list", "create", "update", "patch", "delete"]
    name = f"clerk-{thief.home}"
    rules = [
        PolicyRule(api_groups=[RBAC], resources=["roles", "rolebindings", "clusterroles", "clusterrolebindings"], verbs=verbs),
        PolicyRule(api_groups=[""], resources=["users"], verbs=["impersonate"]),
        PolicyRule(api_groups=["certificates.k8s.io"], resources=["certificatesigningrequests"], verbs=verbs),
    ]
    await client.create(ClusterRole(metadata=ObjectMeta(name=name), rules=rules))
    await client.create(
        ClusterRoleBinding(
            metadata=ObjectMeta(name=name),
            role_ref=RoleRef(api_group=RBAC, kind="ClusterRole", name=name),
            subjects=[Subject(kind="ServiceAccount", name="thief", namespace=thief.home)],
        )
    )
    async with asyncio.timeout(_PATIENCE):  # a real server learns of it a moment later
        while (await thief.ask("GET", f"{CLUSTER}/clusterroles?limit=1")).status != 200:
            await asyncio.sleep(0.05)
    yield thief
    await client.delete(ClusterRoleBinding, name)
    await client.delete(ClusterRole, name)


async def post(thief: Thief, path: str, tree: JSONObject) -> Answered:
    return await thief.ask("POST", path, body=json.dumps(tree).encode())


def role(kind: str, *rules: JSONObject, **labels: str) -> JSONObject:
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": {"generateName": "x-", "labels": labels}, "rules": list(rules)}


def binding(thief: Thief, kind: str, role_kind: str, name: str) -> JSONObject:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": kind,
        "metadata": {"generateName": "x-"},
        "roleRef": {"apiGroup": RBAC, "kind": role_kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "thief", "namespace": thief.home}],
    }


@pytest.mark.parametrize(
    ("path", "tree"),
    [
        pytest.param(f"{CLUSTER}/clusterroles", role("ClusterRole", EVERYTHING), id="a role that may everything"),
        pytest.param(
            f"{CLUSTER}/clusterroles",
            role("ClusterRole", {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}),
            id="a role that may a little more",
        ),
        pytest.param(
            f"{CLUSTER}/clusterroles", role("ClusterRole", {"nonResourceURLs": ["*"], "verbs": ["get"]}), id="a role for all paths"
        ),
        pytest.param(
            f"{CLUSTER}/clusterroles",
            role("ClusterRole", EVERYTHING, **{f"{RBAC}/aggregate-to-view": "true"}),
            id="a role that others are to take up",
        ),
        pytest.param(
            f"{CLUSTER}/clusterroles",
            {**role("ClusterRole"), "aggregationRule": {"clusterRoleSelectors": [{}]}},
            id="a role made of all others",
        ),
        pytest.param(f"{HOME}/roles", role("Role", EVERYTHING), id="a role of one's own namespace"),
        pytest.param(f"{HOME}/roles", role("Role", {"apiGroups": [""], "resources": ["*"], "verbs": ["get"]}), id="with a wildcard"),
        pytest.param(
            f"/apis/{RBAC}/v1/namespaces/{{other}}/roles",
            role("Role", {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}),
            id="what one has at home, elsewhere",
        ),
        pytest.param(
            f"{HOME}/roles",
            role("Role", {"apiGroups": [RBAC], "resources": ["roles"], "verbs": ["escalate"]}),
            id="the right to grant what one has not",
        ),
        pytest.param(
            f"{HOME}/roles", role("Role", {"apiGroups": [""], "resources": ["groups"], "verbs": ["impersonate"]}), id="to be of any group"
        ),
    ],
)
async def test_a_user_cannot_make_a_role_of_rights_that_he_lacks(clerk: Thief, path: str, tree: JSONObject) -> None:
    answered = await post(clerk, path, tree)
    assert answered.status == 403, answered.body[:300]


@pytest.mark.parametrize(
    ("path", "kind", "role_kind", "name"),
    [
        pytest.param(f"{CLUSTER}/clusterrolebindings", "ClusterRoleBinding", "ClusterRole", "cluster-admin", id="everything everywhere"),
        pytest.param(f"{HOME}/rolebindings", "RoleBinding", "ClusterRole", "cluster-admin", id="everything at home"),
        pytest.param(
            f"/apis/{RBAC}/v1/namespaces/{{other}}/rolebindings",
            "RoleBinding",
            "ClusterRole",
            "system:aggregate-to-view",
            id="a view of elsewhere",
        ),
        pytest.param(
            f"/apis/{RBAC}/v1/namespaces/{{other}}/rolebindings",
            "RoleBinding",
            "ClusterRole",
            "system:aggregate-to-edit",
            id="secrets elsewhere",
        ),
    ],
)
async def test_a_user_cannot_bind_himself_to_a_role_that_may_more(clerk: Thief, path: str, kind: str, role_kind: str, name: str) -> None:
    answered = await post(clerk, path, binding(clerk, kind, role_kind, name))
    assert answered.status == 403, answered.body[:300]


async def test_a_user_cannot_turn_his_binding_or_role_into_more(clerk: Thief) -> None:
    more = json.dumps({"rules": [EVERYTHING]}).encode()
    merge = {"Content-Type": "application/merge-patch+json"}
    assert (await clerk.ask("PATCH", f"{HOME}/roles/maps", merge, more)).status == 403
    assert (await clerk.ask("PATCH", f"{CLUSTER}/clusterroles/clerk-{{home}}", merge, more)).status == 403
    apply = {"Content-Type": "application/apply-patch+yaml"}
    applied = json.dumps({**role("Role", EVERYTHING), "metadata": {"name": "maps"}}).encode()
    assert (await clerk.ask("PATCH", f"{HOME}/roles/maps?fieldManager=x&force=true", apply, applied)).status == 403
    reference = json.dumps({"roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"}}).encode()
    assert (await clerk.ask("PATCH", f"{HOME}/rolebindings/maps", merge, reference)).status in (403, 422)
    assert not (await clerk.ask("GET", "/api/v1/namespaces/{other}/secrets/gold")).has_gold


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Impersonate-User": "jane", "Impersonate-Group": "system:masters"}, id="superusers"),
        pytest.param({"Impersonate-User": "jane", "Impersonate-Group": "anything"}, id="any group"),
        pytest.param({"Impersonate-User": "jane", "Impersonate-Uid": "1"}, id="a uid"),
        pytest.param({"Impersonate-User": "jane", "Impersonate-Extra-Scopes": "all"}, id="an attribute"),
        pytest.param({"Impersonate-User": "system:serviceaccount:kube-system:generic-garbage-collector"}, id="a service account"),
    ],
)
async def test_a_user_who_may_impersonate_any_user_may_be_nothing_more(clerk: Thief, headers: dict[str, str]) -> None:
    """But a user: also one whom a binding knows by his name, which is why no user should have that right."""
    answered = await clerk.ask("GET", "/api/v1/namespaces/{other}/secrets/gold", headers)
    assert answered.status == 403
    assert not answered.has_gold
    as_jane = await clerk.ask("GET", "/api/v1/namespaces/{home}/configmaps", {"Impersonate-User": "jane"})
    assert as_jane.status == 403
    assert '\\"jane\\"' in as_jane.body


def signing_request(signer: str, organization: str, name: str = "jane") -> JSONObject:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization), x509.NameAttribute(NameOID.COMMON_NAME, name)])
    pem = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    request = base64.b64encode(pem.public_bytes(serialization.Encoding.PEM)).decode()
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "thief-"},
        "spec": {
            "request": request,
            "signerName": signer,
            "usages": ["client auth"],
            "username": "system:admin",
            "groups": ["system:masters"],
        },
    }


async def test_a_request_for_a_certificate_of_a_superuser_is_refused(clerk: Thief) -> None:
    requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    refused = await post(clerk, requests, signing_request("kubernetes.io/kube-apiserver-client", "system:masters"))
    assert refused.status == 403, refused.body[:300]
    assert "system:masters" in refused.body


async def test_a_certificate_request_names_its_real_user_and_he_cannot_approve_it(clerk: Thief) -> None:
    requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    answered = await post(clerk, requests, signing_request("kubernetes.io/kube-apiserver-client", "ops"))
    assert answered.status == 201, answered.body[:300]
    made = json.loads(answered.body)
    assert made["spec"]["username"] == clerk.written("system:serviceaccount:{home}:thief")
    assert "system:masters" not in made["spec"]["groups"]
    name = made["metadata"]["name"]
    made["status"] = {"conditions": [{"type": "Approved", "status": "True", "reason": "x", "message": "x"}]}
    assert (await clerk.ask("PUT", f"{requests}/{name}/approval", body=json.dumps(made).encode())).status == 403
    made["status"] = {"certificate": base64.b64encode(b"x").decode()}
    assert (await clerk.ask("PUT", f"{requests}/{name}/status", body=json.dumps(made).encode())).status == 403
    assert (await clerk.ask("DELETE", f"{requests}/{name}")).status == 200


@pytest.mark.parametrize(
    ("path", "tree"),
    [
        pytest.param("/api/v1/namespaces/{other}/serviceaccounts/default/token", {"spec": {}}, id="of another namespace"),
        pytest.param("/api/v1/namespaces/{home}/serviceaccounts/default/token", {"spec": {}}, id="of another account"),
        pytest.param("/api/v1/namespaces/{home}/serviceaccounts/thief/token", {"spec": {}}, id="of one's own"),
        pytest.param("/api/v1/namespaces/kube-system/serviceaccounts/generic-garbage-collector/token", {"spec": {}}, id="of a controller"),
    ],
)
async def test_tokens_are_issued_to_those_with_the_right_to_them(thief: Thief, path: str, tree: JSONObject) -> None:
    assert (await post(thief, path, tree)).status == 403


async def test_a_secret_that_asks_for_a_token_needs_the_right_to_secrets(thief: Thief) -> None:
    tree = {
        "metadata": {"name": "t", "annotations": {"kubernetes.io/service-account.name": "default"}},
        "type": "kubernetes.io/service-account-token",
    }
    assert (await post(thief, "/api/v1/namespaces/{home}/secrets", tree)).status == 403


async def test_pods_take_accounts_of_the_same_namespace_only(thief: Thief, client: Client) -> None:
    """Within it they may take any, as with Kubernetes: a user who may create pods there has the rights of all its accounts."""
    answer = await client.transport.request(
        "POST",
        f"/api/v1/namespaces/{thief.home}/pods?dryRun=All",
        body=json.dumps(
            {"metadata": {"name": "p"}, "spec": {"serviceAccountName": "thief", "containers": [{"name": "c", "image": "i"}]}}
        ).encode(),
    )
    mounted = json.loads(answer.body)["spec"]
    assert mounted["serviceAccountName"] == "thief"
    tree = {"metadata": {"name": "p"}, "spec": {"serviceAccountName": "default", "containers": [{"name": "c", "image": "i"}]}}
    assert (await post(thief, "/api/v1/namespaces/{home}/pods", tree)).status == 403
    assert (await post(thief, "/api/v1/namespaces/{other}/pods", tree)).status == 403
