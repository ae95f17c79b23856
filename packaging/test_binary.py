"""Platforms of binaries: `python3 -m unittest discover packaging`."""

import os
import struct
import sys
import tempfile
import unittest

from binary import Platform, UnsupportedBinary


def mach_o(cpu, *commands):
    body = b"".join(commands)
    return struct.pack("<IIIIIIII", 0xFEEDFACF, cpu, 0, 2, len(commands), len(body), 0, 0) + body


BUILD_VERSION = struct.pack("<IIIIII", 0x32, 24, 1, 11 << 16 | 3 << 8, 0, 0)
VERSION_MIN = struct.pack("<IIII", 0x24, 16, 10 << 16 | 12 << 8, 0)
OTHER = struct.pack("<II8x", 0x1B, 16)
STATIC_ELF = struct.pack("<4sBB10xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 2, 183, 1, 0, 64, 0, 0, 64, 56, 1, 64, 0, 0)
STATIC_ELF += struct.pack("<I52x", 1)


class Binaries(unittest.TestCase):
    def read(self, data):
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            return Platform.read(file.name)

    def test_the_version_of_macos_is_read_from_either_command(self):
        new = self.read(mach_o(0x0100000C, OTHER, BUILD_VERSION))
        self.assertEqual((new.wheel_tag(), new.npm_name()), ("macosx_11_0_arm64", "darwin-arm64"))
        old = self.read(mach_o(0x01000007, VERSION_MIN, OTHER))
        self.assertEqual((old.wheel_tag(), old.npm_name()), ("macosx_10_12_x86_64", "darwin-x64"))

    def test_a_static_binary_runs_with_every_c_library(self):
        platform = self.read(STATIC_ELF)
        self.assertEqual(platform.npm_name(), "linux-arm64")
        self.assertIn("musllinux_1_1_aarch64", platform.wheel_tag())
        self.assertIn("manylinux2014_aarch64", platform.wheel_tag())

    @unittest.skipUnless(sys.platform == "linux" and os.path.exists("/bin/true"), "Linux only")
    def test_a_dynamic_binary_names_its_glibc(self):
        platform = Platform.read(os.path.realpath("/bin/true"))
        self.assertRegex(platform.wheel_tag(), r"^manylinux_2_\d+_(x86_64|aarch64)$")

    def test_glibc_is_never_older_than_manylinux(self):
        self.assertEqual(Platform("linux", "x86_64", glibc=(2, 4)).wheel_tag(), "manylinux_2_17_x86_64")
        self.assertEqual(Platform("linux", "x86_64", glibc=(2, 34)).wheel_tag(), "manylinux_2_34_x86_64")

    def test_other_files_are_rejected(self):
        for data in [b"#!/bin/sh\n", b"\x7fELF\x02\x01", b"\x7fELF\x01\x01" + bytes(60), mach_o(0x0100000C, OTHER), b""]:
            with self.assertRaises(UnsupportedBinary):
                self.read(data)


if __name__ == "__main__":
    unittest.main()
