//! `mizzen man`: manual pages, one per command.

use std::fs;
use std::io;
use std::path::PathBuf;

use clap::{Args, Command};
use clap_mangen::Man;

use super::server::data_home;
use crate::log::write_output;

/// Write a manual page for each command
#[derive(Args)]
#[command(
    after_help = "Example:\n  mizzen man\n  man mizzen-up\n  mizzen man ./man && man -l ./man/mizzen-up.1"
)]
pub(crate) struct ManCommand {
    /// Write the pages to this directory [default: ~/.local/share/man/man1]
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

/// Why pages were not written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", path.display())]
pub(crate) struct WriteManError {
    path: PathBuf,
    source: io::Error,
}

impl ManCommand {
    /// Writes the pages of `command` and its subcommands.
    pub(crate) fn run(self, command: Command) -> Result<(), WriteManError> {
        let directory = self
            .directory
            .unwrap_or_else(|| data_home().join("man/man1"));
        fs::create_dir_all(&directory).map_err(|source| WriteManError {
            path: directory.clone(),
            source,
        })?;
        let mut pages = Vec::new();
        collect(without_help(command), &mut pages);
        for (name, text) in &pages {
            let path = directory.join(name);
            fs::write(&path, text).map_err(|source| WriteManError { path, source })?;
        }
        let shown = directory.display();
        write_output(format_args!(
            "wrote {} manual pages to {shown}",
            pages.len()
        ));
        Ok(())
    }
}

/// The command without the subcommands `help`, which would have a page for every other one.
fn without_help(command: Command) -> Command {
    command
        .disable_help_subcommand(true)
        .mut_subcommands(without_help)
}

/// Adds the page of a command and those of its subcommands.
fn collect(mut command: Command, pages: &mut Vec<(String, Vec<u8>)>) {
    command.build();
    let subcommands: Vec<Command> = command
        .get_subcommands()
        .filter(|subcommand| !subcommand.is_hide_set())
        .cloned()
        .collect();
    let version = format!("mizzen {}", env!("CARGO_PKG_VERSION"));
    let after_help = command.get_after_help().map(ToString::to_string);
    let man = Man::new(command).source(version).manual("Mizzen");
    let mut text = Vec::new();
    let sections = [
        Man::render_title,
        Man::render_name_section,
        Man::render_synopsis_section,
        Man::render_description_section,
        Man::render_options_section,
    ];
    for section in sections {
        section(&man, &mut text).expect("a vector can be written");
    }
    if !subcommands.is_empty() {
        man.render_subcommands_section(&mut text)
            .expect("a vector can be written");
    }
    for paragraph in after_help.iter().flat_map(|help| help.split("\n\n")) {
        write_section(paragraph, &mut text);
    }
    pages.push((man.get_filename(), text));
    for subcommand in subcommands {
        collect(subcommand, pages);
    }
}

/// Writes a paragraph of the help as a section: examples and exit codes have a heading, other text continues the section.
fn write_section(paragraph: &str, text: &mut Vec<u8>) {
    let (heading, body) = match paragraph.split_once(':') {
        Some(("Example" | "Examples", body)) => (Some("EXAMPLES"), body),
        Some(("Exit codes", body)) => (Some("EXIT STATUS"), body),
        _ => (None, paragraph),
    };
    let mut write = |line: &str| {
        text.extend_from_slice(line.as_bytes());
        text.push(b'\n');
    };
    write(&heading.map_or_else(|| ".PP".into(), |heading| format!(".SH {heading:?}")));
    // Prose is filled; lines of commands are kept.
    let is_prose = heading.is_none() && !body.starts_with(' ');
    if !is_prose {
        write(".nf");
    }
    for line in body.trim_matches('\n').lines() {
        // A leading dot or quote would be a request, and an unescaped dash a hyphen that cannot be copied.
        let escaped = line.replace('\\', "\\e").replace('-', "\\-");
        write(&format!("\\&{escaped}"));
    }
    if !is_prose {
        write(".fi");
    }
}
