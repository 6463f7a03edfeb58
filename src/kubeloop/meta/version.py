"""The version of kubeloop, readable by every layer."""

VERSION = "0.1.0"
