"""What goes wrong with a sandbox."""

from specloss.common.oneline import OneLine


class SandboxError(OneLine, RuntimeError):
    """No isolation on this machine, or it failed; the message is one line fit for a user."""
