"""A real kube-apiserver with etcd, built from Go modules: the second server that the suites run against (``make test-real``)."""
