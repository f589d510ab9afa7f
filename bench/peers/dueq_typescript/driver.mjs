// clients/typescript as dueq-bench drives it. README.md says how it is configured.
import { createRequire } from 'node:module';
import { connect, DueqError, Message } from '../../../clients/typescript/dist/src/index.js';
import { run } from '../common/driver.mjs';

const { createClient } = createRequire(new URL('../../../clients/typescript/package.json', import.meta.url))('redis');

function created(receipt) {
  if (receipt instanceof DueqError || !receipt.created) throw new Error(`a push answered ${receipt}`);
}

const made = ({ dueMs, payload }) => new Message(payload, dueMs === null ? {} : { due: dueMs });

async function open(server, name) {
  const client = connect(server);
  const queue = client.queue(name);
  const redis = await createClient({ url: server }).connect();
  let worker = null;
  let running = null;
  return {
    push: async (message) => created(await queue.pushMessage(made(message))),
    pushMany: async (messages) => (await queue.pushMany(messages.map(made))).forEach(created),
    work(concurrency, sink) {
      worker = client.worker().queue(queue, ({ text }) => sink.start(text), { concurrency });
      running = worker.run();
    },
    acked: async () => Number(await redis.hGet(`dueq:{${name}}:meta`, 'acked')),
    async close() {
      worker?.stop();
      await running;
      await client.close();
      redis.destroy();
    },
  };
}

run(open, { batch: 256, inFlight: 4, concurrency: 256 });
