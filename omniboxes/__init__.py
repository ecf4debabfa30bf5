"""Omniboxes: pools of real, isolated browser sessions behind one HTTP API.

The package holds only the version; import the module that owns a name. Nothing here imports
`webgym`.
"""

import logging

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())
