"""Producer and consumer of dueq, a distributed delay queue on Redis."""

from .client import Client, Queue
from .delivery import Delivery, Retry, Settlement
from .durability import Durability
from .errors import Applied, DueqError, ErrorKind
from .in_batches import in_batches
from .model import (
    CancelOutcome,
    EndKind,
    Message,
    MessageEnd,
    MessageState,
    OnConflict,
    OnExpire,
    Options,
    PushOutcome,
    Receipt,
    Rescheduled,
    RescheduleOutcome,
    RunNowOutcome,
    SettleOutcome,
    StoredMessage,
)
from .schedules import (
    MissedPolicy,
    OverlapPolicy,
    Schedule,
    ScheduleChange,
    ScheduleChanges,
    ScheduleHandle,
    ScheduleInfo,
    ScheduleSet,
    ScheduleState,
    Tick,
)
from .worker import Worker

__version__ = "0.1.0"

__all__ = [
    "Applied",
    "CancelOutcome",
    "Client",
    "Delivery",
    "DueqError",
    "Durability",
    "EndKind",
    "ErrorKind",
    "Message",
    "MessageEnd",
    "MessageState",
    "MissedPolicy",
    "OnConflict",
    "OnExpire",
    "Options",
    "OverlapPolicy",
    "PushOutcome",
    "Queue",
    "Receipt",
    "RescheduleOutcome",
    "Rescheduled",
    "Retry",
    "RunNowOutcome",
    "Schedule",
    "ScheduleChange",
    "ScheduleChanges",
    "ScheduleHandle",
    "ScheduleInfo",
    "ScheduleSet",
    "ScheduleState",
    "SettleOutcome",
    "Settlement",
    "StoredMessage",
    "Tick",
    "Worker",
    "connect",
    "in_batches",
]


def connect(url: str) -> Client:
    """A client of `redis://`, `rediss://`, `unix://`, `redis+cluster://` or `redis+sentinel://`."""
    return Client(url)
