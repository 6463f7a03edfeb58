"""The version of kubeloop. This is its only copy: the package's metadata and every layer take it from here."""

VERSION = "0.1.0"
