"""Emits what both sides share: operation numbers and names, the API's symbols, the look-up table of cuGetProcAddress;
the exports of the stand-in library; the defaults of the software device."""
from .client import per_thread_call
from .text import HEAD, wrap, write


def operations(specification, out):
    wire = specification.wire_operations
    header = [HEAD, "#ifndef RG_GENERATED_PROTO_OPS_H", "#define RG_GENERATED_PROTO_OPS_H", "",
              "/* Operations of the wire. Numbers are this build's; peers of other builds agree by name at hello. */",
              "enum rg_op {", "    RG_OP_NONE = 0,"]
    header += [f"    RG_OP_{operation.name} = {operation.number}," for operation in wire]
    header += [f"    RG_OP_COUNT = {len(wire) + 1}", "};", "",
               "/** Names by number, RG_OP_COUNT of them. */", "extern const char *const rg_op_names[RG_OP_COUNT];",
               "/** SHA-256 over all operations and their parameters: equal digests mean equal numbers and layouts. */",
               "extern const unsigned char rg_api_digest[32];", "",
               "/* What operations are and do: proto/api/traits.txt. */", "enum rg_op_trait {"]
    header += [f"    RG_TRAIT_{trait.name.upper()} = 1 << {trait.bit}, /* {trait.meaning} */" for trait in specification.traits]
    header += ["};", "", "/** Traits by number of operation. */", "extern const unsigned rg_op_traits[RG_OP_COUNT];",
               "/** The operation of that name, or RG_OP_NONE, which has no traits. */", "enum rg_op rg_op_by_name(const char *name);",
               "", "#endif", ""]
    write(f"{out}/proto/ops.h", "\n".join(header))
    digest = [f"0x{specification.digest[i:i + 2]}" for i in range(0, 64, 2)]
    source = [HEAD, '#include "generated/proto/ops.h"', "", "#include <string.h>", "", "const char *const rg_op_names[RG_OP_COUNT] = {", '    "none",']
    source += [f'    "{operation.name}",' for operation in wire]
    source += ["};", "", "const unsigned rg_op_traits[RG_OP_COUNT] = {"]
    for operation in wire:
        words = [f"RG_TRAIT_{trait.name.upper()}" for trait in specification.traits if trait.name in operation.traits]
        source.append(f"    [RG_OP_{operation.name}] = {' | '.join(words) or '0'},")
    source += ["};", "", "enum rg_op rg_op_by_name(const char *name)", "{", "    enum rg_op op = RG_OP_COUNT - 1;",
               "    while (op > RG_OP_NONE && strcmp(rg_op_names[op], name) != 0)", "        op--;", "    return op;", "}", "",
               "const unsigned char rg_api_digest[32] = {", "    " + wrap(digest, "    "), "};", ""]
    write(f"{out}/proto/ops.c", "\n".join(source))


def look_up(specification, out):
    symbols = list(specification.symbols.values())
    header = [HEAD, "#ifndef RG_GENERATED_PROTO_API_TABLE_H", "#define RG_GENERATED_PROTO_API_TABLE_H", "",
              f"#define RG_API_VERSION {specification.version} /* CUDA version of the imported API */",
              f"#define RG_API_COUNT {len(symbols)}", "", "/* Index of each exported function in tables of the API. */", "enum rg_api {"]
    header += [f"    RG_API_{symbol.name}," for symbol in symbols]
    header += ["};", "", "/** Exported names by index, which is their order in C. */", "extern const char *const rg_api_names[RG_API_COUNT];",
               "/** CUDA version that introduced each, by index. */", "extern const int rg_api_since[RG_API_COUNT];", "", "#endif", ""]
    write(f"{out}/proto/api_table.h", "\n".join(header))
    order = sorted(symbols, key=lambda s: (s.look_up, s.stream != "legacy", s.since))
    source = [HEAD, '#include "generated/proto/api_table.h"', '#include "proto/api/proc_address.h"', "",
              "const char *const rg_api_names[RG_API_COUNT] = {"]
    source += [f'    "{symbol.name}",' for symbol in symbols]
    source += ["};", "", "const int rg_api_since[RG_API_COUNT] = {"]
    source += [f"    {symbol.since}," for symbol in symbols]
    source += ["};", "", "/* By name, then stream, then version. */", "const struct rg_proc_entry rg_proc_entries[RG_API_COUNT] = {"]
    source += [f'    {{"{symbol.look_up}", {symbol.since}, {"false" if symbol.stream == "legacy" else "true"}, '
               f"RG_API_{symbol.name}}}," for symbol in order]
    source += ["};", ""]
    write(f"{out}/proto/api_table.c", "\n".join(source))


def contexts(specification, out):
    """What calls need of the current context, for tests."""
    lines = [HEAD, "#ifndef RG_GENERATED_PROTO_CONTEXTS_H", "#define RG_GENERATED_PROTO_CONTEXTS_H", "",
             "/* By function: what it needs of the calling thread's current context. */", "static const struct {",
             "    const char *name;", "    enum { NEEDS_CURRENT, NEEDS_NONE, NEEDS_BROUGHT } need;", "} rg_contexts_needed[] = {"]
    for operation in specification.operations:
        if operation.is_call and operation.cls not in ("refused", "unsupported"):
            need = "BROUGHT" if operation.brings else "CURRENT" if operation.needs_context else "NONE"
            lines.append(f'    {{"{operation.name}", NEEDS_{need}}},')
    write(f"{out}/proto/contexts.h", "\n".join(lines + ["};", "", "#endif", ""]))


def prototypes(specification, out):
    """Declarations of all functions: cuda.h has no such thing as those of the graphics headers."""
    lines = [HEAD, "#ifndef RG_GENERATED_PROTO_PROTOTYPES_H", "#define RG_GENERATED_PROTO_PROTOTYPES_H", "",
             '#include "proto/api/interop_types.h"', ""]
    lines += [f"{symbol.result} {symbol.name}({symbol.declaration});" for symbol in specification.symbols.values()]
    lines += ["", "#endif", ""]
    write(f"{out}/proto/prototypes.h", "\n".join(lines))


def export_map(specification, path):
    lines = ["{", "  global:"] + [f"    {name};" for name in specification.symbols] + ["  local: *;", "};", ""]
    write(path, "\n".join(lines))


def interpose(specification, out):
    export_map(specification, f"{out}/interpose/exports.map")
    lines = [HEAD, "/* The exported functions: each jumps through the client core's table (interpose/load.c). */",
             '#include "generated/proto/prototypes.h"', '#include "interpose/load.h"', ""]
    for symbol in specification.symbols.values():
        types = ", ".join(p.type for p in symbol.parameters) or "void"
        lines += [f"RG_EXPORT {symbol.result} {symbol.name}({symbol.declaration})", "{",
                  f"    return ((({symbol.result} (*)({types}))rg_entry(RG_API_{symbol.name})))({symbol.arguments});", "}", ""]
    write(f"{out}/interpose/exports.c", "\n".join(lines))


def gates(specification, out):
    """Every exported function of the software device is a gate around the function itself, whose symbol is renamed inside."""
    free = {operation.name for operation in specification.operations if "anytime" in operation.flags}
    asked = {operation.name for operation in specification.operations if "asker" in operation.flags}
    lines = [HEAD, "/* Before anything that declares the API: inside the software device its functions are not what they are outside. */",
             "#ifndef RG_GENERATED_SOFTGPU_INSIDE_H", "#define RG_GENERATED_SOFTGPU_INSIDE_H", ""]
    lines += [f"#pragma redefine_extname {name} sg_{name}" for name in specification.symbols]
    write(f"{out}/softgpu/inside.h", "\n".join(lines + ["", "#endif", ""]))
    lines = [HEAD, "/* What applications call: held up while the process is locked (cuCheckpointProcessLock). */",
             '#include "common/cuda/api.h"', '#include "common/cuda/program/capability.h"', '#include "generated/proto/prototypes.h"',
             '#include "softgpu/driver/core/gate.h"', ""]
    for symbol in specification.symbols.values():
        lines += [f"{symbol.result} sg_{symbol.name}({symbol.declaration});",
                  f"__attribute__((visibility(\"default\"))) {symbol.result} {symbol.name}({symbol.declaration})", "{"]
        lines += [] if symbol.base in free else ["    SG_GATED;"]
        lines += ["    rg_capability_asker = __builtin_return_address(0);"] if symbol.base in asked else []
        lines += [f"    return sg_{symbol.name}({symbol.arguments});", "}", ""]
    write(f"{out}/softgpu/gates.c", "\n".join(lines))


def softgpu(specification, out):
    gates(specification, out)
    export_map(specification, f"{out}/softgpu/exports.map")
    names = {operation.name: operation for operation in specification.operations}
    lines = [HEAD, "/* What the software device does not have, or is another call: weak, so that a definition in softgpu/driver wins. */",
             '#include "softgpu/driver/driver.h"', '#include "generated/proto/prototypes.h"', ""]
    for symbol in specification.base_symbols():
        lines += [f"__attribute__((weak, visibility(\"default\"))) {symbol.result} {symbol.name}({symbol.declaration})", "{"]
        made_of = names[symbol.name].made_of if symbol.name in names else ""
        lines += [] if made_of else [f"    (void){p.name};" for p in symbol.parameters]
        lines += [f"    return {made_of};" if made_of else f'    return sg_unsupported("{symbol.name}");', "}", ""]
    write(f"{out}/softgpu/unsupported.c", "\n".join(lines))
    lines = [HEAD, '#include "softgpu/driver/driver.h"', '#include "generated/proto/prototypes.h"', ""]
    for symbol in specification.per_thread_symbols():
        lines += [f"__attribute__((visibility(\"default\"))) CUresult {symbol.name}({symbol.declaration})", "{"]
        lines += [line.replace("rg_per_thread_default_stream", "sg_per_thread_default_stream")
                  for line in per_thread_call(symbol)] + ["}", ""]
    write(f"{out}/softgpu/per_thread.c", "\n".join(lines))
    lines = [HEAD, '#include "generated/proto/api_table.h"', '#include "generated/proto/prototypes.h"', "",
             "extern void *const sg_api[RG_API_COUNT];", "void *const sg_api[RG_API_COUNT] = {"]
    lines += [f"    (void *){symbol.name}," for symbol in specification.symbols.values()]
    lines += ["};", ""]
    write(f"{out}/softgpu/table.c", "\n".join(lines))


def emit(specification, out):
    operations(specification, out)
    look_up(specification, out)
    contexts(specification, out)
    prototypes(specification, out)
    interpose(specification, out)
    softgpu(specification, out)
