// A client of gander's HTTP interface for browsers: requests, and events that survive everything.

/** A request that gander refused, or that did not reach it (then without a code). */
export class Refused extends Error {
  constructor(message, status, code) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export class Gander {
  constructor(address, token) {
    this.address = address.replace(/\/+$/, "");
    this.token = token;
  }

  /** Sends a request; gives the answer's JSON, null when there is none. */
  async request(method, path, body, key) {
    const headers = { Authorization: `Bearer ${this.token}` };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    // With a key a request can be sent again after a lost answer without being done twice.
    if (key) headers["Idempotency-Key"] = key;
    let answer;
    try {
      answer = await fetch(this.address + path, { method, headers, body: body && JSON.stringify(body) });
    } catch {
      throw new Refused("gander cannot be reached");
    }
    if (answer.status === 204) return null;
    const json = await answer.json().catch(() => null);
    // A proxy that does not reach gander answers in its own format.
    if (json === null) throw new Refused(`gander did not answer: HTTP status ${answer.status}`, answer.status);
    // Every error is a problem document (RFC 9457).
    if (!answer.ok) throw new Refused(json.detail ?? json.title, answer.status, json.code);
    return json;
  }

  get(path) { return this.request("GET", path); }
  post(path, body = {}, key) { return this.request("POST", path, body, key); }
  delete(path) { return this.request("DELETE", path); }

  /**
   * Follows the events of a path until `close()` is called. `onEvent` gets each event once and in order. `onState`
   * gets true when the stream is open and false when it is broken. `onRefused` is told when gander says no for good.
   */
  follow(path, after, { onEvent, onState, onRefused }) {
    const stream = new Follower(this, path, after, onEvent, onState, onRefused);
    stream.open();
    return stream;
  }
}

/** How long to wait before a new try, in milliseconds. */
export const AGAIN_AFTER = 2000;

class Follower {
  constructor(gander, path, after, onEvent, onState, onRefused) {
    Object.assign(this, { gander, path, after, onEvent, onState, onRefused, closed: false });
  }

  async open() {
    try {
      // An EventSource cannot send the token; a ticket in the address stands for it. It stays good while it is used.
      this.ticket ??= (await this.gander.post("/v1/stream-tickets")).ticket;
    } catch (refused) {
      this.onState(false);
      if (refused.status === 401 || refused.status === 403) this.onRefused(refused);
      else this.again();
      return;
    }
    if (this.closed) return;
    const query = new URLSearchParams({ after: this.after, named: false, ticket: this.ticket });
    this.source = new EventSource(`${this.gander.address}${this.path}${this.path.includes("?") ? "&" : "?"}${query}`);
    this.source.onopen = () => this.onState(true);
    this.source.onmessage = (message) => {
      // Where to go on from, should the browser give this EventSource up.
      if (message.lastEventId) this.after = message.lastEventId;
      this.onEvent(JSON.parse(message.data));
    };
    this.source.onerror = () => {
      this.onState(false);
      // After a cut the browser connects again by itself, and says what it has seen last. An answer that is no stream
      // (a proxy's "bad gateway", an old ticket) ends it for good: then it is up to this page.
      if (this.source.readyState === EventSource.CLOSED) {
        this.ticket = undefined;
        this.again();
      }
    };
  }

  again() {
    if (!this.closed) this.timer = setTimeout(() => this.open(), AGAIN_AFTER);
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.source?.close();
  }
}
