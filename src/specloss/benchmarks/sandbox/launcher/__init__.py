"""Runs outside of this package, as a folder of its own: see `__main__`."""
