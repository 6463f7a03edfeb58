"""The Gateway API front end: GatewayClasses, Gateways, HTTPRoutes and GRPCRoutes become parts of the neutral model, and statuses."""
