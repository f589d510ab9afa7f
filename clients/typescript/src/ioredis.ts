// Connections of ioredis: `connect(url, { driver: ioredis })`.
import { Redis, ReplyError } from "ioredis";
import { CONNECT_LIMIT, RefusedReply, type Driver, type Word } from "./driver.js";
import type { Raw } from "./replies.js";

export const ioredis: Driver = async (place, lost) => {
  const { host, port, path, tls, username, password, database } = place;
  const client = new Redis({
    ...(path === undefined ? { host, port } : { path }),
    username,
    password,
    db: database ?? 0,
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
  await client.connect().catch((error: unknown) => {
    client.disconnect();
    refused(last ?? error); // only the event has the reply to a wrong password
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
