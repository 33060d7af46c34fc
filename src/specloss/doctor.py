"""`specloss doctor`: what a config would do on this machine.

Models found or not, memory, vocabulary, a prompt of each benchmark, tokens and hours. No weights are loaded, except for
a pilot that is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeVar

import psutil
import torch
from transformers.utils.logging import disable_progress_bar

from specloss.benchmarks import Item, get_benchmark
from specloss.benchmarks.sandbox import SandboxError
from specloss.common.yamlfile import ConfigError
from specloss.experiment.cells import Cell
from specloss.experiment.checks import check_finished, check_writable
from specloss.experiment.config import Experiment
from specloss.experiment.grid import expand
from specloss.experiment.plan import Plan, describe
from specloss.experiment.sections import Benchmark, Pair
from specloss.models.checkpoint import ModelError, locate
from specloss.models.context import check_context, context_note, head_note, pair_context
from specloss.models.inspection import Inspected, cache_bytes, dtype_of, inspect_model
from specloss.models.loading import eos_ids, ignored_settings
from specloss.models.prompting import encode
from specloss.models.tokenizers import tokenizer_difference
from specloss.models.vocabulary import vocabulary_fault

PILOT_TOKENS = 64
SHOWN_LINES, SHOWN_WIDTH = 12, 110  # of a prompt
T = TypeVar("T")


@dataclass
class Doctor:
    """Looks at an experiment and says what it sees, in lines; what is `missing` is said again at the end."""

    experiment: Experiment
    source: str
    pilot: bool = False
    missing: list[str] = field(default_factory=list)

    def report(self) -> Iterator[str]:
        """All lines. The examination goes on behind whatever is missing."""
        disable_progress_bar()
        cells = self._try("", lambda: expand(self.experiment)) or []
        plan = Plan(self.experiment, self.source, tuple(cells))
        for folder in (plan.folder, plan.reports):
            self._try("", partial(check_writable, folder))
        if cells:
            yield describe(plan)
            self._try("", partial(check_finished, plan))
        for name in self.experiment.pairs:
            yield from ("", f"pair {name}", *self._pair(name))
        for name in self.experiment.benchmarks:
            yield from ("", f"benchmark {name}", *self._benchmark(name))
        yield from ("", "work", *self._work(cells))
        yield ""
        yield from ("missing", *(f"  {line}" for line in self.missing)) if self.missing else ("nothing is missing",)

    def _try(self, at: str, look: Callable[[], T]) -> T | None:
        """What `look` finds; None, with a line of what is missing, if it raises an error fit for users."""
        try:
            return look()
        except (ConfigError, ModelError, SandboxError, ValueError, OSError) as error:
            self.missing.append(f"{at}: {error}".removeprefix(": "))
            return None

    @cached_property
    def _items(self) -> dict[str, list[Item]]:
        """The items of the benchmarks that can be loaded."""
        found = {}
        for name, benchmark in self.experiment.benchmarks.items():
            at = f"benchmarks.{name}"
            items = self._try(at, lambda b=benchmark: get_benchmark(b.task).load(**b.options))
            if items == []:
                self.missing.append(f"{at}: it has no items")
            found[name] = items or []
        return found

    @cached_property
    def _models(self) -> dict[tuple[str, str], Inspected]:
        """The models that are there, by pair and role."""
        found = {}
        for name, pair in self.experiment.pairs.items():
            for role in ("target", "draft"):
                place = self._place(pair, role)
                if place is not None:
                    revision = getattr(pair, f"{role}_revision")
                    has_tokenizer = role == "target" or pair.kind != "eagle3"
                    model = self._try(
                        f"pairs.{name}.{role}",
                        lambda place=place, revision=revision, pair=pair, has_tokenizer=has_tokenizer: inspect_model(
                            locate(place, revision), pair.dtype, has_tokenizer, pair.trust_remote_code, pair.context
                        ),
                    )
                    found |= {(name, role): model} if model else {}
        return found

    def _place(self, pair: Pair, role: str) -> str | None:
        """What to look for; None for a model that the workflow has yet to make."""
        model, recipes = getattr(pair, role), self.experiment.recipes
        made = model in self.experiment.models and (recipes.folder(model) / "made.json").exists()
        return recipes.place(model) if made or model not in self.experiment.models else None

    def _tokenizer(self, pair: str) -> Any | None:
        model = self._models.get((pair, "target"))
        return model.tokenizer if model else None

    def _pair(self, name: str) -> Iterator[str]:
        pair = self.experiment.pairs[name]
        models = {role: self._models.get((name, role)) for role in ("target", "draft")}
        for role, model in models.items():
            if model:
                where = model.where
            elif self._place(pair, role) is None:
                where = "not made yet: the workflow makes it first"
            else:
                where = "MISSING"
            yield f"  {role}: {getattr(pair, role)}: {where}"
        if not all(models.values()):
            yield "  vocabulary, memory: unknown until both models are there"
            return
        target, draft = models["target"], models["draft"]
        for role, model in models.items():
            if ignored := ignored_settings(model):
                settings = ", ".join(f"{key} {value}" for key, value in ignored.items())
                yield f"  {role}: its generation_config has {settings}: not applied"
        self._try(f"pairs.{name}", lambda: check_context(pair.kind, target.config, draft.config, pair.context))
        if pair.kind == "eagle3" and (note := head_note(pair.draft, target.config, draft.config, pair.context)):
            yield f"  {note}"
        for role, model in models.items():
            if note := context_note(getattr(pair, role), model.config, self._context(name)):
                yield f"  {note}"
        yield f"  {self._vocabulary(name, pair, target, draft)}"
        yield from (f"  {line}" for line in self._memory(name, pair, target, draft))

    def _vocabulary(self, name: str, pair: Pair, target: Inspected, draft: Inspected) -> str:
        sizes = [model.config.get_text_config().vocab_size for model in (target, draft)]
        verdict = "a head uses the target's"
        if pair.kind != "eagle3":
            backends = [getattr(model.tokenizer, "backend_tokenizer", None) for model in (target, draft)]
            difference = tokenizer_difference(*backends) if all(backends) else None
            if difference:
                self.missing.append(f"pairs.{name}: different tokenizers: {difference}")
            verdict = f"DIFFERENT tokenizers: {difference}" if difference else "the same tokenizer"
        tokenizer = target.tokenizer
        ends = self._try(f"pairs.{name}", lambda: eos_ids(target, tokenizer, pair.eos)) or ()
        if fault := vocabulary_fault(*sizes, tokenizer.get_vocab(), tokenizer.get_added_vocab(), ends):
            self.missing.append(f"pairs.{name}: {fault}")
        shown = ", ".join(f"{token} {tokenizer.convert_ids_to_tokens(token)!r}" for token in ends)
        return (
            f"vocabulary: {min(sizes):,} shared ids (target {sizes[0]:,}, draft {sizes[1]:,}); {verdict}; "
            f"end of sequence: {shown or 'none'}"
        )

    def _memory(self, name: str, pair: Pair, target: Inspected, draft: Inspected) -> Iterator[str]:
        decoding = self.experiment.decoding
        ahead = decoding.tree.total_token if decoding.tree else decoding.gamma or 0
        rows, length = 0, 0
        for benchmark, items in self._items.items():
            limit = self.experiment.benchmarks[benchmark].max_new_tokens
            rows = max(rows, min(decoding.batch_size, len(items)))
            length = max(length, limit + max(self._prompt_lengths(name, benchmark), default=0))
        span = min(length, self._context(name)) + ahead + 1
        caches = [cache_bytes(m.config, rows, span, dtype_of(m.config, pair.dtype)) for m in (target, draft)]
        vocab = min(model.config.get_text_config().vocab_size for model in (target, draft))
        step = 4 * rows * (2 * ahead + 1) * vocab  # p and q in float32
        weights = [model.weights for model in (target, draft)]
        known = sum(caches) + step + sum(size or 0 for size in weights)
        shown = " + ".join("unknown" if size is None else _size(size) for size in weights)
        yield (
            f"memory: weights {shown}; keys and values {_size(sum(caches))} ({rows} rows x {span:,} tokens); "
            f"p and q of a step {_size(step)}"
        )
        yield f"        at least {_size(known)} in all. {self._room(pair, known)}"

    def _room(self, pair: Pair, needed: int) -> str:
        """What the device has; a cluster's nodes may have more."""
        if pair.device != "cpu" and torch.cuda.is_available():
            count = torch.cuda.device_count()
            free = [torch.cuda.mem_get_info(i)[0] for i in range(count)]
            room, what = max(free) if pair.device in ("auto", "cuda") else sum(free), f"{count} GPU here, with"
        elif pair.device not in ("auto", "cpu"):
            return "There is no GPU here."
        else:
            room, what = psutil.virtual_memory().available, "This machine has"
        return f"{what} {_size(room)} free{'' if room > needed else ': TOO LITTLE here'}."

    def _prompt_lengths(self, pair: str, benchmark: str) -> list[int]:
        """Tokens of each prompt under the pair's tokenizer; none if it is not there, or cannot render them."""
        tokenizer, chat = self._tokenizer(pair), self.experiment.benchmarks[benchmark].chat
        if tokenizer is None:
            return []
        try:
            return [len(encode(tokenizer, item, chat)[1]) for item in self._items[benchmark]]
        except ValueError:
            return []  # said with the benchmark

    def _benchmark(self, name: str) -> Iterator[str]:
        benchmark, items = self.experiment.benchmarks[name], self._items[name]
        yield from self._sandbox(name, benchmark)
        if not items:
            yield f"  {benchmark.task}: MISSING"
            return
        yield f"  {benchmark.task}: {len(items):,} items, at most {benchmark.max_new_tokens:,} new tokens each"
        for pair in self.experiment.pairs:
            tokenizer, first = self._tokenizer(pair), items[0]
            if tokenizer is None:
                yield f"  first item {first.id}, as it goes into the chat template of pair {pair}:"
                yield from _shown(_plainly(first))
                continue
            prompt = self._try(f"benchmarks.{name}", lambda t=tokenizer, i=first: encode(t, i, benchmark.chat))
            if prompt is None:
                continue
            lengths = self._prompt_lengths(pair, name) or [len(prompt[1])]
            yield f"  prompts of pair {pair}: {min(lengths):,} to {max(lengths):,} tokens; the first, {first.id}:"
            yield from _shown(prompt[0])
            context = self._context(pair)
            if over := sum(length >= context for length in lengths):
                self.missing.append(f"benchmarks.{name}: {over} prompts do not fit pair {pair}'s context, {context:,}")

    def _context(self, pair: str) -> int:
        """Of the pair, as far as its models are there."""
        found = [self._models.get((pair, role)) for role in ("target", "draft")]
        settings = self.experiment.pairs[pair]
        return pair_context(settings.kind, *(model and model.config for model in found), settings.context)

    def _sandbox(self, name: str, benchmark: Benchmark) -> Iterator[str]:
        """Whether scoring would run model-written code here, and what it cannot enforce."""
        permitted = get_benchmark(benchmark.task).permitted
        if permitted is None:
            return
        sandbox = benchmark.grading.get("sandbox", "required")
        found = self._try(f"benchmarks.{name}", lambda: permitted(sandbox))
        yield f"  sandbox: {', '.join(found.layers) or 'NONE'}" if found else "  sandbox: scoring would REFUSE"
        yield from (f"  {line}" for line in (found.lines if found else ()))

    def _work(self, cells: list[Cell]) -> Iterator[str]:
        left = [cell for cell in cells if not cell.is_whole(Plan(self.experiment, self.source, ()).results)]
        limits = {name: benchmark.max_new_tokens for name, benchmark in self.experiment.benchmarks.items()}
        tokens = {name: len(items) * limits[name] for name, items in self._items.items()}
        most = sum(tokens[cell.benchmark] for cell in left)
        yield f"  {len(left):,} cells to decode: at most {most:,} new tokens, if every answer reaches its limit"
        if not self.pilot:
            yield "  hours: unknown without a pilot (--pilot)"
            return
        if not left or self.missing or len(self._models) < 2 * len(self.experiment.pairs):
            yield "  hours: unknown; a pilot needs cells to decode, and all models and benchmarks"
            return
        hours, open_ended = 0.0, False
        for (pair, benchmark), run in self._measured(left).items():
            cells_left = sum((cell.pair, cell.benchmark) == (pair, benchmark) for cell in left)
            length = run.tokens / run.answers if run.ended == run.answers else limits[benchmark]
            open_ended |= run.ended < run.answers
            hours += cells_left * len(self._items[benchmark]) * length / run.speed / 3600
            yield (
                f"  pilot of {pair} on {benchmark}: {run.answers} answers, {run.ended} of them ended within "
                f"{PILOT_TOKENS} tokens; {run.speed:.1f} tokens/s"
            )
        yield f"  hours: {'at most' if open_ended else 'about'} {hours:.2f} on one actor, at the speed of the pilot"

    def _measured(self, cells: list[Cell]) -> dict[tuple[str, str], Pilot]:
        """A batch of lossless answers, cut short, by pair and benchmark; a token more warms up."""
        from specloss.decoding.cell import decode_cell
        from specloss.models import load_pair

        decoding = self.experiment.decoding
        measured: dict[tuple[str, str], Pilot] = {}
        for name in self.experiment.pairs:
            mine = [cell for cell in cells if cell.pair == name]
            pair = load_pair(**mine[0].settings["pair"]) if mine else None
            for cell in mine:
                if (name, cell.benchmark) in measured:
                    continue
                limit = min(PILOT_TOKENS, cell.settings["benchmark"]["max_new_tokens"])
                short = replace(
                    cell,
                    param=None,
                    settings={
                        **cell.settings,
                        "benchmark": cell.settings["benchmark"] | {"max_new_tokens": limit},
                        "rule": "standard_sd",
                        "options": {},
                    },
                )
                items = range(min(decoding.batch_size, len(self._items[cell.benchmark])))
                batch = {"batch_size": decoding.batch_size, "trace": decoding.trace}
                if not measured:
                    decode_cell(pair, short, items[:1], **batch)
                start = time.perf_counter()
                _, generations = decode_cell(pair, short, items, **batch)
                tokens = sum(map(len, generations["token_ids"].to_pylist()))
                ended = generations["stop"].to_pylist().count("eos")
                speed = tokens / (time.perf_counter() - start)
                measured[name, cell.benchmark] = Pilot(len(items), ended, tokens, speed)
        return measured


@dataclass(frozen=True)
class Pilot:
    """Answers that were begun, how many of them ended, their tokens, and tokens per second."""

    answers: int
    ended: int
    tokens: int
    speed: float


def _plainly(item: Item) -> str:
    """An item without any template."""
    if not item.messages:
        return item.prompt or ""
    return "\n".join(f"[{message['role']}] {message['content']}" for message in item.messages)


def _shown(text: str) -> Iterator[str]:
    """The beginning of a text, as lines behind a bar."""
    lines = text.splitlines() or [""]
    for line in lines[:SHOWN_LINES]:
        yield f"  | {line if len(line) <= SHOWN_WIDTH else line[: SHOWN_WIDTH - 3] + '...'}"
    if len(lines) > SHOWN_LINES:
        yield f"  | ({len(lines) - SHOWN_LINES} more lines)"


def _size(size: int) -> str:
    return f"{size / 1e9:,.2f} GB" if size >= 1e8 else f"{size / 1e6:,.1f} MB"
