"""The manual pages are well-formed, and describe the options that the programs have: all of them, and no others."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE, BIN = sys.argv[1:3]
del sys.argv[1:3]
MANUALS = os.path.join(SOURCE, "docs", "man")
SLURM_LEASE = os.path.join(os.path.dirname(BIN), "lib", "remote-gpu", "slurm-lease")  # where libslurm-dev is installed


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


def synopsis_of_manual(name):
    with open(os.path.join(MANUALS, name)) as file:
        text = file.read()
    return set(re.findall(r"Fl (-[\w-]+|\w)", text.split(".Sh SYNOPSIS")[1].split(".Sh ")[0]))


def letters_of_help(*command):
    """--name: -n, of options that have a letter."""
    return {name: letter for letter, name in re.findall(r"^  -(\w), --([\w-]+)", help_of(*command), re.MULTILINE)}


def keys_of_manual(program):
    """The keys of configuration files that remote-gpu-config(5) has under "The command" or "The server"."""
    with open(os.path.join(MANUALS, "remote-gpu-config.5")) as file:
        section = file.read().split(".Ss The %s\n" % program)[1]
    section = section.split(".Ss ")[0].split(".Sh ")[0]
    return {word for line in re.findall(r"^\.Cm (.*)$", section[section.index("The keys"):], re.MULTILINE)
            for word in line.split() if word not in (",", ".")}


def variables_of_sources():
    """Environment variables that the programs and libraries read: name -> files."""
    found = {}
    for layer in ("common", "proto", "transport", "interpose", "client", "server", "softgpu", "places"):
        for folder, _, names in os.walk(os.path.join(SOURCE, layer)):
            for name in names:
                path = os.path.join(folder, name)
                if not name.endswith((".c", ".h")):
                    continue
                with open(path) as file:
                    for variable in re.findall(r'"((?:REMOTE_GPU|SOFTGPU)_[A-Z_]*[A-Z])"', file.read()):
                        found.setdefault(variable, set()).add(os.path.relpath(path, SOURCE))
    return found


def members_of_sources():
    """Names of members of JSON objects that the command prints."""
    found = set()
    for folder, _, names in os.walk(os.path.join(SOURCE, "client", "cli")):
        for name in names:
            with open(os.path.join(folder, name)) as file:
                text = file.read()
            for call in re.findall(r'json_pack\(\s*"([^;]*);', text):
                found |= set(re.findall(r'"([a-z][a-z0-9_]*)"', '"' + call))
            found |= set(re.findall(r'json_object_set_new\(\w+, "(\w+)"', text))
    return found


def members_of_manuals():
    found = set()
    for name in os.listdir(MANUALS):
        with open(os.path.join(MANUALS, name)) as file:
            for line in re.findall(r"^\.(?:It )?Va (.*)$", file.read(), re.MULTILINE):
                found |= {word for word in line.split() if word not in (",", ".")}
    return found


class Manuals(unittest.TestCase):
    def test_options(self):
        command = os.path.join(BIN, "remote-gpu")
        questions = set().union(*(options_of_help(command, name, "--help") for name in ("list", "smi", "version")))
        server = os.path.join(BIN, "remote-gpud")
        users = set().union(*(options_of_help(server, name, "--help") for name in ("token", "users", "revoke", "suspend", "resume", "end", "page", "drain")))
        for manual, options in {
            "remote-gpud-users.8": users,
            "remote-gpud.8": options_of_help(os.path.join(BIN, "remote-gpud"), "--help"),
            "remote-gpu-run.1": options_of_help(command, "run", "--help"),
            "remote-gpu-netperf.1": options_of_help(command, "netperf", "--help"),
            "remote-gpu-doctor.1": options_of_help(command, "doctor", "--help"),
            "remote-gpu-predict.1": options_of_help(command, "predict", "--help"),
            "remote-gpu-cdi.1": options_of_help(command, "cdi", "--help"),
            "remote-gpu-join.1": options_of_help(command, "join", "--help"),
            "remote-gpu-verify-limits.1": options_of_help(command, "verify-limits", "--help"),
            "remote-gpu-compare.1": options_of_help(command, "compare", "--help"),
            "remote-gpu.1": questions,
            "remote-gpu-pool.1": set().union(*(options_of_help(command, name, "--help") for name in ("request", "release"))),
            "remote-gpu-usage.1": set().union(*(options_of_help(*words, "--help") for words in (
                (command, "usage"), (command, "quota"), (server, "usage")))),
            "remote-gpu-kube.8": set().union(*(options_of_help(os.path.join(BIN, "remote-gpu-kube-" + name), "--help")
                                               for name in ("controller", "node"))),
            "remote-gpu-kube-plugin.8": options_of_help(os.path.join(BIN, "remote-gpu-kube-plugin"), "--help"),
            **({"slurm-lease.8": options_of_help(SLURM_LEASE, "--help")} if os.path.exists(SLURM_LEASE) else {}),
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

    def test_synopsis(self):
        command = os.path.join(BIN, "remote-gpu")
        programs = {"remote-gpud.8": [os.path.join(BIN, "remote-gpud"), "--help"]}
        programs.update({"remote-gpu-%s.1" % name: [command, name, "--help"]
                         for name in ("run", "join", "netperf", "doctor", "predict", "compare", "verify-limits", "cdi")})
        for manual, words in programs.items():
            letters, shown = letters_of_help(*words), synopsis_of_manual(manual)
            for option in options_of_help(*words) - {"help", "version", "foreground"}:
                with self.subTest(manual, option=option):
                    self.assertTrue({"-" + option, letters.get(option)} & shown)

    def keys_of_program(self, options, *words, **changes):
        """Those of the options that a configuration file may have."""
        keys = set()
        for option in options:
            with tempfile.TemporaryDirectory() as home:
                os.mkdir(os.path.join(home, "remote-gpu"))
                path = os.path.join(home, "remote-gpu", "config")
                with open(path, "w") as file:
                    file.write("%s = 1\nnonsense = 1\n" % option)
                result = subprocess.run([word.replace("FILE", path) for word in words], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env={**os.environ, "XDG_CONFIG_HOME": home})
                self.assertEqual(result.returncode, 125)
                if not re.search(r"config:1: unknown option", result.stderr):
                    keys.add(option)
        return keys

    def test_keys(self):
        command, server = os.path.join(BIN, "remote-gpu"), os.path.join(BIN, "remote-gpud")
        options = set().union(*(options_of_help(command, name, "--help") for name in (
            "run", "join", "list", "netperf", "doctor", "compare", "predict", "verify-limits")))
        self.assertEqual(keys_of_manual("command"), self.keys_of_program(options, command, "version"))
        options = options_of_help(server, "--help")
        self.assertEqual(keys_of_manual("server"), self.keys_of_program(options, server, "--config", "FILE"))

    def test_variables_are_described(self):
        described = ""
        for path in [os.path.join(MANUALS, name) for name in os.listdir(MANUALS)] + [
                os.path.join(SOURCE, "docs", "software-device.md")]:
            with open(path) as file:
                described += file.read()
        found = variables_of_sources()
        self.assertGreater(len(found), 20)
        # what processes of ours tell each other, and tests
        for variable in set(found) - {"REMOTE_GPU_LIBDIR", "SOFTGPU_WINDOW"}:
            with self.subTest(variable):
                self.assertRegex(described, r"\b%s\b" % variable)

    def test_links(self):
        """What the documents refer to is there."""
        documents = [name for name in os.listdir(SOURCE) if name.endswith(".md")]
        documents += [os.path.join("docs", name) for name in os.listdir(os.path.join(SOURCE, "docs"))
                      if name.endswith(".md")] + ["bench/README.md", "proto/api/README.md"]
        for document in documents:
            with open(os.path.join(SOURCE, document)) as file:
                text = file.read()
            for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
                with self.subTest(document, target=target):
                    self.assertTrue(os.path.exists(os.path.join(SOURCE, os.path.dirname(document), target)))

    def test_members_are_described(self):
        members = members_of_sources()
        self.assertGreater(len(members), 40)
        self.assertEqual(members - members_of_manuals(), set())

    def test_libraries_believe_no_environment_of_another_user(self):
        """In a set-user-ID program, variables are the caller's; libraries that it may load read none that could give it anything."""
        harmless = 'getenv("SOFTGPU_GUARD")'  # confines kernels
        for layer in ("common", "proto", "transport", "interpose", "client", "softgpu"):
            for folder, _, names in os.walk(os.path.join(SOURCE, layer)):
                if os.path.relpath(folder, SOURCE).startswith("client/cli"):
                    continue
                for name in names:
                    path = os.path.relpath(os.path.join(folder, name), SOURCE)
                    if name.endswith((".c", ".h")) and path != "common/base/options.c":
                        with open(os.path.join(SOURCE, path)) as file:
                            self.assertIsNone(re.search(r"(?<![\w])getenv\(", file.read().replace(harmless, "")), path)

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
