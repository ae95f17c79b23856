//! The flags of this process and their values, as `/flagz` shows them.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use clap::{ArgMatches, Command};

static FLAGS: OnceLock<BTreeMap<String, String>> = OnceLock::new();

/// Records the flags of the subcommand. Hidden flags are left out unless they are set.
pub(crate) fn record(command: &Command, matches: &ArgMatches) {
    let subcommand = matches
        .subcommand()
        .and_then(|(name, matches)| Some((command.find_subcommand(name)?, matches)));
    let Some((command, matches)) = subcommand else {
        return;
    };
    let mut flags = BTreeMap::new();
    for argument in command.get_arguments() {
        let raw = matches.try_get_raw(argument.get_id().as_str());
        let values: Vec<_> = raw.ok().flatten().into_iter().flatten().collect();
        let Some(name) = argument.get_long() else {
            continue;
        };
        if argument.is_hide_set() && values.is_empty() {
            continue;
        }
        let text = values
            .iter()
            .map(|value| value.to_string_lossy())
            .collect::<Vec<_>>()
            .join(",");
        flags.insert(name.to_owned(), text);
    }
    let _ = FLAGS.set(flags);
}

/// The flags of this process.
pub(crate) fn flags() -> BTreeMap<String, String> {
    FLAGS.get().cloned().unwrap_or_default()
}
