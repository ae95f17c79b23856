#!/bin/sh
# From nothing to an operator that is tested and runs, as a new user gets there. Prints each command with its seconds, and
# the sum. The programs come from the PATH; `cargo` builds in CARGO_TARGET_DIR.
set -eu

commands=0
total=0
programs=

trap 'for program in $programs; do kill "$program" 2>/dev/null || true; done' EXIT

# report BEGAN COMMAND…: prints what a command took.
report() {
    took=$(($(date +%s%3N) - $1))
    shift
    commands=$((commands + 1))
    total=$((total + took))
    printf '%7d.%03d s  %s\n' $((took / 1000)) $((took % 1000)) "$*"
}

# run COMMAND…: runs it to its end.
run() {
    began=$(date +%s%3N)
    if ! "$@" >../output 2>&1; then
        cat ../output
        echo "FAILED: $*"
        exit 1
    fi
    report "$began" "$@"
}

# start WORD COMMAND…: runs it in the background, until it prints the word.
start() {
    word=$1
    shift
    began=$(date +%s%3N)
    log=../program-$commands
    "$@" >"$log" 2>&1 &
    program=$!
    programs="$programs $program"
    until grep -q "$word" "$log"; do
        if ! kill -0 "$program" 2>/dev/null; then
            cat "$log"
            echo "FAILED: $*"
            exit 1
        fi
        sleep 0.1
    done
    report "$began" "$@"
}

mkdir work
cd work
run mizzen init --domain example.com --name shop-operator
began=$(date +%s%3N)
cd shop-operator
report "$began" cd shop-operator
run mizzen create api --group shop --version v1alpha1 --kind Oven --namespaced --controller
run cargo test
start ready mizzen up --in-memory --kubeconfig kubeconfig
start runs cargo run -- --local --kubeconfig kubeconfig
run kubectl --kubeconfig kubeconfig apply -f config/samples
run kubectl --kubeconfig kubeconfig wait --for=condition=Ready --timeout=60s oven/oven-sample
printf '%7d.%03d s  %d commands\n' $((total / 1000)) $((total % 1000)) "$commands"
