"""Browser sessions: one isolated Chromium context each, driven over CDP."""
