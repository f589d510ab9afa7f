// Queues with something in every state, and the addresses of all pages.
import { until } from "./harness.mjs";

/** Fills the Redis of the bench: a busy queue, dead messages, a paused queue, an operation. */
export const fill = async (bench, site) => {
  await site.push("orders", Array.from({ length: 300 }, (_, number) => ({
    id: `order:${number}`, payload: JSON.stringify({ order: number, items: ["pen", "paper"] }), delay: `${number % 48}h ${number % 50}min`,
  })));
  await site.push("mails", Array.from({ length: 40 }, (_, number) => ({ id: `mail:${number}`, payload: `mail ${number}` })));
  await site.push("paused", [{ id: "1", payload: "waits" }, { id: "order:40", payload: "of two queues" }]);
  await site.call("PUT", "/v1/queues/paused/pause");
  await site.push("mails", [{ id: "later", payload: "later", delay: "1h" }]);
  bench.work("orders", "--exec", "true", "--concurrency", "2");
  const { deliveries } = await site.call("POST", "/v1/queues/mails/claims", { max: 24 });
  const errors = ["connection refused by smtp.example.com:25", "mailbox of a very long name is full: ".repeat(8), "timeout"];
  await site.call("POST", "/v1/queues/mails/settlements", {
    settlements: deliveries.slice(0, 20).map(({ handle }, number) => ({ handle, action: "bury", error: errors[number % 3] })),
  });
  const operation = await site.call("POST", "/v1/queues/mails/operations", { kind: "audit" });
  await until("the worker has worked", async () => (await site.counts("orders")).acked > 0);
  const dead = (await site.call("GET", "/v1/queues/mails/messages?state=dead&limit=1")).messages[0];
  return [
    ["queues", "/"],
    ["traffic", "/traffic"],
    ["schedules", "/schedules"],
    ["queue", "/queues/orders"],
    ["queue-overdue", "/queues/mails"],
    ["queue-paused", "/queues/paused"],
    ["scheduled", "/queues/orders/messages?state=scheduled"],
    ["leased", "/queues/mails/messages?state=leased"],
    ["dead-list", "/queues/mails/messages?state=dead"],
    ["message", "/queues/orders/messages/order:40"],
    ["dead-filtered", "/queues/mails/messages?state=dead&error_text=timeout&payload=true"],
    ["push", "/queues/orders/push"],
    ["push-edit", "/queues/orders/push?edit=order:40"],
    ["message-dead", `/queues/mails/messages/${dead.href.split("/").pop()}`],
    ["message-absent", "/queues/orders/messages/none"],
    ["dead", "/queues/mails/dead"],
    ["dead-refused", "/queues/mails/dead?from=soon&until=1m+ago"],
    ["dead-none", "/queues/orders/dead"],
    ["workers", "/workers"],
    ["process-none", "/workers/process?host=gone&pid=1"],
    ["operations", "/operations"],
    ["operation", `/operations/mails/${operation.id}`],
    ["server", "/server"],
    ["search", "/search?id=order:40"],
    ["search-empty", "/search"],
    ["login", "/login"],
    ["problem", "/queues/none"],
  ];
};
