"""Emits the worker's side: for each operation a function that decodes, checks, calls the driver (or the hand-written
rg_execute_NAME) and encodes the outputs; the table of operations; the table of the driver's functions."""
import re

from .text import HEAD, write


def server_type(p):
    """The C type under which a hand-written rg_execute_ function gets the parameter."""
    if p.role in ("new", "found"):
        return "uint64_t"
    if p.role == "string":
        return "const char *"
    if p.role in ("bytes",):
        return "const void *"
    return p.type if p.type.endswith("*") else p.type


def execute_declaration(operation):
    parameters = ["struct rg_request *request"]
    for p in operation.parameters:
        c_type = server_type(p)
        parameters.append(c_type + ("" if c_type.endswith("*") else " ") + p.name)
    return f"CUresult rg_execute_{operation.name}({', '.join(parameters)})"


def element(p):
    return p.pointee


def decode(p):
    r = "&request->in"
    if p.role == "value":
        if p.wire == "f32":
            return [f"{p.type} {p.name} = rg_get_f32({r});"]
        return [f"{p.type} {p.name} = ({p.type})rg_get_{p.wire}({r});"]
    if p.role in ("handle", "del"):
        lines = []
        if p.role == "del":
            lines.append(f"const uint64_t id_{p.name} = rg_get_u64({r});")
            source = f"id_{p.name}"
        else:
            source = f"rg_get_u64({r})"
        if p.kind == "STREAM":
            return lines + [f"{p.type} {p.name} = rg_request_stream(request, {source});"]
        return lines + [f"{p.type} {p.name} = ({p.type})rg_request_object(request, RG_KIND_{p.kind}, {source});"]
    if p.role == "number":
        return [f"{p.type} {p.name} = ({p.type})(uintptr_t)rg_get_u64({r});"]
    if p.role in ("new", "found"):
        return [f"const uint64_t {p.name} = rg_get_u64({r});"]
    if p.role == "in":
        lines = [f"{element(p)} value_{p.name};", f"{element(p)} *{p.name} = &value_{p.name};"]
        if p.optional:
            return lines + [f"if (rg_get_u32({r}))", f"    rg_get_into({r}, {p.name}, sizeof *{p.name});", "else",
                            f"    {p.name} = NULL;"]
        return lines + [f"rg_get_into({r}, {p.name}, sizeof *{p.name});"]
    if p.role == "string":
        return [f"const char *{p.name} = rg_request_string_in(request);"]
    if p.role == "in-array":
        return [f"{element(p)} *{p.name} = rg_request_array_in(request, (uint64_t)({p.count}), sizeof(*{p.name}));"]
    if p.role == "bytes":
        return [f"const void *{p.name} = rg_request_bytes_in(request, (uint64_t)({p.count}));"]
    if p.role == "out":
        return [f"{element(p)} value_{p.name};", f"{element(p)} *{p.name} = &value_{p.name};",
                f"memset({p.name}, 0, sizeof *{p.name});"]
    if p.role == "out-array":
        return [f"{element(p)} *{p.name} = rg_request_array_out(request, (uint64_t)({p.count}), sizeof(*{p.name}));"]
    if p.role == "outbytes":
        return [f"void *{p.name} = rg_request_array_out(request, (uint64_t)({p.count}), 1);"]
    if p.role == "zero":
        return [f"{p.type} {p.name} = 0;"]
    raise AssertionError(p.role)


def encode(p):
    if p.role == "out":
        return [f"rg_request_output(request, {p.name}, sizeof *{p.name});"]
    if p.role == "out-array":
        return [f"rg_request_output(request, {p.name}, (size_t)({p.count}) * sizeof *{p.name});"]
    if p.role == "outbytes":
        return [f"rg_request_output(request, {p.name}, (size_t)({p.count}));"]
    return []


def translate(p):
    """The worker's function for the type makes of what the client sent what the driver may see. The count is no number that
    the client says: the array has as many elements, or the record is malformed."""
    there = f" && {p.name}" if p.optional else ""
    count = f"(size_t)({p.count})" if p.role == "in-array" else "1"
    return [f"if (rg_request_decoded(request){there})", f"    request->result = {p.translation}(request, {p.name}, {count});"]


def lets_pass(operation):
    """Whether others' records go on while it waits for the device: what it makes would be entered too late."""
    return "blocks" in operation.flags and not any(p.role in ("new", "found") for p in operation.parameters)


def deletes(operation):
    """Lines that drop the handles that the call destroys."""
    return [f"rg_request_delete(request, RG_KIND_{p.kind}, id_{p.name});" for p in operation.parameters if p.role == "del"]


def ends_anyway(operation):
    """Whether a handle has ended for the client whatever comes of the call, so that its place may be another's next."""
    return operation.cls == "async" and deletes(operation)


def driver_call(operation):
    """Lines that call the driver's function of the same name and register or drop handles."""
    lines, before, after, arguments = [], [], [], []
    for p in operation.parameters:
        if p.role in ("new", "found"):
            lines.append(f"    {p.pointee} made_{p.name} = NULL;")
            arguments.append(f"&made_{p.name}")
            if p.role == "new":
                after.append(f"rg_request_new(request, RG_KIND_{p.kind}, {p.name}, made_{p.name});")
            else:
                after.append(f"rg_request_found(request, RG_KIND_{p.kind}, {p.name}, made_{p.name});")
        else:
            arguments.append(p.name)
    (before if lets_pass(operation) else after).extend(deletes(operation)) # before others' records can pass
    if lets_pass(operation):
        before.append(f"rg_request_may_block(request, {'true' if operation.needs_context else 'false'});")
    lines += ["    " + line for line in before]
    lines.append(f"    request->result = rg_driver.{operation.name}({', '.join(arguments)});")
    return lines, after


def execute(operation):
    lines = [f"static void execute_{operation.name}(struct rg_request *request)", "{"]
    for p in operation.wire_order:
        lines += ["    " + line for line in decode(p)]
    for p in operation.parameters:
        if p.translation:
            lines += ["    " + line for line in translate(p)]
    enter = f"    if (!rg_request_enter(request, {'true' if operation.needs_context else 'false'}))"
    if ends_anyway(operation):
        lines += [enter + " {"] + ["        " + line for line in deletes(operation)] + ["        return;", "    }"]
    else:
        lines += [enter, "        return;"]
    for address, pitch, width, height in operation.device_ranges:
        width = re.sub(r"^(\w+)\*(\w+)$", r"rg_request_bytes_of(\1, \2)", width)
        lines += [f"    if (!rg_request_device_memory(request, (uint64_t){address}, {pitch}, {width}, {height}))", "        return;"]
    if operation.server_custom:
        arguments = ", ".join(["request"] + [p.name for p in operation.parameters])
        lines.append(f"    request->result = rg_execute_{operation.name}({arguments});")
        after = deletes(operation)
    else:
        call, after = driver_call(operation)
        lines += call
    if ends_anyway(operation):
        lines += ["    " + line for line in after]
        after = []
    after += [line for p in operation.parameters for line in encode(p)]
    if after:
        lines.append("    if (request->result == CUDA_SUCCESS) {")
        lines += ["        " + line for line in after]
        lines.append("    }")
    lines += ["}", ""]
    return lines


def addresses(specification, out):
    """For tests: each operation that names device memory, with the parameters of its record. The first address is the one
    under test."""
    lines = [HEAD, "#ifndef RG_GENERATED_SERVER_DEVICE_ADDRESSES_H", "#define RG_GENERATED_SERVER_DEVICE_ADDRESSES_H",
             '#include "generated/proto/ops.h"', "", "/* By operation: its parameters as they travel: '4' and '8' numbers of so many bytes, 'n' and 'N' the same that count",
             " * bytes or rows of the range, 'P' from one row to the next, 'A' an address, 'b' bytes that are counted. A line for each address: `tested`, among the 'A'. */",
             "static const struct {", "    enum rg_op op;", "    const char *record;", "    int tested;", "} device_addresses[] = {"]
    for operation in specification.wire_operations:
        ranges = operation.device_ranges
        counts = {word for area in ranges for part in area[1:] for word in re.findall(r"\w+", part)}
        pitches = {area[1] for area in ranges if len(area) == 4}
        record, order = "", []
        for p in operation.wire_order:
            if p.name in [area[0] for area in ranges]:
                order.append(p.name)
                record += "A"
            elif p.role in ("bytes", "in-array"):
                record += "b"
            elif p.role == "in":
                record += f"<{p.pointee}>"
            elif p.role == "value":
                wide = p.wire == "u64"
                record += "P" if p.name in pitches else ("N" if wide else "n") if p.name in counts else "8" if wide else "4"
            elif p.role in ("handle", "del", "number", "new", "found"):
                record += "8"
        if "<" not in record:
            lines += [f'    {{RG_OP_{operation.name}, "{record}", {order.index(area[0])}}},' for area in ranges]
    write(f"{out}/server/device_addresses.h", "\n".join(lines + ["};", "", "#endif", ""]))


def emit(specification, out):
    addresses(specification, out)
    for group in specification.groups:
        lines = [HEAD, '#include "generated/server/execute.h"', "", "#include <string.h>", ""]
        for operation in group.operations:
            if operation.on_wire:
                lines += execute(operation)
        lines.append(f"void rg_register_{group.name}(rg_operation **table)")
        lines.append("{")
        lines.append("    (void)table;")
        for operation in group.operations:
            if operation.on_wire:
                lines.append(f"    table[RG_OP_{operation.name}] = execute_{operation.name};")
        lines += ["}", ""]
        write(f"{out}/server/{group.name}.c", "\n".join(lines))

    header = [HEAD, "#ifndef RG_GENERATED_SERVER_EXECUTE_H", "#define RG_GENERATED_SERVER_EXECUTE_H",
              '#include "generated/proto/ops.h"', '#include "generated/server/driver.h"', '#include "server/core/request.h"', "",
              "/* Hand-written operations. Called with decoded, checked parameters in the client thread's context; a handle to be",
              " * created comes as the client's id (register it with rg_request_new or rg_request_found). Outputs are encoded by",
              " * the caller if CUDA_SUCCESS is returned; for raw replies the function itself calls rg_request_output. */"]
    header += [execute_declaration(operation) + ";" for operation in specification.wire_operations if operation.server_custom]
    translated = {p.translation: p.pointee for operation in specification.wire_operations for p in operation.parameters
                  if p.translation}
    header += ["", "/* Hand-written translations of what clients send: in each of the `n` values, handles become the driver's objects,",
               " * addresses of the client's process vanish, and what is not known to be good makes the result an error. Called",
               " * before the driver or rg_execute_NAME gets the values. */"]
    header += [f"CUresult {name}(struct rg_request *request, {c_type} *values, size_t n);" for name, c_type in sorted(translated.items())]
    header += ["", "/* Fill the table, indexed by operation number. */"]
    header += [f"void rg_register_{group.name}(rg_operation **table);" for group in specification.groups]
    header += ["static inline void rg_register_all(rg_operation **table)", "{"]
    header += [f"    rg_register_{group.name}(table);" for group in specification.groups]
    header += ["}", "", "#endif", ""]
    write(f"{out}/server/execute.h", "\n".join(header))

    driver = [HEAD, "/* The functions of the driver that the worker has loaded. One that it does not have says CUDA_ERROR_NOT_SUPPORTED, so",
              " * that nobody needs to look; who must decide what to do without asks rg_driver_has. */",
              "#ifndef RG_GENERATED_SERVER_DRIVER_H", "#define RG_GENERATED_SERVER_DRIVER_H", '#include <cuda.h>',
              '#include <cudaProfiler.h>', "", "struct rg_driver_table {"]
    refused = {operation.name for operation in specification.operations
               if operation.cls == "refused" and "worker" not in operation.flags}
    usable = [symbol for symbol in specification.base_symbols() if symbol.name not in refused]
    driver += [f"    {symbol.result} (*{symbol.name})({symbol.declaration});" for symbol in usable]
    driver += ["};", "extern struct rg_driver_table rg_driver;",
               "extern const struct rg_driver_table rg_driver_absent; /* those that stand in */",
               "#define rg_driver_has(name) (rg_driver.name != rg_driver_absent.name)",
               "/** Fills rg_driver by dlsym from `library`; returns how many functions were found. */",
               "unsigned rg_driver_resolve(void *library);", "", "#endif", ""]
    write(f"{out}/server/driver.h", "\n".join(driver))
    source = [HEAD, '#include "generated/server/driver.h"', "", "#include <dlfcn.h>", "#include <stddef.h>", "",
              '#pragma GCC diagnostic ignored "-Wunused-parameter"', ""]
    for symbol in usable:
        source += [f"static {symbol.result} absent_{symbol.name}({symbol.declaration})", "{",
                   "    return CUDA_ERROR_NOT_SUPPORTED;", "}", ""]
    table = [f"    .{symbol.name} = absent_{symbol.name}," for symbol in usable]
    source += ["const struct rg_driver_table rg_driver_absent = {"] + table + ["};",
               "struct rg_driver_table rg_driver = {"] + table + ["};", "",
              "static const struct {", "    const char *name;", "    size_t offset;", "} functions[] = {"]
    source += [f'    {{"{symbol.name}", offsetof(struct rg_driver_table, {symbol.name})}},' for symbol in usable]
    source += ["};", "", "unsigned rg_driver_resolve(void *library)", "{", "    unsigned found = 0;",
               "    rg_driver = rg_driver_absent;",
               "    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {",
               "        void *address = dlsym(library, functions[i].name);",
               "        if (address)",
               "            *(void **)((char *)&rg_driver + functions[i].offset) = address;",
               "        found += address != NULL;", "    }", "    return found;", "}", ""]
    write(f"{out}/server/driver.c", "\n".join(source))
