// BullMQ as dueq-bench drives it. README.md says how it is configured.
import { Queue, Worker } from 'bullmq';
import IORedis from 'ioredis';
import { delayMs, run } from '../common/driver.mjs';

/** What is done is removed, as in a queue that is not a log. */
const OPTIONS = { removeOnComplete: true, removeOnFail: true };

function job({ dueMs, payload }) {
  // With its time of making given, the delay counts from there: no rounding and no lag of ours comes in.
  if (dueMs === null) return { name: 'm', data: payload, opts: OPTIONS };
  const timestamp = Date.now();
  return { name: 'm', data: payload, opts: { ...OPTIONS, timestamp, delay: delayMs(dueMs) } };
}

async function open(server, name) {
  const connect = () => new IORedis(server, { maxRetriesPerRequest: null });
  const connections = [connect()];
  const queue = new Queue(name, { connection: connections[0] });
  let worker = null;
  return {
    push(message) {
      const { name: title, data, opts } = job(message);
      return queue.add(title, data, opts);
    },
    pushMany: (messages) => queue.addBulk(messages.map(job)),
    async work(concurrency, sink) {
      connections.push(connect());
      worker = new Worker(name, async ({ data }) => sink.start(data), { connection: connections[1], concurrency });
      worker.on('completed', () => sink.acknowledge());
      worker.on('error', (error) => console.error(error.message));
      await worker.waitUntilReady();
    },
    async close() {
      await worker?.close();
      await queue.close();
      connections.forEach((connection) => connection.disconnect());
    },
  };
}

run(open, { batch: 100, inFlight: 4, concurrency: 100 });
