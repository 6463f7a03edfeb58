"""Which Ingresses belong to this controller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kubeloop.api.networking.v1 import Ingress, IngressClass

CONTROLLER = "kubeloop.dev/ingress-controller"
CLASS_ANNOTATION = "kubernetes.io/ingress.class"


@dataclass(frozen=True, slots=True)
class ClassRules:
    """How an Ingress chooses this controller.

    Attributes:
        controller: ``spec.controller`` of the IngressClasses of this controller.
        name: Value of the old annotation ``kubernetes.io/ingress.class`` that chooses it.
        without_class: It also serves Ingresses that name no class.
        by_name: An IngressClass of ``name`` counts with any controller.
    """

    controller: str = CONTROLLER
    name: str = "kubeloop"
    without_class: bool = False
    by_name: bool = False

    def accepts_class(self, ingress_class: IngressClass) -> bool:
        return ingress_class.spec.controller == self.controller or (self.by_name and ingress_class.metadata.name == self.name)

    def reason_against(self, ingress: Ingress, class_of: Callable[[str], IngressClass | None]) -> str:
        """Return why this controller does not serve an Ingress; empty: it does.

        ``spec.ingressClassName`` comes before the annotation: networking.k8s.io/v1, IngressSpec.
        """
        name = ingress.spec.ingress_class_name
        if name is not None:
            found = class_of(name)
            if found is None:
                return f"its class {name!r} does not exist"
            if not self.accepts_class(found):
                return f"its class {name!r} belongs to the controller {found.spec.controller!r}"
            return ""
        annotation = ingress.metadata.annotations.get(CLASS_ANNOTATION)
        if annotation is not None:
            return "" if annotation == self.name else f"its annotation {CLASS_ANNOTATION} is {annotation!r}, not {self.name!r}"
        return "" if self.without_class else "it names no class (spec.ingressClassName)"


#: The rules without options.
DEFAULT_CLASSES = ClassRules()
