//! The program as a user starts it. `crates/cluster/tests/cluster/kubectl` runs `docs/own-api-server.md` with it.

use std::process::Command;

#[test]
fn the_help_names_both_commands() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_pizza"));
    let output = program.arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(help.contains("serve") && help.contains("convert"), "{help}");
}

#[test]
fn a_kubeconfig_that_does_not_exist_is_an_error() {
    let directory = std::env::temp_dir();
    let mut program = Command::new(env!("CARGO_BIN_EXE_pizza"));
    let program = program
        .args(["serve", "--port", "0", "--kubeconfig", "no-such-kubeconfig"])
        .arg("--certificate")
        .arg(directory.join(format!("pizza-{}.crt", std::process::id())));
    let output = program.output().unwrap();
    assert!(!output.status.success());
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("no-such-kubeconfig"), "{error}");
}
