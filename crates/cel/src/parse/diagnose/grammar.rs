//! The grammar of the language, as steps to follow and as a network of states to look ahead in.

use super::super::lex::Kind;

/// Kinds of words, one bit each.
pub(super) type Set = u64;

/// In a set: the rule can end here.
pub(super) const END: Set = 1 << 63;

/// The set of one kind.
pub(super) fn one(kind: Kind) -> Set {
    1 << kind as u64
}

/// The rules of the grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Rule {
    Start,
    Expr,
    ConditionalOr,
    ConditionalAnd,
    Relation,
    Calc,
    Unary,
    Member,
    Primary,
    ExprList,
    ListInit,
    FieldInitializerList,
    OptField,
    MapInitializerList,
    EscapeIdent,
    OptExpr,
    Literal,
}

const N_RULES: usize = Rule::Literal as usize + 1;

/// What a state is, as far as recovery cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StateKind {
    Plain,
    /// The begin of a choice or of a loop.
    Choice,
    /// Where a loop decides to go on.
    LoopBack,
    /// The end of a rule.
    Stop,
}

/// A way from one state to another.
#[derive(Debug, Clone, Copy)]
pub(super) enum Edge {
    Free(usize),
    Word(Set, usize),
    /// Through a rule, then to the state.
    Rule(Rule, usize),
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) kind: StateKind,
    pub(super) edges: Vec<Edge>,
}

/// A step of a rule, with its state.
#[derive(Debug)]
pub(super) enum Step {
    Word(usize, Set),
    /// A rule with the precedence that its operators need at least.
    Rule(usize, Rule, u8),
    Sequence(Vec<Step>),
    Optional(usize, Box<Step>),
    /// The entry, where it goes back, and whether one word ahead decides.
    Star(usize, usize, Box<Step>, bool),
    Plus(usize, usize, Box<Step>, bool),
    /// One of several; whether one word ahead decides.
    Choice(usize, Vec<Step>, bool),
    /// A loop of operators: each with its precedence.
    Operators(usize, usize, Box<Step>, Vec<(Set, u8)>),
}

/// The whole grammar.
#[derive(Debug)]
pub(super) struct Grammar {
    pub(super) states: Vec<State>,
    pub(super) rules: Vec<Step>,
    pub(super) starts: Vec<usize>,
    /// For each rule the states that can follow it.
    pub(super) follows: Vec<Vec<usize>>,
}

/// How a rule is written down below.
enum Text {
    Word(&'static [Kind]),
    Rule(Rule, u8),
    Sequence(Vec<Text>),
    Optional(Box<Text>),
    Star(Box<Text>, bool),
    Plus(Box<Text>, bool),
    Choice(Vec<Text>, bool),
    Operators(Box<Text>, Vec<(&'static [Kind], u8)>),
}

impl Grammar {
    /// Builds the network of the whole grammar.
    pub(super) fn new() -> Grammar {
        let mut grammar = Grammar {
            states: Vec::new(),
            rules: Vec::new(),
            starts: Vec::new(),
            follows: Vec::new(),
        };
        grammar.follows.resize(N_RULES, Vec::new());
        let mut stops = Vec::new();
        for _ in 0..N_RULES {
            let start = grammar.state(StateKind::Plain);
            grammar.starts.push(start);
            stops.push(grammar.state(StateKind::Stop));
        }
        for (index, text) in rules().into_iter().enumerate() {
            let (step, end) = grammar.add(&text, grammar.starts[index]);
            grammar.edge(end, Edge::Free(stops[index]));
            grammar.rules.push(step);
        }
        grammar
    }

    fn state(&mut self, kind: StateKind) -> usize {
        self.states.push(State {
            kind,
            edges: Vec::new(),
        });
        self.states.len() - 1
    }

    fn edge(&mut self, from: usize, edge: Edge) {
        self.states[from].edges.push(edge);
    }

    fn free(&mut self, from: usize, to: usize) {
        self.edge(from, Edge::Free(to));
    }

    /// Adds the states of a step after a state; the step, and the state after it.
    fn add(&mut self, text: &Text, from: usize) -> (Step, usize) {
        match text {
            Text::Word(kinds) => {
                let set = kinds.iter().fold(0, |set, kind| set | one(*kind));
                let (state, end) = (self.state(StateKind::Plain), self.state(StateKind::Plain));
                self.free(from, state);
                self.edge(state, Edge::Word(set, end));
                (Step::Word(state, set), end)
            }
            Text::Rule(rule, precedence) => {
                let (state, end) = (self.state(StateKind::Plain), self.state(StateKind::Plain));
                self.free(from, state);
                self.edge(state, Edge::Rule(*rule, end));
                self.follows[*rule as usize].push(end);
                (Step::Rule(state, *rule, *precedence), end)
            }
            Text::Sequence(parts) => {
                let (mut steps, mut at) = (Vec::new(), from);
                for part in parts {
                    let (step, end) = self.add(part, at);
                    steps.push(step);
                    at = end;
                }
                (Step::Sequence(steps), at)
            }
            Text::Optional(body) => {
                let (state, end) = (self.state(StateKind::Choice), self.state(StateKind::Plain));
                self.free(from, state);
                let (step, after) = self.add(body, state);
                self.free(after, end);
                self.free(state, end);
                (Step::Optional(state, Box::new(step)), end)
            }
            Text::Choice(bodies, simple) => {
                let (state, end) = (self.state(StateKind::Choice), self.state(StateKind::Plain));
                self.free(from, state);
                let steps = bodies.iter().map(|body| {
                    let (step, after) = self.add(body, state);
                    self.free(after, end);
                    step
                });
                (Step::Choice(state, steps.collect(), *simple), end)
            }
            Text::Star(body, simple) => {
                let (entry, back, step, end) = self.star(body, from);
                (Step::Star(entry, back, Box::new(step), *simple), end)
            }
            Text::Operators(body, operators) => {
                let (entry, back, step, end) = self.star(body, from);
                let set = |kinds: &[Kind]| kinds.iter().fold(0, |set, kind| set | one(*kind));
                let operators = operators
                    .iter()
                    .map(|(kinds, precedence)| (set(kinds), *precedence))
                    .collect();
                (Step::Operators(entry, back, Box::new(step), operators), end)
            }
            Text::Plus(body, simple) => {
                let (start, back) = (
                    self.state(StateKind::Choice),
                    self.state(StateKind::LoopBack),
                );
                let end = self.state(StateKind::Plain);
                self.free(from, start);
                let (step, after) = self.add(body, start);
                self.free(after, back);
                self.free(back, start);
                self.free(back, end);
                (Step::Plus(start, back, Box::new(step), *simple), end)
            }
        }
    }

    fn star(&mut self, body: &Text, from: usize) -> (usize, usize, Step, usize) {
        let (entry, back) = (
            self.state(StateKind::Choice),
            self.state(StateKind::LoopBack),
        );
        let (block, end) = (self.state(StateKind::Plain), self.state(StateKind::Plain));
        self.free(from, entry);
        self.free(entry, block);
        self.free(entry, end);
        let (step, after) = self.add(body, block);
        self.free(after, back);
        self.free(back, entry);
        (entry, back, step, end)
    }
}

/// The rules in their order.
fn rules() -> Vec<Text> {
    use Kind::*;
    let word = |kinds: &'static [Kind]| Text::Word(kinds);
    let rule = |rule| Text::Rule(rule, 0);
    let optional = |body| Text::Optional(Box::new(body));
    let optional_word = |kinds: &'static [Kind]| Text::Optional(Box::new(Text::Word(kinds)));
    let sequence = Text::Sequence;
    let star = |body: Vec<Text>, simple| Text::Star(Box::new(Text::Sequence(body)), simple);
    let entry = |key: Rule| vec![rule(key), word(&[Colon]), rule(Rule::Expr)];
    let entries = |key: Rule| {
        let more = [vec![word(&[Comma])], entry(key)]
            .into_iter()
            .flatten()
            .collect();
        sequence(
            [entry(key), vec![star(more, false)]]
                .into_iter()
                .flatten()
                .collect(),
        )
    };
    let brackets = |open, inside: Rule, close| {
        vec![
            word(open),
            optional(rule(inside)),
            optional_word(&[Comma]),
            word(close),
        ]
    };
    let call = || {
        vec![
            word(&[LeftParen]),
            optional(rule(Rule::ExprList)),
            word(&[RightParen]),
        ]
    };
    const RELATIONS: &[Kind] = &[
        Less,
        LessEquals,
        GreaterEquals,
        Greater,
        Equals,
        NotEquals,
        In,
    ];
    const PRODUCTS: &[Kind] = &[Star, Slash, Percent];
    const SUMS: &[Kind] = &[Plus, Minus];
    vec![
        sequence(vec![rule(Rule::Expr), word(&[Eof])]),
        sequence(vec![
            rule(Rule::ConditionalOr),
            optional(sequence(vec![
                word(&[Question]),
                rule(Rule::ConditionalOr),
                word(&[Colon]),
                rule(Rule::Expr),
            ])),
        ]),
        sequence(vec![
            rule(Rule::ConditionalAnd),
            star(vec![word(&[Or]), rule(Rule::ConditionalAnd)], true),
        ]),
        sequence(vec![
            rule(Rule::Relation),
            star(vec![word(&[And]), rule(Rule::Relation)], true),
        ]),
        sequence(vec![
            rule(Rule::Calc),
            Text::Operators(
                Box::new(sequence(vec![
                    word(RELATIONS),
                    Text::Rule(Rule::Relation, 2),
                ])),
                vec![(RELATIONS, 1)],
            ),
        ]),
        sequence(vec![
            rule(Rule::Unary),
            Text::Operators(
                Box::new(Text::Choice(
                    vec![
                        sequence(vec![word(PRODUCTS), Text::Rule(Rule::Calc, 3)]),
                        sequence(vec![word(SUMS), Text::Rule(Rule::Calc, 2)]),
                    ],
                    true,
                )),
                vec![(PRODUCTS, 2), (SUMS, 1)],
            ),
        ]),
        Text::Choice(
            vec![
                rule(Rule::Member),
                sequence(vec![
                    Text::Plus(Box::new(word(&[Exclamation])), true),
                    rule(Rule::Member),
                ]),
                sequence(vec![
                    Text::Plus(Box::new(word(&[Minus])), false),
                    rule(Rule::Member),
                ]),
            ],
            false,
        ),
        sequence(vec![
            rule(Rule::Primary),
            Text::Operators(
                Box::new(Text::Choice(
                    vec![
                        sequence(vec![
                            word(&[Dot]),
                            optional_word(&[Question]),
                            rule(Rule::EscapeIdent),
                        ]),
                        sequence(
                            [vec![word(&[Dot]), word(&[Ident])], call()]
                                .into_iter()
                                .flatten()
                                .collect(),
                        ),
                        sequence(vec![
                            word(&[LeftBracket]),
                            optional_word(&[Question]),
                            rule(Rule::Expr),
                            word(&[RightBracket]),
                        ]),
                    ],
                    false,
                )),
                vec![(&[Dot, LeftBracket], 1)],
            ),
        ]),
        Text::Choice(
            vec![
                sequence(vec![optional_word(&[Dot]), word(&[Ident])]),
                sequence(
                    [vec![optional_word(&[Dot]), word(&[Ident])], call()]
                        .into_iter()
                        .flatten()
                        .collect(),
                ),
                sequence(vec![
                    word(&[LeftParen]),
                    rule(Rule::Expr),
                    word(&[RightParen]),
                ]),
                sequence(brackets(&[LeftBracket], Rule::ListInit, &[RightBracket])),
                sequence(brackets(
                    &[LeftBrace],
                    Rule::MapInitializerList,
                    &[RightBrace],
                )),
                sequence(
                    [
                        vec![
                            optional_word(&[Dot]),
                            word(&[Ident]),
                            star(vec![word(&[Dot]), word(&[Ident])], true),
                        ],
                        brackets(&[LeftBrace], Rule::FieldInitializerList, &[RightBrace]),
                    ]
                    .into_iter()
                    .flatten()
                    .collect(),
                ),
                rule(Rule::Literal),
            ],
            false,
        ),
        sequence(vec![
            rule(Rule::Expr),
            star(vec![word(&[Comma]), rule(Rule::Expr)], true),
        ]),
        sequence(vec![
            rule(Rule::OptExpr),
            star(vec![word(&[Comma]), rule(Rule::OptExpr)], false),
        ]),
        entries(Rule::OptField),
        sequence(vec![optional_word(&[Question]), rule(Rule::EscapeIdent)]),
        entries(Rule::OptExpr),
        Text::Choice(vec![word(&[Ident]), word(&[EscapedIdent])], true),
        sequence(vec![optional_word(&[Question]), rule(Rule::Expr)]),
        Text::Choice(
            vec![
                sequence(vec![optional_word(&[Minus]), word(&[Int])]),
                word(&[Uint]),
                sequence(vec![optional_word(&[Minus]), word(&[Float])]),
                word(&[String]),
                word(&[Bytes]),
                word(&[True]),
                word(&[False]),
                word(&[Null]),
            ],
            false,
        ),
    ]
}
