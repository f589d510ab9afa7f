// Stores one message in a dueq queue, due DELAY_MS from now by Redis's clock.
//
// usage: node push.js QUEUE ID DELAY_MS PAYLOAD [OPTION...]      (PAYLOAD -: standard input, any bytes)
// An OPTION is a word such as max_attempts=5, expires=+7200000, on_expire=drop or cost=3.
// Needs ioredis (npm install ioredis) and, once on the server that REDIS_URL names, `dueq functions load`.
const crypto = require('node:crypto');
const fs = require('node:fs');
const { setTimeout: sleep } = require('node:timers/promises');
const zlib = require('node:zlib');
const Redis = require('ioredis');

const KEYS = ['scheduled', 'ready', 'leases', 'claims', 'messages', 'attrs', 'dead', 'recent', 'nodes', 'meta'];
const maps = {}; // by queue: the epoch, the tags of its partitions, and the map itself

function keysOf(queue, tag) {
  const base = tag === '-' ? queue : `${queue}/${tag}`;
  return KEYS.map((key) => `dueq:{${base}}:${key}`); // all ten, in this order
}

// null while the partitions change; a queue of one partition has no map
async function readMap(client, queue) {
  const text = (await client.hget(keysOf(queue, '-')[9], 'map')) ?? '';
  const [epoch, before, after] = text ? text.split('|') : ['', '-', '-'];
  return before === after ? { epoch: epoch && `m${epoch}`, tags: after.split(' '), text } : null;
}

// CRC-32 of the part of the id between { and }, or of the whole id
function crc32(id) {
  const open = id.indexOf('{');
  const close = open < 0 ? -1 : id.indexOf('}', open);
  const part = close > open + 1 ? id.subarray(open + 1, close) : id;
  if (zlib.crc32) return zlib.crc32(part); // Node.js 22.2
  let crc = ~0;
  for (const byte of part) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit += 1) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}

// Calls a function at the partition of the id. Waits for up to ten seconds while the partitions change.
async function call(client, queue, id, name, ...args) {
  const end = Date.now() + 10000;
  for (;;) {
    const known = maps[queue] ?? { epoch: '', tags: ['-'], text: '' };
    const tag = known.tags[Math.floor((crc32(Buffer.from(id)) * known.tags.length) / 2 ** 32)];
    let code;
    try {
      return await client.fcall(name, 10, ...keysOf(queue, tag), known.epoch, ...args);
    } catch (error) {
      code = error.message.split(' ')[0];
      if ((code !== 'REMAPPED' && code !== 'BEHIND') || Date.now() > end) throw error;
    }
    // The partition has another map: the call did nothing.
    const newest = await readMap(client, queue);
    if (newest && newest.text !== known.text) {
      maps[queue] = newest;
    } else if (newest && code === 'BEHIND' && known.text) {
      await client.fcall('dueq_remap', 10, ...keysOf(queue, tag), '', 'forward', known.text);
    } else {
      await sleep(100);
    }
  }
}

// true: stored; false: the id was pushed before. The id and the payload may be Buffers.
async function push(client, queue, id, delayMs, payload, options = '') {
  // A client sends a call again when its connection breaks. The script recognises the repetition for ten seconds.
  const [seconds, us] = (await client.time()).map(Number);
  const ms = `${seconds + 10}${String(us).padStart(6, '0').slice(0, 3)}`;
  const attempt = `${ms}.${String(us).padStart(6, '0').slice(3)} ${crypto.randomBytes(12).toString('hex')}`;
  const reply = await call(client, queue, id, 'dueq_push', attempt, id, `+${delayMs}`, payload, options);
  const result = reply[1][0];
  if (result === 'CREATED') return true;
  if (result === 'FINISHED' || result.startsWith('EXISTS')) return false;
  throw new Error(result);
}

async function main() {
  const [queue, id, delayMs, payload, ...options] = process.argv.slice(2);
  const client = new Redis(process.env.REDIS_URL || 'redis://127.0.0.1:6379/', { maxRetriesPerRequest: 3 });
  client.on('error', () => {}); // the failed call reports the error
  try {
    const content = payload === '-' ? fs.readFileSync(0) : payload;
    const created = await push(client, queue, id, delayMs, content, options.join(' '));
    console.log(created ? `created ${id}` : `${id} was pushed before`);
  } catch (error) {
    console.error(`push.js: ${error.message}`);
    process.exitCode = 1;
  } finally {
    client.disconnect();
  }
}

main();
