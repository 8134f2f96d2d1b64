// What a page knows of a session: made from its events alone, one after the other. The same events always make the
// same conversation, so a reload, a lost connection and a restart of gander need no code of their own.

export class Conversation {
  constructor() {
    this.title = null;
    this.state = "starting";
    this.reason = null;
    this.plan = { entries: [] };
    this.turn = null; // the running one's id
    this.items = []; // in the order in which they are shown
    this.byId = new Map();
    this.changed = new Set(); // items that a page has to draw (again)
  }

  /** Takes one event in. Types that it does not know change nothing: there will be more of them. */
  apply(event) {
    const { type } = event;
    switch (type) {
      case "session.created":
      case "session.updated":
        if ("title" in event.session) this.title = event.session.title;
        break;
      case "session.state":
        this.state = event.state;
        this.reason = event.reason;
        break;
      case "turn.queued":
      case "turn.started":
        if (type === "turn.started") this.turn = event.turn_id;
        // The prompt is only in the first of them.
        if (event.turn.prompt) this.put(`prompt ${event.turn_id}`, { role: "prompt", text: promptText(event.turn.prompt) });
        break;
      case "turn.completed":
      case "turn.failed":
      case "turn.cancelled":
      case "turn.interrupted":
        this.turn = null;
        this.put(`end ${event.turn_id}`, { role: "end", how: type.slice("turn.".length), error: event.turn.error });
        break;
      case "message.delta":
        this.extend(event.message_id, "message", event.text);
        break;
      case "thought.delta":
        this.extend(event.message_id, "thought", event.text);
        break;
      case "tool_call.started":
      case "tool_call.updated":
      case "tool_call.finished":
        this.put(`tool ${event.tool_call.id}`, { role: "tool", ...event.tool_call });
        break;
      case "tool_call.output": {
        const item = this.byId.get(`tool ${event.tool_call_id}`);
        if (item) this.put(`tool ${event.tool_call_id}`, { live: (item.live ?? "") + (event.text ?? "") });
        break;
      }
      case "permission.requested":
      case "permission.resolved":
        this.put(`permission ${event.permission.id}`, { role: "permission", ...event.permission });
        break;
      case "plan.updated":
        this.plan = event.plan;
        break;
      case "notice":
        this.put(`notice ${event.id}`, { role: "notice", level: event.level, text: event.message });
        break;
    }
  }

  put(key, fields) {
    let item = this.byId.get(key);
    if (!item) {
      item = { key };
      this.byId.set(key, item);
      this.items.push(item);
    }
    Object.assign(item, fields);
    this.changed.add(item);
  }

  extend(id, role, text) {
    const key = `${role} ${id}`;
    this.put(key, { role, text: (this.byId.get(key)?.text ?? "") + text });
  }
}

/** A prompt is text, or a list of ACP content blocks. */
function promptText(prompt) {
  if (typeof prompt === "string") return prompt;
  return prompt.map((block) => block.text ?? `[${block.type}]`).join("\n");
}
