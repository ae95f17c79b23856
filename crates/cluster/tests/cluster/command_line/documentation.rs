//! Manual pages, help and the table of exit codes.

use std::collections::BTreeMap;

use super::{Outcome, User, is_installed};

#[tokio::test]
async fn every_command_has_a_manual_page_with_an_example() {
    let user = User::new();
    let said = user.succeed("man ./pages").await;
    let mut names = Vec::new();
    for entry in std::fs::read_dir(user.path().join("pages")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for part in [".TH mizzen", ".SH NAME", ".SH SYNOPSIS", ".SH \"EXAMPLES\""] {
            assert!(text.contains(part), "{}: no {part}", path.display());
        }
        assert!(!text.contains("detached\\-log"), "{}", path.display());
        if is_installed("groff") {
            let mut groff = user.program("groff");
            groff
                .args(["-man", "-K", "utf8", "-T", "utf8", "-ww", "-P", "-cbu"])
                .arg(&path);
            let shown = Outcome::of(groff).await.expect(0);
            assert_eq!(shown.stderr, "", "{}", path.display());
            assert!(shown.stdout.contains("EXAMPLES"), "{}", shown.stdout);
        }
        names.push(path.file_name().unwrap().to_str().unwrap().to_owned());
    }
    for name in [
        "mizzen.1",
        "mizzen-up.1",
        "mizzen-down.1",
        "mizzen-status.1",
        "mizzen-envtest-install.1",
    ] {
        assert!(names.iter().any(|known| known == name), "{names:?}");
    }
    assert_eq!(
        said,
        format!("wrote {} manual pages to ./pages\n", names.len())
    );
    let said = user.succeed("man").await;
    assert!(said.ends_with("/.local/share/man/man1\n"), "{said}");
}

/// Runs `--help` of a command and of its subcommands, and returns the number of commands.
async fn count_examples(user: &User, command: String) -> usize {
    let help = user.succeed(&format!("{command} --help")).await;
    assert!(
        help.contains("\nExample:\n  ") || help.contains("\nExamples:\n  "),
        "mizzen {command}: {help}"
    );
    let listed = help
        .split_once("\nCommands:\n")
        .map_or("", |(_, rest)| rest);
    let names = listed
        .lines()
        .take_while(|line| !line.is_empty())
        // Descriptions continue on lines that are indented further.
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|name| !["", "help"].contains(name));
    let mut n_commands = 1;
    for name in names {
        n_commands += Box::pin(count_examples(user, format!("{command} {name}"))).await;
    }
    n_commands
}

#[tokio::test]
async fn the_help_of_every_command_shows_an_example() {
    let n_commands = count_examples(&User::new(), String::new()).await;
    assert!(n_commands >= 15, "{n_commands}");
}

#[tokio::test]
async fn exit_codes_are_as_documented() {
    let document = [env!("CARGO_MANIFEST_DIR"), "../../docs/command-line.md"].join("/");
    let document = std::fs::read_to_string(document).unwrap();
    let documented: BTreeMap<i32, &str> = document
        .lines()
        .filter_map(|line| {
            let (code, meaning) = line
                .strip_prefix("| ")?
                .strip_suffix(" |")?
                .split_once(" | ")?;
            Some((code.parse().ok()?, meaning))
        })
        .collect();
    let user = User::new();
    let help = user.succeed("--help").await;
    let (_, listed) = help.split_once("Exit codes:\n").unwrap();
    let listed: BTreeMap<i32, &str> = listed
        .lines()
        .filter_map(|line| {
            let (code, meaning) = line.trim().split_once(' ')?;
            Some((code.parse().ok()?, meaning.trim()))
        })
        .collect();
    assert_eq!(listed, documented);

    // Those of clusters that run are tested in `clusters`.
    for (arguments, code) in [
        ("--version", 0),
        ("status", 0),
        ("down --all", 0),
        ("up --detach --name dev --scheduler-config none.yaml", 1),
        ("trace deployment/web --kubeconfig none", 1),
        ("", 2),
        ("nonsense", 2),
        ("up --name A", 2),
        ("status --name none", 3),
        ("down --name none", 3),
    ] {
        assert!(documented.contains_key(&code), "{code}");
        user.mizzen(arguments).await.expect(code);
    }
}
