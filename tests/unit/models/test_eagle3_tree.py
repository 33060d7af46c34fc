"""Trees drafted by an EAGLE-3 head: the published code's, path for path, and those of rows in a batch."""

import json

import pytest
import torch
from eagle3_cases import VOCAB, WIDTH, ExactRotary, checkpoint, rederived_path_score, save, tiny_target
from exactness import EXACT
from places import ROOT
from safetensors.torch import load_file

from specloss.decoding.tree import TreeDrafter
from specloss.models.eagle3 import load_head
from specloss.models.tree_shape import TreeShape

PUBLISHED = ROOT / "tests/data/eagle3"
SHAPE = TreeShape(top_k=3, depth=3, total_token=15)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """A head's config and tensors, and the head, in float64."""
    config, tensors = checkpoint(embeddings=True)
    folder = save(tmp_path_factory.mktemp("heads") / "head", config, tensors)
    head = load_head(folder, tiny_target(dtype=torch.float64))
    head.rotary = ExactRotary(config)
    return config, tensors, head


@pytest.fixture(scope="module")
def texts():
    """Features of 20 positions and the ids one later, of four texts."""
    generator = torch.Generator().manual_seed(3)
    features = torch.randn(4, 20, 3 * WIDTH, generator=generator, dtype=torch.float64)
    return features, torch.randint(VOCAB, (4, 20), generator=generator)


def token_paths(tokens, parents):
    """All root-to-leaf token paths of a tree, sorted."""
    paths = []
    for leaf in set(range(len(tokens))) - set(parents):
        path = []
        while leaf >= 0:
            path.append(tokens[leaf])
            leaf = parents[leaf]
        paths.append(path[::-1])
    return sorted(paths)


def assert_same(tree, row, other, other_row=0):
    """The same tokens in the same places, scores up to the last bits."""
    for name in ("tokens", "parent", "depth", "mask"):
        assert torch.equal(getattr(tree, name)[row], getattr(other, name)[other_row]), name
    torch.testing.assert_close(tree.score[row], other.score[other_row], **EXACT)


def test_the_published_codes_trees_come_out_path_for_path_on_both_calls():
    drafted = json.loads((PUBLISHED / "drafted.json").read_text())
    inputs = load_file(PUBLISHED / "inputs.safetensors")
    head = load_head(PUBLISHED / "head", tiny_target(vocab=128, width=64, dtype=torch.float64))
    drafter = TreeDrafter(head, TreeShape(**drafted["shape"]), rows=1, max_length=20)
    known = 0
    for call, features in zip(drafted["calls"], (inputs["features"], inputs["features2"]), strict=True):
        ids = torch.tensor([call["input_ids"][1 + known :]])
        known += features.shape[1]
        tree = drafter.draft(features.double(), ids)
        depth, mask = call["position_ids"], call["tree_mask"]
        parents = [
            next((i for i in range(len(row)) if row[i] and depth[i] == depth[node] - 1), -1)
            for node, row in enumerate(mask)
        ]
        tokens = tree.tokens[0].tolist()
        assert token_paths(tokens, tree.parent[0].tolist()) == token_paths(call["draft_tokens"], parents)
        assert sorted([tokens[i] for i in path] for path in tree.paths(0)) == token_paths(call["draft_tokens"], parents)
        # the nodes even stand in the published order
        assert tokens == call["draft_tokens"] and tree.depth[0].tolist() == depth
        assert tree.mask[0].int().tolist() == mask
        assert tree.score.isfinite().all() and (tree.score <= 0).all()


def test_every_nodes_score_is_that_of_a_rederivation_without_cache_or_tree(drawn, texts):
    config, tensors, head = drawn
    features, ids = texts
    drafter = TreeDrafter(head, SHAPE, rows=1, max_length=20)
    for start, end in ((0, 7), (7, 9), (9, 10)):
        tree = drafter.draft(features[:1, start:end], ids[:1, start:end])
        tokens = tree.tokens[0].tolist()
        assert tokens[0] == ids[0, end - 1]
        for path in tree.paths(0):
            for length in range(2, len(path) + 1):
                drafted = [tokens[node] for node in path[1:length]]
                score = rederived_path_score(config, tensors, features[0, :end], ids[0, :end].tolist(), drafted)
                assert float(tree.score[0, path[length - 1]]) == pytest.approx(score, rel=0, abs=1e-12)


def test_true_features_replace_approximate_ones(drawn, texts):
    head, (features, ids) = drawn[2], texts
    kept = TreeDrafter(head, SHAPE, rows=1, max_length=20)
    for start, end in ((0, 5), (5, 6), (6, 10), (10, 17), (17, 20)):
        tree = kept.draft(features[:1, start:end], ids[:1, start:end])
        fresh = TreeDrafter(head, SHAPE, rows=1, max_length=20)
        assert_same(tree, 0, fresh.draft(features[:1, :end], ids[:1, :end]))


def test_rows_of_different_lengths_draft_what_each_drafts_alone(drawn, texts):
    head, (features, ids) = drawn[2], texts
    together = TreeDrafter(head, SHAPE, rows=2, max_length=12)
    alone = [TreeDrafter(head, SHAPE, rows=1, max_length=12) for _ in range(2)]
    trees = []
    for counts in ((9, 2), (1, 4), (0, 3), (2, 1)):  # full to the last position
        new = max(counts)
        now = [drafter.length.item() for drafter in alone]
        part = features.new_zeros(2, new, 3 * WIDTH), torch.zeros(2, new, dtype=torch.int64)
        for row, count in enumerate(counts):
            part[0][row, :count] = features[row, now[row] : now[row] + count]
            part[1][row, :count] = ids[row, now[row] : now[row] + count]
            alone[row].commit(part[0][row : row + 1, :count], part[1][row : row + 1, :count])
        trees.append(together.draft(*part, torch.tensor(counts)))
        for row in range(2):
            assert_same(trees[-1], row, alone[row].grow())
    assert together.length.tolist() == [12, 10]
    assert not torch.equal(trees[0].parent[0], trees[0].parent[1])


def test_a_row_can_begin_a_new_text_and_rows_can_leave(drawn, texts):
    head, (features, ids) = drawn[2], texts
    drafter = TreeDrafter(head, SHAPE, rows=3, max_length=20)
    drafter.draft(features[:3, :8], ids[:3, :8])
    drafter.commit(features[3:, :6], ids[3:, :6], torch.tensor([5]), rows=torch.tensor([1]))
    tree = drafter.grow()
    for row, text, length in ((0, 0, 8), (1, 3, 5), (2, 2, 8)):
        fresh = TreeDrafter(head, SHAPE, rows=1, max_length=20)
        assert_same(tree, row, fresh.draft(features[text, None, :length], ids[text, None, :length]))
    drafter.keep(torch.tensor([2, 1]))
    after = drafter.grow()
    assert_same(after, 0, tree, 2)
    assert_same(after, 1, tree, 1)


def test_drafts_are_deterministic(drawn, texts):
    head, (features, ids) = drawn[2], texts
    first, second = (TreeDrafter(head, SHAPE, rows=4, max_length=20).draft(features, ids) for _ in range(2))
    for name in ("tokens", "parent", "depth", "score", "mask"):
        assert torch.equal(getattr(first, name), getattr(second, name))


def assert_is_tree(tree):
    rows, nodes = tree.tokens.shape
    for row in range(rows):
        parents, depth = tree.parent[row].tolist(), tree.depth[row].tolist()
        assert parents[0] == -1 and depth[0] == 0
        for node in range(1, nodes):
            assert 0 <= parents[node] < node and depth[node] == depth[parents[node]] + 1
            assert tree.score[row, node] <= tree.score[row, parents[node]]
        for path in tree.paths(row):
            assert tree.mask[row, path[-1]].nonzero().squeeze(1).tolist() == sorted(path)
        children = list(zip(parents, tree.tokens[row].tolist(), strict=True))
        assert len(set(children)) == nodes


@pytest.mark.parametrize(
    "shape", [SHAPE, TreeShape(2, 0, 3), TreeShape(1, 4, 6), TreeShape(4, 2, 2), TreeShape(2, 3, 15)]
)
def test_a_tree_holds_the_ancestors_of_its_nodes(drawn, texts, shape):
    tree = TreeDrafter(drawn[2], shape, rows=4, max_length=20).draft(*texts)
    assert tree.tokens.shape == (4, shape.total_token)
    assert_is_tree(tree)


@pytest.mark.parametrize("scale", [0, 1e5])
def test_ties_never_lose_an_ancestor(tmp_path, texts, scale):
    """All tokens equally likely, or one that is certain: its descendants have its very score."""
    config, tensors = checkpoint(embeddings=True)
    tensors["lm_head.weight"] *= scale
    head = load_head(save(tmp_path / "head", config, tensors), tiny_target(dtype=torch.float64))
    for total_token in range(2, SHAPE.candidates + 2):
        shape = TreeShape(SHAPE.top_k, SHAPE.depth, total_token)
        tree = TreeDrafter(head, shape, rows=4, max_length=20).draft(*texts)
        assert_is_tree(tree)
        if scale and total_token == SHAPE.candidates + 1:
            assert (tree.score[:, 1:] == 0).any()


def test_the_drafts_distributions_come_along_if_asked_for(drawn, texts):
    config, tensors, head = drawn
    tree = TreeDrafter(head, SHAPE, rows=4, max_length=20).draft(*texts, with_q=True)
    draft_id = {int(i + offset): i for i, offset in enumerate(tensors["d2t"])}
    assert tree.log_q.shape == (4, 1 + SHAPE.depth * SHAPE.top_k, config["draft_vocab_size"])
    for row in range(4):
        for node, parent in enumerate(tree.parent[row].tolist()):
            if parent >= 0:
                drafted = draft_id[int(tree.tokens[row, node])]
                step = tree.log_q[row, tree.expansion[row, parent], drafted]
                assert tree.expansion[row, parent] >= 0
                assert float(tree.score[row, parent] + step) == pytest.approx(
                    float(tree.score[row, node]), rel=0, abs=1e-12
                )


def test_impossible_shapes_and_texts_are_refused(drawn, texts):
    with pytest.raises(ValueError, match="from 2 to 31"):
        TreeShape(top_k=3, depth=3, total_token=32)
    with pytest.raises(ValueError, match="top_k 25 is more than the draft vocabulary, 24"):
        TreeDrafter(drawn[2], TreeShape(25, 1, 10), rows=1, max_length=9)
    with pytest.raises(ValueError, match="a text of 20 positions; the drafter was made for 19"):
        TreeDrafter(drawn[2], SHAPE, rows=4, max_length=19).draft(*texts)
