"""What users and operators do wrong: each is answered by one sentence."""

import http.server
import os
import shutil
import subprocess
import tempfile
import threading

from pool_case import DAEMON, Etcd, PoolCase, Server, gpu_run, main, run, wait_until
from authority import DAY, Authority


class Users(PoolCase):
    @classmethod
    def setUpClass(cls):
        cls.etcd = Etcd()
        cls.addClassCleanup(cls.etcd.close)
        cls.one = Server(cls.etcd.urls)
        cls.addClassCleanup(cls.one.close)

    def test_filters(self):
        self.assert_refused(gpu_run(self.one, "--filter", "device.colour=red"), "device.colour", "server.has-rdma",
                            "labels.NAME")
        self.assert_refused(gpu_run(self.one, "--filter", "device.memory>=40G", "--filter", "device.memory<8G"),
                            r"device.memory>=40G.*device.memory<8G|device.memory<8G.*device.memory>=40G")
        self.assert_refused(gpu_run(self.one, "--filter", "device.memory>=4000G", "--wait-for"), "4000G")

        many = [word for i in range(17) for word in ("--filter", "device.index<%d" % (100 + i))]
        self.assert_refused(gpu_run(self.one, *many), "17 filters are named, and there may be 16")

    def test_more_than_there_is(self):
        self.assert_refused(gpu_run(self.one, "-n", "5", "--wait-for", "--spread"), "5 .*GPUs", "at most 2")

    def test_times(self):
        self.assert_refused(gpu_run(self.one, "--wait-for=soon"), "soon")

    def test_a_misspelt_pool(self):
        other = self.server(self.etcd.urls, pool="labb")
        other.wait_for_log("this etcd also has: lab")


class Operators(PoolCase):
    def test_settings(self):
        for arguments, text in ((("--pool", "lab"), "go together"), (("--etcd", "http://127.0.0.1:1"), "go together"),
                                (("--etcd-user", "x"), "--etcd-user is of a server of a pool"),
                                (("--pool-label", "a=b"), "--pool-label is of a server of a pool"),
                                (("--pool", "a/b", "--etcd", "http://127.0.0.1:1"), "a pool's name"),
                                (("--pool", "lab", "--etcd", "127.0.0.1:1"), "no address of an etcd member"),
                                (("--pool", "lab", "--etcd", "http://127.0.0.1:1", "--etcd-key", "x"), "go together"),
                                (("--pool", "lab", "--etcd", "http://127.0.0.1:1", "--pool-label", "x"), "NAME=VALUE")):
            outcome = run(DAEMON, "--config", "/dev/null", "--driver", "soft", "--listen", "127.0.0.1:0", *arguments)
            self.assert_refused(outcome, text)

    def test_an_authority_of_its_own(self):
        """Whom one server of a pool knows, the others are to know."""
        etcd = self.keep(Etcd())
        alone = self.server(etcd.urls, "--listen", "0.0.0.0:0")
        alone.wait_for_log("give all of them certificates of one authority")
        self.assertNotIn("of one authority", self.server(etcd.urls).log())  # it serves this machine alone

    def test_an_etcd_of_another_version(self):
        class Old(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                text = b'{"etcdserver":"3.2.17","etcdcluster":"3.2.0"}'
                self.send_response(200)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def do_POST(self):
                self.send_error(404)

            def log_message(self, *_):
                pass

        old = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Old)
        threading.Thread(target=old.serve_forever, daemon=True).start()
        self.addCleanup(old.server_close)
        self.addCleanup(old.shutdown)
        server = self.server("http://127.0.0.1:%d" % old.server_port, wait=False)
        server.wait_for_log("is of version 3.2.17; 3.4 or a later 3 is needed")
        self.assert_refused(gpu_run(server), "cannot grant GPUs now", "version 3.2.17")

    def test_certificates_of_etcd(self):
        if not shutil.which("openssl"):
            self.skipTest("openssl makes the certificates")
        folder = tempfile.mkdtemp(prefix="remote-gpu-etcd-tls-")
        self.addCleanup(shutil.rmtree, folder)
        os.chmod(folder, 0o700)

        def path(name):
            return os.path.join(folder, name)

        def openssl(*words):
            subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)

        for authority in ("ca", "other"):
            openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                    "-subj", "/CN=" + authority, "-keyout", authority + ".key", "-out", authority + ".pem")
        with open(path("names"), "w") as file:
            file.write("subjectAltName=IP:127.0.0.1\n")
        for name in ("etcd", "server"):
            openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=" + name,
                    "-keyout", name + ".key", "-out", name + ".csr")
            openssl("x509", "-req", "-in", name + ".csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                    "-days", "2", "-extfile", "names", "-out", name + ".pem")
        etcd = self.keep(Etcd(scheme="https", options=("--client-cert-auth", "--trusted-ca-file", path("ca.pem"),
                                                       "--cert-file", path("etcd.pem"), "--key-file", path("etcd.key"))))
        none = self.server(etcd.urls, "--etcd-ca", path("ca.pem"), wait=False)
        none.wait_for_log("refuses this server's certificate")
        other = self.server(etcd.urls, "--etcd-ca", path("other.pem"), wait=False)
        other.wait_for_log("--etcd-ca names the authority")
        with open(path("names"), "a") as file:
            file.write("extendedKeyUsage=serverAuth\n")
        openssl("x509", "-req", "-in", "etcd.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile",
                "names", "-out", "etcd-alone.pem")
        alone = self.keep(Etcd(scheme="https", options=("--client-cert-auth", "--trusted-ca-file", path("ca.pem"), "--cert-file",
                                                        path("etcd-alone.pem"), "--key-file", path("etcd.key"))))
        unheard = self.server(alone.urls, "--etcd-ca", path("ca.pem"), "--etcd-cert", path("server.pem"), "--etcd-key",
                              path("server.key"), wait=False)
        unheard.wait_for_log("its --cert-file must be for clients as well")
        good = self.server(etcd.urls, "--etcd-ca", path("ca.pem"), "--etcd-cert", path("server.pem"), "--etcd-key",
                           path("server.key"))
        self.assertEqual(gpu_run(good).status, 0)

    def test_certificates_that_do_not_hold_now_or_here(self):
        """Whoever has made them: what is said is what to do about it."""
        folder = tempfile.mkdtemp(prefix="remote-gpu-etcd-tls-")
        self.addCleanup(shutil.rmtree, folder)
        authority = Authority(os.path.join(folder, "authority"))
        names, old = "IP:127.0.0.1", {"begins": -2 * DAY, "ends": -60}

        def etcd(name, **when):
            certificate, key = authority.issue("both", name, alternative=names, **when)
            return self.keep(Etcd(scheme="https", options=("--client-cert-auth", "--trusted-ca-file", authority.root, "--cert-file",
                                                           certificate, "--key-file", key)))

        def says(urls, text, name, **when):
            certificate, key = authority.issue("client", name, **when)
            self.server(urls, "--etcd-ca", authority.root, "--etcd-cert", certificate, "--etcd-key", key, wait=False).wait_for_log(text)

        good = etcd("etcd").urls
        says(etcd("old-etcd", **old).urls, "renew it, or set the clock that is wrong", "one")
        says(good, "valid now", "two", **old)
        says(good.replace("127.0.0.1", "localhost"), "--etcd names etcd as its certificate does", "three")


if __name__ == "__main__":
    main()
