//go:build tools

// Package kubernetes names what tests/upstream/nodes builds, so that go.mod holds the versions of everything that it needs.
package kubernetes

import (
	_ "k8s.io/kubernetes/cmd/kube-proxy"
	_ "k8s.io/kubernetes/cmd/kubelet"
	_ "k8s.io/kubernetes/test/images/agnhost"
	_ "k8s.io/kubernetes/test/images/nonewprivs"
	_ "k8s.io/sample-apiserver"
)
