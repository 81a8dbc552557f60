"""Generates what stands in for NCCL: prototypes, exported symbols, and the page about what is served.

usage: python3 proto/generate/nccl.py --spec proto/nccl/functions.txt [--out BUILD/generated] [--coverage FILE]
"""
import argparse
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from generate.text import write  # noqa: E402

HEAD = "/* Generated from proto/nccl by proto/generate/nccl.py: change the specification, not this file. */\n"
LINE = re.compile(r'(?P<returns>.+?[ *])(?P<name>nccl\w+)\((?P<parameters>.*)\) (?P<cls>\w+)(?: "(?P<why>[^"]*)")?$')
LATER = re.compile(r"later (?P<name>nccl\w+)$")
MEANING = {
    "local": "answered by the client",
    "group": "part of a record of the stream: of its own, or of that of the group that it stands in",
    "sync": "executed by the server while the caller waits",
    "refused": "returns `ncclInvalidUsage`, for the reason given",
}


class Function:
    """One line of the specification."""

    def __init__(self, match):
        self.returns = match["returns"].strip()
        self.name = match["name"]
        self.parameters = match["parameters"]
        self.cls = match["cls"]
        self.why = match["why"]

    @property
    def arguments(self):
        """The names of the parameters, as they are passed on."""
        if self.parameters == "void":
            return ""
        return ", ".join(re.search(r"\w+$", part)[0] for part in self.parameters.split(", "))

    def prototype(self, prefix=""):
        returns = self.returns if self.returns.endswith("*") else self.returns + " "
        return f"{returns}{prefix}{self.name}({self.parameters})"


def read(path):
    """The functions in the order of the file, which numbers them, and the names of later versions'."""
    functions, later = [], []
    with open(path) as file:
        for number, line in enumerate(file, 1):
            line = line.rstrip("\n")
            if not line or line.startswith("#"):
                continue
            match = LATER.match(line)
            if match:
                later.append(match["name"])
                continue
            match = LINE.match(line)
            if not match or match["cls"] not in MEANING or (match["cls"] == "refused") != bool(match["why"]):
                sys.exit(f"{path}:{number}: this says of no function how it is served: {line}")
            functions.append(Function(match))
    names = [function.name for function in functions] + later
    for name in names:
        if names.count(name) > 1:
            sys.exit(f"{path}: {name} has two lines")
    return functions, later


def header(functions):
    lines = [HEAD, "#ifndef RG_GENERATED_PROTO_NCCL_H", "#define RG_GENERATED_PROTO_NCCL_H", "",
             '#include "common/cuda/nccl.h"', "", "enum rg_nccl_function {"]
    lines += [f"    RG_NCCL_{function.name}," for function in functions]
    lines += ["    RG_NCCL_FUNCTION_COUNT", "};", ""]
    lines += [f"{function.prototype()};" for function in functions]
    lines += ["", "/* Why those are refused that are. */"]
    lines += [f'#define RG_NCCL_WHY_{function.name} "{function.why}"' for function in functions if function.why]
    lines += ["", "/** X(name) for each. */", "#define RG_NCCL_FUNCTIONS(X) \\"]
    rows = [f"    X({function.name})" for function in functions]
    lines.append(" \\\n".join(rows))
    return "\n".join(lines + ["", "#endif", ""])


def exports(functions, later, opening, target, refuse):
    """The symbols as a program sees them, each calling what `target` makes of the function, or `refuse` of later versions' names."""
    lines = [HEAD, opening, ""]
    for function in functions:
        call = f"{target(function)}({function.arguments});"
        call = call if function.returns == "void" else "return " + call
        for prefix in ("", "p"):
            prototype = f"RG_EXPORT {function.prototype(prefix)}"
            lines += [prototype + ";", prototype, "{", "    " + call, "}", ""]
    for name in later:
        for prefix in ("", "p"):
            prototype = f"RG_EXPORT ncclResult_t {prefix}{name}(void)"
            lines += [prototype + ";", prototype, "{", f'    return {refuse}("{name}");', "}", ""]
    return "\n".join(lines)


def emit(functions, later, out):
    write(os.path.join(out, "proto", "nccl.h"), header(functions))
    write(os.path.join(out, "interpose", "nccl_exports.c"), exports(
        functions, later, '#include "interpose/nccl.h"',
        lambda function: f"((__typeof__({function.name}) *)rg_nccl_entry(RG_NCCL_{function.name}))", "rg_nccl_later"))
    write(os.path.join(out, "softgpu", "nccl_exports.c"), exports(
        functions, later, '#include "softgpu/nccl/functions.h"', lambda function: "sg_" + function.name, "sg_nccl_later"))
    every = [function.name for function in functions] + later
    names = "".join(f"        {prefix}{name};\n" for name in every for prefix in ("", "p"))
    for folder, more in (("interpose", ""), ("softgpu", "        rg_nccl_extension;\n")):
        write(os.path.join(out, folder, "nccl.map"), "{\n    global:\n" + names + more + "    local:\n        *;\n};\n")


def page(functions, later, path):
    served = sum(function.cls != "refused" for function in functions)
    lines = ["# NCCL coverage", "",
             "Generated from [proto/nccl](../proto/nccl/functions.txt). NCCL 2.27, with `ncclAlltoAll`, `ncclGather` and `ncclScatter` of "
             f"2.28, has {len(functions)} functions; **{served} are served**. Each is also exported with a `p` in front of its name. "
             "[training.md](training.md) says how they work remotely.", "", "| class | meaning | functions |", "|---|---|---:|"]
    for cls, meaning in MEANING.items():
        lines.append(f"| {cls} | {meaning} | {sum(function.cls == cls for function in functions)} |")
    lines += ["", "| function | class |", "|---|---|"]
    for function in functions:
        why = f": {function.why}" if function.why else ""
        lines.append(f"| `{function.name}` | {function.cls}{why} |")
    lines += ["", "## Later versions", "", "Exported so that programs built for NCCL 2.28 to 2.32 load; each returns `ncclInvalidUsage`, "
              "and a line says so:", "", ", ".join(f"`{name}`" for name in later) + "."]
    write(path, "\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--spec", required=True, help="the list of functions")
    parser.add_argument("--out", help="folder for generated code")
    parser.add_argument("--coverage", help="file for the coverage page")
    arguments = parser.parse_args()
    functions, later = read(arguments.spec)
    if arguments.out:
        emit(functions, later, arguments.out)
    if arguments.coverage:
        page(functions, later, arguments.coverage)


if __name__ == "__main__":
    main()
