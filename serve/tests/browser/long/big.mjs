// Pages of a server with many queues and messages: their speed, and whether the bars tell the truth.
import { Agent, get } from "node:http";
import { Bench, until } from "../harness.mjs";
import { MAIN, fill } from "./fill.mjs";
import { median, shown } from "./report.mjs";

const FIRST_BYTES = 20;
const PAINTS = 11;
const MAX_FIRST_BYTE_MS = 50;
const MAX_PAINT_FACTOR = 1.5;
const TABS = ["hour", "day", "48h", "all"];
/** Bars with more messages are not followed to the end: a page has 100 messages. */
const MOST_FOLLOWED = 6_000;
/** How many bars of a tab are followed. */
const FOLLOWED = 3;

/** The addresses of all pages. `message` and `dead` are ids of the queue. */
const pages = (message, dead, small) => ({
  queues: "/",
  "queues, page 2": "/?page=2",
  queue: `/queues/${MAIN}`,
  "queue, all": `/queues/${MAIN}?due=all`,
  "a small queue": `/queues/${small}`,
  scheduled: `/queues/${MAIN}/messages?state=scheduled`,
  "scheduled, latest first": `/queues/${MAIN}/messages?state=scheduled&order=newest`,
  ready: `/queues/${MAIN}/messages?state=ready`,
  leased: `/queues/${MAIN}/messages?state=leased`,
  "dead messages": `/queues/${MAIN}/messages?state=dead`,
  message: `/queues/${MAIN}/messages/${message}`,
  "dead message": `/queues/${MAIN}/messages/${dead}`,
  dead: `/queues/${MAIN}/dead`,
  operations: "/operations",
  workers: "/workers",
  server: "/server",
  search: "/search?id=of-no-message",
});

/** Pages that the empty server does not have are compared with others that have the same parts. */
const EMPTY = { "queues, page 2": "queues", "queue, all": "queue", "a small queue": "queue", "dead message": "message" };

const ask = (agent, url) => new Promise((resolve, reject) => {
  const begun = performance.now();
  get(url, { agent, headers: { accept: "text/html" } }, (response) => {
    const ms = performance.now() - begun;
    response.resume().on("end", () => {
      if (response.statusCode === 200) resolve(ms);
      else reject(new Error(`${url}: ${response.statusCode}`));
    });
  }).on("error", reject);
});

const firstBytes = async (site, addresses, report) => {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const times = Object.fromEntries(Object.keys(addresses).map((name) => [name, []]));
  for (let round = 0; round <= FIRST_BYTES; round += 1) {
    for (const [name, address] of Object.entries(addresses)) {
      const ms = await ask(agent, site.url + address);
      if (round > 0) times[name].push(ms); // before, the poller may have paused
    }
  }
  agent.destroy();
  for (const [name, ms] of Object.entries(times)) {
    const middle = median(ms);
    report.time(`first byte of ${name}, median and worst of ${FIRST_BYTES}`, `${MAX_FIRST_BYTE_MS} ms`,
      `${shown(middle)} and ${shown(Math.max(...ms))} ms`, middle <= MAX_FIRST_BYTE_MS);
  }
};

const paint = async (page, url) => {
  await page.goto(url);
  return page.evaluate(() => new Promise((resolve) => {
    new PerformanceObserver((list) => {
      const entry = list.getEntriesByName("first-contentful-paint")[0];
      if (entry) resolve(entry.startTime);
    }).observe({ type: "paint", buffered: true });
  }));
};

const paints = async (browser, [large, empty], [addresses, emptyAddresses], report) => {
  const page = await browser.newPage();
  for (const [name, address] of Object.entries(addresses)) {
    const urls = [large.url + address, empty.url + emptyAddresses[EMPTY[name] ?? name]];
    const times = [[], []];
    for (const url of urls) await paint(page, url); // fetches the assets
    for (let round = 0; round < PAINTS; round += 1) {
      for (const turn of [0, 1]) {
        const side = (round + turn) % 2;
        times[side].push(await paint(page, urls[side]));
      }
    }
    const [ms, emptyMs] = times.map(median);
    report.time(`paint of ${name} beside an empty server's, medians of ${PAINTS}`, `${MAX_PAINT_FACTOR} times`,
      `${shown(ms / emptyMs)} times: ${shown(ms)} ms, ${shown(emptyMs)} ms`, ms <= MAX_PAINT_FACTOR * emptyMs);
  }
  await page.close();
};

/** The rows of the chart's table. */
const bars = (page) => page.$$eval("#due-table tbody tr", (rows) => rows.map((row) => ({
  name: row.cells[0].textContent,
  href: row.querySelector("a")?.getAttribute("href") ?? null,
  count: Number(row.cells[1].textContent.replaceAll(",", "")),
})));

/** The times of the link of a bar. One of overdue messages has no begin. */
const bounds = ({ href }) => {
  const params = new URL(href, "http://localhost").searchParams;
  return [Number(params.get("from") ?? -Infinity), Number(params.get("before") ?? Infinity)];
};

/** The number of sorted times before this one. */
const before = (all, ms) => {
  let [low, high] = [0, all.length];
  while (low < high) {
    const middle = low + high >>> 1;
    if (all[middle] < ms) low = middle + 1;
    else high = middle;
  }
  return low;
};

/** All messages that the pages of a list show, from the present page on: id and due time. */
const listed = async (page, most) => {
  const found = [];
  for (;;) {
    found.push(...await page.$$eval("table.messages tbody tr", (rows) => rows.map((row) => [
      row.querySelector("th a").textContent, Number(row.querySelector("time[data-ms]").dataset.ms),
    ])));
    if (found.length > most) return found;
    const next = page.locator("nav.pages a[rel=next]");
    if (await next.count() === 0) return found;
    await page.goto(new URL(await next.getAttribute("href"), page.url()).href);
  }
};

/** Follows the link of a bar. Returns what is wrong with its list. */
const followed = async (page, bar, all) => {
  const [from, end] = bounds(bar);
  const found = await listed(page, bar.count);
  const expected = all.subarray(before(all, from), before(all, end));
  if (found.length !== bar.count) return `${bar.name}: ${bar.count} in the bar, ${found.length} in its list`;
  if (new Set(found.map(([id]) => id)).size !== found.length) return `${bar.name}: a message is listed twice`;
  const other = found.find(([, due], place) => due !== expected[place]);
  return other ? `${bar.name}: message ${other[0]} is due at ${other[1]}` : null;
};

/** Some of the bars that are short enough: the smallest, the largest, and one between. */
const some = (all) => {
  const short = all.filter(({ href, count }) => href && count <= MOST_FOLLOWED).sort((one, other) => one.count - other.count);
  const places = Array.from({ length: FOLLOWED }, (_, place) => Math.round(place * (short.length - 1) / (FOLLOWED - 1)));
  return short.length ? [...new Set(places)].map((place) => short[place]) : [];
};

const truth = async (page, site, all, report) => {
  const overview = `${site.url}/queues/${MAIN}`;
  for (const tab of TABS) {
    await page.goto(`${overview}?due=${tab}`);
    // Ready messages have a bar of their own: they are in no list by due time.
    const isReady = ({ name }) => name.includes("ready");
    const everyBar = await bars(page);
    const [shownBars, readyBars] = [everyBar.filter((bar) => !isReady(bar)), everyBar.filter(isReady)];
    const links = await page.$$eval("#due-drawing svg a", (found) => found.map((link) => link.getAttribute("href")));
    const { scheduled, ready } = await site.counts(MAIN);
    const shownReady = readyBars.reduce((total, { count }) => total + count, 0);
    report.rule(`bar of ready messages, ${tab}`, `${shown(ready)} as stats counts`, shownReady, shownReady === ready);
    const sum = shownBars.reduce((total, { count }) => total + count, 0);
    report.rule(`sum of the ${shownBars.length} bars, ${tab}`, `${shown(scheduled)} as stats counts`, sum, sum === scheduled);
    const linked = shownBars.filter(({ href }) => href);
    const wrong = linked.filter((bar) => {
      const [from, end] = bounds(bar);
      return before(all, end) - before(all, from) !== bar.count;
    });
    report.rule(`bars with another count than the pushed due times, ${tab}`, `0 of ${linked.length}`, wrong.length, wrong.length === 0);
    const drawn = [...linked.filter((bar) => bounds(bar)[1] !== Infinity), ...readyBars];
    const isSame = links.length === drawn.length && drawn.every(({ href }) => links.includes(href));
    report.rule(`bars of the drawing with the links of the table, ${tab}`, `${drawn.length}`, links.length, isSame);
    const faults = [];
    const chosen = some(linked);
    for (const bar of chosen) {
      await page.goto(new URL(bar.href, overview).href);
      faults.push(await followed(page, bar, all));
    }
    const counts = chosen.map(({ count }) => shown(count)).join(", ");
    const found = faults.filter(Boolean);
    report.rule(`lists of ${chosen.length} bars with ${counts} messages, ${tab}`, "exactly these", found.join("; ") || "exactly these", found.length === 0);
  }
};

/** A click on a bar of the drawing leads to its messages, as a person sees them. */
const click = async (page, site, all, report) => {
  await page.goto(`${site.url}/queues/${MAIN}?due=day`);
  const [bar] = (await bars(page)).filter((found) => found.href && bounds(found).every(Number.isFinite))
    .slice(2).sort((one, other) => one.count - other.count);
  await Promise.all([page.waitForURL("**/messages?**"), page.locator(`#due-drawing svg a[href="${bar.href}"]`).click()]);
  const fault = await followed(page, bar, all);
  report.rule(`click on the bar of ${shown(bar.count)} messages`, "exactly these", fault ?? "exactly these", !fault);
};

export const big = async (report, wanted) => {
  const [large, small] = [new Bench(), new Bench()];
  try {
    await large.redis(undefined, "--appendonly", "no");
    await small.redis(undefined, "--appendonly", "no");
    const all = await fill(large, wanted, report);
    const [site, empty] = [await large.serve(), await small.serve()];
    large.work("small-0001", "--print");
    await site.call("POST", "/v1/queues/small-0000/operations", { kind: "audit" });
    await empty.push(MAIN, [{ id: "w0", payload: "x", delay: "1h" }]);
    const known = (wantedQueues, at) => until("the poller knows all queues", async () => {
      const { queues, complete } = await at.call("GET", "/v1/queues?limit=1000");
      return complete && queues.length === wantedQueues && queues.every(({ counts }) => counts);
    });
    await known(wanted.queues + 1, site);
    await known(1, empty);
    const counts = await site.counts(MAIN);
    report.figure("scheduled, ready, leased, dead", ["scheduled", "ready", "leased", "dead"].map((state) => shown(counts[state])).join(", "));
    report.rule("scheduled messages", `${shown(all.length)}, as pushed`, counts.scheduled, counts.scheduled === all.length);
    const { messages } = await site.call("GET", `/v1/queues/${MAIN}/messages?state=dead&limit=1`);
    const addresses = pages("w3000", messages[0].href.split("/").pop(), "small-0000");
    report.progress("first bytes");
    await firstBytes(site, addresses, report);
    const browser = await large.browser();
    report.progress("paints");
    await paints(browser, [site, empty], [addresses, pages("w0", "w0", MAIN)], report);
    report.progress("bars and their lists");
    const page = await browser.newPage();
    await truth(page, site, all, report);
    await click(page, site, all, report);
  } finally {
    await large.close();
    await small.close();
  }
};
