"""Which cluster to talk to, and as whom: kubeconfig files, the pod's own service account, credentials and TLS."""

from kubeloop.config.authenticator import Authenticator
from kubeloop.config.cluster import ClusterConfig
from kubeloop.config.credentials import Credentials, ExecPlugin, Impersonation, Pem
from kubeloop.config.in_cluster import in_cluster_config
from kubeloop.config.load import load_config

__all__ = ["Authenticator", "ClusterConfig", "Credentials", "ExecPlugin", "Impersonation", "Pem", "in_cluster_config", "load_config"]
