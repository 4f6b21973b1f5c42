"""The workers that a run has on the nodes of a cluster, kept in line with what joins and dies.

A node that has what the environments need is admitted first (`admission.py`), then gets workers of
its own, which live and die with it. A node that cannot be used is told once and left out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Protocol

from clawrl_gym.cluster.nodes import JOIN, Node
from clawrl_gym.core.errors import ClawError, ConfigErrors
from clawrl_gym.core.processes.pauses import growing_pauses_s
from clawrl_gym.rollout.collection.pool import EpisodeRunner, WorkerPool
from clawrl_gym.rollout.episodes.stage import Stages, resources_of

_LOOK_S = 0.5
_CLOSE_S = 5.0


class NodeWorker(EpisodeRunner, Protocol):
    """A worker on a node."""

    async def ready(self) -> object: ...

    async def close(self) -> None: ...


class Nodes(Protocol):
    """A cluster, as far as its workers are concerned."""

    @property
    def address(self) -> str: ...

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The living nodes."""

    def lose(self, why: str) -> None:
        """The run cannot continue."""


Admit = Callable[[Node], Awaitable[Stages]]
"""The environments as a node has them. Raises ClawError when the node cannot be used at all, and
anything else when that may pass."""
MakeWorker = Callable[[Node, Stages, int], NodeWorker]
"""Makes a worker on that node, of these environments, for so many episodes at a time."""


class Roster:
    """The workers of each node."""

    def __init__(
        self,
        cluster: Nodes,
        pool: WorkerPool,
        stages: Stages,
        admit: Admit,
        make: MakeWorker,
        *,
        workers: int,
        slots: int,
        node_timeout_s: float,
        say: Callable[[str], None],
    ) -> None:
        """`workers` on each node, at most, with `slots` environments each."""
        self._cluster = cluster
        self._pool = pool
        self._stages = stages
        self._resources = resources_of(stages)
        self._admit = admit
        self._make = make
        self._workers = workers
        self._slots = slots
        self._node_timeout_s = node_timeout_s
        self._say = say
        self._joining: dict[Node, asyncio.Task[None]] = {}
        self._members: dict[Node, list[NodeWorker]] = {}
        self._refused: dict[Node, str] = {}
        self._first = asyncio.Event()
        self._alone_since_s = time.monotonic()
        self._is_alone_told = False

    async def start(self, stack: AsyncExitStack) -> None:
        """Answers once a first node's workers are in the pool; `stack` ends it.

        Raises ConfigErrors when no node can be used.
        """
        following = asyncio.create_task(self._follow())
        stack.push_async_callback(self._end, following)
        first = asyncio.create_task(self._first.wait())
        try:
            await asyncio.wait({following, first}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            first.cancel()
        if following.done():
            following.result()
        following.add_done_callback(self._over)

    async def _follow(self) -> None:
        """Look again and again at who lives. Raises ConfigErrors when nobody is left for long."""
        while True:
            living = [node for node in self._cluster.nodes if node.has(*self._resources)]
            for node in living:
                if node not in {*self._joining, *self._members, *self._refused}:
                    self._joining[node] = asyncio.create_task(self._join(node))
            for node in {*self._joining, *self._members, *self._refused} - {*living}:
                self._leave(node)
            self._check_somebody_is_left()
            await asyncio.sleep(_LOOK_S)

    def _check_somebody_is_left(self) -> None:
        now_s = time.monotonic()
        if self._members or self._joining:
            self._alone_since_s, self._is_alone_told = now_s, False
            return
        is_start = not self._first.is_set()
        is_over = now_s - self._alone_since_s > self._node_timeout_s
        if is_over or (is_start and self._refused):
            raise ConfigErrors(
                [*self._refused.values(), *([] if self._refused else [self._nobody])]
            )
        if not self._is_alone_told:
            self._is_alone_told = True
            self._say(f"{self._nobody}; waiting {self._node_timeout_s:g} s for one")

    async def _join(self, node: Node) -> None:
        """Have its workers in the pool, or say why not."""
        pauses_s = growing_pauses_s(1.0, 30.0)
        try:
            while True:
                try:
                    return await self._hire(node)
                except ClawError as error:
                    self._refused[node] = f"node {node.label} cannot be used: {error}"
                    return self._say(self._refused[node])
                except Exception as error:  # noqa: BLE001 - the border: Ray's own troubles may pass
                    words = " ".join(str(error).split())[:300] or "it did not answer in time"
                    self._say(f"node {node.label} is not ready: {type(error).__name__}: {words}")
                await asyncio.sleep(next(pauses_s))
        finally:
            self._joining.pop(node, None)

    async def _hire(self, node: Node) -> None:
        stages = await self._admit(node)
        shares = node.shares(resources_of(stages), self._workers, self._slots)
        workers = [self._make(node, stages, slots) for slots in shares]
        try:
            await asyncio.gather(*(worker.ready() for worker in workers))
        except BaseException:
            await close_workers(workers, _CLOSE_S)
            raise
        self._members[node] = workers
        for number, (worker, slots) in enumerate(zip(workers, shares, strict=True), 1):
            one_of = f" {number}" if len(workers) > 1 else ""
            self._pool.add(worker, slots, f"worker{one_of} on node {node.label}")
        self._first.set()
        count = f"{len(shares)} worker{'s' if len(shares) > 1 else ''}"
        self._say(f"node {node.label}: {count} with {sum(shares)} environments")

    def _leave(self, node: Node) -> None:
        """Remove a dead node: nothing is asked of it any more."""
        if (joining := self._joining.pop(node, None)) is not None:
            joining.cancel()
        self._refused.pop(node, None)
        workers = self._members.pop(node, [])
        for worker in workers:
            self._pool.remove(worker)
        if workers:
            self._say(f"node {node.label} ended: its episodes are run again on others")

    @property
    def _nobody(self) -> str:
        address = self._cluster.address
        there = "; ".join(node.words() for node in self._cluster.nodes) or "none"
        if not self._resources:
            return f"the cluster at {address} has no node with a core for environments ({there})"
        join = JOIN.format(address=address)
        needed = " and ".join(map(repr, self._resources))
        resources = ", ".join(f'"{resource}": ENVIRONMENTS' for resource in self._resources)
        envs = " and env=".join(sorted({stage.env.type for stage in self._stages.values()}))
        return (
            f"no node of the cluster at {address} has the resource {needed}, which env={envs} "
            f"needs (nodes: {there}): join a machine that can hold them with {join}, or give ray "
            f"start --resources='{{{resources}}}'"
        )

    def _over(self, following: asyncio.Task[None]) -> None:
        if not following.cancelled() and (error := following.exception()) is not None:
            self._cluster.lose(str(error))

    async def _end(self, following: asyncio.Task[None]) -> None:
        tasks = [following, *self._joining.values()]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        hired = [worker for workers in self._members.values() for worker in workers]
        await close_workers(hired, _CLOSE_S)


class Closable(Protocol):
    """Something with an end of its own."""

    async def close(self) -> None: ...


async def close_workers(workers: Sequence[Closable], within_s: float) -> None:
    """Close them in order, as far as they answer: the end of the run ends them all the same."""

    async def close(worker: Closable) -> None:
        with suppress(Exception):
            async with asyncio.timeout(within_s):
                await worker.close()

    await asyncio.gather(*(close(worker) for worker in workers))
