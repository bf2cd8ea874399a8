#!/usr/bin/env python3
"""Makes a copy of a shared library in which the given exported names cannot be found.

    hide_symbols.py INPUT.so OUTPUT.so NAME...

Stripping tools leave the dynamic symbol table alone, so a test that wants a driver without some entry point needs
this: in the copy the first letter of each name is overwritten in the dynamic string table. The hash table still holds
the old name's hash, so neither the old name nor the new one is found by dlsym, and all other names are as before.
Works on 64-bit little-endian ELF files, with the Python standard library only.
"""
import struct
import sys

SHT_DYNSYM = 11


def sections(data):
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    offset, = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    for i in range(count):
        # name, type, flags, address, offset, size, link, info, alignment, entry size
        yield struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size)


def hide(data, names):
    """Overwrites each of `names`; returns those that the library does not export."""
    table = list(sections(data))
    dynsym = next(section for section in table if section[1] == SHT_DYNSYM)
    strings = table[dynsym[6]][4]
    wanted, hidden = {name.encode() for name in names}, set()
    for at in range(dynsym[4], dynsym[4] + dynsym[5], dynsym[9]):
        name_offset, info, other, index = struct.unpack_from("<IBBH", data, at)
        start = strings + name_offset
        name = bytes(data[start:data.index(b"\0", start)])
        if name in wanted and index != 0:
            if data[start - 1] != 0:
                raise ValueError(f"{name.decode()} shares its letters with a longer name")
            hidden.add(name)
            data[start] = ord("_")
    return sorted(name.decode() for name in wanted - hidden)


def main(arguments):
    if len(arguments) < 3:
        sys.exit(__doc__)
    source, target, *names = arguments
    with open(source, "rb") as file:
        data = bytearray(file.read())
    missing = hide(data, names)
    if missing:
        sys.exit(f"{source} does not export {', '.join(missing)}")
    with open(target, "wb") as file:
        file.write(data)


if __name__ == "__main__":
    main(sys.argv[1:])
