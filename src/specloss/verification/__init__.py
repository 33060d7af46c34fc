"""Verification rules for speculative decoding: what each accepts, what it emits instead, and what that does to p.

`p` is the target and `q` the draft everywhere; distributions are the last axis of tensors of any device and shape.
"""

from specloss.verification.distortion import KEYS, KEYS_OF_P_AND_Q, distortion
from specloss.verification.registry import RULES, get_rule, matched_rule, valid_options
from specloss.verification.rule import Rule, RuleSpec, Verdict

__all__ = [
    "KEYS",
    "KEYS_OF_P_AND_Q",
    "RULES",
    "Rule",
    "RuleSpec",
    "Verdict",
    "distortion",
    "get_rule",
    "matched_rule",
    "valid_options",
]
