"""Verification rules: what each accepts, what it emits instead, and how that distorts p.

`p` is the target and `q` the draft everywhere; distributions are the last axis of tensors of any device and shape.
"""

from specloss.verification.distortion import KEYS, KEYS_OF_P_AND_Q, distortion
from specloss.verification.registry import RULES, get_rule, matched_rule, valid_options
from specloss.verification.rule import BlockVerdict, Rule, RuleSpec
from specloss.verification.tree_rule import TreeRule, TreeVerdict
from specloss.verification.tree_rules import TREE_FORMS, get_tree_rule, matched_tree_rule, valid_tree_options
from specloss.verification.trees import Tree

__all__ = [
    "KEYS",
    "KEYS_OF_P_AND_Q",
    "RULES",
    "TREE_FORMS",
    "BlockVerdict",
    "Rule",
    "RuleSpec",
    "Tree",
    "TreeRule",
    "TreeVerdict",
    "distortion",
    "get_rule",
    "get_tree_rule",
    "matched_rule",
    "matched_tree_rule",
    "valid_options",
    "valid_tree_options",
]
