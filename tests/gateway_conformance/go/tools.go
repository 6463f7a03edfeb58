//go:build tools

package gateway_conformance

// The backend of the suite's requests is a program of its module.
import _ "sigs.k8s.io/gateway-api/conformance/echo-basic"
