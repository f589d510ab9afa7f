// Processes on free ports: Redis, `dueq serve`, workers, proxies and Chromium. All end with the test.
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

export const ROOT = new URL("../../..", import.meta.url).pathname;
const TARGET = process.env.CARGO_TARGET_DIR || join(ROOT, "target");
const DUEQ = process.env.DUEQ_PROGRAM || join(TARGET, "debug/dueq");
const CHROMIUM = process.env.DUEQ_CHROMIUM || "/usr/bin/chromium";
/** How long a process may take to begin. */
const START_MS = 60_000;

/** Which of things that rarely differ a run tests: others with each commit, or `all`. */
const ROTATE = process.env.DUEQ_ROTATE ?? "all";
if (ROTATE !== "all" && !/^\d+$/.test(ROTATE)) throw new Error(`DUEQ_ROTATE is ${ROTATE}: it is a whole number or all`);

/** Every n-th of a list, beginning where the run says; with `all` the whole list. */
export const rotated = (list, n) => (ROTATE === "all" ? list : list.filter((_, place) => place % n === Number(ROTATE) % n));

/** A free port. Another process can take it before it is used: whoever uses it tries again. */
export const freePort = () => new Promise((resolve, reject) => {
  const server = createServer().on("error", reject).listen(0, "127.0.0.1", () => {
    const { port } = server.address();
    server.close(() => resolve(port));
  });
});

/** Waits until `act` returns something true. Looks often: the machine may be slow, but the event comes. */
export const until = async (what, act, ms = 60_000) => {
  const end = Date.now() + ms;
  for (;;) {
    const found = await act();
    if (found) return found;
    if (Date.now() > end) throw new Error(`not within ${ms} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
};

/** A folder and processes, removed and ended by `close`. */
export class Bench {
  folder = mkdtempSync(join(tmpdir(), "dueq-browser-"));
  program = DUEQ;
  #processes = new Set();
  #browser = null;

  /** Starts a program. Its output goes to a file of the folder. */
  start(name, program, args, options = {}) {
    const log = openSync(join(this.folder, `${name}.log`), "a");
    const stdout = options.readsOutput ? "pipe" : log;
    const child = spawn(program, args, { stdio: [options.readsInput ? "pipe" : "ignore", stdout, log], env: { ...process.env, ...options.env } });
    child.ended = new Promise((resolve) => child.on("exit", resolve));
    child.on("error", (error) => console.error(`${program}: ${error.message}`));
    this.#processes.add(child);
    child.ended.then(() => this.#processes.delete(child));
    return child;
  }

  log(name) {
    return readFileSync(join(this.folder, `${name}.log`), "utf8");
  }

  /** A Redis. With `port` at that port: one that was stopped begins again, empty. `options` are words of its command line. */
  async redis(port, ...options) {
    this.#server ??= execFileSync(join(ROOT, "scripts/server"), { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
    for (let tries = 0; tries < 20; tries += 1) {
      const at = port ?? await freePort();
      const name = `redis-${at}-${tries}`;
      const args = ["--port", `${at}`, "--bind", "127.0.0.1", "--dir", this.folder, "--save", "", "--appendonly", "yes", ...options];
      const child = this.start(name, this.#server, args);
      const isReady = () => this.log(name).includes("Ready to accept connections") ? "ready" : child.exitCode !== null && "ended";
      if (await until("Redis is ready", isReady, START_MS) === "ready") {
        this.port = at;
        this.url = `redis://127.0.0.1:${at}/`;
        this.redisProcess = child;
        return;
      }
    }
    throw new Error(`Redis did not start; ${this.folder} has its log`);
  }
  #server = null;

  /** `dueq serve` on a free port. */
  async serve(...options) {
    const child = this.start(`serve-${this.#count += 1}`, DUEQ, ["serve", "--listen", "127.0.0.1:0", "--json", ...options],
      { readsOutput: true, env: { REDIS_URL: this.url } });
    const line = await new Promise((resolve, reject) => {
      let text = "";
      child.stdout.on("data", (data) => {
        text += data;
        if (text.includes("\n")) resolve(text);
      });
      child.on("exit", (code) => reject(new Error(`dueq serve ended with ${code}; ${this.folder} has its log`)));
    });
    return new Site(JSON.parse(line.split("\n")[0]).listening, child);
  }
  #count = 0;

  /** `dueq work` with these arguments. */
  work(...args) {
    return this.start("work", DUEQ, ["work", ...args], { env: { REDIS_URL: this.url } });
  }

  /** Runs `dueq` to its end. */
  dueq(args, options = {}) {
    const env = { ...process.env, REDIS_URL: this.url };
    return execFileSync(DUEQ, args, { encoding: "utf8", env, stdio: ["pipe", "pipe", "ignore"], ...options });
  }

  /** A token of this role in a file. */
  token(file, name, ...args) {
    return this.dueq(["serve", "token", name, "--tokens", file, ...args]).trim();
  }

  write(name, text) {
    const path = join(this.folder, name);
    writeFileSync(path, text);
    return path;
  }

  /** Chromium, one for all pages of a test file. */
  async browser(...args) {
    this.#browser ??= await chromium.launch({
      executablePath: CHROMIUM,
      args: ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP queues.example.com 127.0.0.1", ...args],
    });
    return this.#browser;
  }

  async close() {
    await this.#browser?.close();
    const all = [...this.#processes];
    for (const child of all) child.kill("SIGKILL");
    await Promise.all(all.map((child) => child.ended));
    rmSync(this.folder, { recursive: true, force: true });
  }

  async end(child, signal = "SIGKILL") {
    child.kill(signal);
    await child.ended;
  }
}

/** A running server, or a proxy before one. */
export class Site {
  constructor(url, child) {
    this.url = url;
    this.child = child;
  }

  /** Calls `/v1`, and fails unless the status is one of success. */
  async call(method, path, body, headers = {}) {
    const isText = typeof body === "string" || body instanceof Uint8Array;
    const type = isText ? {} : { "content-type": "application/json" };
    const response = await fetch(this.url + path, {
      method,
      headers: body === undefined ? headers : { ...type, ...headers },
      body: body === undefined || isText ? body : JSON.stringify(body),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text ? JSON.parse(text) : null;
  }

  /** Pushes lines of JSON. */
  push(queue, lines) {
    const body = lines.map((line) => `${JSON.stringify(line)}\n`).join("");
    return this.call("POST", `/v1/queues/${segment(queue)}/messages`, body, { "content-type": "application/x-ndjson" });
  }

  counts(queue) {
    return this.call("GET", `/v1/queues/${segment(queue)}`);
  }
}

/** Sends a command to Redis. */
export const command = (port, words) => new Promise((resolve, reject) => {
  const socket = connect(port, "127.0.0.1").on("error", reject);
  socket.once("data", (data) => {
    socket.destroy();
    if (data[0] === 0x2d) reject(new Error(`${data}`));
    else resolve(`${data}`);
  });
  const parts = words.map((word) => Buffer.from(word));
  socket.write(`*${parts.length}\r\n`);
  for (const part of parts) socket.write(Buffer.concat([Buffer.from(`$${part.length}\r\n`), part, Buffer.from("\r\n")]));
});

/** A name or an id as a segment of an address. */
export const segment = (text) => {
  const bytes = typeof text === "string" ? Buffer.from(text) : Buffer.from(text);
  const plain = bytes.toString("latin1");
  const isPlain = /^[A-Za-z0-9\-._:@~]+$/.test(plain) && !plain.startsWith("~") && plain !== "." && plain !== "..";
  return isPlain ? plain : `~${bytes.toString("base64url")}`;
};

/** Where screenshots go. */
export const shots = () => {
  const folder = join(TARGET, "browser");
  mkdirSync(folder, { recursive: true });
  return folder;
};

/** Parses documents in a page of its own, without running them. Returns of each its text, and what it must not have. */
export const inspect = (page, documents) => page.evaluate((all) => all.map((html) => {
  const parsed = new DOMParser().parseFromString(html, "text/html");
  const faults = [];
  for (const element of parsed.querySelectorAll("*")) {
    const name = element.localName;
    const isOwn = name !== "script" || /^(\/[\w.-]+)*\/assets\/[\w-]+\.js$/.test(element.getAttribute("src")) && !element.textContent;
    if (!isOwn || ["iframe", "object", "embed", "base", "style", "template", "noscript", "img"].includes(name)) faults.push(`element ${name}`);
    if (name === "meta" && element.hasAttribute("http-equiv")) faults.push("element meta");
    for (const { name: attribute, value } of element.attributes) {
      const isAddress = ["href", "src", "action", "formaction", "xlink:href", "data", "background", "poster", "srcdoc"].includes(attribute);
      if (attribute.startsWith("on") || attribute === "style" || isAddress && !/^([/?#](?![/\\])|$)/.test(value)) faults.push(`${name} ${attribute}=${value}`);
    }
  }
  return { text: parsed.documentElement.textContent, faults };
}), documents);

/** Notes what a page must never cause: dialogs, errors, refusals by the policy, and requests to elsewhere. */
export const watch = async (context, origin) => {
  const seen = [];
  await context.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) => {
      console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
    });
  });
  context.on("dialog", (dialog) => {
    seen.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  context.on("console", (message) => {
    // Chromium reports the status of a refused page too.
    if (message.text().startsWith("Failed to load resource: the server responded with a status of 4")) return;
    if (["error", "warning"].includes(message.type())) seen.push(`console: ${message.text()} at ${message.location().url}`);
  });
  context.on("weberror", (error) => seen.push(`error: ${error.error()}`));
  context.on("request", (request) => {
    if (!request.url().startsWith(`${origin}/`)) seen.push(`request: ${request.url()}`);
  });
  context.on("page", (page) => page.on("popup", (popup) => seen.push(`popup: ${popup.url()}`)));
  return seen;
};
