"""The former home of `specloss.models.prompting`, kept for those who import it from here."""

from specloss.models.prompting import PromptError, check_length, check_prompts, encode

__all__ = ["PromptError", "check_length", "check_prompts", "encode"]
