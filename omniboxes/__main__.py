"""`python -m omniboxes` is the command `omniboxes`."""

from omniboxes.cli import main

main(prog_name="omniboxes")
