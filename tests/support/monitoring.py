"""Prometheus and Alertmanager, the real ones, with the project's own rules and routes; and who is told.

What takes minutes in production takes a moment here: how often is looked, how long something has to be so, and of how
long a time rates are. Nothing else of the files is another.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from customer_activity.settings import PROJECT
from support.addresses import free
from support.waiting import until

FOLDER = PROJECT / "infra" / "monitoring"
DASHBOARD = FOLDER / "grafana" / "dashboards" / "customer-activity.json"
PROGRAMS = ("prometheus", "promtool", "prometheus-alertmanager", "amtool")  # as Debian calls them
RANGE = "8s"
OF_A_TIME = re.compile(r"\[\d+[mhd]\]")
SELECTOR = re.compile(r"\b(?:activity_\w+|up)(?:\{[^}]*\})?")
DRIVER = "customer-activity"  # the job


def missing() -> list[str]:
    """Return what is not on this machine."""
    return [program for program in PROGRAMS if shutil.which(program) is None]


def read(name: str) -> dict[str, Any]:
    """Return one of the project's files."""
    content: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    return content


def rules() -> dict[str, dict[str, Any]]:
    """Return the rules by their alert."""
    return {rule["alert"]: rule for group in read("rules.yml")["groups"] for rule in group["rules"]}


def panels() -> dict[str, list[str]]:
    """Return the queries of each panel of the dashboard, of all pipelines, by its title."""
    found = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return {
        panel["title"]: [_of_all(target["expr"]) for target in panel["targets"]]
        for panel in found
        if "targets" in panel
    }


def selectors(expression: str) -> list[str]:
    """Return what a query selects of our metrics."""
    return SELECTOR.findall(expression)


def _of_all(expression: str) -> str:
    return OF_A_TIME.sub(f"[{RANGE}]", expression.replace("$pipeline", ".*").replace("[$__rate_interval]", "[1m]"))


@dataclass
class Monitoring:
    """The running programs, and what people were told.

    Attributes:
        prometheus: where it answers.
        told: messages that came to each receiver, in their order.
    """

    prometheus: str
    told: dict[str, list[str]] = field(default_factory=dict)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return what a query gives now."""
        with urlopen(f"{self.prometheus}/api/v1/query?{urlencode({'query': expression})}") as response:  # noqa: S310
            found: list[dict[str, Any]] = json.load(response)["data"]["result"]
        return found

    def has_data(self, expression: str) -> bool:
        """Whether a query gives a figure."""
        return any(sample["value"][1] != "NaN" for sample in self.query(expression))

    def is_told(self, receiver: str, alert: str, status: str) -> bool:
        """Whether somebody was told last that an alert fires (`FIRING`), or that it is over (`RESOLVED`)."""
        of_alert = [message for message in self.told.get(receiver, []) if alert in message]
        return bool(of_alert) and status in of_alert[-1]


@contextmanager
def running(folder: Path, targets: Path) -> Iterator[Monitoring]:
    """Have Prometheus scrape the driver that a file tells, and Alertmanager tell people of its alerts."""
    with ExitStack() as stack:
        prometheus, alertmanager = free(), free()
        monitoring = Monitoring(f"http://{prometheus}")
        webhook = stack.enter_context(_chat(monitoring.told))
        (folder / "rules.yml").write_text(yaml.safe_dump(_quick_rules()), encoding="utf-8")
        (folder / "prometheus.yml").write_text(yaml.safe_dump(_scraping(targets, alertmanager)), encoding="utf-8")
        (folder / "alertmanager.yml").write_text(yaml.safe_dump(_routing(folder, webhook)), encoding="utf-8")
        _start(stack, folder, "prometheus-alertmanager", alertmanager, "alertmanager.yml", "--cluster.listen-address=")
        _start(stack, folder, "prometheus", prometheus, "prometheus.yml")
        for server in (prometheus, alertmanager):
            until(partial(_answers, f"http://{server}/-/ready"))
        yield monitoring


def _quick_rules() -> dict[str, Any]:
    found = read("rules.yml")
    for group in found["groups"]:
        for rule in group["rules"]:
            rule["expr"] = OF_A_TIME.sub(f"[{RANGE}]", rule["expr"])
            rule["for"] = "0s"
    return found


def _scraping(targets: Path, alertmanager: str) -> dict[str, Any]:
    found = read("prometheus.yml")
    found["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    found["alerting"]["alertmanagers"][0]["static_configs"] = [{"targets": [alertmanager]}]
    (driver,) = (each for each in found["scrape_configs"] if each["job_name"] == DRIVER)
    del driver["static_configs"]
    driver["file_sd_configs"] = [{"files": [str(targets)], "refresh_interval": "1s"}]
    found["scrape_configs"] = [driver]
    return found


def _routing(folder: Path, webhook: str) -> dict[str, Any]:
    found = read("alertmanager.yml")
    found["route"] |= {"group_wait": "0s", "group_interval": "1s"}
    for receiver in found["receivers"]:
        for chat in receiver["slack_configs"]:
            file = folder / Path(chat["api_url_file"]).name
            file.write_text(f"{webhook}/{receiver['name']}", encoding="utf-8")
            chat["api_url_file"] = str(file)
    return found


@contextmanager
def _chat(told: dict[str, list[str]]) -> Iterator[str]:
    """Stand in for the chat service: keep what is posted, by the end of the address; yield its address."""

    class Chat(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            told.setdefault(self.path.removeprefix("/"), []).append(body)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Chat) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def _start(stack: ExitStack, folder: Path, program: str, address: str, config: str, *more: str) -> None:
    log = stack.enter_context((folder / f"{program}.log").open("w"))
    storage = "--storage.tsdb.path=data" if program == "prometheus" else "--storage.path=told"
    line = [program, f"--config.file={config}", f"--web.listen-address={address}", storage, *more]
    process = stack.enter_context(subprocess.Popen(line, cwd=folder, stdout=log, stderr=log))
    stack.callback(process.terminate)


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=2):  # noqa: S310 - http, to this machine
            return True
    except OSError:
        return False
