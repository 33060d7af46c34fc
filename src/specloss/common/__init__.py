"""Shared by every room: files, processes, provenance, the base of config sections."""
