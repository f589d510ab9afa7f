// Runs the programs of the README as a reader would, and checks what all packages of dueq agree on.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { SCRIPTS } from "../src/scripts.js";
import { PACKAGE, RedisServer, ROOT } from "./servers_for_tests.js";

const read = (...names: string[]): string => readFileSync(path.join(...names), "utf8");

test("the programs of the README do what they say", async () => {
  const server = await RedisServer.start();
  const programs = [...read(PACKAGE, "README.md").matchAll(/^```ts\n(.*?)^```/gms)].map(([, text]) => text);
  const printed: string[] = [];
  for (const program of programs) {
    const text = program.replace("redis://127.0.0.1:6379/", server.url);
    // Within the package, its name is itself.
    const words = ["--input-type=module", "-e", text];
    const done = await promisify(execFile)(process.execPath, words, { cwd: PACKAGE, timeout: 30_000 });
    assert.equal(done.stderr, "");
    printed.push(done.stdout);
  }
  assert.deepEqual(printed, ["order:42: rate it, attempt 1\n", "scheduled cancelled\n"]);
});

test("the books of the example balance", { timeout: 60_000 }, async () => {
  const server = await RedisServer.start();
  const orders = path.join(ROOT, "examples/order_auto_rating/orders.csv");
  const words = [path.join(PACKAGE, "dist/examples/order_auto_rating.js"), orders, "10000000"];
  const done = await promisify(execFile)(process.execPath, words, { env: { REDIS_URL: server.url } });
  assert.match(done.stdout, /^5170 orders: .*\n.*\nthe books balance\n$/);
  assert.equal(done.stderr, "");
});

test("the version and the licence are those of the library", () => {
  const [, version] = /^version = "(.*)"$/m.exec(read(ROOT, "Cargo.toml")) ?? [];
  const manifest = JSON.parse(read(PACKAGE, "package.json"));
  assert.deepEqual([manifest.version, manifest.license], [version, "MIT OR Apache-2.0"]);
  assert.equal(manifest.dependencies, undefined); // nothing else at run time
});

test("the embedded scripts are those of lua/dist", () => {
  for (const [verb, { sha, text }] of Object.entries(SCRIPTS)) {
    assert.equal(text, read(ROOT, "lua/dist", `${verb}.lua`));
    assert.equal(sha, createHash("sha1").update(text).digest("hex"));
  }
});

test("a file that knows a Redis client is one of the drivers", () => {
  const folder = path.join(PACKAGE, "src");
  const knows = readdirSync(folder).filter((name) => /from "(io)?redis"|import\("redis"\)/.test(read(folder, name)));
  assert.deepEqual(knows, ["ioredis.ts", "node_redis.ts"]);
});
