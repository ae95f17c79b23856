"""Packages: the same inputs give the same bytes, and what they list is inside."""

import base64
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
# Any program will do: only its headers are read.
PROGRAM = os.path.realpath("/bin/true")


@unittest.skipUnless(sys.platform == "linux" and os.path.exists(PROGRAM), "needs a program of Linux")
class Packages(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)

    def build(self, language, out, *arguments):
        out = os.path.join(self.directory.name, out)
        command = [sys.executable, HERE / "build", language, "--binary", PROGRAM, "--out", out, *arguments]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)

    def test_the_same_inputs_give_the_same_bytes(self):
        for language in ["python", "npm"]:
            one, other = (self.build(language, out).stdout.strip() for out in ["one", "other"])
            self.assertEqual(os.path.basename(one), os.path.basename(other))
            self.assertEqual(pathlib.Path(one).read_bytes(), pathlib.Path(other).read_bytes())

    def test_without_a_binary_cargo_builds_one(self):
        # A cargo that has built a program already.
        built = json.dumps({"reason": "compiler-artifact", "executable": PROGRAM})
        cargo = pathlib.Path(self.directory.name, "cargo")
        cargo.write_text(f"#!/bin/sh\necho \"$@\" >&2\necho '{built}'\n")
        cargo.chmod(0o755)
        environment = {**os.environ, "PATH": f"{self.directory.name}:{os.environ['PATH']}"}
        out = ["--out", os.path.join(self.directory.name, "out"), "--compression", "0"]
        for script in [["build", "python"], ["build", "npm"], ["image/build"]]:
            command = [sys.executable, HERE / script[0], *script[1:], *out]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("build --release --locked", done.stderr)
            self.assertTrue(os.path.getsize(done.stdout.strip()) > os.path.getsize(PROGRAM))

    def test_the_record_of_a_wheel_is_true(self):
        with zipfile.ZipFile(self.build("python", "out").stdout.strip()) as wheel:
            [record] = [name for name in wheel.namelist() if name.endswith(".dist-info/RECORD")]
            lines = wheel.read(record).decode().splitlines()
            self.assertEqual([line.rsplit(",", 2)[0] for line in lines], wheel.namelist())
            for line in lines[:-1]:
                name, digest, size = line.rsplit(",", 2)
                found = hashlib.sha256(wheel.read(name)).digest()
                self.assertEqual(digest, "sha256=" + base64.urlsafe_b64encode(found).rstrip(b"=").decode())
                self.assertEqual(int(size), len(wheel.read(name)))
            self.assertEqual(wheel.getinfo("mizzen/bin/mizzen").external_attr >> 16, 0o100755)
            self.assertIn("mizzen/py.typed", wheel.namelist())

    def test_an_npm_package_names_its_platform_and_has_what_it_exports(self):
        with tarfile.open(self.build("npm", "out").stdout.strip()) as package:
            names = package.getnames()
            manifest = json.load(package.extractfile("package/package.json"))
            self.assertEqual((manifest["os"], len(manifest["cpu"]), manifest["libc"]), (["linux"], 1, ["glibc"]))
            exported = [manifest["bin"]["mizzen"], f"vendor/mizzen-linux-{manifest['cpu'][0]}"]
            for target in manifest["exports"].values():
                exported += target.values() if isinstance(target, dict) else [target]
            for path in exported:
                self.assertIn("package/" + path.removeprefix("./"), names)
            self.assertEqual(package.getmember("package/" + exported[1]).mode, 0o755)
            self.assertFalse([name for name in names if "tests" in name])

    def test_a_platform_is_packaged_once(self):
        for language in ["python", "npm"]:
            self.assertNotEqual(self.build(language, "out", "--binary", PROGRAM).returncode, 0)


if __name__ == "__main__":
    unittest.main()
