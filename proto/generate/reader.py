"""Reads a specification: types.txt, traits.txt, symbols.txt and the *.api files. Any mistake ends with a SpecError."""
import glob
import hashlib
import os
import re

from generate import check
from generate.model import (CAPTURES, CLASSES, KEPT, WIDTH, Group, Handle, Operation, Parameter, SpecError, Specification,
                            Symbol, Trait, Types)


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
        if name not in by_name:
            raise operation.wrong(f"has no parameter '{name}'")
        match = re.fullmatch(r"(\w+)(?:\[(\w+)\])?(\?)?(?:=(\w+))?", note)
        if not match or match[1] not in ROLES:
            raise operation.wrong(f"has the unknown note '{note}'")
        parameter, role = by_name[name], match[1]
        if match[2]:
            if role in ("in", "out"):
                role += "-array"
            elif role not in ("bytes", "outbytes"):
                raise operation.wrong(f"has '{note}', which takes no count")
            if not match[2].isdigit() and match[2] not in by_name:
                raise operation.wrong(f"has no parameter '{match[2]}'")
        parameter.role = "number" if role == "value" else role
        parameter.count, parameter.optional = match[2] or "", bool(match[3])
        parameter.content = match[4] or ""
        check.content_of(operation, parameter)
    for parameter in operation.parameters:
        if parameter.role:
            continue
        if parameter.type in parameter.types.handles:
            parameter.role = "handle"
        elif "*" not in parameter.type:
            parameter.role = "value"
        elif operation.on_wire:
            raise operation.wrong("is a pointer, which needs a note", parameter)
    if operation.on_wire and operation.cls == "async":
        for parameter in operation.parameters:
            if parameter.role.startswith("out") or parameter.role == "found":
                raise operation.wrong(f"is async but returns '{parameter.name}'")


# The words with "=" of a line but for traits: which field of the operation each is for, how it gets there, and what may be behind "=".
#   option: options[word] = value, once   text: field = value   list: field = the values
#   value: one value more in field        row: a list of values more in field; "named": with the word before them
ROW, KEPT_GROUP = r"\w+(,[\w*]+){1,3}", "(%s)" % "|".join(KEPT)
WORDS = {
    "again": ("options", "option", r"\w+"),
    "as": ("options", "option", r"cu\w+(\(\w+(,\w+)*\))?"),
    "client": ("options", "option", r"\w+"),
    "server": ("options", "option", r"\w+"),
    "reply": ("options", "option", r"\w+"),
    "context": ("options", "option", r"\w+(->\w+)?"),
    "within": ("within", "row", ROW),
    "device": ("device", "row", ROW),
    "aligned": ("within", "named row", r"\w+,\w+"),
    "mask": ("within", "named row", r"\w+,\w+"),
    "lookup": ("lookup", "value", r"\w+"),
    "own": ("own", "value", r"\w+"),
    "settles": ("settles", "text", r"\w+"),
    "keeps": ("keeps", "text", KEPT_GROUP),
    "changes": ("changes", "list", f"{KEPT_GROUP}(,{KEPT_GROUP})*"),
    "capture": ("capture", "list", "(%s)|memop,\\w+" % "|".join(c for c in CAPTURES if c != "memop")),
}


def read_word(operation, word):
    """False: it is none of WORDS with a value that it may have."""
    key, _, value = word.partition("=")
    name, how, pattern = WORDS.get(key, ("", "", ""))
    if not name or not re.fullmatch(pattern, value):
        return False
    if how == "option":
        if key in operation.options:
            raise operation.wrong(f"has '{key}=' twice")
        operation.options[key] = value
    elif how in ("text", "list"):
        setattr(operation, name, value if how == "text" else value.split(","))
    else:
        row = [key] * (how == "named row") + value.split(",")
        getattr(operation, name).append(value if how == "value" else row)
    return True


def read_line(line, where, group, symbols, types):
    """An operation without what its words say, and these."""
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
    operation = Operation(name, group, cls, parameters, where, result)
    if cls == "refused":
        reason = re.fullmatch(r'"([^"\\]+)"( worker)?( anytime)?', " ".join(rest))
        if not reason:
            raise operation.wrong('needs the reason why it is refused, as "…"')
        operation.reason, rest = reason[1], []
        operation.flags |= {word.strip() for word in reason.groups()[1:] if word}
    return operation, rest


def read_operation(line, where, group, symbols, types, flags):
    operation, rest = read_line(line, where, group, symbols, types)
    notes = []
    for word in rest:
        if ":" in word:
            notes.append(word.split(":", 1))
        elif word in flags:
            operation.flags.add(word)
        elif not read_word(operation, word):
            raise SpecError(f"{where}: cannot read '{word}'")
    annotate(operation, notes)
    check.operation(operation)
    check.another(operation, symbols)
    return operation


def read_group(path, symbols, types, traits):
    group, flags = None, {trait.word for trait in traits if trait.word} | {"anytime", "asker"}
    for where, line in lines_of(path):
        match = re.fullmatch(r'group (\w+) "([^"]+)"', line)
        if match:
            if group or match[1] != os.path.basename(path)[:-4]:
                raise SpecError(f"{where}: a file holds the one group that it is named after")
            group = Group(*match.groups())
            continue
        if not group:
            raise SpecError(f"{where}: 'group' must come first")
        group.operations.append(read_operation(line, where, group.name, symbols, types, flags))
    if not group:
        raise SpecError(f"{path}: empty")
    return group


def read(folder):
    types, traits = read_types(os.path.join(folder, "types.txt")), read_traits(os.path.join(folder, "traits.txt"))
    symbols, version = read_symbols(os.path.join(folder, "symbols.txt"), types)
    groups = [read_group(path, symbols, types, traits) for path in sorted(glob.glob(os.path.join(folder, "*.api")))]
    specification = Specification(version, symbols, groups, traits)
    seen, canonical = {}, []
    for operation in specification.operations:
        if operation.name in seen:
            raise operation.wrong(f"is also at {seen[operation.name]}")
        seen[operation.name] = operation.where
    check.translated(specification.operations)
    for number, operation in enumerate(specification.wire_operations, 1):
        operation.number = number
        canonical.append(f"{operation.name}({';'.join(f'{p.type}:{p.role}:{p.count}' for p in operation.parameters)})"
                         f"{operation.cls}")
    specification.digest = hashlib.sha256("\n".join(canonical).encode()).hexdigest()
    return specification
