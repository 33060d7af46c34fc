"""Arrow schemas of the Parquet files in a cell folder. Cell keys are no columns: they come from the hive-style path."""

from __future__ import annotations

import pyarrow as pa

# What the rule does to the distribution at each position (`verification.distortion`)
_DISTORTION = [
    ("entropy_p", pa.list_(pa.float32())),  # nats
    ("tv_pq", pa.list_(pa.float32())),
    ("alpha", pa.list_(pa.float32())),  # acceptance rate sum(y), the mean of accept_prob over x ~ q
    ("allowed_mass", pa.list_(pa.float32())),  # p(A); 1 for rules without an allowed set
    ("tv_pi_p", pa.list_(pa.float32())),
    ("tv_pi_target", pa.list_(pa.float32())),  # against the matched truncated target
    ("kl_pi_p", pa.list_(pa.float32())),  # nats
    ("overshoot", pa.list_(pa.float32())),  # sum of [pi - p]+
    ("coupling_loss", pa.list_(pa.float32())),  # sum of min(q, pi) less alpha
]
DISTORTION = tuple(name for name, _ in _DISTORTION)

# One row per target call, ordered by (problem index, step).
#
# Of chains, lists run over the drafted positions of the block.
#
# Of trees, `drafted` counts the nodes below the root that verification could try: those behind an end of sequence or
# the output limit are left out. So a tree has drafted + 1 nodes, and `accepted` is the length of its accepted path.
# Lists about a token run over the tried nodes, in the order in which they were tried: level by level, siblings by
# falling draft probability. Lists about a distribution (entropy_p and below) run over the places where siblings were
# tried, root first, as many as the largest `depth`; tv_pq and coupling_loss are null there.
STEPS = pa.schema(
    [
        ("problem", pa.string()),
        ("index", pa.int32()),  # of the problem within its benchmark
        ("sample", pa.int32()),
        ("step", pa.int32()),  # of this problem, from 0
        ("position", pa.int32()),  # tokens generated before this block
        ("drafted", pa.int32()),
        ("accepted", pa.int32()),  # drafted tokens that were kept AND emitted (an end of sequence cuts the block)
        ("expected_accepted", pa.float32()),  # its mean over the rule's coin flips, given the drafted tokens
        ("token", pa.list_(pa.int32())),  # drafted tokens
        ("p", pa.list_(pa.float32())),  # p(x) of each
        ("q", pa.list_(pa.float32())),  # q(x) of each; of trees the head's own, without temperature
        ("accept_prob", pa.list_(pa.float32())),  # probability with which the rule keeps x, once it is tried
        # of trees alone, null for chains
        ("node", pa.list_(pa.int32())),  # place in the tree, parents before children; 0 is the root, which is not tried
        ("depth", pa.list_(pa.int32())),  # levels below the root; the parent is the accepted node one level up
        ("mass", pa.list_(pa.float32())),  # p'(x): p(x), or that of the rule's own mixture, without rejected siblings
        ("threshold", pa.list_(pa.float32())),  # what the rule compares its mass with
        ("kept", pa.list_(pa.bool_())),  # the decision
        ("path", pa.list_(pa.int32())),  # the accepted nodes, root left out
        *_DISTORTION,
        ("emitted", pa.list_(pa.int32())),  # tokens that this call added to the output
        ("stop", pa.string()),  # "eos", "length", "context" on the problem's last row, else null
        # this row's share of its batch's wall time, so that sums over rows are wall seconds
        ("draft_ms", pa.float32()),
        ("verify_ms", pa.float32()),
        ("overhead_ms", pa.float32()),
    ]
)

# metadata of decoded generations: where the chat template has what the system says
SYSTEM_TEXT = b"system_text"

GENERATIONS = pa.schema(
    [
        ("problem", pa.string()),
        ("index", pa.int32()),
        ("sample", pa.int32()),
        ("prompt", pa.string()),  # as tokenized: of messages, what the chat template made of them
        ("prompt_ids", pa.list_(pa.int32())),
        ("reference", pa.string()),
        ("token_ids", pa.list_(pa.int32())),  # output, without the prompt, with the end of sequence if there was one
        ("text", pa.string()),  # decoded without special tokens
        ("stop", pa.string()),
        ("target_calls", pa.int32()),
    ]
)

GRADED = pa.schema(
    [
        ("problem", pa.string()),
        ("index", pa.int32()),
        ("sample", pa.int32()),
        ("correct", pa.bool_()),  # null: nothing to grade by, neither right nor wrong
        ("parsed", pa.bool_()),  # false: no answer could be read; such a problem counts as wrong. null as `correct`
        ("answer", pa.string()),
        ("scores", pa.map_(pa.string(), pa.bool_())),  # further verdicts by name, e.g. base and plus
    ]
)
