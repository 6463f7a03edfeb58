"""Rules that let a load balancer send its connections elsewhere."""
