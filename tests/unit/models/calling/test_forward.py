"""A replayed forward is the model's own, bit for bit; a model that cannot be replayed is called."""

import warnings
from copy import deepcopy
from weakref import WeakKeyDictionary

import pytest
import torch

from specloss import decode
from specloss.models.calling import forward
from specloss.models.calling.cache import RaggedCache
from specloss.models.calling.forward import Forward


@pytest.fixture(autouse=True)
def nothing_learned(monkeypatch):
    monkeypatch.setattr(forward, "_LEARNED", WeakKeyDictionary())
    monkeypatch.setattr(forward, "_USES", 2)


@pytest.fixture
def recorded(monkeypatch):
    """Shapes in the order in which they are recorded."""
    shapes, record = [], forward._record

    def count(call, inputs):
        shapes.append(inputs[0].shape)
        return record(call, inputs)

    monkeypatch.setattr(forward, "_record", count)
    return shapes


def logged(decoded):
    return decoded.steps.drop_columns(["draft_ms", "verify_ms", "overhead_ms"]).to_pylist()


@pytest.mark.parametrize("batch_size", [1, 7, 32])
@pytest.mark.parametrize("method, param, bonus", [("standard_sd", None, {}), ("cos", 0.6, {"bonus": "r"})])
def test_replaying_changes_no_token_and_no_logged_number(
    pair, prompts, recorded, monkeypatch, batch_size, method, param, bonus
):
    some = prompts[: {1: 4, 7: 20, 32: 60}[batch_size]]  # rows are filled again, and leave one by one at the end
    settings = {"method": method, "param": param, "max_new_tokens": 48, "batch_size": batch_size, **bonus}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = decode(pair, some, **settings), decode(pair, some, **settings)  # recorded then; known already
    assert len(recorded) > 5
    monkeypatch.setattr(forward, "_may_replay", lambda *_: False)
    called = decode(pair, some, **settings)
    assert first.token_ids == second.token_ids == called.token_ids
    assert repr(logged(first)) == repr(logged(second)) == repr(logged(called))  # as text: nan is nan


class Wrapped(torch.nn.Module):
    """A causal LM with something on top: what `change` gives for the logits and the inputs."""

    def __init__(self, model, change):
        super().__init__()
        self.model, self.config, self.change = model, model.config, change
        self.calls = 0

    def forward(self, **inputs):
        self.calls += 1
        output = self.model(**inputs)
        output.logits = self.change(self, output.logits, inputs["input_ids"])
        return output


def use(model, pair, times, new=1):
    """Logits of forwards of one shape at slots that move, and how often the model had been called after each."""
    run = Forward(model, RaggedCache(pair.draft.config.num_hidden_layers, 2, 64, pair.device))
    generator = torch.Generator().manual_seed(0)
    results = []
    with torch.inference_mode():
        slots = torch.arange(8).expand(2, -1)
        run.cache.fill(torch.arange(2), slots)
        run(torch.full((2, 8), 5), torch.full((8, 8), -torch.inf).triu(1).expand(2, 1, -1, -1), slots, 1)
        for i in range(times):
            slots = torch.tensor([[8 + i], [9 + i]]) + torch.arange(new)
            mask = torch.zeros(2, 1, new, 32).masked_fill(torch.arange(32) > slots[:, None, :, None], -torch.inf)
            run.cache.at(slots, 32)
            ids = torch.randint(3, pair.vocab, (2, new), generator=generator)
            results.append((run(ids, mask, slots + 0, 0)[0], getattr(model, "calls", None)))
    return results


def test_a_model_that_remembers_is_called_after_the_comparison_fails(pair):
    model = Wrapped(pair.draft, lambda self, logits, ids: logits + self.calls)
    with pytest.warns(UserWarning, match="it gives other logits than its recording") as caught:
        results = use(model, pair, 8)
    assert len(caught) == 1
    plain = use(pair.draft, pair, 8)
    assert all(torch.equal(logits, base + calls) for (logits, calls), (base, _) in zip(results, plain, strict=True))
    assert results[-1][1] == results[-2][1] + 1  # called once for each use at the end
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        use(model, pair, 8)  # and never tried again


HIDDEN = torch.ones(1)


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda self, logits, ids: logits * 2 if ids.sum() % 2 else logits, "it looks at values"),
        (lambda self, logits, ids: logits * len(ids.tolist()), "it looks at values"),
        (lambda self, logits, ids: logits + len(ids.nonzero()), "it looks at values"),
        (lambda self, logits, ids: logits + HIDDEN, "neither an input nor a weight"),
    ],
)
def test_a_model_that_looks_at_values_or_has_hidden_inputs_is_called(pair, change, words):
    model = Wrapped(pair.draft, change)
    with pytest.warns(UserWarning, match=words) as caught:
        results = use(model, pair, 8)
    assert len(caught) == 1
    with torch.inference_mode():
        for (logits, _), (again, _) in zip(results, use(model, pair, 8), strict=True):
            assert torch.equal(logits, again)


def test_calls_that_give_several_tensors_or_change_one_are_replayed(pair):
    def change(self, logits, ids):
        low, high = logits.chunk(2, dim=-1)
        values, _ = logits.mT.max(dim=1)
        logits = torch.cat([high, low], -1)
        logits[..., 0] = values
        return logits.add_(1)

    model = Wrapped(pair.draft, change)
    results = use(model, pair, 8)
    assert results[-1][1] == results[-2][1]  # replayed
    for (logits, _), (base, _) in zip(results, use(pair.draft, pair, 8), strict=True):
        assert torch.equal(logits, change(None, base, None))


def test_the_number_of_recordings_is_bounded(pair, prompts, recorded, monkeypatch):
    monkeypatch.setattr(forward, "_MOST", 2)
    decode(pair, prompts[:8], batch_size=2)
    assert len(recorded) == 4  # two of each model


def test_a_hooked_model_is_called(pair, prompts, recorded):
    calls = []
    hook = pair.draft.register_forward_pre_hook(lambda *_: calls.append(1))
    decoded = decode(pair, prompts[:2], batch_size=1)
    hook.remove()
    assert len(calls) == 8 * decoded.steps.num_rows + 2
    assert not any(shape[1] < 3 for shape in recorded)  # only the target's


def test_a_model_that_changed_between_decodes_is_noticed(pair):
    model = Wrapped(pair.draft, lambda self, logits, ids: logits)
    use(model, pair, 5)
    model.change = lambda self, logits, ids: logits * 2
    with pytest.warns(UserWarning, match="other logits"):
        results = use(model, pair, 5)
    for (logits, _), (base, _) in zip(results, use(pair.draft, pair, 5), strict=True):
        assert torch.equal(logits, base * 2)


def test_new_weights_need_no_new_recording(pair, recorded):
    model = deepcopy(pair.draft)
    use(model, pair, 5)
    model.model.norm.weight = torch.nn.Parameter(2 * model.model.norm.weight)
    before = [logits for logits, _ in use(pair.draft, pair, 5)]
    count = len(recorded)
    after = [logits for logits, _ in use(model, pair, 5)]
    assert len(recorded) == count
    assert all(torch.equal(twice, 2 * once) for twice, once in zip(after, before, strict=True))  # a shift of exponents
