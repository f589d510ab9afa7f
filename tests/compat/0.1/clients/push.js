// Stores one message in a dueq queue, due DELAY_MS from now by Redis's clock.
//
// usage: node push.js QUEUE ID DELAY_MS PAYLOAD      (PAYLOAD -: standard input, any bytes)
// Needs ioredis (npm install ioredis) and, once on the server that REDIS_URL names, `dueq functions load`.
const crypto = require('node:crypto');
const fs = require('node:fs');
const Redis = require('ioredis');

const KEYS = ['scheduled', 'ready', 'leases', 'claims', 'messages', 'attrs', 'dead', 'recent', 'nodes', 'meta'];

// true: stored; false: the id was pushed before. The id and the payload may be Buffers.
async function push(client, queue, id, delayMs, payload) {
  const keys = KEYS.map((key) => `dueq:{${queue}}:${key}`); // all ten, in this order
  // A client sends a call again when its connection breaks. The script recognises the repetition for ten seconds.
  const [seconds, us] = (await client.time()).map(Number);
  const ms = `${seconds + 10}${String(us).padStart(6, '0').slice(0, 3)}`;
  const attempt = `${ms}.${String(us).padStart(6, '0').slice(3)} ${crypto.randomBytes(12).toString('hex')}`;
  const reply = await client.fcall('dueq_push', keys.length, ...keys, '', attempt, id, `+${delayMs}`, payload, '');
  const result = reply[1][0];
  if (result === 'CREATED') return true;
  if (result === 'FINISHED' || result.startsWith('EXISTS')) return false;
  throw new Error(result);
}

async function main() {
  const [queue, id, delayMs, payload] = process.argv.slice(2);
  const client = new Redis(process.env.REDIS_URL || 'redis://127.0.0.1:6379/', { maxRetriesPerRequest: 3 });
  client.on('error', () => {}); // the failed call reports the error
  try {
    const created = await push(client, queue, id, delayMs, payload === '-' ? fs.readFileSync(0) : payload);
    console.log(created ? `created ${id}` : `${id} was pushed before`);
  } catch (error) {
    console.error(`push.js: ${error.message}`);
    process.exitCode = 1;
  } finally {
    client.disconnect();
  }
}

main();
