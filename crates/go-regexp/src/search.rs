//! The matcher: runs all threads of a program in parallel, in Go's order of preference.
//!
//! Invariant: a search takes time proportional to the text times the instructions, for any pattern.

use super::Assertion;
use super::program::{Instruction, Prog};

/// The start and the end of a match.
pub(super) type Span = (usize, usize);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MatchMode {
    /// Only whether there is a match.
    Any,
    /// The leftmost match, and of those the one that Go prefers.
    Preferred,
}

impl Prog {
    /// Searches for a match at or after `at`.
    pub(super) fn search(&self, text: &str, at: usize, wanted: MatchMode) -> Option<Span> {
        let n_instructions = self.instructions.len();
        let (mut current, mut next) = (Threads::new(n_instructions), Threads::new(n_instructions));
        let mut found = None;
        let mut position = Position::new(text, at);
        loop {
            if found.is_none() && (!self.anchored || position.at == 0) {
                self.follow(0, position.at, &position, &mut current);
            }
            if current.list.is_empty() && (found.is_some() || self.anchored) {
                return found;
            }
            let after = position.step(text);
            for &(instruction, start) in &current.list {
                let goes_on = match (self.instructions[instruction as usize], position.next) {
                    (Instruction::Match, _) => {
                        found = Some((start, position.at));
                        if wanted == MatchMode::Any {
                            return found;
                        }
                        // The remaining threads have a lower preference.
                        break;
                    }
                    (Instruction::Char(rune), Some(char)) => rune == u32::from(char),
                    (Instruction::Class(class), Some(char)) => {
                        self.classes[class as usize].contains(char)
                    }
                    (Instruction::Any, Some(_)) => true,
                    (Instruction::AnyExceptNewline, Some(char)) => char != '\n',
                    _ => false,
                };
                if let (true, Some(after)) = (goes_on, &after) {
                    self.follow(instruction + 1, start, after, &mut next);
                }
            }
            position = match after {
                Some(after) => after,
                None => return found,
            };
            std::mem::swap(&mut current, &mut next);
            next.clear();
        }
    }

    /// All non-overlapping matches, as Go's `FindAllString` finds them.
    pub(super) fn find_all<'a>(&self, text: &'a str, limit: usize) -> Vec<&'a str> {
        let (mut found, mut at, mut last_end) = (Vec::new(), 0, None);
        while found.len() < limit && at <= text.len() {
            let Some((start, end)) = self.search(text, at, MatchMode::Preferred) else {
                break;
            };
            // An empty match right after the previous one does not count.
            if end != at || last_end != Some(start) {
                found.push(&text[start..end]);
            }
            last_end = Some(end);
            at = match end == at {
                true => at + text[at..].chars().next().map_or(1, char::len_utf8),
                false => end,
            };
        }
        found
    }

    /// Adds the instructions that consume the next character, following jumps and assertions.
    fn follow(&self, instruction: u32, start: usize, position: &Position, threads: &mut Threads) {
        threads.pending.push(instruction);
        while let Some(instruction) = threads.pending.pop() {
            if !threads.visit(instruction) {
                continue;
            }
            match self.instructions[instruction as usize] {
                Instruction::Jump(to) => threads.pending.push(to),
                Instruction::Split(first, second) => threads.pending.extend([second, first]),
                Instruction::Assert(assertion) => {
                    if position.holds(assertion) {
                        threads.pending.push(instruction + 1);
                    }
                }
                _ => threads.list.push((instruction, start)),
            }
        }
    }
}

/// A position in the text, with the characters around it.
struct Position {
    at: usize,
    previous: Option<char>,
    next: Option<char>,
}

impl Position {
    fn new(text: &str, at: usize) -> Position {
        Position {
            at,
            previous: text[..at].chars().next_back(),
            next: text[at..].chars().next(),
        }
    }

    /// The position one character further.
    fn step(&self, text: &str) -> Option<Position> {
        let char = self.next?;
        let at = self.at + char.len_utf8();
        Some(Position {
            at,
            previous: Some(char),
            next: text[at..].chars().next(),
        })
    }

    fn holds(&self, assertion: Assertion) -> bool {
        let is_word = |char: Option<char>| {
            char.is_some_and(|char| char == '_' || char.is_ascii_alphanumeric())
        };
        let is_boundary = || is_word(self.previous) != is_word(self.next);
        match assertion {
            Assertion::BeginText => self.previous.is_none(),
            Assertion::EndText => self.next.is_none(),
            Assertion::BeginLine => self.previous.is_none_or(|char| char == '\n'),
            Assertion::EndLine => self.next.is_none_or(|char| char == '\n'),
            Assertion::WordBoundary => is_boundary(),
            Assertion::NoWordBoundary => !is_boundary(),
        }
    }
}

/// The threads by preference, each with the position where its match started.
struct Threads {
    list: Vec<(u32, usize)>,
    /// The round in which each instruction was last visited.
    visited: Vec<u32>,
    round: u32,
    /// Instructions that are still to be followed.
    pending: Vec<u32>,
}

impl Threads {
    fn new(n_instructions: usize) -> Threads {
        Threads {
            list: Vec::new(),
            visited: vec![0; n_instructions],
            round: 1,
            pending: Vec::new(),
        }
    }

    /// Whether this is the first visit in this round.
    fn visit(&mut self, instruction: u32) -> bool {
        let visited = &mut self.visited[instruction as usize];
        std::mem::replace(visited, self.round) != self.round
    }

    fn clear(&mut self) {
        self.list.clear();
        // A text has fewer characters than there are rounds.
        self.round += 1;
    }
}
