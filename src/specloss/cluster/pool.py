"""The pool: named, detached actors, each holding a pair, found or created by any client.

Not `ray.util.ActorPool`, one client's queue over actors that it is given: clients cannot share one, it does not
know how busy others keep an actor, it creates none, and it drops an actor that died together with its task.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from typing import Any

from specloss.cluster.ray_head import RayHeadError
from specloss.cluster.worker import PairWorker
from specloss.common.files import config_hash
from specloss.common.provenance import code_version

MAX_CPU_ACTORS = 2
# An actor that dies comes back with its name this often, and each of its tasks is done again this often, by Ray itself
MAX_RESTARTS, MAX_TASK_RETRIES = 10, 2
ANSWER_SECONDS = 10.0  # an actor answers in milliseconds once it runs, but starts in a second or more
IDLE_SECONDS = 5.0
# On a cluster that was given, actors that nobody has asked for anything this long end: their GPUs are not ours to keep
LINGER_SECONDS = 120.0


class Pool:
    """The actors of one pair. A new one is created when all existing ones are busy.

    On GPUs an actor reserves `gpus_per_pair` of one node. On a CPU it reserves nothing: only the pool's size limits
    how many there are, so that several pairs never wait for each other forever.
    """

    def __init__(
        self, ray: Any, name: str, pair: dict[str, Any], cluster: dict[str, Any], linger: float | None = None
    ) -> None:
        """`ray` is connected; `name` and `pair` come from the config, `cluster` is its section.

        `linger`: seconds without work after which actors end by themselves. RayHeadError if no node of the cluster has
        as many GPUs as one pair needs.
        """
        self._ray, self._name, self._pair, self._linger = ray, name, pair, linger
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        gpus = [node.get("GPU", 0) for node in nodes]
        cores = max((int(node.get("CPU", 0)) for node in nodes), default=0) or 1  # of one node: an actor is on one
        per_pair = cluster.get("gpus_per_pair")
        self._gpus = per_pair if per_pair is not None else float(any(gpus))
        wanted = cluster.get("actors", "auto")
        if self._gpus:
            fit = [math.floor(count / self._gpus + 1e-9) for count in gpus]
            if not any(fit):
                raise RayHeadError(
                    f"pair {name} needs {self._gpus:g} GPUs on one node (cluster.gpus_per_pair), "
                    f"the largest node of the Ray cluster has {max(gpus, default=0):g}"
                )
            self.size = sum(fit) if wanted == "auto" else min(wanted, sum(fit))
            side_by_side = min(self.size, max(fit))
        else:
            self.size = side_by_side = min(cores, MAX_CPU_ACTORS) if wanted == "auto" else wanted
        self._threads = max(1, cores // side_by_side)
        # A cluster that outlives a run must not decode with the code, or the pair, of an earlier one
        self._key = config_hash([pair, code_version(), self._threads])
        self._actors: dict[int, Any] = {}
        self._unplaced: set[int] = set()

    def freest(self) -> Any:
        """The actor with the fewest tasks, a new one if all are busy and there is room.

        ray.exceptions.RayError if none can be reached, GetTimeoutError of these if none has been placed yet.
        """
        least, best, failure = math.inf, None, None
        for slot in range(self.size):
            try:
                patience = 0.1 if slot in self._unplaced else ANSWER_SECONDS
                tasks = self._ray.get(self.actor(slot).claim.remote(), timeout=patience)
                self._unplaced.discard(slot)
            except self._ray.exceptions.GetTimeoutError as error:
                # its GPU is held by an actor of another pair
                failure, tasks = error, math.inf
                self._unplaced.add(slot)
                self._make_room()
            except self._ray.exceptions.RayError as error:
                failure, tasks = error, math.inf
                self._actors.pop(slot, None)  # dead for good, or coming back: ask for it by name the next time
            if tasks < least:
                least, best = tasks, self._actors[slot]
            if tasks == 0:
                break
        if best is None:
            raise failure or RayHeadError("the pool has no actors")
        return best

    def actor(self, slot: int) -> Any:
        """The actor of a slot. Several clients that ask at once get the same one."""
        if slot not in self._actors:
            self._actors[slot] = (
                self._ray.remote(PairWorker)
                .options(
                    name=f"{self._name}-{self._key}-{slot}",
                    lifetime="detached",  # not tied to the client that happened to create it
                    get_if_exists=True,
                    num_cpus=0,
                    num_gpus=self._gpus,
                    max_restarts=MAX_RESTARTS,
                    max_task_retries=MAX_TASK_RETRIES,
                )
                .remote(self._name, self._pair, self._threads, os.getcwd(), self._linger)
            )
        return self._actors[slot]

    def _make_room(self) -> None:
        """End idle actors of other pairs, so that ours get their GPUs. A client that wanted one creates it again."""
        end_idle_actors(self._ray, IDLE_SECONDS, {f"{self._name}-{self._key}-{slot}" for slot in range(self.size)})


def end_idle_actors(ray: Any, seconds: float, spared: Iterable[str] = ()) -> None:
    """End this user's actors that have been idle for that long; a client that still needs one creates it again."""
    for name in set(ray.util.list_named_actors()) - set(spared):
        try:
            actor = ray.get_actor(name)
            if ray.get(actor.idle.remote(), timeout=1) > seconds:
                ray.kill(actor)
        except (ValueError, ray.exceptions.RayError):
            continue  # gone, or not placed itself
