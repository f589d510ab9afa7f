// Everything can be read and done with JavaScript off.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { fill } from "./demo.mjs";
import { Bench, until } from "./harness.mjs";

const bench = new Bench();
let site, context, page, pages;

before(async () => {
  await bench.redis();
  site = await bench.serve();
  context = await (await bench.browser()).newContext({ javaScriptEnabled: false });
  page = await context.newPage();
  pages = await fill(bench, site);
});
after(() => bench.close());

const open = (path) => page.goto(site.url + path);
const click = (name) => Promise.all([page.waitForNavigation(), page.getByRole("button", { name, exact: true }).first().click()]);

test("each_page_has_its_heading_without_a_script", async () => {
  for (const [name, path] of pages) {
    await open(path);
    assert.ok((await page.locator("h1").innerText()).length > 2, name);
  }
});

test("a_message_is_found_by_the_search_of_the_frame", async () => {
  await open("/");
  await page.locator("#find").fill("order:40");
  await Promise.all([page.waitForURL(/\/search/), page.locator("#find").press("Enter")]);
  await Promise.all([page.waitForURL(/order:40$/), page.locator("main tbody a").first().click()]);
  assert.equal(await page.locator("h1").innerText(), "order:40");
});

test("a_queue_is_reached_by_the_switcher", async () => {
  await open("/search");
  await page.locator("#switcher").fill("orders");
  await Promise.all([page.waitForURL(`${site.url}/queues/orders`), page.locator("#switcher").press("Enter")]);
});

test("a_queue_is_paused_and_resumed", async () => {
  await open("/queues/orders");
  await click("Pause");
  assert.equal((await site.counts("orders")).paused, true);
  assert.match(await page.locator(".done").innerText(), /paused/);
  await click("Resume");
  assert.equal((await site.counts("orders")).paused, false);
});

test("a_refused_form_keeps_what_was_typed", async () => {
  await open("/queues/orders");
  await page.locator("summary", { hasText: "Change the limits" }).click();
  await page.locator("#limit-rate").fill("5 per second");
  await page.locator("#limit-burst").fill("10");
  await click("Set the limits");
  assert.equal(await page.locator("#limit-rate").inputValue(), "5 per second");
  assert.equal(await page.evaluate(() => document.activeElement.id), "limit-burst");
  assert.match(await page.locator("#mistake-burst").innerText(), /write 1 to 5/);
  await page.locator("#limit-burst").fill("2");
  await click("Set the limits");
  assert.equal((await site.counts("orders")).rate, 5);
});

test("a_message_is_cancelled_and_brought_back", async () => {
  await open("/queues/orders/messages/order:42");
  const due = (await site.call("GET", "/v1/queues/orders/messages/order:42")).due_ms;
  await Promise.all([page.waitForNavigation(), page.locator("button[value=cancel]").click()]);
  await assert.rejects(site.call("GET", "/v1/queues/orders/messages/order:42"), /404/);
  await Promise.all([page.waitForNavigation(), page.locator("button[value=undo]").click()]);
  assert.equal((await site.call("GET", "/v1/queues/orders/messages/order:42")).due_ms, due);
});

test("selected_messages_are_cancelled", async () => {
  await open("/queues/orders/messages?state=scheduled");
  const boxes = page.locator("tbody input[type=checkbox]");
  const before = (await site.counts("orders")).cancelled;
  await boxes.nth(0).check();
  await boxes.nth(1).check();
  await Promise.all([page.waitForNavigation(), page.locator("button[name=action][value=cancel]").click()]);
  assert.equal((await site.counts("orders")).cancelled, before + 2);
});

test("a_dead_message_and_a_group_are_requeued", async () => {
  const [, path] = pages.find(([name]) => name === "message-dead");
  const before = (await site.counts("mails")).dead;
  await open(path);
  await Promise.all([page.waitForNavigation(), page.locator("main button[value=requeue]").click()]);
  assert.equal((await site.counts("mails")).dead, before - 1);
  await open("/queues/mails/dead");
  await Promise.all([page.waitForNavigation(), page.locator("a[href*='group=']").first().click()]);
  await Promise.all([page.waitForNavigation(), page.locator("button[value=requeue]").click()]);
  await until("the group is requeued", async () => (await site.counts("mails")).dead < before - 1);
});

test("zone_and_theme_are_set", async () => {
  await open("/");
  await page.locator("#zone").fill("Europe/Paris");
  await page.locator("#theme").selectOption("dark");
  await click("Set");
  assert.equal(await page.locator("html").getAttribute("data-theme"), "dark");
  await open("/queues/orders/messages/order:40");
  assert.match(await page.locator("time .absolute").first().innerText(), /CES?T$/);
});
