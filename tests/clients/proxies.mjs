// gander behind the proxies that deploy/ shows: the real nginx and the real Caddy, with those very files.
//
//   GANDER=path/to/gander GOOSE=path/to/goose node tests/clients/proxies.mjs
//
// Nothing here is measured in time: that events come one by one is shown by waiting for each before the next is made.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import https from "node:https";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

import { Gander } from "./gander.mjs";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../..");
const scratch = mkdtempSync(path.join(tmpdir(), "gander-proxies-"));
const running = new Set();

/** How long an answer or an event is waited for, in milliseconds: a proxy that holds it back holds it for ever. */
const PATIENCE = 60_000;

function run(program, args) {
  const child = spawn(program, args, { env: { PATH: process.env.PATH, HOME: scratch }, stdio: ["ignore", "pipe", "pipe"] });
  running.add(child);
  child.said = "";
  for (const pipe of [child.stdout, child.stderr]) pipe.on("data", (data) => (child.said += data));
  child.ended = once(child, "exit").then(([code]) => {
    running.delete(child);
    return code;
  });
  return child;
}

async function stop(child, signal = "SIGTERM") {
  child.kill(signal);
  return child.ended;
}

async function freePort() {
  const server = net.createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

async function until(what, holds) {
  for (let attempt = 0; attempt < 600; attempt++) {
    const value = await holds();
    if (value) return value;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`waited in vain: ${what}`);
}

/** A request through the proxy; the answer's body is read by the caller. */
function send(method, url, headers, body, localAddress) {
  return new Promise((resolve, reject) => {
    const request = https.request(url, { method, headers, localAddress, rejectUnauthorized: false, servername: "gander.example.org", agent: false });
    const timer = setTimeout(() => request.destroy(new Error(`no answer has come through: ${url}`)), PATIENCE);
    for (const event of ["response", "error"]) request.on(event, () => clearTimeout(timer));
    request.on("response", resolve).on("error", reject);
    request.end(body);
  });
}

async function json(answer) {
  let text = "";
  for await (const part of answer) text += part;
  return JSON.parse(text);
}

/** Reads server-sent events as they come; `next()` gives null when the stream has ended. */
class Events {
  constructor(answer) {
    this.waiting = [];
    this.comments = 0;
    this.ended = false;
    let rest = "";
    const end = () => {
      this.ended = true;
      this.wake?.();
    };
    answer.on("error", end).on("close", end).on("end", end);
    answer.on("data", (data) => {
      const blocks = (rest + data).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const line = block.split("\n").find((line) => line.startsWith("data: "));
        if (line) this.waiting.push(JSON.parse(line.slice("data: ".length)));
        else this.comments++;
      }
      this.wake?.();
    });
    this.close = () => answer.destroy();
  }

  async next() {
    let inVain = false;
    const timer = setTimeout(() => {
      inVain = true;
      this.wake?.();
    }, PATIENCE);
    while (this.waiting.length === 0 && !this.ended && !inVain) {
      await new Promise((resolve) => (this.wake = resolve));
    }
    clearTimeout(timer);
    assert(!inVain, "no event has come through");
    return this.waiting.shift() ?? null;
  }

  async until(type) {
    for (;;) {
      const event = await this.next();
      assert(event, `the stream ended before ${type}`);
      if (event.type === type) return event;
    }
  }
}

function certificate() {
  const files = { key: path.join(scratch, "key.pem"), chain: path.join(scratch, "chain.pem") };
  execFileSync("openssl", [
    "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=gander.example.org",
    "-keyout", files.key, "-out", files.chain,
  ], { stdio: "ignore" });
  return files;
}

/** Replaces each text of a file that is shown to people; all of them have to be in it. */
function adapted(name, replacements) {
  let text = readFileSync(path.join(root, "deploy", name), "utf8");
  for (const [shown, used] of replacements) {
    assert(text.includes(shown), `deploy/${name} has no ${shown}`);
    text = text.replaceAll(shown, used);
  }
  return text;
}

async function nginx(ganderPort) {
  const port = await freePort();
  const plain = await freePort();
  const { key, chain } = certificate();
  const site = adapted("nginx.conf", [
    ["127.0.0.1:4665", `127.0.0.1:${ganderPort}`],
    ["listen 80;", `listen 127.0.0.1:${plain};`],
    ["listen [::]:80;", ""],
    ["listen 443 ssl http2;", `listen 127.0.0.1:${port} ssl http2;`],
    ["listen [::]:443 ssl http2;", ""],
    ["/etc/ssl/gander/fullchain.pem", chain],
    ["/etc/ssl/gander/privkey.pem", key],
    // So that a silent stream outlives it in a test's time.
    ["proxy_read_timeout 330s", "proxy_read_timeout 2s"],
    ["/var/log/nginx/gander.log", `${scratch}/nginx.log`],
    ["/var/log/nginx/gander-error.log", `${scratch}/nginx-error.log`],
  ]);
  const file = path.join(scratch, "nginx.conf");
  writeFileSync(file, `daemon off; pid ${scratch}/nginx.pid; error_log stderr warn;
events {}
http { access_log ${scratch}/nginx-other.log; client_body_temp_path ${scratch}/body; proxy_temp_path ${scratch}/proxy;
fastcgi_temp_path ${scratch}/fastcgi; uwsgi_temp_path ${scratch}/uwsgi; scgi_temp_path ${scratch}/scgi;
${site}}`);
  const start = () => run("nginx", ["-c", file, "-e", "stderr"]);
  const logs = ["nginx.log", "nginx-error.log", "nginx-other.log"].map((name) => path.join(scratch, name));
  return { name: "nginx", port, plain, start, logs };
}

async function caddy(ganderPort) {
  const port = await freePort();
  const plain = await freePort();
  const site = adapted("Caddyfile", [
    ["127.0.0.1:4665", `127.0.0.1:${ganderPort}`],
    ["gander.example.org {", `https://gander.example.org:${port} {\n\tbind 127.0.0.1\n\ttls internal`],
    ["\t}\n\n\tlog {", `\t}\n\n\tlog {\n\t\toutput file ${scratch}/caddy.log`],
    ["response_header_timeout 330s", "response_header_timeout 2s"],
    ["grace_period 10s", `grace_period 1s\n\tadmin off\n\tskip_install_trust\n\thttp_port ${plain}\n\tstorage file_system ${scratch}/caddy`],
  ]);
  const file = path.join(scratch, "Caddyfile");
  writeFileSync(file, site);
  const start = () => run("caddy", ["run", "--config", file, "--adapter", "caddyfile"]);
  return { name: "caddy", port, plain, start, logs: [`${scratch}/caddy.log`] };
}

async function tryProxy({ name, port, plain, start, logs }, gander) {
  const step = (text) => console.log(`${name}: ${text}`);
  const base = `https://127.0.0.1:${port}`;
  const host = `gander.example.org:${port}`;
  const headers = { authorization: `Bearer ${gander.token}`, host, "content-type": "application/json" };
  const call = async (method, where, body, more = {}) => json(await send(method, base + where, { ...headers, ...more }, body && JSON.stringify(body)));
  const isUp = () => send("GET", `${base}/healthz`, headers).then((answer) => answer.resume().statusCode === 200, () => false);
  let proxy = start();
  await until(`${name} is up`, async () => {
    assert(proxy.exitCode === null, proxy.said);
    return isUp();
  });

  step("gander knows who asks, and nobody can forge it");
  const forged = { ...headers, "x-forwarded-for": "192.0.2.66", "x-forwarded-host": "evil.example", forwarded: "for=192.0.2.66;host=evil.example" };
  const logged = async (id) => {
    const line = () => gander.log().split("\n").find((line) => line.includes(`"${id}"`) && line.includes('"answered"'));
    return JSON.parse(await until(`the log tells of ${id}`, line));
  };
  for (const [kind, sent] of [["honest", headers], ["forged", forged]]) {
    const id = `${name}-${kind}`;
    const answer = await send("GET", `${base}/v1/info`, { ...sent, "x-request-id": id }, undefined, "127.0.0.2");
    assert.equal(answer.resume().statusCode, 200);
    assert.equal((await logged(id)).client, "127.0.0.2", `${kind}: the client's address, not the proxy's`);
  }
  // Without a token the host counts: what the proxy was asked for, not what the client says that it was.
  const { authorization: _, ...tokenless } = forged;
  assert.equal((await send("GET", `${base}/healthz`, tokenless)).resume().statusCode, 200);
  // Past the proxy, from an address that is not trusted.
  const past = execFileSync("curl", ["-sS", "--interface", "127.0.0.2", "-H", "X-Forwarded-For: 192.0.2.66", "-H", `X-Request-Id: ${name}-past`, `${gander.address}/healthz`]);
  assert(past.includes("ok"));
  assert.equal((await logged(`${name}-past`)).client, "127.0.0.2");

  step("ten slow events arrive ten times");
  const session = await call("POST", "/v1/sessions", { mode: "approve" });
  const follow = async (query, more = {}) => new Events(await send("GET", `${base}/v1/sessions/${session.id}/events?${query}`, { ...headers, ...more }));
  const events = await follow("after=0");
  await until("the session is ready", async () => (await events.next()).state === "idle");
  let last;
  for (let count = 1; count <= 10; count++) {
    await call("PATCH", `/v1/sessions/${session.id}`, { title: `slow ${count}` });
    // The next is not made before this one has come through.
    last = await events.until("session.updated");
    assert.equal(last.session.title, `slow ${count}`);
  }

  step("so do lines of JSON");
  const answer = await send("GET", `${base}/v1/sessions/${session.id}/events?after=latest`, { ...headers, accept: "application/x-ndjson" });
  const lines = answer[Symbol.asyncIterator]();
  await lines.next(); // the cursor
  for (let count = 1; count <= 3; count++) {
    await call("PATCH", `/v1/sessions/${session.id}`, { title: `line ${count}` });
    assert(String((await lines.next()).value).includes(`line ${count}`));
    last = await events.until("session.updated");
  }
  answer.destroy();

  step("a silent stream outlives the proxy's patience");
  const before = events.comments;
  await until("many heartbeats", () => events.comments > before + 7);
  assert(!events.ended, `the stream was cut: ${proxy.said}`);

  step("a restart of the proxy loses no event for who resumes");
  assert.equal(await stop(proxy, name === "nginx" ? "SIGTERM" : "SIGINT"), 0, proxy.said);
  assert.equal(await events.next(), null, "the stream is cut");
  // Past the proxy, so that it happens while nobody listens.
  for (let count = 1; count <= 3; count++) await gander.ask(`/v1/sessions/${session.id}`, { title: `missed ${count}` }, "PATCH");
  proxy = start();
  await until(`${name} is up again`, isUp);
  const resumed = await follow("after=0", { "last-event-id": String(last.id) });
  for (let count = 1; count <= 3; count++) {
    const event = await resumed.next();
    assert.deepEqual([event.id, event.session.title], [last.id + count, `missed ${count}`]);
  }

  step("a whole turn, with a question and its answer");
  await call("POST", `/v1/sessions/${session.id}/turns`, { prompt: "Have a look around." });
  const { permission } = await resumed.until("permission.requested");
  await call("POST", `/v1/sessions/${session.id}/permissions/${permission.id}`, { decision: "allow" });
  assert.equal((await resumed.until("turn.completed")).turn.state, "completed");
  resumed.close();

  step("a ticket");
  const { ticket } = await call("POST", "/v1/stream-tickets");
  const without = new Events(await send("GET", `${base}/v1/sessions/${session.id}/events?follow=false&ticket=${ticket}`, { host }));
  await without.until("turn.completed");
  await until("the access log tells of it", () => readFileSync(logs[0], "utf8").includes("ticket=REDACTED"));

  step("a page of another origin is refused");
  const refused = await send("GET", `${base}/v1/sessions`, { ...headers, origin: "https://evil.example" });
  assert.equal(refused.resume().statusCode, 403);
  const own = await send("GET", `${base}/v1/sessions`, { ...headers, origin: `https://${host}` });
  assert.equal(own.resume().statusCode, 200, "pages that the proxy serves beside gander are of its own origin");

  await gander.ask(`/v1/sessions/${session.id}`, undefined, "DELETE");
  assert.equal(await gander.end("SIGTERM"), 0, gander.log());

  step("no ticket is in a log, also when gander is away, there are two, or it is asked without TLS");
  const asked = `/v1/events?ticket=${ticket}&types=*&ticket=${ticket}`;
  assert.equal((await send("GET", base + asked, { host })).resume().statusCode, 502);
  const plainly = await fetch(`http://127.0.0.1:${plain}${asked}`, { redirect: "manual" });
  assert([301, 308].includes(plainly.status), "it leads to the address with TLS");
  assert.equal(await stop(proxy, name === "nginx" ? "SIGTERM" : "SIGINT"), 0, proxy.said);
  const written = logs.map((log) => readFileSync(log, "utf8"));
  assert.match(written[0], /502/, "the access log tells of it");
  for (const text of [proxy.said, ...written]) assert(!text.includes(ticket), `a ticket is in a log: ${text}`);
}

const gander = new Gander(scratch, {
  GANDER_SERVER__HEARTBEAT: "500ms",
  // As the two files ask for it.
  GANDER_SERVER__PUBLIC_URL: "https://gander.example.org",
  GANDER_SERVER__TRUSTED_PROXIES: "127.0.0.1",
  GANDER_SERVER__PROXY_HEADERS: "x-forwarded",
  GANDER_LOG__FORMAT: "json",
});
try {
  for (const prepare of [nginx, caddy]) {
    await gander.start();
    await tryProxy(await prepare(new URL(gander.address).port), gander);
  }
  console.log("proxies: all steps passed");
} finally {
  for (const child of running) child.kill("SIGKILL");
  gander.process?.kill("SIGKILL");
  rmSync(scratch, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
}
