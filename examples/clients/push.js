// Stores one message in a dueq queue, due DELAY_MS from now by Redis's clock.
//
// usage: node push.js QUEUE ID DELAY_MS PAYLOAD [OPTION...]      (PAYLOAD -: standard input, any bytes)
// An OPTION is a word such as max_attempts=5, expires=+7200000, on_expire=drop or cost=3.
// Needs ioredis (npm install ioredis) and, once on the server that REDIS_URL names, `dueq functions load`.
// A library has this and workers, too: @dueq/client on npm, https://github.com/dueq/dueq/tree/main/clients/typescript
const crypto = require('node:crypto');
const fs = require('node:fs');
const { setTimeout: sleep } = require('node:timers/promises');
const zlib = require('node:zlib');
const Redis = require('ioredis');

const KEYS = ['scheduled', 'ready', 'leases', 'claims', 'messages', 'attrs', 'dead', 'recent', 'nodes', 'meta'];
const ONE = { epoch: '', before: ['-'], after: ['-'], text: '' }; // what maps has of a queue of one partition
const maps = {}; // by queue: the epoch, the tags of its partitions before and after a change, and the map itself

function keysOf(queue, tag) {
  const base = tag === '-' ? queue : `${queue}/${tag}`;
  return KEYS.map((key) => `dueq:{${base}}:${key}`); // all ten, in this order
}

// null while the queue is being deleted
async function readMap(client, queue) {
  const text = await client.hget(keysOf(queue, '-')[9], 'map');
  if (!text) return ONE;
  const [epoch, before, after, url] = text.split('|');
  if (url) throw new Error(`the queue moves between this server and ${url}, or has moved there`);
  return after ? { epoch, before: before.split(' '), after: after.split(' '), text } : null;
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

function tagOf(tags, id) {
  return tags[Math.floor((crc32(Buffer.from(id)) * tags.length) / 2 ** 32)];
}

// Returns the result of a function for the id. Waits for up to ten seconds while the message or the map changes.
async function call(client, queue, id, name, ...args) {
  const end = Date.now() + 10000;
  for (;;) {
    const known = maps[queue] ?? ONE;
    const newTag = tagOf(known.after, id);
    let tag = tagOf(known.before, id);
    let code;
    const send = async (form) => {
      const epoch = known.epoch && form + known.epoch;
      return (await client.fcall(name, 10, ...keysOf(queue, tag), epoch, ...args))[1][0];
    };
    try {
      // While the partitions change, a probe asks the old one: it creates nothing. AWAY: the new one decides.
      // A result behind AWAY is that of the call unless the new one has the message.
      let result = tag === newTag ? 'AWAY' : await send('p');
      if (result.startsWith('AWAY')) {
        const remembered = result.slice(5);
        tag = newTag;
        result = await send(remembered ? 'p' : 'm');
        if (result.startsWith('AWAY')) result = remembered;
      }
      if (result !== 'MOVING' || Date.now() > end) return result;
    } catch (error) {
      code = error.message.split(' ')[0];
      if ((code !== 'REMAPPED' && code !== 'BEHIND') || Date.now() > end) throw error;
    }
    // The partition has another map, and the call did nothing; or the message is on its way to another partition.
    const newest = await readMap(client, queue);
    if (newest && newest.text !== known.text) {
      maps[queue] = newest;
    } else if (newest && code === 'BEHIND' && known.after.includes(tag)) {
      await client.fcall('dueq_remap', 10, ...keysOf(queue, tag), '', 'forward', known.text);
    } else {
      await sleep(50);
    }
  }
}

// true: stored; false: the id was pushed before. The id and the payload may be Buffers.
async function push(client, queue, id, delayMs, payload, options = '') {
  // A client sends a call again when its connection breaks. The script recognises the repetition for ten seconds.
  const [seconds, us] = (await client.time()).map(Number);
  const ms = `${seconds + 10}${String(us).padStart(6, '0').slice(0, 3)}`;
  const attempt = `${ms}.${String(us).padStart(6, '0').slice(3)} ${crypto.randomBytes(12).toString('hex')}`;
  const result = await call(client, queue, id, 'dueq_push', attempt, id, `+${delayMs}`, payload, options);
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
