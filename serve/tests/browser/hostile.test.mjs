// Texts that others choose stay text, wherever a page shows them.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { BROKEN, NAMES, STEERING, TEXTS, idOf, readBack } from "./corpus.mjs";
import { Bench, command, segment, watch } from "./harness.mjs";

const bench = new Bench();
let site, browser;

before(async () => {
  await bench.redis();
  site = await bench.serve();
  browser = await bench.browser();
  await site.push("texts", TEXTS.map((text) => ({ id: idOf(text), payload: text, delay: "1h" })));
  for (const bytes of BROKEN) {
    await site.call("PUT", `/v1/queues/texts/messages/${segment(bytes)}`, { payload_base64: Buffer.from(bytes).toString("base64"), delay: "1h" });
  }
  await site.push("errors", TEXTS.map((text) => ({ id: idOf(text), payload: text })));
  const { deliveries } = await site.call("POST", "/v1/queues/errors/claims", { max: 256 });
  const settlements = deliveries.map(({ handle, payload }) => ({ handle, action: "bury", error: payload }));
  assert.equal((await site.call("POST", "/v1/queues/errors/settlements", { settlements })).done, TEXTS.length);
  for (const name of NAMES) await site.push(name, [{ id: "1", payload: "", delay: "1h" }]);
  // No client lets users name a node: another program could.
  const later = Date.now() + 3_600_000;
  await command(bench.port, ["ZADD", "dueq:{texts}:nodes", ...TEXTS.flatMap((text) => [`${later}`, text])]);
});
after(() => bench.close());

/** Opens pages, and fails if one of them did more than show text. */
const visitor = async (origin = site.url, options = {}) => {
  const context = await browser.newContext(options);
  const seen = await watch(context, origin);
  const page = await context.newPage();
  return {
    page,
    async open(path) {
      const response = await page.goto(origin + path, { waitUntil: "load" });
      return { status: response.status(), text: await this.text(path) };
    },
    async text(of) {
      const [text, isHit] = await page.evaluate(() => [document.documentElement.textContent, "__hit" in window]);
      assert.ok(!isHit, `a script of the text ran: ${of}`);
      assert.doesNotMatch(text, STEERING, `steering characters: ${of}`);
      return readBack(text);
    },
    async end() {
      await context.close();
      assert.deepEqual(seen, []);
    },
  };
};
const isShown = (text, wanted, where) => assert.ok(text.includes(wanted), `${JSON.stringify(wanted)} cannot be read: ${where}`);

test("lists_show_hostile_ids_errors_and_names_as_text", async () => {
  const visit = await visitor();
  const all = async (path) => {
    let { text } = await visit.open(path);
    for (let pages = 0; pages < 9 && await visit.page.locator("a[rel=next]").count(); pages += 1) {
      await Promise.all([visit.page.waitForNavigation(), visit.page.locator("a[rel=next]").first().click()]);
      text += await visit.text(path);
    }
    return text;
  };
  const lists = [
    ["/queues/texts/messages?state=scheduled", TEXTS.map(idOf)], ["/queues/errors/messages?state=dead", TEXTS],
    ["/queues/errors/dead", TEXTS], ["/", NAMES],
  ];
  for (const [path, wanted] of lists) {
    const text = await all(path);
    for (const one of wanted) isShown(text, one, path);
  }
  await visit.open("/queues/texts");
  await visit.open("/server");
  await visit.end();
});

test("live_parts_stay_text_when_they_are_replaced", async () => {
  const visit = await visitor();
  for (const path of ["/", "/workers"]) {
    await visit.open(path);
    const refreshed = visit.page.waitForResponse((response) => response.url() === site.url + path);
    await refreshed;
    await visit.text(path);
  }
  await visit.end();
});

test("message_pages_show_hostile_ids_payloads_and_errors_as_text", async () => {
  const visit = await visitor();
  for (const text of TEXTS) {
    const { status, text: shown } = await visit.open(`/queues/texts/messages/${segment(idOf(text))}`);
    assert.equal(status, 200, text);
    isShown(shown.split("Payload").pop(), text, "payload");
    isShown(shown.split("Payload")[0], idOf(text), "id");
  }
  for (const bytes of BROKEN) {
    const { status, text } = await visit.open(`/queues/texts/messages/${segment(bytes)}`);
    assert.equal(status, 200);
    isShown(text, Buffer.from(bytes).toString("hex").match(/../g).slice(0, 2).join(" "), "payload as hex");
  }
  await visit.end();
});

test("error_of_a_message_is_shown_as_text", async () => {
  const visit = await visitor();
  for (const text of TEXTS) {
    const { text: shown } = await visit.open(`/queues/errors/messages/${segment(idOf(text))}`);
    isShown(shown.split("The last error").pop(), text, "error");
  }
  await visit.end();
});

test("queue_pages_show_hostile_names_as_text", async () => {
  const visit = await visitor();
  for (const [place, name] of NAMES.entries()) {
    const path = ["", "/messages?state=scheduled", "/dead", "/messages/1"][place % 4];
    const { status, text } = await visit.open(`/queues/${segment(name)}${path}`);
    assert.equal(status, 200, name);
    isShown(text, name, path);
  }
  await visit.end();
});

const parameters = [
  (text) => `/search?id=${text}`, (text) => `/?name=${text}&did=${text}`, (text) => `/queues/texts/messages?state=${text}`,
  (text) => `/queues/texts/messages?state=scheduled&from=${text}`, (text) => `/?tz=${text}`, (text) => `/login?next=${text}`, (text) => `/go?queue=${text}`,
  (text) => `/queues/${text}`, (text) => `/queues/texts/messages/${text}`, (text) => `/queues/${text}/messages/${text}`, (text) => `/no/${text}`, (text) => `/operations/${text}/${text}`,
];
for (const half of [0, 1]) {
  test(`parts_of_addresses_are_shown_as_text_${half}`, async () => {
    const visit = await visitor();
    for (const [place, text] of TEXTS.entries()) {
      if (place % 2 !== half) continue;
      const spelled = encodeURIComponent(text).replace(/^\.+$/, (dots) => dots.replaceAll(".", "%2E"));
      for (const parameter of parameters) {
        const { status } = await visit.open(parameter(spelled));
        assert.ok(status < 500, `${status}: ${parameter(spelled)}`);
      }
    }
    for (const broken of ["%ff%fe", "%c0%af", "%ed%a0%80", "%e2%82", "%f4%90%80%80", "%3c%ff%3e"]) {
      for (const parameter of parameters) assert.ok((await visit.open(parameter(broken))).status < 500);
    }
    await visit.end();
  });
}

test("fields_of_forms_are_shown_as_text", async () => {
  const visit = await visitor();
  const fields = [
    ["/", "form.preferences", "zone"], ["/login", "form.login", "token"], ["/server", "main form", "queue"],
    [`/queues/texts/messages/${segment(idOf(TEXTS[0]))}`, "form:has([name=when])", "when"], ["/queues/errors/dead", "form:has([name=typed])", "typed"],
  ];
  for (const [place, text] of TEXTS.entries()) {
    const [path, form, name] = fields[place % fields.length];
    await visit.open(path);
    await Promise.all([
      visit.page.waitForNavigation(),
      visit.page.locator(form).first().evaluate((element, [field, value]) => {
        const input = element.elements[field];
        input.type = "hidden"; // keeps line ends, which a text field drops
        input.value = value;
        element.requestSubmit(element.querySelector("button"));
      }, [name, text]),
    ]);
    await visit.text(`${path} ${name}`);
  }
  await visit.end();
});

test("users_of_a_proxy_are_shown_as_text", async () => {
  const behind = await bench.serve("--trust-proxy", "127.0.0.1", "--user-header", "x-forwarded-user", "--groups-header", "x-forwarded-groups", "--group-role", "a=viewer");
  const users = TEXTS.filter((text) => /^[\x20-\x7e]+$/.test(text) && text.trim() === text);
  assert.ok(users.length > 90);
  for (const user of users) {
    const headers = { "x-forwarded-user": user, "x-forwarded-groups": "a" };
    const visit = await visitor(behind.url, { extraHTTPHeaders: headers });
    const { text } = await visit.open("/server");
    isShown(text, user, "user");
    await visit.end();
  }
});
