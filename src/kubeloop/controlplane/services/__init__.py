"""Controllers of EndpointSlices, Endpoints and ServiceCIDRs."""
