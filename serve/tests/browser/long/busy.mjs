// Two tabs on a busy queue for an hour: memory, processor, requests.
import { readFileSync } from "node:fs";
import { Bench, until } from "../harness.mjs";
import { mean, shown } from "./report.mjs";

const QUEUE = "busy";
/** Messages a second, and the pushes that bring them. */
const RATE = 200, PUSHES = 5;
/** One message in so many is cancelled. */
const CANCELLED = 20;
const SMALL = 20;
/** So many samples at least. */
const SAMPLES = 16;
const MAX_GROWTH = 1.1;
const MAX_CPU = 0.03;
const MAX_REQUESTS = 1;
/** Requests of the first second: the page itself, and the stream. */
const AT_FIRST = 2;

/** Pushes until it is stopped. A push that is late is made up for. */
const load = (site) => {
  const begun = performance.now();
  let [pushed, timer, failed] = [0, null, null];
  let running = Promise.resolve();
  const push = async () => {
    const end = Math.floor((performance.now() - begun) / 1_000 * RATE);
    const lines = [];
    for (; pushed < end; pushed += 1) {
      const delay = pushed % CANCELLED === 0 ? "1h" : `${Math.floor(Math.random() * 30_000)}ms`;
      lines.push({ id: `b${pushed}`, payload: "x".repeat(200), delay });
    }
    if (lines.length === 0) return;
    await site.push(QUEUE, lines);
    for (const { id, delay } of lines) if (delay === "1h") await site.call("DELETE", `/v1/queues/${QUEUE}/messages/${id}`);
  };
  const next = () => {
    running = push().then(() => { timer = setTimeout(next, 1_000 / PUSHES); }, (error) => { failed = error; });
  };
  next();
  return {
    check: () => { if (failed) throw failed; },
    stop: async () => {
      await running;
      clearTimeout(timer);
    },
  };
};

/** The resident memory of a process; 0 if it has ended. */
const resident = (pid) => {
  try {
    return Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? 0) * 1_024;
  } catch {
    return 0;
  }
};

/** Processor seconds by process of Chromium. */
const processes = async (session) => (await session.send("SystemInfo.getProcessInfo")).processInfo;

class Tab {
  requests = [];
  samples = [];

  async open(context, name, url) {
    this.name = name;
    this.page = await context.newPage();
    this.page.on("request", (request) => {
      if (!request.url().includes("/assets/")) this.requests.push(performance.now());
    });
    await this.page.goto(url);
    this.session = await context.newCDPSession(this.page);
  }

  async sample() {
    await this.session.send("HeapProfiler.collectGarbage");
    const { nodes, documents, jsEventListeners } = await this.session.send("Memory.getDOMCounters");
    const { usedSize } = await this.session.send("Runtime.getHeapUsage");
    this.samples.push({ heap: usedSize, nodes, documents, listeners: jsEventListeners });
  }
}

/** The mean of the last quarter over that of the second one. */
const growth = (values) => {
  const quarter = (number) => values.slice(Math.floor(values.length * number / 4), Math.floor(values.length * (number + 1) / 4));
  return mean(quarter(3)) / mean(quarter(1));
};

const flat = (what, values, unit = "", add) => {
  const factor = growth(values);
  const ends = `${shown(values[0])}${unit} at first, ${shown(values.at(-1))}${unit} at last`;
  add(`${what}: last quarter over the second`, `${MAX_GROWTH} times`, `${shown(factor)} times: ${ends}`, factor <= MAX_GROWTH);
};

const MB = 1_000_000;

export const busy = async (report, { minutes }) => {
  const bench = new Bench();
  try {
    await bench.redis();
    const site = await bench.serve();
    for (let number = 0; number < SMALL; number += 1) await site.push(`small-${number}`, [{ payload: "x", delay: `${number + 1}h` }]);
    await site.push(QUEUE, [{ id: "first", payload: "x" }]); // creates the queue
    const work = bench.work(QUEUE, "--print", "--concurrency", "8");
    const pushes = load(site);
    await until("messages are handled", async () => (await site.counts(QUEUE)).acked > RATE);

    const browser = await bench.browser();
    const context = await browser.newContext();
    const tabs = [new Tab(), new Tab()];
    await tabs[0].open(context, "queue", `${site.url}/queues/${QUEUE}?range=hour`);
    await tabs[1].open(context, "queues", `${site.url}/`);
    const system = await browser.newBrowserCDPSession();
    const seconds = minutes * 60;
    const count = Math.max(SAMPLES, minutes);
    const memory = { serve: [], renderers: [] };
    const begun = performance.now();
    const before = await processes(system);
    const first = await site.counts(QUEUE);
    for (let number = 1; number <= count; number += 1) {
      await tabs[0].page.waitForTimeout(Math.max(0, begun + number * seconds / count * 1_000 - performance.now()));
      pushes.check();
      for (const tab of tabs) await tab.sample();
      memory.serve.push(resident(site.child.pid));
      const renderers = (await processes(system)).filter(({ type }) => type === "renderer");
      memory.renderers.push(new Map(renderers.map(({ id }) => [id, resident(id)])));
      if (number % Math.ceil(count / SAMPLES) === 0) {
        const heaps = tabs.map(({ name, samples }) => `${name} ${shown(samples.at(-1).heap / MB)} MB`).join(", ");
        report.progress(`after ${Math.round((performance.now() - begun) / 1_000)} s: ${heaps}, serve ${shown(memory.serve.at(-1) / MB)} MB`);
      }
    }
    const elapsed = (performance.now() - begun) / 1_000;
    const used = (await processes(system)).map(({ type, id, cpuTime }) => ({
      type, share: (cpuTime - (before.find((process) => process.id === id)?.cpuTime ?? 0)) / elapsed,
    }));
    const last = await site.counts(QUEUE);
    await pushes.stop();
    const rates = ["pushed", "acked", "cancelled"].map((name) => shown((last[name] - first[name]) / elapsed));
    report.figure("minutes; messages pushed, acked and cancelled a second", `${shown(elapsed / 60)}; ${rates.join(", ")}`);
    await bench.end(work, "SIGTERM");

    for (const { name, samples, requests } of tabs) {
      flat(`heap of the tab ${name}`, samples.map(({ heap }) => heap / MB), " MB", report.rule);
      flat(`nodes of the tab ${name}`, samples.map(({ nodes }) => nodes), "", report.rule);
      flat(`listeners of the tab ${name}`, samples.map(({ listeners }) => listeners), "", report.rule);
      const rate = requests.length / elapsed;
      report.rule(`requests of the tab ${name} a second`, `${MAX_REQUESTS}`, rate, requests.length <= elapsed * MAX_REQUESTS + AT_FIRST);
    }
    // A process can have both tabs: the busiest one counts.
    const renderers = used.filter(({ type, share }) => type === "renderer" && share > 0);
    const most = Math.max(...renderers.map(({ share }) => share));
    report.time("processor of the busiest renderer", `${shown(MAX_CPU * 100)} % of a core`, `${shown(most * 100)} %`, most <= MAX_CPU);
    report.figure("processor of each process of Chromium", used.filter(({ share }) => share > 0.0005)
      .map(({ type, share }) => `${type} ${shown(share * 100)} %`).join(", "));
    flat("resident memory of serve", memory.serve.map((bytes) => bytes / MB), " MB", report.rule);
    // No goal: for its inspector each renderer keeps the answers that it has got, up to 200 MB. Without an inspector
    // that of the queue had 163 MB after one minute and 169 MB after three (2026-11-26).
    const sizes = [...memory.renderers[0].keys()].map((id) => [memory.renderers[0], memory.renderers.at(-1)]
      .map((all) => shown((all.get(id) ?? 0) / MB)).join(" to "));
    report.figure("resident memory of each renderer, in MB", sizes.join(", "));
  } finally {
    await bench.close();
  }
};
