//! Is `docs/flag-reference.md` the help of all commands?

use std::process::Command;

use super::check_generated;

const INTRODUCTION: &str = "\
# All flags

The help of every command, as `mizzen COMMAND --help` prints it. This page is generated;
[Flags of Kubernetes' components](flags.md) explains how they relate to upstream's.
";

/// The help of a command.
fn help(command: &[&str]) -> String {
    let mut process = Command::new(env!("CARGO_BIN_EXE_mizzen"));
    // The width is that of the page, and not of the terminal in which the test runs.
    process.args(command).arg("--help").env_remove("COLUMNS");
    let output = process.output().unwrap();
    assert!(output.status.success(), "{command:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.trim_end().lines().map(str::trim_end);
    lines.map(|line| format!("{line}\n")).collect()
}

/// The names of the subcommands in a help text.
fn subcommands(help: &str) -> Vec<&str> {
    let (_, commands) = help.split_once("\nCommands:\n").unwrap_or_default();
    let commands = commands.lines().take_while(|line| !line.is_empty());
    // A description may go on in the next line, farther to the right.
    let names = commands.filter_map(|line| line.strip_prefix("  "));
    let names = names.filter(|line| !line.starts_with(' '));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").collect()
}

/// Adds the section of a command and of its subcommands.
fn add_sections(command: &[&str], page: &mut String) {
    let help = help(command);
    let name = [&["mizzen"], command].concat().join(" ");
    *page += &format!("\n## {name}\n\n```text\n{help}```\n");
    for subcommand in subcommands(&help) {
        add_sections(&[command, &[subcommand]].concat(), page);
    }
}

#[test]
fn the_reference_has_all_flags() {
    let mut page = INTRODUCTION.to_owned();
    add_sections(&[], &mut page);
    assert!(page.contains("## mizzen envtest install\n"));
    check_generated("flag-reference.md", &page);
}
