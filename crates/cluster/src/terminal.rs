//! Output for people: colours on terminals, and progress of work that takes longer than a second.
//!
//! Colours follow `--color`; `auto` colours a terminal unless `NO_COLOR` is set (no-color.org) or `TERM` is `dumb`.

use std::io::{self, IsTerminal};
use std::sync::OnceLock;
use std::time::Duration;

use clap::ColorChoice;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::log::print_error;

/// When work is slow enough to be announced.
const FIRST: Duration = Duration::from_secs(1);
/// How often progress is printed after that.
const INTERVAL: Duration = Duration::from_secs(10);

static CHOICE: OnceLock<ColorChoice> = OnceLock::new();

/// Sets the choice of the user.
pub(crate) fn set_color(choice: ColorChoice) {
    let _ = CHOICE.set(choice);
}

/// The choice in arguments that are not parsed yet: errors of the parser are coloured, too.
pub(crate) fn color_choice(arguments: impl Iterator<Item = String>) -> ColorChoice {
    let mut arguments = arguments.peekable();
    let mut choice = ColorChoice::Auto;
    while let Some(argument) = arguments.next() {
        let value = match argument.strip_prefix("--color") {
            Some("") => arguments.peek().map(String::as_str),
            Some(rest) => rest.strip_prefix('='),
            None => None,
        };
        match value {
            Some("always") => choice = ColorChoice::Always,
            Some("never") => choice = ColorChoice::Never,
            _ => {}
        }
    }
    choice
}

/// What a piece of text says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// All is well: green.
    Good,
    /// Not yet, or not quite: yellow.
    Warning,
    /// An error: bold red.
    Bad,
    /// Of less interest: dim.
    Faint,
    /// A heading: bold.
    Heading,
}

/// A stream of output, with or without colours.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Palette {
    is_coloured: bool,
}

impl Palette {
    /// The palette of standard output.
    pub(crate) fn stdout() -> Palette {
        Palette::of(&io::stdout())
    }

    /// The palette of standard error.
    pub(crate) fn stderr() -> Palette {
        Palette::of(&io::stderr())
    }

    fn of(stream: &impl IsTerminal) -> Palette {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let is_coloured = match CHOICE.get() {
            Some(ColorChoice::Always) => true,
            Some(ColorChoice::Never) => false,
            _ => stream.is_terminal() && !is_set("NO_COLOR") && !is_dumb,
        };
        Palette { is_coloured }
    }

    /// The text in the colour of its tone.
    pub(crate) fn paint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Good => "32",
            Tone::Warning => "33",
            Tone::Bad => "1;31",
            Tone::Faint => "2",
            Tone::Heading => "1",
        };
        match self.is_coloured {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.into(),
        }
    }
}

/// Prints on standard error what the process waits for, after a second and then every ten, until it is dropped.
pub(crate) struct Progress(JoinHandle<()>);

impl Progress {
    /// Starts work: `what` is a sentence such as "starting cluster dev".
    pub(crate) fn start(what: String) -> Progress {
        Progress(tokio::spawn(async move {
            let started = Instant::now();
            tokio::time::sleep(FIRST).await;
            loop {
                print_error!("{what} … ({} s)", started.elapsed().as_secs());
                tokio::time::sleep(INTERVAL).await;
            }
        }))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_of_colours_is_known_before_arguments_are_parsed() {
        let choice = |arguments: &str| color_choice(arguments.split(' ').map(str::to_owned));
        assert_eq!(choice("mizzen up"), ColorChoice::Auto);
        assert_eq!(choice("mizzen --color=never up"), ColorChoice::Never);
        assert_eq!(choice("mizzen up --color always"), ColorChoice::Always);
        assert_eq!(choice("mizzen up --color blue"), ColorChoice::Auto);
    }
}
