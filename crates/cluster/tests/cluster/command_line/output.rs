//! Colours, and completion in shells.

use super::{Outcome, User, is_installed};

#[tokio::test]
async fn output_is_coloured_on_terminals_or_if_the_user_wants_it() {
    let user = User::new();
    user.succeed("up --detach --name dev --in-memory").await;
    let is_coloured = |text: &str| text.contains("\x1b[");
    assert!(!is_coloured(&user.succeed("status").await));
    let coloured = user.succeed("status --color always").await;
    assert!(coloured.contains("\x1b[32mready"), "{coloured}");
    let failed = user.mizzen("--color=always up --name dev").await.expect(4);
    failed.with_error(&["\x1b[1;31mmizzen up:\x1b[0m cluster dev runs already"]);
    let failed = user.mizzen("--color=always up --nonsense").await.expect(2);
    assert!(is_coloured(&failed.stderr), "{failed:?}");
    let failed = user.mizzen("up --nonsense").await.expect(2);
    assert!(!is_coloured(&failed.stderr), "{failed:?}");

    if !is_installed("script") {
        return;
    }
    let on_terminal = async |arguments: &str, no_color: Option<&str>| {
        let mut script = user.program("script");
        let command = format!("{} {arguments}", env!("CARGO_BIN_EXE_mizzen"));
        script
            .args(["-qec", &command, "/dev/null"])
            .env("TERM", "xterm");
        script.envs(no_color.map(|value| ("NO_COLOR", value)));
        Outcome::of(script).await.expect(0).stdout
    };
    assert!(is_coloured(&on_terminal("status", None).await));
    assert!(!is_coloured(&on_terminal("status", Some("1")).await));
    assert!(!is_coloured(
        &on_terminal("status --color never", None).await
    ));
}

#[tokio::test]
async fn bash_completes_commands_flags_and_values() {
    let user = User::new();
    let script = user.path().join("completion");
    std::fs::write(&script, user.succeed("completion bash").await).unwrap();
    for (words, expected) in [
        ("st", &["status"][..]),
        ("do", &["down"]),
        ("up --det", &["--detach"]),
        ("down --pur", &["--purge"]),
        ("status --output ", &["text", "json", "yaml"]),
        ("completion ", &["bash", "zsh", "fish"]),
        ("envtest in", &["install"]),
        // Hidden flags are not completed: flags of kube-apiserver that are rejected, and those between our own processes.
        ("up --egress-sel", &[]),
        ("up --detached", &[]),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let last = words.len();
        let line = format!(
            "source {}; COMP_WORDS=(mizzen {}); COMP_CWORD={last}; _mizzen mizzen '{}' '{}'; echo \"${{COMPREPLY[@]}}\"",
            script.display(),
            words
                .iter()
                .map(|word| format!("'{word}'"))
                .collect::<Vec<_>>()
                .join(" "),
            words[last - 1],
            if last > 1 { words[last - 2] } else { "mizzen" },
        );
        let mut bash = user.program("bash");
        bash.args(["--norc", "-c", &line]);
        let completed = Outcome::of(bash).await.expect(0).stdout;
        let completed: Vec<&str> = completed.split_whitespace().collect();
        assert!(
            expected.iter().all(|word| completed.contains(word)),
            "{words:?}: {completed:?}"
        );
        assert!(
            !expected.is_empty() || completed.is_empty(),
            "{words:?}: {completed:?}"
        );
    }
}

#[tokio::test]
async fn zsh_and_fish_have_scripts() {
    let user = User::new();
    for (shell, parts) in [
        ("zsh", &["#compdef mizzen\n", "--detach[", "status:"][..]),
        (
            "fish",
            &["complete -c mizzen", "-l detach", "-a \"status\""],
        ),
    ] {
        let text = user.succeed(&format!("completion {shell}")).await;
        for part in parts {
            assert!(text.contains(part), "{shell}: no {part}");
        }
        assert!(!text.contains("egress-selector") && !text.contains("detached-log"));
        if is_installed(shell) {
            let script = user.path().join(shell);
            std::fs::write(&script, text).unwrap();
            let mut checker = user.program(shell);
            checker.arg("-n").arg(&script);
            assert_eq!(Outcome::of(checker).await.expect(0).stderr, "");
        }
    }
    user.mizzen("completion tcsh").await.expect(2);
}
