#!/usr/bin/env python3
"""Compares replayed conversations with the list of those that do not pass.

  compare.py unlisted LIST REPORT…   names that failed and are not listed, a line each
  compare.py verdict LIST REPORT…    says what is wrong with the list; exit code 1 if anything is

A REPORT is what replay.py --report writes: differences by name. A later one replaces names of an earlier one.
"""

import json
import sys


def listed(path):
    lines = [line.strip() for line in open(path) if line.strip() and not line.startswith("#")]
    reasons = dict(line.split(": ", 1) for line in lines)
    if len(reasons) != len(lines):
        sys.exit(f"{path}: a name is listed twice")
    return reasons


def main():
    what, expected, reports = sys.argv[1], listed(sys.argv[2]), sys.argv[3:]
    results = {}
    for report in reports:
        results.update(json.load(open(report)))
    failed = {name for name, differences in results.items() if differences}
    unlisted = sorted(failed - expected.keys())
    if what == "unlisted":
        print("\n".join(unlisted))
        return 0
    for name in unlisted:
        print(f"FAILED: {name}: {results[name][0][:300]}")
    stale = sorted(expected.keys() - failed)
    for name in stale:
        why = "passes" if name in results else "is not among the recordings"
        print(f"FAILED: {name} is listed as failing, but {why}")
    print(f"{len(results) - len(failed)} of {len(results)} recorded conversations pass, {len(failed)} fail")
    return 1 if unlisted or stale else 0


if __name__ == "__main__":
    sys.exit(main())
