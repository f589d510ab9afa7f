// Pages stay current, at a low cost, whatever lies between the browser and Redis.
import assert from "node:assert/strict";
import { createServer, request as send } from "node:http";
import { after, before, test } from "node:test";
import { Bench, until } from "./harness.mjs";

const bench = new Bench();
let site, browser;

before(async () => {
  await bench.redis();
  site = await bench.serve();
  browser = await bench.browser();
});
after(() => bench.close());

let pushed = 0;
const push = (queue, from = site) => from.push(queue, [{ id: `live:${pushed += 1}`, payload: "x", delay: "90min" }]);
/** Waits until the page itself, not loaded again, shows so many waiting messages. */
const shows = async (page, queue, from = site) => {
  const count = `${(await from.counts(queue)).scheduled}`;
  await page.locator("[data-live] a[href$='state=scheduled']", { hasText: new RegExp(`^Scheduled ${count}$`) }).waitFor({ timeout: 60_000 });
};
/** Requests that a page sends, with their times. */
const record = (page) => {
  const sent = [];
  page.on("request", (request) => {
    if (!request.url().includes("/assets/")) sent.push({ url: request.url(), at: performance.now() });
  });
  return sent;
};
const atMostOneASecond = (sent) => {
  // The notices reach this process late, and unevenly: so the number counts, and not each pause.
  const seconds = (sent.at(-1).at - sent[0].at) / 1_000;
  assert.ok(sent.length <= seconds + 2, `${sent.length} requests in ${seconds} s`);
};

test("a_page_shows_what_was_pushed_and_keeps_focus_and_selection", async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  await push("live");
  const sent = record(page);
  await page.goto(`${site.url}/queues/live`);
  await page.evaluate(() => { window.isSame = true; });
  await page.locator("#find").fill("half an id");
  for (let round = 0; round < 3; round += 1) {
    await push("live");
    await shows(page, "live");
  }
  assert.ok(await page.evaluate(() => window.isSame), "it was not loaded again");
  assert.equal(await page.inputValue("#find"), "half an id");
  assert.equal(await page.evaluate(() => document.activeElement.id), "find");
  atMostOneASecond(sent);
  assert.equal(sent.filter(({ url }) => url.includes("/v1/events")).length, 1);
  await context.close();
});

test("open_details_and_ticked_boxes_stay_when_a_list_changes", async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(`${site.url}/queues/live`);
  const details = page.locator("main [data-live] details").first();
  if (await details.count()) await details.evaluate((element) => { element.open = true; });
  await push("live");
  await shows(page, "live");
  if (await details.count()) assert.ok(await details.evaluate((element) => element.open));
  await page.goto(`${site.url}/queues/live/messages?state=scheduled`);
  const all = page.getByLabel("Select all rows");
  await all.check();
  const boxes = page.locator("tbody input[type=checkbox]");
  assert.equal(await page.locator("tbody input:checked").count(), await boxes.count());
  await boxes.first().uncheck();
  assert.ok(!await all.isChecked());
  await context.close();
});

test("the_control_of_a_pause_follows_the_queue", async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  await push("controlled");
  await page.goto(`${site.url}/queues/controlled`);
  await page.getByRole("button", { name: "Pause", exact: true }).waitFor();
  await site.call("PUT", "/v1/queues/controlled/pause");
  await page.getByRole("button", { name: "Resume" }).waitFor({ timeout: 60_000 });
  assert.equal(await page.getByRole("button", { name: "Pause", exact: true }).count(), 0);
  await site.call("DELETE", "/v1/queues/controlled/pause");
  await page.getByRole("button", { name: "Pause", exact: true }).waitFor({ timeout: 60_000 });
  assert.equal(await page.getByRole("button", { name: "Resume" }).count(), 0);
  await context.close();
});

test("a_chart_tells_its_values_to_pointer_and_keys", async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  await site.push("charted", [{ id: "charted:1", payload: "x" }]);
  bench.work("charted", "--exec", "true");
  await until("it is handled", async () => (await site.counts("charted")).acked === 1);
  await page.goto(`${site.url}/queues/charted?range=hour`);
  const figure = page.locator("figure", { has: page.locator("#flow-drawing") }), read = figure.locator(".readout");
  await figure.locator("svg.area").focus();
  assert.match(await read.textContent(), /UTC · pushed /);
  const last = await read.textContent();
  await page.keyboard.press("ArrowLeft");
  assert.notEqual(await read.textContent(), last);
  await page.keyboard.press("ArrowRight");
  assert.equal((await read.textContent()).split(" ·")[0], last.split(" ·")[0]);
  await figure.locator(".slot").nth(3).hover();
  assert.match(await read.textContent(), / · died /);
  await context.close();
});

test("eight_tabs_have_one_stream_and_all_are_current", async () => {
  const context = await browser.newContext();
  const queues = ["tab-0", "tab-1", "tab-2", "tab-3"];
  for (const queue of queues) await push(queue);
  const streams = new Set();
  let most = 0;
  context.on("request", (request) => {
    if (!request.url().includes("/v1/events")) return;
    streams.add(request);
    most = Math.max(most, streams.size);
  });
  for (const event of ["requestfinished", "requestfailed"]) context.on(event, (request) => streams.delete(request));
  const pages = [];
  for (let tab = 0; tab < 8; tab += 1) {
    const page = await context.newPage();
    await page.goto(`${site.url}/queues/${queues[tab % 4]}`);
    pages.push(page);
  }
  await until("a stream", () => streams.size === 1);
  for (let round = 0; round < 2; round += 1) {
    for (const queue of queues) await push(queue);
    await Promise.all(pages.map((page, tab) => shows(page, queues[tab % 4])));
  }
  assert.equal(streams.size, 1);
  assert.ok(most <= 2, `${most} at once`); // the old one ends while the new one begins
  // The tab with the stream goes away: another one takes over. The end of a closed page's stream is not told.
  const [old] = streams, leader = pages.indexOf(old.frame().page());
  await pages[leader].close();
  streams.delete(old);
  await push("tab-1");
  await Promise.all([1, 5].filter((tab) => tab !== leader).map((tab) => shows(pages[tab], "tab-1")));
  await until("a stream of another tab", () => streams.size === 1);
  await context.close();
});

test("a_hidden_tab_asks_for_nothing", async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  await push("live");
  await page.goto(`${site.url}/queues/live`);
  const sent = record(page);
  await until("a stream", () => sent.some(({ url }) => url.includes("/v1/events")));
  const hide = (hidden) => page.evaluate((isHidden) => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => isHidden });
    Object.defineProperty(document, "visibilityState", { configurable: true, get: () => (isHidden ? "hidden" : "visible") });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);
  await hide(true);
  const before = sent.length;
  assert.deepEqual(await page.evaluate(async () => (await navigator.locks.query()).held), []);
  await push("live");
  await page.waitForTimeout(4_500); // longer than the time between two polls
  assert.equal(sent.length, before);
  await hide(false);
  await shows(page, "live");
  await context.close();
});

test("redis_away_shows_a_red_line_and_the_page_recovers", async () => {
  const own = new Bench();
  try {
    await own.redis();
    const away = await own.serve();
    await push("live", away);
    const context = await (await own.browser()).newContext();
    const [queue, list] = [await context.newPage(), await context.newPage()];
    await queue.goto(`${away.url}/queues/live`);
    await list.goto(away.url);
    const waiting = await queue.locator("#figures").textContent();
    await own.end(own.redisProcess);
    await queue.locator("#lost").waitFor({ timeout: 60_000 });
    // The last picture stays, greyed, with its age.
    await queue.locator("main.old").waitFor();
    assert.match(await queue.locator("#lost-age").textContent(), /^ What you see is .* old\.$/);
    assert.equal(await queue.locator("main .alert").count(), 0);
    assert.equal((await queue.locator("#figures").textContent()).replace(/\d+/g, ""), waiting.replace(/\d+/g, ""));
    await list.locator("#redis, #lost").first().waitFor({ timeout: 60_000 });
    const late = await context.newPage();
    await late.goto(`${away.url}/queues/live`);
    await late.locator("#states.alert").waitFor();
    await own.redis(own.port);
    for (const page of [queue, list]) await page.locator("#lost, #redis").first().waitFor({ state: "detached", timeout: 90_000 });
    await late.locator("#figures").waitFor({ timeout: 90_000 });
    assert.equal(await queue.locator("main.old").count(), 0);
  } finally {
    await own.close();
  }
});

test("server_away_shows_a_red_line_and_the_page_recovers", async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  await push("live");
  await page.goto(`${site.url}/queues/live`);
  await context.setOffline(true);
  await page.locator("#lost").waitFor({ timeout: 30_000 });
  assert.match(await page.locator("#lost").textContent(), /cannot be reached/);
  await context.setOffline(false);
  await page.locator("#lost").waitFor({ state: "detached", timeout: 30_000 });
  await push("live");
  await shows(page, "live");
  await context.close();
});

test("a_proxy_that_holds_streams_back_makes_the_page_poll", async () => {
  const { hostname, port } = new URL(site.url);
  const held = [];
  const proxy = createServer((incoming, outgoing) => {
    const onward = send({ hostname, port, path: incoming.url, method: incoming.method, headers: { ...incoming.headers, host: `${hostname}:${port}` } }, (answer) => {
      if (incoming.url.startsWith("/v1/events")) return held.push(answer); // all of it first, as a buffering proxy
      outgoing.writeHead(answer.statusCode, answer.headers);
      answer.pipe(outgoing);
    });
    onward.on("error", () => outgoing.destroy());
    outgoing.on("close", () => onward.destroy());
    incoming.pipe(onward);
  });
  await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  try {
    const context = await browser.newContext();
    const page = await context.newPage();
    const sent = record(page);
    await push("live");
    await page.goto(`http://127.0.0.1:${proxy.address().port}/queues/live`);
    await until("a stream is tried", () => held.length > 0);
    for (let round = 0; round < 2; round += 1) {
      await push("live");
      await shows(page, "live");
    }
    assert.ok(sent.filter(({ url }) => url.includes("/v1/events")).length <= 2);
    atMostOneASecond(sent);
    await context.close();
  } finally {
    proxy.closeAllConnections();
    proxy.close();
  }
});

for (const [name, hours] of [["ahead", 1], ["behind", -1]]) {
  test(`a_browsers_clock_an_hour_${name}_shows_right_times`, async () => {
    const context = await browser.newContext();
    await context.addInitScript((off) => {
      const real = Date.now;
      Date.now = () => real() + off;
      const Real = Date;
      window.Date = class extends Real { constructor(...args) { super(...(args.length ? args : [Real.now()])); } };
    }, hours * 3_600_000);
    const page = await context.newPage();
    const id = `clock:${name}`;
    await site.push("clock", [{ id, payload: "x", delay: "10min" }]);
    await page.goto(`${site.url}/queues/clock/messages/${id}`);
    const due = page.locator("time[data-ms] .relative", { hasText: /^in / }).first();
    const first = await due.textContent();
    assert.match(first, /^in (9 min|10 min)/);
    await page.waitForFunction(([selector, shown]) => {
      const found = [...document.querySelectorAll(selector)].find((part) => part.textContent.startsWith("in "));
      return found && found.textContent !== shown;
    }, ["time[data-ms] .relative", first]);
    assert.match(await due.textContent(), /^in 9 min \d+ s$/);
    await context.close();
  });
}

test("refused_storage_and_cookies_break_nothing", async () => {
  const context = await browser.newContext();
  await context.addInitScript(() => {
    const refuse = () => { throw new DOMException("refused", "SecurityError"); };
    Object.defineProperty(window, "localStorage", { get: refuse });
    Object.defineProperty(document, "cookie", { get: refuse, set: refuse });
    window.BroadcastChannel = class { constructor() { refuse(); } };
  });
  // As a browser does that refuses cookies: it sends none.
  await context.route("**/*", async (route) => {
    const response = await route.fetch({ maxRedirects: 0 });
    const headers = response.headers();
    delete headers["set-cookie"];
    await route.fulfill({ response, headers });
  });
  const errors = [];
  context.on("weberror", (error) => errors.push(`${error.error()}`));
  const page = await context.newPage();
  await push("live");
  await page.goto(`${site.url}/queues/live`);
  await push("live");
  await shows(page, "live");
  await page.keyboard.press("?");
  await page.getByLabel("Switch them off").check();
  assert.deepEqual(errors, []);
  await context.close();
});

test("the_browsers_zone_is_offered_and_nothing_else_is_touched", async () => {
  const context = await browser.newContext({ timezoneId: "Asia/Shanghai" });
  const page = await context.newPage();
  await page.goto(site.url);
  assert.equal(await page.inputValue("#zone"), "UTC");
  await Promise.all([page.waitForNavigation(), page.getByRole("button", { name: "This browser's: Asia/Shanghai" }).click()]);
  assert.equal(await page.inputValue("#zone"), "Asia/Shanghai");
  assert.equal(await page.locator("#zone-own").count(), 0);
  await context.close();
});

test("the_switcher_asks_the_server_while_somebody_types", async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  for (const queue of ["suggest-a", "suggest-b"]) await push(queue);
  await until("the server knows the queues", async () => {
    const { queues } = await site.call("GET", "/v1/queues?after=suggest");
    return queues.filter(({ queue }) => queue.startsWith("suggest-")).length === 2;
  });
  await page.goto(`${site.url}/search`);
  const sent = record(page);
  await page.locator("#switcher").pressSequentially("sugg", { delay: 50 });
  await page.waitForFunction(() => document.querySelectorAll("#switcher-names option").length === 2);
  const names = await page.evaluate(() => [...document.querySelectorAll("#switcher-names option")].map((option) => option.value));
  assert.deepEqual(names, ["suggest-a", "suggest-b"]);
  assert.ok(sent.length <= 3, `${sent.length} requests for 4 letters`);
  await context.close();
});

test("a_search_and_the_page_of_dead_messages_are_not_repeated", async () => {
  const context = await browser.newContext();
  // Its clock and its timer are ten times as fast.
  await context.addInitScript(() => {
    const now = performance.now.bind(performance);
    performance.now = () => now() * 10;
    const set = window.setInterval;
    window.setInterval = (act, ms) => set(act, ms / 10);
  });
  await push("live");
  for (const path of ["/search?id=absent", "/queues/live/dead"]) {
    const page = await context.newPage();
    await page.goto(`${site.url}${path}`);
    const sent = record(page);
    await push("live");
    await page.waitForFunction(() => performance.now() > 40_000, null, { timeout: 60_000 });
    assert.deepEqual(sent.map(({ url }) => url), []);
    await page.close();
  }
  await context.close();
});

test("a_message_that_ends_while_somebody_looks_has_no_actions_left", async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  await site.push("live", [{ id: "state", payload: "x", delay: "90min" }]);
  await page.goto(`${site.url}/queues/live/messages/state`);
  await page.locator("button[value=cancel]").waitFor();
  await site.call("DELETE", "/v1/queues/live/messages/state");
  await page.locator("#message[data-state=ended]").waitFor({ timeout: 60_000 });
  assert.equal(await page.locator("button[value=cancel]").count(), 0);
  // The page of a message that is not known has status 404, and is current all the same.
  const absent = `${site.url}/queues/live/messages/absent`;
  await page.goto(absent);
  // Before the second request the page has shown the first answer.
  await page.waitForResponse((response) => response.url() === absent);
  await page.waitForRequest((request) => request.url() === absent);
  assert.equal(await page.locator("#lost").count(), 0);
  await context.close();
});

test("a_double_click_sends_a_form_once", async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  await push("double");
  await page.goto(`${site.url}/queues/double`);
  let posts = 0;
  page.on("request", (request) => { posts += request.method() === "POST" ? 1 : 0; });
  await page.route("**/queues/double", async (route) => {
    // A slow answer: the second click comes before it.
    if (route.request().method() === "POST") await new Promise((resolve) => setTimeout(resolve, 700));
    await route.continue();
  });
  const button = page.getByRole("button", { name: "Pause", exact: true });
  await Promise.all([page.waitForURL(/did=paused/), button.evaluate((element) => {
    element.click();
    element.click();
    setTimeout(() => element.click(), 100);
  })]);
  assert.equal(posts, 1);
  await page.goBack();
  assert.ok(await page.locator("main button").first().isEnabled());
  await context.close();
});

test("memory_of_a_tab_stays_flat_over_fifty_refreshes", async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  await push("live");
  // The page's clock runs ten times faster, and so does its timer.
  await context.addInitScript(() => {
    const now = performance.now.bind(performance);
    performance.now = () => now() * 10;
    const set = window.setInterval;
    window.setInterval = (act, ms) => set(act, ms / 10);
  });
  await page.goto(`${site.url}/queues/live`);
  let refreshes = 0;
  page.on("requestfinished", (request) => { refreshes += request.url().endsWith("/queues/live") ? 1 : 0; });
  const session = await context.newCDPSession(page);
  const used = async () => {
    await session.send("HeapProfiler.collectGarbage");
    const { nodes, documents, jsEventListeners } = await session.send("Memory.getDOMCounters");
    const { usedSize } = await session.send("Runtime.getHeapUsage");
    return { nodes, documents, jsEventListeners, usedSize };
  };
  const after = async (count) => {
    await until(`${count} refreshes`, async () => {
      await push("live");
      return refreshes >= count;
    }, 120_000);
    return used();
  };
  const [early, late] = [await after(10), await after(60)];
  assert.ok(late.documents <= early.documents + 2, JSON.stringify([early, late]));
  assert.ok(late.nodes <= early.nodes * 1.5, JSON.stringify([early, late]));
  assert.ok(late.jsEventListeners <= early.jsEventListeners + 5, JSON.stringify([early, late]));
  assert.ok(late.usedSize <= early.usedSize + 1_000_000, JSON.stringify([early, late]));
  await context.close();
});
