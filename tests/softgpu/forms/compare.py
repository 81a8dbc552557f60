#!/usr/bin/env python3
"""Compares which instructions ptxas takes with those that the software device's compiler takes.

compare.py PTXAS COMPILE_FORMS [-v] [PATTERN]

forms.txt has instructions in all their forms. Each that ptxas takes for the newest architecture the device's compiler must
take and make code of; where it does not, the form must stand in forms.txt as refused, and then it must be refused indeed. What
the compiler takes beyond ptxas is no error: it is told with -v.
"""

import itertools
import os
import re
import subprocess
import sys
import tempfile

TARGET, CAPABILITY = "sm_120a", "120"
OF_MODULE = ".global .align 128 .b8 gm[4096]; .const .align 16 .b8 cm[256]; .shared .align 128 .b8 sm[1024];"
OF_KERNEL = (".reg .b8 %b<8>; .reg .b16 %h<16>; .reg .b32 %r<32>; .reg .f32 %f<32>; .reg .b64 %d<32>; "
             ".reg .f64 %e<32>; .reg .b128 %q<4>; .reg .pred %p<8>;")
BATCH = 3000


def split(text):
    """The parts of a form: strings, and lists of alternatives."""
    parts, at = [], 0
    while at < len(text):
        if text[at] != "{":
            end = text.find("{", at)
            end = len(text) if end < 0 else end
            parts.append([text[at:end]])
            at = end
            continue
        depth, begin, choices, end = 0, at + 1, [], at
        while True:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            if (text[end] == "|" and depth == 1) or depth == 0:
                choices.append(text[begin:end])
                begin = end + 1
            if depth == 0:
                break
            end += 1
        if len(choices) == 1:
            choices = ["{" + choices[0] + "}"]  # a vector of registers
        parts.append(choices)
        at = end + 1
    return parts


def expand(text):
    for choice in itertools.product(*split(text)):
        yield re.sub(r"\s+", " ", "".join(choice)).replace("&", "|")


def forms(pattern):
    """(instruction, whether it is refused) for all of forms.txt."""
    seen = {}
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "forms.txt")
    with open(path, encoding="utf-8") as file:
        for line in file:
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            refused = line.startswith("refused:")
            for text in expand(line[8:].strip() if refused else line):
                if pattern is None or re.search(pattern, text):
                    seen[text] = seen.get(text, False) or refused
    return list(seen.items())


def taken_by_ptxas(ptxas, texts):
    """The texts out of the list that ptxas takes."""
    taken = set()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "forms.ptx")
        for first in range(0, len(texts), BATCH):
            part = texts[first:first + BATCH]
            while part:
                lines = [".version 9.0", ".target " + TARGET, ".address_size 64", OF_MODULE]
                where = {}
                for i, text in enumerate(part):
                    lines += [".visible .entry k%d(.param .u64 p) { %s" % (i, OF_KERNEL), text, "ret; }"]
                    where[len(lines) - 1] = text
                # it stops at an error; what would be left to do is of no interest
                lines.append(".visible .entry last() { nonsense; ret; }")
                with open(path, "w", encoding="utf-8") as file:
                    file.write("\n".join(lines) + "\n")
                run = subprocess.run([ptxas, "-arch=" + TARGET, path, "-o", os.devnull], stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, universal_newlines=True, check=False)
                bad = {int(n) for n in re.findall(r"line (\d+);[ ]*(?:error|fatal)", run.stdout)}
                if not bad:
                    sys.exit("ptxas says nothing that is understood:\n" + run.stdout[:2000])
                fatal = re.search(r"line (\d+);[ ]*fatal", run.stdout)
                if fatal and int(fatal.group(1)) in where:
                    # a text that is no instruction at all ends its work: without it, once more
                    part = [text for text in part if text != where[int(fatal.group(1))]]
                    continue
                taken.update(text for line, text in where.items() if line not in bad)
                break
    return taken


def main():
    arguments = [word for word in sys.argv[1:] if word != "-v"]
    ptxas, compiler = arguments[:2]
    known = forms(arguments[2] if len(arguments) > 2 else None)
    texts = [text for text, _ in known]
    taken = taken_by_ptxas(ptxas, texts)
    run = subprocess.run([compiler, TARGET, CAPABILITY, OF_MODULE, OF_KERNEL], input="\n".join(texts) + "\n",
                         stdout=subprocess.PIPE, universal_newlines=True, check=False)
    ours = run.stdout.split("\n")
    if run.returncode != 0 or len(ours) < len(texts):
        sys.exit("%s ends with %d after %d of %d forms" % (compiler, run.returncode, len(ours), len(texts)))
    missing, known_after_all, beyond, refused_count = [], [], 0, 0
    for (text, refused), answer in zip(known, ours):
        good = answer == "ok"
        if text in taken and not refused and not good:
            missing.append("%s\n    %s" % (text, answer))
        elif text in taken and refused and good:
            known_after_all.append(text)
        elif text in taken and refused:
            refused_count += 1
        elif good and text not in taken:
            beyond += 1
            if "-v" in sys.argv:
                print("beyond ptxas: " + text)
    print("%d forms: ptxas takes %d, of which the software device refuses %d as it says; it takes %d that ptxas does not"
          % (len(known), len(taken), refused_count, beyond))
    for text in missing:
        print("not taken: " + text)
    for text in known_after_all:
        print("said to be refused, and taken: " + text)
    return 1 if missing or known_after_all or not taken else 0


sys.exit(main())
