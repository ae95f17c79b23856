//! Scripts with their output, times and exit codes.

use std::time::Duration;

use super::*;

const BEGIN: Moment = Moment::from_secs(1_600_000_000);

/// A volume with one file that changes, one below a directory, and one with unknown content.
fn files(content: &str) -> Files {
    [
        ("key", Some(content)),
        ("sub/deep", Some("x")),
        ("token", None),
    ]
    .map(|(name, content)| {
        (
            format!("/etc/config/{name}").into(),
            content.map(Into::into),
        )
    })
    .into()
}

#[track_caller]
fn check(script: &str, lines: &[(u64, &str)], outcome: ProgramOutcome) {
    let words = ["sh", "-c", script].map(String::from);
    let variables = [("HOSTNAME", "web-0"), ("GREETING", "hello world")];
    let environment = ContainerEnvironment {
        variables: variables
            .map(|(name, value)| (name.into(), value.into()))
            .into(),
        files: vec![
            (Moment::default(), files("value\n")),
            (BEGIN + Duration::from_secs(30), files("later\n")),
        ],
        mounts: vec!["/etc/config".into()],
        started: BEGIN,
    };
    let Some(parsed) = parse(&words) else {
        return assert_eq!(
            outcome,
            ProgramOutcome::Unknown {
                after: Duration::ZERO
            },
            "{script}: not understood"
        );
    };
    let found = ShellProgram::Script(parsed).run(
        &environment,
        ProcessIo::default(),
        ShellLimits {
            until: Duration::from_secs(100),
            steps: 10_000,
            lines: 50,
        },
    );
    let lines: Vec<(Duration, String)> = lines
        .iter()
        .map(|(at, line)| (Duration::from_secs(*at), line.to_string()))
        .collect();
    assert_eq!((found.outcome(), found.lines), (outcome, lines), "{script}");
}

fn exits(after: u64, code: i64) -> ProgramOutcome {
    ProgramOutcome::Exited {
        after: Duration::from_secs(after),
        code,
    }
}

fn unknown(after: u64) -> ProgramOutcome {
    ProgramOutcome::Unknown {
        after: Duration::from_secs(after),
    }
}

#[test]
fn commands_print_take_time_and_end() {
    check("echo YAY", &[(0, "YAY")], exits(0, 0));
    check("sleep 5", &[], exits(5, 0));
    check(
        "echo a; sleep 2; echo b; exit 3",
        &[(0, "a"), (2, "b")],
        exits(2, 3),
    );
    check(
        "sleep 1m 0.5",
        &[],
        ProgramOutcome::Exited {
            after: Duration::from_millis(60_500),
            code: 0,
        },
    );
    check("false", &[], exits(0, 1));
    check("true && echo yes || echo no", &[(0, "yes")], exits(0, 0));
    check("false && echo yes || echo no", &[(0, "no")], exits(0, 0));
    check("! true", &[], exits(0, 1));
    check("echo -n a; echo b", &[(0, "ab")], exits(0, 0));
    check(
        "printf '%s-%d\\n' a 1 b 2",
        &[(0, "a-1"), (0, "b-2")],
        exits(0, 0),
    );
    check("printf 'no break'", &[(0, "no break")], exits(0, 0));
    check("date", &[(0, "Sun Sep 13 12:26:40 UTC 2020")], exits(0, 0));
    check(
        "sleep 20; date -u +%Y-%m-%dT%H:%M:%SZ",
        &[(20, "2020-09-13T12:27:00Z")],
        exits(20, 0),
    );
    check("exec echo a; echo b", &[(0, "a")], exits(0, 0));
}

#[test]
fn variables_and_files_of_the_container_are_seen() {
    check(
        "echo $GREETING from ${HOSTNAME}",
        &[(0, "hello world from web-0")],
        exits(0, 0),
    );
    check(
        "printenv GREETING; hostname",
        &[(0, "hello world"), (0, "web-0")],
        exits(0, 0),
    );
    check(
        "env",
        &[(0, "GREETING=hello world"), (0, "HOSTNAME=web-0")],
        exits(0, 0),
    );
    check("cat /etc/config/key", &[(0, "value")], exits(0, 0));
    let missing = "cat: can't open '/etc/config/none': No such file or directory";
    check("cat /etc/config/none", &[(0, missing)], exits(0, 1));
    check(
        "X=1; echo \"$X\" '$X' \\$X ${Y:-none} ${#X}",
        &[(0, "1 $X $X none 1")],
        exits(0, 0),
    );
    check(
        "X=$(cat /etc/config/key)-$((2 + 3 * 4)); echo $X",
        &[(0, "value-14")],
        exits(0, 0),
    );
    check("set -- ; echo a", &[], unknown(0));
}

#[test]
fn only_files_of_volumes_exist() {
    check(
        "cat /etc/config/key /etc//config/sub/deep",
        &[(0, "value"), (0, "x")],
        exits(0, 0),
    );
    check(
        "cat /etc/config/key; sleep 60; cat /etc/config/key",
        &[(0, "value"), (60, "later")],
        exits(60, 0),
    );
    check(
        "cat /etc/config",
        &[(0, "cat: read error: Is a directory")],
        exits(0, 1),
    );
    check(
        "ls /etc/config; ls -1 /etc/config/sub/",
        &[(0, "key"), (0, "sub"), (0, "token"), (0, "deep")],
        exits(0, 0),
    );
    check(
        "ls /etc/config/none",
        &[(0, "ls: /etc/config/none: No such file or directory")],
        exits(0, 1),
    );
    check(
        "test -f /etc/config/key && [ -d /etc/config/sub ] && [ ! -e /etc/config/none ]",
        &[],
        exits(0, 0),
    );
    check(
        "[ -d /etc/config/key ] || [ -f /etc/config/sub ]",
        &[],
        exits(0, 1),
    );
    for script in [
        "cat /etc/passwd",
        "cat key",
        "ls /etc",
        "cat /etc/config/token",
        "[ -f /etc/configuration ]",
    ] {
        check(script, &[], unknown(0));
    }
}

#[test]
fn commands_that_read_files_are_recognized() {
    let may_read = |words: &[&str]| {
        may_read_files(
            &words
                .iter()
                .map(|word| word.to_string())
                .collect::<Vec<_>>(),
        )
    };
    assert!(may_read(&["/bin/cat", "x"]) && may_read(&["sh", "-c", "echo $(cat x)"]));
    assert!(may_read(&["sh", "-c", "if [ -f x ];then :;fi"]));
    assert!(
        !may_read(&["sleep", "infinity"]) && !may_read(&["sh", "-c", "false || echo concatenate"])
    );
}

#[test]
fn loops_and_conditions_run_on_virtual_time() {
    check(
        "for i in 1 2 3; do echo $i; sleep 1; done",
        &[(0, "1"), (1, "2"), (2, "3")],
        exits(3, 0),
    );
    check(
        "i=0; while [ $i -lt 2 ]; do echo $i; i=$((i+1)); sleep 1; done",
        &[(0, "0"), (1, "1")],
        exits(2, 0),
    );
    check(
        "until false; do echo once; break; done",
        &[(0, "once")],
        exits(0, 0),
    );
    check(
        "if [ \"$GREETING\" = x ]; then echo x; elif true; then echo y; else echo z; fi",
        &[(0, "y")],
        exits(0, 0),
    );
    check("(exit 3); echo $?", &[(0, "3")], exits(0, 0));
    check(
        "{ echo a; echo b; } && echo c",
        &[(0, "a"), (0, "b"), (0, "c")],
        exits(0, 0),
    );
    check("set -e\nfalse\necho never", &[], exits(0, 1));
    check(
        "set -e; if false; then echo a; fi; false || true; echo on",
        &[(0, "on")],
        exits(0, 0),
    );
}

#[test]
fn endless_scripts_are_bounded() {
    check("sleep infinity", &[], ProgramOutcome::Running);
    check(
        "while true; do sleep 40; echo tick; done",
        &[(40, "tick"), (80, "tick")],
        ProgramOutcome::Running,
    );
    check("while :; do :; done", &[], ProgramOutcome::Running);
    let program =
        ShellProgram::container_status(&["seq", "1", "1000000"].map(String::from)).unwrap();
    let found = program.run(
        &ContainerEnvironment::default(),
        ProcessIo::default(),
        ShellLimits {
            until: Duration::ZERO,
            steps: 1_000,
            lines: 10,
        },
    );
    assert_eq!(
        (found.lines.len(), found.outcome()),
        (10, ProgramOutcome::Running)
    );
}

#[test]
fn the_first_unknown_command_ends_the_simulation() {
    check(
        "echo starting; sleep 1; nginx -g 'daemon off;'",
        &[(0, "starting")],
        unknown(1),
    );
    check("echo to a file > /tmp/x; echo more", &[], unknown(0));
    check(
        "echo hidden > /dev/null 2>&1; echo shown >&2",
        &[(0, "shown")],
        exits(0, 0),
    );
    check(
        "echo shown 2>/dev/null; cat /etc/config/none 2>/dev/null",
        &[(0, "shown")],
        exits(0, 1),
    );
    for script in [
        "ls | wc -l",
        "sleep 1 & wait",
        "case x in x) ;; esac",
        "f() { echo; }",
        "echo 'open",
        "cat < x",
        "if true",
    ] {
        check(script, &[], unknown(0));
    }
    assert_eq!(parse(&["nginx".into()]), None);
    assert_eq!(parse(&[]), None);
}

#[test]
fn a_command_without_a_shell_is_literal() {
    let words = ["/bin/echo", "$HOME;", "a  b"].map(String::from);
    let found = ShellProgram::container_status(&words).unwrap().run(
        &ContainerEnvironment::default(),
        ProcessIo::default(),
        ShellLimits::until(Duration::ZERO),
    );
    assert_eq!(found.lines, [(Duration::ZERO, "$HOME; a  b".to_owned())]);
}

#[test]
fn random_text_neither_panics_nor_hangs() {
    let pieces = [
        "echo", " ", "a", ";", "&&", "||", "(", ")", "{", "}", "if", "then", "fi", "do", "done",
        "while", "$", "$(", "${", "}", "\"", "'", "\\", "\n", "X=", "$((", "1",
    ];
    let mut seed = 7_u64;
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..12 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            text.push_str(pieces[(seed >> 33) as usize % pieces.len()]);
        }
        if let Some(script) = parse(&["sh".into(), "-c".into(), text]) {
            ShellProgram::Script(script).run(
                &ContainerEnvironment::default(),
                ProcessIo::default(),
                ShellLimits {
                    until: Duration::from_secs(1),
                    steps: 500,
                    lines: 5,
                },
            );
        }
    }
}

/// Checks a command of a client: its output as `1 text` and `2 text`, and its state after a hundred
/// seconds.
#[track_caller]
fn check_exec(
    words: &[&str],
    tty: bool,
    typed: &[(u64, &str)],
    output: &[&str],
    state: ProgramState,
) {
    let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
    let environment = ContainerEnvironment {
        variables: [("HOSTNAME".to_owned(), "web-0".to_owned())].into(),
        files: vec![(Moment::default(), files("value\n"))],
        mounts: vec!["/etc/config".into()],
        started: Moment::from_secs(1_600_000_000),
    };
    let input = typed.iter().map(|(at, text)| {
        let typed = match *text {
            "^C" => Typed::Interrupt,
            "^D" => Typed::End,
            text => Typed::Data(text.as_bytes().to_vec()),
        };
        (Duration::from_secs(*at), typed)
    });
    let program = ShellProgram::parse(&words).expect("a known program");
    let input = input.collect();
    let io = ProcessIo {
        input: Some(&input),
        tty,
        is_exec: true,
        records_from: Some(Duration::ZERO),
        ..ProcessIo::default()
    };
    let limits = ShellLimits {
        steps: 200_000,
        ..ShellLimits::until(Duration::from_secs(100))
    };
    let progress = program.run(&environment, io, limits);
    let found: Vec<String> = progress
        .output
        .iter()
        .map(|(descriptor, text)| {
            format!(
                "{} {text}",
                if *descriptor == Descriptor::Stdout {
                    "1"
                } else {
                    "2"
                }
            )
        })
        .collect();
    assert_eq!(
        (
            found.iter().map(String::as_str).collect::<Vec<_>>(),
            progress.state
        ),
        (output.to_vec(), state)
    );
}

#[test]
fn an_executed_command_has_two_outputs_and_an_exit_code() {
    let none: &[(u64, &str)] = &[];
    check_exec(
        &["echo", "hi"],
        false,
        none,
        &["1 hi", "1 \n"],
        ProgramState::Exited(0),
    );
    check_exec(
        &["sh", "-c", "echo a >&2; exit 3"],
        false,
        none,
        &["2 a", "2 \n"],
        ProgramState::Exited(3),
    );
    check_exec(
        &["sh", "-c", "nginx; cat /none; cat /etc/config/key"],
        false,
        none,
        &[
            "2 sh: nginx: not found\n",
            "2 cat: can't open '/none': No such file or directory\n",
            "1 value\n",
        ],
        ProgramState::Exited(0),
    );
    check_exec(
        &["sh", "-c", "nginx"],
        false,
        none,
        &["2 sh: nginx: not found\n"],
        ProgramState::Exited(127),
    );
    check_exec(
        &[
            "sh",
            "-c",
            "nginx 2>/dev/null; nginx 2>&1; test -e /x || echo no",
        ],
        false,
        none,
        &["1 sh: nginx: not found\n", "1 no", "1 \n"],
        ProgramState::Exited(0),
    );
    check_exec(
        &["sleep", "1000"],
        false,
        none,
        &[],
        ProgramState::Sleeping(Duration::from_secs(1_000)),
    );
    check_exec(
        &["sh", "-c", "while :; do :; done"],
        false,
        none,
        &[],
        ProgramState::Exhausted,
    );
    let pipe = "2 sh: syntax error: a pipe is not understood\n";
    check_exec(
        &["sh", "-c", "ls | wc"],
        false,
        none,
        &[pipe],
        ProgramState::Exited(2),
    );
    let file = "2 sh: can't open 'run.sh': No such file or directory\n";
    check_exec(
        &["bash", "run.sh"],
        false,
        none,
        &[file],
        ProgramState::Exited(2),
    );
    assert_eq!(ShellProgram::parse(&["nginx".into()]), None);
}

#[test]
fn a_shell_reads_commands_until_the_end() {
    let typed = [
        (0, "X=1; ech"),
        (1, "o $X\nfor i in a b; do\n"),
        (2, "echo $i\ndone\nfalse\n"),
        (3, "^D"),
    ];
    let printed = ["1 1", "1 \n", "1 a", "1 \n", "1 b", "1 \n"];
    check_exec(&["sh"], false, &typed, &printed, ProgramState::Exited(1));
    check_exec(&["sh"], false, &typed[..1], &[], ProgramState::Reading);
    check_exec(
        &["sh"],
        false,
        &[(0, "exit 4\necho never\n")],
        &[],
        ProgramState::Exited(4),
    );
    let broken = ["2 sh: syntax error: unexpected end of file\n"];
    check_exec(
        &["sh"],
        false,
        &[(0, "if true\n"), (0, "^D")],
        &broken,
        ProgramState::Exited(2),
    );
    check_exec(
        &["cat"],
        false,
        &[(0, "a\nb"), (5, "c"), (6, "^D")],
        &["1 a\n", "1 bc"],
        ProgramState::Exited(0),
    );
}

#[test]
fn a_terminal_has_prompts_and_control_c_interrupts_a_command() {
    let typed = [
        (1, "sleep 50\n"),
        (5, "^C"),
        (6, "echo $?\n"),
        (7, "^C"),
        (8, "exit\n"),
    ];
    let printed = ["2 # ", "2 # ", "1 130", "1 \n", "2 # ", "2 # "];
    check_exec(&["sh"], true, &typed, &printed, ProgramState::Exited(130));
    check_exec(
        &["sleep", "50"],
        true,
        &[(5, "^C")],
        &[],
        ProgramState::Exited(130),
    );
    check_exec(
        &["sh"],
        true,
        &[(0, "if true\n")],
        &["2 # ", "2 > "],
        ProgramState::Reading,
    );
}

/// Checks a container's own process with some input: its lines, and its state after a hundred
/// seconds.
#[track_caller]
fn check_process(
    words: &[&str],
    typed: Option<&[(u64, &str)]>,
    lines: &[(u64, &str)],
    outcome: ProgramOutcome,
) {
    let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
    let event = |(at, text): &(u64, &str)| {
        let typed = match *text {
            "^D" => Typed::End,
            text => Typed::Data(text.as_bytes().to_vec()),
        };
        (Duration::from_secs(*at), typed)
    };
    let input: Option<Input> = typed.map(|typed| typed.iter().map(event).collect());
    let io = ProcessIo {
        input: input.as_ref(),
        ..ProcessIo::default()
    };
    let program = ShellProgram::container_status(&words).expect("a known program");
    let found = program.run(
        &ContainerEnvironment::default(),
        io,
        ShellLimits::until(Duration::from_secs(100)),
    );
    let lines: Vec<(Duration, String)> = lines
        .iter()
        .map(|(at, line)| (Duration::from_secs(*at), line.to_string()))
        .collect();
    assert_eq!(
        (found.outcome(), found.lines),
        (outcome, lines),
        "{words:?}"
    );
}

#[test]
fn the_process_of_a_container_reads_its_stdin() {
    let running = ProgramOutcome::Running;
    check_process(&["cat"], Some(&[]), &[], running);
    check_process(&["cat"], Some(&[(3, "a\nb")]), &[(3, "a")], running);
    let ended = [(3, "a\nb"), (5, "^D")];
    check_process(&["cat"], Some(&ended), &[(3, "a"), (5, "b")], exits(5, 0));
    let loops = "while read -r first rest; do echo $rest-$first; done; echo end";
    check_process(
        &["sh", "-c", loops],
        Some(&[(1, "a b c\n x \n"), (2, "^D")]),
        &[(1, "b c-a"), (1, "-x"), (2, "end")],
        exits(2, 0),
    );
    check_process(
        &["sh"],
        Some(&[(1, "X=1; nginx\n"), (2, "echo $X\n"), (3, "exit 4\n")]),
        &[(1, "sh: nginx: not found"), (2, "1")],
        exits(3, 4),
    );
}

#[test]
fn without_a_stdin_there_is_nothing_to_read() {
    check_process(&["cat"], None, &[], exits(0, 0));
    check_process(&["/bin/bash", "-l"], None, &[], exits(0, 0));
    check_process(
        &["sh", "-c", "read x; echo $?"],
        None,
        &[(0, "1")],
        exits(0, 0),
    );
}

#[test]
fn stderr_is_neither_captured_nor_discarded_with_stdout() {
    check(
        "X=$(cat /etc/config/none); echo got $X; cat /etc/config/none >/dev/null",
        &[
            (
                0,
                "cat: can't open '/etc/config/none': No such file or directory",
            ),
            (0, "got"),
            (
                0,
                "cat: can't open '/etc/config/none': No such file or directory",
            ),
        ],
        exits(0, 1),
    );
}
