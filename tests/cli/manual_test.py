"""The manual pages are well-formed, and describe the options that the programs have: all of them, and no others."""

import os
import re
import shutil
import subprocess
import sys
import unittest

SOURCE, BIN = sys.argv[1:3]
del sys.argv[1:3]
MANUALS = os.path.join(SOURCE, "docs", "man")


def help_of(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def options_of_help(*command):
    return set(re.findall(r"^  (?:-\w, |    )--([\w-]+)", help_of(*command), re.MULTILINE))


def environment_of_help(*command):
    """The variables that options can be set by."""
    return set(re.findall(r"\[(REMOTE_GPU_\w+)\]", help_of(*command)))


def options_of_manual(name):
    """Long options that have an entry of their own."""
    with open(os.path.join(MANUALS, name)) as file:
        items = [line for line in file if line.startswith(".It Fl")]
    return {option for line in items for option in re.findall(r"Fl -([\w-]+)", line)}


def environment_of_manual(name):
    """Variables that have an entry of their own."""
    with open(os.path.join(MANUALS, name)) as file:
        return {word for line in file if line.startswith(".It Ev") for word in re.findall(r"REMOTE_GPU_\w+", line)}


class Manuals(unittest.TestCase):
    def test_options(self):
        command = os.path.join(BIN, "remote-gpu")
        questions = set().union(*(options_of_help(command, name, "--help") for name in ("list", "smi", "version")))
        for manual, options in {
            "remote-gpud.8": options_of_help(os.path.join(BIN, "remote-gpud"), "--help"),
            "remote-gpu-run.1": options_of_help(command, "run", "--help"),
            "remote-gpu-netperf.1": options_of_help(command, "netperf", "--help"),
            "remote-gpu-doctor.1": options_of_help(command, "doctor", "--help"),
            "remote-gpu-predict.1": options_of_help(command, "predict", "--help"),
            "remote-gpu-compare.1": options_of_help(command, "compare", "--help"),
            "remote-gpu.1": questions,
        }.items():
            with self.subTest(manual):
                self.assertGreater(len(options), 3)
                self.assertEqual(options_of_manual(manual), options)

    def test_environment(self):
        command = os.path.join(BIN, "remote-gpu")
        for manual, variables in {"remote-gpud.8": environment_of_help(os.path.join(BIN, "remote-gpud"), "--help"),
                                  "remote-gpu-run.1": environment_of_help(command, "run", "--help")}.items():
            with self.subTest(manual):
                self.assertGreater(len(variables), 3)
                self.assertEqual(variables - environment_of_manual(manual), set())

    @unittest.skipUnless(shutil.which("mandoc"), "mandoc is not installed")
    def test_lint(self):
        names = sorted(os.listdir(MANUALS))
        self.assertIn("remote-gpud.8", names)
        for name in names:
            with self.subTest(name):
                result = subprocess.run(["mandoc", "-Tlint", "-Wwarning", os.path.join(MANUALS, name)],
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                complaints = [line for line in result.stdout.splitlines()
                              # references to each other cannot be resolved before installation
                              if "referenced manual not found" not in line]
                self.assertEqual(complaints, [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
