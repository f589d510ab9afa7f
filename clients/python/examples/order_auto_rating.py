"""An order is rated five stars 48 hours after its delivery, unless its buyer has rated it by then.

Replays two years of real orders a million times faster: 48 hours become 173 ms, and the run takes a minute.
At the end it counts, and fails if the books do not balance.

    pip install dueq-client
    python order_auto_rating.py ORDERS.CSV [SPEED]     (order_id, delivered_at, reviewed_at, review_score)

The repository has the orders as examples/order_auto_rating/orders.csv.
REDIS_URL names the server; without it, redis://127.0.0.1:6379/.
"""

import asyncio
import csv
import os
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dueq

WINDOW = timedelta(hours=48)


@dataclass(frozen=True)
class Order:
    id: str
    delivered: datetime
    reviewed: datetime
    score: int


@dataclass
class Books:
    """Who rated each order, and how often it was asked for."""

    scores: dict[str, int] = field(default_factory=dict)
    pushed: int = 0
    cancelled: int = 0
    rated: int = 0
    too_late: int = 0
    again: int = 0
    late_ms: list[float] = field(default_factory=list)


def read(file: str) -> list[Order]:
    def moment(text: str) -> datetime:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)

    with Path(file).open(newline="") as rows:
        return [
            Order(row["order_id"], moment(row["delivered_at"]), moment(row["reviewed_at"]), int(row["review_score"]))
            for row in csv.DictReader(rows)
        ]


async def replay(client: dueq.Client, queue: dueq.Queue, orders: list[Order], speed: float) -> Books:
    books, rated_all = Books(), asyncio.Event()
    first = min(order.delivered for order in orders)
    start = datetime.now(UTC) + timedelta(milliseconds=200)

    def scaled(moment: datetime) -> datetime:
        return start + (moment - first) / speed

    async def until(moment: datetime) -> None:
        await asyncio.sleep((scaled(moment) - datetime.now(UTC)).total_seconds())

    def enter(order: str, score: int) -> None:
        books.scores[order] = score
        if len(books.scores) == len(orders):
            rated_all.set()

    async def rate(delivery: dueq.Delivery) -> None:
        if delivery.id in books.scores:
            books.again += 1  # a second delivery of one message: it changes nothing
            return
        books.late_ms.append(time.time() * 1_000 - delivery.due_ms)
        books.rated += 1
        enter(delivery.id, 5)

    async def live(order: Order) -> None:
        await until(order.delivered)
        if order.reviewed <= order.delivered:
            enter(order.id, order.score)
            return
        receipt = await queue.push("", id=order.id, due=scaled(order.delivered + WINDOW), max_attempts=5)
        if not receipt.created:
            raise RuntimeError(f"order {order.id} is in the queue already")
        books.pushed += 1
        await until(order.reviewed)
        if await queue.cancel(order.id) is dueq.CancelOutcome.CANCELLED:
            books.cancelled += 1
            enter(order.id, order.score)
        else:
            books.too_late += 1  # it was rated automatically, or is now

    worker = client.worker().queue(queue, rate, concurrency=32)
    working = asyncio.create_task(worker.run())
    await asyncio.gather(*map(live, orders))
    await rated_all.wait()
    worker.stop()
    await working
    return books


async def main(file: str, speed: float = 1_000_000) -> None:
    orders = read(file)
    async with dueq.connect(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/")) as client:
        books = await replay(client, client.queue(f"order-auto-rating-{os.getpid()}"), orders, speed)
    late = sorted(books.late_ms)
    print(
        f"{len(orders)} orders: {len(orders) - books.pushed} rated by their buyers before the delivery, "
        f"{books.pushed} pushed; of those {books.cancelled} cancelled by a review, "
        f"{books.rated} rated automatically, {books.too_late} of them reviewed later"
    )
    print(f"automatic ratings were {late[len(late) // 2]:.1f} ms late in the median, {late[-1]:.1f} ms at most")
    # Every order has one rating, and none is early.
    balances = books.pushed == books.cancelled + books.rated and books.too_late == books.rated and late[0] >= 0
    print("the books balance" if balances else f"the books do not balance: {books.again} deliveries again")
    sys.exit(0 if balances else 1)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: order_auto_rating.py ORDERS.CSV [SPEED]")
    asyncio.run(main(sys.argv[1], *map(float, sys.argv[2:3])))
