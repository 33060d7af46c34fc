"""A rule as an experiment runs it, on chains or on trees, and its matched baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specloss.verification import Rule, TreeRule


def bound_rule(rule: str, param: float | None, options: dict[str, Any], tree: bool) -> Rule | TreeRule:
    """The rule as the experiment runs it, on chains or on trees. ValueError, in one line, if there is none."""
    from specloss.verification import get_rule, get_tree_rule

    if not tree:
        return get_rule(rule, param, **options)
    bound = get_tree_rule(rule, param, **options)
    if bound.bonus_needs_q:
        raise ValueError(f"{rule}: option bonus is invalid on drafted trees: 'r'; the head is not run on their leaves")
    return bound


SettingSpec = tuple[str, str, float | None, dict[str, Any]]  # label, rule, param, options


def matched_setting(
    label: str, rule: str, param: float | None, options: dict[str, Any], *, tree: bool
) -> SettingSpec | None:
    """The setting that this one must be compared with: its rule's matched baseline, with the options they share.

    Its label is its rule's name, with the method's name added if it has options of its own. `tree`: on trees.
    """
    from specloss.verification import matched_rule, matched_tree_rule

    bound = bound_rule(rule, param, options, tree)
    baseline = matched_tree_rule(bound) if tree else matched_rule(bound)
    if baseline is None:
        return None
    shared = {name: value for name, value in options.items() if name in baseline.options and name != "coupling"}
    return (f"{baseline.name}-{label}" if shared else baseline.name), baseline.name, baseline.param, shared
