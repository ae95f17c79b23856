//! The parser of scripts: text to tokens, tokens to stages.

use std::time::Duration;

use mizzen_value::Str;
use mizzen_value::time::duration_nanos;

use super::{Exit, ScriptChange, ScriptClause, ScriptRun, SimulationScript, StopBehavior};

/// The longest annotation.
pub(super) const LONGEST: usize = 16 * 1024;
/// The names of stages.
const STAGES: &str = "start, ready, unready, healthy, unhealthy, run, exit, stop";

/// Parses a script; the error says what is wrong and where.
pub fn parse(text: &str) -> Result<SimulationScript, String> {
    if text.len() > LONGEST {
        return Err(format!("it is longer than {LONGEST} bytes"));
    }
    let mut parser = ScriptParser {
        tokens: tokens(text)?,
        at: 0,
    };
    let mut clauses: Vec<ScriptClause> = Vec::new();
    while parser.peek().is_some() {
        if parser.accept(&ScriptToken::Semicolon) {
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
    Ok(SimulationScript { clauses })
}

#[derive(Debug, Clone, PartialEq)]
enum ScriptToken {
    Word(String),
    Text(String),
    Comma,
    Semicolon,
    Colon,
}

fn tokens(text: &str) -> Result<Vec<ScriptToken>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, length) = match first {
            ',' => (ScriptToken::Comma, 1),
            ';' => (ScriptToken::Semicolon, 1),
            ':' => (ScriptToken::Colon, 1),
            '"' => {
                let end = rest[1..].find('"').ok_or("a quotation is not closed")?;
                (ScriptToken::Text(rest[1..=end].into()), end + 2)
            }
            _ => {
                let ends = |letter: char| letter.is_whitespace() || ",;:\"".contains(letter);
                let end = rest.find(ends).unwrap_or(rest.len());
                (ScriptToken::Word(rest[..end].into()), end)
            }
        };
        tokens.push(token);
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

struct ScriptParser {
    tokens: Vec<ScriptToken>,
    at: usize,
}

impl ScriptParser {
    fn peek(&self) -> Option<&ScriptToken> {
        self.tokens.get(self.at)
    }

    fn accept(&mut self, token: &ScriptToken) -> bool {
        let is = self.peek() == Some(token);
        self.at += usize::from(is);
        is
    }

    fn accept_word(&mut self, wanted: &str) -> bool {
        self.accept(&ScriptToken::Word(wanted.into()))
    }

    fn word(&mut self) -> Option<String> {
        let Some(ScriptToken::Word(word)) = self.peek() else {
            return None;
        };
        let word = word.clone();
        self.at += 1;
        Some(word)
    }

    fn clause(&mut self) -> Result<ScriptClause, String> {
        let container = self.container();
        let mut runs = vec![self.run()?];
        while self.accept_word("then") {
            runs.push(self.run()?);
        }
        match self.peek() {
            None | Some(ScriptToken::Semicolon) => Ok(ScriptClause { container, runs }),
            Some(token) => Err(format!("did not expect {}", token.show())),
        }
    }

    /// The name before a colon.
    fn container(&mut self) -> Option<Str> {
        let named = self.tokens.get(self.at + 1) == Some(&ScriptToken::Colon);
        let name = if named { self.word() } else { None };
        self.at += usize::from(name.is_some());
        name.map(Str::from)
    }

    fn run(&mut self) -> Result<(u32, ScriptRun), String> {
        let times = self.times()?;
        let mut draft = RunDraft::default();
        loop {
            self.stage(&mut draft)?;
            let goes_on = self.accept(&ScriptToken::Comma)
                && self.peek() != Some(&ScriptToken::Word("then".into()));
            if !goes_on {
                return Ok((times, draft.run));
            }
        }
    }

    /// `3x` before a run.
    fn times(&mut self) -> Result<u32, String> {
        let Some(ScriptToken::Word(word)) = self.peek() else {
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

    fn stage(&mut self, draft: &mut RunDraft) -> Result<(), String> {
        let expected = || format!("expected a stage ({STAGES})");
        let name = self.word().ok_or_else(|| match self.peek() {
            Some(token) => format!("{}, not {}", expected(), token.show()),
            None => format!("{} at the end", expected()),
        })?;
        draft.check_open(&name)?;
        match name.as_str() {
            "start" => draft.start(self.duration()?.unwrap_or_default()),
            "ready" => draft.change(self.duration()?, ScriptChange::Ready),
            "unready" => draft.change(self.duration()?, ScriptChange::Unready),
            "healthy" => draft.change(self.duration()?, ScriptChange::Healthy),
            "unhealthy" => draft.change(self.duration()?, ScriptChange::Unhealthy),
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

    /// The next duration, if there is one.
    fn duration(&mut self) -> Result<Option<Duration>, String> {
        let Some(ScriptToken::Word(word)) = self.peek().cloned() else {
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
        if let Some(ScriptToken::Word(word)) = self.peek()
            && word.starts_with(|letter: char| letter.is_ascii_digit() || letter == '-')
        {
            exit.code = read_code(word)?;
            self.at += 1;
        }
        if let Some(ScriptToken::Word(word)) = self.peek()
            && word != "then"
        {
            exit.reason = word.as_str().into();
            self.at += 1;
        }
        if let Some(ScriptToken::Text(text)) = self.peek() {
            exit.message = text.as_str().into();
            self.at += 1;
        }
        Ok(exit)
    }

    /// `stop never`, or `stop [DURATION] [CODE]`.
    fn stop(&mut self) -> Result<StopBehavior, String> {
        if self.accept_word("never") {
            return Ok(StopBehavior {
                takes: None,
                code: 137,
            });
        }
        let mut stop = StopBehavior::default();
        if let Some(ScriptToken::Word(word)) = self.peek().cloned()
            && word != "then"
        {
            self.at += 1;
            stop.takes = Some(read_duration(&word)?);
        }
        if let Some(ScriptToken::Word(word)) = self.peek()
            && word != "then"
        {
            stop.code = read_code(word)?;
            self.at += 1;
        }
        Ok(stop)
    }
}

/// A run while it is parsed.
#[derive(Default)]
struct RunDraft {
    run: ScriptRun,
    /// The time after the start at which the next stage begins.
    passed: Duration,
    /// The stage after which no other can follow.
    over: Option<&'static str>,
    /// Whether it has a `stop` stage.
    stops: bool,
}

impl RunDraft {
    /// `stop` is allowed anywhere.
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

    fn change(&mut self, takes: Option<Duration>, change: ScriptChange) -> Result<(), String> {
        self.passed += takes.unwrap_or_default();
        self.run.changes.push((self.passed, change));
        Ok(())
    }

    fn stop(&mut self, stop: StopBehavior) -> Result<(), String> {
        if std::mem::replace(&mut self.stops, true) {
            return Err("\"stop\" is said twice".into());
        }
        self.run.stop = stop;
        Ok(())
    }

    fn exit(&mut self, exit: Exit) -> Result<(), String> {
        self.over = Some("exit");
        self.change(None, ScriptChange::Exit(exit))
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

impl ScriptToken {
    fn show(&self) -> String {
        match self {
            ScriptToken::Word(word) => format!("{word:?}"),
            ScriptToken::Text(text) => format!("the quotation {text:?}"),
            ScriptToken::Comma => "\",\"".into(),
            ScriptToken::Semicolon => "\";\"".into(),
            ScriptToken::Colon => "\":\"".into(),
        }
    }
}
