// Redis servers that tests kill and freeze, and a proxy that loses replies.
import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import net, { type AddressInfo, type Socket } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { after } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { createClient } from "redis";

export const PACKAGE = path.resolve(import.meta.dirname, "../..");
export const ROOT = path.resolve(PACKAGE, "../..");
// As the Rust tests: the first server of the variable, or the one that scripts/server finds.
export const PROGRAM =
  (process.env.DUEQ_TEST_SERVERS ?? "").split(":")[0] ||
  execFileSync(path.join(ROOT, "scripts/server"), { encoding: "utf8" }).trim();

export const LIMIT = 30_000;

/** Waits until a condition holds that no event tells of. */
export async function until(holds: () => unknown, limit = LIMIT): Promise<void> {
  for (const end = performance.now() + limit; !(await holds()); await sleep(5)) {
    if (performance.now() > end) throw new Error(`the condition does not become true: ${holds.toString()}`);
  }
}

/** A port whose number + 10,000 is a port too: servers of a cluster use both. */
export async function freePort(): Promise<number> {
  for (;;) {
    const listener = net.createServer().listen(0, "127.0.0.1");
    await once(listener, "listening");
    const { port } = listener.address() as AddressInfo;
    listener.close();
    if (port < 55_000) return port;
  }
}

/** A server of its own, which keeps its data through a kill. It ends with the test file. */
export class RedisServer {
  private process!: ChildProcess;
  private readonly folder = mkdtempSync(path.join(tmpdir(), "dueq-ts-"));
  private client: ReturnType<typeof newClient> | undefined;

  private constructor(
    readonly port: number,
    private readonly options: readonly string[],
  ) {}

  static async start(...options: string[]): Promise<RedisServer> {
    const server = new RedisServer(await freePort(), options);
    after(() => server.close());
    await server.start();
    return server;
  }

  /** A server that has what this one has. */
  async replica(): Promise<RedisServer> {
    await this.command("CONFIG", "SET", "repl-diskless-sync-delay", 0); // it waits 5 s for further replicas otherwise
    const replica = await RedisServer.start("--replicaof", `127.0.0.1 ${this.port}`);
    await until(async () => String(await this.command("INFO", "replication")).includes("state=online"));
    return replica;
  }

  get url(): string {
    return `redis://127.0.0.1:${this.port}/`;
  }

  async start(): Promise<void> {
    const words = ["--port", String(this.port), "--dir", this.folder, "--save", "", "--appendonly", "yes"];
    // With everysec a busy disk delays the writes, and a kill loses calls that were answered.
    words.push(...this.options, "--appendfsync", "always");
    this.process = spawn(PROGRAM, words, { stdio: "ignore" });
    await until(() =>
      this.command("PING").then(
        () => true,
        () => false,
      ),
    );
  }

  /** A command by a connection of its own. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  async command(...words: (string | number)[]): Promise<any> {
    if (!this.client?.isReady) {
      this.client = newClient(this.port);
      await this.client.connect();
    }
    return this.client.sendCommand(words.map(String));
  }

  signal(name: NodeJS.Signals): void {
    this.process.kill(name);
  }

  async kill(): Promise<void> {
    const ended = once(this.process, "exit");
    this.process.kill("SIGKILL");
    await ended;
  }

  /** How many calls of a command the server has served. */
  async calls(command: string): Promise<number> {
    const stats = String(await this.command("INFO", "commandstats"));
    return Number(new RegExp(`cmdstat_${command}:calls=(\\d+)`).exec(stats)?.[1] ?? 0);
  }

  async meta(queue: string, field: string): Promise<number> {
    return Number((await this.command("HGET", `dueq:{${queue}}:meta`, field)) ?? 0);
  }

  async close(): Promise<void> {
    if (this.client?.isOpen) this.client.destroy();
    if (this.process.exitCode === null && this.process.signalCode === null) await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

function newClient(port: number) {
  const socket = { host: "127.0.0.1", port, reconnectStrategy: false as const };
  const client = createClient({ RESP: 2, disableOfflineQueue: true, socket });
  client.on("error", () => {}); // the command that follows has it
  return client;
}

/**
 * Passes bytes to a server. `lose` cuts the next connection whose call matches, once the server has replied.
 * With `hold` new connections are then refused until `resume`, so that a test can act before the repetition.
 */
export class Proxy {
  private matches: ((data: Buffer) => boolean) | undefined;
  private isHeld = false;
  lost!: Promise<void>;
  private noteLost = (): void => {};
  private readonly sockets = new Set<Socket>();
  private readonly server = net.createServer((socket) => this.serve(socket));

  private constructor(private readonly target: number) {}

  static async start(target: RedisServer): Promise<Proxy> {
    const proxy = new Proxy(target.port);
    proxy.server.listen(0, "127.0.0.1");
    await once(proxy.server, "listening");
    after(() => {
      proxy.server.close();
      for (const socket of proxy.sockets) socket.destroy();
    });
    return proxy;
  }

  get url(): string {
    return `redis://127.0.0.1:${(this.server.address() as AddressInfo).port}/`;
  }

  lose(text: string, { hold = false } = {}): void {
    this.matches = (data) => data.includes(text);
    this.lost = new Promise((resolve) => (this.noteLost = resolve));
    this.isHeld = hold;
  }

  resume(): void {
    this.isHeld = false;
  }

  private serve(socket: Socket): void {
    this.sockets.add(socket);
    socket.on("error", () => {});
    if (this.isHeld) return void socket.destroy();
    const server = net.connect(this.target, "127.0.0.1");
    this.sockets.add(server);
    server.on("error", () => {});
    let isLost = false;
    socket.on("data", (data) => {
      if (this.matches?.(data)) {
        this.matches = undefined;
        isLost = true;
      }
      server.write(data);
    });
    server.on("data", (data) => {
      if (isLost) {
        this.noteLost();
        socket.destroy();
        server.destroy();
      } else {
        socket.write(data);
      }
    });
    socket.on("close", () => server.destroy());
    server.on("close", () => socket.destroy());
  }
}
