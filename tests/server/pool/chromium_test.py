"""The page of a pool in Chromium: empty, busy, and with a server that has died. Each is also a picture below the build, to be looked at."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time

from pool_case import BUILD, COMMAND, DAEMON, Etcd, base64_of, PoolCase, main, run, wait_until

SHOTS = os.path.join(BUILD, "tests", "pool")


class Chromium(PoolCase):
    def setUp(self):
        super().setUp()
        self.assertTrue(shutil.which("chromium"), "chromium is not installed (apt-get install chromium)")
        os.makedirs(SHOTS, exist_ok=True)

    def look(self, server, name, size="1100,1400", *options):
        """What an operator sees once the page's script has run, as text; and a picture of it."""
        shot = os.path.join(SHOTS, name + ".png")
        with tempfile.TemporaryDirectory(prefix="remote-gpu-chromium-") as profile:
            common = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=6000",
                      "--window-size=" + size, "--user-data-dir=" + profile, *options]
            for wish in ("--screenshot=" + shot, "--dump-dom"):
                link = run(DAEMON, "page", "--state-dir", server.state).out.strip()
                seen = subprocess.run([*common, wish, link], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=120)
        self.assertGreater(os.path.getsize(shot), 10000)
        return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", re.sub(r"<script.*?</script>", "", seen.stdout, flags=re.S)))

    def test_empty_busy_and_with_a_dead_server(self):
        etcd = self.keep(Etcd())
        first = self.server(etcd.urls, "--http", "127.0.0.1:0", gpus=2)
        self.assertIn("1 server · 0 requests wait", self.look(first, "empty"))
        second, third = (self.server(etcd.urls, "--pool-label", "rack=" + rack, gpus=2) for rack in "bc")
        wait_until(lambda: len(self.pool(first)["servers"]) == 3, "all are in the pool")
        outcome = run(COMMAND, "request", "-s", second.address, "-n", "2", "--filter", "labels.rack=b", "--for", "1h")
        self.assertEqual(outcome.status, 0, outcome)
        self.running(third, "-n", "1", "--filter", "labels.rack=c").wait_for("begun 1")
        self.running(third, "-n", "4", "--spread", "--wait-for").wait_for("in the queue")
        text = self.look(first, "busy")
        self.assertIn("3 servers · 1 request waits", text)
        self.assertIn("Requests that wait", text)
        self.assertEqual(text.count("1 granted"), 3, text)
        self.look(first, "busy-phone", "400,2400")
        self.look(first, "busy-dark", "1100,1400", "--force-dark-mode", "--blink-settings=preferredColorScheme=0")
        os.kill(third.process.pid, signal.SIGKILL)
        third.process.wait()
        wait_until(lambda: len(self.pool(first)["servers"]) == 2, "the dead server is gone", 60)
        text = self.look(first, "dead")
        self.assertIn("2 servers · ", text)
        self.assertEqual(text.count("1 granted"), 2, text)

    @staticmethod
    def put(etcd, key, **value):
        etcd.ask("/v3/kv/put", key=base64_of("/remote-gpu/pools/lab/" + key), value=base64_of(json.dumps(value))).close()

    def test_measured_links_of_a_large_pool(self):
        """Those that are there in etcd alone: 63 servers, links of a client's machine and of a server's."""
        etcd = self.keep(Etcd())
        server = self.server(etcd.urls, "--http", "127.0.0.1:0", gpus=1)
        self.assertIn("No link to a server was measured: remote-gpu netperf --pool", self.look(server, "links-none"))
        draw, addresses = random.Random(5), ["10.1.%d.%d:7600" % (i // 16, i % 16 + 1) for i in range(63)]
        for i, address in enumerate(addresses):
            self.put(etcd, "servers/%016x" % (0xabc0000 + i), version=1, address=address, host="gpu-%02d" % i, etcd_lease="0", agent="%016x" % i, draining=False)
            self.put(etcd, "servers/%016x/gpus/0" % (0xabc0000 + i), index=0, uuid="GPU-%d" % i, name="H200", memory=140 << 30, granted=[])
        for i, (machine, slower) in enumerate((("workstation-7", 10), ("gpu-03", 1))):
            self.put(etcd, "links/%016x" % (i + 1), user="3 alice", machine=machine, as_of=int(time.time()), servers={
                address: [int(draw.uniform(9e3, 9e4) * slower), int(12e9 / draw.uniform(1, 3) / slower)] for address in addresses})
        wait_until(lambda: len(self.pool(server)["servers"]) == 64, "all are in the pool")
        for name, size, *options in (("links", "1100,5200"), ("links-phone", "400,15000"),
                                     ("links-dark", "1100,5200", "--force-dark-mode", "--blink-settings=preferredColorScheme=0")):
            text = self.look(server, name, size, *options)
        self.assertIn("126 links from 2 machines to 63 servers.", text)
        self.assertRegex(text, r"Round trip \d+(\.\d)? µs to \d+ µs, \d+ µs in the median; bandwidth \d+ MB/s to 1[12]\.\d GB/s, ")
        self.assertIn("gpu-03 (a server)", text)
        self.assertIn("Show all 126", text)
        self.assertEqual(len(re.findall(r"workstation-7 gpu-\d\d \(10\.", text)), 12, "the slowest twelve are shown")


if __name__ == "__main__":
    main()
