// bee-queue as dueq-bench drives it. README.md says how it is configured.
import Queue from 'bee-queue';
import { run } from '../common/driver.mjs';

function options(server) {
  return {
    redis: server,
    activateDelayedJobs: true,
    removeOnSuccess: true,
    removeOnFailure: true,
    // Nobody listens for results, so none are sent nor kept.
    getEvents: false,
    sendEvents: false,
    storeJobs: false,
    // The finest it takes: how far apart two looks at the delayed jobs may be for the same job.
    delayedDebounce: 1,
  };
}

async function open(server, name) {
  const producer = new Queue(name, { ...options(server), isWorker: false });
  await producer.ready();
  let worker = null;
  const job = ({ dueMs, payload }) => {
    const made = producer.createJob(payload);
    return dueMs === null ? made : made.delayUntil(dueMs);
  };
  return {
    push: (message) => job(message).save(),
    async pushMany(messages) {
      const failures = await producer.saveAll(messages.map(job));
      for (const error of failures.values()) throw error;
    },
    async work(concurrency, sink) {
      worker = new Queue(name, options(server));
      worker.on('succeeded', () => sink.acknowledge());
      worker.on('error', (error) => console.error(error.message));
      await worker.ready();
      worker.process(concurrency, async ({ data }) => sink.start(data));
    },
    async close() {
      await worker?.close(5000);
      await producer.close(5000);
    },
  };
}

run(open, { batch: 100, inFlight: 4, concurrency: 100 });
