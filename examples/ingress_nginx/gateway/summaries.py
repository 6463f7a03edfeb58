"""The statuses of GatewayClasses and Gateways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from examples.ingress_nginx.gateway.listeners import ListenerState
from examples.ingress_nginx.gateway.objects import BUNDLE_VERSION, GatewayOptions
from examples.ingress_nginx.gateway.reports import ConditionState, GatewayClassReport, GatewayReport
from examples.ingress_nginx.gateway.types import Gateway, GatewayClass
from examples.ingress_nginx.model.configuration import is_address

#: Names of pkg/features of the Gateway API's repository, in its order of the alphabet.
FEATURES = (
    "GRPCRoute",
    "Gateway",
    "GatewayAddressEmpty",
    "GatewayHTTPListenerIsolation",
    "GatewayPort8080",
    "GatewayRouteHostnameIntersectionPrecedence",
    "GatewayStaticAddresses",
    "HTTPRoute",
    "HTTPRoute303RedirectStatusCode",
    "HTTPRoute307RedirectStatusCode",
    "HTTPRoute308RedirectStatusCode",
    "HTTPRouteBackendProtocolH2C",
    "HTTPRouteBackendProtocolWebSocket",
    "HTTPRouteBackendRequestHeaderModification",
    "HTTPRouteBackendTimeout",
    "HTTPRouteCORS",
    "HTTPRouteDestinationPortMatching",
    "HTTPRouteHostRewrite",
    "HTTPRouteMethodMatching",
    "HTTPRouteNamedRouteRule",
    "HTTPRouteParentRefPort",
    "HTTPRoutePathRedirect",
    "HTTPRoutePathRewrite",
    "HTTPRoutePortRedirect",
    "HTTPRouteQueryParamMatching",
    "HTTPRouteRequestMirror",
    "HTTPRouteRequestMultipleMirrors",
    "HTTPRouteRequestPercentageMirror",
    "HTTPRouteRequestTimeout",
    "HTTPRouteResponseHeaderModification",
    "HTTPRouteSchemeRedirect",
    "ReferenceGrant",
)
#: What only an NGINX serves that has HTTP/1.1 and HTTP/2 without TLS on one port.
HTTP2_FEATURES = ("HTTPRouteBackendProtocolH2C",)
_ADDRESS_TYPES = ("IPAddress", "Hostname")


def class_report(gateway_class: GatewayClass, crd_versions: Mapping[str, str], *, http2_beside_http1: bool) -> GatewayClassReport:
    """Return the status of a GatewayClass of this controller.

    Args:
        gateway_class: The class.
        crd_versions: Bundle version of each CRD in the cluster; empty: not known, so that the status has no SupportedVersion.
        http2_beside_http1: Whether NGINX serves HTTP/1.1 and HTTP/2 without TLS on one port.
    """
    parameters = gateway_class.spec.parameters_ref
    if parameters is None:
        accepted = ConditionState("Accepted", True, "Accepted", "the controller serves Gateways of this class")
    else:
        text = f"spec.parametersRef: {parameters.kind}.{parameters.group} is not supported; remove the reference"
        accepted = ConditionState("Accepted", False, "InvalidParameters", text)
    features = tuple(name for name in FEATURES if http2_beside_http1 or name not in HTTP2_FEATURES) if accepted.holds else ()
    if not crd_versions:
        return GatewayClassReport(gateway_class, (accepted,), features)
    unsupported = sorted({version or "without annotation" for version in crd_versions.values() if not _is_supported(version)})
    if unsupported:
        text = f"the CRDs have the version {', '.join(unsupported)}; the controller knows v1.0 to {BUNDLE_VERSION}"
        version = ConditionState("SupportedVersion", False, "UnsupportedVersion", text)
    else:
        version = ConditionState("SupportedVersion", True, "SupportedVersion", "the version of the CRDs is supported")
    return GatewayClassReport(gateway_class, (accepted, version), features)


def gateway_report(gateway: Gateway, listeners: Sequence[ListenerState], address: str, options: GatewayOptions) -> GatewayReport:
    """Return the status of a Gateway.

    Args:
        gateway: The Gateway.
        listeners: Its listeners.
        address: The address of the pool that it has; empty: none.
        options: Options of the front end.
    """
    addresses = _addresses(gateway, address, options)
    accepted = _accepted(gateway, listeners)
    programmed = _programmed(gateway, listeners, addresses, accepted)
    unresolved = [state.spec.name for state in listeners if state.unresolved is not None]
    if unresolved:
        resolved = ConditionState("ResolvedRefs", False, "ListenersNotResolved", f"references of {', '.join(unresolved)} are not resolved")
    else:
        resolved = ConditionState("ResolvedRefs", True, "ResolvedRefs", "all references are resolved")
    return GatewayReport(gateway, (accepted, programmed, resolved), addresses, tuple(state.report() for state in listeners))


def _accepted(gateway: Gateway, listeners: Sequence[ListenerState]) -> ConditionState:
    if (refused := rejection(gateway)) is not None:
        return refused
    invalid = [state.spec.name for state in listeners if not state.valid]
    if not invalid:
        return ConditionState("Accepted", True, "Accepted", "the Gateway is accepted")
    holds = any(state.accepted for state in listeners)
    return ConditionState("Accepted", holds, "ListenersNotValid", f"listeners are not valid: {', '.join(invalid)}; see their conditions")


def _programmed(
    gateway: Gateway, listeners: Sequence[ListenerState], addresses: tuple[tuple[str, str], ...], accepted: ConditionState
) -> ConditionState:
    if not accepted.holds:
        return ConditionState("Programmed", False, "Invalid", "the Gateway is not accepted")
    requested = [(entry.type, entry.value) for entry in gateway.spec.addresses if entry.value]
    unusable = [value or "" for kind, value in requested if (kind, value) not in addresses]
    if unusable:
        text = f"the address {unusable[0]} cannot be used: it is not an address of this controller, or another Gateway has it"
        return ConditionState("Programmed", False, "AddressNotUsable", text)
    if not addresses:
        text = "no address is free or published; see the controller's options for addresses"
        return ConditionState("Programmed", False, "AddressNotAssigned", text)
    if not any(state.serves for state in listeners):
        return ConditionState("Programmed", False, "Invalid", "NGINX serves none of the listeners; see their conditions")
    return ConditionState("Programmed", True, "Programmed", "NGINX serves the Gateway")


def rejection(gateway: Gateway) -> ConditionState | None:
    """Return why a Gateway as a whole is not accepted; None: it depends on its listeners."""
    kind = next((entry.type for entry in gateway.spec.addresses if entry.type not in _ADDRESS_TYPES), None)
    if kind is not None:
        return ConditionState("Accepted", False, "UnsupportedAddress", f"addresses of type {kind} are not supported")
    if gateway.spec.infrastructure is not None and gateway.spec.infrastructure.parameters_ref is not None:
        text = "spec.infrastructure.parametersRef is not supported; remove the reference"
        return ConditionState("Accepted", False, "InvalidParameters", text)
    return None


def _addresses(gateway: Gateway, address: str, options: GatewayOptions) -> tuple[tuple[str, str], ...]:
    requested = [entry.value for entry in gateway.spec.addresses if entry.value]
    if options.pool is None:
        published = tuple(text for text in options.published if not requested or text in requested)
    else:
        published = (address,) if address else ()
    return tuple(("IPAddress" if is_address(text) else "Hostname", text) for text in published)


def _is_supported(version: str) -> bool:
    """Report whether a bundle version has the fields that types.py has, or fewer."""
    major, _, rest = version.removeprefix("v").partition(".")
    minor = rest.partition(".")[0]
    return major == "1" and minor.isdigit() and int(minor) <= int(BUNDLE_VERSION.split(".")[1])
