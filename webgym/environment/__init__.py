"""Browsers and episodes: the client of omniboxes and what is built on it."""
