// The servers behind a URL: one, the master that Sentinels name, or the masters of a cluster.
import type { ConnectionOptions } from "node:tls";
import { type Driver, type Place, type Word } from "./driver.js";
import type { Durability } from "./durability.js";
import { asDueqError, cut, DueqError, invalid } from "./errors.js";
import { integer, list, text, type Raw } from "./replies.js";
import type { Verb } from "./scripts.js";
import { Line, Server, type Waited } from "./server.js";

const REDIRECTS = 5;
type Send<T> = (server: Server, asking: boolean) => Promise<T>;

/** The servers of one URL. Each key has one server at a time. */
export abstract class Servers {
  abstract isCluster(): Promise<boolean>;
  abstract ofKey(key: string): Promise<Server>;
  /** Sends to the server of a key, and to the one that it names instead. */
  abstract follow<T>(key: string, send: Send<T>): Promise<T>;
  abstract close(): void;

  run(verb: Verb, keys: readonly string[], args: readonly Word[]): Promise<Raw> {
    return this.follow(keys[0], (server, asking) => server.run(verb, keys, args, asking));
  }

  runDurably(verb: Verb, keys: readonly string[], args: readonly Word[], durability: Durability): Promise<Waited> {
    return this.follow(keys[0], (server, asking) => server.runDurably(verb, keys, args, durability, asking));
  }

  call(key: string, ...words: Word[]): Promise<Raw> {
    return this.follow(key, (server, asking) => server.call(words, asking));
  }

  block(key: string, signal: AbortSignal, ...words: Word[]): Promise<Raw> {
    return this.follow(key, (server, asking) => server.block(words, signal, asking));
  }
}

/** A single server, or the master of a service that Sentinels watch. */
class OneServer extends Servers {
  constructor(private readonly server: Server) {
    super();
  }

  isCluster = async (): Promise<boolean> => false;
  ofKey = async (): Promise<Server> => this.server;
  follow = <T>(_key: string, send: Send<T>): Promise<T> => send(this.server, false);
  close = (): void => this.server.close();
}

/** The server of a plain URL, which says itself whether it belongs to a cluster. */
class Unknown extends Servers {
  private found: Promise<Servers> | undefined;

  constructor(
    private readonly server: Server,
    private readonly cluster: () => Servers,
  ) {
    super();
  }

  private find(): Promise<Servers> {
    this.found ??= this.server.check().then(
      (facts) => (facts.get("cluster_enabled") === "1" ? this.cluster() : new OneServer(this.server)),
      (error: unknown) => {
        this.found = undefined;
        throw error;
      },
    );
    return this.found;
  }

  isCluster = async (): Promise<boolean> => (await this.find()).isCluster();
  ofKey = async (key: string): Promise<Server> => (await this.find()).ofKey(key);
  follow = async <T>(key: string, send: Send<T>): Promise<T> => (await this.find()).follow(key, send);

  close(): void {
    this.server.close();
    this.found?.then(
      (found) => found.close(),
      () => {},
    );
  }
}

interface Range {
  readonly first: number;
  readonly last: number;
  readonly server: Server;
}

/** The masters of a cluster, by slot. */
class Cluster extends Servers {
  private readonly servers = new Map<string, Server>();
  private ranges: Range[] = [];
  private readonly moved = new Map<number, Server>();
  private refreshing: Promise<void> | undefined;
  private isClosed = false;

  constructor(
    private readonly driver: Driver,
    private readonly seeds: readonly Place[],
  ) {
    super();
  }

  isCluster = async (): Promise<boolean> => true;

  private at(host: string, port: number): Server {
    const address = `${host}:${port}`;
    let server = this.servers.get(address);
    if (!server) {
      const place = { ...this.seeds[0], host, port };
      server = new Server(this.driver, async () => place, address);
      if (this.isClosed) server.close();
      this.servers.set(address, server);
    }
    return server;
  }

  async ofKey(key: string): Promise<Server> {
    const slot = slotOf(key);
    if (!this.ranges.length) {
      this.refreshing ??= this.refresh().finally(() => (this.refreshing = undefined));
      await this.refreshing;
    }
    const found = this.moved.get(slot) ?? this.ranges.find(({ first, last }) => first <= slot && slot <= last)?.server;
    if (found) return found;
    this.ranges = [];
    throw new DueqError("unavailable", "no", `no master of the cluster serves slot ${slot}`);
  }

  async follow<T>(key: string, send: Send<T>): Promise<T> {
    let [server, asking] = [await this.ofKey(key), false];
    for (let sent = 0; sent < REDIRECTS; sent += 1) {
      try {
        return await send(server, asking);
      } catch (thrown) {
        const error = asDueqError(thrown);
        if (error.code !== "MOVED" && error.code !== "ASK") {
          // A failover may have made another server the master.
          if (error.code === undefined && (error.kind === "unavailable" || error.kind === "timeout")) this.forget();
          throw error;
        }
        const [slot, address] = cut(error.detail, " ");
        const colon = address.lastIndexOf(":");
        const host = address.slice(0, colon) || server.address.slice(0, server.address.lastIndexOf(":"));
        server = this.at(host, Number(address.slice(colon + 1)));
        asking = error.code === "ASK";
        if (!asking) this.moved.set(Number(slot), server);
      }
    }
    throw new DueqError("unavailable", "no", "the servers of the cluster redirect in a circle");
  }

  private forget(): void {
    this.ranges = [];
    this.moved.clear();
  }

  private async refresh(): Promise<void> {
    let last = new DueqError("unavailable", "no", "the cluster serves no slots");
    for (const { host, port } of this.seeds) this.at(host, port);
    for (const server of [...this.servers.values()]) {
      try {
        const own = server.address.slice(0, server.address.lastIndexOf(":"));
        this.ranges = list(await server.call(["CLUSTER", "SLOTS"])).map((range) => {
          const [first, end, master] = list(range);
          const [name, port] = list(master);
          const host = name === null ? "" : text(name);
          return { first: integer(first), last: integer(end), server: this.at(host || own, integer(port)) };
        });
        if (this.ranges.length) return;
      } catch (error) {
        last = asDueqError(error).marked("no");
      }
    }
    throw last;
  }

  close(): void {
    this.isClosed = true;
    for (const server of this.servers.values()) server.close();
  }
}

/** The slot of a key: the CRC-16 of what is between its first braces, which all keys of dueq have. */
function slotOf(key: string): number {
  let crc = 0;
  for (const byte of Buffer.from(key.slice(key.indexOf("{") + 1, key.indexOf("}")))) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit += 1) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  }
  return crc & 0x3fff;
}

/** Asks Sentinels in turn for the master of a service. */
async function masterOf(driver: Driver, sentinels: readonly Place[], service: string): Promise<Place> {
  let why = "";
  for (const place of sentinels) {
    const address = `${place.host}:${place.port}`;
    let sentinel: Line | undefined;
    try {
      sentinel = await Line.open(driver, place);
      const [host, port] = list(await sentinel.send(["SENTINEL", "GET-MASTER-ADDR-BY-NAME", service]));
      return { host: text(host), port: Number(text(port)) };
    } catch (error) {
      why = `${address}: ${String(error)}`;
    } finally {
      sentinel?.destroy();
    }
  }
  throw new DueqError("unavailable", "no", `no Sentinel names the master of ${service} (${why})`);
}

const SCHEMES = /^(rediss?|valkeys?|unix)(?:\+(cluster|sentinel))?:\/\/(?:([^?]*)@)?([^?]*)(?:\?(.*))?$/;

/** `redis://`, `rediss://`, `unix://`; `redis+cluster://HOST:PORT,...`; `redis+sentinel://HOST:PORT,.../SERVICE`. */
export function serversOf(url: string, driver: Driver, tls: ConnectionOptions | undefined): Servers {
  const [, scheme, kind, user, rest, query] = SCHEMES.exec(url) ?? [];
  if (scheme === undefined || (scheme === "unix" && kind)) {
    const given = JSON.stringify(/^(.*?):\/\//.exec(url)?.[1] ?? "");
    const known = "redis, rediss or unix, or redis+cluster or redis+sentinel";
    throw invalid(`the scheme of the URL is ${given}: it must be ${known}`);
  }
  const parameters = new URLSearchParams(query);
  const credentials = credentialsOf(...cut(user ?? "", ":"));
  const settings = { ...credentials, ...(/ss$|ys$/.test(scheme) && { tls: tls ?? {} }) };
  if (scheme === "unix") {
    const place = { host: "", port: 0, path: rest, ...credentials, database: databaseOf(parameters.get("db") ?? "") };
    return new OneServer(new Server(driver, async () => place, rest));
  }
  const [hosts, path] = cut(rest, "/");
  if (kind === "cluster") {
    return new Cluster(
      driver,
      hosts.split(",").map((host) => ({ ...settings, ...placeOf(host, 6379) })),
    );
  }
  if (kind === "sentinel") {
    const [service, database] = cut(path, "/");
    if (!service) throw invalid("a URL of Sentinels is redis+sentinel://HOST:PORT[,HOST:PORT...]/SERVICE[/DATABASE]");
    const own = credentialsOf(parameters.get("sentinel_user") ?? "", parameters.get("sentinel_password") ?? "");
    const sentinels = hosts
      .split(",")
      .map((host) => ({ ...settings, username: undefined, password: undefined, ...own, ...placeOf(host, 26379) }));
    const index = databaseOf(database);
    const locate = async () => ({ ...settings, database: index, ...(await masterOf(driver, sentinels, service)) });
    return new OneServer(new Server(driver, locate, `the master of ${service}`));
  }
  const place = { ...settings, ...placeOf(hosts || "localhost", 6379), database: databaseOf(path) };
  const server = new Server(driver, async () => place, `${place.host}:${place.port}`);
  return new Unknown(server, () => new Cluster(driver, [place]));
}

function credentialsOf(username: string, password: string): { username?: string; password?: string } {
  return {
    ...(username && { username: decodeURIComponent(username) }),
    ...(password && { password: decodeURIComponent(password) }),
  };
}

function databaseOf(text: string): number {
  if (!/^\d{0,5}$/.test(text)) throw invalid(`the URL names a database by its number, not ${text}`);
  return Number(text);
}

function placeOf(text: string, usual: number): { host: string; port: number } {
  const [, host, port] = /^(\[[^\]]+\]|[^:[\]]+)(?::(\d+))?$/.exec(text) ?? [];
  if (host === undefined) throw invalid(`the URL names a host as HOST:PORT, not ${text}`);
  return { host: host.replace(/^\[|\]$/g, ""), port: port === undefined ? usual : Number(port) };
}
