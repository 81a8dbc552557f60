"""An authority of the operator's own, by the program openssl: certificates as cert-manager or step-ca would give them."""

import os
import shutil
import time

from machines import checked, skip

DAY = 86400
CONFIGURATION = """
[ca]
default_ca = authority
[authority]
dir = %(folder)s
database = $dir/index
new_certs_dir = $dir
serial = $dir/serial
default_md = sha256
policy = any
unique_subject = no
[any]
commonName = supplied
[root]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
[server]
extendedKeyUsage = serverAuth
subjectAltName = %(names)s
[both]
extendedKeyUsage = serverAuth, clientAuth
subjectAltName = %(names)s
[client]
extendedKeyUsage = clientAuth
%(identity)s
"""


def date(seconds):
    """A time from now, as openssl ca takes it."""
    return time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + seconds))


class Authority:
    """A root and what it has signed, in a folder."""

    def __init__(self, folder, name="test authority"):
        if not shutil.which("openssl"):
            skip("there is no program openssl")
        self.folder = folder
        os.mkdir(folder, 0o755)
        for file, text in (("index", ""), ("serial", "1000\n")):
            with open(os.path.join(folder, file), "w") as out:
                out.write(text)
        self.configure("DNS:localhost", "")
        self.root = self.path("ca.crt")
        self.make_key("ca.key")
        checked("openssl", "req", "-new", "-key", self.path("ca.key"), "-subj", "/CN=" + name, "-config",
                self.path("configuration"), "-out", self.path("ca.csr"))
        checked("openssl", "ca", "-batch", "-notext", "-selfsign", "-config", self.path("configuration"), "-in",
                self.path("ca.csr"), "-keyfile", self.path("ca.key"), "-extensions", "root", "-startdate", date(-2 * DAY),
                "-enddate", date(100 * DAY), "-out", self.root)

    def path(self, name):
        """A file of the authority's."""
        return os.path.join(self.folder, name)

    def configure(self, names, identity):
        """Writes openssl's configuration for the next certificate."""
        with open(self.path("configuration"), "w") as out:
            out.write(CONFIGURATION % {"folder": self.folder, "names": names, "identity": identity} +
                      "[req]\ndistinguished_name = asked\n[asked]\n")

    def make_key(self, name):
        """A key of P-256."""
        checked("openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", self.path(name))
        os.chmod(self.path(name), 0o600)

    def issue(self, kind, name, alternative="", begins=-DAY, ends=DAY):
        """A key and certificate, valid from and until so many seconds from now: (certificate, key) as paths."""
        self.configure(alternative if kind in ("server", "both") else "DNS:localhost",
                       "subjectAltName = " + alternative if kind == "client" and alternative else "")
        key, request, certificate = (self.path("%s.%s" % (name, end)) for end in ("key", "csr", "crt"))
        self.make_key(name + ".key")
        checked("openssl", "req", "-new", "-key", key, "-subj", "/CN=" + name, "-config", self.path("configuration"),
                "-out", request)
        checked("openssl", "ca", "-batch", "-notext", "-config", self.path("configuration"), "-in", request, "-out",
                certificate, "-cert", self.root, "-keyfile", self.path("ca.key"), "-extensions", kind, "-startdate",
                date(begins), "-enddate", date(ends))
        return certificate, key

    def credentials(self, folder, name, **when):
        """A folder of credentials for `name`, as a secret would be mounted: ca.crt, tls.crt, tls.key."""
        certificate, key = self.issue("client", name, **when)
        os.mkdir(folder, 0o700)
        for source, target in ((self.root, "ca.crt"), (certificate, "tls.crt"), (key, "tls.key")):
            shutil.copy(source, os.path.join(folder, target))
        os.chmod(os.path.join(folder, "tls.key"), 0o600)
        return folder
