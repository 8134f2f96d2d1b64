// The example page in a real browser, on another origin than gander, on the real goose with the scripted model.
//
//   GANDER=path/to/gander GOOSE=path/to/goose node tests/clients/page.mjs FOLDER-FOR-PICTURES
//
// Every step waits for what a person would see. Anything that the browser's console calls an error fails the run, but
// for what it says by itself of connections that this test has cut.

import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtemp, mkdir, readFile, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

import { chromium } from "playwright-core";

import { Gander, Wire } from "./gander.mjs";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../..");
const pictures = path.resolve(process.argv[2] ?? "pictures");
const { CHROMIUM = "/usr/bin/chromium" } = process.env;

/** Serves a folder as it is, on a port of its own. */
async function serve(folder) {
  const types = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css" };
  const server = createServer(async (request, response) => {
    const name = request.url === "/" ? "index.html" : path.basename(request.url);
    try {
      const body = await readFile(path.join(folder, name));
      response.writeHead(200, { "content-type": types[path.extname(name)] ?? "text/plain" }).end(body);
    } catch {
      response.writeHead(404).end();
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return { server, origin: `http://127.0.0.1:${server.address().port}` };
}

const { server, origin } = await serve(path.join(root, "examples/web"));
const strangers = await serve(path.join(root, "tests/clients/stranger"));
const storage = await mkdtemp(path.join(tmpdir(), "gander-page-"));
await mkdir(pictures, { recursive: true });
const gander = new Gander(storage, { GANDER_SERVER__CORS_ORIGINS: origin });
const others = [];
await gander.start();
const wire = new Wire(gander.address);
await wire.join();
const browser = await chromium.launch({
  executablePath: CHROMIUM,
  args: [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
  ],
});

try {
  const context = await browser.newContext({ viewport: { width: 1100, height: 800 } });
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  const errors = [];
  let cut = false; // whether this test has cut the connection on purpose
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("console", (message) => {
    const isAboutTheCut = cut && /net::ERR_|a status of 502/.test(message.text());
    if (message.type() === "error" && !isAboutTheCut) errors.push(message.text());
  });
  let count = 0;
  const picture = (name) =>
    page.screenshot({ path: path.join(pictures, `${String(++count).padStart(2, "0")}-${name}.png`) });
  const step = (text) => console.log(`page: ${text}`);
  const sees = (selector, text) => page.locator(selector, { hasText: text }).last().waitFor();
  const card = page.locator("article.permission.open");
  let turns = 0;
  const send = async (text) => {
    turns += 1;
    await page.fill("#prompt-text", text);
    await page.press("#prompt-text", "Enter");
  };
  /** The end of the last turn, and of no earlier one. */
  const ended = async (how) => {
    const end = page.locator("article.end").nth(turns - 1);
    await end.waitFor();
    assert.match(await end.textContent(), new RegExp(`^${how}`));
  };

  step("a wrong token is refused in words");
  await page.goto(origin);
  await page.fill("[name=address]", wire.address);
  await page.fill("[name=token]", "not a token");
  errors.length = 0;
  await page.press("[name=token]", "Enter");
  await sees("#error", "Authorization");
  errors.length = 0; // The browser itself calls a 401 an error.

  step("signing in, and a new session");
  await page.fill("[name=token]", gander.token);
  await page.press("[name=token]", "Enter");
  await sees("#session-list", "None yet.");
  await picture("list");
  await newSession();

  step("a prompt: text streams in, the plan is shown, a permission is asked for");
  await send("Have a look around.");
  await sees("article.prompt", "Have a look around.");
  await sees("article.message", "built-in demo model");
  await card.waitFor();
  await sees("#plan-title", "of 3 done");
  await sees("#session-state", "awaiting permission");
  await sees("#status", "asks for permission: uname");
  await picture("permission");

  step("the same for those who do not see it");
  const heard = await page.locator("body").ariaSnapshot();
  for (const part of [
    /- status: .*asks for permission/, /- log "Conversation"/, /- group "May the agent do this\?"/, /- button "Allow once"/,
    /- button "Reject once"/, /button "Always allow /, /- button "Cancel"/, /- textbox "Prompt"/, /progressbar "Plan: /,
    /heading "Plan: /, /heading "You"/, /heading "Agent"/,
  ]) {
    assert.match(heard, part);
  }

  step("a reload, and the question is still there");
  await page.reload();
  await card.waitFor();
  await sees("article.prompt", "Have a look around.");
  assert.equal(await card.count(), 1);
  await picture("reloaded");

  step("the answer, by keyboard");
  const isFocused = (selector) => page.evaluate((selector) => document.activeElement.matches(selector), selector);
  await page.focus("#prompt-text");
  for (let presses = 0; !(await isFocused("button.allow_once")); presses++) {
    assert(presses < 10, "the question is not reached from the prompt by Shift+Tab");
    await page.keyboard.press("Shift+Tab");
  }
  await page.keyboard.press("Enter");
  await sees("article.permission", "Allowed by default");
  assert(await isFocused("article.permission"), "the focus is not lost with the button");
  await ended("completed");
  await sees("#plan-title", "3 of 3 done");
  await page.locator("article.tool summary", { hasText: "completed" }).click();
  await sees("article.tool", "Linux");
  assert.equal(await card.count(), 0);
  await picture("done");

  step("a decided question is shown as decided after a reload");
  await page.reload();
  await sees("article.permission", "Allowed by default");
  assert.equal(await card.count(), 0);

  step("rejecting");
  await send("Once more.");
  await card.waitFor();
  await card.locator("button.reject_once").click();
  await sees("article.permission", "Rejected by default");
  await ended("completed");

  step("always, in a session of its own: the same is not asked again");
  const [first, turnsOfFirst] = [page.url(), turns];
  await newSession();
  await send("Once and for all.");
  await card.waitFor();
  await card.locator("button.allow_always").click();
  await sees("article.permission", "Allowed for this session by default");
  await ended("completed");
  await send("The same again.");
  await ended("completed");
  await sees("article.permission", "Allowed, as remembered");
  assert.equal(await page.locator("article.permission").count(), 2);
  const asking = await gander.ask(`/v1/sessions/${new URL(page.url()).hash.slice(1)}/events?types=session.state&after=0`);
  assert.equal(asking.events.filter((event) => event.state === "awaiting_permission").length, 1, "it was asked once");
  await picture("always");
  await page.goto(first);
  turns = turnsOfFirst;
  await sees("article.prompt", "Once more.");

  step("cancelling");
  await send("And again.");
  await card.waitFor();
  await page.click("#cancel");
  await ended("cancelled");
  await sees("article.permission", "Rejected by cancel");
  await picture("cancelled");

  step("offline for five seconds while the turn goes on");
  await send("While I am away.");
  await card.waitFor();
  cut = true;
  wire.cut();
  await page.waitForFunction(() => document.body.classList.contains("offline"));
  const permission = (await gander.ask("/v1/permissions?state=pending")).permissions[0];
  const answered = `/v1/sessions/${permission.session_id}/permissions/${permission.id}`;
  await gander.ask(answered, { decision: "allow" });
  await new Promise((resolve) => setTimeout(resolve, 5_000));
  wire.mend();
  await ended("completed");
  await page.waitForFunction(() => !document.body.classList.contains("offline"));
  assert.equal(await card.count(), 0);
  await picture("back-online");

  step("gander is killed in the middle of a turn, and started again");
  await send("To the end?");
  await card.waitFor();
  await gander.end("SIGKILL");
  await page.waitForFunction(() => document.body.classList.contains("offline"));
  await picture("gander-is-gone");

  step("a reload meanwhile waits for it, behind a proxy too");
  const waits = async (why) => {
    await page.reload();
    await sees("#error", why);
    await page.waitForFunction(() => document.body.classList.contains("offline"));
    assert(await page.locator("#sign-in").isHidden(), "nobody has to sign in again");
  };
  await page.route(`${wire.address}/**`, (route) => route.fulfill({
    status: 502, contentType: "text/html", headers: { "access-control-allow-origin": "*" }, body: "<html>Bad gateway</html>",
  }));
  await waits("502");
  await page.unroute(`${wire.address}/**`);
  await waits("gander cannot be reached");
  await gander.start();
  await ended("interrupted");
  await sees("article.permission", "Rejected by restart");
  assert.equal(await card.count(), 0);
  cut = false;
  await picture("gander-is-back");

  step("and the session goes on, on a phone");
  await page.setViewportSize({ width: 360, height: 740 });
  await send("Go on.");
  await card.waitFor();
  await card.locator("button.reject_always").scrollIntoViewIfNeeded();
  for (const button of await page.locator("button:visible").all()) {
    const { x, width, height } = await button.boundingBox();
    assert(x >= 0 && x + width <= 360 && height >= 44, `hard to hit with a thumb: ${await button.textContent()}`);
  }
  await picture("phone-permission");
  await card.locator("button.allow_once").click();
  await sees("article.message", 'Done with "Go on."');
  const prompts = await page.locator("article.prompt").allTextContents();
  assert.equal(new Set(prompts).size, prompts.length, `nothing is shown twice: ${prompts}`);

  await ended("completed");
  const wide = await page.evaluate(() => document.documentElement.scrollWidth > window.innerWidth);
  assert(!wide, "the page scrolls sideways on a phone");
  await picture("phone");

  step("the list, and the end of the sessions");
  await page.click("#show-sessions");
  await sees("#session-list li", "idle");
  await picture("phone-list");
  page.on("dialog", (dialog) => dialog.accept());
  for (let left = 2; left > 0; left--) {
    assert.equal(await page.locator("#session-list a").count(), left);
    await page.locator("#session-list a").first().click();
    await page.click("#delete-session");
    const isBack = (left) => !document.querySelector("#sessions").hidden && document.querySelectorAll("#session-list a").length === left;
    await page.waitForFunction(isBack, left - 1);
  }
  await sees("#session-list", "None yet.");

  assert.deepEqual(errors, [], "the console is free of errors");

  step("the document for people, without the web");
  const reader = await browser.newContext({ viewport: { width: 1100, height: 800 } });
  const outside = [];
  await reader.route((url) => url.origin !== gander.address, (route) => outside.push(route.request().url()) && route.abort());
  const docs = await reader.newPage();
  docs.on("pageerror", (error) => errors.push(String(error)));
  docs.on("console", (message) => message.type() === "error" && errors.push(message.text()));
  await docs.goto(`${gander.address}/docs`);
  const operation = docs.locator(".opblock-post", { hasText: "/v1/sessions/{session_id}/turns" }).first();
  await operation.locator("button.opblock-summary-control").click();
  await operation.locator(".opblock-body .response", { hasText: "202" }).first().waitFor();
  await docs.screenshot({ path: path.join(pictures, "docs.png") });
  assert.deepEqual([outside, errors], [[], []], "it asks nobody else, and its console is free of errors");
  await reader.close();

  step("a page of another origin gets nothing");
  const stranger = await context.newPage();
  const { ticket } = await gander.ask("/v1/stream-tickets", {});
  const getsNothing = async (from) => {
    await stranger.goto(strangers.origin);
    const got = await stranger.evaluate((all) => window.tryAll(...all), [from.address, from.token, ticket]);
    for (const [name, result] of Object.entries(got)) assert.equal(result, "nothing", name);
    const { sessions } = await from.ask("/v1/sessions");
    assert.deepEqual(sessions, [], "nothing that a stranger's page sent was done");
  };
  await getsNothing(gander);

  step("also where no token is needed, and only the origin tells");
  const unguarded = new Gander(path.join(storage, "unguarded"), {
    GANDER_SERVER__CORS_ORIGINS: origin,
    GANDER_AUTH__REQUIRED: "false",
  });
  others.push(unguarded);
  await unguarded.start();
  await getsNothing(unguarded);
  assert.equal(await unguarded.end("SIGTERM"), 0);

  assert(!gander.log().includes("gander_ticket_"), "no ticket is in the log");
  assert.equal(await gander.end("SIGTERM"), 0);
  console.log("page: all steps passed");

  async function newSession() {
    if (await page.locator("#show-sessions").isVisible()) await page.click("#show-sessions");
    await page.selectOption("[name=mode]", "approve");
    await page.click("text=New session");
    await sees("#status", "The agent is ready.");
    turns = 0;
  }
} catch (error) {
  const shown = browser.contexts()[0]?.pages()[0];
  await shown?.screenshot({ path: path.join(pictures, "failed.png") }).catch(() => {});
  console.error(`--- gander's log\n${gander.log()}`);
  throw error;
} finally {
  await browser.close();
  for (const one of [gander, ...others]) one.process?.kill("SIGKILL");
  wire.close();
  server.close();
  strangers.server.close();
  // What a killed gander leaves behind goes with its agents, in a moment.
  await rm(storage, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
}
