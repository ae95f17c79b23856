//! Adaptive prediction: follows all alternatives at once until one is left.

use std::collections::HashSet;

use super::super::lexer::{LexToken, TokenKind};
use super::grammar::{END, Edge, Grammar, Set, StateKind, one};

impl Grammar {
    /// The tokens that can come next in a rule; `END` if the rule can end.
    pub(super) fn next_words(&self, state: usize) -> Set {
        let (mut set, mut seen, mut open) = (0, HashSet::new(), vec![(state, Vec::new())]);
        while let Some((state, stack)) = open.pop() {
            if !seen.insert((state, stack.clone())) {
                continue;
            }
            if self.states[state].kind == StateKind::Stop {
                match stack.split_last() {
                    Some((follow, rest)) => open.push((*follow, rest.to_vec())),
                    None => set |= END,
                }
            }
            for edge in &self.states[state].edges {
                match edge {
                    Edge::Free(to) => open.push((*to, stack.clone())),
                    Edge::Word(words, _) => set |= words,
                    Edge::Rule(rule, follow) => {
                        let stack = [&stack[..], &[*follow]].concat();
                        open.push((self.starts[*rule as usize], stack));
                    }
                }
            }
        }
        set
    }

    /// The state after a rule call.
    pub(super) fn follow(&self, calling: usize) -> usize {
        match self.states[calling].edges.first() {
            Some(Edge::Rule(_, follow)) => *follow,
            _ => calling,
        }
    }

    /// The alternative that the tokens select; an error is the index of the token that matches
    /// none.
    pub(super) fn predict(
        &self,
        state: usize,
        tokens: &[LexToken],
        next: usize,
    ) -> Result<usize, usize> {
        let start = self.states[state].edges.iter().enumerate().filter_map(
            |(alternative, edge)| match edge {
                Edge::Free(to) => Some(Config {
                    state: *to,
                    alternative,
                    stack: Vec::new(),
                    outside: false,
                }),
                _ => None,
            },
        );
        let mut configs = self.closure(start.collect());
        let mut at = next;
        loop {
            let token = &tokens[at.min(tokens.len() - 1)];
            let reached = self.closure(self.step(&configs, one(token.kind)));
            let mut alternatives: Vec<usize> =
                reached.iter().map(|config| config.alternative).collect();
            alternatives.sort_unstable();
            alternatives.dedup();
            match &alternatives[..] {
                [] => {
                    // An alternative that had reached the end of the rule wins, whatever follows.
                    let finished = configs
                        .iter()
                        .filter(|config| config.outside)
                        .map(|config| config.alternative);
                    return finished.min().ok_or(at);
                }
                [only] => return Ok(*only),
                [first, ..] if token.kind == TokenKind::Eof || conflicting(&reached) => {
                    return Ok(*first);
                }
                _ => {}
            }
            configs = reached;
            at += 1;
        }
    }

    fn step(&self, configs: &[Config], word: Set) -> Vec<Config> {
        let follow = |config: &Config| {
            let edges = self.states[config.state]
                .edges
                .iter()
                .filter_map(move |edge| match edge {
                    Edge::Word(words, to) if words & word != 0 => Some(*to),
                    _ => None,
                });
            edges
                .map(|to| Config {
                    state: to,
                    ..config.clone()
                })
                .collect::<Vec<_>>()
        };
        configs.iter().flat_map(follow).collect()
    }

    /// Everything that is reachable without a token.
    fn closure(&self, mut open: Vec<Config>) -> Vec<Config> {
        let (mut seen, mut closed) = (HashSet::new(), Vec::new());
        while let Some(config) = open.pop() {
            if !seen.insert(config.clone()) {
                continue;
            }
            let state = &self.states[config.state];
            if state.kind == StateKind::Stop {
                open.extend(self.leave(&config));
            }
            for edge in &state.edges {
                match edge {
                    Edge::Free(to) => open.push(Config {
                        state: *to,
                        ..config.clone()
                    }),
                    Edge::Rule(rule, follow) => {
                        let stack = [&config.stack[..], &[*follow]].concat();
                        open.push(Config {
                            state: self.starts[*rule as usize],
                            stack,
                            ..config.clone()
                        });
                    }
                    Edge::Word(..) => {}
                }
            }
            closed.push(config);
        }
        closed
    }

    /// The states after the end of a rule: that of its caller, or if that is unknown, those of all
    /// possible callers.
    fn leave(&self, config: &Config) -> Vec<Config> {
        if let Some((follow, rest)) = config.stack.split_last() {
            return vec![Config {
                state: *follow,
                stack: rest.to_vec(),
                ..config.clone()
            }];
        }
        // The start and the stop state of each rule are adjacent.
        let follows = &self.follows[config.state / 2];
        let outside = |state: &usize| Config {
            state: *state,
            outside: true,
            ..config.clone()
        };
        let mut left: Vec<Config> = follows.iter().map(outside).collect();
        left.push(Config {
            outside: true,
            ..config.clone()
        });
        left
    }
}

/// A state that an alternative may have reached.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Config {
    state: usize,
    alternative: usize,
    stack: Vec<usize>,
    /// Whether the rule of the decision has ended.
    outside: bool,
}

/// Whether no token can distinguish the alternatives any more: each state is reached by several.
fn conflicting(configs: &[Config]) -> bool {
    configs.iter().all(|config| {
        configs.iter().any(|other| {
            other.alternative != config.alternative
                && other.state == config.state
                && other.stack == config.stack
        })
    })
}
