#!/usr/bin/env python3
"""Condenses Kubernetes' published facts into the data files of crates/schemas.

    tools/condense.py --facts ../shared/facts              write crates/schemas/data/*.kinds
    tools/condense.py --facts ../shared/facts --check      compare crates/schemas/data with the facts, write nothing

The facts are schema.json (types, attributes, protobuf numbers, from OpenAPI and the .proto files) and
discovery.json (resources). What neither knows stands in crates/kinds/overlay, one file per group, one line
per type:

    DeploymentSpec: replicas? selector~ template! minReadySeconds strategy!:Foo(Bar) ...Embedded

in the order of the Go struct. After a field's name come its presence mark (as in data/README.md), `#7` when
the facts lack its protobuf number, `:type` when the facts lack its type or Go names it, `@Name` when Go names
the whole slice or map. `...Name` is a struct whose fields appear inline.

No published fact tells the rules of a kind's life and the columns of its table: the lines of a `kind` block that start
with one of RULES are taken over from crates/schemas/data.

The data files are edited by hand after they were written, so to follow a new Kubernetes release write elsewhere
(`--out DIR`), and take over what differs.
"""

import argparse
import json
import pathlib
import re
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
SCALARS = {
    "boolean": "bool", "integer:int32": "int32", "integer:int64": "int64", "number:double": "float64",
    "string": "string", "string:byte": "bytes",
}
SPECIALS = {
    "Time", "MicroTime", "Duration", "Quantity", "IntOrString", "RawExtension", "FieldsV1",
    "JSON", "JSONSchemaPropsOrBool", "JSONSchemaPropsOrArray", "JSONSchemaPropsOrStringArray",
}
# Packages without a resource of their own, so that no definition tells which group they are.
PACKAGES = {
    "meta/v1": "io.k8s.apimachinery.pkg.apis.meta.v1",
    "admission.k8s.io/v1": "io.k8s.api.admission.v1",
    "apidiscovery.k8s.io/v2": "io.k8s.api.apidiscovery.v2",
    "apidiscovery.k8s.io/v2beta1": "io.k8s.api.apidiscovery.v2beta1",
}

# Words of a `kind` block that no fact knows.
RULES = {"name", "rules", "selectable", "stored", "encoding", "ttl", "column"}


class Facts:
    """schema.json and discovery.json, asked by our names (`apps/v1`, `Deployment`)."""

    def __init__(self, folder):
        self.schema = json.loads((folder / "schema.json").read_text())
        discovery = json.loads((folder / "discovery.json").read_text())
        self.resources = {key if "/" in key else f"core/{key}": value for key, value in discovery.items()}
        self.package_of = dict(PACKAGES)
        for name, definition in self.schema.items():
            package, kind = name.rsplit(".", 1)
            for gvk in definition.get("gvk", ()):
                version, gvk_kind = gvk.rsplit("/", 1)
                if kind == gvk_kind and package not in PACKAGES.values():
                    self.package_of[version if "/" in version else f"core/{version}"] = package
        self.version_of = {package: version for version, package in self.package_of.items()}

    def definition(self, version, name):
        return self.schema.get(f"{self.package_of[version]}.{name}", {})

    def spell(self, fact, version):
        """A type of schema.json in the words of the data files."""
        if fact.startswith("[]"):
            return "[]" + self.spell(fact[2:], version)
        if fact.startswith("map:"):
            return "map[string]" + self.spell(fact[4:], version)
        if fact in SCALARS:
            return SCALARS[fact]
        package, name = fact.rsplit(".", 1)
        if name in SPECIALS:
            return name
        other = self.version_of[package]
        return name if other == version else f"{other}.{name}"


class Field:
    """One entry of an overlay line."""

    PATTERN = re.compile(r"(?P<name>[\w$-]+)(?P<mark>[?!~]?)(#(?P<number>\d+))?(:(?P<type>[^@]+))?(@(?P<go>.+))?")

    def __init__(self, text):
        self.embedded = text[3:] if text.startswith("...") else None
        if not self.embedded:
            self.__dict__.update(self.PATTERN.fullmatch(text).groupdict())


def read_overlay(folder):
    """{"apps/v1": {"Deployment": [Field, …]}}"""
    overlay = {}
    for path in sorted(folder.glob("*.txt")):
        for line in path.read_text().splitlines():
            if line.startswith("version "):
                version = f"{path.stem}/{line.split()[1]}"
                overlay[version] = {}
            elif line and not line.startswith("#"):
                name, _, fields = line.partition(":")
                overlay[version][name] = [Field(text) for text in fields.split()]
    return overlay


def read_rules(folder):
    """{("apps/v1", "Deployment"): [line, …]}: what the data files know of kinds and the facts do not."""
    rules, kind = {}, None
    for path in sorted(folder.glob("*.kinds")):
        for line in path.read_text().splitlines():
            word, _, rest = line.strip().partition(" ")
            if word == "group":
                group = rest
            elif word == "version":
                version = f"{group}/{rest}"
            elif line and not line.startswith(" "):
                kind = rest if word == "kind" else None
            elif kind and word in RULES:
                rules.setdefault((version, kind), []).append(line)
    return rules


class Writer:
    def __init__(self, facts, overlay, rules):
        self.facts, self.overlay, self.rules = facts, overlay, rules

    def group(self, group):
        versions = sorted(version for version in self.overlay if version.split("/")[0] == group)
        served = any(version in self.facts.resources for version in versions)
        what = f"Kinds of {group}" if served else f"Types of {group}, which has no resources"
        lines = [f"# {what}. The format: README.md.", f"group {group}"]
        for version in versions:
            lines += [f"version {version.split('/')[1]}", ""]
            for block in [*self.kinds(version), *self.types(version)]:
                lines += [*block, ""]
        return "\n".join(lines[:-1]) + "\n"

    def kinds(self, version):
        resources = self.facts.resources.get(version, ())
        for resource in resources:
            if "/" not in resource["name"]:
                prefix = resource["name"] + "/"
                yield self.kind(version, resource, [r for r in resources if r["name"].startswith(prefix)])

    def kind(self, version, resource, subresources):
        kind = resource["kind"]
        yield f"kind {kind}"
        yield f"  names {resource['name']} {resource['singularName']}"
        for word, key in ("short", "shortNames"), ("categories", "categories"):
            if resource.get(key):
                yield f"  {word} {' '.join(resource[key])}"
        yield f"  scope {'Namespaced' if resource['namespaced'] else 'Cluster'}"
        yield f"  verbs {' '.join(resource['verbs'])}"
        for sub in subresources:
            other = f"{sub['group']}/{sub['version']}" if "group" in sub else version
            differs = f" kind={other}.{sub['kind']}" if (other, sub["kind"]) != (version, kind) else ""
            yield f"  subresource {sub['name'].split('/')[1]} {' '.join(sub['verbs'])}{differs}"
        if "list" in resource["verbs"]:
            assert self.facts.definition(version, kind + "List").get("gvk"), kind
            yield f"  list {kind}List"
        yield from self.rules.get((version, kind), ())

    def types(self, version):
        with_resource = {r["kind"] for r in self.facts.resources.get(version, ()) if "/" not in r["name"]}
        for name, fields in sorted(self.overlay[version].items()):
            yield self.type(version, name, fields, name in with_resource)

    def type(self, version, name, fields, is_kind):
        definition = self.facts.definition(version, name)
        union = "".join(
            f" union={u.get('discriminator', '')}:{','.join(sorted(u['fields-to-discriminateBy']))}"
            for u in definition.get("unions", ())
        )
        yield f"type {name}" + (f" map={definition['map-type']}" if "map-type" in definition else "") + union
        in_proto = definition.get("protoOnly", {})
        known = known_fields(self.facts, self.overlay, version, name)
        for field in fields:
            if field.embedded == "TypeMeta":
                if not is_kind:
                    yield from ("  - kind string", "  - apiVersion string")
            elif field.embedded:
                number = next(n for n, proto in in_proto.values() if proto == field.embedded)
                yield f"  {number} ... {field.embedded}"
            else:
                fact = known.get(field.name, {})
                own = definition.get("fields", {}).get(field.name, {})
                number = field.number or own.get("tag") or in_proto.get(field.name, ["-"])[0]
                kind = field.type or self.facts.spell(fact["type"], version)
                words = [str(number), field.name, field.mark + kind, *attributes(field, fact)]
                yield "  " + " ".join(words)


def attributes(field, fact):
    if field.go:
        yield f"go={field.go}"
    if fact.get("required"):
        yield "required"
    if "default" in fact:
        yield "default=" + json.dumps(fact["default"], separators=(",", ":"))
    if "list" in fact:
        keys = f"({','.join(fact['keys'])})" if "keys" in fact else ""
        yield f"list={fact['list']}{keys}"
    if fact.get("map") == "atomic":
        yield "map=atomic"
    if "patchStrategy" in fact:
        yield f"patch={fact['patchStrategy']}"
    if "mergeKey" in fact:
        yield f"key={fact['mergeKey']}"


def known_fields(facts, overlay, version, name):
    """What schema.json says of a type's fields. It describes an inlined field only where it appears in JSON:
    on the type that embeds."""
    known = {}
    for other, fields in sorted(overlay[version].items()):
        if any(field.embedded == name for field in fields):
            known |= known_fields(facts, overlay, version, other)
    return known | facts.definition(version, name).get("fields", {})


class Check:
    """Reads the data files as the program does, and lists where they and the facts disagree."""

    def __init__(self, facts, folder):
        self.facts, self.errors = facts, []
        self.types, self.kinds, self.n_fields = {}, {}, 0
        for path in sorted(folder.glob("*.kinds")):
            self.read(path)

    def read(self, path):
        block = None
        for line in path.read_text().splitlines():
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if words[0] == "group":
                group = words[1]
            elif words[0] == "version":
                version = f"{group}/{words[1]}"
            elif not line.startswith(" "):
                table = {"kind": self.kinds, "type": self.types}[words[0]]
                if (version, words[1]) in table:
                    self.errors.append(f"{version}.{words[1]}: appears twice")
                block = table[version, words[1]] = []
            else:
                block.append(words)

    def run(self):
        for (version, name), lines in self.types.items():
            self.check_type(version, name, lines)
        for package in self.facts.version_of:
            self.check_coverage(package)
        for version, resources in self.facts.resources.items():
            self.check_resources(version, resources)
        return self.errors

    def check_type(self, version, name, lines):
        numbers = [line[0] for line in lines if line[0] != "-"]
        if len(numbers) != len(set(numbers)):
            self.errors.append(f"{version}.{name}: a protobuf number appears twice")
        for number, field, text, *_ in lines:
            self.n_fields += field != "..."
            base = bare(text)
            reference = re.sub(r"^(\[\]|map\[string\])*", "", base)
            scalar = reference in SPECIALS or reference in SCALARS.values()
            if not scalar and self.resolve(reference, version) not in self.types:
                self.errors.append(f"{version}.{name}: {reference} does not exist")
        names = [line[1] for line in self.flat(version, name)]
        for field in {field for field in names if names.count(field) > 1}:
            self.errors.append(f"{version}.{name}: {field} appears twice")
        self.check_fields(version, name)

    def check_fields(self, version, name):
        definition = self.facts.definition(version, name)
        facts = definition.get("fields", {})
        lines = {line[1]: line for line in self.flat(version, name)}
        own = {line[1]: line for line in self.types[version, name]}
        implicit = {"kind", "apiVersion"} if (version, name) in self.kinds else set()
        for field in facts.keys() - lines.keys() - implicit:
            self.errors.append(f"{version}.{name}: lacks {field}")
        for field in lines.keys() - facts.keys() if facts else ():
            self.errors.append(f"{version}.{name}: {field} is no fact")
        for field, fact in facts.items():
            if field not in lines:
                continue
            spelled, expected = bare(lines[field][2]), self.facts.spell(fact["type"], version)
            if spelled != expected:
                self.errors.append(f"{version}.{name}.{field}: {spelled}, but {expected} in the facts")
            if "tag" in fact and (field not in own or own[field][0] != str(fact["tag"])):
                self.errors.append(f"{version}.{name}.{field}: its protobuf number is {fact['tag']}")
            missing = set(attributes(Field(field), fact | {"default": 0})) - set(lines[field][3:]) - {"default=0"}
            if missing:
                self.errors.append(f"{version}.{name}.{field}: lacks {' '.join(sorted(missing))}")
        numbers = {str(number) for number, _ in definition.get("protoOnly", {}).values()}
        for number in numbers - {line[0] for line in own.values()}:
            self.errors.append(f"{version}.{name}: lacks protobuf number {number}")

    def flat(self, version, name):
        """The lines of a type, those of embedded structs in their place."""
        for line in self.types.get((version, name), ()):
            yield from self.flat(version, line[2]) if line[1] == "..." else [line]

    def check_coverage(self, package):
        """Every definition of a version that we serve is here, unless it is a list or special."""
        version = self.facts.version_of[package]
        if version not in self.facts.resources:
            return
        for definition, fact in self.facts.schema.items():
            name = definition.rsplit(".", 1)[1]
            if definition.rsplit(".", 1)[0] != package or "fields" not in fact or name in SPECIALS:
                continue
            is_list = name.endswith("List") and (version, name[:-4]) in self.kinds
            if not is_list and (version, name) not in self.types:
                self.errors.append(f"{version}.{name}: missing")

    def check_resources(self, version, resources):
        for resource in resources:
            plural, _, sub = resource["name"].partition("/")
            main = next(r["kind"] for r in resources if r["name"] == plural)
            lines = self.kinds.get((version, main), [])
            if sub:
                found = [line for line in lines if line[:2] == ["subresource", sub]]
                words = [w for line in found for w in line[2:] if "=" not in w]
                kinds = [w[5:] for line in found for w in line if w.startswith("kind=")]
                group = f"{resource['group']}/{resource['version']}" if "group" in resource else version
                if kinds and kinds != [f"{group}.{resource['kind']}"] or not kinds and resource["kind"] != main:
                    self.errors.append(f"{version} {resource['name']}: its kind is {group}.{resource['kind']}")
                target = self.resolve(kinds[0], version) if kinds else (version, main)
            else:
                words = next((line[1:] for line in lines if line[0] == "verbs"), [])
                target = (version, main)
                scope = "Namespaced" if resource["namespaced"] else "Cluster"
                for expected in (
                    ["names", plural, resource["singularName"]], ["scope", scope],
                    ["short", *resource.get("shortNames", ())], ["categories", *resource.get("categories", ())],
                    ["list", *([main + "List"] if "list" in resource["verbs"] else [])],
                ):
                    if len(expected) > 1 and expected not in lines:
                        self.errors.append(f"{version} {plural}: lacks {' '.join(expected)}")
            if words != resource["verbs"]:
                self.errors.append(f"{version} {resource['name']}: verbs differ")
            if target not in self.types:
                self.errors.append(f"{version} {resource['name']}: its kind has no type")

    def resolve(self, reference, version):
        return tuple(reference.rsplit(".", 1)) if "/" in reference else (version, reference)


def bare(text):
    """A type without its presence mark and Go's names."""
    return re.sub(r"\([^)]*\)", "", text.lstrip("?!~"))


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--facts", type=pathlib.Path, required=True, help="folder of schema.json and discovery.json")
    arguments.add_argument("--out", type=pathlib.Path, default=REPOSITORY / "crates/schemas/data")
    arguments.add_argument("--check", action="store_true", help="compare only")
    options = arguments.parse_args()
    facts = Facts(options.facts)
    if not options.check:
        overlay = read_overlay(REPOSITORY / "crates/kinds/overlay")
        writer = Writer(facts, overlay, read_rules(REPOSITORY / "crates/schemas/data"))
        options.out.mkdir(parents=True, exist_ok=True)
        for group in sorted({version.split("/")[0] for version in overlay}):
            (options.out / f"{group}.kinds").write_text(writer.group(group))
    check = Check(facts, options.out)
    errors = check.run()
    print(*errors, sep="\n", end="\n" if errors else "")
    print(f"{len(check.kinds)} kinds, {len(check.types)} types, {check.n_fields} fields, {len(errors)} errors")
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
