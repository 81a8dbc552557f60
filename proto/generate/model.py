"""The specification in memory: types.txt, traits.txt, symbols.txt and the *.api files, parsed and checked.

Any mistake ends with SpecError("file:line: what is wrong"). All policy is in the specification; the emitters in this
package only look at the objects below.
"""
import glob
import hashlib
import os
import re
from dataclasses import dataclass, field

CLASSES = ("local", "custom", "async", "sync", "wait", "refused", "unsupported")

WIDTH = {"u32": 4, "u64": 8, "f32": 4}


class SpecError(Exception):
    pass


@dataclass
class Handle:
    """What types.txt says of a handle."""
    kind: str
    state: bool = False
    everywhere: bool = False
    error: str = "CUDA_ERROR_INVALID_HANDLE"


@dataclass
class Types:
    """types.txt, by the names of C types (`members`: of members)."""
    handles: dict = field(default_factory=dict)
    scalars: dict = field(default_factory=dict)
    brings: dict = field(default_factory=dict)
    members: dict = field(default_factory=dict)
    locations: dict = field(default_factory=dict)


@dataclass
class Trait:
    """A line of traits.txt. `word`: as lines of .api files have it; "": it is derived."""
    name: str
    word: str
    meaning: str
    bit: int


# What the bytes that a client sends are made of (../api/README.md). All but `plain` are for hand-written code of the worker.
CONTENTS = ("plain", "translated", "checked", "data")

# Groups of answers that the client keeps (client/cache/query_cache.h).
KEPT = ("ever", "limit", "cache", "function", "stream", "pool")


@dataclass
class Parameter:
    """One parameter of a call. `role` is how it travels:
    value, handle, in, out, in-array, out-array, bytes, outbytes, string, new, found, del, number (pointer as a number),
    zero (not sent)."""
    name: str
    type: str          # C type as declared
    role: str = ""
    optional: bool = False
    count: str = ""    # arrays: the parameter or number that counts them
    content: str = ""  # what is sent as bytes: one of CONTENTS
    types: Types = None

    @property
    def is_blob(self):
        """Whether the worker gets bytes of it, which are what the client likes."""
        return self.role in ("in", "in-array", "bytes")

    @property
    def translation(self):
        """The worker's function that makes values of the type good for the driver."""
        return f"rg_translate_{self.pointee}" if self.content == "translated" else ""

    @property
    def pointee(self):
        return re.sub(r"\bconst\b", "", self.type.rsplit("*", 1)[0]).strip()

    @property
    def kind(self):
        """Handle kind, for handles and pointers to handles."""
        return self.handle.kind if self.handle else None

    @property
    def handle(self):
        return self.types.handles.get(self.type) or self.types.handles.get(self.pointee if "*" in self.type else "")

    @property
    def wire(self):
        """u32, u64 or f32 for values."""
        return self.types.scalars.get(self.type, "u32")

    @property
    def declaration(self):
        return self.type + ("" if self.type.endswith("*") else " ") + self.name


@dataclass
class Symbol:
    """A function that libcuda exports."""
    name: str
    look_up: str       # the name that cuGetProcAddress is asked for
    since: int
    stream: str        # legacy, ptsz, ptds
    result: str
    parameters: list
    index: int = 0

    @property
    def base(self):
        return re.sub(r"_(ptsz|ptds)$", "", self.name)

    @property
    def declaration(self):
        return ", ".join(p.declaration for p in self.parameters) or "void"

    @property
    def arguments(self):
        return ", ".join(p.name for p in self.parameters)


@dataclass
class Operation:
    """A line of an .api file: a driver function, or (name rg…) an operation of the wire alone."""
    name: str
    group: str
    cls: str
    parameters: list
    where: str
    result: str = "CUresult"
    flags: set = field(default_factory=set)
    options: dict = field(default_factory=dict)
    # what the client checks: ["aligned" or "mask", parameter, number]; a device range: [pointer, size] or [pointer, pitch,
    # width, height]
    within: list = field(default_factory=list)
    # the worker checks: device ranges, as above; addresses that it need not check, or does by hand
    device: list = field(default_factory=list)
    own: list = field(default_factory=list)
    lookup: list = field(default_factory=list)
    # what is done instead while the stream captures: one of CAPTURES, and of `memop` which operation it is
    capture: list = field(default_factory=list)
    # the address behind which it is done before the call returns, if the host has that memory as well
    settles: str = ""
    # the group of answers that this one is kept in (client/cache/query_cache.h); the groups that the call may change
    keeps: str = ""
    changes: list = field(default_factory=list)
    reason: str = ""   # refused: why
    number: int = 0    # on the wire; 0: none

    @property
    def on_wire(self):
        return self.cls in ("async", "sync", "wait")

    @property
    def is_call(self):
        return self.name.startswith("cu")

    @property
    def client_custom(self):
        return self.options.get("client") == "custom"

    @property
    def server_custom(self):
        return self.options.get("server") == "custom"

    @property
    def raw_reply(self):
        return self.options.get("reply") == "raw"

    @property
    def needs_context(self):
        return self.options.get("context") != "none"

    @property
    def brings(self):
        """(parameter, member or "", what it is) of that which brings a context along where none is current; None."""
        name, _, member = self.options.get("context", "none").partition("->")
        p = next((p for p in self.parameters if p.name == name), None)
        if not p:
            return None
        if member:
            return (name, member, p.types.members[member]) if member in p.types.members else None
        kind = p.types.handles[p.type].kind if p.type in p.types.handles else p.types.brings.get(p.type)
        return (name, "", kind) if kind else None

    @property
    def stream(self):
        """The one stream that the call puts its work into; None: there is none, or there are several."""
        streams = [p for p in self.parameters if p.kind == "STREAM"]
        return streams[0] if len(streams) == 1 and streams[0].role == "handle" else None

    @property
    def traits(self):
        """Names of its traits: those of its line, and what follows from the rest of it."""
        derived = {"context": self.needs_context, "waits": self.cls == "wait", "custom": self.server_custom,
                   "stream": self.stream, "work": "idle" not in self.flags}
        return {word.replace("=", "_") for word in self.flags} | {name for name, holds in derived.items() if holds}

    @property
    def declaration(self):
        return ", ".join(p.declaration for p in self.parameters) or "void"

    @property
    def arguments(self):
        return ", ".join(p.name for p in self.parameters)

    @property
    def device_ranges(self):
        """What the worker checks to be device memory: [pointer, pitch, width, height]."""
        areas = self.device + [area for area in self.within if area[0] not in ("aligned", "mask")]
        return [area if len(area) == 4 else [area[0], "0", area[1], "1"] for area in areas]

    @property
    def wire_order(self):
        """Parameters as they travel: plain values first, since arrays are counted by them."""
        return sorted(self.parameters, key=lambda p: p.role != "value")


@dataclass
class Group:
    name: str
    title: str
    operations: list = field(default_factory=list)


@dataclass
class Specification:
    version: int
    symbols: dict
    groups: list
    traits: list
    digest: str = ""

    @property
    def operations(self):
        return [operation for group in self.groups for operation in group.operations]

    @property
    def wire_operations(self):
        return [operation for operation in self.operations if operation.on_wire]

    def unaccounted(self):
        """Functions of which no .api file says how they are served."""
        said = {operation.name for operation in self.operations}
        return [symbol.name for symbol in self.base_symbols() if symbol.name not in said]

    def base_symbols(self):
        return [symbol for symbol in self.symbols.values() if symbol.stream == "legacy"]

    def per_thread_symbols(self):
        return [symbol for symbol in self.symbols.values() if symbol.stream != "legacy"]


def parse_parameters(text, where, types):
    if text.strip() in ("", "void"):
        return []
    parameters = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(.*?)\s*(\w+)\s*(\[\s*\d*\s*\])?\s*", part)
        if not match:
            raise SpecError(f"{where}: cannot read the parameter '{part.strip()}'")
        c_type, name, array = match[1], match[2], match[3]
        if array:
            c_type += " *"
        c_type = re.sub(r"\s*\*\s*", " *", c_type).replace("* *", "**").strip()
        c_type = re.sub(r"\s+\*", " *", c_type)
        parameters.append(Parameter(name, c_type, types=types))
    return parameters


def lines_of(path):
    """(file:line, line) of those that say something."""
    with open(path) as lines:
        for number, line in enumerate(lines, 1):
            line = line.split("#", 1)[0].strip()
            if line:
                yield f"{path}:{number}", line


def read_types(path):
    types = Types()
    tables = {"scalar": types.scalars, "brings": types.brings, "member": types.members}
    for where, line in lines_of(path):
        handle = re.fullmatch(r"handle (\w+) ([A-Z]+)( state)?( everywhere)?(?: error=(\w+))?", line)
        plain = re.fullmatch(r"(scalar|brings|member) (\w[\w ]*(?: \*)?) (\w+)", line)
        location = re.fullmatch(r"location (\w+)(?: (\w+))?", line)
        if handle:
            types.handles[handle[1]] = Handle(handle[2], bool(handle[3]), bool(handle[4]), handle[5] or Handle.error)
        elif plain and (plain[1] != "scalar" or plain[3] in WIDTH):
            tables[plain[1]][plain[2]] = plain[3]
        elif location:
            types.locations[location[1]] = location[2]
        else:
            raise SpecError(f"{where}: not a line about a type")
    return types


def read_traits(path):
    traits = []
    for where, line in lines_of(path):
        match = re.fullmatch(r"(derived )?([a-z]+(?:=[a-z]+)?) +(\S.*)", line)
        if not match:
            raise SpecError(f"{where}: not a trait and its meaning")
        name = match[2].replace("=", "_")
        if any(trait.name == name for trait in traits):
            raise SpecError(f"{where}: the trait '{match[2]}' is there twice")
        traits.append(Trait(name, "" if match[1] else match[2], match[3], len(traits)))
    if len(traits) > 32:
        raise SpecError(f"{path}: more traits than the 32 bits of the table")
    return traits


def read_symbols(path, types):
    symbols, version = {}, 0
    for where, line in lines_of(path):
        if line.startswith("version "):
            version = int(line.split()[1])
            continue
        match = re.fullmatch(r"(cu\w+) \| (\w+) (\d+) (legacy|ptsz|ptds) \| (\w+) \((.*)\)", line)
        if not match:
            raise SpecError(f"{where}: not a symbol line")
        name, look_up, since, stream, result, parameters = match.groups()
        if name in symbols:
            raise SpecError(f"{where}: {name} is there twice")
        symbols[name] = Symbol(name, look_up, int(since), stream, result, parse_parameters(parameters, where, types),
                               len(symbols))
    return symbols, version


ROLES = {"in", "out", "string", "bytes", "outbytes", "new", "found", "del", "value", "zero"}


def annotate(operation, notes):
    by_name = {p.name: p for p in operation.parameters}
    for name, note in notes:
        where = operation.where
        if name not in by_name:
            raise SpecError(f"{where}: {operation.name} has no parameter '{name}'")
        match = re.fullmatch(r"(\w+)(?:\[(\w+)\])?(\?)?(?:=(\w+))?", note)
        if not match or match[1] not in ROLES:
            raise SpecError(f"{where}: unknown note '{note}'")
        parameter, role = by_name[name], match[1]
        if match[2]:
            if role in ("in", "out"):
                role += "-array"
            elif role not in ("bytes", "outbytes"):
                raise SpecError(f"{where}: '{note}' takes no count")
            if not match[2].isdigit() and match[2] not in by_name:
                raise SpecError(f"{where}: {operation.name} has no parameter '{match[2]}'")
        parameter.role = "number" if role == "value" else role
        parameter.count, parameter.optional = match[2] or "", bool(match[3])
        parameter.content = match[4] or ""
        check_content(operation, parameter)
    for parameter in operation.parameters:
        if parameter.role:
            continue
        if parameter.type in parameter.types.handles:
            parameter.role = "handle"
        elif "*" not in parameter.type:
            parameter.role = "value"
        elif operation.on_wire:
            raise SpecError(f"{operation.where}: {operation.name}: pointer '{parameter.name}' needs a note")
    if operation.on_wire and operation.cls == "async":
        for parameter in operation.parameters:
            if parameter.role.startswith("out") or parameter.role == "found":
                raise SpecError(f"{operation.where}: {operation.name} is async but returns '{parameter.name}'")


def check_content(operation, parameter):
    """No bytes of a client's get to the driver unless their line says what may be in them, and who sees to that."""
    where, name, content = operation.where, f"{operation.name}: '{parameter.name}'", parameter.content
    if not parameter.is_blob:
        if content:
            raise SpecError(f"{where}: {name} sends no bytes that could be '{content}'")
        return
    if operation.on_wire and not content:
        raise SpecError(f"{where}: {name} does not say what its bytes are: ={', ='.join(CONTENTS)}")
    if content and content not in CONTENTS:
        raise SpecError(f"{where}: {name}: unknown content '{content}'")
    if content in ("checked", "data") and not operation.server_custom:
        raise SpecError(f"{where}: {name} is '{content}', but without server=custom the driver gets it as it is")
    if content == "translated" and not parameter.pointee.startswith("CU"):
        raise SpecError(f"{where}: {name} is 'translated', but '{parameter.pointee}' is no type of CUDA's")


# What may be done instead of a call while its stream captures (common/cuda/graph/graph.h: rg_capture_…).
CAPTURES = ("refuse", "fill", "memop", "memops")
# Traits that exclude each other, and that need another.
EXCLUDED = (("idle", "accesses"), ("idle", "lasts"), ("idle", "blocks"), ("idle", "kernels"), ("idle", "host"))
NEEDED = (("credit", "bulk"), ("kernels", "accesses"))
HOLDERS = {"CONTEXT", "GREEN", "MODULE", "LIBRARY", "POOL"}  # memory ends with them


def check_traits(operation):
    where, name, flags = operation.where, operation.name, operation.flags
    if flags - {"worker", "anytime", "asker"} and not operation.on_wire:
        raise SpecError(f"{where}: {name} is no operation of the wire, which could be '{min(flags)}'")
    for one, other in EXCLUDED:
        if one in flags and other in flags:
            raise SpecError(f"{where}: {name} cannot be both '{one}' and '{other}'")
    for one, other in NEEDED:
        if one in flags and other not in flags:
            raise SpecError(f"{where}: {name} is '{one}', but not '{other}'")
    if "ends" not in flags and any(p.role == "del" and p.kind in HOLDERS for p in operation.parameters):
        raise SpecError(f"{where}: {name} ends what holds memory, but is not 'ends'")
    for key in ("awaits", "queries", "deferred"):
        if sum(flag.startswith(key + "=") for flag in flags) > 1:
            raise SpecError(f"{where}: {name} has '{key}=' twice")
    if operation.cls == "async" and any(flag.startswith(("awaits=", "queries=")) for flag in flags):
        raise SpecError(f"{where}: {name} is async, so it cannot say what has come of a stream or event")


def read_group(path, symbols, types, traits):
    group, words_of_traits = None, {trait.word for trait in traits if trait.word}
    for where, line in lines_of(path):
        match = re.fullmatch(r'group (\w+) "([^"]+)"', line)
        if match:
            if group or match[1] != os.path.basename(path)[:-4]:
                raise SpecError(f"{where}: a file holds the one group that it is named after")
            group = Group(*match.groups())
            continue
        if not group:
            raise SpecError(f"{where}: 'group' must come first")
        match = re.fullmatch(r"op (rg\w+)\s+(\w+)\s+\((.*?)\)(.*)", line)
        if match:
            name, cls, parameters = match[1], match[2], parse_parameters(match[3], where, types)
            rest, result = match[4].split(), "CUresult"
        else:
            words = line.split()
            name, cls, rest = words[0], words[1] if len(words) > 1 else "", words[2:]
            if name not in symbols:
                raise SpecError(f"{where}: libcuda exports no function '{name}'")
            symbol = symbols[name]
            if symbol.stream != "legacy":
                raise SpecError(f"{where}: per-thread forms are generated; specify {symbol.base}")
            parameters = [Parameter(p.name, p.type, types=types) for p in symbol.parameters]
            result = symbol.result
        if cls not in CLASSES:
            raise SpecError(f"{where}: unknown class '{cls}'")
        operation = Operation(name, group.name, cls, parameters, where, result)
        if cls == "refused":
            reason = re.fullmatch(r'"([^"\\]+)"( worker)?( anytime)?', " ".join(rest))
            if not reason:
                raise SpecError(f'{where}: {name} needs the reason why it is refused, as "…"')
            operation.reason, rest = reason[1], []
            operation.flags |= {word.strip() for word in reason.groups()[1:] if word}
        notes = []
        for word in rest:
            if re.fullmatch(r"(again|client|server|reply)=\w+|context=\w+(->\w+)?", word):
                key, value = word.split("=", 1)
                if key in operation.options:
                    raise SpecError(f"{where}: {name} has '{key}=' twice")
                operation.options[key] = value
            elif ":" in word:
                notes.append(word.split(":", 1))
            elif re.fullmatch(r"within=\w+(,[\w*]+){1,3}", word):
                operation.within.append(word.split("=")[1].split(","))
            elif re.fullmatch(r"device=\w+(,[\w*]+){1,3}", word):
                operation.device.append(word.split("=")[1].split(","))
            elif re.fullmatch(r"(lookup|own)=\w+", word):
                key, name_of = word.split("=")
                (operation.own if key == "own" else operation.lookup).append(name_of)
            elif re.fullmatch(r"(aligned|mask)=\w+,\w+", word):
                operation.within.append(word.replace("=", ",").split(","))
            elif re.fullmatch(r"settles=\w+", word):
                operation.settles = word.split("=")[1]
            elif re.fullmatch(r"keeps=(%s)" % "|".join(KEPT), word):
                operation.keeps = word.split("=")[1]
            elif re.fullmatch(r"changes=(%s)(,(%s))*" % ("|".join(KEPT), "|".join(KEPT)), word):
                operation.changes = word.split("=")[1].split(",")
            elif re.fullmatch(r"capture=(%s)|capture=memop,\w+" % "|".join(c for c in CAPTURES if c != "memop"), word):
                operation.capture = word.split("=")[1].split(",")
            elif word in words_of_traits or word in ("anytime", "asker"):
                operation.flags.add(word)
            else:
                raise SpecError(f"{where}: cannot read '{word}'")
        annotate(operation, notes)
        check_traits(operation)
        check_kept(operation)
        check_context(operation)
        check_addresses(operation)
        group.operations.append(operation)
    if not group:
        raise SpecError(f"{path}: empty")
    return group


def check_kept(operation):
    """Only answers of fixed size to questions that wait are kept."""
    allowed = ("value", "handle", "number", "in", "string", "in-array", "out", "found", "zero")
    if operation.keeps and (operation.cls != "sync" or operation.raw_reply or
                            any(p.role not in allowed for p in operation.parameters)):
        raise SpecError(f"{operation.where}: the answer of {operation.name} cannot be kept")


def check_translated(operations):
    """A type that is translated in one place is so in all."""
    blobs = [(operation, p) for operation in operations if operation.on_wire for p in operation.parameters if p.is_blob]
    first = {p.pointee: operation for operation, p in reversed(blobs) if p.content == "translated"}
    for operation, p in blobs:
        if p.pointee in first and p.content != "translated":
            raise SpecError(f"{operation.where}: {operation.name}: '{p.name}' is '{p.content}', but {p.pointee} is "
                            f"translated at {first[p.pointee].where}")


def check_addresses(operation):
    """No address of a client's choice gets to the driver unless its line says what it must be."""
    if not operation.on_wire:
        return
    named = {area[0] for area in operation.device_ranges} | set(operation.own + operation.lookup)
    for p in operation.parameters:
        is_address = (p.role == "value" and p.type.startswith("CUdeviceptr")) or p.role == "number"
        if is_address and p.name not in named:
            raise SpecError(f"{operation.where}: {operation.name}: what address '{p.name}' may be is not said: device=, lookup= or own=")
    if operation.own and not operation.server_custom:
        raise SpecError(f"{operation.where}: {operation.name}: '{operation.own[0]}' is for hand-written code, which there is none of")
    for name in sorted(named - {p.name for p in operation.parameters}):
        raise SpecError(f"{operation.where}: {operation.name} has no parameter '{name}'")


def check_context(operation):
    """What brings a context along is a parameter of a call's that has one."""
    said = operation.options.get("context", "none")
    if said != "none" and not (operation.is_call and operation.brings):
        raise SpecError(f"{operation.where}: '{said}' brings {operation.name} no context along")


def read(folder):
    types, traits = read_types(os.path.join(folder, "types.txt")), read_traits(os.path.join(folder, "traits.txt"))
    symbols, version = read_symbols(os.path.join(folder, "symbols.txt"), types)
    groups = [read_group(path, symbols, types, traits) for path in sorted(glob.glob(os.path.join(folder, "*.api")))]
    specification = Specification(version, symbols, groups, traits)
    seen, canonical = {}, []
    for operation in specification.operations:
        if operation.name in seen:
            raise SpecError(f"{operation.where}: {operation.name} is also at {seen[operation.name]}")
        seen[operation.name] = operation.where
    check_translated(specification.operations)
    for number, operation in enumerate(specification.wire_operations, 1):
        operation.number = number
        canonical.append(f"{operation.name}({';'.join(f'{p.type}:{p.role}:{p.count}' for p in operation.parameters)})"
                         f"{operation.cls}")
    specification.digest = hashlib.sha256("\n".join(canonical).encode()).hexdigest()
    return specification
