"""The embedded Kubernetes API server: faithful, or it says what it does not implement."""
