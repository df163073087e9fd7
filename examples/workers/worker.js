#!/usr/bin/env node
// A worker in plain JavaScript, by docs/worker-protocol.md: Node.js 18 or newer, no packages. Run it:
//     DULY_REDIS_URL=redis://127.0.0.1:6379/0 DULY_QUEUE=default DULY_URL=http://127.0.0.1:8080 node worker.js
const [net, tls, os, crypto] = ["net", "tls", "os", "crypto"].map((name) => require(`node:${name}`));
const { setTimeout: sleep } = require("node:timers/promises");

// A handler gets the payload and {id, token, attempt, due, signal}; it returns the result, or throws.
const handlers = {
  "email.send": async (payload, ctx) => ({ sent_to: payload.to, fencing_token: ctx.token }),
  // What `duly conformance -- node worker.js` asks of a worker:
  "conformance.echo": async (payload) => payload,
  "conformance.sleep": async (payload, ctx) => sleep(payload.seconds * 1000, null, { signal: ctx.signal }),
  "conformance.fail": async (payload) => { throw new Error(payload); },
};
const url = new URL(process.env.DULY_REDIS_URL ?? "redis://127.0.0.1:6379/0");
const [api, apiToken, queue = "default"] = [process.env.DULY_URL, process.env.DULY_TOKEN, process.env.DULY_QUEUE];
const [concurrency, drainMs, auditMs, jsonBytesMax] = [4, 30_000, 5_000, 256 * 1024];
const id = `${os.hostname().replace(/[^\w.-]/g, "-")}-${process.pid}-${crypto.randomBytes(4).toString("hex")}`;
const [tasks, inflight, reports] = ["tasks", "inflight", "reports"].map((name) => `duly:{${queue}}:${name}`);

// ---- Redis: one connection, made when it is needed, and again when it was lost
class Redis {
  constructor(onMessage) { Object.assign(this, { onMessage, waiting: [] }); }
  async call(...words) { return (await this.send([words]))[0]; }
  async send(commands) { // all in one go; fails if one of them does, or no answer comes
    const first = this.socket ? [] : this.connect();
    const socket = this.socket;
    const answers = [...first, ...commands].map((words) => new Promise((resolve, reject) => {
      const parts = words.map((word) => `$${Buffer.byteLength(String(word))}\r\n${word}\r\n`);
      socket.write(`*${words.length}\r\n${parts.join("")}`);
      this.waiting.push({ resolve, reject });
    }));
    const timer = setTimeout(() => socket.destroy(new Error("no answer from Redis")), 8000);
    const replies = await Promise.all(answers).finally(() => clearTimeout(timer));
    if (replies.slice(0, first.length).some((reply) => reply instanceof Error)) socket.destroy();
    for (const reply of replies.flat()) if (reply instanceof Error) throw reply;
    return replies.slice(first.length);
  }
  connect() { // answers with the commands that have to come first
    const place = { host: url.hostname, port: url.port || 6379, servername: url.hostname };
    this.socket = url.protocol === "rediss:" ? tls.connect(place) : net.connect(place);
    let [data, why] = [Buffer.alloc(0), new Error("Redis closed the connection")];
    this.socket.setKeepAlive(true, 10_000).on("error", (error) => (why = error)).on("close", () => {
      this.socket = null;
      for (const { reject } of this.waiting.splice(0)) reject(why);
    }).on("data", (chunk) => {
      data = Buffer.concat([data, chunk]);
      for (let found; (found = parse(data, 0)); data = data.subarray(found.end)) {
        if (this.waiting.length) this.waiting.shift().resolve(found.value);
        else this.onMessage(found.value);
      }
    });
    const [user, password, number] = [url.username, url.password, url.pathname.slice(1)].map(decodeURIComponent);
    return [password && ["AUTH", user || "default", password], number && ["SELECT", number]].filter(Boolean);
  }
}

function parse(data, at) { // one reply (RESP2) as {value, end}, numbers as text; undefined while it is incomplete
  const line = data.indexOf("\r\n", at);
  if (line < 0) return undefined;
  const [kind, text, start] = [String.fromCharCode(data[at]), data.toString("utf8", at + 1, line), line + 2];
  if ("+-:".includes(kind)) return { value: kind === "-" ? new Error(text) : text, end: start };
  if (text === "-1") return { value: null, end: start };
  const [length, value] = [Number(text), []];
  if (kind === "$" && data.length < start + length + 2) return undefined;
  if (kind === "$") return { value: data.toString("utf8", start, start + length), end: start + length + 2 };
  let item = { end: start };
  while (value.length < length && (item = parse(data, item.end))) value.push(item.value);
  return item && { value, end: item.end };
}

const [commands, reader, running] = [new Redis(), new Redis(), new Map()]; // running: entry id → attempt, all that is held
let [stopping, wake] = [false, () => {}];
async function surely(what, act) { // again and again, until it is done
  for (let pause = 100; ; pause = Math.min(2 * pause, 2000)) {
    try { return await act(); } catch (error) { console.error(`${what}: ${error.message}; trying on`); }
    await sleep(pause);
  }
}

// ---- 1. Show that you live
async function beat() {
  const facts = { host: os.hostname(), pid: process.pid, queues: [queue], concurrency, running: running.size, sdk: "js/1" };
  try { await commands.call("SET", `duly:workers:${id}`, JSON.stringify(facts), "PX", 10_000); } catch (error) {
    if (!error.message.startsWith("OOM") || (await commands.call("PEXPIRE", `duly:workers:${id}`, 10_000)) === "0") throw error;
  }
}

// ---- 2. Read
async function read() {
  for (let auditAt = 0; !stopping; ) {
    try {
      const room = concurrency - running.size;
      if (room <= 0) await new Promise((resolve) => (wake = resolve));
      else if (Date.now() >= auditAt) { await audit(); auditAt = Date.now() + auditMs; } else {
        const ask = ["XREADGROUP", "GROUP", "workers", id, "COUNT", room, "BLOCK", 2000, "STREAMS", tasks, ">"];
        for (const [entry, words] of (await reader.call(...ask))?.[0][1] ?? []) take(entry, words);
      }
    } catch (error) {
      console.error(`reading: ${error.message}; trying on`);
      auditAt = 0;
      await sleep(200);
    }
  }
}
async function audit() { // make the group, and find what an answer brought that was lost
  await reader.call("XGROUP", "CREATE", tasks, "workers", "0", "MKSTREAM").catch(() => {}); // mostly it is there
  for (const [entry] of await reader.call("XPENDING", tasks, "workers", "-", "+", 500, id)) {
    if (running.has(entry) || (running.size >= concurrency && !stopping)) continue;
    const found = await reader.call("XRANGE", tasks, entry, entry);
    if (!running.has(entry)) take(entry, found[0]?.[1] ?? []);
  }
}

// ---- 3. Begin, and 5. Time out
function take(entry, words) {
  const attempt = { entry, task: {}, abort: new AbortController(), started: Date.now() };
  for (let at = 0; at < words.length; at += 2) attempt.task[words[at]] = words[at + 1];
  attempt.stop = (why) => { attempt.why ??= why; attempt.abort.abort(); };
  const { id, token } = attempt.task;
  const twin = [...running.values()].find(({ task }) => task.id === id && task.token === token);
  attempt.over = twin ? twin.over.then(() => giveBack(attempt)) : run(attempt);
  running.set(entry, attempt);
  attempt.over.finally(() => { running.delete(entry); wake(); });
}
async function run(attempt) {
  const { entry, task, abort: { signal }, stop } = attempt;
  const readable = task.id && task.type && /^\d{1,19}$/.test(task.token) && task.timeout > 0;
  if (!readable) console.error(`entry ${entry} cannot be read and is dropped`);
  const known = readable && (await surely("checking a token", () => commands.call("HGET", inflight, task.id)));
  if (!readable || known !== task.token) return giveBack(attempt);
  const handler = Object.hasOwn(handlers, task.type) && handlers[task.type];
  if (stopping || !handler) return giveBack(attempt, { outcome: "snoozed", delay: stopping ? 0 : 5 });
  const aborted = new Promise((resolve) => signal.addEventListener("abort", resolve));
  const timer = setTimeout(stop, Math.min(task.timeout * 1000, 2 ** 31 - 1), "timed_out");
  const status = task.confirm === "1" ? await mayStart(task, signal) : 200;
  attempt.started = Date.now();
  let report = status === 409 ? null : { outcome: "snoozed", delay: stopping ? 0 : 5 };
  if (status === 200) report = await Promise.race([perform(handler, task, signal), aborted]);
  clearTimeout(timer);
  const blameless = attempt.why === "worker_stopped" && task.confirm !== "1"; // comes again, without a retry used up
  if (status === 200 && attempt.why) report = blameless ? { outcome: "snoozed", delay: 0 } : failed(attempt.why, "it was told to stop");
  return giveBack(attempt, attempt.why === "cancelled" ? null : report);
}
function failed(type, message, more) {
  return { outcome: "failed", error: JSON.stringify({ type, message: String(message).slice(0, 10_000) }), ...more };
}
async function perform(handler, task, signal) { // what it comes to, as fields of the report
  let payload;
  try { payload = JSON.parse(task.payload); } catch (error) { return failed("invalid_payload", error.message, { retry: 0 }); }
  try {
    const result = JSON.stringify((await handler(payload, { ...task, signal })) ?? null);
    if (Buffer.byteLength(result) <= jsonBytesMax) return { outcome: "completed", result };
    return failed("result_too_large", `the result has more than ${jsonBytesMax} bytes`, { retry: 0 });
  } catch (error) { return failed(error?.name ?? "Error", error?.message ?? error); }
}
async function mayStart(task, signal) { // 200: granted, 409: refused, else: no clear answer
  const body = `{"token":${task.token},"start_id":"${crypto.randomUUID()}","worker":"${id}"}`; // tokens may be over 2^53
  const headers = { "Content-Type": "application/json", ...(apiToken && { Authorization: `Bearer ${apiToken}` }) };
  for (const until = Date.now() + 30_000; api && Date.now() < until && !signal.aborted && !stopping; await sleep(300)) {
    const options = { method: "POST", headers, body, signal: AbortSignal.timeout(10_000) };
    const status = await fetch(`${api}/v1/tasks/${task.id}/start`, options).then((answer) => answer.status, () => 0);
    if (status === 200 || status === 409) return status;
  }
}

// ---- 4. Report, and give the entry back; without a report, only drop it
async function giveBack({ entry, task, started }, report) {
  const said = { id: task.id, token: task.token, ...report, worker: id, started, finished: Date.now() };
  const told = report ? [["XADD", reports, "*", ...Object.entries(said).flat()]] : [];
  const steps = [["MULTI"], ...told, ["XACK", tasks, "workers", entry], ["XDEL", tasks, entry], ["EXEC"]];
  await surely("reporting", () => commands.send(steps));
}

// ---- 6. Be told to stop
const control = new Redis(([, , message]) => {
  const [cancel, token] = [/"cancel":\s*"([^"]+)"/, /"token":\s*"?(\d+)/].map((part) => part.exec(message)?.[1]);
  for (const { task, stop } of running.values()) if (task.id === cancel && task.token === token) stop("cancelled");
});
const listen = () => control.socket || control.call("SUBSCRIBE", `duly:control:${id}`).catch((e) => console.error(e.message));

// ---- 7. Leave
async function leave(reading) {
  const over = () => Promise.all([...running.values()].map((attempt) => attempt.over));
  await reading;
  await audit().catch(() => {}); // what is found now is given back
  await Promise.race([over(), sleep(drainMs)]);
  for (const attempt of running.values()) attempt.stop("worker_stopped");
  await Promise.race([over(), sleep(5000)]);
  await commands.call("DEL", `duly:workers:${id}`).catch(() => {});
  process.exit(0);
}

surely("connecting", beat).then(() => {
  setInterval(() => beat().catch((error) => console.error(`showing life: ${error.message}`)), 3000);
  setInterval(listen, 500);
  const [reading, end] = [read(), () => { if (stopping) process.exit(1); stopping = true; wake(); leave(reading); }];
  process.on("SIGTERM", end).on("SIGINT", end);
  console.log(`worker ${id} takes tasks from ${queue}`);
});
