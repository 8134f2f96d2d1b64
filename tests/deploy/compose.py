"""What the schema of compose files cannot know of deploy/compose.yaml: whether what it names is there, and whether the
container is as closed as the file says."""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]

file = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())
(name, service), = file["services"].items()


def seconds(text: str) -> int:
    return int(re.fullmatch(r"(\d+)s", text)[1])


def check(holds: bool, what: str) -> None:
    if not holds:
        raise SystemExit(f"deploy/compose.yaml, {name}: {what}")


context = ROOT / "deploy" / service["build"]["context"]
check((context / "Dockerfile").is_file(), "there is no Dockerfile in its build context")

for wanted, declared in [
    ([secret["source"] for secret in service["secrets"]], file["secrets"]),
    ([volume.split(":")[0] for volume in service["volumes"] if not volume.startswith((".", "/"))], file["volumes"]),
]:
    check(set(wanted) == set(declared), f"{wanted} are used, {list(declared)} are declared")
tokens = service["environment"]["GANDER_AUTH__TOKENS_FILE"]
targets = [f"/run/secrets/{secret['target']}" for secret in service["secrets"]]
check(tokens in targets, f"the tokens file {tokens} is none of {targets}")

# The state is on a volume, so that it outlives the container; it is where the image keeps it.
volumes = re.findall(r"^VOLUME (\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
check([volume.split(":")[1] for volume in service["volumes"]] == volumes, f"the image's volumes are {volumes}")

check(all(port.startswith("127.0.0.1:") for port in service["ports"]), "it is published on more than this machine")
check(service["read_only"] is True and service["cap_drop"] == ["ALL"], "it is not closed")
check("no-new-privileges:true" in service["security_opt"], "its programs may gain privileges")

# Turns that go on for the whole grace, and then the agents' ends, must fit.
grace = tomllib.loads((ROOT / "gander.default.toml").read_text())["server"]["shutdown_grace"]
check(seconds(service["stop_grace_period"]) >= seconds(grace) + 5, f"it is killed {grace} after it was told to stop")
