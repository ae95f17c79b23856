//! Reading the language of stages: text to words, words to stages.

use std::time::Duration;

use mizzen_value::Str;
use mizzen_value::time::duration_nanos;

use super::{Change, Clause, Exit, Run, Script, Stop};

/// The longest annotation that is read.
pub(super) const LONGEST: usize = 16 * 1024;
/// The words with which a stage can begin.
const STAGES: &str = "start, ready, unready, healthy, unhealthy, run, exit, stop";

/// Reads a script; the error says what is wrong and where.
pub fn parse(text: &str) -> Result<Script, String> {
    if text.len() > LONGEST {
        return Err(format!("it is longer than {LONGEST} bytes"));
    }
    let mut parser = Parser {
        tokens: tokens(text)?,
        at: 0,
    };
    let mut clauses: Vec<Clause> = Vec::new();
    while parser.peek().is_some() {
        if parser.accept(&Token::Semicolon) {
            continue;
        }
        let clause = parser.clause()?;
        if clauses
            .iter()
            .any(|other| other.container == clause.container)
        {
            return Err(match &clause.container {
                Some(name) => format!("there are two clauses for container {name:?}"),
                None => "there are two clauses without a container".into(),
            });
        }
        clauses.push(clause);
    }
    Ok(Script { clauses })
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Word(String),
    Text(String),
    Comma,
    Semicolon,
    Colon,
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, length) = match first {
            ',' => (Token::Comma, 1),
            ';' => (Token::Semicolon, 1),
            ':' => (Token::Colon, 1),
            '"' => {
                let end = rest[1..].find('"').ok_or("a quotation is not closed")?;
                (Token::Text(rest[1..=end].into()), end + 2)
            }
            _ => {
                let ends = |letter: char| letter.is_whitespace() || ",;:\"".contains(letter);
                let end = rest.find(ends).unwrap_or(rest.len());
                (Token::Word(rest[..end].into()), end)
            }
        };
        tokens.push(token);
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn accept(&mut self, token: &Token) -> bool {
        let is = self.peek() == Some(token);
        self.at += usize::from(is);
        is
    }

    fn accept_word(&mut self, wanted: &str) -> bool {
        self.accept(&Token::Word(wanted.into()))
    }

    /// The next word, if it is one.
    fn word(&mut self) -> Option<String> {
        let Some(Token::Word(word)) = self.peek() else {
            return None;
        };
        let word = word.clone();
        self.at += 1;
        Some(word)
    }

    fn clause(&mut self) -> Result<Clause, String> {
        let container = self.container();
        let mut runs = vec![self.run()?];
        while self.accept_word("then") {
            runs.push(self.run()?);
        }
        match self.peek() {
            None | Some(Token::Semicolon) => Ok(Clause { container, runs }),
            Some(token) => Err(format!("did not expect {}", token.show())),
        }
    }

    /// The name before a colon.
    fn container(&mut self) -> Option<Str> {
        let named = self.tokens.get(self.at + 1) == Some(&Token::Colon);
        let name = if named { self.word() } else { None };
        self.at += usize::from(name.is_some());
        name.map(Str::from)
    }

    fn run(&mut self) -> Result<(u32, Run), String> {
        let times = self.times()?;
        let mut draft = Draft::default();
        loop {
            self.stage(&mut draft)?;
            let goes_on =
                self.accept(&Token::Comma) && self.peek() != Some(&Token::Word("then".into()));
            if !goes_on {
                return Ok((times, draft.run));
            }
        }
    }

    /// `3x` before a run.
    fn times(&mut self) -> Result<u32, String> {
        let Some(Token::Word(word)) = self.peek() else {
            return Ok(1);
        };
        let Some(count) = word
            .strip_suffix('x')
            .filter(|count| count.bytes().all(|byte| byte.is_ascii_digit()))
        else {
            return Ok(1);
        };
        let times = count.parse().ok().filter(|times| *times > 0);
        let times =
            times.ok_or_else(|| format!("{word:?} is not how often something can happen"))?;
        self.at += 1;
        Ok(times)
    }

    fn stage(&mut self, draft: &mut Draft) -> Result<(), String> {
        let expected = || format!("expected a stage ({STAGES})");
        let name = self.word().ok_or_else(|| match self.peek() {
            Some(token) => format!("{}, not {}", expected(), token.show()),
            None => format!("{} at the end", expected()),
        })?;
        draft.check_open(&name)?;
        match name.as_str() {
            "start" => draft.start(self.duration()?.unwrap_or_default()),
            "ready" => draft.change(self.duration()?, Change::Ready),
            "unready" => draft.change(self.duration()?, Change::Unready),
            "healthy" => draft.change(self.duration()?, Change::Healthy),
            "unhealthy" => draft.change(self.duration()?, Change::Unhealthy),
            "run" => {
                match self.duration()? {
                    Some(duration) => draft.passed += duration,
                    None => draft.over = Some("run"),
                }
                Ok(())
            }
            "exit" => draft.exit(self.exit()?),
            "stop" => draft.stop(self.stop()?),
            _ => Err(format!("{name:?} is not a stage ({STAGES})")),
        }
    }

    /// The duration that comes next, if one does.
    fn duration(&mut self) -> Result<Option<Duration>, String> {
        let Some(Token::Word(word)) = self.peek().cloned() else {
            return Ok(None);
        };
        if word == "then" {
            return Ok(None);
        }
        self.at += 1;
        read_duration(&word).map(Some)
    }

    /// `exit [CODE] [REASON] ["MESSAGE"]`.
    fn exit(&mut self) -> Result<Exit, String> {
        let mut exit = Exit::default();
        if let Some(Token::Word(word)) = self.peek()
            && word.starts_with(|letter: char| letter.is_ascii_digit() || letter == '-')
        {
            exit.code = read_code(word)?;
            self.at += 1;
        }
        if let Some(Token::Word(word)) = self.peek()
            && word != "then"
        {
            exit.reason = word.as_str().into();
            self.at += 1;
        }
        if let Some(Token::Text(text)) = self.peek() {
            exit.message = text.as_str().into();
            self.at += 1;
        }
        Ok(exit)
    }

    /// `stop never`, or `stop [DURATION] [CODE]`.
    fn stop(&mut self) -> Result<Stop, String> {
        if self.accept_word("never") {
            return Ok(Stop {
                takes: None,
                code: 137,
            });
        }
        let mut stop = Stop::default();
        if let Some(Token::Word(word)) = self.peek().cloned()
            && word != "then"
        {
            self.at += 1;
            stop.takes = Some(read_duration(&word)?);
        }
        if let Some(Token::Word(word)) = self.peek()
            && word != "then"
        {
            stop.code = read_code(word)?;
            self.at += 1;
        }
        Ok(stop)
    }
}

/// A run while it is read.
#[derive(Default)]
struct Draft {
    run: Run,
    /// How long after the start the next stage begins.
    passed: Duration,
    /// The stage after which nothing can come.
    over: Option<&'static str>,
    /// Whether it is said what it does when it is told to stop.
    stops: bool,
}

impl Draft {
    /// What a container does when it is told to stop can be said anywhere.
    fn check_open(&self, stage: &str) -> Result<(), String> {
        match self.over {
            Some("run") if stage != "stop" => {
                Err(format!("{stage:?} comes after a run without end"))
            }
            Some(over) if stage != "stop" => Err(format!("{stage:?} comes after {over:?}")),
            _ => Ok(()),
        }
    }

    fn start(&mut self, takes: Duration) -> Result<(), String> {
        if !self.run.changes.is_empty() || !self.passed.is_zero() || !self.run.start.is_zero() {
            return Err("\"start\" is not the first stage".into());
        }
        self.run.start = takes;
        Ok(())
    }

    fn change(&mut self, takes: Option<Duration>, change: Change) -> Result<(), String> {
        self.passed += takes.unwrap_or_default();
        self.run.changes.push((self.passed, change));
        Ok(())
    }

    fn stop(&mut self, stop: Stop) -> Result<(), String> {
        if std::mem::replace(&mut self.stops, true) {
            return Err("\"stop\" is said twice".into());
        }
        self.run.stop = stop;
        Ok(())
    }

    fn exit(&mut self, exit: Exit) -> Result<(), String> {
        self.over = Some("exit");
        self.change(None, Change::Exit(exit))
    }
}

pub(super) fn read_duration(word: &str) -> Result<Duration, String> {
    let nanos = duration_nanos(word)
        .ok()
        .and_then(|nanos| u64::try_from(nanos).ok());
    nanos
        .map(Duration::from_nanos)
        .ok_or_else(|| format!("{word:?} is not a duration such as 500ms or 1m30s"))
}

fn read_code(word: &str) -> Result<i64, String> {
    let code = word.parse().ok().filter(|code| (0..=255).contains(code));
    code.ok_or_else(|| format!("{word:?} is not an exit code from 0 to 255"))
}

impl Token {
    fn show(&self) -> String {
        match self {
            Token::Word(word) => format!("{word:?}"),
            Token::Text(text) => format!("the quotation {text:?}"),
            Token::Comma => "\",\"".into(),
            Token::Semicolon => "\";\"".into(),
            Token::Colon => "\":\"".into(),
        }
    }
}
