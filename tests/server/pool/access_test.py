"""How servers of a pool prove to etcd who they are: users of etcd, and certificates that are replaced while a server runs."""

import os
import shutil
import signal
import subprocess
import tempfile
import time

from pool_case import COMMAND, SESSION, Etcd, PoolCase, base64_of, gpu_run, main, run, wait_until
from authority import Authority

PREFIX = "/remote-gpu/pools/lab/"


class Access(PoolCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="remote-gpu-access-")
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)
        return self.path(name)

    # --- users ---

    def with_users(self):
        """An etcd with users, of whom `gpu` may do what a server of the pool does, and no more."""
        etcd = self.keep(Etcd())
        for path, body in (("user/add", {"name": "root", "password": "r"}), ("role/add", {"name": "root"}),
                           ("user/grant", {"user": "root", "role": "root"}), ("user/add", {"name": "gpu", "password": "secret"}),
                           ("role/add", {"name": "lab"}), ("user/grant", {"user": "gpu", "role": "lab"}),
                           ("role/grant", {"name": "lab", "perm": {"permType": "READWRITE", "key": base64_of(PREFIX),
                                                                   "range_end": base64_of(PREFIX[:-1] + "0")}}), ("enable", {})):
            etcd.ask("/v3/auth/" + path, **body).close()
        return etcd

    def test_etcd_with_users(self):
        etcd = self.with_users()
        nobody = self.server(etcd.urls, wait=False)
        nobody.wait_for_log("--etcd-user names a user of it")
        wrong = self.server(etcd.urls, "--etcd-user", "gpu", "--etcd-password-file", self.write("wrong", "guess\n"), wait=False)
        wrong.wait_for_log("invalid user ID or password")
        good = ("--etcd-user", "gpu", "--etcd-password-file", self.write("password", "secret\n"))
        a, b = self.server(etcd.urls, *good), self.server(etcd.urls, *good)
        for server in a, b:
            self.assertEqual(gpu_run(server, "--wait-for").status, 0)
        running = self.running(a, "--wait-for").wait_for("begun 1")
        etcd.kill()  # and the tokens that it has given with it
        etcd.restart(0)
        wait_until(etcd.is_up, "etcd is back")
        for server in a, b:
            wait_until(lambda: "etcd" not in self.pool(server)["etcd"], "a server is in the pool")
            outcome = gpu_run(server, "--wait-for=60")
            self.assertEqual(outcome.status, 0, outcome)
        self.assertIn("works", running.finish())
        self.wait_free(b, 4)

    def test_a_user_of_an_etcd_that_has_no_users(self):
        server = self.server(self.keep(Etcd()).urls, "--etcd-user", "gpu", "--etcd-password-file", self.write("password", "secret"))
        self.assertEqual(gpu_run(server).status, 0)

    # --- certificates ---

    def openssl(self, *words):
        subprocess.run(["openssl", *words], cwd=self.folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def authority(self, name):
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=" + name,
                     "-keyout", name + ".key", "-out", name + ".pem")

    def certify(self, name, authority):
        self.write("names", "subjectAltName=IP:127.0.0.1\n")
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=" + name, "-keyout", name + ".key",
                     "-out", name + ".csr")
        self.openssl("x509", "-req", "-in", name + ".csr", "-CA", authority + ".pem", "-CAkey", authority + ".key", "-CAcreateserial",
                     "-days", "2", "-extfile", "names", "-out", name + ".pem")

    def test_a_certificate_is_replaced(self):
        """etcd takes the one before no more: the server shows the new one after SIGHUP, and sessions go on."""
        self.authority("first")
        self.authority("second")
        self.certify("etcd", "first")
        self.certify("server", "first")
        shutil.copy(self.path("first.pem"), self.path("trusted.pem"))
        etcd = self.keep(Etcd(scheme="https", options=("--client-cert-auth", "--trusted-ca-file", self.path("trusted.pem"),
                                                       "--cert-file", self.path("etcd.pem"), "--key-file", self.path("etcd.key"))))
        server = self.server(etcd.urls, "--etcd-ca", self.path("trusted.pem"), "--etcd-cert", self.path("server.pem"), "--etcd-key",
                             self.path("server.key"))
        running = self.running(server).wait_for("begun 1")
        server.process.send_signal(signal.SIGHUP)  # nothing has changed
        etcd.kill()
        self.certify("etcd", "second")
        shutil.copy(self.path("second.pem"), self.path("trusted.pem"))
        etcd.restart(0)
        wait_until(etcd.is_up, "etcd is back")
        wait_until(lambda: "cannot grant GPUs now" in gpu_run(server).err, "neither takes the other's certificate")
        self.certify("server", "second")
        server.process.send_signal(signal.SIGHUP)
        server.wait_for_log("etcd is shown the new certificate")
        self.assertEqual(server.log().count("etcd is shown the new certificate"), 1)
        wait_until(lambda: gpu_run(server, "--wait-for=10").status == 0, "the server is back in the pool")
        self.assertIn("works", running.finish())
        self.wait_free(server, 2)

    def test_certificates_that_live_for_seconds(self):
        """All are renewed when two thirds of their lives are over, as whoever makes them does: the pool goes on, also with what runs."""
        authority = Authority(self.path("short"))
        made = (("both", "etcd"), ("client", "for-etcd"), ("server", "server"), ("client", "alice"))

        def make(life):
            """Returns when they end, and how long it took."""
            began = time.monotonic()
            for kind, name in made:
                authority.issue(kind, name, alternative="IP:127.0.0.1" if kind != "client" else "", ends=life)
            return began + life, time.monotonic() - began

        life = 24 + int(20 * make(1)[1])  # enough for a server to start and a program to begin, however busy the machine is
        ends, _ = make(life)
        files = {name: (authority.path(name + ".crt"), authority.path(name + ".key")) for _, name in made}
        etcd = self.keep(Etcd(scheme="https", options=("--client-cert-auth", "--trusted-ca-file", authority.root, "--cert-file",
                                                       files["etcd"][0], "--key-file", files["etcd"][1])))
        server = self.server(etcd.urls, "--etcd-ca", authority.root, "--etcd-cert", files["for-etcd"][0], "--etcd-key", files["for-etcd"][1],
                             "--tls-ca", authority.root, "--tls-cert", files["server"][0], "--tls-key", files["server"][1])
        credentials = self.path("credentials")
        os.mkdir(credentials, 0o700)

        def renew_alice():
            for source, target in zip((authority.root, *files["alice"]), ("ca.crt", "tls.crt", "tls.key")):
                os.replace(shutil.copy(source, credentials), os.path.join(credentials, target))

        renew_alice()
        alice = {"REMOTE_GPU_CREDENTIALS": credentials}
        running = self.running(server, "-m", "16M", **alice).wait_for("begun 1")
        wait_until(lambda: time.monotonic() > ends - life / 3, "two thirds of the lives are over", 2 * life)
        make(10 * life)
        renew_alice()
        server.process.send_signal(signal.SIGHUP)
        server.wait_for_log("etcd is shown the new certificate")
        wait_until(lambda: time.monotonic() > ends + 2, "the first lives are over", 2 * life)
        outcome = run(COMMAND, "run", "-s", server.address, "-m", "16M", "--wait-for=30", "--", *SESSION, **alice)
        self.assertIn("works", outcome.out, outcome)
        self.assertIn("works", running.finish(), running.err())
        self.assertEqual(server.log().count("in the pool lab as"), 1)


if __name__ == "__main__":
    main()
