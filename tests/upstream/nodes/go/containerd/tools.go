//go:build tools

// Package containerd names what tests/upstream/nodes builds, so that go.mod holds the versions of everything that it needs.
package containerd

import (
	_ "github.com/containerd/containerd/v2/cmd/containerd"
	_ "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"
	_ "github.com/containerd/containerd/v2/cmd/ctr"
)
