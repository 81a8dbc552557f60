"""Completion for bash: subcommands, options and choices of the programs as they are."""

import os
import subprocess
import sys
import unittest

SCRIPT, BIN = sys.argv[1:3]
del sys.argv[1:3]


def complete(*words):
    """What bash would offer for the last of `words`."""
    result = subprocess.run(["bash", "--norc", "-c", '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
                             '_remote_gpu; printf "%s\\n" "${COMPREPLY[@]}"', "bash", SCRIPT, *words],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120, cwd="/",
                            env={**os.environ, "LC_ALL": "C", "PATH": BIN + ":" + os.environ["PATH"]})
    assert result.returncode == 0 and not result.stderr, result.stderr
    return set(result.stdout.split())


class Completion(unittest.TestCase):
    def test_words(self):
        self.assertEqual(complete("remote-gpu", "ru"), {"run"})
        self.assertTrue({"run", "join", "list", "smi", "doctor", "netperf", "compare", "predict", "verify-limits",
                         "version"} <=
                        complete("remote-gpu", ""))
        self.assertEqual(complete("remote-gpu", "run", "--tr"), {"--transport"})
        self.assertEqual(complete("remote-gpu", "run", "--transport", ""), {"auto", "tcp", "rdma"})
        self.assertEqual(complete("remote-gpu", "run", "--compress", "l"), {"lz4"})
        self.assertEqual(complete("remote-gpu", "list", "--tr"), set())
        self.assertEqual(complete("remote-gpu", "join", "--for"), {"--force"})
        self.assertEqual(complete("remote-gpu", "run", "--encrypt", ""), {"always", "control"})
        self.assertEqual(complete("remote-gpu", "run", "--", "mkdi"), {"mkdir"})
        self.assertEqual(complete("remote-gpud", "--max"), {"--max-sessions", "--max-sessions-per-user"})
        self.assertEqual(complete("remote-gpud", "--driver", "so"), {"soft"})
        self.assertEqual(complete("remote-gpud", ""), {"token", "users", "revoke", "usage", "suspend", "resume", "end", "page", "drain"})
        self.assertEqual(complete("remote-gpu", "usage", "--by", ""), {"user", "project", "day", "month", "session", "sharing"})
        self.assertEqual(complete("remote-gpud", "token", "--us"), {"--user", "--uses"})
        self.assertEqual(complete("remote-gpud", "revoke", "--driv"), set())
        self.assertEqual(complete("remote-gpu", "cdi", ""), {"generate"})
        self.assertEqual(complete("remote-gpu", "cdi", "generate", "--cl"), {"--client-root"})
        self.assertEqual(complete("remote-gpu-kube-controller", "--int"), {"--interval"})
        self.assertEqual(complete("remote-gpu-kube-node", "--log", "w"), {"warn"})
        self.assertEqual(complete("remote-gpu-kube-plugin", "--settl"), {"--settle"})
        self.assertIn("/etc/passwd", complete("remote-gpu", "predict", "/etc/passw"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
