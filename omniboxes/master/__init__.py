"""The API gateway and load balancer over all nodes."""
