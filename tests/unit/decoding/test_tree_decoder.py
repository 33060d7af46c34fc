"""The loop on trees: exact at temperature 0, a chain if it drafts one, independent of the batch, right at its edges."""

import numpy as np
import pytest
import torch
from exactness import EXACT, STORED, rounding, sums_of
from places import DEMO

from specloss import decode, load_pair
from specloss.decoding.api import decode_prompts
from specloss.decoding.loop import Prompt
from specloss.decoding.trace import Trace
from specloss.decoding.tree import DraftedTree, TreeDrafter
from specloss.decoding.tree_decoder import TreeDecoder
from specloss.decoding.warp import Warper
from specloss.experiment.schema import STEPS
from specloss.models.pair import LoadedPair
from specloss.models.tree_shape import TreeShape
from specloss.verification import RULES, TREE_FORMS, get_rule, get_tree_rule

SHAPE = {"total_token": 14, "depth": 2, "top_k": 4}
SUM = rounding(torch.ones(1), 4 * 34)  # of probabilities over the vocabulary: warped, normalised, mixed, compared
EVERYTHING = {"method": "spec_cascade", "param": 0.0}  # keeps the first node of each level
RULES_TO_MIX = [("standard_sd", None), ("spec_cascade", 0.1), ("lenience", 0.2), ("cos", 0.6)]


def is_greedy(pair, prompt, output):
    """Whether each token of the output has the target's largest logit, in float32 up to rounding, in one forward."""
    ids = torch.tensor([prompt + output])
    with torch.inference_mode():
        logits = pair.target(ids).logits[0, len(prompt) - 1 : -1]
    if logits.dtype == torch.float64:
        return logits.argmax(-1).tolist() == output
    chosen = logits.gather(-1, torch.tensor(output).unsqueeze(-1)).squeeze(-1)
    return bool((logits.amax(-1) - chosen <= 2 * rounding(logits, sums_of(pair.target.config, ids.shape[1]))).all())


@pytest.mark.parametrize("batch_size", [1, 16])
def test_standard_sd_at_temperature_zero_is_the_targets_greedy_output(tree_pair_in_float64, prompts, batch_size):
    pair = tree_pair_in_float64
    decoded = decode(pair, prompts, temperature=0, tree=SHAPE, max_new_tokens=8, batch_size=batch_size)
    assert len(prompts) == 200
    for prompt, output, stop in zip(prompts, decoded.token_ids, decoded.stops, strict=True):
        assert len(output) == 8 or (stop == "eos" and output[-1] in pair.eos_ids)
        assert is_greedy(pair, pair.tokenizer(prompt).input_ids, output)
    assert decoded.steps["accepted"].to_numpy().max() > 1


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 16])
def test_whole_greedy_answers_under_the_shipped_head_are_the_targets(prompts, batch_size):
    pair = load_pair(DEMO / "target", DEMO / "eagle3", kind="eagle3", dtype="float32", device="cpu")
    shape = {"total_token": 24, "depth": 5, "top_k": 4}
    decoded = decode(pair, prompts, temperature=0, tree=shape, max_new_tokens=160, batch_size=batch_size)
    assert {stop: decoded.stops.count(stop) for stop in set(decoded.stops)}["eos"] > 150
    for prompt, output in zip(prompts, decoded.token_ids, strict=True):
        assert is_greedy(pair, pair.tokenizer(prompt).input_ids, output)


@pytest.mark.parametrize("method, param", [("standard_sd", None), ("spec_cascade", 0.1), ("cos", 0.6)])
def test_tokens_do_not_depend_on_batch_size_or_order(tree_pair_in_float64, prompts, method, param):
    settings = {"method": method, "param": param, "temperature": 0.7, "tree": SHAPE, "max_new_tokens": 10}
    some, pair = prompts[::16], tree_pair_in_float64
    one, seven, many = (decode(pair, some, batch_size=size, **settings).token_ids for size in (1, 7, 32))
    assert one == seven == many
    assert decode(pair, some[::-1], batch_size=7, **settings).token_ids == one[::-1]


# Proposals that both loops can make: after token t, always FOLLOWER[t]


class Certain(torch.nn.Module):
    """A draft model that proposes one token for certain."""

    def __init__(self, model, follower):
        super().__init__()
        self.model, self.config, self.dtype = model, model.config, model.dtype
        self.register_buffer("follower", follower)

    def forward(self, **inputs):
        output = self.model(**inputs)
        certain = torch.nn.functional.one_hot(self.follower[inputs["input_ids"]], output.logits.shape[-1])
        output.logits = (certain.to(output.logits.dtype)[:, -output.logits.shape[1] :] - 1) * 1e9
        return output


@pytest.fixture(scope="module")
def followers(pair, prompts):
    """What the target most often puts after each token [vocab]: right often enough, and wrong often enough."""
    counts = torch.zeros(pair.vocab, pair.vocab)
    for output in decode(pair, prompts[:40], temperature=0, max_new_tokens=40).token_ids:
        counts.index_put_((torch.tensor(output[:-1]), torch.tensor(output[1:])), torch.ones(1), accumulate=True)
    return counts.argmax(-1)


@pytest.fixture
def follower(followers):
    return followers.clone()


def only_child(tokens, vocab):
    """Trees [rows, nodes] of one path."""
    rows, nodes = tokens.shape
    place = torch.arange(nodes).expand(rows, -1)
    return DraftedTree(
        tokens=tokens,
        parent=place - 1,
        depth=place,
        score=torch.zeros(rows, nodes),
        mask=torch.ones(nodes, nodes, dtype=torch.bool).tril().expand(rows, -1, -1),
        log_q=torch.nn.functional.one_hot(tokens[:, 1:], vocab).double().log(),
        expansion=torch.where(place < nodes - 1, place, -1),
    )


@pytest.fixture
def followed(monkeypatch, exact_tree_pair, follower):
    """The tree pair, whose drafter proposes one path: what the follower says."""

    def grow(drafter, *, with_q=False):
        path = [drafter._root]
        while len(path) < drafter.shape.total_token:
            path.append(follower[path[-1]])
        return only_child(torch.stack(path, 1), len(follower))

    monkeypatch.setattr(TreeDrafter, "grow", grow)
    monkeypatch.setattr(type(exact_tree_pair.draft), "target_ids", lambda head, ids: ids)
    return exact_tree_pair


@pytest.mark.parametrize(
    "method, param",
    [("standard_sd", None), ("min_p_sampling", 0.1), ("eta_sampling", 0.1), ("lenience", 0.3), ("cos", 0.4)],
)
def test_trees_with_one_child_a_node_are_the_chain(exact_pair, followed, follower, prompts, method, param):
    pair = exact_pair
    draft = Certain(pair.draft, follower)
    certain = LoadedPair(pair.target, draft, pair.tokenizer, pair.vocab, pair.context, pair.eos_ids)
    settings = {"warper": Warper(0.7), "max_new_tokens": 30, "seed": 3, "batch_size": 16, "trace": "full"}
    rows = [Prompt(pair.tokenizer(text).input_ids, text, i) for i, text in enumerate(prompts[::5])]
    shape = TreeShape(top_k=1, depth=4, total_token=6)
    chain = decode_prompts(certain, rows, rule=get_rule(method, param), gamma=shape.levels, **settings)
    tree = decode_prompts(followed, rows, rule=get_tree_rule(method, param), shape=shape, **settings)
    assert tree.token_ids == chain.token_ids and tree.stops == chain.stops
    for column in ("step", "position", "accepted", "emitted", "stop"):
        assert tree.steps[column].to_pylist() == chain.steps[column].to_pylist(), column
    one, other = tree.steps["expected_accepted"].to_numpy(), chain.steps["expected_accepted"].to_numpy()
    np.testing.assert_allclose(one, other, **STORED)
    assert 0.05 < np.mean(chain.steps["accepted"].to_numpy() / shape.levels) < 0.9
    for name in ("tv_pi_p", "alpha"):  # of the places where the rule decided
        lists = zip(tree.steps[name].to_pylist(), chain.steps[name].to_pylist(), strict=True)
        assert all(np.allclose(ours, theirs[: len(ours)], **STORED) for ours, theirs in lists)


def random_trees(generator, shape, vocab):
    """A `TreeDrafter.grow` of trees that have nothing to do with any head."""

    def grow(drafter, *, with_q=False):
        rows, nodes = len(drafter.length), shape.total_token
        tokens, parent, depth = (torch.zeros(rows, nodes, dtype=torch.int64) for _ in range(3))
        mask = torch.eye(nodes, dtype=torch.bool).repeat(rows, 1, 1)
        parent[:, 0] = -1
        for row in range(rows):
            used = set()
            for node in range(1, nodes):
                below = [i for i in range(node) if depth[row, i] < shape.levels]
                above = max(below[int(i)] for i in torch.randint(len(below), (2,), generator=generator))
                token = next(
                    t for t in torch.randperm(vocab, generator=generator).tolist() if t > 1 and (above, t) not in used
                )
                used.add((above, token))
                tokens[row, node], parent[row, node], depth[row, node] = token, above, depth[row, above] + 1
                mask[row, node] |= mask[row, above]
        return DraftedTree(tokens, parent, depth, torch.zeros(rows, nodes), mask)

    return grow


class Checked(TreeDecoder):
    """After every block compares caches and features with a fresh forward over each row's tokens."""

    compared = 0

    def _begin(self, rows, longest, clock):
        super()._begin(rows, longest, clock)
        self.features = torch.zeros(rows, longest, 3 * 128, dtype=self.pair.target.dtype)
        self.commit, self._drafter.commit = self._drafter.commit, self._commit

    def _commit(self, features, ids, counts, rows=None):
        """Notes the features that the head is given, each at its position."""
        for i, count in enumerate(counts):
            row = i if rows is None else int(rows[i])
            start = 0 if rows is not None else int(self._drafter.length[row])
            self.features[row, start : start + count] = features[i, :count]
        self.commit(features, ids, counts, rows=rows)

    def _keep(self, at):
        super()._keep(at)
        self.features = self.features[at]

    def _block(self, batch, clock):
        super()._block(batch, clock)
        for row in np.flatnonzero(batch.prompt >= 0):
            prompt = batch.prompt[row]
            ids = torch.tensor([list(self.prompts[prompt].ids) + self.outputs[prompt]])
            known = ids.shape[1] - 1
            assert known == batch.length[row] - 1 == self._drafter.length[row]
            fresh = self.pair.target(ids[:, :known], output_hidden_states=True, use_cache=True)
            head = TreeDrafter(self.pair.draft, self.shape, 1, known)
            head.commit(self.features[row : row + 1, :known], ids[:, 1:])
            pairs = [(self.features[row], self.pair.draft.features(fresh.hidden_states)[0])]
            for layer, other in zip(
                [*self._target.cache.layers, *self._drafter._cache.layers],
                [*fresh.past_key_values.layers, *head._cache.layers],
                strict=True,
            ):
                pairs += [(ours[row], theirs[0]) for ours, theirs in zip(*map(kept, (layer, other)), strict=True)]
            for ours, theirs in pairs:
                torch.testing.assert_close(ours[..., :known, :], theirs[..., :known, :], **EXACT)
            Checked.compared += 1


def kept(layer):
    return layer.keys, layer.values


@pytest.mark.parametrize("method, param", [("standard_sd", None), ("lenience", 0.01), ("spec_cascade", 0.0)])
def test_caches_and_features_are_those_of_a_fresh_forward(monkeypatch, exact_tree_pair, prompts, method, param):
    tree_pair = exact_tree_pair
    shape = TreeShape(top_k=14, depth=4, total_token=15)
    monkeypatch.setattr(TreeDrafter, "grow", random_trees(torch.Generator().manual_seed(1), shape, tree_pair.vocab))
    monkeypatch.setattr(Checked, "compared", 0)
    rows = [Prompt(tree_pair.tokenizer(text).input_ids, text, i) for i, text in enumerate([*prompts[::40], "1"])]
    decoder = Checked(
        pair=tree_pair, rule=get_tree_rule(method, param), shape=shape, warper=Warper(1.0), max_new_tokens=16, seed=1,
        batch_size=3, trace=Trace(distortion=True),
    )  # fmt: skip
    decoder.prompts = rows
    decoder.run(rows)
    assert Checked.compared > 10
    steps = decoder.trace.table(["x"] * len(rows), list(range(len(rows))), [0] * len(rows))
    accepted = steps["accepted"].to_numpy()
    assert len(set(accepted)) >= (2 if param is None else 3)


@pytest.mark.parametrize("method", TREE_FORMS)
def test_every_rule_decodes_and_its_trace_adds_up(tree_pair, prompts, method):
    param = RULES[method].grid[0]
    settings = {"method": method, "param": param, "temperature": 0.7, "tree": SHAPE, "max_new_tokens": 14}
    decoded = decode(tree_pair, prompts[:6], batch_size=4, **settings)
    assert decoded.steps.schema.equals(STEPS)
    for prompt, (tokens, stop) in enumerate(zip(decoded.token_ids, decoded.stops, strict=True)):
        rows = [row for row in decoded.steps.to_pylist() if row["index"] == prompt]
        assert [row["step"] for row in rows] == list(range(len(rows)))
        assert [token for row in rows for token in row["emitted"]] == tokens
        assert [row["stop"] for row in rows] == [None] * (len(rows) - 1) + [stop]
        for row in rows:
            assert 0 <= row["accepted"] <= 3 and row["drafted"] <= 13
            assert row["accepted"] == len(row["path"])
            assert row["path"] == [node for node, kept in zip(row["node"], row["kept"], strict=True) if kept]
            assert row["emitted"][: row["accepted"]] == [
                token for token, kept in zip(row["token"], row["kept"], strict=True) if kept
            ]
            tried = len(row["node"])
            names = ("token", "depth", "p", "q", "accept_prob", "mass", "threshold", "kept")
            assert {len(row[name]) for name in names} == {tried}
            assert row["node"] == sorted(set(row["node"])) and row["depth"] == sorted(row["depth"])
            assert all(0 < q <= 1 for q in row["q"])
            assert all(0 <= a <= 1 for a in row["accept_prob"])
            assert all(a > 0 for a, kept in zip(row["accept_prob"], row["kept"], strict=True) if kept)
            decided = max(row["depth"], default=0)
            assert row["accepted"] <= decided <= row["accepted"] + 1
            assert {len(row[name]) for name in ("alpha", "entropy_p", "tv_pi_p", "tv_pi_target")} == {decided}
            assert row["tv_pq"] is None and row["coupling_loss"] is None
            if RULES[method].exact:
                assert all(abs(distance) < SUM for distance in row["tv_pi_target"])
            # siblings stand by falling draft probability, which all share one parent
            for a, b in zip(range(tried - 1), range(1, tried), strict=True):
                if row["depth"][a] == row["depth"][b]:
                    assert row["q"][a] >= row["q"][b] and not row["kept"][a]


def test_a_light_trace_decodes_the_same_tokens_and_leaves_distortion_out(tree_pair, prompts):
    full, light = (decode(tree_pair, prompts[:8], tree=SHAPE, max_new_tokens=9, trace=t) for t in ("full", "light"))
    assert full.token_ids == light.token_ids
    assert light.steps["tv_pi_p"].null_count == light.steps.num_rows
    assert light.steps["accept_prob"].equals(full.steps["accept_prob"])


def test_expected_accepted_has_the_mean_of_the_counted_with_less_variance(tree_pair, prompts):
    settings = {"method": "cos", "param": 0.6, "temperature": 0.7, "tree": SHAPE, "batch_size": 200}
    decoded = decode(tree_pair, prompts, max_new_tokens=20, **settings)
    steps = decoded.steps.select(["accepted", "expected_accepted"]).to_pandas()
    difference = steps["accepted"] - steps["expected_accepted"]
    assert abs(difference.mean()) < 4 * difference.std() / len(steps) ** 0.5  # fails at random once in 16,000
    assert steps["expected_accepted"].var() < steps["accepted"].var()


def test_the_end_of_sequence_cuts_a_path(pair, followed, follower, prompts):
    end = pair.eos_ids[0]
    follower[:] = end  # whatever the text is, the draft would end it, and go on
    decoded = decode(followed, prompts[:20], **EVERYTHING, tree={"total_token": 5, "depth": 3, "top_k": 1})
    assert decoded.token_ids == [[end]] * 20 and set(decoded.stops) == {"eos"}
    (row,) = [row for row in decoded.steps.to_pylist() if row["index"] == 0]
    assert row["drafted"] == row["accepted"] == row["expected_accepted"] == 1  # nothing behind it was ever drafted
    assert row["token"] == row["emitted"] == [end]


def test_a_prompt_that_ends_in_an_end_of_sequence_goes_on(tree_pair):
    prompt = [*tree_pair.tokenizer("1+2?").input_ids, tree_pair.eos_ids[0]]
    output = decode(tree_pair, [prompt], temperature=0, tree=SHAPE, max_new_tokens=9)
    assert is_greedy(tree_pair, prompt, output.token_ids[0])
    assert output.steps["drafted"].to_numpy().max() > 1


@pytest.mark.parametrize("limit", [1, 2, 9])
def test_output_never_exceeds_the_token_limit(tree_pair, prompts, limit):
    settings = {**EVERYTHING, "tree": SHAPE, "max_new_tokens": limit, "batch_size": 8}
    decoded = decode(tree_pair, prompts[:20], **settings)
    assert all(len(ids) == limit or ids[-1] in tree_pair.eos_ids for ids in decoded.token_ids)
    assert "length" in decoded.stops
    assert max(decoded.steps["accepted"].to_pylist()) == min(3, limit - 1)


def test_decoding_stops_at_the_context(tree_pair):
    long = [5 + i % 7 for i in range(tree_pair.context - 5)]
    decoded = decode(tree_pair, [long, [5, 6]], **EVERYTHING, tree=SHAPE, max_new_tokens=12, batch_size=2)
    assert len(decoded.token_ids[0]) <= 5
    assert decoded.stops[0] == ("context" if len(decoded.token_ids[0]) == 5 else "eos")


def test_a_prompt_of_one_token_begins_with_a_plain_step(tree_pair, prompts):
    alone, *others = decode(tree_pair, [[7], *prompts[:3]], temperature=0, tree=SHAPE, max_new_tokens=8).token_ids
    assert is_greedy(tree_pair, [7], alone)
    assert others == decode(tree_pair, prompts[:3], temperature=0, tree=SHAPE, max_new_tokens=8).token_ids
    steps = decode(tree_pair, [[7]], tree=SHAPE, max_new_tokens=8).steps.to_pylist()
    assert steps[0]["drafted"] == 0 and steps[0]["token"] == steps[0]["path"] == [] and steps[1]["drafted"] > 0


def test_no_prompts_give_an_empty_result(tree_pair):
    decoded = decode(tree_pair, [])
    assert decoded.texts == [] and decoded.steps.num_rows == 0 and decoded.steps.schema.equals(STEPS)


@pytest.mark.parametrize(
    "bad, words",
    [
        ({"gamma": 8}, "gamma is for pairs of kind draft"),
        ({"tree": {"total_token": 600}}, "total_token 600 with top_k 10 and depth 5"),
        ({"tree": {"topk": 3}}, "tree must have total_token, depth and top_k"),
        ({"tree": {"top_k": 25}}, "top_k 25 is more than the draft vocabulary, 24"),
        ({"method": "blockwise"}, "blockwise has no form on trees"),
        ({"method": "cos", "param": 0.5, "bonus": "r"}, "the head is not run on their leaves"),
        ({"method": "lenience", "param": 0.5, "coupling": "maximal"}, "lenience on trees has no option"),
    ],
)
def test_bad_settings_are_refused_in_one_line(tree_pair, bad, words):
    with pytest.raises(ValueError) as caught:
        decode(tree_pair, ["1+1?"], **{"tree": SHAPE, **bad})
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_draft_model_is_given_no_tree(pair):
    with pytest.raises(ValueError, match="tree is for pairs of kind eagle3"):
        decode(pair, ["1+1?"], tree=SHAPE)
