// Connections of node-redis, the package `redis`.
import { CONNECT_LIMIT, RefusedReply, type Driver, type Word } from "./driver.js";
import type { Raw } from "./replies.js";

export const nodeRedis: Driver = async (place, lost) => {
  // Not before it is needed: users of ioredis need not install it.
  const { createClient, ErrorReply, RESP_TYPES } = await import("redis");
  const bytes = { typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer, [RESP_TYPES.SIMPLE_STRING]: Buffer } };
  const { host, port, path, tls, username, password, database } = place;
  const address = path === undefined ? { host, port } : { path };
  const client = createClient({
    RESP: 2,
    username,
    password,
    database,
    disableClientInfo: true,
    disableOfflineQueue: true,
    socket: {
      ...(tls ? { ...tls, host, port, tls: true as const } : address),
      connectTimeout: CONNECT_LIMIT,
      reconnectStrategy: false,
    },
  });
  client.on("error", lost);
  const refused = (error: unknown): never => {
    throw error instanceof ErrorReply ? new RefusedReply(error.message) : error;
  };
  const destroy = (): void => {
    if (client.isOpen) client.destroy(); // node-redis 5 throws otherwise
  };
  await client.connect().catch((error: unknown) => {
    destroy();
    refused(error);
  });
  return {
    send: (words: readonly Word[]) =>
      client
        .sendCommand<Raw>(
          words.map((word) => (typeof word === "number" ? String(word) : word)),
          bytes,
        )
        .catch(refused),
    listen: (channel, heard) => client.sSubscribe(channel, heard, true).catch(refused),
    destroy,
  };
};
