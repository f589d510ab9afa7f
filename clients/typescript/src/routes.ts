// The keys of a partition, the map of a queue's partitions, and the partition of an id.
import { crc32 } from "node:zlib";
import { DueqError, invalid } from "./errors.js";

const SUFFIXES = ["scheduled", "ready", "leases", "claims", "messages", "attrs", "dead", "recent", "nodes", "meta"];
const BAD_IN_NAME = /[\x00-\x1f\x7f/{}]/;
const TAG = /^(-|0|[1-9][0-9]{0,8})$/;
const EPOCH = /^[1-9][0-9]{0,15}$/;
export const HOME = "-";

/** The ten keys of one partition, in the order of KEYS; its wake-up list, and the channel of its notices. */
export class Keys {
  readonly ten: readonly string[];
  readonly meta: string;
  readonly wake: string;
  readonly notice: string;

  constructor(queue: string, tag = HOME) {
    const bytes = Buffer.byteLength(queue);
    if (bytes < 1 || bytes > 128 || BAD_IN_NAME.test(queue)) {
      const name = JSON.stringify(queue.slice(0, 40));
      const rule = "a name has 1 to 128 bytes, no control characters and none of / { }";
      throw invalid(`queue name ${name} of ${bytes} bytes: ${rule}`);
    }
    const base = `dueq:{${tag === HOME ? queue : `${queue}/${tag}`}}:`;
    this.ten = SUFFIXES.map((suffix) => base + suffix);
    this.meta = `${base}meta`;
    this.wake = `${base}wake`;
    this.notice = `${base}notice`;
  }
}

/** Where a call goes: the tag of a partition, and the fence `m7`, or `p7` of a probe; empty without a map. */
export interface Step {
  readonly tag: string;
  readonly fence: string;
}

/** The tags of a queue's partitions, before and after a change. `next` is empty while the queue is being deleted. */
export class PartitionMap {
  private constructor(
    readonly epoch: number,
    readonly old: readonly string[],
    readonly next: readonly string[],
    readonly text: string,
  ) {}

  /** Reads `EPOCH|OLD TAGS|NEW TAGS`. */
  static parse(queue: string, text: string): PartitionMap {
    const [epoch, old, next, ...more] = text.split("|");
    const wrong = (why: string) => {
      const what = `the map of the partitions of queue ${queue} cannot be read: ${why} in ${JSON.stringify(text.slice(0, 200))}`;
      return new DueqError("server", "no", `${what} (\`dueq doctor ${queue}\`)`);
    };
    if (next === undefined || more.length) throw wrong("not three parts");
    if (!EPOCH.test(epoch) || Number(epoch) > Number.MAX_SAFE_INTEGER) throw wrong("no epoch");
    const lists = [old, next].map((list) => (list ? list.split(" ") : []));
    for (const tags of lists) {
      if (!tags.every((tag) => TAG.test(tag))) throw wrong("a tag that is neither - nor a number up to 999999999");
      if (tags.length && tags[0] !== HOME) throw wrong("no partition 0");
      if (tags.length > 256) throw wrong("more than 256 partitions");
      if (new Set(tags).size !== tags.length) throw wrong("a tag twice");
    }
    if (!lists[0].length) throw wrong("no partition 0");
    return new PartitionMap(Number(epoch), lists[0], lists[1], text);
  }

  /** The calls that name this id, in their order: while the partitions change, first a probe at the old one. */
  steps(id: Buffer): Step[] {
    if (!this.next.length) return [];
    const from = this.old[indexOf(id, this.old.length)];
    const to = this.next[indexOf(id, this.next.length)];
    const last = { tag: to, fence: `m${this.epoch}` };
    return from === to ? [last] : [{ tag: from, fence: `p${this.epoch}` }, last];
  }

  /** Every partition that may have messages. */
  get tags(): string[] {
    return [...new Set([...this.old, ...this.next])];
  }
}

/** The part of an id that decides: the bytes between its first `{` and the next `}`, else all of it. */
function part(id: Buffer): Buffer {
  const start = id.indexOf("{") + 1;
  const end = id.indexOf("}", start);
  return start && end > start ? id.subarray(start, end) : id;
}

/** The index of the partition that holds the id. */
export function indexOf(id: Buffer, partitions: number): number {
  return Math.floor((crc32(part(id)) * partitions) / 2 ** 32);
}

/** An id for a follow-up message that belongs to the partition of its parent. */
export function idOfFollowUp(parent: Buffer, number: number): Buffer {
  const [open, close] = part(parent).length < parent.length ? ["", ""] : ["{", "}"];
  return Buffer.concat([Buffer.from(open), parent, Buffer.from(`${close}/${number}`)]);
}
