// Connections of ioredis: `connect(url, { driver: ioredis })`.
import { Redis, ReplyError } from "ioredis";
import { CONNECT_LIMIT, RefusedReply, type Driver, type Word } from "./driver.js";
import type { Raw } from "./replies.js";

export const ioredis: Driver = async (place, lost) => {
  const { host, port, path, tls, username, password, database } = place;
  const client = new Redis({
    ...(path === undefined ? { host, port } : { path }),
    tls,
    disableClientInfo: true,
    protocol: 2,
    lazyConnect: true,
    connectTimeout: CONNECT_LIMIT,
    enableOfflineQueue: false,
    enableReadyCheck: false,
    maxRetriesPerRequest: 0,
    autoResubscribe: false,
    autoResendUnfulfilledCommands: false,
    retryStrategy: () => null,
  });
  let last: Error | undefined;
  client.on("error", (error) => (last = error));
  client.on("end", () => lost(last ?? new Error("the connection has ended")));
  const refused = (error: unknown): never => {
    throw error instanceof ReplyError ? new RefusedReply((error as Error).message) : error;
  };
  // ioredis itself goes on as the default user after a refused AUTH, and in database 0 after a refused SELECT.
  const open = async (): Promise<void> => {
    await client.connect();
    if (password !== undefined) await client.call("AUTH", username ?? "default", password);
    if (database) await client.call("SELECT", database);
  };
  await open().catch((error: unknown) => {
    client.disconnect();
    refused(last ?? error); // only the event says why it cannot connect
  });
  return {
    send: ([command, ...words]: readonly Word[]) =>
      (client.callBuffer(String(command), words as (string | Buffer)[]) as Promise<Raw>).catch(refused),
    listen: async (channel, heard) => {
      client.on("smessageBuffer", (_channel: Buffer, notice: Buffer) => heard(notice));
      await client.ssubscribe(channel).catch(refused);
    },
    destroy: () => client.disconnect(),
  };
};
