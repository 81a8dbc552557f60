#!/usr/bin/env python3
"""Writes what the fuzzer of the worker knows of the API: its operations as data, and a driver that looks at what it is given.

usage: operations.py --spec FOLDER --out FOLDER

  operations.c   a row for each operation of the wire: its parameters as they travel, so that records can be made that decode
  driver.c       a function for each of the driver's: reads all memory that it is given to read, so that a sanitizer sees
                 what is not there, writes what it is given to write, and makes objects
"""
import argparse
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "proto"))
from generate import reader  # noqa: E402

HEAD = "/* Made by tests/fuzz/operations.py from proto/api. */"
SCALARS = {"int", "unsigned int", "unsigned", "size_t", "unsigned long long", "cuuint64_t", "cuuint32_t", "float", "CUdeviceptr",
           "CUdeviceptr_v2", "unsigned char", "CUdevice", "CUtexObject", "CUsurfObject"}


def fields(operation):
    """C initialisers of the operation's parameters, in the order in which they travel."""
    order = [p for p in operation.wire_order if not (p.role.startswith("out") or p.role == "zero")]
    names = [p.name for p in order]
    rows = []
    for p in order:
        if p.role == "value":
            rows.append({"u32": "{'4', 0, 0, 0}", "u64": "{'8', 0, 0, 0}", "f32": "{'4', 0, 0, 0}"}[p.wire])
        elif p.role in ("handle", "del"):
            rows.append(f"{{'h', RG_KIND_{p.kind}, 0, 0}}")
        elif p.role in ("new", "found"):
            rows.append(f"{{'n', RG_KIND_{p.kind}, 0, 0}}")
        elif p.role == "number":
            rows.append("{'8', 0, 0, 0}")
        elif p.role == "in":
            rows.append(f"{{'{'o' if p.optional else 'i'}', sizeof({p.pointee}), 0, 0}}")
        elif p.role == "string":
            rows.append("{'s', 0, 0, 0}")
        elif p.role in ("in-array", "bytes"):
            size = "1" if p.role == "bytes" else f"sizeof({p.pointee})"
            counted = p.count in names
            rows.append(f"{{'a', {size}, {names.index(p.count) if counted else -1}, {0 if counted else p.count}}}")
        else:
            raise AssertionError(p.role)
    return rows


def emit_operations(specification, out):
    lines = [HEAD, '#include "tests/fuzz/operations.h"', "", '#include "generated/proto/ops.h"', '#include "proto/kinds.h"',
             '#include "generated/server/execute.h"', ""]
    rows = []
    for operation in specification.wire_operations:
        entries = fields(operation)
        if entries:
            lines.append(f"static const struct fuzz_field {operation.name}_fields[] = {{{', '.join(entries)}}};")
        rows.append(f'    {{"{operation.name}", RG_OP_{operation.name}, {len(entries)}, '
                    f'{operation.name + "_fields" if entries else "NULL"}}},')
    lines += ["", "const struct fuzz_operation fuzz_operations[] = {"] + rows + ["};",
              f"const unsigned fuzz_n_operations = {len(rows)};", ""]
    write(out, "operations.c", lines)


def look_at(symbol, parameter, note):
    """Lines of a driver's function for one parameter."""
    name, c_type = parameter.name, parameter.type
    if "*" not in c_type:
        return []
    const = c_type.startswith("const ")
    if note and note.role in ("in-array", "bytes"):
        size = "1" if note.role == "bytes" else f"sizeof(*{name})"
        return [f"fuzz_read({name}, (size_t)({note.count}) * {size});"]
    if note and note.role == "in":
        return [f"fuzz_read({name}, sizeof(*{name}));"]
    if note and note.role == "string":
        return [f"fuzz_read_text({name});"]
    if note and note.role == "out-array":
        return [f"fuzz_write({name}, (size_t)({note.count}) * sizeof(*{name}));"]
    if note and note.role == "outbytes":
        return [f"fuzz_write({name}, (size_t)({note.count}));"]
    if note and note.role in ("out",):
        return [f"fuzz_write({name}, sizeof(*{name}));"]
    if note and note.role in ("value", "number", "zero"):
        return []
    pointee = re.sub(r"\bconst\b", "", c_type.rsplit("*", 1)[0]).strip()
    if const and pointee == "char":
        return [f"fuzz_read_text({name});"]
    if const and pointee != "void":
        return [f"fuzz_read({name}, sizeof(*{name}));"]
    if not const and parameter.handle and "*" in c_type and "**" not in c_type:
        return [f"if ({name})", f"    *{name} = ({pointee})fuzz_object();"]
    if not const and pointee in SCALARS:
        return [f"if ({name})", f"    *{name} = ({pointee})1;"]
    return []


def emit_driver(specification, out):
    notes = {operation.name: {p.name: p for p in operation.parameters} for operation in specification.operations}
    refused = {operation.name for operation in specification.operations
               if operation.cls == "refused" and "worker" not in operation.flags}
    lines = [HEAD, '#include "tests/fuzz/driver.h"', '#include "tests/server/stub_driver.h"', ""]
    usable = [symbol for symbol in specification.base_symbols() if symbol.name not in refused]
    for symbol in usable:
        if symbol.result != "CUresult":
            continue
        by_name = notes.get(symbol.name, {})
        lines += [f"static CUresult look_{symbol.name}({symbol.declaration})", "{"]
        used = [p for p in symbol.parameters]
        lines += [f"    (void){p.name};" for p in used]
        lines += ["    if (fuzz_refuses())", "        return CUDA_ERROR_NOT_SUPPORTED;"]
        for p in used:
            lines += ["    " + line for line in look_at(symbol, p, by_name.get(p.name))]
        lines += ["    return CUDA_SUCCESS;", "}", ""]
    lines += ["void fuzz_driver_fill(void)", "{"]
    for symbol in usable:
        if symbol.result == "CUresult":
            lines += [f"    if ((void (*)(void))rg_driver.{symbol.name} == (void (*)(void))stub_succeed)",
                      f"        rg_driver.{symbol.name} = look_{symbol.name};"]
    lines += ["}", ""]
    write(out, "driver.c", lines)


def write(out, name, lines):
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, name), "w") as file:
        file.write("\n".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--spec", required=True)
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    specification = reader.read(arguments.spec)
    emit_operations(specification, arguments.out)
    emit_driver(specification, arguments.out)


if __name__ == "__main__":
    main()
