// An order is rated five stars 48 hours after its delivery, unless its buyer has rated it by then.
//
// Replays two years of real orders a million times faster: 48 hours become 173 ms, and the run takes a minute.
// At the end it counts, and fails if the books do not balance.
//
//   npm install && npm run build
//   node dist/examples/order_auto_rating.js ../../examples/order_auto_rating/orders.csv [SPEED]
//
// REDIS_URL names the server; without it, redis://127.0.0.1/.
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { connect, type Delivery } from "@dueq/client";

const HOURS_48 = 48 * 3_600_000;

interface Order {
  id: string;
  delivered: number;
  reviewed: number;
  score: number;
}

function read(file: string): Order[] {
  const [head, ...lines] = readFileSync(file, "utf8").trim().split("\n");
  if (head.trim() !== "order_id,delivered_at,reviewed_at,review_score") throw new Error(`${file} has other columns`);
  return lines.map((line, at) => {
    const [id, delivered, reviewed, score] = line.trim().split(",");
    const order = {
      id,
      delivered: Date.parse(`${delivered}Z`),
      reviewed: Date.parse(`${reviewed}Z`),
      score: Number(score),
    };
    if (!id || !(order.delivered && order.reviewed && order.score)) throw new Error(`${file}:${at + 2} cannot be read`);
    return order;
  });
}

const [file, speed = "1000000"] = process.argv.slice(2);
if (!file) throw new Error("usage: order_auto_rating ORDERS.csv [SPEED]");
const orders = read(file);
const first = Math.min(...orders.map((order) => order.delivered));

const client = connect(process.env.REDIS_URL ?? "redis://127.0.0.1/");
const queue = client.queue(`order-auto-rating-${process.pid}`);
/** Who rated each order, and how often it was asked for. */
const books = new Map<string, { by: "buyer" | "shop"; score: number }>();
const counts = { pushed: 0, cancelled: 0, rated: 0, tooLate: 0, again: 0, early: 0 };
const lateMs: number[] = [];

function rate({ id, dueMs }: Delivery): void {
  const now = Date.now();
  if (now < dueMs) counts.early += 1;
  if (books.has(id)) {
    counts.again += 1; // a second delivery of one message: it changes nothing
    return;
  }
  lateMs.push(now - dueMs);
  books.set(id, { by: "shop", score: 5 });
  counts.rated += 1;
}

const start = Date.now() + 200;
const moment = (time: number): number => start + Math.ceil((time - first) / Number(speed));

async function delivered(order: Order): Promise<void> {
  if (order.reviewed <= order.delivered) {
    books.set(order.id, { by: "buyer", score: order.score });
    return;
  }
  const receipt = await queue.push("", { id: order.id, due: moment(order.delivered + HOURS_48), maxAttempts: 5 });
  if (!receipt.created) throw new Error(`order ${order.id} is in the queue already`);
  counts.pushed += 1;
}

async function reviewed(order: Order): Promise<void> {
  if ((await queue.cancel(order.id)) === "cancelled") {
    books.set(order.id, { by: "buyer", score: order.score });
    counts.cancelled += 1;
  } else {
    counts.tooLate += 1; // the shop has rated it, or does so now
  }
}

const worker = client.worker().queue(queue, rate, { concurrency: 32 });
const working = worker.run();
await Promise.all(
  orders.map(async (order) => {
    await sleep(moment(order.delivered) - Date.now());
    await delivered(order);
    if (order.reviewed <= order.delivered) return;
    await sleep(moment(order.reviewed) - Date.now());
    await reviewed(order);
  }),
);
while (books.size < orders.length) await sleep(10);
worker.stop();
await working;
const left = (await Promise.all(orders.map(({ id }) => queue.get(id)))).filter((one) => one !== null).length;
await client.close();

lateMs.sort((a, b) => a - b);
const stars = [...books.values()].reduce((sum, { score }) => sum + score, 0) / books.size;
console.log(`${orders.length} orders: ${JSON.stringify(counts)}, ${left} messages left, ${stars.toFixed(2)} stars`);
console.log(
  `ratings of the shop were ${lateMs[lateMs.length >> 1]} ms late in the median, ${lateMs.at(-1)} ms at most`,
);
const balances =
  counts.pushed === counts.cancelled + counts.rated && counts.early + left === 0 && counts.tooLate === counts.rated;
console.log(balances ? "the books balance" : "the books do not balance");
process.exitCode = balances ? 0 : 1;
