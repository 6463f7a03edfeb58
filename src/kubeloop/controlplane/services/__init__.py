"""Controllers of Services: their EndpointSlices and Endpoints, and the ranges of their addresses."""
