"""What a page may reach: the egress policy and the forwarding proxy that enforces it.

`policy` decides, `proxy` resolves, checks and dials; the underscored modules are its parts.
"""
