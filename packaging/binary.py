"""Which platform is a binary for?

Read from its headers, so that a package of another platform is built anywhere. A wheel of Linux names the oldest glibc
that it runs on (PEP 600): the newest symbol version that the binary needs.
"""

import re
import struct
from pathlib import Path
from typing import NamedTuple, Optional, Tuple

# Libraries that PEP 600 allows a binary to need.
ALLOWED_LIBRARIES = re.compile(r"(lib(c|m|dl|rt|pthread|util|gcc_s)|ld-linux[-a-z0-9_]*)\.so\.\d+$")
# No image of manylinux is older.
OLDEST_GLIBC = (2, 17)
ELF_MACHINES = {62: "x86_64", 183: "aarch64"}
MACH_CPUS = {0x01000007: "x86_64", 0x0100000C: "arm64"}
NPM_CPUS = {"x86_64": "x64", "aarch64": "arm64", "arm64": "arm64"}

PT_INTERP = 3
SHT_DYNAMIC, SHT_GNU_VERNEED = 6, 0x6FFFFFFE
DT_NEEDED = 1
LC_VERSION_MIN_MACOSX, LC_BUILD_VERSION = 0x24, 0x32


class UnsupportedBinary(Exception):
    """A file is not a binary that a package can have."""


class Platform(NamedTuple):
    os: str
    cpu: str
    # Linux: the oldest glibc it runs on; none if it is linked statically.
    glibc: Optional[Tuple[int, int]] = None
    # macOS: the oldest version it runs on.
    macos: Tuple[int, int] = (0, 0)

    @staticmethod
    def read(path):
        data = Path(path).read_bytes()
        try:
            if data[:4] == b"\x7fELF":
                return read_elf(data)
            if data[:4] == b"\xcf\xfa\xed\xfe":
                return read_mach_o(data)
        except (struct.error, KeyError, IndexError) as error:
            raise UnsupportedBinary(f"{path}: not a binary of 64 bits for x86-64 or ARM ({error!r})") from error
        raise UnsupportedBinary(f"{path}: neither ELF nor Mach-O")

    def wheel_tag(self):
        if self.os == "darwin":
            return f"macosx_{self.macos[0]}_{self.macos[1]}_{self.cpu}"
        if self.glibc is None:
            # Without a C library it runs with either.
            return f"manylinux2014_{self.cpu}.manylinux_2_17_{self.cpu}.musllinux_1_1_{self.cpu}"
        major, minor = max(self.glibc, OLDEST_GLIBC)
        return f"manylinux_{major}_{minor}_{self.cpu}"

    def npm_os(self):
        return self.os

    def npm_cpu(self):
        return NPM_CPUS[self.cpu]

    def npm_name(self):
        return f"{self.npm_os()}-{self.npm_cpu()}"


def read_elf(data):
    if data[4:6] != b"\x02\x01":
        raise UnsupportedBinary("an ELF file of 32 bits or in big-endian order")
    cpu = ELF_MACHINES[struct.unpack_from("<H", data, 18)[0]]
    phoff, shoff = struct.unpack_from("<QQ", data, 32)
    phentsize, phnum, shentsize, shnum = struct.unpack_from("<HHHH", data, 54)
    programs = [struct.unpack_from("<I", data, phoff + n * phentsize)[0] for n in range(phnum)]
    if PT_INTERP not in programs:
        return Platform("linux", cpu)
    # type, offset, size, link (the section of strings), info (how many records)
    sections = []
    for n in range(shnum):
        _, kind, _, _, offset, size, link, info = struct.unpack_from("<IIQQQQII", data, shoff + n * shentsize)
        sections.append((kind, offset, size, link, info))

    def string(link, at):
        begin = sections[link][1] + at
        return data[begin : data.index(b"\0", begin)].decode()

    needed, versions = [], []
    for kind, offset, size, link, info in sections:
        if kind == SHT_DYNAMIC:
            entries = (struct.unpack_from("<QQ", data, offset + at) for at in range(0, size, 16))
            needed += [string(link, value) for tag, value in entries if tag == DT_NEEDED]
        elif kind == SHT_GNU_VERNEED:
            at = offset
            for _ in range(info):
                _, count, _, first, following = struct.unpack_from("<HHIII", data, at)
                record = at + first
                for _ in range(count):
                    _, _, _, name, next_record = struct.unpack_from("<IHHII", data, record)
                    versions.append(string(link, name))
                    record += next_record
                at += following
    foreign = [library for library in needed if not ALLOWED_LIBRARIES.match(library)]
    if foreign:
        raise UnsupportedBinary(f"it needs {', '.join(foreign)}, which not every Linux has")
    found = (re.match(r"GLIBC_(\d+)\.(\d+)", version) for version in versions)
    glibc = max(((int(match[1]), int(match[2])) for match in found if match), default=OLDEST_GLIBC)
    return Platform("linux", cpu, glibc=glibc)


def read_mach_o(data):
    _, cpu_type, _, _, n_commands = struct.unpack_from("<IIIII", data, 0)
    at, version = 32, None
    for _ in range(n_commands):
        command, size = struct.unpack_from("<II", data, at)
        if command == LC_BUILD_VERSION:
            version = struct.unpack_from("<I", data, at + 12)[0]
        elif command == LC_VERSION_MIN_MACOSX:
            version = struct.unpack_from("<I", data, at + 8)[0]
        at += size
    if version is None:
        raise UnsupportedBinary("it does not say which macOS it needs")
    major, minor = version >> 16, version >> 8 & 0xFF
    # From 11 on, tags name the major version alone.
    return Platform("darwin", MACH_CPUS[cpu_type], macos=(major, 0 if major >= 11 else minor))
