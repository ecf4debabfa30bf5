"""WebGym: collect, judge and train on trajectories of visual web agents.

The package holds only the version; import the module that owns a name.
"""

import logging

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())
