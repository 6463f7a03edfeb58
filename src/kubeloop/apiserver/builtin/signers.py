"""Names of certificate signers and trust bundles. Source: pkg/apis/core/validation/names.go."""

from __future__ import annotations

import json
from collections.abc import Iterator

from kubeloop.meta.field_error import FieldError, invalid, required, too_long
from kubeloop.meta.names import dns1123_label, dns1123_subdomain


def signer_name(path: str, name: str) -> Iterator[FieldError]:
    """``example.com/signer``."""
    if not name:
        yield required(path)
        return
    domain, slash, rest = name.partition("/")
    if not slash or "/" in rest:
        yield invalid(path, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")
        return
    if len(domain) > 253:
        yield too_long(path, 253)
    labels = domain.split(".")
    yield from _first_fault(path, domain, ((label, dns1123_label(label)) for label in labels))
    if len(labels) < 2:
        yield invalid(path, domain, "should be a domain with at least two segments separated by dots")
    yield from _first_fault(path, rest, ((label, dns1123_subdomain(label)) for label in rest.split(".")))
    if len(name) > 571:
        yield too_long(path, 571)


def _first_fault(path: str, shown: str, labels: Iterator[tuple[str, list[str]]]) -> Iterator[FieldError]:
    for label, faults in labels:
        for fault in faults:
            yield invalid(path, shown, f"validating label {json.dumps(label)}: {fault}")
        if faults:
            return


def bundle_name(name: str) -> list[str]:
    """A ClusterTrustBundle: a plain name, or one with its signer's before a colon."""
    before, colon, _ = name.rpartition(":")
    if not colon:
        return dns1123_subdomain(name)
    signer = before.replace(":", "/")
    prefix = signer.replace("/", ":") + ":"
    return (
        dns1123_subdomain(name.removeprefix(prefix)) if signer else ['ClusterTrustBundle without signer name must not have ":" in its name']
    )
