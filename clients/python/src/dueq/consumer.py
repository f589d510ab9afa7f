"""The consumer of one queue: its handlers, their leases, and how their deliveries are settled."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import monotonic
from typing import Any

from . import replies
from .client import Queue
from .delivery import Delivery, Retry, Settlement
from .errors import Applied, DueqError, ErrorKind, invalid
from .in_batches import Batches
from .model import Message, SettleOutcome
from .node import Node, end_all
from .partition import Partition
from .routes import HOME, id_of_follow_up, index_of
from .server import Word

log = logging.getLogger("dueq")

_MAX_CLAIM = 256
_EXTEND = 128
_ERROR_BYTES = 1_024
_SETTLE_PAUSE = 0.1
_CLEANUP = 2.0
"""How long a handler that is cancelled at the end of the worker may clean up."""
# An async function, or a blocking one, which runs in a thread. A value that is no Settlement counts as an ack.
Handler = Callable[[Delivery], Awaitable[object]] | Callable[[Delivery], object]


@dataclass(frozen=True, slots=True)
class Settings:
    concurrency: int
    lease_ms: int
    retry: Retry
    time_limit: float | None


@dataclass(eq=False, slots=True)
class _Held:
    """A delivery whose handler runs, and when its lease is extended next."""

    delivery: Delivery
    partition: Partition
    extend_at: float
    task: asyncio.Task[None] | None = None


class Consumer:
    """Runs the handler for the messages of one queue, `concurrency` of them at a time."""

    def __init__(self, queue: Queue, handler: Handler, settings: Settings, node_id: str) -> None:
        self.queue = queue
        self.free = settings.concurrency
        self.has_free = asyncio.Event()
        self.has_free.set()
        self._handler = handler
        self._is_async = _is_async(handler)
        if settings.time_limit is not None and not self._is_async:
            raise invalid("a time_limit needs an async handler: a thread cannot be ended")
        self._threads = None if self._is_async else ThreadPoolExecutor(settings.concurrency, f"dueq-{queue.name}")
        self._settings = settings
        self._node_id = node_id
        self._nodes: dict[str, tuple[Node, asyncio.Task[None]]] = {}
        self._held: set[_Held] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._group: asyncio.TaskGroup | None = None
        self._is_stopping = False
        self._is_remapping = False
        self._is_dispatching = False
        self._turn = 0

    async def run(self, stop: asyncio.Event, grace: float) -> None:
        """Handles messages until `stop` is set; then lets handlers end for `grace` seconds, and releases the rest."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await self.queue.router.refresh()
            except DueqError as error:
                log.warning("queue %s: the map of its partitions was not read yet: %s", self.queue.name, error)
            self._attend()
            extends = group.create_task(self._extends())
            try:
                await stop.wait()
                await self._leave(grace)
            finally:
                # Also if a task of the group has failed: nobody would extend the leases of the handlers that run.
                self._is_stopping, self._group = True, None
                for held in self._held:
                    if held.task is not None:
                        held.task.cancel()
            await end_all([extends, *(task for _, task in self._nodes.values())])

    @property
    def running(self) -> int:
        return len(self._held)

    def _attend(self) -> None:
        """Serves the partitions of the map: each of them, and no other."""
        router, group = self.queue.router, self._group
        if group is None or self._is_stopping:
            return
        tags = router.map.tags if router.map else (HOME,)
        for tag in self._nodes.keys() - set(tags):
            self._background(end_all([self._nodes.pop(tag)[1]]))
        for tag in tags:
            if tag not in self._nodes:
                node = Node(router.servers, router.partition(tag), self._node_id, self)
                self._nodes[tag] = node, group.create_task(node.run())

    def saw_epoch(self, epoch: int | None) -> None:
        known = self.queue.router.map
        if epoch == (known.epoch if known else None) or self._is_remapping or self._group is None:
            return
        self._is_remapping = True
        self._background(self._remap())

    async def _remap(self) -> None:
        try:
            await self.queue.router.refresh()
            self._attend()
        except DueqError as error:
            log.info("queue %s: the map of its partitions was not read: %s", self.queue.name, error)
        finally:
            self._is_remapping = False

    def dispatch(self) -> None:
        """Claims soon: first all handlers that are about to end do so, and one claim serves them all."""
        if not self._is_dispatching:
            self._is_dispatching = True
            asyncio.get_running_loop().call_soon(self._dispatch)

    def _dispatch(self) -> None:
        """Claims for the nodes that want to, in turn, while handlers are free."""
        self._is_dispatching = False
        wanted = [node for node, _ in self._nodes.values() if node.wanted and not node.claiming]
        if self._is_stopping or not wanted:
            return
        self._turn += 1
        first = self._turn % len(wanted)
        share = max(self.free // len(wanted), 1)
        for node in wanted[first:] + wanted[:first]:
            if self.free == 0:
                return
            count = min(share, self.free, _MAX_CLAIM)
            self._take(count)
            node.claiming = True
            self._background(self._claim(node, count))

    def _take(self, count: int) -> None:
        self.free -= count
        if self.free == 0:
            self.has_free.clear()

    def _give_back(self, count: int) -> None:
        self.free += count
        if self.free > 0:
            self.has_free.set()
            self.dispatch()

    async def _claim(self, node: Node, count: int) -> None:
        # A token tells its node, so that an operator finds leases whose node is gone.
        token = b"@" + self._node_id[-7:].encode() + secrets.token_bytes(8)
        third = monotonic() + self._settings.lease_ms / 3_000
        unused = count
        try:
            granted, expires = await node.claim(count, token, self._settings.lease_ms)
            for one in granted:
                held = _Held(Delivery(self.queue.name, one, token, expires), node.partition, third)
                self._held.add(held)
                held.task = self._background(self._handle(held))
                unused -= 1
        finally:
            self._give_back(unused)

    async def _handle(self, held: _Held) -> None:
        settlement: Settlement | None = None
        try:
            # A claim may have been under way as the worker stopped.
            settlement = Settlement.release() if self._is_stopping else await self._run_handler(held.delivery)
            if held not in self._held:  # the worker has stopped without it
                return
            if settlement is not None and settlement.verb == "throttle":
                await self._settle(held, settlement)  # first: this place must not start another message
                settlement = None
        finally:
            if held in self._held:
                self._held.discard(held)
                self._give_back(1)
        if settlement is not None:
            await self._settle(held, settlement)

    async def _run_handler(self, delivery: Delivery) -> Settlement | None:
        """How the delivery is settled; None if its lease was lost."""
        try:
            answer = await self._call(delivery)
        except asyncio.CancelledError as error:
            if self._is_stopping:
                return None if delivery.is_lost else Settlement.release()
            settlement = Settlement.retry(repr(error))  # the handler has cancelled itself
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            log.warning("the handler of %r failed: %r", delivery, error, exc_info=error)
            text = str(error)
            settlement = Settlement.retry(f"{type(error).__name__}: {text}" if text else type(error).__name__)
        else:
            settlement = answer if isinstance(answer, Settlement) else Settlement.ack()
            if inspect.iscoroutine(answer):
                answer.close()
                settlement = Settlement.retry("the handler returned a coroutine: declare it with async def")
        return None if delivery.is_lost else settlement

    async def _call(self, delivery: Delivery) -> object:
        handler: Callable[[Delivery], Any] = self._handler
        if self._threads is None:
            if self._settings.time_limit is None:
                return await handler(delivery)
            try:
                async with asyncio.timeout(self._settings.time_limit) as limit:
                    return await handler(delivery)
            except TimeoutError:
                if limit.expired():
                    raise TimeoutError(f"the time limit of {self._settings.time_limit} s has passed") from None
                raise
        run = contextvars.copy_context().run
        future = asyncio.get_running_loop().run_in_executor(self._threads, run, handler, delivery)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if delivery.is_lost and not self._is_stopping:
                await asyncio.wait([future])  # the thread goes on, and its place is not free before
            raise

    async def _settle(self, held: _Held, settlement: Settlement) -> None:
        """Repeats a settlement at least until the lease ends, and falls back to a retry if the script refuses it."""
        while True:
            try:
                outcome = await self._settled(held, settlement)
            except DueqError as error:
                if error.kind in (ErrorKind.INVALID_INPUT, ErrorKind.FULL) and settlement.verb != "retry":
                    settlement = Settlement.retry(f"{settlement.verb} was refused: {error}")
                    continue
                # A right that is missing for a moment, as while users are renewed, costs no result of a handler.
                may_pass = error.retryable or error.kind is ErrorKind.DENIED
                if may_pass and monotonic() < held.delivery.expires:
                    await asyncio.sleep(_SETTLE_PAUSE)
                    continue
                log.error("%r was not settled, and is delivered again: %s", held.delivery, error)
                return
            if outcome in (SettleOutcome.GONE, SettleOutcome.LOST):
                log.info(
                    "%r: %s answered %s: settled before, or the lease was lost", held.delivery, settlement.verb, outcome
                )
            return

    async def _settled(self, held: _Held, settlement: Settlement) -> str:
        verb, delivery, partition = settlement.verb, held.delivery, held.partition
        if verb == "ack_push":
            return await self._ack_push(held, settlement)
        words: list[Word] = [delivery.id_bytes, delivery.token]
        if verb == "ack":
            words.reverse()
        elif verb == "retry":
            words.append(settlement.word or self._settings.retry.delay_ms(delivery.attempt))
        elif settlement.word:
            words.append(settlement.word)
        if verb in ("retry", "bury"):
            words.append(settlement.text.encode("utf-8", "replace")[:_ERROR_BYTES])
        lane = self.queue.router.lane(partition.tag, verb)
        found = replies.result(verb, (await lane.submit(*words)).text)
        if verb == "throttle" and found.outcome == "until":
            for node, _ in self._nodes.values():
                if node.partition is not partition:
                    await node.partition.call_patiently("throttle", "close", settlement.word)
        return found.outcome

    async def _ack_push(self, held: _Held, settlement: Settlement) -> str:
        """Acks and stores the follow-ups in one step, but for those that the partitions' change takes elsewhere."""
        router, delivery, partition = self.queue.router, held.delivery, held.partition
        id = delivery.id_bytes
        messages = [one.named(id_of_follow_up(id, number)) for number, one in enumerate(settlement.messages, 1)]
        while True:
            map = router.map
            here: list[Message] = []
            for message in messages:
                lists = [tags for tags in (map.old, map.new) if tags] if map else []
                if all(tags[index_of(message.id, len(tags))] == partition.tag for tags in lists):
                    here.append(message)
                elif map and map.old == map.new:
                    raise invalid(f"the follow-up {message.id!r} is of another partition: let the library name it")
                else:
                    await self.queue.push_message(message)
            if not here:
                answer = await router.lane(partition.tag, "ack").submit(delivery.token, id)
                return replies.result("ack", answer.text).outcome
            words = [word for message in here for word in message.arguments]
            fence = f"m{map.epoch}" if map else ""
            try:
                reply = await partition.call_patiently("ack_push", delivery.token + id, *words, fence=fence)
            except DueqError as error:
                if error.is_remapped and error.applied is Applied.NO and await router.refresh():
                    messages = here
                    continue
                raise
            word, texts = reply.body[0].decode(), [text.decode() for text in reply.body[1]]
            if word == "REFUSED":
                for text in texts:
                    replies.result("ack_push", text)  # raises for the refused one
            return replies.result("ack", word).outcome

    async def _extends(self) -> None:
        """Extends each lease when a third of it has passed; what is lost is cancelled."""
        tick = min(1.0, self._settings.lease_ms / 6_000)
        while True:
            await asyncio.sleep(tick)
            now = monotonic()
            due: dict[Partition, list[_Held]] = {}
            for held in self._held:
                if held.extend_at <= now and not held.delivery.is_lost:
                    due.setdefault(held.partition, []).append(held)
            for partition, all_held in due.items():
                for at in range(0, len(all_held), _EXTEND):
                    self._background(self._extend(partition, all_held[at : at + _EXTEND]))

    async def _extend(self, partition: Partition, due: list[_Held]) -> None:
        sent, lease_ms = monotonic(), self._settings.lease_ms
        words = [word for held in due for word in (held.delivery.id_bytes, held.delivery.token, lease_ms)]
        for held in due:
            held.extend_at = sent + lease_ms / 3_000
        try:
            texts = [text.decode() for text in (await partition.call("extend", *words)).body[0]]
        except DueqError as error:
            log.warning("queue %s: %s leases were not extended: %s", self.queue.name, len(due), error)
            for held in due:
                held.extend_at = 0.0  # at the next tick
                if held.delivery.expires <= monotonic():
                    self._lose(held)
            return
        for held, text in zip(due, texts, strict=True):
            if replies.result("extend", text).outcome == "until":
                held.delivery.expires = sent + lease_ms / 1_000
            else:
                self._lose(held)

    def _lose(self, held: _Held) -> None:
        if held not in self._held or held.delivery.is_lost:
            return
        log.warning("%r: the lease was lost, and the handler is asked to stop", held.delivery)
        held.delivery.lose()
        if held.task is not None:
            held.task.cancel()

    async def _leave(self, grace: float) -> None:
        nodes = [node for node, _ in self._nodes.values()]
        self._is_stopping = True
        await asyncio.gather(*(node.stop_claiming() for node in nodes))
        if isinstance(self._handler, Batches):
            self._handler.close()
        end = monotonic() + grace
        while self._held and monotonic() < end:
            tasks = [held.task for held in self._held if held.task is not None]
            await asyncio.wait(tasks, timeout=end - monotonic(), return_when=asyncio.FIRST_COMPLETED)
        for held in self._held:
            if held.task is not None:
                held.task.cancel()  # its delivery is released
        if self._held:
            tasks = [held.task for held in self._held if held.task is not None]
            await asyncio.wait(tasks, timeout=_CLEANUP)
        for held in list(self._held):
            log.error("%r: its handler does not end; the message is released", held.delivery)
            self._held.discard(held)
            self._tasks -= {held.task}
            await self._settle(held, Settlement.release())
            held.delivery.lose()
        while self._tasks:
            await asyncio.wait(list(self._tasks))
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        await asyncio.gather(*(node.leave() for node in nodes))

    def _background(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task of the consumer of queue %s failed", self.queue.name, exc_info=error)


def _is_async(handler: Handler) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004
