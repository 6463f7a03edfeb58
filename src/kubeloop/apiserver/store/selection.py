"""Which objects a list, watch or deletecollection is about: label and field selectors of a resource.

Source: Kubernetes documentation, "Labels and Selectors", "Field Selectors"; recorded answers for unknown fields.
"""

from __future__ import annotations

from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.request import api_errors
from kubeloop.meta.selectors import FieldSelector, Selector, parse_field_selector, parse_label_selector
from kubeloop.types import JSONObject

_ALWAYS = ("metadata.name", "metadata.namespace")


class Selection:
    """Raises BadRequest, in Kubernetes' words, for selectors that cannot be read or name fields that the resource does not offer."""

    def __init__(self, resource: ServedResource, label_selector: str, field_selector: str) -> None:
        self._resource = resource
        try:
            self.labels: Selector = parse_label_selector(label_selector)
            self.fields: FieldSelector = parse_field_selector(field_selector)
        except ValueError as fault:
            raise api_errors.bad_request(str(fault)) from None
        aliases = resource.strategy.field_aliases
        if aliases:
            self.fields = self.fields.transformed(lambda name, value: (aliases.get(name, name), value))
        for term in self.fields.terms:
            self._check(term.field)
        self._by_fields = not self.fields.everything
        self._kind_fields = any(term.field not in _ALWAYS for term in self.fields.terms)
        self.everything = self.labels.everything and not self._by_fields

    @property
    def name(self) -> str | None:
        """The only name that can match, if the field selector pins one."""
        return self.fields.exact_value("metadata.name")

    def matches(self, obj: JSONObject) -> bool:
        if self.everything:
            return True
        metadata = obj["metadata"]
        if not self.labels.matches(metadata.get("labels")):
            return False
        if not self._by_fields:
            return True
        fields = {"metadata.name": metadata["name"], "metadata.namespace": metadata.get("namespace", "")}
        if self._kind_fields:
            fields.update(self._resource.strategy.selectable_fields(obj))
        return self.fields.matches(fields)

    def _check(self, field: str) -> None:
        strategy = self._resource.strategy
        if field in _ALWAYS or field in strategy.field_labels:
            return
        if strategy.field_labels or self._resource.custom:
            version = self._resource.gvr.group_version.api_version
            raise api_errors.bad_request(strategy.unknown_field.format(field=field, version=version))
        raise api_errors.bad_request(f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"')
