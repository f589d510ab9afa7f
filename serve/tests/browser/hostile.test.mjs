// Texts that others choose stay text, wherever a page shows them.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { BROKEN, NAMES, STEERING, TEXTS, idOf, readBack } from "./corpus.mjs";
import { Bench, command, inspect, rotated, segment, until, watch } from "./harness.mjs";

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
  // Its message stays: some forms cancel messages of the texts.
  await site.push("forms", [{ id: "1", payload: "", delay: "1h" }]);
  await until("all queues are known", async () => (await site.call("GET", "/v1/queues?limit=1000")).queues.length === NAMES.length + 3);
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
    ["/queues/texts/messages?state=scheduled", TEXTS.map(idOf)], ["/queues/errors/messages?state=dead", TEXTS.map((text) => text.split(/[\r\n]/)[0])],
    ["/queues/errors/dead", TEXTS.map((text) => text.split(/[\r\n]/)[0])], ["/?sort=name", NAMES],
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

test("pages_of_messages_show_ids_payloads_and_errors_as_text", async () => {
  const visit = await visitor();
  for (const text of rotated(TEXTS, 2)) {
    const { status, text: shown } = await visit.open(`/queues/errors/messages/${segment(idOf(text))}`);
    assert.equal(status, 200, text);
    const [head, error, payload] = shown.split(/The last error|Payload/);
    isShown(head, idOf(text), "id");
    isShown(error, text.replaceAll("\r\n", "\n"), "error");
    isShown(payload, text, "payload");
  }
  for (const bytes of BROKEN) {
    const { status, text } = await visit.open(`/queues/texts/messages/${segment(bytes)}`);
    assert.equal(status, 200);
    isShown(text, Buffer.from(bytes).toString("hex").match(/../g).slice(0, 2).join(" "), "payload as hex");
  }
  await visit.end();
});

test("pages_of_queues_show_names_as_text", async () => {
  const visit = await visitor();
  for (const [place, name] of rotated([...NAMES.entries()], 2)) {
    const path = ["", "/messages?state=scheduled", "/dead", "/messages/1"][place % 4];
    const { status, text } = await visit.open(`/queues/${segment(name)}${path}`);
    assert.equal(status, 200, name);
    isShown(text, name, path);
  }
  await visit.end();
});

/** Reads many documents, a few at a time, and fails if one has more than the page's own markup, or lacks the text. */
const inspected = async (requests) => {
  const page = await browser.newPage();
  for (let start = 0; start < requests.length; start += 16) {
    const some = requests.slice(start, start + 16);
    const documents = await Promise.all(some.map(async ({ path, body, headers = {} }) => {
      const accept = { accept: "text/html", origin: site.url, ...headers };
      const response = await fetch((headers.at ?? site.url) + path, { method: body ? "POST" : "GET", body, headers: accept });
      assert.ok(response.status < 500, `${response.status}: ${path}`);
      return response.text();
    }));
    for (const [place, { text, faults }] of (await inspect(page, documents)).entries()) {
      assert.deepEqual(faults, [], some[place].path);
      assert.doesNotMatch(text, STEERING, some[place].path);
      if (some[place].wanted) isShown(readBack(text), some[place].wanted, some[place].path);
    }
  }
  await page.close();
};

const parameters = [
  (text) => `/search?id=${text}`, (text) => `/?name=${text}&did=${text}&sort=${text}&page=${text}`, (text) => `/queues/texts/messages?state=${text}`,
  (text) => `/queues/texts/messages?state=scheduled&from=${text}`, (text) => `/queues/texts/messages?state=scheduled&cursor=${text}`, (text) => `/?tz=${text}`, (text) => `/login?next=${text}`,
  (text) => `/go?queue=${text}`, (text) => `/queues/${text}`, (text) => `/queues/texts/messages/${text}`, (text) => `/queues/${text}/messages/${text}`, (text) => `/no/${text}`, (text) => `/operations/${text}/${text}`,
];
const spelled = (text) => encodeURIComponent(text).replace(/^\.+$/, (dots) => dots.replaceAll(".", "%2E"));
const broken = ["%ff%fe", "%c0%af", "%ed%a0%80", "%e2%82", "%f4%90%80%80", "%3c%ff%3e"];

test("parts_of_addresses_stay_text_in_every_place", async () => {
  // A search takes off white space around an id, reads base64url after ~, and shows the id that it looked for.
  const isId = (text) => idOf(text) === text && !/^[\p{White_Space}~]|\p{White_Space}$/u.test(text);
  const all = [...TEXTS.map((text) => [spelled(text), isId(text) ? text : undefined]), ...broken.map((text) => [text])];
  await inspected(all.flatMap(([text, id]) => parameters.map((parameter, place) => ({ path: parameter(text), wanted: place ? undefined : id }))));
});

test("parts_of_addresses_do_nothing_in_chromium", async () => {
  const visit = await visitor();
  for (const [place, text] of rotated([...[...TEXTS.map(spelled), ...broken].entries()], 2)) {
    const path = parameters[place % parameters.length](text);
    const { status } = await visit.open(path);
    assert.ok(status < 500, `${status}: ${path}`);
  }
  await visit.end();
});

const fields = [
  ["/preferences", "zone", ""], ["/login", "token", ""], ["/login", "next", ""], ["/server", "queue", "action=audit&"],
  ["/queues/forms/messages/1", "when", "action=reschedule&"], ["/queues/errors/dead", "typed", "action=purge&count=1&before_ms=1&"],
  ["/queues/errors/dead", "canary", "action=requeue&before_ms=1&"], ["/queues/texts/messages", "id", "action=cancel&back=state%3Dscheduled&"], ["/queues/texts", "action", ""],
];
test("fields_of_forms_stay_text_in_every_place", async () => {
  const headers = { "content-type": "application/x-www-form-urlencoded" };
  await inspected(TEXTS.flatMap((text) => fields.map(([path, name, more]) => ({ path, headers, body: `${more}${name}=${encodeURIComponent(text)}` }))));
});

test("fields_of_forms_do_nothing_in_chromium", async () => {
  const visit = await visitor();
  const forms = [
    ["/", "form.preferences", "zone"], ["/login", "form.login", "token"], ["/server", "form:has([name=queue][required])", "queue"],
    ["/queues/forms/messages/1", "form:has([name=when])", "when"], ["/queues/errors/dead", "form:has([name=typed])", "typed"],
  ];
  for (const [place, text] of TEXTS.filter((_, at) => at % 3 === 0).entries()) {
    const [path, form, name] = forms[place % forms.length];
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
  const visit = await visitor(behind.url);
  for (const user of rotated(users, 2)) {
    await visit.page.setExtraHTTPHeaders({ "x-forwarded-user": user, "x-forwarded-groups": "a" });
    const { text } = await visit.open("/workers");
    isShown(text, user, "user");
  }
  await visit.end();
});
