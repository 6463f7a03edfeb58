// Package gateway_conformance runs the conformance suite of the Gateway API.
package gateway_conformance

import (
	"testing"

	"sigs.k8s.io/gateway-api/conformance"
)

// TestConformance runs the suite with the options of its command line.
func TestConformance(t *testing.T) {
	conformance.RunConformance(t)
}
