#!/usr/bin/env python3
"""What others' tools make of remote-gpud --http: promtool and a real Prometheus, schemathesis, and Chromium.

usage: tools_test.py BUILD [TEST…]

Long: the tools are installed if they are missing (apt-get as root, pip), and where that cannot be the test is skipped. Screenshots stay in
BUILD/tests/http/ to be looked at.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import http_test  # noqa: E402
from http_test import BUILD, MIB, Case, wait_until  # noqa: E402

PACKAGING = os.path.join(http_test.HERE, "..", "..", "..", "packaging")
SHOTS = os.path.join(BUILD, "tests", "http")


def need(program, package):
    """The path of a program, which is installed if it can be."""
    if not shutil.which(program) and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", package], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, env=dict(os.environ, DEBIAN_FRONTEND="noninteractive"))
    found = shutil.which(program)
    if not found:
        raise unittest.SkipTest("%s is not here and cannot be installed: apt-get install %s" % (program, package))
    return found


class Prometheus(Case):
    def promtool(self, *words, data=None):
        done = subprocess.run([need("promtool", "prometheus"), *words], input=data, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_promtool_is_content(self):
        server = self.server()
        self.promtool("check", "rules", os.path.join(PACKAGING, "prometheus-rules.yml"))
        ours = [line for line in server.get("/metrics")[2].splitlines(True) if "DCGM_" not in line.split("{")[0]]
        self.promtool("check", "metrics", data="".join(ours))  # dcgm-exporter's own names are not to its taste

    def test_a_real_one_scrapes(self):
        need("promtool", "prometheus")
        server = self.server()
        (port,) = [self.free_port()]
        with tempfile.TemporaryDirectory(prefix="remote-gpu-prometheus-") as folder:
            config = os.path.join(folder, "prometheus.yml")
            with open(config, "w") as file:
                json.dump({"global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                           "rule_files": [os.path.abspath(os.path.join(PACKAGING, "prometheus-rules.yml"))],
                           "scrape_configs": [{"job_name": "remote-gpu",
                                               "static_configs": [{"targets": ["localhost:%d" % server.port]}]}]}, file)
            with open(os.path.join(folder, "log"), "w") as log:
                process = subprocess.Popen([need("prometheus", "prometheus"), "--config.file", config, "--storage.tsdb.path",
                                            os.path.join(folder, "data"), "--web.listen-address", "127.0.0.1:%d" % port],
                                           stdout=log, stderr=log)
            try:
                wait_until(lambda: self.query(port, 'up{job="remote-gpu"}') == [1], "it is scraped")
                program = self.program(server, 64 * MIB, "-n", "1")
                wait_until(lambda: self.query(port, "sum(rgpu_sessions)") == [1], "the session is seen")
                wait_until(lambda: max(self.query(port, "DCGM_FI_DEV_FB_USED") or [0]) >= 64, "its memory is seen")
                self.end(program)
                wait_until(lambda: self.query(port, "sum(rgpu_sessions)") == [0], "its end is seen")
                rules = self.ask(port, "rules")["groups"][0]["rules"]
                self.assertEqual({rule["health"] for rule in rules} - {"unknown"}, {"ok"})
                with open(os.path.join(PACKAGING, "grafana-dashboard.json")) as file:
                    for panel in json.load(file)["panels"]:
                        for target in panel["targets"]:
                            self.query(port, target["expr"].replace("$instance", ".*").replace("$__rate_interval", "1m"))
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(60)

    @staticmethod
    def free_port():
        with http_test.socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            return one.getsockname()[1]

    @staticmethod
    def ask(port, what, **values):
        url = "http://127.0.0.1:%d/api/v1/%s?%s" % (port, what, urllib.parse.urlencode(values))
        with urllib.request.urlopen(url, timeout=60) as answer:
            return json.load(answer)["data"]

    def query(self, port, expression):
        """The numbers that an expression has now; none while Prometheus is not there yet."""
        try:
            return [float(one["value"][1]) for one in self.ask(port, "query", query=expression)["result"]]
        except urllib.error.HTTPError as error:
            if error.code == 503:  # it is about to be ready
                return []
            raise AssertionError("%s: %s" % (expression, error.read()))
        except OSError:
            return []


class Schemathesis(Case):
    def test_the_api_is_as_described(self):
        environment = os.path.join(SHOTS, "venv")
        tool = os.path.join(environment, "bin", "schemathesis")
        if not os.path.exists(tool):
            made = subprocess.run([sys.executable, "-m", "venv", environment]).returncode == 0 and subprocess.run(
                [os.path.join(environment, "bin", "pip"), "install", "-q", "schemathesis==3.39.16", "hypothesis==6.122.3"]).returncode == 0
            if not made:
                raise unittest.SkipTest("schemathesis is not here and cannot be installed: pip install schemathesis")
        with tempfile.TemporaryDirectory(prefix="remote-gpu-state-") as state:
            server = self.server("--http", "127.0.0.1:0", "--state-dir", state)
            program = self.program(server, MIB, "--project", "<p>")
            for who, headers in (("nobody", ()), ("an operator", self.log_in(server, state))):
                # an operator's cookie is of no scheme that could be left out: it is sent with everything
                checks = ["all"] if not headers else ["not_a_server_error", "status_code_conformance", "content_type_conformance",
                                                      "response_schema_conformance"]
                done = subprocess.run([tool, "run", *[word for check in checks for word in ("--checks", check)],
                                       "--hypothesis-max-examples", "50", *headers,
                                       "http://127.0.0.1:%d/api/v1/openapi.json" % server.port],
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=SHOTS)
                self.assertEqual(done.returncode, 0, who + "\n" + done.stdout)
            program.kill()  # the operator may have ended it

    @staticmethod
    def log_in(server, state):
        """What a browser would send, as options of schemathesis."""
        link = subprocess.run([http_test.DAEMON, "page", "--state-dir", state], stdout=subprocess.PIPE, text=True, check=True).stdout
        request = urllib.request.Request("http://127.0.0.1:%d/api/v1/login" % server.port, headers={"X-Remote-Gpu": "1"},
                                         data=json.dumps({"token": link.strip()[-64:]}).encode())
        with urllib.request.urlopen(request, timeout=60) as answer:
            return ("-H", "Cookie: " + answer.headers["Set-Cookie"].split(";")[0], "-H", "X-Remote-Gpu: " + json.load(answer)["guard"])


class Page(Case):
    def look(self, server, name, size="1100,900", *options, link=None):
        """What the page is once its script has run, as text; and a screenshot. `link`: makes what is opened, each time."""
        common = [need("chromium", "chromium"), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                  "--virtual-time-budget=6000", "--window-size=" + size, "--user-data-dir=" + self.profile, *options]
        address = link or (lambda: "http://127.0.0.1:%d/" % server.port)
        shot = os.path.join(SHOTS, name + ".png")
        subprocess.run([*common, "--screenshot=" + shot, address()], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)
        self.assertGreater(os.path.getsize(shot), 10000)
        return subprocess.run([*common, "--dump-dom", address()], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              timeout=120).stdout

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="remote-gpu-chromium-")
        self.addCleanup(folder.cleanup)
        self.profile = folder.name

    def test_empty_busy_and_dead(self):
        server = self.server()
        empty = self.look(server, "empty")
        self.assertIn("Ready for new sessions", empty)
        self.assertIn("0 of 64", empty)
        program = self.program(server, 64 * MIB, "-m", "1G", "--project", "<img src=x onerror=document.title='owned'>")
        busy = self.look(server, "busy")
        self.assertIn("1 of 64", busy)
        self.assertIn("&lt;img src=x onerror=", busy)
        self.assertNotIn("<img", busy)
        self.assertNotIn("<title>owned", busy)
        self.look(server, "busy-dark", "1100,900", "--blink-settings=preferredColorScheme=0")
        self.look(server, "busy-phone", "400,1400")
        server.process.send_signal(signal.SIGSTOP)
        try:
            self.assertIn("No answer from the server", self.look(server, "dead"))
        finally:
            server.process.send_signal(signal.SIGCONT)
        self.end(program)

    def test_an_operator(self):
        """By the link of a command: buttons that everybody else has not, with words for those who do not see them."""
        with tempfile.TemporaryDirectory(prefix="remote-gpu-state-") as state:
            server = self.server("--http", "127.0.0.1:0", "--state-dir", state)
            program = self.program(server, 64 * MIB, "-m", "1G", "--project", "vision")
            self.assertNotIn("End session", self.look(server, "nobody"))
            seen = self.look(server, "operator", link=lambda: subprocess.run(
                [http_test.DAEMON, "page", "--state-dir", state], stdout=subprocess.PIPE, text=True, check=True).stdout.strip())
            for text in ('aria-label="Suspend session 1"', 'aria-label="End session 1"', ">Drain</button>", "operator", "Log out"):
                self.assertIn(text, seen)
            self.end(program)


if __name__ == "__main__":
    os.makedirs(SHOTS, exist_ok=True)
    http_test.stop_with_servers()
    unittest.main(verbosity=2)
