// A gander to try clients with, and the way to it, which can be cut.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import net from "node:net";
import path from "node:path";

/** The real gander on the real goose with the scripted model; GANDER and GOOSE name the two programs. */
export class Gander {
  /** Keeps its state in a folder of its own; `environment` is what it gets besides. */
  constructor(storage, environment = {}, listen = "127.0.0.1:0") {
    Object.assign(this, { storage, environment, listen });
  }

  async start() {
    const { GANDER, GOOSE, PATH } = process.env;
    assert(GANDER && GOOSE, "GANDER and GOOSE name the two programs");
    this.process = spawn(GANDER, ["serve", "--demo", "--listen", this.listen], {
      env: {
        PATH,
        HOME: this.storage,
        GANDER_STORAGE__DIR: path.join(this.storage, "storage"),
        GANDER_GOOSE__COMMAND: GOOSE,
        ...this.environment,
      },
      stdio: ["ignore", "pipe", "pipe"],
    });
    let log = "";
    this.process.stderr.on("data", (data) => (log += data));
    this.log = () => log;
    this.address = undefined;
    let said = "";
    for await (const data of this.process.stdout.iterator({ destroyOnReturn: false })) {
      said += data;
      this.address = /listens on (http:\/\/\S+)/.exec(said)?.[1];
      if (this.address) break;
    }
    assert(this.address, `gander did not start: ${log}`);
    this.process.stdout.resume();
    // The same port after a restart: pages know no other.
    this.listen = new URL(this.address).host;
    const isOpen = this.environment.GANDER_AUTH__REQUIRED === "false";
    this.token = isOpen ? "" : (await readFile(path.join(this.storage, "storage/token"), "utf8")).trim();
  }

  /** Sends the signal; gives the exit status. */
  async end(signal) {
    const ended = once(this.process, "exit");
    this.process.kill(signal);
    return (await ended)[0];
  }

  /** Asks it past everything that is tried: a POST when there is a body. Gives the answer's JSON. */
  async ask(where, body, method = body ? "POST" : "GET") {
    const headers = { authorization: `Bearer ${this.token}`, "content-type": "application/json", accept: "application/json" };
    const answer = await fetch(this.address + where, { method, headers, body: body && JSON.stringify(body) });
    return answer.status === 204 ? null : answer.json();
  }
}

/** The way to gander, which can be cut: then nobody gets through. */
export class Wire {
  constructor(address) {
    this.target = new URL(address);
    this.sockets = new Set();
    this.isCut = false;
  }

  async join() {
    this.server = net.createServer((from) => {
      if (this.isCut) {
        from.on("error", () => {}).destroy();
        this.triedInVain?.();
        return;
      }
      const to = net.connect(this.target.port, this.target.hostname);
      for (const [one, other] of [[from, to], [to, from]]) {
        this.sockets.add(one);
        one.on("error", () => {}).on("close", () => {
          this.sockets.delete(one);
          other.destroy();
        });
      }
      from.pipe(to);
      this.passOn(to, from);
    });
    this.server.listen(0, "127.0.0.1");
    await once(this.server, "listening");
    this.address = `http://127.0.0.1:${this.server.address().port}`;
  }

  /** Passes on what gander says. */
  passOn(to, from) {
    to.pipe(from);
  }

  cut() {
    this.isCut = true;
    for (const socket of this.sockets) socket.destroy();
  }

  mend() {
    this.isCut = false;
  }

  close() {
    this.cut();
    this.server.close();
  }
}
