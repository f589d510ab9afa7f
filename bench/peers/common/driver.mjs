// What the drivers in JavaScript have in common: the line protocol of bench/README.md, the payloads, the counting.
import { createInterface } from 'node:readline';

const PAYLOAD_BYTES = 100;
const DIGITS = 13;

/** Unix microseconds; whole milliseconds would hide most of a lateness. */
export const unixUs = () => Math.round((performance.timeOrigin + performance.now()) * 1000);

/** How long until then, in milliseconds. */
export const delayMs = (dueMs) => (dueMs === null ? 0 : Math.max(0, dueMs - Date.now()));

function payload(dueMs) {
  return String(dueMs ?? Date.now()).padStart(DIGITS, '0').padEnd(PAYLOAD_BYTES, 'x');
}

/** When message i of n is due, in Unix milliseconds; null for at once. */
function dueOf(due, i, n) {
  if (!due.at_ms) return null;
  const order = due.order ?? 'forward';
  const place = order === 'forward' ? i : order === 'backward' ? n - 1 - i : Number((BigInt(i) * 7368787n) % BigInt(n));
  return due.at_ms + Math.floor((place * due.spread_ms) / n);
}

const message = (dueMs) => ({ dueMs, payload: payload(dueMs) });

/** Where handlers report. */
class Sink {
  started = 0;
  acked = 0;
  lateUs = [];
  waiting = null;

  start(text) {
    this.lateUs.push(unixUs() - Number(text.slice(0, DIGITS)) * 1000);
    this.started += 1;
  }

  acknowledge() {
    this.acked += 1;
    if (this.waiting && this.acked >= this.waiting.n) {
      this.waiting.done();
      this.waiting = null;
    }
  }

  reached(n, limitMs) {
    if (this.acked >= n) return Promise.resolve();
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, limitMs);
      this.waiting = { n, done: () => { clearTimeout(timer); resolve(); } };
    });
  }
}

/** Runs one(i) for each i below n, so many at a time. */
async function shareOut(n, tasks, one) {
  const task = async (first) => {
    for (let i = first; i < n; i += tasks) await one(i);
  };
  await Promise.all(Array.from({ length: tasks }, (_, first) => task(first)));
}

/** Waits for the handlers, then asks the queue each millisecond. */
async function counted(queue, sink, { n, limit_ms }) {
  const limit = performance.now() + limit_ms;
  while ((sink.started < n || (await queue.acked()) < n) && performance.now() < limit) {
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

async function pace(queue, { n, per_s, delay_ms }) {
  const start = unixUs();
  const pushes = [];
  for (let i = 0; i < n; ) {
    const now = unixUs();
    for (; i < n && start + (i * 1e6) / per_s <= now; i += 1) {
      pushes.push(queue.push(message(Math.floor(unixUs() / 1000) + delay_ms + ((i * 7919) % 97))));
    }
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  await Promise.all(pushes);
}

/**
 * Answers requests until the input ends. `open(server, name)` gives an object with push(message), pushMany(messages),
 * work(concurrency, sink) and close(); and with acked(), how many are acknowledged, if its worker does not tell the sink.
 * `best` has batch, inFlight and concurrency.
 */
export async function run(open, best) {
  const server = process.argv[2];
  let queue = null;
  let sink = null;
  const answer = async (request) => {
    const reply = { from_us: unixUs(), n: request.n ?? 0 };
    switch (request.do) {
      case 'open':
        queue = await open(server, request.queue);
        sink = new Sink();
        break;
      case 'push':
        await shareOut(request.n, request.concurrency, (i) => queue.push(message(dueOf(request.due, i, request.n))));
        break;
      case 'bulk': {
        const { n, due } = request;
        const size = request.batch || best.batch;
        await shareOut(Math.ceil(n / size), request.batch ? 1 : best.inFlight, (batch) => {
          const messages = [];
          for (let i = batch * size; i < Math.min(n, (batch + 1) * size); i += 1) messages.push(message(dueOf(due, i, n)));
          return queue.pushMany(messages);
        });
        break;
      }
      case 'pace':
        await pace(queue, request);
        break;
      case 'work':
        await queue.work(request.concurrency || best.concurrency, sink);
        break;
      case 'drain':
        if (queue.acked) await counted(queue, sink, request);
        else await sink.reached(request.n, request.limit_ms);
        reply.n = queue.acked ? sink.started : sink.acked;
        if (request.late) reply.late_us = sink.lateUs.splice(0);
        break;
      case 'close':
        await queue.close();
        break;
      default:
        throw new Error(`not a request: ${request.do}`);
    }
    reply.to_us = unixUs();
    return reply;
  };
  for await (const line of createInterface({ input: process.stdin })) {
    const reply = await answer(JSON.parse(line)).catch((error) => ({ error: String(error.stack ?? error) }));
    process.stdout.write(`${JSON.stringify(reply)}\n`);
  }
  process.exit(0);
}
