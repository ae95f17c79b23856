//! Scripts with what they print, when, and how they end.

use std::time::Duration;

use super::*;

const BEGIN: Moment = Moment::from_secs(1_600_000_000);

/// A volume with one file that changes, one below a directory, and one whose content is not known.
fn files(content: &str) -> Files {
    [("key", Some(content)), ("sub/deep", Some("x")), ("token", None)]
        .map(|(name, content)| (format!("/etc/config/{name}").into(), content.map(Into::into)))
        .into()
}

#[track_caller]
fn check(script: &str, lines: &[(u64, &str)], outcome: Outcome) {
    let words = ["sh", "-c", script].map(String::from);
    let variables = [("HOSTNAME", "web-0"), ("GREETING", "hello world")];
    let environment = Environment {
        variables: variables.map(|(name, value)| (name.into(), value.into())).into(),
        files: vec![
            (Moment::default(), files("value\n")),
            (BEGIN + Duration::from_secs(30), files("later\n")),
        ],
        mounts: vec!["/etc/config".into()],
        started: BEGIN,
    };
    let Some(parsed) = parse(&words) else {
        return assert_eq!(outcome, Outcome::Unknown { after: Duration::ZERO }, "{script}: not understood");
    };
    let found =
        parsed.run(&environment, Limits { until: Duration::from_secs(100), steps: 10_000, lines: 50 });
    let lines: Vec<(Duration, String)> =
        lines.iter().map(|(at, line)| (Duration::from_secs(*at), line.to_string())).collect();
    assert_eq!(found, Transcript { lines, outcome }, "{script}");
}

fn exits(after: u64, code: i64) -> Outcome {
    Outcome::Exited { after: Duration::from_secs(after), code }
}

fn unknown(after: u64) -> Outcome {
    Outcome::Unknown { after: Duration::from_secs(after) }
}

#[test]
fn commands_print_take_time_and_end() {
    check("echo YAY", &[(0, "YAY")], exits(0, 0));
    check("sleep 5", &[], exits(5, 0));
    check("echo a; sleep 2; echo b; exit 3", &[(0, "a"), (2, "b")], exits(2, 3));
    check("sleep 1m 0.5", &[], Outcome::Exited { after: Duration::from_millis(60_500), code: 0 });
    check("false", &[], exits(0, 1));
    check("true && echo yes || echo no", &[(0, "yes")], exits(0, 0));
    check("false && echo yes || echo no", &[(0, "no")], exits(0, 0));
    check("! true", &[], exits(0, 1));
    check("echo -n a; echo b", &[(0, "ab")], exits(0, 0));
    check("printf '%s-%d\\n' a 1 b 2", &[(0, "a-1"), (0, "b-2")], exits(0, 0));
    check("printf 'no break'", &[(0, "no break")], exits(0, 0));
    check("date", &[(0, "Sun Sep 13 12:26:40 UTC 2020")], exits(0, 0));
    check("sleep 20; date -u +%Y-%m-%dT%H:%M:%SZ", &[(20, "2020-09-13T12:27:00Z")], exits(20, 0));
    check("exec echo a; echo b", &[(0, "a")], exits(0, 0));
}

#[test]
fn variables_and_files_of_the_container_are_seen() {
    check("echo $GREETING from ${HOSTNAME}", &[(0, "hello world from web-0")], exits(0, 0));
    check("printenv GREETING; hostname", &[(0, "hello world"), (0, "web-0")], exits(0, 0));
    check("env", &[(0, "GREETING=hello world"), (0, "HOSTNAME=web-0")], exits(0, 0));
    check("cat /etc/config/key", &[(0, "value")], exits(0, 0));
    let missing = "cat: can't open '/etc/config/none': No such file or directory";
    check("cat /etc/config/none", &[(0, missing)], exits(0, 1));
    check("X=1; echo \"$X\" '$X' \\$X ${Y:-none} ${#X}", &[(0, "1 $X $X none 1")], exits(0, 0));
    check("X=$(cat /etc/config/key)-$((2 + 3 * 4)); echo $X", &[(0, "value-14")], exits(0, 0));
    check("set -- ; echo a", &[], unknown(0));
}

#[test]
fn files_of_volumes_are_known_and_no_others() {
    check("cat /etc/config/key /etc//config/sub/deep", &[(0, "value"), (0, "x")], exits(0, 0));
    check("cat /etc/config/key; sleep 60; cat /etc/config/key", &[(0, "value"), (60, "later")], exits(60, 0));
    check("cat /etc/config", &[(0, "cat: read error: Is a directory")], exits(0, 1));
    check(
        "ls /etc/config; ls -1 /etc/config/sub/",
        &[(0, "key"), (0, "sub"), (0, "token"), (0, "deep")],
        exits(0, 0),
    );
    check("ls /etc/config/none", &[(0, "ls: /etc/config/none: No such file or directory")], exits(0, 1));
    check("test -f /etc/config/key && [ -d /etc/config/sub ] && [ ! -e /etc/config/none ]", &[], exits(0, 0));
    check("[ -d /etc/config/key ] || [ -f /etc/config/sub ]", &[], exits(0, 1));
    for script in
        ["cat /etc/passwd", "cat key", "ls /etc", "cat /etc/config/token", "[ -f /etc/configuration ]"]
    {
        check(script, &[], unknown(0));
    }
}

#[test]
fn only_commands_that_read_files_are_said_to() {
    let may_read =
        |words: &[&str]| may_read_files(&words.iter().map(|word| word.to_string()).collect::<Vec<_>>());
    assert!(may_read(&["/bin/cat", "x"]) && may_read(&["sh", "-c", "echo $(cat x)"]));
    assert!(may_read(&["sh", "-c", "if [ -f x ];then :;fi"]));
    assert!(!may_read(&["sleep", "infinity"]) && !may_read(&["sh", "-c", "false || echo concatenate"]));
}

#[test]
fn loops_and_conditions_run_on_virtual_time() {
    check("for i in 1 2 3; do echo $i; sleep 1; done", &[(0, "1"), (1, "2"), (2, "3")], exits(3, 0));
    check(
        "i=0; while [ $i -lt 2 ]; do echo $i; i=$((i+1)); sleep 1; done",
        &[(0, "0"), (1, "1")],
        exits(2, 0),
    );
    check("until false; do echo once; break; done", &[(0, "once")], exits(0, 0));
    check(
        "if [ \"$GREETING\" = x ]; then echo x; elif true; then echo y; else echo z; fi",
        &[(0, "y")],
        exits(0, 0),
    );
    check("(exit 3); echo $?", &[(0, "3")], exits(0, 0));
    check("{ echo a; echo b; } && echo c", &[(0, "a"), (0, "b"), (0, "c")], exits(0, 0));
    check("set -e\nfalse\necho never", &[], exits(0, 1));
    check("set -e; if false; then echo a; fi; false || true; echo on", &[(0, "on")], exits(0, 0));
}

#[test]
fn what_never_ends_is_bounded() {
    check("sleep infinity", &[], Outcome::Running);
    check("while true; do sleep 40; echo tick; done", &[(40, "tick"), (80, "tick")], Outcome::Running);
    check("while :; do :; done", &[], Outcome::Running);
    let found = parse(&["seq", "1", "1000000"].map(String::from))
        .unwrap()
        .run(&Environment::default(), Limits { until: Duration::ZERO, steps: 1_000, lines: 10 });
    assert_eq!((found.lines.len(), found.outcome), (10, Outcome::Running));
}

#[test]
fn the_first_unknown_command_ends_the_simulation() {
    check("echo starting; sleep 1; nginx -g 'daemon off;'", &[(0, "starting")], unknown(1));
    check("echo to a file > /tmp/x; echo more", &[], unknown(0));
    check("echo hidden > /dev/null 2>&1; echo shown >&2", &[(0, "shown")], exits(0, 0));
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
fn a_command_without_a_shell_is_taken_as_it_is() {
    let script = parse(&["/bin/echo", "$HOME;", "a  b"].map(String::from)).unwrap();
    let found = script.run(&Environment::default(), Limits::until(Duration::ZERO));
    assert_eq!(found.lines, [(Duration::ZERO, "$HOME; a  b".to_owned())]);
}

#[test]
fn no_text_makes_the_parser_fail_or_run_away() {
    let pieces = [
        "echo", " ", "a", ";", "&&", "||", "(", ")", "{", "}", "if", "then", "fi", "do", "done", "while",
        "$", "$(", "${", "}", "\"", "'", "\\", "\n", "X=", "$((", "1",
    ];
    let mut seed = 7_u64;
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..12 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text.push_str(pieces[(seed >> 33) as usize % pieces.len()]);
        }
        if let Some(script) = parse(&["sh".into(), "-c".into(), text]) {
            script
                .run(&Environment::default(), Limits { until: Duration::from_secs(1), steps: 500, lines: 5 });
        }
    }
}
