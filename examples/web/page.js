// The page: signs in, shows the sessions and one of them, and answers for the person in front of it.

import { Conversation } from "./conversation.js";
import { AGAIN_AFTER, Gander } from "./gander.js";

const $ = (id) => document.getElementById(id);

let gander; // the signed-in client
let candidate; // the client that would sign in
let again; // the timer of the next try to sign in
let list; // the stream that keeps the list fresh
let open; // the session on the page: { id, conversation, stream, nodes }

// --- Signing in ---------------------------------------------------------------------------------------------------

/** The token is kept for this tab only: a reload finds it, another page does not. */
const kept = {
  load: () => JSON.parse(sessionStorage.getItem("gander") ?? "null"),
  save: (value) => sessionStorage.setItem("gander", JSON.stringify(value)),
  clear: () => sessionStorage.removeItem("gander"),
};

$("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  const { address, token } = Object.fromEntries(new FormData(event.target));
  attempt(async () => signIn({ address, token: token.trim() }));
});

async function signIn(credentials) {
  const signing = (candidate = new Gander(credentials.address, credentials.token));
  await signing.get("/v1/info");
  if (signing !== candidate) return; // Signed out meanwhile.
  gander = signing;
  kept.save(credentials);
  $("sign-in").hidden = true;
  $("sign-out").hidden = false;
  await route();
}

/** After a reload. gander may be away, and then it is waited for: only its own no is one. */
async function signInAgain(credentials) {
  $("sign-out").hidden = false;
  try {
    await signIn(credentials);
    showError(null);
  } catch (error) {
    if (error.status === 401) signOut();
    else {
      following.onState(false);
      again = setTimeout(() => signInAgain(credentials), AGAIN_AFTER);
    }
    showError(error.message);
  }
}

function signOut() {
  kept.clear();
  leave();
  clearTimeout(again);
  gander = candidate = undefined;
  document.body.classList.remove("offline");
  for (const id of ["sessions", "session", "show-sessions", "sign-out"]) $(id).hidden = true;
  $("sign-in").hidden = false;
  $("sign-in").elements.address.focus();
}

$("sign-out").addEventListener("click", signOut);

/** Does something for the person and tells them when it fails. */
async function attempt(work) {
  showError(null);
  try {
    await work();
  } catch (error) {
    if (error.status === 401) signOut();
    showError(error.message);
  }
}

function showError(text) {
  $("error").textContent = text ?? "";
  $("error").hidden = !text;
}

function tell(text) {
  if ($("status").textContent !== text) $("status").textContent = text;
}

// --- Going from list to session and back: the address says where we are, so a reload and "back" just work ----------

window.addEventListener("hashchange", () => gander && attempt(route));

async function route() {
  leave();
  const id = location.hash.slice(1);
  $("show-sessions").hidden = !id;
  $("sessions").hidden = Boolean(id);
  $("session").hidden = !id;
  if (id) showSession(id);
  else await showSessions();
}

function leave() {
  list?.close();
  open?.stream.close();
  list = open = undefined;
}

$("show-sessions").addEventListener("click", () => (location.hash = ""));

const following = {
  onState: (isOpen) => {
    document.body.classList.toggle("offline", !isOpen);
    tell(isOpen ? "Connected." : "The connection is lost. Trying again…");
  },
  onRefused: (refused) => {
    signOut();
    showError(refused.message);
  },
};

// --- The list -----------------------------------------------------------------------------------------------------

async function showSessions() {
  await drawSessions();
  let due;
  const onEvent = () => {
    clearTimeout(due);
    due = setTimeout(() => attempt(drawSessions), 200);
  };
  const onState = (isOpen) => {
    following.onState(isOpen);
    // What has changed before the stream was open, it does not tell.
    if (isOpen) onEvent();
  };
  const types = "session.created,session.updated,session.state,session.deleted";
  list = gander.follow(`/v1/events?types=${types}`, "latest", { ...following, onState, onEvent });
}

async function drawSessions() {
  const { sessions } = await gander.get("/v1/sessions?limit=50");
  $("session-list").replaceChildren(
    ...sessions.map((session) => {
      const link = make("a", { href: `#${session.id}` }, session.title ?? "New session");
      return make("li", {}, link, make("span", { className: `state ${session.state}` }, words(session.state)));
    }),
  );
  if (sessions.length === 0) $("session-list").replaceChildren(make("li", { className: "hint" }, "None yet."));
}

$("new-session").addEventListener("submit", (event) => {
  event.preventDefault();
  const { mode } = Object.fromEntries(new FormData(event.target));
  busy(event.submitter, async () => {
    const session = await gander.post("/v1/sessions", { mode });
    location.hash = session.id;
  });
});

// --- One session --------------------------------------------------------------------------------------------------

function showSession(id) {
  open = { id, conversation: new Conversation(), nodes: new Map() };
  const here = open;
  $("conversation").replaceChildren();
  drawFrame();
  // Everything from the first event on. A page for very long sessions would draw the snapshot and the last messages
  // first, and follow from the snapshot's `last_event_id`.
  open.stream = gander.follow(`/v1/sessions/${id}/events`, "0", {
    ...following,
    onEvent: (event) => {
      if (event.type === "session.deleted") return void (location.hash = "");
      // What we have is not what gander has: it tells everything again.
      if (event.type === "stream.reset") {
        here.conversation = new Conversation();
        here.nodes.clear();
        $("conversation").replaceChildren();
      }
      here.conversation.apply(event);
      schedule();
    },
  });
  $("session-title").focus();
  // A session that is not there (any more) has no stream to say so.
  attempt(() => gander.get(`/v1/sessions/${id}`));
}

let scheduled = false;

/** Many events come between two pictures; they are drawn together. */
function schedule() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    if (open) draw();
  });
}

function draw() {
  const { conversation, nodes } = open;
  const log = $("conversation");
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  for (const item of conversation.changed) {
    if (!nodes.has(item.key)) {
      nodes.set(item.key, make("article", { className: item.role }));
      log.append(nodes.get(item.key));
    }
    drawItem(nodes.get(item.key), item);
  }
  conversation.changed.clear();
  drawFrame();
  if (atEnd) log.scrollTop = log.scrollHeight;
}

/** What is around the conversation. */
function drawFrame() {
  const { state, reason, title, plan, turn } = open.conversation;
  $("session-title").textContent = title ?? "New session";
  document.title = `${title ?? "New session"} · gander`;
  $("session-state").textContent = words(state);
  $("session-state").className = `state ${state}`;
  $("session-state").title = reason ?? "";
  $("cancel").hidden = !turn;
  $("send").disabled = Boolean(turn);
  $("plan").hidden = plan.entries.length === 0;
  const done = plan.entries.filter((entry) => entry.status === "completed").length;
  Object.assign($("plan-progress"), { max: Math.max(plan.entries.length, 1), value: done });
  $("plan-title").textContent = `Plan: ${done} of ${plan.entries.length} done`;
  $("plan-entries").replaceChildren(
    ...plan.entries.map((entry) => {
      const node = make("li", { className: entry.status }, entry.content, make("span", { className: "unseen" }, ` (${words(entry.status)})`));
      node.style.marginInlineStart = `${entry.depth}em`;
      return node;
    }),
  );
  if (state === "awaiting_permission") tell(`The agent asks for permission: ${asked()}`);
  else if (turn) tell("The agent works.");
  else if (state === "idle") tell("The agent is ready.");
}

/** What the oldest open question is about. */
function asked() {
  const question = open.conversation.items.find((item) => item.role === "permission" && !item.outcome);
  return question ? (question.tool_call.input?.command ?? question.tool_call.title ?? question.tool_call.tool) : "";
}

const drawers = {
  prompt: (node, item) => node.replaceChildren(make("h3", { className: "unseen" }, "You"), make("pre", {}, item.text)),
  message: (node, item) => node.replaceChildren(make("h3", { className: "unseen" }, "Agent"), make("pre", {}, item.text)),
  thought: (node, item) => fold(node, "Thoughts", item.text),
  notice: (node, item) => {
    node.classList.add(item.level);
    node.textContent = item.text;
  },
  end: (node, item) => (node.textContent = item.error ? `${words(item.how)}: ${item.error.message}` : words(item.how)),
  tool: (node, item) => {
    fold(node, `${item.title ?? item.tool ?? "Tool"} · ${words(item.status ?? "pending")}`, toolText(item));
    node.className = `tool ${item.status}`;
  },
  permission: drawPermission,
};

function drawItem(node, item) {
  drawers[item.role](node, item);
}

/** Keeps the fold as the person left it: only what has changed is replaced. */
function fold(node, title, text) {
  if (!node.firstChild) node.append(make("details", {}, make("summary", {}), make("pre", {})));
  node.querySelector("summary").textContent = title;
  node.querySelector("pre").textContent = text;
}

function toolText({ input, live, content }) {
  const parts = [];
  if (input) parts.push(input.command ?? JSON.stringify(input, null, 2));
  for (const part of content ?? []) {
    if (part.type === "diff") parts.push(`${part.path}\n- ${part.old_text ?? ""}\n+ ${part.new_text}`);
    else if (part.type === "terminal") parts.push(part.output ?? "");
    else parts.push(part.content?.text ?? `[${part.content?.type}]`);
  }
  if (!content?.length && live) parts.push(live);
  return parts.join("\n\n");
}

function drawPermission(node, permission) {
  const { tool_call: call, options, outcome } = permission;
  const title = make("h3", { id: `title-${permission.id}` }, outcome ? "Permission" : "May the agent do this?");
  node.setAttribute("role", "group");
  node.setAttribute("aria-labelledby", title.id);
  node.classList.toggle("open", !outcome);
  node.tabIndex = -1;
  const what = make("pre", {}, call.input?.command ?? `${call.title ?? call.tool}\n${JSON.stringify(call.input, null, 2)}`);
  const where = make("p", { className: "hint" }, `${call.extension ?? "tool"} in ${call.cwd}`);
  if (outcome) {
    node.replaceChildren(title, what, make("p", {}, verdict(outcome)));
    return;
  }
  const button = (option) => {
    const pressed = make("button", { type: "button", className: option.kind }, option.name);
    const path = `/v1/sessions/${permission.session_id}/permissions/${permission.id}`;
    pressed.addEventListener("click", () => {
      node.focus(); // The button goes; who has pressed it stays here.
      busy(pressed, () => gander.post(path, { option_id: option.id }));
    });
    return pressed;
  };
  // This once first: what holds for longer is not to be pressed by mistake.
  const once = options.filter((option) => option.kind.endsWith("_once"));
  const always = options.filter((option) => !once.includes(option));
  const rows = [once, always].filter((row) => row.length > 0);
  node.replaceChildren(title, what, where, ...rows.map((row) => make("div", { className: "buttons" }, ...row.map(button))));
}

function verdict({ decision, scope, by, rule, reason }) {
  const what = decision === "allow" ? "Allowed" : "Rejected";
  if (rule?.startsWith("grant:")) return `${what}, as remembered`;
  const forHowLong = scope === "session" ? " for this session" : "";
  return `${what}${forHowLong} by ${by.replace("caller:", "")}${reason ? `: ${reason}` : ""}`;
}

// --- What the person does -----------------------------------------------------------------------------------------

let unsent; // the prompt that may or may not have arrived: { text, key }

$("prompt").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = $("prompt-text").value;
  if (unsent?.text !== text) unsent = { text, key: crypto.randomUUID?.() };
  busy($("send"), async () => {
    await gander.post(`/v1/sessions/${open.id}/turns`, { prompt: text }, unsent.key);
    unsent = undefined;
    $("prompt-text").value = "";
  });
});

$("prompt-text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    if (!$("send").disabled) $("prompt").requestSubmit();
  }
});

$("cancel").addEventListener("click", () => {
  $("prompt-text").focus();
  busy($("cancel"), () => gander.post(`/v1/sessions/${open.id}/turns/${open.conversation.turn}/cancel`));
});

$("delete-session").addEventListener("click", () => {
  if (confirm("Delete this session with all its data?")) {
    busy($("delete-session"), () => gander.delete(`/v1/sessions/${open.id}`));
  }
});

/** A button cannot be pressed twice while it works. */
async function busy(button, work) {
  button.disabled = true;
  await attempt(work);
  button.disabled = button === $("send") && Boolean(open?.conversation.turn);
}

// --- Small things -------------------------------------------------------------------------------------------------

/** Text goes in as text, never as HTML: it comes from a model. */
function make(tag, properties, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

function words(name) {
  return name.replaceAll("_", " ");
}

// --- The start ----------------------------------------------------------------------------------------------------

const credentials = kept.load();
if (credentials) signInAgain(credentials);
else signOut();
