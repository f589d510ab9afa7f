"use strict";
// Keeps a page current, and adds what needs a script. Every page works without it.
// It makes no markup of text: fresh parts come from the page's address, as a document.
const { body } = document, { base } = body.dataset, PATH = `${base}/queues/`;
const byId = (id, root = document) => root.getElementById(id);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const now = () => performance.now();
const make = (tag, attributes = {}, ...parts) => {
  const element = document.createElement(tag);
  for (const name in attributes) element.setAttribute(name, attributes[name]);
  element.append(...parts);
  return element;
};

// The server's time goes on by the page's monotonic clock: the browser's clock may be wrong.
let serverMs = Number(body.dataset.nowMs), readAt = performance.getEntriesByType("navigation")[0]?.responseStart || now();
const duration = (s) => {
  const m = Math.floor(s / 60), h = Math.floor(s / 3600), d = Math.floor(s / 86400);
  const two = (large, unit, small, smallUnit) => `${large} ${unit}${small ? ` ${small} ${smallUnit}` : ""}`;
  if (!m) return `${s} s`;
  if (!h) return two(m, "min", s % 60, "s");
  if (!d) return two(h, "h", m % 60, "min");
  return d < 10000 ? two(d, "d", h % 24, "h") : `${Math.floor(d / 365.25)} years`;
};
const showTimes = (root) => {
  if (!serverMs) return;
  for (const time of all("time[data-ms]", root)) {
    const part = time.querySelector(".relative"), ahead = time.dataset.ms - serverMs - now() + readAt;
    const s = Math.floor(Math.abs(ahead) / 1000);
    const text = !s ? "now" : ahead > 0 ? `in ${duration(s)}` : `${duration(s)} ago`;
    if (part && part.textContent !== text) part.textContent = text;
  }
};

// Requests: one at a time, at most one a second.
const SECOND = 1000;
let asking = null, askedAt = now();
const mayAsk = () => !asking && now() - askedAt >= SECOND;
const ask = (address, type, done) => {
  const request = asking = new XMLHttpRequest();
  let headAt = 0;
  askedAt = now();
  request.open("GET", address);
  request.responseType = type;
  request.timeout = 30 * SECOND;
  request.setRequestHeader("Accept", "text/html");
  request.onreadystatechange = () => { headAt ||= now(); };
  request.onloadend = () => {
    asking = null;
    done(request, headAt);
  };
  request.send();
};

// Live parts change in place: focus, selection, open details and ticked boxes stay.
// A row is known by what it names, and never becomes another one under somebody's pointer.
const key = (node) => {
  if (node.nodeType !== 1) return "";
  const named = node.matches("tr, li") && node.querySelector("input[type=checkbox], a[href], button[value]") || node;
  return node.id || named.getAttribute("value") || named.getAttribute("href") || "";
};
const change = (old, fresh) => {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeType !== 1) {
    old.nodeValue = fresh.nodeValue;
    return;
  }
  for (const name of new Set([...old.getAttributeNames(), ...fresh.getAttributeNames()])) {
    const value = fresh.getAttribute(name);
    if (name === "open" && old.matches("details") || value === old.getAttribute(name)) continue;
    if (value === null) old.removeAttribute(name);
    else old.setAttribute(name, value);
  }
  const keyed = new Map();
  for (const child of old.childNodes) if (key(child)) keyed.set(child.nodeName + key(child), child);
  let next = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const name = wanted.nodeName + key(wanted);
    let found = key(wanted) ? keyed.get(name) : next;
    if (found && found.nodeName + key(found) !== name) found = null;
    keyed.delete(name);
    if (found && found === next) next = next.nextSibling;
    else old.insertBefore(found || document.adoptNode(wanted), next);
    if (found) change(found, wanted);
  }
  while (next) {
    const after = next.nextSibling;
    next.remove();
    next = after;
  }
};
const liveParts = (root) => all("[data-live]", root).filter((part) => !part.parentElement.closest("[data-live]"));
const show = (fresh) => {
  showTimes(fresh);
  addSelectAll(fresh);
  addChartKeys(fresh);
  const selection = getSelection(), focused = document.activeElement;
  for (const part of liveParts(document)) if (!byId(part.id, fresh)) part.remove();
  let last;
  for (const part of liveParts(fresh)) {
    const here = byId(part.id);
    // A form with a mistake stays as it was typed.
    if (here?.querySelector(".mistake")) continue;
    if (here && (selection.isCollapsed || !selection.containsNode(here, true))) change(here, part);
    else if (!here) (!last?.closest("main") && part.closest("main") ? document.querySelector("h1") : last).after(document.adoptNode(part));
    last = here || part;
  }
  if (focused && !focused.isConnected) byId("main").focus({ preventScroll: true });
};

// A red line while the page cannot be refreshed. The last picture stays, greyed, with its age.
const showAge = () => {
  const age = byId("lost-age");
  if (age) age.textContent = ` What you see is ${duration(Math.floor((now() - readAt) / SECOND))} old.`;
};
const say = (reason) => {
  const line = byId("lost");
  byId("main").classList.toggle("old", !!reason);
  if (line?.firstChild.textContent === reason) return;
  line?.remove();
  if (!reason) return;
  // The age is no part of the alert: a screen reader would read it each second.
  const text = make("span", { role: "alert" }, reason), age = make("span", { id: "lost-age", "aria-hidden": "true" });
  byId("main").before(make("p", { class: "alert", id: "lost" }, text, age));
  showAge();
};

// The page asks for itself again after an event or a while, if its own part changes: a search of all
// queues, or a reading of the dead messages, is not repeated for the strip of findings.
const QUIET = 10 * SECOND;
let isStale = false, isLeaving = false, failures = 0, shownAt = now(), pause = SECOND;
const isProblem = byId("retry"), isLive = isProblem || document.querySelector("main [data-live]");
// What can be done with a message depends on its state: then the whole page is loaded, unless somebody types.
const state = (root) => root && byId("message", root)?.dataset.state;
const isTyped = () => all("main input").some((input) => input.value !== input.defaultValue);
const refresh = () => {
  const begun = now();
  isStale = false;
  ask(location.href, "document", (request, headAt) => {
    shownAt = now();
    pause = Math.min(Math.max(SECOND, 5 * (shownAt - begun)), QUIET);
    if (isLeaving || !timer) return;
    const fresh = request.response, isPage = (request.status === 200 || state(fresh)) && fresh?.body;
    failures += 1;
    if (state(fresh) && state(fresh) !== state(document) && !isTyped()) location.replace(location.href);
    else if (!request.status) say("The server cannot be reached: this page is not current.");
    else if (!isPage) say(`This page is not current: ${fresh?.querySelector("main p")?.textContent || request.status}`);
    else if (new URL(request.responseURL).pathname !== location.pathname) say("You are logged out: load the page again.");
    else if (isProblem || byId("none") && !byId("none", fresh)) location.replace(location.href);
    else if ("away" in fresh.body.dataset && !("away" in body.dataset)) say(byId("redis", fresh).textContent);
    else {
      if (!("away" in fresh.body.dataset)) delete body.dataset.away;
      failures = 0;
      serverMs = Number(fresh.body.dataset.nowMs);
      readAt = headAt;
      say();
      show(fresh);
    }
  });
};
const maybeRefresh = () => {
  if (!isLive || isLeaving || !mayAsk()) return;
  const since = now() - shownAt, wait = wanted()[0] && now() - aliveAt < 12 * SECOND ? QUIET : 3 * SECOND;
  if (failures ? since > Math.min(SECOND * 2 ** failures, QUIET) : since > wait || isStale && since > pause) refresh();
};

// One stream of events for all tabs: the visible tab with the lock has it, and tells the others.
const me = Math.random(), tabs = new Map();
let channel, release, abort, source, address, isHeard, said = {}, aliveAt = -Infinity, retryAt = 0, ticks = 0;
const ofLink = (link) => link.getAttribute("href").slice(PATH.length).split(/[/?#]/)[0];
const wanted = () => body.dataset.queue ? [body.dataset.queue] : all(`[data-live] a[href^="${PATH}"]`).map(ofLink);
const hear = ({ kind, tab, queues }) => {
  if (kind === "want") return tabs.set(tab, { queues, at: now() });
  aliveAt = kind === "lost" ? -Infinity : now();
  isStale ||= wanted().some((queue) => queues.includes(queue));
};
const tell = (message) => {
  channel?.postMessage(message);
  hear(message);
};
const close = () => {
  source?.close();
  source = address = null;
};
const lose = () => tell({ kind: "lost", queues: [] });
const fail = () => {
  close();
  retryAt = now() + 30 * SECOND;
  lose();
};
const lead = () => {
  for (const [tab, { at }] of tabs) if (now() - at > 15 * SECOND) tabs.delete(tab);
  const queues = [...new Set([wanted(), ...[...tabs.values()].map((tab) => tab.queues)].flat())].slice(0, 20).sort();
  const next = `${base}/v1/events?queues=${queues}`;
  if (!queues.length) return close();
  // Every stream begins with an event, unless a proxy holds it back.
  if (source && !isHeard && now() > retryAt) return fail();
  if (isHeard && source?.readyState === EventSource.OPEN && ticks % 16 === 0) tell({ queues: [] });
  if (next === address || now() < retryAt || !mayAsk()) return;
  close();
  address = next;
  askedAt = now();
  retryAt = askedAt + 5 * SECOND;
  isHeard = false;
  source = new EventSource(address);
  source.addEventListener("queues", ({ data }) => {
    const states = JSON.parse(data).queues.map(({ counts, error }) => JSON.stringify([counts, error]));
    const changed = queues.filter((queue, place) => states[place] !== said[queue]);
    queues.forEach((queue, place) => { said[queue] = states[place]; });
    isHeard = true;
    tell({ queues: changed });
  });
  // The browser connects again by itself, unless it was refused.
  source.onerror = () => source.readyState === EventSource.CLOSED ? fail() : lose();
};
const startStream = () => {
  try {
    channel = new BroadcastChannel(`dueq${base}`);
    channel.onmessage = ({ data }) => hear(data);
    abort = new AbortController();
    const held = () => new Promise((resolve) => { release = resolve; });
    // Rejected if the page stops first, or the browser refuses locks.
    navigator.locks.request(`dueq${base}`, { signal: abort.signal }, held).catch(() => {});
  } catch {
    channel?.close();
    channel = null; // no lock without HTTPS: the page polls
  }
};
const stopStream = () => {
  close();
  channel?.close();
  abort?.abort();
  release?.();
  channel = release = null;
  aliveAt = -Infinity;
};

// Names for the queue switcher, while somebody types.
const switcher = byId("switcher"), names = byId("switcher-names");
let typedAt = 0;
if (switcher) switcher.onfocus = switcher.oninput = () => { typedAt = now(); };
const suggest = () => {
  if (!typedAt || now() - typedAt < 200 || !mayAsk()) return;
  const prefix = switcher.value;
  typedAt = 0;
  const address = `${base}/v1/queues?limit=20${prefix && `&after=${encodeURIComponent(prefix)}`}`;
  ask(address, "json", ({ status, response }) => {
    if (status !== 200) return;
    const found = response.queues.map(({ queue }) => queue).filter((name) => name.startsWith(prefix));
    names.replaceChildren(...found.map((value) => make("option", { value })));
  });
};

// A box that ticks all of its table.
const addSelectAll = (root) => {
  for (const table of all("table", root)) {
    const head = table.querySelector("thead th"), box = table.querySelector("td:first-child > input[type=checkbox]");
    if (box && head && !head.querySelector("input")) head.append(make("input", { type: "checkbox", "aria-label": "Select all rows" }));
  }
};
document.onchange = ({ target }) => {
  const table = target.closest("table"), head = table?.querySelector("thead input");
  if (!head) return;
  const boxes = all("tbody input[type=checkbox]", table);
  if (target === head) for (const box of boxes) box.checked = head.checked;
  else head.checked = boxes.every((box) => box.checked);
};

// A form is sent once. Buttons are disabled after the browser has read the pressed one's value.
let disabled = [];
const enable = () => {
  for (const button of disabled) button.disabled = false;
  disabled = [];
  isLeaving = false;
};
document.onsubmit = (event) => {
  if (event.target.method !== "post") return;
  if (isLeaving) return event.preventDefault();
  isLeaving = true;
  setTimeout(() => {
    disabled = [...event.target.elements].filter((element) => element.matches("button:enabled"));
    for (const button of disabled) button.disabled = true;
  });
  setTimeout(enable, QUIET); // the answer was a download, and the page stays
};

// The values of a chart: of the slot under the pointer, or chosen by arrow keys while the chart has the focus.
const slotsOf = (chart) => all(".slot", chart);
const read = (slot) => {
  if (!slot) return;
  const figure = slot.closest("figure");
  for (const other of all(".at", figure)) other.classList.remove("at");
  slot.classList.add("at");
  figure.dataset.at = slotsOf(figure).indexOf(slot);
  figure.querySelector(".readout").textContent = slot.querySelector("title").textContent;
};
const addChartKeys = (root) => { for (const chart of all("svg.area[role=img]", root)) chart.setAttribute("tabindex", "0"); };
document.onpointerover = ({ target }) => read(target.closest(".slot"));
const toSlot = (chart, step) => {
  const slots = slotsOf(chart), last = slots.length - 1, { at = last } = chart.closest("figure").dataset;
  read(slots[Math.min(Math.max(Number(at) + step, 0), last)]);
};
document.addEventListener("focusin", ({ target }) => target.matches("svg.area") ? toSlot(target, 0) : read(target.closest(".slot")));

// The browser's zone, offered beside the field.
const zone = byId("zone"), own = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (zone && own && own !== zone.value) {
  const button = make("button", { type: "button", id: "zone-own" }, `This browser's: ${own}`);
  button.onclick = () => {
    zone.value = own;
    zone.form.requestSubmit();
  };
  zone.after(button);
}

// Keys: none while somebody types or holds a modifier.
const links = all("nav.main a"), letter = (link) => link.dataset.key || link.textContent[0].toLowerCase();
const KEYS = [
  ["/", "Find an id"], ["j", "Next row"], ["k", "Row before"], ["x", "Select the row"], ["?", "This help"],
  ...links.map((link) => [`g ${letter(link)}`, link.textContent]),
];
const kept = (act) => { try { return act(localStorage); } catch { /* refused: the choice is for this page */ } };
let isOff = kept((store) => store.dueqNoKeys), goAt = -Infinity, dialog;
const help = () => {
  if (!dialog) {
    const off = make("input", { type: "checkbox", id: "keys-off" }), close = make("button", {}, "Close");
    const list = KEYS.map(([keys, what]) => [make("dt", {}, make("kbd", {}, keys)), make("dd", {}, what)]);
    off.checked = !!isOff;
    off.onchange = () => {
      isOff = off.checked ? "1" : "";
      kept((store) => { store.dueqNoKeys = isOff; });
    };
    close.onclick = () => dialog.close();
    dialog = make("dialog", { "aria-label": "Keyboard shortcuts" }, make("h2", {}, "Keys"),
      make("dl", {}, ...list.flat()), make("p", {}, off, make("label", { for: "keys-off" }, "Switch them off")), close);
    body.append(dialog);
  }
  if (!dialog.open) dialog.showModal();
};
const toRow = (step) => {
  const rows = all("main tbody tr").filter((row) => row.querySelector("a"));
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  (rows[at + step] || rows[at] || rows[0])?.querySelector("a").focus();
};
const ACTS = {
  "/": () => byId("find")?.focus(),
  "?": help,
  j: () => toRow(1),
  k: () => toRow(-1),
  x: () => document.activeElement.closest("tbody tr")?.querySelector("input[type=checkbox]")?.click(),
  g: () => { goAt = now(); },
};
document.onkeydown = (event) => {
  if (isOff || dialog?.open || event.ctrlKey || event.altKey || event.metaKey || event.isComposing) return;
  if (event.target.matches("input:not([type=checkbox], [type=radio]), select, textarea")) return;
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (step && event.target.matches("svg.area")) {
    event.preventDefault();
    return toSlot(event.target, step);
  }
  const isSecond = now() - goAt < 1.5 * SECOND, pressed = event.key;
  goAt = -Infinity;
  const page = isSecond && links.find((link) => letter(link) === pressed);
  if (page) page.click();
  else if (ACTS[pressed]) ACTS[pressed]();
  else return;
  event.preventDefault();
};
const helpButton = make("button", { type: "button" }, "Keyboard shortcuts");
helpButton.onclick = help;
document.querySelector("footer").append(helpButton);

// One timer, and nothing while the tab is hidden or kept for going back.
let timer = 0;
const tick = () => {
  ticks += 1;
  showTimes(document);
  showAge();
  if (release) lead();
  else if (channel && ticks % 16 === 1) tell({ kind: "want", tab: me, queues: wanted() });
  suggest();
  maybeRefresh();
};
const start = () => {
  if (timer || document.hidden) return;
  if (isLive) startStream();
  timer = setInterval(tick, SECOND / 4);
};
const stop = () => {
  clearInterval(timer);
  timer = 0;
  stopStream();
  asking?.abort();
};
document.onvisibilitychange = () => {
  isStale = true;
  if (document.hidden) stop();
  else start();
};
window.onpagehide = stop;
window.onpageshow = ({ persisted }) => {
  enable();
  isStale ||= persisted;
  start();
};
addSelectAll(document);
addChartKeys(document);
