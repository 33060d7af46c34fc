"""What every room may use and that knows of none: files, processes, provenance, the base of config sections."""
