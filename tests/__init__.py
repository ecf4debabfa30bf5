"""The tests; a package, so that no `tests` folder of a dependency can stand in for it."""
