"""Tests of the node: pool, leases, supervisor, instance servers."""
