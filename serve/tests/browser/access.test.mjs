// Every page, light and dark, wide and narrow: rules of axe, nothing scrolls sideways, all by keyboard. Writes screenshots.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fill } from "./demo.mjs";
import { Bench, rotated, shots } from "./harness.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const bench = new Bench();
let site, browser, pages;

before(async () => {
  await bench.redis();
  site = await bench.serve();
  browser = await bench.browser();
  pages = await fill(bench, site);
});
after(() => bench.close());

/** What axe finds, a line each. */
const violations = (page) => page.evaluate(async () => {
  const rules = Object.fromEntries(window.axe.getRules().map(({ ruleId }) => [ruleId, { enabled: true }]));
  const { violations: found } = await window.axe.run(document, { resultTypes: ["violations"], rules });
  return found.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.target} ${node.failureSummary.replace(/\s+/g, " ")}`));
});

// Both themes and both widths in each run, and the other pairs with another commit.
const pairs = [[["light", 1280], ["dark", 360]], [["dark", 1280], ["light", 360]]];
for (const [theme, width] of rotated(pairs, 2).flat()) {
  test(`axe_finds_nothing_and_nothing_scrolls_sideways_${theme}_${width}`, async () => {
    const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme: theme });
    const page = await context.newPage();
    const faults = [];
    for (const [name, path] of pages) {
      await page.goto(site.url + path);
      // A picture is for people to look at. Chromium cannot always make one.
      await page.screenshot({ path: join(shots(), `${name}-${theme}-${width}.png`), fullPage: true })
        .catch((error) => console.log(`no picture of ${name}: ${error.message.split("\n")[0]}`));
      const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      if (over > 0) faults.push(`${name}: ${over} px too wide`);
      await page.evaluate(AXE);
      for (const violation of await violations(page)) faults.push(`${name}: ${violation}`);
    }
    await page.keyboard.press("?");
    await page.locator("dialog[open]").waitFor();
    await page.evaluate(AXE);
    for (const violation of await violations(page)) faults.push(`help: ${violation}`);
    await context.close();
    assert.deepEqual(faults, []);
  });
}

test("theme_of_the_cookie_wins_over_the_system", async () => {
  const context = await browser.newContext({ colorScheme: "light" });
  await context.addCookies([{ name: "dueq_theme", value: "dark", url: site.url }]);
  const page = await context.newPage();
  await page.goto(site.url);
  const [ground, scheme] = await page.evaluate(() => [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.documentElement).colorScheme]);
  assert.equal(scheme, "dark");
  assert.equal(ground, "rgb(20, 22, 26)");
  await context.close();
});

test("each_control_of_each_page_is_reached_by_tab_and_visible", async () => {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  for (const [name, path] of pages) {
    await page.goto(site.url + path);
    const wanted = await page.evaluate(() => {
      const all = [...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']")];
      const seen = all.filter((element) => element.checkVisibility() && !element.disabled && element.getClientRects().length);
      window.reached = new Set();
      document.addEventListener("focusin", ({ target }) => window.reached.add(target));
      document.activeElement.blur();
      window.wanted = seen;
      return seen.length;
    });
    for (let presses = 0; presses < Math.min(wanted, 60); presses += 1) await page.keyboard.press("Tab");
    const [reached, hidden] = await page.evaluate(() => {
      const outline = getComputedStyle(document.activeElement);
      return [window.reached.size, outline.outlineStyle === "none" ? document.activeElement.outerHTML : ""];
    });
    assert.ok(reached >= Math.min(wanted, 60) - 1, `${name}: ${reached} of ${wanted} reached`);
    assert.equal(hidden, "", `${name}: the focus cannot be seen`);
  }
  await context.close();
});

test("keys_lead_to_pages_rows_and_help_but_not_while_typing", async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(`${site.url}/queues/orders/messages?state=scheduled`);
  const focused = () => page.evaluate(() => document.activeElement.id || document.activeElement.textContent);
  await page.keyboard.press("/");
  assert.equal(await focused(), "find");
  await page.keyboard.type("?gqj/");
  assert.equal(await page.inputValue("#find"), "?gqj/");
  assert.equal(await page.locator("dialog").count(), 0);
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press("j");
  const first = await focused();
  await page.keyboard.press("j");
  const second = await focused();
  assert.notEqual(first, second);
  await page.keyboard.press("k");
  assert.equal(await focused(), first);
  await page.keyboard.press("x");
  assert.equal(await page.locator("tbody input:checked").count(), 1);
  await page.keyboard.press("Control+j");
  assert.equal(await focused(), first);
  await page.keyboard.press("?");
  await page.locator("dialog[open]").waitFor();
  await page.keyboard.press("Escape");
  await page.locator("dialog").waitFor({ state: "hidden" });
  await Promise.all([page.waitForURL(`${site.url}/workers`), page.keyboard.press("g").then(() => page.keyboard.press("w"))]);
  await page.keyboard.press("?");
  await page.getByLabel("Switch them off").check();
  await page.keyboard.press("Escape");
  await page.reload();
  await page.keyboard.press("?");
  assert.equal(await page.locator("dialog").count(), 0, "the choice is kept");
  await context.close();
});

test("a_message_is_found_and_cancelled_by_keyboard_alone", async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(site.url);
  await page.keyboard.press("/");
  await page.keyboard.type("order:41");
  await Promise.all([page.waitForURL(/order:41/), page.keyboard.press("Enter")]);
  const cancel = page.getByRole("button", { name: "Cancel", exact: false }).first();
  for (let presses = 0; presses < 60; presses += 1) {
    await page.keyboard.press("Tab");
    if (await cancel.evaluate((button) => button === document.activeElement)) break;
  }
  await Promise.all([page.waitForURL(/did=cancelled/), page.keyboard.press("Enter")]);
  await context.close();
});

test("a_page_with_its_assets_has_at_most_60_kB", async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  const session = await context.newCDPSession(page);
  await session.send("Network.enable");
  await session.send("Network.setCacheDisabled", { cacheDisabled: true });
  for (const [name, path] of pages) {
    let bytes = 0;
    const count = ({ encodedDataLength }) => { bytes += encodedDataLength; };
    session.on("Network.loadingFinished", count);
    await page.goto(site.url + path, { waitUntil: "load" });
    session.off("Network.loadingFinished", count);
    assert.ok(bytes > 5_000 && bytes <= 60_000, `${name}: ${bytes} bytes`);
  }
  assert.ok(readFileSync(new URL("../../assets/dashboard.js", import.meta.url)).length <= 20_000);
  await context.close();
});
