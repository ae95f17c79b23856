//! The grammar, as steps to parse and as an augmented transition network (ATN) for lookahead.

use super::super::lexer::TokenKind;

/// A set of token kinds, one bit each.
pub(super) type Set = u64;

/// In a set: the rule can end here.
pub(super) const END: Set = 1 << 63;

/// The set of one kind.
pub(super) fn one(kind: TokenKind) -> Set {
    1 << kind as u64
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum GrammarRule {
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

const N_RULES: usize = GrammarRule::Literal as usize + 1;

/// The kinds of states that recovery distinguishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StateKind {
    Plain,
    /// The start of a choice or of a loop.
    Choice,
    /// The end of a loop's body, where the loop is decided.
    LoopBack,
    /// The end of a rule.
    Stop,
}

/// A transition.
#[derive(Debug, Clone, Copy)]
pub(super) enum Edge {
    Free(usize),
    Word(Set, usize),
    /// Calls a rule, then continues at the state.
    Rule(GrammarRule, usize),
}

#[derive(Debug)]
pub(super) struct AtnState {
    pub(super) kind: StateKind,
    pub(super) edges: Vec<Edge>,
}

/// A step of a rule, with its state.
#[derive(Debug)]
pub(super) enum GrammarStep {
    Word(usize, Set),
    /// A rule and the minimum precedence of its operators.
    Rule(usize, GrammarRule, u8),
    Sequence(Vec<GrammarStep>),
    Optional(usize, Box<GrammarStep>),
    /// The entry state, the loop-back state, and whether one token of lookahead decides.
    Star(usize, usize, Box<GrammarStep>, bool),
    Plus(usize, usize, Box<GrammarStep>, bool),
    /// Alternatives, and whether one token of lookahead decides.
    Choice(usize, Vec<GrammarStep>, bool),
    /// A loop of operators, each with its precedence.
    Operators(usize, usize, Box<GrammarStep>, Vec<(Set, u8)>),
}

#[derive(Debug)]
pub(super) struct Grammar {
    pub(super) states: Vec<AtnState>,
    pub(super) rules: Vec<GrammarStep>,
    pub(super) starts: Vec<usize>,
    /// The states that can follow each rule.
    pub(super) follows: Vec<Vec<usize>>,
}

/// The source form of a rule.
enum RuleText {
    Word(&'static [TokenKind]),
    Rule(GrammarRule, u8),
    Sequence(Vec<RuleText>),
    Optional(Box<RuleText>),
    Star(Box<RuleText>, bool),
    Plus(Box<RuleText>, bool),
    Choice(Vec<RuleText>, bool),
    Operators(Box<RuleText>, Vec<(&'static [TokenKind], u8)>),
}

impl Grammar {
    /// Builds the network of the grammar.
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
        self.states.push(AtnState {
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

    /// Adds the states of a step after a state; returns the step and its last state.
    fn add(&mut self, text: &RuleText, from: usize) -> (GrammarStep, usize) {
        match text {
            RuleText::Word(kinds) => {
                let set = kinds.iter().fold(0, |set, kind| set | one(*kind));
                let (state, end) = (self.state(StateKind::Plain), self.state(StateKind::Plain));
                self.free(from, state);
                self.edge(state, Edge::Word(set, end));
                (GrammarStep::Word(state, set), end)
            }
            RuleText::Rule(rule, precedence) => {
                let (state, end) = (self.state(StateKind::Plain), self.state(StateKind::Plain));
                self.free(from, state);
                self.edge(state, Edge::Rule(*rule, end));
                self.follows[*rule as usize].push(end);
                (GrammarStep::Rule(state, *rule, *precedence), end)
            }
            RuleText::Sequence(parts) => {
                let (mut steps, mut at) = (Vec::new(), from);
                for part in parts {
                    let (step, end) = self.add(part, at);
                    steps.push(step);
                    at = end;
                }
                (GrammarStep::Sequence(steps), at)
            }
            RuleText::Optional(body) => {
                let (state, end) = (self.state(StateKind::Choice), self.state(StateKind::Plain));
                self.free(from, state);
                let (step, after) = self.add(body, state);
                self.free(after, end);
                self.free(state, end);
                (GrammarStep::Optional(state, Box::new(step)), end)
            }
            RuleText::Choice(bodies, simple) => {
                let (state, end) = (self.state(StateKind::Choice), self.state(StateKind::Plain));
                self.free(from, state);
                let steps = bodies.iter().map(|body| {
                    let (step, after) = self.add(body, state);
                    self.free(after, end);
                    step
                });
                (GrammarStep::Choice(state, steps.collect(), *simple), end)
            }
            RuleText::Star(body, simple) => {
                let (entry, back, step, end) = self.star(body, from);
                (GrammarStep::Star(entry, back, Box::new(step), *simple), end)
            }
            RuleText::Operators(body, operators) => {
                let (entry, back, step, end) = self.star(body, from);
                let set = |kinds: &[TokenKind]| kinds.iter().fold(0, |set, kind| set | one(*kind));
                let operators = operators
                    .iter()
                    .map(|(kinds, precedence)| (set(kinds), *precedence))
                    .collect();
                (
                    GrammarStep::Operators(entry, back, Box::new(step), operators),
                    end,
                )
            }
            RuleText::Plus(body, simple) => {
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
                (GrammarStep::Plus(start, back, Box::new(step), *simple), end)
            }
        }
    }

    fn star(&mut self, body: &RuleText, from: usize) -> (usize, usize, GrammarStep, usize) {
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

/// The rules in the order of [`GrammarRule`].
fn rules() -> Vec<RuleText> {
    use TokenKind::*;
    let word = |kinds: &'static [TokenKind]| RuleText::Word(kinds);
    let rule = |rule| RuleText::Rule(rule, 0);
    let optional = |body| RuleText::Optional(Box::new(body));
    let optional_word =
        |kinds: &'static [TokenKind]| RuleText::Optional(Box::new(RuleText::Word(kinds)));
    let sequence = RuleText::Sequence;
    let star =
        |body: Vec<RuleText>, simple| RuleText::Star(Box::new(RuleText::Sequence(body)), simple);
    let entry = |key: GrammarRule| vec![rule(key), word(&[Colon]), rule(GrammarRule::Expr)];
    let entries = |key: GrammarRule| {
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
    let brackets = |open, inside: GrammarRule, close| {
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
            optional(rule(GrammarRule::ExprList)),
            word(&[RightParen]),
        ]
    };
    const RELATIONS: &[TokenKind] = &[
        Less,
        LessEquals,
        GreaterEquals,
        Greater,
        Equals,
        NotEquals,
        In,
    ];
    const PRODUCTS: &[TokenKind] = &[Star, Slash, Percent];
    const SUMS: &[TokenKind] = &[Plus, Minus];
    vec![
        sequence(vec![rule(GrammarRule::Expr), word(&[Eof])]),
        sequence(vec![
            rule(GrammarRule::ConditionalOr),
            optional(sequence(vec![
                word(&[Question]),
                rule(GrammarRule::ConditionalOr),
                word(&[Colon]),
                rule(GrammarRule::Expr),
            ])),
        ]),
        sequence(vec![
            rule(GrammarRule::ConditionalAnd),
            star(vec![word(&[Or]), rule(GrammarRule::ConditionalAnd)], true),
        ]),
        sequence(vec![
            rule(GrammarRule::Relation),
            star(vec![word(&[And]), rule(GrammarRule::Relation)], true),
        ]),
        sequence(vec![
            rule(GrammarRule::Calc),
            RuleText::Operators(
                Box::new(sequence(vec![
                    word(RELATIONS),
                    RuleText::Rule(GrammarRule::Relation, 2),
                ])),
                vec![(RELATIONS, 1)],
            ),
        ]),
        sequence(vec![
            rule(GrammarRule::Unary),
            RuleText::Operators(
                Box::new(RuleText::Choice(
                    vec![
                        sequence(vec![word(PRODUCTS), RuleText::Rule(GrammarRule::Calc, 3)]),
                        sequence(vec![word(SUMS), RuleText::Rule(GrammarRule::Calc, 2)]),
                    ],
                    true,
                )),
                vec![(PRODUCTS, 2), (SUMS, 1)],
            ),
        ]),
        RuleText::Choice(
            vec![
                rule(GrammarRule::Member),
                sequence(vec![
                    RuleText::Plus(Box::new(word(&[Exclamation])), true),
                    rule(GrammarRule::Member),
                ]),
                sequence(vec![
                    RuleText::Plus(Box::new(word(&[Minus])), false),
                    rule(GrammarRule::Member),
                ]),
            ],
            false,
        ),
        sequence(vec![
            rule(GrammarRule::Primary),
            RuleText::Operators(
                Box::new(RuleText::Choice(
                    vec![
                        sequence(vec![
                            word(&[Dot]),
                            optional_word(&[Question]),
                            rule(GrammarRule::EscapeIdent),
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
                            rule(GrammarRule::Expr),
                            word(&[RightBracket]),
                        ]),
                    ],
                    false,
                )),
                vec![(&[Dot, LeftBracket], 1)],
            ),
        ]),
        RuleText::Choice(
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
                    rule(GrammarRule::Expr),
                    word(&[RightParen]),
                ]),
                sequence(brackets(
                    &[LeftBracket],
                    GrammarRule::ListInit,
                    &[RightBracket],
                )),
                sequence(brackets(
                    &[LeftBrace],
                    GrammarRule::MapInitializerList,
                    &[RightBrace],
                )),
                sequence(
                    [
                        vec![
                            optional_word(&[Dot]),
                            word(&[Ident]),
                            star(vec![word(&[Dot]), word(&[Ident])], true),
                        ],
                        brackets(
                            &[LeftBrace],
                            GrammarRule::FieldInitializerList,
                            &[RightBrace],
                        ),
                    ]
                    .into_iter()
                    .flatten()
                    .collect(),
                ),
                rule(GrammarRule::Literal),
            ],
            false,
        ),
        sequence(vec![
            rule(GrammarRule::Expr),
            star(vec![word(&[Comma]), rule(GrammarRule::Expr)], true),
        ]),
        sequence(vec![
            rule(GrammarRule::OptExpr),
            star(vec![word(&[Comma]), rule(GrammarRule::OptExpr)], false),
        ]),
        entries(GrammarRule::OptField),
        sequence(vec![
            optional_word(&[Question]),
            rule(GrammarRule::EscapeIdent),
        ]),
        entries(GrammarRule::OptExpr),
        RuleText::Choice(vec![word(&[Ident]), word(&[EscapedIdent])], true),
        sequence(vec![optional_word(&[Question]), rule(GrammarRule::Expr)]),
        RuleText::Choice(
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
