#!/usr/bin/env python3
"""Writes crates/cluster/data/feature.gates: the feature gates of Kubernetes v1.36 with stage, default and lock.

Usage: condense_feature_gates.py KUBERNETES_SOURCE [--check]

The facts are read from the Go maps in which components register their gates; of each gate the newest entry that is not
newer than 1.36 counts. The marks `on`, `off` and `elsewhere` after a gate are kept by hand: see crates/cluster/data/README.md.
"""

import pathlib
import re
import sys

TARGET = pathlib.Path(__file__).parent.parent / "crates/cluster/data/feature.gates"
VERSION = (1, 36)
STAGING = "staging/src/k8s.io"
SOURCES = [
    "pkg/features/kube_features.go",
    f"{STAGING}/apiserver/pkg/features/kube_features.go",
    f"{STAGING}/apiextensions-apiserver/pkg/features/kube_features.go",
    f"{STAGING}/client-go/features/known_features.go",
    f"{STAGING}/component-base/logs/api/v1/kube_features.go",
    f"{STAGING}/component-base/metrics/features/kube_features.go",
    f"{STAGING}/component-base/zpages/features/kube_features.go",
    f"{STAGING}/controller-manager/pkg/features/kube_features.go",
]
NAME = re.compile(r'^\s*(\w+)(?:\s+(?:featuregate\.)?Feature)?\s*=\s*(?:featuregate\.Feature\()?"(\w+)"', re.M)
GATE = re.compile(r"^\t+(?:\w+\.)?(\w+): \{\n(.*?)^\t+\},", re.M | re.S)
SPEC = re.compile(r'\{Version: version\.MustParse\("(\d+)\.(\d+)"\), ([^}]*)\}')
STAGE = re.compile(r"PreRelease: (?:featuregate\.)?(\w+)")


def gates(source: pathlib.Path) -> dict[str, str]:
    texts = [(source / file).read_text() for file in SOURCES]
    names = dict(match for text in texts for match in NAME.findall(text))
    found = {}
    for text in texts:
        for identifier, body in GATE.findall(text):
            specs = [((int(major), int(minor)), fields) for major, minor, fields in SPEC.findall(body)]
            specs = [spec for spec in specs if spec[0] <= VERSION]
            if identifier not in names or not specs:
                continue
            fields = max(specs)[1]
            stage = STAGE.search(fields).group(1).lower()
            facts = [stage, "true" if re.search(r"\bDefault: true", fields) else "false"]
            found[names[identifier]] = " ".join(facts + ["locked"] * ("LockToDefault: true" in fields))
    return found


def marks() -> dict[str, str]:
    lines = TARGET.read_text().splitlines() if TARGET.exists() else []
    words = [line.split() for line in lines]
    return {word[0]: word[-1] for word in words if word and word[-1] in ("on", "off", "elsewhere")}


def main() -> None:
    kept = marks()
    lines = [
        " ".join([name, facts] + ([kept[name]] if name in kept else []))
        for name, facts in sorted(gates(pathlib.Path(sys.argv[1])).items())
    ]
    text = "\n".join(lines) + "\n"
    if "--check" not in sys.argv:
        TARGET.write_text(text)
    elif TARGET.read_text() != text:
        sys.exit(f"{TARGET} does not agree")


main()
