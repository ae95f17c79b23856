#!/usr/bin/env python3
"""Condenses the objects that Kubernetes makes at start into the data files of crates/cluster.

    tools/condense_access.py --facts ../shared/facts            write crates/bootstrap/data/{access.roles,flow.yaml}
    tools/condense_access.py --facts ../shared/facts --check    say which files differ from the facts, write nothing

The fact is bootstrap.json: roles, bindings, flow schemas and priority levels as upstream has them after its
controllers have run. crates/bootstrap/data/README.md describes the files.
"""

import argparse
import json
import pathlib
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
LABEL = "rbac.authorization.k8s.io/aggregate-to-"


def texts(values):
    return " ".join(value or '""' for value in values)


def rule_line(rule):
    verbs = texts(rule["verbs"])
    if "nonResourceURLs" in rule:
        return f"  {verbs} at {texts(rule['nonResourceURLs'])}"
    groups = " ".join(group or "core" for group in rule["apiGroups"])
    named = f" named {texts(rule['resourceNames'])}" if "resourceNames" in rule else ""
    return f"  {verbs} on {texts(rule['resources'])} in {groups}{named}"


def place(metadata):
    return "/".join(filter(None, [metadata.get("namespace"), metadata["name"]]))


def role_lines(role):
    words = ["role", place(role["metadata"])]
    labels = role["metadata"]["labels"]
    words += [f"joins={label[len(LABEL):]}" for label in labels if label.startswith(LABEL)]
    gathered = [
        label[len(LABEL):]
        for selector in role.get("aggregationRule", {}).get("clusterRoleSelectors", [])
        for label in selector["matchLabels"]
    ]
    words += [f"gathers={name}" for name in gathered]
    # What a role gathers is in the roles that it gathers from.
    rules = [] if gathered else [rule_line(rule) for rule in role["rules"] or []]
    return [" ".join(words)] + rules


def subject_line(subject):
    match subject["kind"]:
        case "ServiceAccount":
            return f"  account {subject['namespace']}/{subject['name']}"
        case kind:
            return f"  {kind.lower()} {subject['name']}"


def binding_lines(binding):
    reference = binding["roleRef"]
    kind = {"ClusterRole": "cluster", "Role": "local"}[reference["kind"]]
    head = f"binding {place(binding['metadata'])} of {kind} {reference['name']}"
    return [head] + [subject_line(subject) for subject in binding.get("subjects") or []]


def access(facts):
    lines = ["# Roles and bindings that are there from the start. README.md describes the format."]
    for kind in ("clusterroles", "roles"):
        for role in facts[kind]:
            lines += ["", *role_lines(role)]
    for kind in ("clusterrolebindings", "rolebindings"):
        for binding in facts[kind]:
            lines += ["", *binding_lines(binding)]
    return "\n".join(lines) + "\n"


def yaml(value, indent):
    """Maps and long lists in block form, short lists in flow form."""
    space = "  " * indent
    if isinstance(value, dict):
        out = ""
        for key, inner in value.items():
            if isinstance(inner, (dict, list)) and inner and not flat(inner):
                out += f"{space}{key}:\n{yaml(inner, indent + 1)}"
            else:
                out += f"{space}{key}: {json.dumps(inner) if not flat(inner) else flow(inner)}\n"
        return out
    return "".join(f"{space}- {yaml(item, indent + 1).lstrip()}" for item in value)


def flat(value):
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, (dict, list)) and all(
        not isinstance(item, (dict, list)) or isinstance(item, dict) and flat(item) and len(item) == 1 for item in values
    )


def flow(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key}: {flow(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    return json.dumps(value)


def load(facts):
    text = "# How requests share the server, from the start. README.md describes the format.\n"
    for kind in ("prioritylevelconfigurations", "flowschemas"):
        text += f"{kind}:\n"
        for item in facts[kind]:
            text += f"  {item['metadata']['name']}:\n{yaml(item['spec'], 2)}"
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--facts", type=pathlib.Path, required=True)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    facts = json.loads((arguments.facts / "bootstrap.json").read_text())
    folder = REPOSITORY / "crates" / "bootstrap" / "data"
    files = {folder / "access.roles": access(facts), folder / "flow.yaml": load(facts)}
    differing = [file for file, text in files.items() if not file.exists() or file.read_text() != text]
    if arguments.check:
        for file in differing:
            print(f"{file.relative_to(REPOSITORY)} differs from the facts")
        sys.exit(bool(differing))
    folder.mkdir(exist_ok=True)
    for file, text in files.items():
        file.write_text(text)


if __name__ == "__main__":
    main()
