"""The specification in memory: what reader.py makes of types.txt, traits.txt, symbols.txt and the *.api files.

All policy is in the specification; the emitters in this package only look at the objects below.
"""
import re
from dataclasses import dataclass, field

CLASSES = ("local", "custom", "async", "sync", "wait", "refused", "unsupported")

WIDTH = {"u32": 4, "u64": 8, "f32": 4}


# What may be done instead of a call while its stream captures (common/cuda/graph/graph.h: rg_capture_…).
CAPTURES = ("refuse", "fill", "memop", "memops")


class SpecError(Exception):
    """"file:line: what is wrong"."""


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


class Function:
    """What has parameters."""

    @property
    def declaration(self):
        return ", ".join(p.declaration for p in self.parameters) or "void"

    @property
    def arguments(self):
        return ", ".join(p.name for p in self.parameters)


@dataclass
class Symbol(Function):
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



@dataclass
class Operation(Function):
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

    def wrong(self, what, parameter=None):
        """The error that this is wrong with the line, or with a parameter in it."""
        return SpecError(f"{self.where}: {self.name}" + (f": '{parameter.name}' {what}" if parameter else f" {what}"))

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
    def made_of(self):
        """The other call that this one is, as C; "": it is of its own."""
        called, _, given = self.options.get("as", "").partition("(")
        return called and f"{called}({given[:-1].replace(',', ', ') or self.arguments})"

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
