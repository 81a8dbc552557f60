#!/usr/bin/env python3
"""remote-gpud --http beyond this machine: TLS, who sees and does what, links to the page, and what others' pages cannot do.

usage: tls_test.py BUILD [TEST…]
"""

import http.client
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import http_test  # noqa: E402
from http_test import COMMAND, DAEMON, ENVIRONMENT, MIB, PATIENCE, Case, Server, wait_until  # noqa: E402

GUARD = "X-Remote-Gpu"
TOKEN = "0123456789abcdef0123456789abcdef"


class World:
    """A server with an authority of its own, and people who have joined it."""

    def __init__(self, case, *arguments, http="0.0.0.0:0", people=("alice", "bob", "carol")):
        self.folder = tempfile.mkdtemp(prefix="remote-gpu-tls-")
        case.addCleanup(lambda: http_test.shutil.rmtree(self.folder))
        self.state = os.path.join(self.folder, "state")
        self.server = Server("--http", http, "--state-dir", self.state, "--pool-operators", "carol", *arguments)
        case.addCleanup(self.server.close)
        for name in people:
            token = self.run(DAEMON, "token", "--user", name, "--state-dir", self.state, "--server", self.server.address).strip()
            self.run(COMMAND, "join", "--credentials", self.credentials(name), token)

    def credentials(self, name):
        return os.path.join(self.folder, name)

    def certificate(self, name):
        """The files that join has kept."""
        folder = os.path.join(self.credentials(name), "servers", self.server.address)
        return os.path.join(folder, "tls.crt"), os.path.join(folder, "tls.key")

    @staticmethod
    def run(*words):
        done = subprocess.run(words, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=PATIENCE)
        if done.returncode != 0:
            raise AssertionError("%s: %d\n%s%s" % (words, done.returncode, done.stdout, done.stderr))
        return done.stdout

    def context(self, name=None):
        context = ssl.create_default_context(cafile=os.path.join(self.state, "ca.crt"))
        if name:
            context.load_cert_chain(*self.certificate(name))
        return context

    def ask(self, path, name=None, method="GET", body=None, context=None, **headers):
        """Status, headers and text."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.server.port, timeout=PATIENCE, context=context or self.context(name))
        try:
            connection.request(method, path, body=body, headers={key.replace("_", "-"): value for key, value in headers.items()})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()

    def get(self, path, name=None, **headers):
        status, _, text = self.ask("/api/v1/" + path, name, **headers)
        return status, json.loads(text)

    def post(self, path, name=None, body=None, **headers):
        status, got, text = self.ask("/api/v1/" + path, name, "POST", json.dumps(body) if body is not None else None,
                                     **{GUARD: "1", **headers})
        return status, got, json.loads(text)

    def login(self, link):
        """What a browser then sends with each request, and with what changes something."""
        secret = re.search(r"#login=([0-9a-f]{64})$", link.strip())[1]
        status, headers, told = self.post("login", body={"token": secret})
        if status != 200:
            raise AssertionError(told)
        cookie = headers["Set-Cookie"]
        for word in ("__Host-rgpu=", "; Path=/", "; HttpOnly", "; SameSite=Strict", "; Secure"):
            if word not in cookie:
                raise AssertionError(cookie)
        return {"Cookie": cookie.split(";")[0]}, {"Cookie": cookie.split(";")[0], GUARD: told["guard"]}


class Tls(Case):
    def begin(self, world, name):
        """A session of that person's."""
        server = world.server
        process = subprocess.Popen([COMMAND, "run", "--credentials", world.credentials(name), "-s", server.address, "-n", "1", "--",
                                    sys.executable, "-c", http_test.PROGRAM, str(MIB)],
                                   env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for what in (process.stdout.close, process.stderr.close, process.wait, process.kill):
            self.addCleanup(what)
        self.assertEqual(process.stdout.readline().strip(), "begun")
        return process

    def test_who_is_not_known(self):
        world = World(self, people=())
        self.assertEqual(world.ask("/healthz")[::2], (200, "ok\n"))
        self.assertEqual(world.ask("/readyz")[::2], (200, "ready\n"))
        status, headers, text = world.ask("/")
        self.assertEqual((status, headers["X-Frame-Options"]), (200, "DENY"))
        self.assertIn("frame-ancestors 'none'", headers["Content-Security-Policy"])
        for path in ("/metrics", "/api/v1/server", "/api/v1/gpus", "/api/v1/sessions", "/api/v1/reader"):
            status, headers, text = world.ask(path)
            self.assertEqual((status, headers["WWW-Authenticate"]), (401, 'Bearer realm="remote-gpu"'), path)
            self.assertIn("who are you?", text)
        for path in ("server/drain", "sessions/1/end"):
            self.assertEqual(world.post(path)[0], 401)
        # by TLS 1.3, and a name of the certificate
        old = world.context()
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with self.assertRaises((ssl.SSLError, OSError)):
            world.ask("/healthz", context=old)
        with self.assertRaises((http.client.BadStatusLine, OSError)):
            world.server.get("/healthz")
        self.assertEqual(world.ask("/healthz", Host=socket.gethostname())[0], 200)
        self.assertEqual(world.ask("/healthz", Host="192.0.2.7:9401")[0], 200)
        for host in ("evil.example", "evil.example:9401", "127.0.0.1.evil.example", "[::1", "a b"):
            self.assertEqual(world.ask("/healthz", Host=host)[0], 421, host)

    def test_who_sees_whose_sessions(self):
        world = World(self)
        program = self.begin(world, "alice")
        (own,) = world.get("sessions", "alice")[1]["sessions"]
        self.assertEqual((own["identity"], own["own"], own["may_act"]), ("alice", True, True))
        self.assertRegex(own["address"], r"^(tcp://)?127\.0\.0\.1:\d+$")
        self.assertGreater(own["round_trip_seconds"], 0)
        self.assertLess(own["round_trip_seconds"], 10)
        self.assertEqual(world.get("sessions", "bob"), (200, {"sessions": []}))
        (seen,) = world.get("sessions", "carol")[1]["sessions"]
        self.assertEqual((seen["own"], seen["may_act"]), (False, True))
        self.assertEqual([world.get("reader", name)[1]["sees"] for name in ("alice", "carol")], ["own", "operator"])
        for name in ("bob", "carol"):
            self.assertEqual(world.get("server", name)[1]["sessions"], 1)
            self.assertEqual([gpu["sessions"] for gpu in world.get("gpus", name)[1]["gpus"]], [1, 0])
        self.assertEqual(world.ask("/metrics", "bob")[0], 200)
        self.assertNotIn("alice", world.ask("/metrics", "bob")[2])
        # others' sessions are as if they were not there
        for path in ("suspend", "resume", "end"):
            self.assertEqual(world.post("sessions/%d/%s" % (own["id"], path), "bob")[::2],
                             (404, {"error": "you have no such session here"}))
        self.assertEqual(world.post("server/drain", "alice")[0], 403)
        world.run(DAEMON, "revoke", "bob", "--state-dir", world.state)
        wait_until(lambda: world.get("reader", "bob")[0] == 401, "a user who was revoked sees nothing")
        self.assertEqual(world.post("sessions/%d/suspend" % own["id"], "alice", {"hold": True})[0], 200)
        self.assertEqual(world.get("sessions", "alice")[1]["sessions"][0]["state"], "suspended")
        self.assertEqual(world.post("sessions/%d/resume" % own["id"], "carol")[0], 200)
        self.assertEqual(world.post("sessions/%d/end" % own["id"], "alice")[0], 200)
        wait_until(lambda: world.get("sessions", "carol")[1]["sessions"] == [], "it has ended")
        self.assertNotEqual(program.communicate("\n", timeout=PATIENCE)[0], None)
        for line in (r'event=suspend user="alice" serial=\w+ from="127\.0\.0\.1:\d+" session=1 encrypted=yes why="until it is resumed"',
                     r'event=resume user="carol" .* session=1 ', r'event=end user="alice" .* session=1 '):
            self.assertRegex(world.server.log(), line)

    def test_a_foreign_certificate(self):
        world, other = World(self, people=("alice",)), World(self, people=("alice",))
        context = world.context()
        context.load_cert_chain(*other.certificate("alice"))
        self.assertEqual(world.get("reader", "alice")[0], 200)
        status, _, text = world.ask("/api/v1/reader", context=context)
        self.assertEqual(status, 401)
        self.assertIn("your certificate", text)

    def test_a_scraper(self):
        with tempfile.NamedTemporaryFile("w", prefix="remote-gpu-token-") as file:
            file.write(TOKEN + "\n")
            file.flush()
            world = World(self, "--http-token-file", file.name, people=())
            self.assertEqual(world.ask("/metrics", Authorization="Bearer " + TOKEN)[0], 200)
            self.assertEqual(world.ask("/metrics", Authorization="Bearer " + TOKEN[:-1])[0], 401)
            self.assertEqual(world.ask("/metrics", Authorization="Bearer " + TOKEN + "0")[0], 401)
            self.assertEqual(world.ask("/metrics", Authorization="Bearer " + "a" * 3000)[0], 401)
            for path in ("sessions", "gpus", "reader", "server"):
                self.assertEqual(world.get(path, Authorization="Bearer " + TOKEN)[0], 401, path)
            self.assertEqual(world.post("server/drain", Authorization="Bearer " + TOKEN)[0], 403)

    def test_links(self):
        world = World(self, people=("alice",))
        link = world.run(DAEMON, "page", "--state-dir", world.state)
        self.assertRegex(link, r"^https://[^/]+:%d/#login=[0-9a-f]{64}\n$" % world.server.port)
        looks, acts = world.login(link)
        with self.assertRaisesRegex(AssertionError, "this link has been used"):
            world.login(link)
        status, reader = world.get("reader", **looks)
        self.assertEqual((status, reader["sees"], reader["by_cookie"]), (200, "operator", True))
        self.assertGreater(reader["seconds_left"], 8 * 3600 - 600)
        self.assertEqual(world.post("server/drain", **looks)[0], 403)
        self.assertEqual(world.post("server/drain", **acts)[::2], (200, {"done": True, "what": "takes nothing new, and nothing runs"}))
        self.assertEqual(world.ask("/readyz")[0], 503)
        self.assertNotIn("operator", world.ask("/readyz")[2])
        self.assertEqual(world.post("server/undrain", **acts)[0], 200)
        own, _ = world.login(world.run(COMMAND, "page", "--credentials", world.credentials("alice"), "-s", world.server.address))
        self.assertEqual([world.get("reader", **own)[1][key] for key in ("name", "sees")], ["alice", "own"])
        self.assertEqual(world.post("logout", **acts)[0], 200)
        self.assertEqual(world.get("reader", **looks)[0], 401)
        world.run(DAEMON, "revoke", "alice", "--state-dir", world.state)
        wait_until(lambda: world.get("reader", **own)[0] == 401, "a login ends when its user is revoked")
        for line in (r'event=link user="uid \d+.*" from="remote-gpud"', r'event=login user="uid \d+.*" from="127\.0\.0\.1:\d+"',
                     r'event=drain user="uid \d+.*" from="127\.0\.0\.1:\d+"', r'event=undrain ', r'event=link user="alice" serial='):
            self.assertRegex(world.server.log(), line)
        self.assertNotIn(looks["Cookie"].split("=")[1], world.server.log())

    def test_pages_of_elsewhere(self):
        world = World(self, people=())
        _, acts = world.login(world.run(DAEMON, "page", "--state-dir", world.state))
        us = "https://127.0.0.1:%d" % world.server.port
        for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": us.replace("https", "http")},
                        {"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"}, {GUARD: ""}, {GUARD: "1"}):
            self.assertEqual(world.post("server/drain", **{**acts, **headers})[0], 403, headers)
        self.assertEqual(world.ask("/api/v1/server/drain", method="GET", Cookie=acts["Cookie"])[0], 405)
        self.assertEqual(world.ask("/readyz")[0], 200)
        for status, body in ((400, "x"), (400, "[]"), (413, "{" + " " * 2000 + "}")):
            self.assertEqual(world.ask("/api/v1/server/drain", method="POST", body=body, **acts)[0], status)
        for body in ("", "{}", '{"token": 7}', '{"token": "%s"}' % ("0" * 63), '{"token": "%s"}' % ("g" * 64)):
            self.assertEqual(world.ask("/api/v1/login", method="POST", body=body, **{GUARD: "1"})[0], 400)
        self.assertEqual(world.ask("/api/v1/login", method="POST", body='{"token": "%s"}' % ("0" * 64))[0], 403)
        self.assertEqual(world.ask("/api/v1/sessions/1/drop", method="POST", **acts)[0], 404)
        self.assertEqual(world.ask("/api/v1/sessions/%s/end" % ("9" * 40), method="POST", **acts)[0], 404)
        self.assertEqual(world.post("server/drain", **acts, Origin=us, Sec_Fetch_Site="same-origin")[0], 200)
        self.assertEqual(world.ask("/readyz")[0], 503)

    def test_on_this_machine(self):
        """Without TLS: everybody sees what list tells them, and only who has a link does something."""
        world = World(self, http="127.0.0.1:0", people=())
        link = world.run(DAEMON, "page", "--state-dir", world.state).strip()
        self.assertRegex(link, r"^http://127\.0\.0\.1:%d/#login=" % world.server.port)
        self.assertEqual(json.loads(world.server.get("/api/v1/reader")[2])["sees"], "public")
        connection = http.client.HTTPConnection("127.0.0.1", world.server.port, timeout=PATIENCE)
        connection.request("POST", "/api/v1/server/drain", headers={GUARD: "1"})
        self.assertEqual(connection.getresponse().status, 403)
        connection.close()
        connection.request("POST", "/api/v1/login", body=json.dumps({"token": link[-64:]}), headers={GUARD: "1"})
        answer = connection.getresponse()
        guard, cookie = json.loads(answer.read())["guard"], answer.headers["Set-Cookie"]
        self.assertRegex(cookie, r"^rgpu-%d=[0-9a-f]{64}; Path=/; Max-Age=28800; HttpOnly; SameSite=Strict$" % world.server.port)
        connection.close()
        connection.request("POST", "/api/v1/server/drain", headers={GUARD: guard, "Cookie": cookie.split(";")[0]})
        self.assertEqual(connection.getresponse().status, 200)
        connection.close()

    def test_mistakes(self):
        with tempfile.TemporaryDirectory(prefix="remote-gpu-token-") as folder:
            path = os.path.join(folder, "token")
            for text, mode, why in (("short", 0o600, "one line of 16 to"), (TOKEN + "\nmore\n", 0o600, "one line of 16 to"),
                                    (TOKEN, 0o644, "others may read it")):
                with open(path, "w") as file:
                    file.write(text)
                os.chmod(path, mode)
                server = self.server("--http", "127.0.0.1:0", "--http-token-file", path, wait=False)
                self.assertEqual(server.process.wait(PATIENCE), 125)
                self.assertIn(why, server.log())
        with tempfile.TemporaryDirectory(prefix="remote-gpu-state-") as state:
            server = self.server("--state-dir", state, wait=False)
            wait_until(lambda: os.path.exists(server.ready), "it is ready")
            done = subprocess.run([DAEMON, "page", "--state-dir", state], env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.returncode, 125)
            self.assertIn("this server has no status page", done.stderr)


if __name__ == "__main__":
    http_test.stop_with_servers()
    unittest.main(verbosity=2)
