"""Emits the client's side: for each operation an encoder rg_op_NAME and, unless it is hand-written, the API function."""
from .model import WIDTH
from .text import HEAD, write


def size_of(operation):
    fixed, variable = 0, []
    for p in operation.parameters:
        if p.role in ("value",):
            fixed += WIDTH[p.wire]
        elif p.role in ("handle", "new", "found", "del", "number"):
            fixed += 8
        elif p.role == "in":
            fixed += 4 if p.optional else 0
            variable.append(f"({p.name} ? sizeof *{p.name} : 0)" if p.optional else f"sizeof *{p.name}")
        elif p.role == "string":
            variable.append(f"rg_size_of_string({p.name})")
        elif p.role == "in-array":
            fixed += 8
            variable.append(f"(size_t)({p.count}) * sizeof *{p.name}")
        elif p.role == "bytes":
            fixed += 8
            variable.append(f"(size_t)({p.count})")
    return " + ".join([str(fixed)] + variable)


def renumber(p, count):
    """Puts the server's number of the device into the structures that have just been written."""
    if p.pointee not in p.types.locations:
        return []
    member = p.types.locations[p.pointee]
    offset = f"offsetof({p.pointee}, {member})" if member else "0"
    return [f"rg_call_renumber_devices(&call, sizeof *{p.name}, {count}, {offset});"]


def encode(p):
    w = "&call.writer"
    if p.role == "value":
        if p.wire == "f32":
            return [f"rg_put_f32({w}, {p.name});"]
        if p.type == "CUdevice":
            return [f"rg_put_u32({w}, (uint32_t)rg_call_device(&call, {p.name}));"]
        return [f"rg_put_{p.wire}({w}, ({'uint32_t' if p.wire == 'u32' else 'uint64_t'}){p.name});"]
    if p.role in ("handle", "del", "number"):
        return [f"rg_put_u64({w}, (uint64_t){p.name});"]
    if p.role in ("new", "found"):
        return [f"rg_call_sets_home(&call, (uint64_t)*{p.name});", f"rg_put_u64({w}, (uint64_t)*{p.name});"]
    if p.role == "in":
        if p.optional:
            return [f"rg_put_u32({w}, {p.name} != NULL);", f"if ({p.name})",
                    f"    rg_put({w}, {p.name}, sizeof *{p.name});"]
        return [f"rg_put({w}, {p.name}, sizeof *{p.name});"] + renumber(p, "1")
    if p.role == "string":
        return [f"rg_put_string({w}, {p.name});"]
    if p.role == "in-array":
        return [f"rg_put_u64({w}, (uint64_t)({p.count}));",
                f"rg_put({w}, {p.name}, (size_t)({p.count}) * sizeof *{p.name});"] + renumber(p, f"(size_t)({p.count})")
    if p.role == "bytes":
        return [f"rg_put_u64({w}, (uint64_t)({p.count}));", f"rg_put({w}, {p.name}, (size_t)({p.count}));"]
    return []


def decode(p):
    r = "&call.reply"
    if p.role == "out":
        if p.optional:
            return [f"rg_call_output(&call, {p.name}, sizeof *{p.name});"]
        return [f"rg_get_into({r}, {p.name}, sizeof *{p.name});"]
    if p.role == "out-array":
        return [f"rg_get_into({r}, {p.name}, (size_t)({p.count}) * sizeof *{p.name});"]
    if p.role == "outbytes":
        return [f"rg_get_into({r}, {p.name}, (size_t)({p.count}));"]
    if p.role == "found":
        return [f"*{p.name} = ({p.pointee})rg_get_u64({r});"]
    return []


def op_declaration(operation):
    declaration = operation.declaration
    if operation.options.get("client") == "looked":
        declaration = "struct rg_call *looked, " + declaration
    if "home" in operation.flags:
        declaration = ("" if declaration == "void" else declaration + ", ") + "uint64_t home"
    if "future" in operation.flags:
        declaration += ", struct rg_future *future"
    if operation.raw_reply:
        declaration = ("" if declaration == "void" else declaration + ", ") + "struct rg_call *reply"
    if "fills" in operation.flags:
        declaration += ", const struct rg_region *into"
    if "bulk" in operation.flags:
        declaration += ", struct rg_bulk *bulk"
    return f"CUresult rg_op_{operation.name}({declaration})"


def owner(operation):
    """Whose the call is: the caller says so, or its stream's, another object's, a device's, or that of the memory it names."""
    if "home" in operation.flags:
        return "home"
    handles = [p for p in operation.parameters if p.role in ("handle", "del") and not p.handle.everywhere]
    if operation.needs_context: # a context that is named besides the current one
        handles = [p for p in handles if p.kind != "CONTEXT"]
    for p in sorted(handles, key=lambda p: p.kind != "STREAM"):
        return f"rg_home_of(RG_KIND_{p.kind}, (uint64_t){p.name})"
    for p in operation.parameters:
        if p.role == "value" and p.type == "CUdevice":
            return f"rg_home_of_device({p.name})"
    for p in operation.parameters:
        if p.role == "value" and p.type.startswith("CUdeviceptr"):
            return f"rg_home_of_address({p.name})"
    for p in operation.parameters:
        if p.role == "in" and p.pointee in p.types.locations:
            member = p.types.locations[p.pointee]
            return f"rg_home_of_location({'&' + p.name + '->' + member if member else p.name})"
    return "0"


def arguments(operation):
    return operation.arguments + "".join(f", {word}" for word in ("home", "future") if word in operation.flags)


def again(operation):
    """Out of memory is the answer only when there is nothing that the worker keeps ready; else it is tried again."""
    return ["    if (status == CUDA_ERROR_OUT_OF_MEMORY && rg_hooks.out_of_memory(call.session))",
            f"        return rg_op_{operation.name}({arguments(operation)});"]


def again_raw(operation):
    """The same of a raw answer. What the worker keeps ready it has given up itself, where it executed the record in its place; what
    was loaded in vain it does not know."""
    if not operation.flags & {"compiles", "future"} or operation.options.get("again") == "custom":
        return []
    return ["    if (status == CUDA_ERROR_OUT_OF_MEMORY && rg_hooks.out_of_memory(call.session)) {",
            "        rg_call_done(&call);", f"        return rg_op_{operation.name}({arguments(operation)}, reply);", "    }"]


def cached(operation):
    """The question whose answer may be cached, and what is done if it is."""
    if not operation.keeps:
        return []
    lines = ["struct rg_cached_query cached;",
             f"rg_query_cache_begin(&cached, RG_OP_{operation.name}, RG_QUERY_CACHE_{operation.keeps.upper()});"]
    for p in operation.parameters:
        if p.role in ("value", "handle", "number"):
            lines.append(f"rg_query_cache_by(&cached, &{p.name}, sizeof {p.name});")
            if p.kind == "STREAM":
                lines += [f"if ({p.name} == CU_STREAM_PER_THREAD) /* one name for many */", "    rg_query_cache_not(&cached);"]
        elif p.role == "in":
            lines.append(f"rg_query_cache_by(&cached, {p.name}, sizeof *{p.name});")
        elif p.role == "string":
            lines.append(f"rg_query_cache_by(&cached, {p.name}, strlen({p.name}) + 1);")
        elif p.role == "in-array":
            lines.append(f"rg_query_cache_by(&cached, {p.name}, (size_t)({p.count}) * sizeof *{p.name});")
    lines.append("if (rg_query_cache_find(&cached)) {")
    lines += [f"    rg_query_cache_get(&cached, {p.name}, sizeof *{p.name});" for p in operation.parameters if p.role in ("out", "found")]
    return lines + ["    return CUDA_SUCCESS;", "}"]


def keep(operation):
    """After a success."""
    if not operation.keeps:
        return []
    outputs = [p.name for p in operation.parameters if p.role in ("out", "found")]
    return ["    if (status == CUDA_SUCCESS) {"] + [f"        rg_query_cache_out(&cached, {name}, sizeof *{name});" for name in outputs] + \
        ["        rg_query_cache_add(&cached);", "    }"]


def change(operation):
    """Behind a call that may change what is cached."""
    return [f"    rg_query_cache_change(RG_QUERY_CACHE_{group.upper()});" for group in operation.changes]


def makes_state(operation):
    """Whether the call makes an object of which the worker keeps more than its name (server/core/objects.c)."""
    return any(p.role in ("new", "found") and p.handle.state for p in operation.parameters)


def encoder(operation):
    lines = [op_declaration(operation), "{"]
    lines += ["    struct rg_call call;"] + ["    " + line for line in cached(operation)]
    spread = [p for p in operation.parameters if p.role in ("handle", "del") and (p.handle.everywhere or p.kind == "FUNCTION")]
    for p in spread:
        lines += ["    CUresult status = rg_replication_to(RG_KIND_%s, (uint64_t)%s, %s);" % (p.kind, p.name, owner(operation)),
                  "    if (status != CUDA_SUCCESS)" + (" {" if operation.raw_reply else "")]
        lines += ["        *reply = (struct rg_call){0};", "        return status;", "    }"] if operation.raw_reply else ["        return status;"]
    begin = f"rg_call_begin(&call, RG_OP_{operation.name}, {size_of(operation)}, {owner(operation)})"
    if operation.options.get("client") == "looked":
        lines[2] = "    struct rg_call call = *looked;"
        begin = f"rg_call_begin_looked(&call, RG_OP_{operation.name}, {size_of(operation)})"
    lines += [("    status" if spread else "    CUresult status") + f" = {begin};",
              "    if (status != CUDA_SUCCESS)" + (" {" if operation.raw_reply else "")]
    if operation.raw_reply:
        lines += ["        *reply = (struct rg_call){0};", "        return status;", "    }"]
    else:
        lines += ["        return status;"]
    if operation.stream:
        lines.append(f"    rg_timeline_work(&call, {operation.stream.name});")
    for p in operation.wire_order:
        lines += ["    " + line for line in encode(p)]
    if "fills" in operation.flags:
        lines.append("    call.into = into;")
    if operation.cls == "async" and operation.changes:
        return lines + ["    status = rg_call_post(&call);"] + change(operation) + ["    return status;", "}"]
    if operation.cls == "async":
        lines += ["    return rg_call_post_bulk(&call, bulk);" if "bulk" in operation.flags
                  else "    return rg_call_post(&call);", "}"]
        return lines
    wait = "rg_call_wait_own(&call)" if makes_state(operation) else "rg_call_wait(&call)"
    lines.append(f"    status = future ? rg_call_post_future(&call, future) : {wait};" if "future" in operation.flags
                 else f"    status = {wait};")
    if operation.raw_reply:
        lines += again_raw(operation) + ["    *reply = call;", "    return status;", "}"]
        return lines
    outputs = [line for p in operation.parameters for line in decode(p)]
    if outputs:
        lines.append("    if (status == CUDA_SUCCESS) {")
        lines += ["        " + line for line in outputs]
        lines += ["        status = rg_call_outputs_read(&call);", "    }"]
    lines += ["    rg_call_done(&call);"] + change(operation) + again(operation) + keep(operation) + ["    return status;", "}"]
    return lines


def checks(operation):
    """What the API function verifies before anything is sent."""
    lines = []
    pointers = [p.name for p in operation.parameters
                if p.role in ("in", "out", "string", "new", "found") and not p.optional]
    lines += [f"    if ({' || '.join('!' + name for name in pointers)})", "        return rg_invalid_value();"] \
        if pointers else []
    for p in operation.parameters:
        if p.role in ("in-array", "out-array", "bytes", "outbytes"):
            lines += [f"    if (!{p.name} && ({p.count}) != 0)", "        return rg_invalid_value();"]
        if p.role in ("handle", "del"):
            lines += [f"    usable = rg_handle_check(RG_KIND_{p.kind}, (uint64_t){p.name}, {p.handle.error});",
                      "    if (usable != CUDA_SUCCESS)", "        return usable;"]
    named = [p for p in operation.parameters if p.role in ("handle", "del") and not p.handle.everywhere]
    for p in named[1:]:
        lines += [f"    if (rg_homes_differ(rg_home_of(RG_KIND_{named[0].kind}, (uint64_t){named[0].name}), "
                  f"rg_home_of(RG_KIND_{p.kind}, (uint64_t){p.name})))",
                  "        return CUDA_ERROR_INVALID_HANDLE;"]
    for area in operation.within:
        if area[0] in ("aligned", "mask"):
            wrong = f"{area[1]} % {area[2]}" if area[0] == "aligned" else f"(unsigned){area[1]} & ~{area[2]}u"
            lines += [f"    if ({wrong})", "        return rg_invalid_value();"]
            continue
        pitch, width, height = area[1:] if len(area) == 4 else ("0", area[1], "1")
        count, _, size = width.partition("*")
        if size and len(area) == 4:  # every row begins where an element may
            lines += [f"    if ({height} > 1 && {pitch} % {size})", "        return rg_invalid_value();"]
        width = f"rg_pinned_bytes({count}, {size})" if size else f"(size_t){width}"
        lines += [f"    if (!rg_pinned_on_device({area[0]}, {pitch}, {width}, {height}, true))", "        return rg_invalid_value();"]
    return lines


def captures(operation):
    """What the API function does instead while its stream captures (without a stream: while the legacy one may not be used)."""
    if not operation.capture:
        return []
    names = [p.name for p in operation.parameters]
    stream = next((p.name for p in operation.parameters if p.type == "CUstream"), "NULL")
    if operation.capture[0] == "fill":  # pointer, pitch if it has rows, value, width, height if it has rows
        pitch, height = (names[1], names[4]) if len(names) > 4 else ("0", "1")
        value, width = (names[2], names[3]) if len(names) > 4 else (names[1], names[2])
        arguments = [names[0], pitch, value, f"sizeof {value}", width, height, stream]
    elif operation.capture[0] == "memop":
        arguments = ["CU_STREAM_MEM_OP_" + operation.capture[1]] + [name for name in names if name != stream] + [stream]
    elif operation.capture[0] == "memops":
        count = next(p.count for p in operation.parameters if p.role == "in-array")
        arguments = [next(p.name for p in operation.parameters if p.role == "in-array"), count, names[-1], stream]
    else:
        arguments = [stream]
    return [f"    if (rg_capture_takes({stream}))", f"        return rg_capture_{operation.capture[0]}({', '.join(arguments)});"]


def by_proxy(operation):
    """With several servers: what is set or written is of another one than the stream, or than the current context."""
    areas = [area for area in operation.within if area[0] not in ("aligned", "mask")]
    if not areas:
        return []
    home = f"rg_home_of_address({areas[0][0]})"
    stream = next((p.name for p in operation.parameters if p.type == "CUstream"), None)
    if stream:
        arguments = ", ".join("rg_proxy.stream" if p.name == stream else p.name for p in operation.parameters)
        return ["    if (rg_several_servers()) {", "        struct rg_proxy rg_proxy;",
                f"        usable = rg_proxy_begin(&rg_proxy, {home}, rg_effective_stream({stream}), false);",
                "        if (usable == CUDA_SUCCESS)",
                f"            usable = rg_op_{operation.name}({arguments});",
                "        return rg_proxy_end(&rg_proxy, usable);", "    }"]
    return [f"    if (rg_homes_differ({home}, 0)) {{", "        struct rg_proxy rg_proxy;",
            f"        usable = rg_proxy_begin(&rg_proxy, {home}, rg_effective_stream(NULL), true);",
            "        if (usable == CUDA_SUCCESS)",
            f"            usable = rg_op_{operation.name}({operation.arguments});",
            "        if (usable == CUDA_SUCCESS) /* what comes next is not behind it by itself */",
            "            usable = rg_op_cuStreamSynchronize(CU_STREAM_LEGACY);",
            "        return rg_proxy_end(&rg_proxy, usable);", "    }"]


def api_function(operation):
    lines = [f"CUresult {operation.name}({operation.declaration})", "{"]
    check = checks(operation) + captures(operation) + by_proxy(operation)
    if check:
        lines += ["    CUresult usable = rg_call_allowed(" + ("RG_TRAIT_CONTEXT" if operation.needs_context else "0") + ");",
                  "    if (usable != CUDA_SUCCESS)", "        return usable;"] + check
    fresh = [p for p in operation.parameters if p.role in ("new", "found")]
    gone = [p for p in operation.parameters if p.role == "del"]
    if not fresh and not gone:
        call = f"rg_op_{operation.name}({operation.arguments})"
        lines += [f"    return rg_pinned_settle({call}, {operation.settles});" if operation.settles else f"    return {call};", "}"]
        return lines
    arguments = ", ".join("&rg_new_" + p.name if p in fresh else p.name for p in operation.parameters)
    for p in fresh:
        lines += [f"    {p.pointee} rg_new_{p.name} = ({p.pointee})rg_handle_create(RG_KIND_{p.kind});",
                  f"    if (!rg_new_{p.name})", "        return CUDA_ERROR_OUT_OF_MEMORY;"]
        if p.role == "found":
            lines.append(f"    const uint64_t rg_proposed_{p.name} = (uint64_t)rg_new_{p.name};")
    lines.append(f"    CUresult status = rg_op_{operation.name}({arguments});")
    for p in fresh:
        if p.role == "new":
            lines.append(f"    (void)rg_handle_made(RG_KIND_{p.kind}, (uint64_t)rg_new_{p.name}, status, {p.name});")
        else:
            lines += [f"    status = rg_handle_found(RG_KIND_{p.kind}, rg_proposed_{p.name}, (uint64_t)rg_new_{p.name}, status);",
                      "    if (status == CUDA_SUCCESS)", f"        *{p.name} = rg_new_{p.name};"]
    for p in gone:
        lines += ["    if (status == CUDA_SUCCESS)", f"        rg_handle_delete(RG_KIND_{p.kind}, (uint64_t){p.name});"]
    lines += ["    return status;", "}"]
    return lines


def bringing(operation, symbol):
    """The name of what the application calls: around the function, where something of its parameters brings a context along."""
    return f"rg_bringing_{symbol.name}" if operation.brings else symbol.name


def bringing_call(operation, symbol):
    """A function in the context that its parameters bring along, where the thread has none."""
    said, member, kind = operation.brings
    name = symbol.parameters[[p.name for p in operation.parameters].index(said)].name # variants call it otherwise
    value = f"{name} ? (uint64_t){name}->{member} : 0" if member else f"(uint64_t){name}"
    begin = {"ADDRESS": f"rg_implied_context_of_address({value})", "TEXTURE": f"rg_implied_context_of_texture({value})"}
    brought = begin.get(kind, f"rg_implied_context_begin(RG_KIND_{kind}, {value})")
    head = [f"{symbol.result} {bringing(operation, symbol)}({symbol.declaration})", "{"]
    if any(p.role == "del" for p in operation.parameters): # it forgets the object before it asks for a context
        return head + [f"    const bool rg_brought = {brought};",
                       f"    {symbol.result} rg_result = {symbol.name}({symbol.arguments});",
                       "    if (rg_brought)", "        rg_context_scope_leave();", "    return rg_result;", "}", ""]
    return head + [f"    {symbol.result} rg_result = {symbol.name}({symbol.arguments});",
                   f"    if (rg_implied_context_lacks(rg_result) && {brought}) {{",
                   f"        rg_result = {symbol.name}({symbol.arguments});",
                   "        rg_context_scope_leave();", "    }", "    return rg_result;", "}", ""]


def per_thread_call(symbol):
    """The body of a _ptsz/_ptds form: the base function with the default stream meaning the per-thread one."""
    streams = [p.name for p in symbol.parameters if p.type == "CUstream"]
    if streams:
        arguments = ", ".join(f"({p.name} ? {p.name} : CU_STREAM_PER_THREAD)" if p.type == "CUstream" else p.name
                              for p in symbol.parameters)
        return [f"    return {symbol.base}({arguments});"]
    return ["    const bool before = rg_per_thread_default_stream;", "    rg_per_thread_default_stream = true;",
            f"    CUresult status = {symbol.base}({symbol.arguments});",
            "    rg_per_thread_default_stream = before;", "    return status;"]


def emit(specification, out):
    names = {operation.name: operation for operation in specification.operations}
    for group in specification.groups:
        lines = [HEAD, '#include "client/core/hooks.h"', '#include "client/core/call.h"', '#include "common/cuda/graph/graph.h"', '#include "client/core/handle.h"', '#include "client/cache/query_cache.h"', '#include "client/core/home.h"', '#include "client/multiserver/proxy.h"', '#include "client/multiserver/replication.h"', '#include "client/managed/pinned.h"', '#include "client/timeline/timeline.h"',
                 '#include "generated/client/operations.h"', "", "#include <string.h>", ""]
        for operation in group.operations:
            if operation.on_wire:
                lines += encoder(operation) + [""]
                if operation.is_call and not operation.client_custom:
                    lines += api_function(operation) + [""]
        write(f"{out}/client/{group.name}.c", "\n".join(lines))

    header = [HEAD, "/* One encoder an operation: sends the call and, for those that wait, returns its result and outputs.",
              " * Handles that the call creates are passed in as the id to use (*handle). For operations with a raw",
              " * reply the caller reads reply->reply and must call rg_call_done(reply), whatever was returned; if the",
              " * call could not be sent, reply->reply is empty. With a future nothing is waited for, and it is",
              " * empty, too. Operations with bulk data send it from `bulk` and return",
              " * when that memory may be reused, unless it is leased. Bulk data of the reply goes `into` host memory that",
              " * has as many bytes; NULL: it is dropped. */",
              "#ifndef RG_GENERATED_CLIENT_OPERATIONS_H", "#define RG_GENERATED_CLIENT_OPERATIONS_H",
              '#include "proto/api/interop_types.h"', "", '#include <stdint.h>', '#include <sys/uio.h>', "struct rg_bulk;", "struct rg_call;", "struct rg_future;", "struct rg_region;", ""]
    header += [op_declaration(operation) + ";" for operation in specification.wire_operations]
    header += ["", "#endif", ""]
    write(f"{out}/client/operations.h", "\n".join(header))

    rest = [HEAD, '#include "client/core/call.h"', '#include "generated/proto/prototypes.h"', ""]
    for symbol in specification.base_symbols():
        operation = names[symbol.name]
        if operation.made_of:
            rest += [f"{symbol.result} {symbol.name}({symbol.declaration})", "{", f"    return {operation.made_of};", "}", ""]
        if operation.cls not in ("unsupported", "refused"):
            continue
        rest += [f"{symbol.result} {symbol.name}({symbol.declaration})", "{"]
        rest += [f"    (void){p.name};" for p in symbol.parameters]
        rest += [f'    return rg_refuse("{symbol.name}", "{operation.reason}");' if operation.reason
                 else f'    return rg_unsupported("{symbol.name}");', "}", ""]
    rest += ["/* Per-thread default stream forms. */"]
    for symbol in specification.per_thread_symbols():
        rest += [f"CUresult {symbol.name}({symbol.declaration})", "{"] + per_thread_call(symbol) + ["}", ""]
    write(f"{out}/client/rest.c", "\n".join(rest))

    every = [(names[symbol.base], symbol) for symbol in specification.symbols.values()]
    header = [HEAD, "/* What the application calls where the call works in a context that its parameters bring along (client/api/implied_context.h). */",
              "#ifndef RG_GENERATED_CLIENT_BRINGING_H", "#define RG_GENERATED_CLIENT_BRINGING_H",
              '#include "proto/api/interop_types.h"', ""]
    header += [f"{symbol.result} {bringing(operation, symbol)}({symbol.declaration});" for operation, symbol in every if operation.brings]
    write(f"{out}/client/bringing.h", "\n".join(header + ["", "#endif", ""]))
    lines = [HEAD, '#include "generated/client/bringing.h"', '#include "client/api/implied_context.h"', '#include "generated/proto/prototypes.h"', ""]
    for operation, symbol in every:
        lines += bringing_call(operation, symbol) if operation.brings else []
    write(f"{out}/client/bringing.c", "\n".join(lines))

    table = [HEAD, '#include "generated/client/bringing.h"', '#include "generated/proto/prototypes.h"', '#include "generated/proto/api_table.h"', "",
             "void *const rg_client_api[RG_API_COUNT] = {"]
    table += [f"    (void *){bringing(operation, symbol)}," for operation, symbol in every]
    table += ["};", ""]
    write(f"{out}/client/table.c", "\n".join(table))
    emit_profile(specification, out)


def emit_profile(specification, out):
    """What the application calls instead when the client profiles (client/profile/profile.h)."""
    names = {operation.name: operation for operation in specification.operations}
    lines = [HEAD, '#include "client/profile/profile.h"', '#include "common/cuda/program/capability.h"', '#include "generated/client/bringing.h"', '#include "generated/proto/prototypes.h"', ""]
    for symbol in specification.symbols.values():
        asker = ["    rg_capability_asker = __builtin_return_address(0);"] if "asker" in names[symbol.base].flags else []
        lines += [f"static {symbol.result} profiled_{symbol.name}({symbol.declaration})", "{", *asker,
                  f"    const int rg_outer = rg_profile_enter(RG_API_{symbol.name});",
                  f"    {symbol.result} rg_result = {bringing(names[symbol.base], symbol)}({symbol.arguments});",
                  "    rg_profile_leave(rg_outer);", "    return rg_result;", "}", ""]
    for table, entry in (("void *const rg_profile_api", "(void *)profiled_{}"), ("const char *const rg_profile_names", '"{}"')):
        lines += [f"{table}[RG_API_COUNT] = {{"] + [f"    {entry.format(name)}," for name in specification.symbols] + ["};", ""]
    lines += ["const char *const rg_profile_classes[RG_API_COUNT] = {"]
    lines += [f'    "{names[symbol.base].cls}",' for symbol in specification.symbols.values()] + ["};", ""]
    write(f"{out}/client/profile.c", "\n".join(lines))
