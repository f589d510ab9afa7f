// Connections by TLS, as a user, to a database, and over a socket of the machine.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, test } from "node:test";
import { connect, DueqError } from "../src/index.js";
import { ioredis } from "../src/ioredis.js";
import { freePort, RedisServer } from "./servers_for_tests.js";

const folder = mkdtempSync(path.join(tmpdir(), "dueq-ts-"));
after(() => rmSync(folder, { recursive: true }));
const [cert, key, socket] = ["cert", "key", "socket"].map((name) => path.join(folder, name));
const words = "req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=DNS:localhost";
execFileSync("openssl", [...words.split(" "), "-keyout", key, "-out", cert], { stdio: "ignore" });

for (const [name, driver] of Object.entries({ "node-redis": undefined, ioredis })) {
  test(`${name}: TLS, users, databases and sockets`, { timeout: 60_000 }, async () => {
    const port = await freePort();
    const tls = [
      "--tls-port",
      String(port),
      "--tls-cert-file",
      cert,
      "--tls-key-file",
      key,
      "--tls-auth-clients",
      "no",
    ];
    const server = await RedisServer.start(...tls, "--unixsocket", socket);
    await server.command("ACL", "SETUSER", "user:1", "on", ">p@ss/w?", "~*", "&*", "+@all");
    const user = `${encodeURIComponent("user:1")}:${encodeURIComponent("p@ss/w?")}`;
    const ca = readFileSync(cert);
    const urls: [string, string][] = [
      [`rediss://${user}@localhost:${port}/3`, "3"],
      [`unix://${user}@${socket}?db=2`, "2"],
      [`redis://${user}@127.0.0.1:${server.port}`, "0"],
    ];
    for (const [url, database] of urls) {
      const client = connect(url, { driver, tls: { ca } });
      await client.queue("q").push("", { id: "a", delay: 60_000 });
      await client.close();
      await server.command("SELECT", database);
      assert.equal(await server.command("HEXISTS", "dueq:{q}:messages", "a"), 1, url);
    }
    // The certificate is not known, and a database is out of range: neither is taken for another.
    for (const [url, pattern] of [
      [`rediss://localhost:${port}`, /self-signed certificate/],
      [`redis://127.0.0.1:${server.port}/99`, /DB index is out of range/],
    ] as const) {
      const client = connect(url, { driver });
      await assert.rejects(
        client.queue("q").push(""),
        (error: DueqError) => error.applied === "no" && pattern.test(error.message),
      );
      await client.close();
    }
  });
}
