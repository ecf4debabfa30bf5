"""What the tiers and their client share: wire models, settings, HTTP plumbing."""
