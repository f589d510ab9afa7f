/** Producer and consumer of dueq, a distributed delay queue on Redis. */
import { Client, type ClientOptions } from "./client.js";

export { type CallOptions, type Client, type ClientOptions, type Queue } from "./client.js";
export { type Handler } from "./consumer.js";
export { type Delivery, Retry, Settlement, type Tick } from "./delivery.js";
export { type Connection, type Driver, type Place } from "./driver.js";
export { Durability } from "./durability.js";
export { type Applied, DueqError, type ErrorKind } from "./errors.js";
export { type BatchHandler, type InBatches, inBatches } from "./in_batches.js";
export { type Log } from "./log.js";
export {
  type Bytes,
  type CancelOutcome,
  type EndKind,
  Message,
  type MessageEnd,
  type MessageState,
  type Milliseconds,
  type Moment,
  type OnConflict,
  type OnExpire,
  type Options,
  type PushOutcome,
  type Receipt,
  type Rescheduled,
  type RescheduleOutcome,
  type RunNowOutcome,
  type StoredMessage,
} from "./model.js";
export {
  type ApplyOptions,
  type MissedPolicy,
  type OverlapPolicy,
  Schedule,
  type ScheduleChange,
  type ScheduleChanges,
  type ScheduleHandle,
  type ScheduleInfo,
  type ScheduleOptions,
  type ScheduleSet,
  type ScheduleState,
} from "./schedules.js";
export { type QueueOptions, type RunOptions, type Worker } from "./worker.js";

/**
 * A client of `redis://`, `rediss://`, `unix://`, `redis+cluster://` or `redis+sentinel://`.
 * `redis://` may name a server of a cluster, too.
 */
export function connect(url: string, options?: ClientOptions): Client {
  return new Client(url, options);
}
