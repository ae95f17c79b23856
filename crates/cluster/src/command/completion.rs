//! `mizzen completion`: a script that completes commands and flags in a shell.

use std::io::{self, Write as _};

use clap::{Args, Command, ValueEnum};
use clap_complete::{Shell, generate};

/// Print a script that completes commands, flags and their values in a shell
#[derive(Args)]
#[command(after_help = "Example:\n  source <(mizzen completion bash)\n  \
    mizzen completion zsh > \"${fpath[1]}/_mizzen\"\n  \
    mizzen completion fish > ~/.config/fish/completions/mizzen.fish")]
pub(crate) struct Completion {
    /// Complete in this shell
    #[arg(value_name = "SHELL", value_enum)]
    shell: CompletedShell,
}

/// A shell with completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CompletedShell {
    Bash,
    Zsh,
    Fish,
}

impl Completion {
    /// Prints the script for `command`.
    pub(crate) fn run(self, command: &Command) -> io::Result<()> {
        let shell = match self.shell {
            CompletedShell::Bash => Shell::Bash,
            CompletedShell::Zsh => Shell::Zsh,
            CompletedShell::Fish => Shell::Fish,
        };
        let mut script = Vec::new();
        generate(shell, &mut visible(command), "mizzen", &mut script);
        match io::stdout().write_all(&script) {
            // The reader wanted only the beginning.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written,
        }
    }
}

/// The command without hidden flags and subcommands, which the generators would complete, too.
fn visible(command: &Command) -> Command {
    let arguments = command.get_arguments().filter(|argument| {
        // Those of clap are added again.
        !argument.is_hide_set() && !["help", "version"].contains(&argument.get_id().as_str())
    });
    let subcommands = command
        .get_subcommands()
        .filter(|subcommand| !subcommand.is_hide_set() && subcommand.get_name() != "help");
    let about = command.get_about().cloned().unwrap_or_default();
    // Names are static for clap; the process ends soon.
    let name: &'static str = command.get_name().to_owned().leak();
    Command::new(name)
        .about(about)
        .args(arguments.cloned())
        .subcommands(subcommands.map(visible))
}
