// Asks gander's agent for something and shows what it does, on types made from gander's OpenAPI document.
//
//   npm install && GANDER=http://127.0.0.1:4665 TOKEN=$(gander token) npm start -- "Have a look around."
//
// When the agent asks for permission, so does this program; ANSWER=allow or ANSWER=reject answers every time. A lost
// connection is taken up again behind the last event that was seen: nothing is missed, and nothing comes twice.

import { randomUUID } from "node:crypto";
import { stdin, stdout } from "node:process";
import { createInterface } from "node:readline/promises";
import { setTimeout as sleep } from "node:timers/promises";

import type { components } from "./gander.d.ts";

type Schemas = components["schemas"];
type Event = Schemas["Event"];
type Permission = Schemas["Permission"];
type Problem = Schemas["Problem"];
type Session = Schemas["Snapshot"];

const AGAIN_AFTER_MS = 1000;

class Refused extends Error {
  constructor(readonly problem: Problem) {
    super(problem.detail);
  }
}

class Gander {
  constructor(private address: string, private token: string) {}

  /** Calls gander; tries again when the answer is lost. The key keeps a repeated call from being done twice. */
  async call<Answer>(method: string, path: string, body?: object): Promise<Answer> {
    const headers: Record<string, string> = { authorization: `Bearer ${this.token}` };
    if (body) headers["content-type"] = "application/json";
    if (method === "POST") headers["idempotency-key"] = randomUUID();
    for (let attempt = 1; ; attempt++) {
      let answer: Response;
      try {
        answer = await fetch(this.address + path, { method, headers, body: body && JSON.stringify(body) });
      } catch (error) {
        if (attempt === 5) throw error;
        await sleep(AGAIN_AFTER_MS);
        continue;
      }
      if (!answer.ok) throw new Refused((await answer.json()) as Problem);
      return (answer.status === 204 ? undefined : await answer.json()) as Answer;
    }
  }

  /** The events of a session behind `after`, for ever, as lines of JSON. */
  async *events(session: string, after = 0): AsyncGenerator<Event> {
    const headers = { authorization: `Bearer ${this.token}`, accept: "application/x-ndjson" };
    for (;;) {
      try {
        const answer = await fetch(`${this.address}/v1/sessions/${session}/events?after=${after}`, { headers });
        if (!answer.ok) throw new Refused((await answer.json()) as Problem);
        for await (const line of lines(answer.body!)) {
          const event = JSON.parse(line) as Event;
          if ("id" in event) after = event.id;
          yield event;
        }
      } catch (error) {
        if (error instanceof Refused) throw error;
      }
      await sleep(AGAIN_AFTER_MS);
    }
  }
}

async function* lines(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const bytes of body) {
    const parts = (rest + decoder.decode(bytes, { stream: true })).split("\n");
    rest = parts.pop()!;
    yield* parts;
  }
}

/** The id of one of the ways to answer. */
async function decide(permission: Permission): Promise<string> {
  if (process.env.ANSWER) return `${process.env.ANSWER}_once`;
  console.log(`The agent asks: ${permission.tool_call.title} ${JSON.stringify(permission.tool_call.input)}`);
  for (const option of permission.options) console.log(`  ${option.id}: ${option.name}`);
  const terminal = createInterface({ input: stdin, output: stdout });
  let answer: string;
  do answer = (await terminal.question("> ")).trim();
  while (!permission.options.some((option) => option.id === answer));
  terminal.close();
  return answer;
}

/** Shows an event; true when it was the turn's last. */
async function show(gander: Gander, event: Event): Promise<boolean> {
  switch (event.type) {
    case "message.delta":
    case "tool_call.output":
      stdout.write(event.text ?? "");
      break;
    case "tool_call.started":
      console.log(`\n[${event.tool_call.title}]`);
      break;
    case "plan.updated":
      console.log();
      for (const { content, status, depth } of event.plan.entries) {
        const mark = status === "completed" ? "x" : status === "in_progress" ? "-" : " ";
        console.log(`  [${mark}] ${"  ".repeat(depth)}${content}`);
      }
      break;
    case "permission.requested": {
      const { id, session_id, state } = event.permission;
      // What a rule has decided is told too, but asks nobody.
      if (state !== "pending") break;
      const answer = { option_id: await decide(event.permission) };
      try {
        await gander.call("POST", `/v1/sessions/${session_id}/permissions/${id}`, answer);
      } catch (error) {
        // Somebody else was faster, or its time ran out: the event behind this one says which.
        if (!(error instanceof Refused)) throw error;
        console.log(`(${error.message})`);
      }
      break;
    }
    case "turn.completed":
      console.log();
      return true;
    case "turn.failed":
    case "turn.cancelled":
    case "turn.interrupted":
      console.log(`\n${event.turn.state}: ${event.turn.error?.message ?? event.turn.stop_reason}`);
      return true;
  }
  return false;
}

const [prompt] = process.argv.slice(2);
const { GANDER, TOKEN } = process.env;
if (!prompt || !GANDER || !TOKEN) throw new Error("needs a prompt, GANDER and TOKEN");
const gander = new Gander(GANDER, TOKEN);
const session = await gander.call<Session>("POST", "/v1/sessions", { mode: "approve" });
try {
  await gander.call("POST", `/v1/sessions/${session.id}/turns`, { prompt });
  for await (const event of gander.events(session.id)) {
    if (await show(gander, event)) break;
  }
} finally {
  await gander.call("DELETE", `/v1/sessions/${session.id}`);
}
