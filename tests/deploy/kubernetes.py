"""What the schemas cannot know of deploy/kubernetes: whether the ports that are named are the pod's, and the pod's are
those that gander listens on. The argument is the built YAML."""

import sys
import tomllib
from pathlib import Path

import yaml

resources = {resource["kind"]: resource for resource in yaml.safe_load_all(Path(sys.argv[1]).read_text())}
server = tomllib.loads(resources["ConfigMap"]["data"]["gander.toml"])["server"]
container, = resources["StatefulSet"]["spec"]["template"]["spec"]["containers"]
ports = {port["name"]: port["containerPort"] for port in container["ports"]}


def check(holds: bool, what: str) -> None:
    if not holds:
        raise SystemExit(f"deploy/kubernetes: {what}")


for name, setting in [("http", "listen"), ("metrics", "metrics_listen")]:
    port = int(server[setting].rsplit(":", 1)[1])
    check(ports[name] == port, f"server.{setting} is on {port}, the pod's port {name} is {ports[name]}")

# A port that the pod does not have is no error there: nothing would come through.
service = {port["targetPort"] for port in resources["Service"]["spec"]["ports"]}
rules = resources["NetworkPolicy"]["spec"]["ingress"]
admitted = {port["port"] for rule in rules for port in rule["ports"]}
check(service == admitted == set(ports), f"the pod has {set(ports)}, the service {service}, the policy admits {admitted}")
check(all(rule.get("from") for rule in rules), "a port is open to everybody")
check(server["trusted_proxies"] and server["public_url"].startswith("https://"), "it does not know of its ingress")
