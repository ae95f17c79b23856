//! What would cel-go's generated parser say about a text that is no expression?
//!
//! That parser was made by ANTLR: when a word does not fit it leaves one out, imagines one, or skips to where a
//! rule that is being read could go on; each time it says what it would have expected. This reads the text in the
//! same way, rule by rule, only to hear what is said.
//!
//! Kubernetes: these messages are on the wire (github.com/antlr4-go/antlr/v4, error_strategy.go).

mod grammar;
mod predict;

use std::sync::OnceLock;

use super::lex::{Kind, Token, escape};
use super::source::Issue;
use crate::escape::RESERVED;
use grammar::{END, Grammar, Rule, Set, StateKind, Step, one};

/// So often recovery is tried.
const MAX_RECOVERIES: usize = 30;
/// So many words are skipped at most.
const MAX_SKIPPED: usize = 256;
/// So deep rules are nested.
const MAX_DEPTH: usize = 250;

/// Everything that is wrong with a text of these words.
pub(super) fn diagnose(tokens: &[Token], text: &[char]) -> Vec<Issue> {
    static GRAMMAR: OnceLock<Grammar> = OnceLock::new();
    let grammar = GRAMMAR.get_or_init(Grammar::new);
    let mut reader = Reader {
        grammar,
        tokens,
        text,
        next: 0,
        state: 0,
        callers: Vec::new(),
        recovering: false,
        last_error: None,
        n_recoveries: 0,
        issues: Vec::new(),
        names: Vec::new(),
    };
    // A reader that gave up has said why; what it has read is not looked at.
    if reader.rule(Rule::Start, 0).is_ok() {
        reader.issues.append(&mut reader.names);
    }
    reader.issues
}

struct Reader<'a> {
    grammar: &'a Grammar,
    tokens: &'a [Token],
    text: &'a [char],
    next: usize,
    state: usize,
    /// The states that call the rules being read; the first rule is called by none.
    callers: Vec<Option<usize>>,
    /// Nothing more is said until a word fits again.
    recovering: bool,
    /// The word and the states of the last error.
    last_error: Option<(usize, Vec<usize>)>,
    n_recoveries: usize,
    issues: Vec<Issue>,
    /// What is wrong with names, though they are words.
    names: Vec<Issue>,
}

/// Why a rule cannot go on.
enum Stop {
    /// This word does not fit here.
    Mismatch,
    /// No alternative fits the words from one to the other.
    NoAlternative(usize, usize),
    /// The reader gives up.
    Abort,
}

type Read = Result<(), Stop>;

impl Reader<'_> {
    fn rule(&mut self, rule: Rule, precedence: u8) -> Read {
        let caller = (!self.callers.is_empty()).then_some(self.state);
        self.callers.push(caller);
        let depth = self.callers.len();
        // Seven rules or more are read for each level of parentheses.
        if depth > MAX_DEPTH * 9 {
            self.issues.push(Issue::nowhere(format!(
                "expression recursion limit exceeded: {MAX_DEPTH}"
            )));
            return Err(Stop::Abort);
        }
        let (grammar, first) = (self.grammar, self.next);
        let outcome = self.step(&grammar.rules[rule as usize], precedence);
        self.check_name(rule, first, outcome.is_ok());
        let outcome = match outcome {
            Ok(()) | Err(Stop::Abort) => outcome,
            Err(stop) => self.recover(&stop),
        };
        self.callers.truncate(depth - 1);
        outcome
    }

    /// Names are looked at after the rest, so also beside errors.
    fn check_name(&mut self, rule: Rule, first: usize, is_ok: bool) {
        let at = self.tokens[first].at;
        match rule {
            Rule::EscapeIdent if !is_ok => {
                self.names.push(Issue::new(at, "unsupported ident kind"))
            }
            Rule::Primary => {
                let name = &self.tokens
                    [(first + usize::from(self.tokens[first].kind == Kind::Dot)).min(self.next)];
                if name.kind == Kind::Ident && RESERVED.contains(&name.text.as_str()) {
                    self.names.push(Issue::new(
                        at,
                        format!("reserved identifier: {}", name.text),
                    ));
                }
            }
            _ => {}
        }
    }

    fn step(&mut self, step: &Step, precedence: u8) -> Read {
        match step {
            Step::Sequence(steps) => steps
                .iter()
                .try_for_each(|step| self.step(step, precedence)),
            Step::Word(state, set) => {
                self.state = *state;
                self.word(*set)
            }
            Step::Rule(state, rule, precedence) => {
                self.state = *state;
                self.rule(*rule, *precedence)
            }
            Step::Optional(state, body) => {
                self.sync(*state)?;
                let takes = self.starts(*state, 0);
                if takes {
                    self.step(body, precedence)
                } else {
                    Ok(())
                }
            }
            Step::Choice(state, bodies, simple) => {
                self.sync(*state)?;
                let chosen = match simple {
                    true => (0..bodies.len()).find(|index| self.starts(*state, *index)),
                    false => Some(self.predict(*state)?),
                };
                let chosen = chosen.ok_or(Stop::NoAlternative(self.next, self.next))?;
                self.step(&bodies[chosen], precedence)
            }
            Step::Star(entry, back, body, simple) => {
                self.sync(*entry)?;
                while self.goes_on(*entry, *simple)? {
                    self.step(body, precedence)?;
                    self.sync(*back)?;
                }
                Ok(())
            }
            Step::Plus(start, back, body, simple) => {
                self.sync(*start)?;
                loop {
                    self.step(body, precedence)?;
                    self.sync(*back)?;
                    if !self.goes_on(*back, *simple)? {
                        return Ok(());
                    }
                }
            }
            Step::Operators(entry, back, body, operators) => {
                self.sync(*entry)?;
                let fits = |reader: &Self| {
                    let word = one(reader.peek(0));
                    operators
                        .iter()
                        .any(|(set, rank)| set & word != 0 && *rank >= precedence)
                };
                while fits(self) {
                    self.step(body, precedence)?;
                    self.sync(*back)?;
                }
                Ok(())
            }
        }
    }

    /// Whether the word ahead starts one of the alternatives of a state.
    fn starts(&self, state: usize, alternative: usize) -> bool {
        let Some(grammar::Edge::Free(to)) = self.grammar.states[state].edges.get(alternative)
        else {
            return false;
        };
        self.grammar.next_words(*to) & one(self.peek(0)) != 0
    }

    fn goes_on(&self, state: usize, simple: bool) -> Result<bool, Stop> {
        if simple {
            Ok(self.starts(state, 0))
        } else {
            Ok(self.predict(state)? == 0)
        }
    }

    fn predict(&self, state: usize) -> Result<usize, Stop> {
        self.grammar
            .predict(state, self.tokens, self.next)
            .map_err(|at| Stop::NoAlternative(self.next, at))
    }

    fn peek(&self, ahead: usize) -> Kind {
        self.tokens[(self.next + ahead).min(self.tokens.len() - 1)].kind
    }

    fn consume(&mut self) {
        self.next = (self.next + 1).min(self.tokens.len() - 1);
    }

    /// A word of a set: the next one, or the one after a superfluous one, or one that is missing.
    fn word(&mut self, set: Set) -> Read {
        if set & one(self.peek(0)) != 0 {
            self.matched();
            self.consume();
            return Ok(());
        }
        self.count_recovery()?;
        if self.delete_one() {
            self.consume();
            return Ok(());
        }
        if self.expected(self.after(self.state)) & one(self.peek(0)) != 0 {
            let message = format!(
                "missing {} at {}",
                self.names(self.expected(self.state)),
                self.shown()
            );
            self.say(message);
            return Ok(());
        }
        Err(Stop::Mismatch)
    }

    fn after(&self, state: usize) -> usize {
        match self.grammar.states[state].edges.first() {
            Some(grammar::Edge::Word(_, to) | grammar::Edge::Free(to)) => *to,
            _ => state,
        }
    }

    fn matched(&mut self) {
        self.recovering = false;
        self.last_error = None;
    }

    /// Leaves the next word out if the one after it fits.
    fn delete_one(&mut self) -> bool {
        if self.expected(self.state) & one(self.peek(1)) == 0 {
            return false;
        }
        self.superfluous();
        self.consume();
        self.matched();
        true
    }

    fn superfluous(&mut self) {
        let message = format!(
            "extraneous input {} expecting {}",
            self.shown(),
            self.names(self.expected(self.state))
        );
        self.say(message);
    }

    /// Looks before a choice or a loop whether the next word can fit at all.
    fn sync(&mut self, state: usize) -> Read {
        self.state = state;
        if self.recovering {
            return Ok(());
        }
        let words = self.grammar.next_words(state);
        if words & (END | one(self.peek(0))) != 0 {
            return Ok(());
        }
        match self.grammar.states[state].kind {
            StateKind::Choice if self.delete_one() => Ok(()),
            StateKind::Choice => Err(Stop::Mismatch),
            StateKind::LoopBack => {
                self.superfluous();
                let until = self.expected(state) | self.recovery_set();
                self.skip(until, usize::MAX)
            }
            _ => Ok(()),
        }
    }

    /// Says what is wrong and skips to where a rule that is being read could go on.
    fn recover(&mut self, stop: &Stop) -> Read {
        let (message, at) = match stop {
            Stop::NoAlternative(start, end) => (self.no_alternative(*start, *end), *end),
            _ => {
                let expected = self.names(self.expected(self.state));
                (
                    format!("mismatched input {} expecting {expected}", self.shown()),
                    self.next,
                )
            }
        };
        self.say_at(message, at);
        self.count_recovery()?;
        let mut n_skipped = 0;
        let states = match self.last_error.take() {
            Some((at, states)) if at == self.next => {
                // The same place again: at least one word must go.
                if states.contains(&self.state) {
                    self.consume();
                    n_skipped = 1;
                }
                states
            }
            Some((_, states)) => states,
            None => Vec::new(),
        };
        self.last_error = Some((self.next, [&states[..], &[self.state]].concat()));
        self.skip(self.recovery_set(), MAX_SKIPPED - n_skipped)
    }

    fn no_alternative(&self, start: usize, end: usize) -> String {
        let start = &self.tokens[start];
        let shown = match (start.kind, &self.tokens[end]) {
            (Kind::Eof, _) => "<EOF>".into(),
            (_, end) if end.kind == Kind::Eof => self.words(start.at, self.text.len()),
            (_, end) => self.words(start.at, end.at + end.text.chars().count()),
        };
        // cel-go rewrites this one message.
        let word = shown.get(1..).unwrap_or_default();
        match word {
            "true" | "false" | "null" => format!("mismatched input '{word}' expecting IDENTIFIER"),
            _ => format!("no viable alternative at input '{}'", escape(&shown)),
        }
    }

    /// The text between two positions, without what is no word.
    fn words(&self, from: usize, to: usize) -> String {
        self.text[from..to].iter().filter(|c| **c != '\0').collect()
    }

    fn count_recovery(&mut self) -> Read {
        self.n_recoveries += 1;
        if self.n_recoveries <= MAX_RECOVERIES {
            return Ok(());
        }
        self.recovering = false;
        self.say(format!(
            "error recovery attempt limit exceeded: {MAX_RECOVERIES}"
        ));
        Err(Stop::Abort)
    }

    fn skip(&mut self, until: Set, limit: usize) -> Read {
        let mut n_skipped = 0;
        while self.peek(0) != Kind::Eof && until & one(self.peek(0)) == 0 {
            if n_skipped >= limit {
                let message =
                    format!("error recovery token lookahead limit exceeded: {MAX_SKIPPED}");
                self.issues.push(Issue::nowhere(message));
                return Err(Stop::Abort);
            }
            self.consume();
            n_skipped += 1;
        }
        Ok(())
    }

    /// The words after which any of the rules being read could go on.
    fn recovery_set(&self) -> Set {
        let follows = self
            .callers
            .iter()
            .flatten()
            .map(|caller| self.grammar.follow(*caller));
        follows.fold(0, |set, state| set | self.grammar.next_words(state)) & !END
    }

    /// The words that could come next, also after the rules that could end here.
    fn expected(&self, state: usize) -> Set {
        let (mut set, mut callers) = (self.grammar.next_words(state), self.callers.iter().rev());
        while set & END != 0 {
            set &= !END;
            match callers.next() {
                Some(Some(caller)) => set |= self.grammar.next_words(self.grammar.follow(*caller)),
                _ => set |= one(Kind::Eof),
            }
        }
        set
    }

    fn shown(&self) -> String {
        format!("'{}'", escape(&self.tokens[self.next].text))
    }

    fn names(&self, set: Set) -> String {
        let names: Vec<&str> = Kind::ALL
            .iter()
            .filter(|kind| set & one(**kind) != 0)
            .map(|kind| kind.name())
            .collect();
        match &names[..] {
            [name] => (*name).into(),
            names => format!("{{{}}}", names.join(", ")),
        }
    }

    fn say(&mut self, message: String) {
        self.say_at(message, self.next);
    }

    fn say_at(&mut self, message: String, at: usize) {
        if self.recovering {
            return;
        }
        self.recovering = true;
        self.issues.push(Issue::new(
            self.tokens[at].at,
            format!("Syntax error: {message}"),
        ));
    }
}
