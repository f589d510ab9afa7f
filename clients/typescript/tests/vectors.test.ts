// Runs the vectors that a test of the Rust library checks: clients/vectors.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { DueqError, Durability, Message, Schedule } from "../src/index.js";
import { ofReply } from "../src/errors.js";
import { shown, type Bytes, type Options } from "../src/model.js";
import { claim, get, isChange, readReply, result, verdict, type Raw } from "../src/replies.js";
import { idOfFollowUp, indexOf, Keys, PartitionMap } from "../src/routes.js";
import { ROOT } from "./servers_for_tests.js";

// eslint-disable-next-line @typescript-eslint/no-explicit-any
type Line = Record<string, any>;

function vectors(name: string): Line[] {
  const lines = readFileSync(path.join(ROOT, "clients/vectors", `${name}.jsonl`), "utf8")
    .trim()
    .split("\n");
  assert(lines.length > 5);
  return lines.map((line) => JSON.parse(line));
}

function fault(error: unknown): Line {
  assert(error instanceof DueqError, String(error));
  return { kind: error.kind, applied: error.applied, code: error.code ?? null, retryable: error.retryable };
}

/** Checks what a call returns, or the error that the line has instead. */
function check(line: Line, call: () => void): void {
  if (!line.error) return call();
  assert.throws(call, (error) => {
    assert.deepEqual(fault(error), line.error, JSON.stringify(line));
    return true;
  });
}

const snake = (name: string): string => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
const camel = (name: string): string => name.replace(/_./g, (part) => part[1].toUpperCase());

/** What JSON can show: names in snake case, and bytes as text. */
function plain(value: object): Line {
  return Object.fromEntries(
    Object.entries(value).map(([name, one]) => [snake(name), Buffer.isBuffer(one) ? one.toString() : one]),
  );
}

/** The reply as a driver returns it. */
function raw(value: unknown): Raw {
  if (Array.isArray(value)) return value.map(raw);
  return typeof value === "string" ? Buffer.from(value) : (value as Raw);
}

test("ids belong to the partitions of the Rust library", () => {
  for (const line of vectors("routing")) {
    const id = Buffer.from(line.id_hex, "hex");
    for (const [count, index] of Object.entries(line.index_of)) assert.equal(indexOf(id, Number(count)), index);
    assert.equal(idOfFollowUp(id, 1).toString("hex"), line.follow_up_hex);
  }
});

test("keys and bad names", () => {
  for (const line of vectors("keys")) {
    check(line, () => {
      const keys = new Keys(line.queue, line.tag);
      assert.deepEqual([keys.ten, keys.wake, keys.notice], [line.keys, line.wake, line.notice]);
    });
  }
});

test("maps and the fences of calls", () => {
  for (const line of vectors("maps")) {
    check(line, () => {
      const map = PartitionMap.parse("orders", line.map);
      assert.deepEqual([map.epoch, map.old, map.next], [line.epoch, line.old, line.new]);
      for (const [id, steps] of Object.entries(line.calls)) {
        assert.deepEqual(
          map.steps(Buffer.from(id)).map(({ tag, fence }) => [tag, fence]),
          steps,
        );
      }
    });
  }
});

test("error codes say whether the call was applied", () => {
  for (const { reply, ...wanted } of vectors("errors")) assert.deepEqual(fault(ofReply("here", reply)), wanted);
});

test("messages are encoded as by the Rust library", () => {
  for (const line of vectors("messages")) {
    const options: Record<string, unknown> = { id: "a" };
    for (const [name, value] of Object.entries(line.options)) {
      if (name.endsWith("_us")) options[camel(name.slice(0, -3))] = (value as number) / 1_000;
      else options[{ due_ms: "due", expires_at_ms: "expiresAt" }[name] ?? camel(name)] = value;
    }
    check(line, () => {
      const message = new Message("rate it", options as Options);
      assert.deepEqual([message.arguments.map(String), message.repeatable], [line.arguments, line.repeatable]);
    });
  }
});

test("item results are decoded as by the Rust library", () => {
  for (const { verb, result: text, ...wanted } of vectors("results")) {
    check(wanted, () => assert.deepEqual({ ...result(verb, text) }, wanted));
  }
});

test("repeated pushes are judged as by the Rust library", () => {
  for (const line of vectors("verdicts")) {
    assert.equal(verdict(line.result, line.repeated, line.latest_start_us), line.then, JSON.stringify(line));
  }
});

test("whole replies are decoded as by the Rust library", () => {
  for (const { verb, reply, ...wanted } of vectors("replies")) {
    check(wanted, () => {
      const read = readReply(verb, raw(reply));
      if (verb === "claim") {
        const { left, granted } = claim(read);
        const shownOf = ({ isTick: _, ...one }: (typeof granted)[number]) => plain(one);
        assert.deepEqual({ header: plain(read.header), left, granted: granted.map(shownOf) }, wanted);
        return;
      }
      const found = get(read, Buffer.from(""));
      const stored = found && "stored" in found ? plain(found.stored) : null;
      delete stored?.id;
      assert.deepEqual({ stored, end: found && "end" in found ? plain(found.end) : null }, wanted);
    });
  }
});

test("what replicas confirm is judged as by the Rust library", () => {
  for (const line of vectors("changes")) {
    assert.equal(isChange(line.verb, line.result), line.is_change, JSON.stringify(line));
  }
  for (const { local, replicas, answer, confirmed } of vectors("waits")) {
    const durability =
      local === undefined
        ? Durability.replicated(replicas, 1_000)
        : Durability.fsynced({ local, replicas, timeout: 1_000 });
    assert.equal(durability.shortfall(answer) === "", confirmed, String(answer));
  }
});

test("schedules are declared as by the Rust library", () => {
  for (const line of vectors("schedules")) {
    const options = Object.entries(line.options).map(([name, value]) => [
      camel(name.replace(/_(us|ms)$/, "")),
      name.endsWith("_us") ? (value as number) / 1_000 : value,
    ]);
    const { arguments: words } = new Schedule(line.name, Object.fromEntries(options));
    assert.deepEqual(words.map(String), line.arguments);
  }
});

test("ids and payloads are any bytes", () => {
  const odd: Bytes[] = ["größe", "🦀", "a b", "\ufeffa", Buffer.of(0xff, 0xfe), Buffer.of(0x61, 0xf0, 0x9f, 0xa6)];
  for (const id of odd) {
    const message = new Message(Buffer.from([...Array(256).keys()]), { id });
    const named = new Message("", { id: shown(message.id) });
    assert.deepEqual(named.id, Buffer.from(id as string));
  }
});
