"""lightkube: one typed pod, from the kubeconfig."""

import sys

import lightkube
from lightkube.resources.core_v1 import Pod

assert lightkube.Client().get(Pod, sys.argv[2], namespace=sys.argv[1]).spec.containers
