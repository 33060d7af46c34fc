"""A model's forward within the loop: on a CPU, shapes that come back are replayed without the model's Python.

A small model spends most of a short forward in Python: modules that call modules, decorators, configs, output classes.
The calls of torch underneath are the same each time. They are recorded once and from then on made from a flat list,
on the inputs, weights and cache of the day: no model code is touched, and the bits are those that the model gives.

A recording may depend on its inputs and on shapes, nothing else: a model that looks at a value, as a rotary embedding
that grows with the text does, cannot be recorded. Before a recording counts, in each decode anew, it is compared with
the model on other inputs than it was made from. A model that fails either is called as ever.
"""

from __future__ import annotations

import operator
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, fx
from torch.fx.node import map_aggregate
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from specloss.models.calling.cache import RaggedCache

if TYPE_CHECKING:
    from specloss.models.eagle3 import Eagle3Head

_USES = 16  # of a shape before it is recorded, which takes as long as some twenty calls save
_MOST = 256  # recordings of a model
_VALUE_DEPENDENT = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_READS = {Tensor.tolist, Tensor.numpy, Tensor.__array__}  # of values, which the operators' tags do not tell
_CASTS = {Tensor.to, Tensor.float, Tensor.contiguous}  # return the tensor itself when there is nothing to do
_CAPTURING = "transformers.utils.output_capturing"  # its hooks stay on a model, and do nothing if nothing is asked for

Outputs = tuple[Tensor, ...]  # logits [rows, kept, vocab], and features [rows, new, width] if asked for


@dataclass(slots=True)
class _Learned:
    """What is known of a model, across decodes; `recorded` by shape takes everything, weights too, as arguments."""

    uses: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    recorded: dict[tuple[Any, ...], Callable[..., Outputs]] = field(default_factory=dict)
    refused: bool = False


_LEARNED: WeakKeyDictionary[Any, _Learned] = WeakKeyDictionary()


class Forward:
    """A transformers causal LM and the ragged cache that it writes to, for the length of one decode.

    With a `head`, what comes back has the head's features beside the logits.
    """

    def __init__(self, model: Any, cache: RaggedCache, head: Eagle3Head | None = None) -> None:
        self.model = model
        self.cache = cache
        self.head = head
        self._layers = head.layers if head is not None else ()
        self._weights = [*model.parameters(), *model.buffers()]
        self._may_replay = _may_replay(model, self._weights)
        self._learned = _LEARNED.setdefault(model, _Learned())
        self._compared: dict[tuple[Any, ...], Callable[..., Outputs]] = {}

    def __call__(self, ids: Tensor, mask: Tensor, position: Tensor, keep: int) -> Outputs:
        """Logits [rows, kept, vocab] of the `keep` last positions, 0 for all, of `ids` and `position` [rows, new].

        With a head also features [rows, new, width], of all positions. `mask` [rows, 1, new, visible] is additive.
        Which slots are written and seen is the cache's: see its `at`.
        """
        shape = (ids.shape, self.cache.visible, self.cache.time, keep, self._layers)
        replay = self._compared.get(shape)
        if replay is not None:
            return replay(*self._inputs(ids, mask, position))
        if self._may_replay and not self.cache.prefilling and not self._learned.refused:
            return self._learn(shape, ids, mask, position, keep)
        return self._call(ids, mask, position, keep)

    def _call(self, ids: Tensor, mask: Tensor, position: Tensor, keep: int) -> Outputs:
        wanted = {"output_hidden_states": list(self._layers)} if self._layers else {}
        output = self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=position,
            cache=self.cache,
            use_cache=True,
            logits_to_keep=keep,
            return_dict=True,
            **wanted,
        )
        if self.head is None:
            return (output.logits,)
        return output.logits, self.head.features(output.hidden_states)

    def _learn(self, shape: tuple[Any, ...], *arguments: Any) -> Outputs:
        """A call of the model: its shape is recorded once it has come back often, then compared with the recording."""
        learned, inputs = self._learned, self._inputs(*arguments[:3])
        learned.uses[shape] += 1
        replayed = None
        try:
            if shape in learned.recorded:
                replayed = learned.recorded[shape](*inputs)
            elif learned.uses[shape] >= _USES and len(learned.recorded) < _MOST:
                learned.recorded[shape] = _record(lambda: self._call(*arguments), inputs)
        except Exception as error:  # whatever it was, calling the model is still right
            self._refuse(str(error))
        outputs = self._call(*arguments)  # last, so that the cache is as the model leaves it
        if replayed is not None:
            if all(map(_equal, replayed, outputs)):
                self._compared[shape] = learned.recorded[shape]
            else:
                self._refuse("it gives other logits than its recording")
        return outputs

    def _refuse(self, reason: str) -> None:
        self._learned.refused = True
        self._learned.recorded.clear()
        self._compared.clear()
        warnings.warn(f"{type(self.model).__name__} is called, not replayed, and slower: {reason}", stacklevel=4)

    def _inputs(self, ids: Tensor, mask: Tensor, position: Tensor) -> list[Tensor]:
        """All that a recording may depend on. The cache's tensors are among it: compaction replaces them."""
        cache = self.cache
        buffers = [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]
        return [ids, mask, position, cache.row_index, cache.slots, *buffers, *self._weights]


def _equal(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


def _may_replay(model: Any, weights: Sequence[Tensor]) -> bool:
    """On a CPU, with nothing hooked in that has to run. On a GPU it would be CUDA graphs that save the time."""
    hooked = any(
        module._forward_pre_hooks
        or hasattr(module, "_hf_hook")
        or any(getattr(hook, "__module__", None) != _CAPTURING for hook in module._forward_hooks.values())
        for module in model.modules()
    )
    return not hooked and all(weight.device.type == "cpu" for weight in weights)


class _NotReplayable(Exception):
    """Why a model has to be called."""


def _record(call: Callable[[], Outputs], inputs: Sequence[Tensor]) -> Callable[..., Outputs]:
    """A function of `inputs` that makes the calls of torch that `call()` makes and returns the same tensors."""
    recording = _Recording(inputs)
    with _ShapesOnly(), recording:
        results = call()
    return recording.function(results)


class _ShapesOnly(TorchDispatchMode):
    """Refuses operators whose result would make Python's next step, or a shape, depend on values."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not _VALUE_DEPENDENT.isdisjoint(func.tags):
            raise _NotReplayable(f"it looks at values ({func})")
        with self:  # an operator made of others shows only what those do
            result = func.decompose(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {})) if result is NotImplemented else result


class _Recording(TorchFunctionMode):
    """Writes every call of torch that takes or makes tensors into a graph."""

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()
        self._graph = fx.Graph()
        self._nodes = WeakTensorKeyDictionary()  # by identity; weak, so that no more memory is held than in a call
        for i, tensor in enumerate(inputs):
            self._nodes[tensor] = self._graph.placeholder(f"input_{i}")
        if len(self._nodes) < len(inputs):
            raise _NotReplayable("it takes one tensor twice")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _READS:
            raise _NotReplayable(f"it looks at values ({func.__name__})")
        known = map_aggregate((args, kwargs), self._node)  # before the call: it may change its arguments
        result = func(*args, **kwargs)
        parts = result if isinstance(result, tuple | list) else ()
        made_tensors = isinstance(result, Tensor) or any(isinstance(part, Tensor) for part in parts)
        idle = func in _CASTS and result is args[0]
        if (made_tensors or result is None) and not idle:  # None: an assignment; all else are shapes and types
            if func.__name__ == "__get__":  # a property, such as `tensor.mT`
                func, known = getattr, ((known[0][0], func.__self__.__name__), {})
            node = self._graph.call_function(func, *known)
            if isinstance(result, Tensor):
                self._nodes[result] = node
            for i, part in enumerate(parts):
                if isinstance(part, Tensor):
                    self._nodes[part] = self._graph.call_function(operator.getitem, (node, i))
        return result

    def _node(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if value not in self._nodes:
            raise _NotReplayable("it uses a tensor that is neither an input nor a weight nor made from those")
        return self._nodes[value]

    def function(self, results: Outputs) -> Callable[..., Outputs]:
        """The recorded calls as a function of the inputs that returns `results`."""
        self._graph.output(tuple(map(self._node, results)))
        return fx.GraphModule({}, self._graph).forward
