// How deliveries are settled, at the partition that has their message.
import type { Answer, LaneVerb } from "./batches.js";
import type { Queue } from "./client.js";
import { monotonic } from "./clock.js";
import { Settlement, type Retry } from "./delivery.js";
import { asDueqError, invalid } from "./errors.js";
import type { Word } from "./driver.js";
import type { Held } from "./held.js";
import { wordOf, type Message } from "./model.js";
import type { Partition } from "./partition.js";
import { list, result, text } from "./replies.js";
import { idOfFollowUp, indexOf } from "./routes.js";
import { pause } from "./waiting.js";

const ERROR_BYTES = 1_024;
const SETTLE_PAUSE = 100;

/** Settles the deliveries of one queue. */
export class Settler {
  /** `partitions` are those that the worker attends: a throttle closes all of them. */
  constructor(
    private readonly queue: Queue,
    private readonly retry: Retry,
    private readonly partitions: () => readonly Partition[],
  ) {}

  /** Repeats a settlement at least until the lease ends, and falls back to a retry if the script refuses it. */
  async settle(held: Held, settlement: Settlement): Promise<void> {
    for (let now = settlement; ;) {
      try {
        const outcome =
          now.verb === "ack_push"
            ? await this.ackPush(held, now.messages)
            : result(now.verb, (await this.submit(held, now)).text).outcome;
        if (outcome === "until") await this.closeOthers(held.partition, now.word);
        if (outcome === "gone" || outcome === "lost") {
          const why = "settled before, or the lease was lost";
          this.queue.client.log("info", `${held.name}: ${now.verb} answered ${outcome}: ${why}`);
        }
        return;
      } catch (thrown) {
        const error = asDueqError(thrown);
        if ((error.kind === "invalid_input" || error.kind === "full") && now.verb !== "retry") {
          now = Settlement.retry(`${now.verb} was refused: ${error.message}`);
        } else if ((error.retryable || error.kind === "denied") && monotonic() < held.expires) {
          // A right may be missing for a moment only, as while users are renewed.
          await pause(SETTLE_PAUSE);
        } else {
          this.queue.client.log("error", `${held.name} was not settled, and is delivered again: ${error.message}`);
          return;
        }
      }
    }
  }

  private submit(held: Held, { verb, word, text }: Settlement): Promise<Answer> {
    const { token, partition, delivery } = held;
    const id = wordOf("an id", delivery.id);
    const words: Word[] = verb === "ack" ? [token, id] : [id, token];
    if (verb === "retry") words.push(word || this.retry.delayMs(delivery.attempt));
    else if (word) words.push(word);
    if (verb === "retry" || verb === "bury") words.push(Buffer.from(text).subarray(0, ERROR_BYTES));
    return this.queue.router.lane(partition.tag, verb as LaneVerb).submit(words);
  }

  /** A throttle closes all partitions of the queue. */
  private async closeOthers(partition: Partition, wait: string): Promise<void> {
    const others = this.partitions().filter((one) => one !== partition);
    await Promise.all(others.map((other) => other.callPatiently("throttle", ["close", wait])));
  }

  /** Acks and stores the follow-ups in one step, but for those that the partitions' change takes elsewhere. */
  private async ackPush(held: Held, given: readonly Message[]): Promise<string> {
    const { id, token, partition } = held;
    const { router } = this.queue;
    let messages = given.map((message, at) => message.named(idOfFollowUp(id, at + 1)));
    for (;;) {
      const { map } = router;
      const here: Message[] = [];
      for (const message of messages) {
        const lists = map ? [map.old, map.next].filter((tags) => tags.length) : [];
        if (lists.every((tags) => tags[indexOf(message.id, tags.length)] === partition.tag)) {
          here.push(message);
        } else if (map && map.old.join() === map.next.join()) {
          throw invalid(`the follow-up ${String(message.id)} is of another partition: let the library name it`);
        } else {
          await this.queue.pushMessage(message);
        }
      }
      if (!here.length) {
        const answer = await router.lane(partition.tag, "ack").submit([token, id]);
        return result("ack", answer.text).outcome;
      }
      const words = here.flatMap((message) => [...message.arguments]);
      try {
        const name = Buffer.concat([token, id]);
        const { body } = await partition.callPatiently("ack_push", [name, ...words], map ? `m${map.epoch}` : "");
        const word = text(body[0]);
        if (word === "REFUSED") for (const line of list(body[1])) result("ack_push", text(line)); // throws
        return result("ack", word).outcome;
      } catch (thrown) {
        const error = asDueqError(thrown);
        if (!error.isRemapped || error.applied !== "no" || !(await router.refresh())) throw error;
        messages = here;
      }
    }
  }
}
