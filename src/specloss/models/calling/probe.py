"""Whether a loaded model gives through the ragged cache what it gives without one: tried, not looked up in a list.

Two rows of different lengths go through the forward that decoding makes: filled together, continued by tokens that are
then rolled back, by others in their place, and by single ones; for a head also by a tree. Each logit is compared with
the model's own forward of the whole text, without any cache. A family that takes positions from the length of the
cache, has a window, a state or no causal mask, or fails on our arguments shows here.

Rows cross every boundary that the config names up to `REACH` tokens. A boundary further off cannot be tried at the
price of a few forwards: such a model is refused from its config (`models.loading`).

A 16-bit model is compared more coarsely. Its own noise grows with its depth, and a mixture of experts may choose
otherwise at single positions, so there the median position of a forward counts. In 32 bits the worst one does.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from specloss.models.calling import cache as cache_module
from specloss.models.calling import forward as forward_module
from specloss.models.calling.cache import RaggedCache
from specloss.models.calling.forward import Forward
from specloss.models.checkpoint import Checkpoint, ModelError, fingerprint
from specloss.models.positions import REACH, boundaries, effective_context

_NEW = 5  # tokens of a block
_PLAIN = 40  # tokens of the longer row where the config names no boundary


def probe(
    source: Checkpoint, model: Any, dtype: str, attention: str, head: Any = None, context: int | None = None
) -> None:
    """ModelError, in one line, if a loaded model's cached forward is not its own; with a `head` on a tree, too.

    Tried with texts of at most `context` tokens.

    What has passed with the same weights, type, attention, device and code is not tried again.
    """
    commit = getattr(model.config, "_commit_hash", None)
    known = Passed(source, dtype, attention, model.device.type, head is not None, commit, context)
    if known:
        return
    try:
        longest = context or math.inf
        for boundary in _lengths(model.config, longest):
            _Probe(model, boundary, head, longest).run()
    except ModelError as error:
        raise ModelError(f"{source.name}: {error}; it cannot be decoded here") from None
    except Exception as error:  # whatever a model's code raises when it is called as decoding calls it
        reason = " ".join(str(error).split())[:200] or "no reason given"
        name = type(error).__name__
        raise ModelError(f"{source.name}: its forward fails with a cache of ragged rows ({name}: {reason})") from error
    known.add()


def _lengths(config: Any, longest: float) -> Iterator[int]:
    """Lengths that the longer row crosses."""
    found = sorted(boundary for boundary in boundaries(config, longest) if boundary <= REACH)
    yield from found or [_PLAIN]


class _Probe:
    """Two rows: one that crosses the length `boundary` within a block, one of a third of it."""

    def __init__(self, model: Any, boundary: int, head: Any, longest: float) -> None:
        text = model.config.get_text_config()
        self.model, self.head, self.device = model, head, model.device
        room = min(longest, effective_context(model.config)) - 2 * _NEW
        start = int(max(2, min(boundary - 2, room)))
        self.length = torch.tensor([start, max(1, start // 3)], device=self.device)
        time = -(-(start + 4 * _NEW) // 32) * 32
        self.visible = time
        self.cache = RaggedCache(text.num_hidden_layers, 2, time, self.device)
        self.forward = Forward(model, self.cache, head)
        vocab = text.vocab_size
        ids = torch.randint(0, vocab, (2, start + 2 * _NEW), generator=torch.Generator().manual_seed(1))
        pad = getattr(text, "pad_token_id", None)  # some families look for it in the text
        self.ids = ids.where(ids != (-1 if pad is None else pad), (ids + 1) % vocab).to(self.device)
        self.vocab, self.layers = vocab, text.num_hidden_layers

    @torch.inference_mode()
    def run(self) -> None:
        """ModelError if any logit differs."""
        length, ids, steps = self.length, self.ids, torch.arange(_NEW, device=self.device)
        self.whole = [
            self.model(input_ids=ids[row : row + 1, : int(length[row]) + 2 * _NEW], use_cache=False).logits[0].float()
            for row in range(2)
        ]
        width = int(length.max())
        at = torch.arange(width, device=self.device).expand(2, -1)
        self.cache.fill(torch.arange(2, device=self.device), at)
        filled = self.forward(ids[:, :width], self._causal(at, width), at, keep=0)[0]
        for row in range(2):
            known = torch.arange(int(length[row]), device=self.device)
            self._compare("a prompt", row, filled[row, : len(known)], known)
        at = length.unsqueeze(1) + steps
        self._block((ids.gather(1, at) + 1) % self.vocab, at)  # rolled back
        logits = self._block(ids.gather(1, at), at)
        for row in range(2):
            self._compare("a block after a rollback", row, logits[row], at[row])
        at = length.unsqueeze(1) + _NEW
        if self.head is not None:
            self._tree(at)
            at = at + 2
        logits = self._block(ids.gather(1, at), at, keep=1)
        for row in range(2):
            self._compare("a single token", row, logits[row, -1:], at[row])

    def _block(self, tokens: Tensor, at: Tensor, keep: int = 0) -> Tensor:
        self.cache.at(at, self.visible)
        return self.forward(tokens, self._causal(at, self.visible), at, keep=keep)[0]

    def _tree(self, at: Tensor) -> None:
        """A root with two children, of which the second is kept and moved to its place; `at` [2, 1] is the root's."""
        tokens = torch.cat([self.ids.gather(1, at), (self.ids.gather(1, at + 1) + 1) % self.vocab], 1)
        tokens = torch.cat([tokens, self.ids.gather(1, at + 1)], 1)
        slots, position = torch.cat([at, at + 1, at + 2], 1), torch.cat([at, at + 1, at + 1], 1)
        mask = self._causal(slots, self.visible)
        for row in range(2):
            mask[row, 0, 2, int(at[row]) + 1] = -torch.inf
        self.cache.at(slots, self.visible)
        logits = self.forward(tokens, mask, position, keep=0)[0]
        for row in range(2):
            self._compare("a tree", row, logits[row, [0, 2]], position[row, [0, 2]])
        self.cache.move(at + 2, at + 1)

    def _causal(self, at: Tensor, visible: int) -> Tensor:
        """Additive mask [rows, 1, new, visible]."""
        hidden = (torch.arange(visible, device=self.device) > at.unsqueeze(-1)).unsqueeze(1)
        return torch.zeros(hidden.shape, dtype=self.model.dtype, device=self.device).masked_fill(hidden, -torch.inf)

    def _compare(self, what: str, row: int, logits: Tensor, at: Tensor) -> None:
        """Logits [n, vocab] of the positions `at` [n] against the model's own."""
        whole, logits = self.whole[row][at], logits.float().to(self.whole[row].device)
        finite = whole.isfinite().all(-1)  # overflow is not the cache's fault, and decoding says it
        if not finite.any():
            return
        error = (logits - whole)[finite].square().mean(-1).sqrt() / whole[finite].std(-1).clamp_min(1e-12)
        dtype = self.model.dtype
        worst = error.max() if torch.finfo(dtype).bits >= 32 else error.median()
        if not worst <= tolerance(dtype, self.layers):
            raise ModelError(
                f"its logits for {what}, with {int(self.length[row])} tokens before, differ through the cache from "
                f"its own forward's by {float(worst):.2g} of their spread"
            )


def tolerance(dtype: torch.dtype, layers: int) -> float:
    """The most that rounding explains, as a part of the logits' spread: each layer adds some roundings of its own."""
    half = torch.finfo(dtype).bits < 32
    return (8 if half else 1024) * torch.finfo(dtype).eps * max(1, layers) ** 0.5


class Passed:
    """Whether a model has passed before: an empty file of the fingerprint's name in the user's cache folder."""

    def __init__(
        self,
        source: Checkpoint,
        dtype: str,
        attention: str,
        device: str,
        tree: bool,
        commit: str | None = None,
        context: int | None = None,
    ) -> None:
        weights = fingerprint(source.name) or commit
        about = (weights, source.gguf, dtype, attention, device, tree, context, *_versions())
        self.path = None
        if weights:
            folder = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
            self.path = folder / "specloss" / "probed" / hashlib.sha256(repr(about).encode()).hexdigest()[:32]

    def __bool__(self) -> bool:
        try:
            return self.path is not None and self.path.is_file()
        except OSError:
            return False

    def add(self) -> None:
        """Remember it, where that is possible."""
        if self.path is None:
            return
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.touch(mode=0o600)
        except OSError:  # the probe is then made again
            pass


@cache
def _versions() -> tuple[str, ...]:
    code = [Path(str(file)).read_bytes() for file in (cache_module.__file__, forward_module.__file__, __file__)]
    return torch.__version__, transformers.__version__, hashlib.sha256(b"".join(code)).hexdigest()
