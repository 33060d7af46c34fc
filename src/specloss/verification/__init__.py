"""Verification rules for speculative decoding: what each accepts, what it emits instead, and what that does to p.

`p` is the target and `q` the draft everywhere; distributions are the last axis of tensors of any device and shape.
"""

from specloss.verification.registry import RULES, get_rule, valid_options
from specloss.verification.rule import Rule, RuleSpec, Verdict

__all__ = ["RULES", "Rule", "RuleSpec", "Verdict", "get_rule", "valid_options"]
