//! The built-in commands, as busybox has them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use mizzen_value::time::date_of;

use super::run::{Halt, Shell, Step};
use crate::pod::inputs::is_below;

const KNOWN: [&str; 26] = [
    ":", "[", "break", "cat", "continue", "date", "echo", "env", "exec", "exit", "export", "false",
    "hostname", "ls", "printenv", "printf", "pwd", "read", "seq", "set", "sleep", "test", "true",
    "unset", "whoami", "sync",
];

pub(super) fn is_known(program: &str) -> bool {
    KNOWN.contains(&program)
}

const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// What is at a path.
enum PathEntry<'a> {
    /// A file, with its content if it is known.
    File(Option<&'a str>),
    Directory,
}

impl<'a> Shell<'a> {
    /// Runs a command and returns its exit code.
    pub(super) fn builtin(&mut self, program: &str, arguments: &[String]) -> Step<i64> {
        let first = arguments.first().map(String::as_str);
        match program
            .strip_prefix("/bin/")
            .or_else(|| program.strip_prefix("/usr/bin/"))
            .unwrap_or(program)
        {
            ":" | "true" | "sync" => Ok(0),
            "false" => Ok(1),
            "echo" => self.builtin_echo(arguments),
            "printf" => self.builtin_printf(arguments),
            "sleep" => self.builtin_sleep(arguments),
            "date" => self.builtin_date(arguments),
            "cat" => self.builtin_cat(arguments),
            "ls" => self.builtin_ls(arguments),
            "env" if arguments.is_empty() => Ok(self.print_environment()),
            "printenv" => Ok(self.builtin_printenv(first)),
            "hostname" if arguments.is_empty() => {
                let name = self.variables.get("HOSTNAME").cloned().unwrap_or_default();
                Ok(self.say(&name))
            }
            "pwd" => Ok(self.say("/")),
            "whoami" => Ok(self.say("root")),
            "seq" => self.builtin_seq(arguments),
            "test" => self.builtin_test(arguments),
            "[" => match arguments.split_last() {
                Some((last, expression)) if last == "]" => self.builtin_test(expression),
                _ => Ok(2),
            },
            "exit" => Err(Halt::Exit(first.map_or(Ok(self.status), code)?)),
            "break" => Err(Halt::Break(first.map_or(Ok(1), levels)?)),
            "continue" => Err(Halt::Continue(first.map_or(Ok(1), levels)?)),
            "exec" => match arguments.split_first() {
                Some((program, rest)) => Err(Halt::Exit(self.builtin(program, rest)?)),
                None => Ok(0),
            },
            "export" => Ok(self.builtin_export(arguments)),
            "unset" => {
                for name in arguments {
                    self.variables.remove(name);
                }
                Ok(0)
            }
            "set" => self.builtin_set(arguments),
            "read" => self.builtin_read(arguments),
            _ => Err(Halt::Unknown),
        }
    }

    fn say(&mut self, text: &str) -> i64 {
        self.print(text);
        self.print("\n");
        0
    }

    fn builtin_echo(&mut self, arguments: &[String]) -> Step<i64> {
        let (mut breaks, mut escapes, mut rest) = (true, false, arguments);
        while let Some((option, more)) = rest.split_first() {
            let Some(letters) = option
                .strip_prefix('-')
                .filter(|letters| !letters.is_empty())
            else {
                break;
            };
            if !letters.chars().all(|letter| "neE".contains(letter)) {
                break;
            }
            breaks &= !letters.contains('n');
            escapes = if letters.contains('e') {
                true
            } else {
                escapes && !letters.contains('E')
            };
            rest = more;
        }
        let text = rest.join(" ");
        self.print(&if escapes { unescape(&text) } else { text });
        if breaks {
            self.print("\n");
        }
        Ok(0)
    }

    /// The format is used again until no argument is left.
    fn builtin_printf(&mut self, arguments: &[String]) -> Step<i64> {
        let Some((format, mut values)) = arguments.split_first() else {
            return Ok(1);
        };
        let format: Vec<char> = unescape(format).chars().collect();
        loop {
            let before = values.len();
            let (mut out, mut at) = (String::new(), 0);
            while let Some(&c) = format.get(at) {
                at += 1;
                if c != '%' {
                    out.push(c);
                    continue;
                }
                let width: String = format[at..]
                    .iter()
                    .take_while(|c| c.is_ascii_digit() || **c == '-')
                    .collect();
                at += width.len();
                let mut value = || match values.split_first() {
                    Some((first, rest)) => {
                        values = rest;
                        first.as_str()
                    }
                    None => "",
                };
                let text = match format.get(at) {
                    Some('%') => "%".to_owned(),
                    Some('s') => value().to_owned(),
                    Some('b') => unescape(value()),
                    Some('d' | 'i' | 'u') => value().parse::<i64>().unwrap_or(0).to_string(),
                    Some('x') => format!("{:x}", value().parse::<i64>().unwrap_or(0)),
                    _ => return Err(Halt::Unknown),
                };
                at += 1;
                out.push_str(&padded(&text, &width)?);
            }
            self.step()?;
            self.print(&out);
            if values.is_empty() || values.len() == before {
                return Ok(0);
            }
        }
    }

    /// Durations are added up, with `s`, `m`, `h` or `d` behind them.
    fn builtin_sleep(&mut self, arguments: &[String]) -> Step<i64> {
        let mut total = 0.0;
        for argument in arguments {
            let (number, unit) = match argument.strip_suffix(['s', 'm', 'h', 'd']) {
                Some(number) => (number, argument.chars().last()),
                None => (argument.as_str(), None),
            };
            let scale = match unit {
                Some('m') => 60.0,
                Some('h') => 3_600.0,
                Some('d') => 86_400.0,
                _ => 1.0,
            };
            match number.parse::<f64>() {
                _ if argument == "infinity" => total = f64::INFINITY,
                Ok(number) if number >= 0.0 => total += number * scale,
                _ => {
                    return Ok(self.fail_with(&format!("sleep: invalid number '{argument}'")));
                }
            }
        }
        if arguments.is_empty() {
            return Ok(self.fail_with("sleep: missing operand"));
        }
        self.sleep(Duration::try_from_secs_f64(total).unwrap_or(Duration::MAX))?;
        Ok(0)
    }

    fn fail_with(&mut self, message: &str) -> i64 {
        self.complain(message);
        1
    }

    /// The current time in UTC.
    fn builtin_date(&mut self, arguments: &[String]) -> Step<i64> {
        let mut format = "%a %b %e %H:%M:%S UTC %Y";
        for argument in arguments {
            match (argument.strip_prefix('+'), argument.as_str()) {
                (Some(own), _) => format = own,
                (None, "-u" | "--utc") => {}
                (None, "-Iseconds" | "--iso-8601=seconds") => format = "%Y-%m-%dT%H:%M:%S+00:00",
                (None, "-I") => format = "%F",
                (None, "-R") => format = "%a, %d %b %Y %H:%M:%S +0000",
                _ => return Err(Halt::Unknown),
            }
        }
        let now = (self.environment.started + self.clock).wall();
        let text = formatted(format, now.as_secs() as i64, now.subsec_nanos())?;
        Ok(self.say(&text))
    }

    /// What is at a path now. Files below a mount are known; all other paths are unknown.
    fn entry(&self, path: &str) -> Step<Option<PathEntry<'a>>> {
        let environment = self.environment;
        // For a client, an unknown file does not exist.
        let unknown = || {
            if self.io.is_exec {
                Ok(None)
            } else {
                Err(Halt::Unknown)
            }
        };
        let Some(path) = normalized(path) else {
            return unknown();
        };
        let files = environment.files_at(self.clock);
        if let Some(content) = files.get(path.as_str()) {
            return Ok(Some(PathEntry::File(content.as_deref())));
        }
        let known = files
            .keys()
            .map(|file| file.as_str())
            .chain(environment.mounts.iter().map(String::as_str));
        if known.into_iter().any(|below| is_below(below, &path)) {
            return Ok(Some(PathEntry::Directory));
        }
        if environment.knows(&path) {
            Ok(None)
        } else {
            unknown()
        }
    }

    fn builtin_cat(&mut self, arguments: &[String]) -> Step<i64> {
        if arguments.is_empty() {
            while let Some(line) = self.read_line()? {
                self.step()?;
                self.print(&line);
            }
            return Ok(0);
        }
        let mut status = 0;
        for path in arguments {
            match self.entry(path)? {
                Some(PathEntry::File(Some(content))) => self.print(content),
                Some(PathEntry::File(None)) => return Err(Halt::Unknown),
                Some(PathEntry::Directory) => {
                    status = self.fail_with("cat: read error: Is a directory")
                }
                None => {
                    status = self.fail_with(&format!(
                        "cat: can't open '{path}': No such file or directory"
                    ));
                }
            }
        }
        Ok(status)
    }

    /// The names in a directory of a volume, one per line.
    fn builtin_ls(&mut self, arguments: &[String]) -> Step<i64> {
        let [path] = arguments
            .strip_prefix(&["-1".to_owned()])
            .unwrap_or(arguments)
        else {
            return Err(Halt::Unknown);
        };
        match self.entry(path)? {
            Some(PathEntry::File(_)) => return Ok(self.say(path)),
            Some(PathEntry::Directory) => {}
            None => {
                return Ok(self.fail_with(&format!("ls: {path}: No such file or directory")));
            }
        }
        let directory = normalized(path).ok_or(Halt::Unknown)?;
        // Beside a mount there is what the image has.
        if !self.environment.knows(&directory) {
            return Err(Halt::Unknown);
        }
        let files = self.environment.files_at(self.clock).keys();
        let rest =
            files.filter_map(|file| file.strip_prefix(directory.as_str())?.strip_prefix('/'));
        let names: BTreeSet<&str> = rest
            .map(|rest| rest.split('/').next().unwrap_or(rest))
            .collect();
        for name in names {
            self.say(name);
        }
        Ok(0)
    }

    /// Reads a line into variables, a field each; the last one has the rest of the line.
    fn builtin_read(&mut self, arguments: &[String]) -> Step<i64> {
        let is_raw = arguments.first().is_some_and(|option| option == "-r");
        let names = &arguments[usize::from(is_raw)..];
        if names.is_empty() || names.iter().any(|name| name.starts_with('-')) {
            return Err(Halt::Unknown);
        }
        let line = self.read_line()?;
        // Escaped line breaks and blanks are not supported.
        if !is_raw && line.as_ref().is_some_and(|line| line.contains('\\')) {
            return Err(Halt::Unknown);
        }
        let blanks = [' ', '\t', '\n'];
        let mut rest = line.as_deref().unwrap_or_default().trim_matches(blanks);
        for (at, name) in names.iter().enumerate() {
            let end = rest.find(blanks).filter(|_| at + 1 < names.len());
            let (field, later) = rest.split_at(end.unwrap_or(rest.len()));
            self.variables.insert(name.clone(), field.into());
            rest = later.trim_start_matches(blanks);
        }
        // A line without its line break is the last one.
        Ok(i64::from(!line.is_some_and(|line| line.ends_with('\n'))))
    }

    fn print_environment(&mut self) -> i64 {
        let exported = self
            .variables
            .iter()
            .filter(|(name, _)| self.exported.contains(*name));
        let text: String = exported
            .map(|(name, value)| format!("{name}={value}\n"))
            .collect();
        self.print(&text);
        0
    }

    fn builtin_printenv(&mut self, name: Option<&str>) -> i64 {
        let Some(name) = name else {
            return self.print_environment();
        };
        match self
            .variables
            .get(name)
            .filter(|_| self.exported.contains(name))
            .cloned()
        {
            Some(value) => self.say(&value),
            None => 1,
        }
    }

    fn builtin_seq(&mut self, arguments: &[String]) -> Step<i64> {
        let numbers: Option<Vec<i64>> = arguments
            .iter()
            .map(|argument| argument.parse().ok())
            .collect();
        let (first, step, last) = match numbers.as_deref() {
            Some([last]) => (1, 1, *last),
            Some([first, last]) => (*first, 1, *last),
            Some([first, step, last]) if *step != 0 => (*first, *step, *last),
            _ => return Ok(1),
        };
        let mut number = first;
        while if step > 0 {
            number <= last
        } else {
            number >= last
        } {
            self.step()?;
            self.say(&number.to_string());
            number = number.saturating_add(step);
        }
        Ok(0)
    }

    fn builtin_export(&mut self, arguments: &[String]) -> i64 {
        for argument in arguments {
            let (name, value) = match argument.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (argument.as_str(), None),
            };
            self.exported.insert(name.into());
            if let Some(value) = value {
                self.variables.insert(name.into(), value.into());
            }
        }
        0
    }

    /// `-e` counts; the other options have no effect here.
    fn builtin_set(&mut self, arguments: &[String]) -> Step<i64> {
        for argument in arguments {
            match argument.as_str() {
                "-o" | "+o" | "pipefail" => {}
                "errexit" => self.exits_on_error = true,
                option => match option.split_at_checked(1) {
                    Some(("-", letters))
                        if letters.chars().all(|letter| "eux".contains(letter)) =>
                    {
                        self.exits_on_error |= letters.contains('e');
                    }
                    Some(("+", letters))
                        if letters.chars().all(|letter| "eux".contains(letter)) =>
                    {
                        self.exits_on_error &= !letters.contains('e');
                    }
                    _ => return Err(Halt::Unknown),
                },
            }
        }
        Ok(0)
    }

    /// `test`, and `[` without its bracket.
    fn builtin_test(&mut self, expression: &[String]) -> Step<i64> {
        let words: Vec<&str> = expression.iter().map(String::as_str).collect();
        let holds = match words.as_slice() {
            [] => false,
            ["!", rest @ ..] if !rest.is_empty() => {
                let rest: Vec<String> = rest.iter().map(|word| word.to_string()).collect();
                return self
                    .builtin_test(&rest)
                    .map(|status| if status > 1 { status } else { 1 - status });
            }
            [text] => !text.is_empty(),
            ["-n", text] => !text.is_empty(),
            ["-z", text] => text.is_empty(),
            [operator @ ("-d" | "-e" | "-f" | "-r" | "-s"), path] => {
                match (*operator, self.entry(path)?) {
                    (_, None)
                    | ("-f", Some(PathEntry::Directory))
                    | ("-d", Some(PathEntry::File(_))) => false,
                    ("-s", Some(PathEntry::File(content))) => {
                        content.is_none_or(|content| !content.is_empty())
                    }
                    _ => true,
                }
            }
            [left, "=" | "==", right] => left == right,
            [left, "!=", right] => left != right,
            [
                left,
                operator @ ("-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge"),
                right,
            ] => {
                let (Ok(left), Ok(right)) = (left.parse::<i64>(), right.parse::<i64>()) else {
                    return Ok(2);
                };
                match *operator {
                    "-eq" => left == right,
                    "-ne" => left != right,
                    "-lt" => left < right,
                    "-le" => left <= right,
                    "-gt" => left > right,
                    _ => left >= right,
                }
            }
            _ => return Err(Halt::Unknown),
        };
        Ok(i64::from(!holds))
    }
}

fn code(text: &str) -> Step<i64> {
    text.parse::<i64>()
        .map(|code| code & 0xff)
        .map_err(|_| Halt::Exit(2))
}

fn levels(text: &str) -> Step<usize> {
    text.parse().map_err(|_| Halt::Exit(2))
}

/// Replaces `\n` and the like.
fn unescape(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text.chars());
    while let Some(c) = rest.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match rest.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('\\') => out.push('\\'),
            Some('"') => out.push('"'),
            Some(other) => out.extend(['\\', other]),
            None => out.push('\\'),
        }
    }
    out
}

fn padded(text: &str, width: &str) -> Step<String> {
    if width.is_empty() {
        return Ok(text.to_owned());
    }
    let size: usize = width.trim_start_matches(['-', '0']).parse().unwrap_or(0);
    if size > 1_000 {
        return Err(Halt::Unknown);
    }
    Ok(match (width.starts_with('-'), width.starts_with('0')) {
        (true, _) => format!("{text:<size$}"),
        (_, true) => format!("{text:0>size$}"),
        _ => format!("{text:>size$}"),
    })
}

fn formatted(format: &str, unix: i64, nanos: u32) -> Step<String> {
    let (day, second) = (unix.div_euclid(86_400), unix.rem_euclid(86_400));
    let (year, month, date) = date_of(day);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    let weekday = DAYS[(day + 4).rem_euclid(7) as usize];
    let name = MONTHS[(month - 1).clamp(0, 11) as usize];
    let (mut out, mut rest) = (String::new(), format.chars());
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let written = match rest.next() {
            Some('Y') => write!(out, "{year}"),
            Some('y') => write!(out, "{:02}", year % 100),
            Some('m') => write!(out, "{month:02}"),
            Some('d') => write!(out, "{date:02}"),
            Some('e') => write!(out, "{date:2}"),
            Some('H') => write!(out, "{hour:02}"),
            Some('M') => write!(out, "{minute:02}"),
            Some('S') => write!(out, "{second:02}"),
            Some('N') => write!(out, "{nanos:09}"),
            Some('s') => write!(out, "{unix}"),
            Some('F') => write!(out, "{year}-{month:02}-{date:02}"),
            Some('T') => write!(out, "{hour:02}:{minute:02}:{second:02}"),
            Some('a') => write!(out, "{}", &weekday[..3]),
            Some('A') => write!(out, "{weekday}"),
            Some('b' | 'h') => write!(out, "{}", &name[..3]),
            Some('B') => write!(out, "{name}"),
            Some('Z') => write!(out, "UTC"),
            Some('z') => write!(out, "+0000"),
            Some('%') => write!(out, "%"),
            _ => return Err(Halt::Unknown),
        };
        written.expect("writing to a string cannot fail");
    }
    Ok(out)
}

/// An absolute path without empty parts. A relative path is unknown, because the working directory
/// is the image's.
fn normalized(path: &str) -> Option<String> {
    let is_known = path.starts_with('/') && path.split('/').all(|part| !matches!(part, "." | ".."));
    let parts = path.split('/').filter(|part| !part.is_empty());
    is_known.then(|| parts.fold(String::new(), |path, part| path + "/" + part))
}
