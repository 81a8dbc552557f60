"""The page of a pool in Chromium: empty, busy, and with a server that has died. Each is also a picture below the build, to be looked at."""

import os
import re
import shutil
import signal
import subprocess
import tempfile

from pool_case import BUILD, COMMAND, DAEMON, Etcd, PoolCase, main, run, wait_until

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
        outcome = run(COMMAND, "request", "-s", second.address, "-n", "3", "--spread", "--for", "1h")
        self.assertEqual(outcome.status, 0, outcome)
        self.running(third, "-n", "1").wait_for("begun 1")
        self.running(third, "-n", "4", "--spread", "--wait-for").wait_for("in the queue")
        text = self.look(first, "busy")
        self.assertIn("3 servers · 1 request waits", text)
        self.assertIn("Requests that wait", text)
        self.assertEqual(text.count("1 granted"), 4, text)
        self.look(first, "busy-phone", "400,2400")
        self.look(first, "busy-dark", "1100,1400", "--force-dark-mode", "--blink-settings=preferredColorScheme=0")
        os.kill(third.process.pid, signal.SIGKILL)
        third.process.wait()
        wait_until(lambda: len(self.pool(first)["servers"]) == 2, "the dead server is gone", 60)
        text = self.look(first, "dead")
        self.assertIn("2 servers · ", text)
        self.assertEqual(text.count("1 granted"), 2, text)


if __name__ == "__main__":
    main()
