// Makes the pictures of docs/guide/dashboard.md, of a running `make dashboard`.
// usage: node images.mjs http://127.0.0.1:8377
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "playwright-core";

const ROOT = new URL("../../..", import.meta.url).pathname;
// Each page with its height, and with what it waits for: a burst comes every two minutes.
const PAGES = [
  ["queue", "/queues/cancel-unpaid?range=60m", 1000, () => document.querySelector("#why h2")],
  ["queues", "/", 720, () => !document.querySelector("#queues").textContent.includes("…")],
  ["dead", "/queues/webhooks/dead", 720, () => true],
];
const [url] = process.argv.slice(2);
const folder = join(ROOT, "docs/guide/images");
mkdirSync(folder, { recursive: true });
const browser = await chromium.launch({ executablePath: process.env.DUEQ_CHROMIUM || "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
for (const theme of ["light", "dark"]) {
  const page = await browser.newPage({ colorScheme: theme });
  for (const [name, path, height, isReady] of PAGES) {
    await page.setViewportSize({ width: 1280, height });
    await page.goto(url + path);
    await page.waitForFunction(isReady, null, { timeout: 180_000 });
    await page.screenshot({ path: join(folder, `${name}-${theme}.png`) });
  }
}
await browser.close();
