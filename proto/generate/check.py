"""What the lines of a specification must say, besides being readable: checked for each operation, then for all together."""
from generate.model import CONTENTS


def content_of(operation, parameter):
    """No bytes of a client's get to the driver unless their line says what may be in them, and who sees to that."""
    content = parameter.content
    if not parameter.is_blob:
        if content:
            raise operation.wrong(f"sends no bytes that could be '{content}'", parameter)
        return
    if operation.on_wire and not content:
        raise operation.wrong(f"does not say what its bytes are: ={', ='.join(CONTENTS)}", parameter)
    if content and content not in CONTENTS:
        raise operation.wrong(f"is of unknown content '{content}'", parameter)
    if content in ("checked", "data") and not operation.server_custom:
        raise operation.wrong(f"is '{content}', but without server=custom the driver gets it as it is", parameter)
    if content == "translated" and not parameter.pointee.startswith("CU"):
        raise operation.wrong(f"is 'translated', but '{parameter.pointee}' is no type of CUDA's", parameter)


# Traits that exclude each other, and that need another.
EXCLUDED = (("idle", "accesses"), ("idle", "lasts"), ("idle", "blocks"), ("idle", "kernels"), ("idle", "host"))
NEEDED = (("credit", "bulk"), ("kernels", "accesses"))
HOLDERS = {"CONTEXT", "GREEN", "MODULE", "LIBRARY", "POOL"}  # memory ends with them


def traits(operation):
    flags = operation.flags
    if flags - {"worker", "anytime", "asker"} and not operation.on_wire:
        raise operation.wrong(f"is no operation of the wire, which could be '{min(flags)}'")
    for one, other in EXCLUDED:
        if one in flags and other in flags:
            raise operation.wrong(f"cannot be both '{one}' and '{other}'")
    for one, other in NEEDED:
        if one in flags and other not in flags:
            raise operation.wrong(f"is '{one}', but not '{other}'")
    if "ends" not in flags and any(p.role == "del" and p.kind in HOLDERS for p in operation.parameters):
        raise operation.wrong("ends what holds memory, but is not 'ends'")
    for key in ("awaits", "queries", "deferred"):
        if sum(flag.startswith(key + "=") for flag in flags) > 1:
            raise operation.wrong(f"has '{key}=' twice")
    if operation.cls == "async" and any(flag.startswith(("awaits=", "queries=")) for flag in flags):
        raise operation.wrong("is async, so it cannot say what has come of a stream or event")


def kept(operation):
    """Only answers of fixed size to questions that wait are kept."""
    allowed = ("value", "handle", "number", "in", "string", "in-array", "out", "found", "zero")
    if operation.keeps and (operation.cls != "sync" or operation.raw_reply or
                            any(p.role not in allowed for p in operation.parameters)):
        raise operation.wrong("has an answer that cannot be kept")


def translated(operations):
    """A type that is translated in one place is so in all."""
    blobs = [(operation, p) for operation in operations if operation.on_wire for p in operation.parameters if p.is_blob]
    first = {p.pointee: operation for operation, p in reversed(blobs) if p.content == "translated"}
    for operation, p in blobs:
        if p.pointee in first and p.content != "translated":
            raise operation.wrong(f"is '{p.content}', but {p.pointee} is translated at {first[p.pointee].where}", p)


def addresses(operation):
    """No address of a client's choice gets to the driver unless its line says what it must be."""
    if not operation.on_wire:
        return
    named = {area[0] for area in operation.device_ranges} | set(operation.own + operation.lookup)
    for p in operation.parameters:
        is_address = (p.role == "value" and p.type.startswith("CUdeviceptr")) or p.role == "number"
        if is_address and p.name not in named:
            raise operation.wrong("may be any address: what it must be is not said (device=, lookup= or own=)", p)
    if operation.own and not operation.server_custom:
        raise operation.wrong(f"has own={operation.own[0]}, which is for hand-written code, and has none")
    for name in sorted(named - {p.name for p in operation.parameters}):
        raise operation.wrong(f"has no parameter '{name}'")


def context(operation):
    """What brings a context along is a parameter of a call's that has one."""
    said = operation.options.get("context", "none")
    if said != "none" and not (operation.is_call and operation.brings):
        raise operation.wrong(f"has context={said}, which brings none along")


def another(one, symbols):
    """What is another call with other parameters is made where the client answers, or is made of others."""
    called = one.options.get("as", "").partition("(")[0]
    if called and one.cls not in ("local", "custom"):
        raise one.wrong(f"is {one.cls}, so it cannot be as={called}")
    if called and called not in symbols:
        raise one.wrong(f"is as={called}, which libcuda does not export")


def operation(one):
    """All that is checked of one operation, whose notes have been read."""
    traits(one)
    kept(one)
    context(one)
    addresses(one)
