// Runs a client whose way to gander is cut when the agent asks for permission: before the client hears of it, and until
// it has tried once in vain to come back.
//
//   GANDER=http://127.0.0.1:4665 node tests/clients/broken-wire.mjs PROGRAM ARGUMENT…
//
// The client finds the wire's address in GANDER. Ends with its exit status; fails when nothing was cut, or the client
// never came back.

import { spawn } from "node:child_process";
import { once } from "node:events";

import { Wire } from "./gander.mjs";

const QUESTION = "permission.requested";

class BrokenWire extends Wire {
  passOn(to, from) {
    let before = "";
    to.on("data", (data) => {
      const text = before + data.toString("latin1");
      if (!this.wasCut && text.includes(QUESTION)) {
        this.wasCut = true;
        this.cut();
      } else {
        before = text.slice(-QUESTION.length);
        from.write(data);
      }
    });
    to.on("end", () => from.end());
  }

  triedInVain() {
    this.wasMissed = true;
    this.mend();
  }
}

const [program, ...args] = process.argv.slice(2);
const wire = new BrokenWire(process.env.GANDER);
await wire.join();
const client = spawn(program, args, { stdio: "inherit", env: { ...process.env, GANDER: wire.address } });
const [status] = await once(client, "exit");
wire.close();
if (!wire.wasCut) console.error("the agent has asked nothing: nothing was cut");
else if (!wire.wasMissed) console.error("the client has not come back");
process.exitCode = wire.wasMissed ? (status ?? 1) : 1;
