// What this library needs of a client of Redis: connections whose calls it repeats itself.
import type { ConnectionOptions } from "node:tls";
import type { Raw } from "./replies.js";

export type Word = string | Buffer | number;

/** How long a connection may take to open, in milliseconds. */
export const CONNECT_LIMIT = 2_000;

/** Where a server is, and who connects. A place with a `path` is a Unix socket. */
export interface Place {
  readonly host: string;
  readonly port: number;
  readonly path?: string;
  readonly username?: string;
  readonly password?: string;
  readonly database?: number;
  readonly tls?: ConnectionOptions;
}

/** One connection. It sends what it is given once, in order, and does not connect again. */
export interface Connection {
  /** Resolves with strings as bytes. Rejects with `RefusedReply` for an error reply. */
  send(words: readonly Word[]): Promise<Raw>;
  /** Subscribes to a shard channel. Resolves once that is confirmed. */
  listen(channel: string, heard: (notice: Buffer) => void): Promise<void>;
  destroy(): void;
}

/** Opens a connection. `lost` is called when it ends, unless it was destroyed. */
export type Driver = (place: Place, lost: (error: Error) => void) => Promise<Connection>;

/** An error reply, as the server sent it. */
export class RefusedReply extends Error {}
