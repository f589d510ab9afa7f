// Sends the calls that name an id to the partition of the id, also while the partitions change.
import { Lane, Refused, type Answer, type LaneVerb } from "./batches.js";
import { monotonic } from "./clock.js";
import type { Word } from "./driver.js";
import type { Durability } from "./durability.js";
import { asDueqError, DueqError } from "./errors.js";
import { shown } from "./model.js";
import { Partition, PATIENCE, Patience } from "./partition.js";
import { list, type Reply } from "./replies.js";
import { HOME, PartitionMap, type Step } from "./routes.js";
import type { Servers } from "./servers.js";
import { pause } from "./waiting.js";

const MOVING_PAUSE = 20;
const SEARCHED_TAGS = 64;
const ONE: Step[] = [{ tag: HOME, fence: "" }];
type Send = (partition: Partition, fence: string) => Promise<Answer>;

/** One item of a call that names an id. */
export interface RoutedItem {
  readonly id: Buffer;
  readonly words: readonly Word[];
  readonly repeatable: boolean;
  readonly durability: Durability | undefined;
}

/** The partitions of one queue, by the newest map that this client has seen. */
export class Router {
  map: PartitionMap | null = null;
  private readonly partitions = new Map<string, Partition>();
  private readonly lanes = new Map<string, Lane>();
  private refreshing: Promise<unknown> = Promise.resolve();
  private learning: Promise<void> | undefined;
  private hasLearned = false;

  constructor(
    readonly servers: Servers,
    readonly queue: string,
  ) {
    this.partition(HOME); // refuses a bad name now
  }

  partition(tag: string): Partition {
    let partition = this.partitions.get(tag);
    if (!partition) this.partitions.set(tag, (partition = new Partition(this.servers, this.queue, tag)));
    return partition;
  }

  lane(tag: string, verb: LaneVerb, fence = "", durability?: Durability): Lane {
    const name = `${durability?.words().join() ?? ""} ${tag} ${verb} ${fence}`;
    let lane = this.lanes.get(name);
    if (!lane) {
      // Lanes of earlier maps, which nobody calls any more.
      for (const [other, old] of this.lanes) {
        if (!other.endsWith(" ") && !other.endsWith(` ${fence}`) && old.idle) this.lanes.delete(other);
      }
      this.lanes.set(name, (lane = new Lane(this.partition(tag), verb, fence, durability)));
    }
    return lane;
  }

  /** Waits for the calls that are under way. */
  async drain(): Promise<void> {
    for (const lane of [...this.lanes.values()]) await lane.drain();
  }

  /** Whether the queue has one partition, as far as this client knows: most have. Then nothing is to be routed. */
  private get isWhole(): boolean {
    return this.hasLearned && !this.map;
  }

  /** Sends one item in a batch of its partition. */
  item(verb: LaneVerb, { id, words, repeatable, durability }: RoutedItem, signal?: AbortSignal): Promise<Answer> {
    const send: Send = ({ tag }, fence) => this.lane(tag, verb, fence, durability).submit(words, repeatable, signal);
    if (!this.isWhole) return this.routed(id, send);
    return send(this.partition(HOME), "").catch((thrown: unknown) => this.routed(id, send, thrown));
  }

  /** Calls `get`. Its reply is no result of an item: `AWAY` is an empty one, and `MOVING` is an error. */
  async get<T>(id: Buffer, read: (reply: Reply) => T | null): Promise<T | null> {
    let found: T | null = null;
    await this.routed(id, async (partition, fence) => {
      try {
        const reply = await partition.callPatiently("get", [id], fence);
        const here = read(reply);
        const isProbe = fence.startsWith("p");
        found = here ?? (isProbe ? null : found);
        // A message decides; how one ended counts only if the new partition has no message.
        const isHere = list(reply.body[0]).length > 0 || !isProbe;
        return { text: isHere ? "FOUND" : "AWAY", nowUs: reply.header.nowUs, repeated: false };
      } catch (thrown) {
        const error = asDueqError(thrown);
        if (error.isRemapped) throw new Refused(error);
        if (error.code === "MOVING") return { text: "MOVING", nowUs: 0, repeated: false };
        throw error.marked("no");
      }
    });
    return found;
  }

  /** `thrown` ended a first try at a queue of one partition. */
  private async routed(id: Buffer, send: Send, thrown?: unknown): Promise<Answer> {
    const patience = new Patience();
    let movingUntil = 0;
    if (thrown) await this.turnedAway(thrown, id, null, HOME, patience);
    else await this.learn();
    for (;;) {
      const { map } = this;
      const steps = map ? map.steps(id) : ONE;
      if (!steps.length) {
        const text = `the queue ${this.queue} is being deleted`;
        await this.wait(map, undefined, new DueqError("unavailable", "no", text), patience);
        continue;
      }
      let [step] = steps;
      let answer: Answer;
      let remembered: Answer | undefined;
      try {
        answer = await send(this.partition(step.tag), step.fence);
        if (answer.text.startsWith("AWAY") && steps.length > 1) {
          if (answer.text.length > 5) remembered = { ...answer, text: answer.text.slice(5) };
          [, step] = steps;
          const fence = remembered ? `p${step.fence.slice(1)}` : step.fence;
          answer = await send(this.partition(step.tag), fence);
        }
      } catch (thrown) {
        await this.turnedAway(thrown, id, map, step.tag, patience);
        continue;
      }
      if (answer.text !== "MOVING") return remembered && answer.text.startsWith("AWAY") ? remembered : answer;
      const text = `the message ${JSON.stringify(shown(id))} is on its way to another partition`;
      if (answer.repeated) {
        throw new DueqError("unavailable", "unknown", `${text}, and the first reply was lost`, { id: shown(id) });
      }
      movingUntil ||= monotonic() + PATIENCE;
      if (monotonic() > movingUntil) {
        throw new DueqError("unavailable", "no", `${text}, for ${PATIENCE / 1e3} s already`);
      }
      await pause(MOVING_PAUSE);
    }
  }

  /** Waits until a try may be made again, unless it failed or may have been applied. */
  private async turnedAway(thrown: unknown, id: Buffer, map: PartitionMap | null, tag: string, patience: Patience) {
    if (!(thrown instanceof Refused)) throw thrown;
    const { error } = thrown;
    if (error.applied !== "no" && error.code !== "BEHIND") throw error.marked(error.applied, { id: shown(id) });
    await this.wait(map, tag, error, patience);
  }

  /** Learns the newest map after a refusal; pauses if there is no newer one. */
  private async wait(seen: PartitionMap | null, tag: string | undefined, refused: DueqError, patience: Patience) {
    let error = new DueqError("unavailable", "no", refused.message);
    try {
      if (await this.refreshFrom(seen, refused.code === "BEHIND" ? tag : undefined)) return;
    } catch (thrown) {
      error = asDueqError(thrown);
    }
    if (!patience.allows(error)) throw error;
    await patience.pause();
  }

  /** Reads the map again, as after a header with another epoch. Returns whether it changed. */
  refresh(): Promise<boolean> {
    return this.refreshFrom(this.map);
  }

  /** Reads the map at the home, one caller at a time. Returns whether it is another one than `seen`. */
  private refreshFrom(seen: PartitionMap | null, behind?: string): Promise<boolean> {
    const found = this.refreshing.then(async () => this.map !== seen || (await this.readMap(seen, behind)));
    this.refreshing = found.catch(() => {});
    return found;
  }

  private async readMap(seen: PartitionMap | null, behind: string | undefined): Promise<boolean> {
    const text = await this.partition(HOME).readMap();
    const newest = text ? PartitionMap.parse(this.queue, text) : null;
    if (seen && (!newest || newest.epoch < seen.epoch)) {
      if (!newest && !(await this.isElsewhere(seen))) {
        this.map = null; // the queue is back at one partition
        return true;
      }
      // The home's master has lost its data, and nobody else tells it of this map.
      await this.partition(HOME).callPatiently("remap", ["forward", seen.text]);
      return false;
    }
    if (newest?.text !== seen?.text) {
      this.map = newest;
      return true;
    }
    if (seen && behind !== undefined && seen.next.includes(behind)) {
      await this.partition(behind).callPatiently("remap", ["forward", seen.text]);
    }
    return false;
  }

  /** Whether another partition of this map still has it. */
  private async isElsewhere(map: PartitionMap): Promise<boolean> {
    const other = map.next.find((tag) => tag !== HOME);
    return other !== undefined && (await this.partition(other).readMap()) !== "";
  }

  /** Reads the map before the first call to a cluster, from other partitions if the home is away. */
  private learn(): Promise<void> {
    this.learning ??= this.search().then(
      () => void (this.hasLearned = true),
      (error: unknown) => {
        this.learning = undefined;
        throw error;
      },
    );
    return this.learning;
  }

  private async search(): Promise<void> {
    const patience = new Patience();
    let isCluster: boolean | undefined;
    while (isCluster === undefined) {
      try {
        isCluster = await this.servers.isCluster();
      } catch (thrown) {
        const error = asDueqError(thrown);
        if (!patience.allows(error)) throw error;
        await patience.pause();
      }
    }
    if (!isCluster) return;
    try {
      await this.refreshFrom(null);
      return;
    } catch (thrown) {
      const { kind } = asDueqError(thrown);
      if (kind !== "unavailable" && kind !== "timeout") throw thrown;
    }
    const tags = Array.from({ length: SEARCHED_TAGS }, (_, tag) => String(tag));
    const reads = await Promise.allSettled(tags.map((tag) => this.partition(tag).readMap()));
    for (const read of reads) {
      if (read.status === "rejected" || !read.value) continue;
      const map = PartitionMap.parse(this.queue, read.value);
      if (!this.map || map.epoch > this.map.epoch) this.map = map;
    }
  }
}
