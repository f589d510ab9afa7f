"""Sends the calls that name an id to the partition of the id, also while the partitions change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic

from .batches import Answer, Lane, Refused
from .durability import Durability
from .errors import Applied, DueqError, ErrorKind
from .model import shown
from .partition import PATIENCE, Partition, Patience
from .replies import Reply
from .routes import HOME, PartitionMap, Step
from .server import Word
from .servers import Servers

_MOVING_PAUSE = 0.02
_SEARCHED_TAGS = 64
_ONE = [Step(HOME, "")]
Send = Callable[[Partition, str], Awaitable[Answer]]


class Router:
    """The partitions of one queue, by the newest map that this client has seen."""

    def __init__(self, servers: Servers, queue: str) -> None:
        self.servers = servers
        self.queue = queue
        self.map: PartitionMap | None = None
        self._partitions: dict[str, Partition] = {}
        self._lanes: dict[tuple[str, str, str, Durability | None], Lane] = {}
        self._refreshing = asyncio.Lock()
        self._learned = False
        self._learning: asyncio.Task[None] | None = None
        self.partition(HOME)  # refuses a bad name now

    def partition(self, tag: str) -> Partition:
        partition = self._partitions.get(tag)
        if partition is None:
            partition = self._partitions[tag] = Partition(self.servers, self.queue, tag)
        return partition

    def lane(self, tag: str, verb: str, fence: str = "", durability: Durability | None = None) -> Lane:
        key = (tag, verb, fence, durability)
        lane = self._lanes.get(key)
        if lane is None:
            self._lanes = {key: lane for key, lane in self._lanes.items() if key[2] in ("", fence) or not lane.idle}
            lane = self._lanes[key] = Lane(self.partition(tag), verb, fence, durability)
        return lane

    async def drain(self) -> None:
        """Waits for the calls that are under way."""
        for lane in list(self._lanes.values()):
            await lane.drain()

    async def item(
        self, verb: str, id: bytes, *arguments: Word, repeatable: bool = True, durability: Durability | None = None
    ) -> Answer:
        """Sends one item in a batch of its partition."""

        async def send(partition: Partition, fence: str) -> Answer:
            return await self.lane(partition.tag, verb, fence, durability).submit(*arguments, repeatable=repeatable)

        return await self._routed(id, send)

    async def items(
        self, verb: str, items: Sequence[tuple[bytes, tuple[Word, ...], bool]], durability: Durability | None
    ) -> list[Answer | Exception]:
        """Sends many items, as few calls as their partitions allow."""
        if not self._learned:
            await self.learn()
        map = self.map
        waiting: list[Awaitable[Answer]] = []
        for id, arguments, repeatable in items:
            steps = _ONE if map is None else map.steps(id)
            if len(steps) == 1:
                lane = self.lane(steps[0].tag, verb, steps[0].fence, durability)
                waiting.append(lane.submit(*arguments, repeatable=repeatable))
            else:
                waiting.append(self.item(verb, id, *arguments, repeatable=repeatable, durability=durability))
        answers: list[Answer | BaseException] = await asyncio.gather(*waiting, return_exceptions=True)
        again = [at for at, answer in enumerate(answers) if isinstance(answer, Refused) or _is_moving(answer)]
        for at in again:
            answer, (id, arguments, repeatable) = answers[at], items[at]
            if isinstance(answer, Refused) and answer.error.applied is not Applied.NO and answer.error.code != "BEHIND":
                answers[at] = answer.error.marked(id=id)
                continue
            try:
                answers[at] = await self.item(verb, id, *arguments, repeatable=repeatable, durability=durability)
            except DueqError as error:
                answers[at] = error
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, Exception):
                raise answer
        return [answer for answer in answers if isinstance(answer, Answer | Exception)]

    async def get(self, id: bytes, read: Callable[[Reply], object]) -> object:
        """Calls `get`. Its reply is no result of an item: `AWAY` is an empty one, and `MOVING` is an error."""
        found: object = None

        async def send(partition: Partition, fence: str) -> Answer:
            nonlocal found
            try:
                reply = await partition.call_patiently("get", id, fence=fence)
            except DueqError as error:
                if error.is_remapped:
                    raise Refused(error) from error
                if error.code == "MOVING":
                    return Answer("MOVING", 0, False)
                raise error.marked(Applied.NO) from error
            here = read(reply)
            found = None if fence[:1] == "p" else found
            found = here if here is not None else found
            # A message decides; how one ended counts only if the new partition has no message.
            known = bool(reply.body and reply.body[0])
            return Answer("FOUND" if known or fence[:1] != "p" else "AWAY", reply.header.now_us, False)

        await self._routed(id, send)
        return found

    async def _routed(self, id: bytes, send: Send) -> Answer:
        patience, moving_until = Patience(), 0.0
        if not self._learned:
            await self.learn()
        while True:
            map = self.map
            steps = _ONE if map is None else map.steps(id)
            refused: DueqError
            if not steps:
                refused = DueqError(ErrorKind.UNAVAILABLE, Applied.NO, f"the queue {self.queue} is being deleted")
                await self._wait(map, None, refused, patience)
                continue
            step = steps[0]
            try:
                answer = await send(self.partition(step.tag), step.fence)
                remembered = None
                if answer.text.startswith("AWAY") and len(steps) > 1:
                    if len(answer.text) > 5:
                        remembered = Answer(answer.text[5:], answer.now_us, answer.repeated)
                    step = steps[1]
                    fence = "p" + step.fence[1:] if remembered else step.fence
                    answer = await send(self.partition(step.tag), fence)
            except Refused as refusal:
                refused = refusal.error
                if refused.applied is not Applied.NO and refused.code != "BEHIND":
                    raise refused.marked(id=id) from refusal
                await self._wait(map, step.tag, refused, patience)
                continue
            if answer.text != "MOVING":
                return remembered if remembered and answer.text.startswith("AWAY") else answer
            if answer.repeated:
                text = f"the message {shown(id)!r} is on its way to another partition, and the first reply was lost"
                raise DueqError(ErrorKind.UNAVAILABLE, Applied.UNKNOWN, text, id=id)
            moving_until = moving_until or monotonic() + PATIENCE
            if monotonic() > moving_until:
                text = f"the message {shown(id)!r} has been on its way to another partition for {PATIENCE:g} s"
                raise DueqError(ErrorKind.UNAVAILABLE, Applied.NO, text)
            await asyncio.sleep(_MOVING_PAUSE)

    async def _wait(self, seen: PartitionMap | None, tag: str | None, refused: DueqError, patience: Patience) -> None:
        """Learns the newest map after a refusal; pauses if there is no newer one."""
        error = DueqError(ErrorKind.UNAVAILABLE, Applied.NO, str(refused))
        try:
            if await self._refresh(seen, tag if refused.code == "BEHIND" else None):
                return
        except DueqError as failure:
            error = failure
        if not patience.allows(error, True):
            raise error
        await patience.pause()

    async def _refresh(self, seen: PartitionMap | None, behind: str | None) -> bool:
        """Reads the map at the home. Returns whether it is another one than `seen`."""
        async with self._refreshing:
            if self.map != seen:  # another caller has read it meanwhile
                return True
            text = await self.partition(HOME).read_map()
            newest = PartitionMap.parse(self.queue, text) if text else None
            if seen is not None and (newest is None or newest.epoch < seen.epoch):
                if newest is None and not await self._is_elsewhere(seen):
                    self.map = None  # the queue is back at one partition
                    return True
                # The home's master has lost its data, and nobody else tells it of this map.
                await self.partition(HOME).call_patiently("remap", "forward", seen.text)
                return False
            if newest != seen:
                self.map = newest
                return True
            if seen is not None and behind in seen.new:
                await self.partition(behind).call_patiently("remap", "forward", seen.text)
            return False

    async def _is_elsewhere(self, map: PartitionMap) -> bool:
        """Whether another partition of this map still has it."""
        others = [tag for tag in map.new if tag != HOME]
        return bool(others) and bool(await self.partition(others[0]).read_map())

    async def refresh(self) -> bool:
        """Reads the map again, as after a header with another epoch. Returns whether it changed."""
        return await self._refresh(self.map, None)

    async def learn(self) -> None:
        """Reads the map before the first call to a cluster. Callers at the same time share this."""
        if self._learning is None or self._learning.done():
            self._learning = asyncio.create_task(self._learn())
        await asyncio.shield(self._learning)

    async def _learn(self) -> None:
        try:
            is_cluster = await self.servers.is_cluster()
        except DueqError:
            return  # the call itself meets this error too, and is repeated if it may be
        if is_cluster:
            await self._search()
        self._learned = True

    async def _search(self) -> None:
        """Reads the map, also from other partitions if the home is away."""
        try:
            await self._refresh(None, None)
            return
        except DueqError as error:
            if error.kind not in (ErrorKind.UNAVAILABLE, ErrorKind.TIMEOUT):
                raise
        reads = (self.partition(str(tag)).read_map() for tag in range(_SEARCHED_TAGS))
        texts = [
            text for text in await asyncio.gather(*reads, return_exceptions=True) if isinstance(text, str) and text
        ]
        maps = [PartitionMap.parse(self.queue, text) for text in texts]
        self.map = max(maps, key=lambda map: map.epoch, default=None)


def _is_moving(answer: object) -> bool:
    return isinstance(answer, Answer) and answer.text == "MOVING" and not answer.repeated
