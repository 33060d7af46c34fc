"""What goes wrong with a sandbox."""


class SandboxError(RuntimeError):
    """No isolation on this machine, or it failed; the message is one line fit for a user."""
