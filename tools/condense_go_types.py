#!/usr/bin/env python3
"""Condenses the shapes of Go's structs, which the hash of a pod template is made of, into crates/workloads/data.

    tools/condense_go_types.py --source k8s.io            write crates/workloads/data/pod-template.types
    tools/condense_go_types.py --source k8s.io --check    say whether the file differs, write nothing

The source is a folder with Kubernetes' modules `api` and `apimachinery`. Only names, types and the order of fields
are taken. The file has a paragraph per type that a PodTemplateSpec reaches:

    v1.Volume                        a struct: its fields in their order, each with
      Name name string               its name in Go, in JSON (`-`: its members are those of the struct), its type
    v1.PullPolicy = string           a type that is another by a new name
"""

import argparse
import pathlib
import re
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
TARGET = REPOSITORY / "crates/workloads/data/pod-template.types"
ROOT = "v1.PodTemplateSpec"

# Where a package's types are, and by which names its files know other packages.
PACKAGES = {
    "core": ("v1", ["api/core/v1/types.go"]),
    "meta": ("v1", ["apimachinery/pkg/apis/meta/v1/types.go"]),
    "types": ("types", ["apimachinery/pkg/types/uid.go", "apimachinery/pkg/types/nodename.go"]),
}
ALIASES = {"metav1": "meta", "v1": "core", "types": "types"}
# Types whose inside is not what JSON shows; the code knows them.
OPAQUE = {"resource.Quantity", "intstr.IntOrString", "meta.Time", "meta.FieldsV1"}
BASIC = {"string", "bool", "int", "int32", "int64", "uint8", "byte"}

STRUCT = re.compile(r"^type (\w+) struct \{(.*?)^\}", re.M | re.S)
NAMED = re.compile(r"^type (\w+) ([\w.\[\]*]+)$", re.M)
FIELD = re.compile(r'^\t(?:(\w+)\s+)?([\w.\[\]*]+)\s+`[^`]*json:"([^",]*)(,inline)?[^"]*"', re.M)


def without_comments(text):
    return re.sub(r"//[^\n]*", "", text)


def read(source):
    """Every type by its package and name: a list of fields, or the type that it renames."""
    types = {}
    for package, (_, files) in PACKAGES.items():
        for file in files:
            text = without_comments((source / file).read_text())
            for name, body in STRUCT.findall(text):
                types[f"{package}.{name}"] = [field(package, *found) for found in FIELD.findall(body)]
            for name, other in NAMED.findall(text):
                types[f"{package}.{name}"] = qualified(package, other)
    return types


def field(package, name, kind, json, inline):
    embedded = not name
    name = name or kind.split(".")[-1].lstrip("*")
    return name, "-" if inline or (embedded and not json) else json, qualified(package, kind)


def qualified(package, kind):
    """The type as everybody names it, whichever file it was written in."""
    if found := re.match(r"(\[\]|\*|map\[([\w.]+)\])(.+)", kind):
        prefix, key, rest = found.groups()
        prefix = f"map[{qualified(package, key)}]" if key else prefix
        return prefix + qualified(package, rest)
    if kind in BASIC:
        return kind
    if "." not in kind:
        return f"{package}.{kind}"
    home, name = kind.split(".")
    return f"{ALIASES.get(home, home)}.{name}"


def in_go(kind):
    """The type as Go prints it: by the last part of its package's path."""
    return re.sub(r"\b(core|meta)\.", "v1.", kind)


def parts(kind):
    return re.findall(r"[a-z]+\.\w+", kind)


def condense(types):
    lines, seen, waiting = [], {}, ["core." + ROOT.split(".")[1]]
    while waiting:
        kind = waiting.pop(0)
        if kind in seen.values() or kind in OPAQUE:
            continue
        if in_go(kind) in seen:
            sys.exit(f"two types print as {in_go(kind)}")
        seen[in_go(kind)] = kind
        shape = types[kind]
        if isinstance(shape, str):
            lines.append(f"{in_go(kind)} = {in_go(shape)}")
            waiting += parts(shape)
            continue
        lines.append(in_go(kind))
        for name, json, inner in shape:
            lines.append(f"  {name} {json} {in_go(inner)}")
            waiting += parts(inner)
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    text = condense(read(options.source))
    if not options.check:
        TARGET.write_text(text)
    elif TARGET.read_text() != text:
        sys.exit(f"{TARGET.name} differs from the source")


if __name__ == "__main__":
    main()
