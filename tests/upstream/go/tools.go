//go:build tools

// Package upstream names what tests/upstream builds, so that go.mod holds the versions of everything that it needs.
package upstream

import (
	_ "github.com/onsi/ginkgo/v2/ginkgo"
	_ "k8s.io/kubernetes/cmd/kubectl"
	_ "k8s.io/kubernetes/test/e2e"
)
