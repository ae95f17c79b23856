//! Compiled programs: one instruction for each thing to match, and jumps.
//!
//! Instructions match whole characters and a class is one instruction, so a program grows with the
//! pattern's text and its repetitions, not with Unicode.

use std::collections::HashMap;

use super::Assertion;
use super::class::Class;
use super::parse::{CaseFold, NodeKind, PatternNode, Repeat, SyntaxTree};

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Prog {
    pub instructions: Vec<Instruction>,
    pub classes: Vec<Class>,
    /// Whether a match can start only at the start of the text.
    pub anchored: bool,
    /// The memory of the program, in bytes.
    pub bytes: usize,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Instruction {
    Char(u32),
    /// A character of a class, by its index.
    Class(u32),
    Any,
    AnyExceptNewline,
    Assert(Assertion),
    /// Continues at the first; at the second if that fails.
    Split(u32, u32),
    Jump(u32),
    Match,
}

impl Prog {
    pub(super) fn new(tree: SyntaxTree) -> Prog {
        let mut compiler = ProgCompiler {
            instructions: Vec::new(),
            classes: tree.classes,
            by_letter: HashMap::new(),
        };
        compiler.emit(&tree.root);
        compiler.instructions.push(Instruction::Match);
        compiler.instructions.shrink_to_fit();
        let ProgCompiler {
            instructions,
            classes,
            ..
        } = compiler;
        let units = instructions.len() + classes.iter().map(Class::size).sum::<usize>();
        Prog {
            anchored: matches!(instructions[0], Instruction::Assert(Assertion::BeginText)),
            bytes: units * size_of::<Instruction>(),
            instructions,
            classes,
        }
    }
}

struct ProgCompiler {
    instructions: Vec<Instruction>,
    classes: Vec<Class>,
    /// The classes of case-insensitive letters.
    by_letter: HashMap<u32, Instruction>,
}

impl ProgCompiler {
    fn emit(&mut self, node: &PatternNode) {
        let instruction = match &node.kind {
            NodeKind::Empty => return,
            NodeKind::Literal(rune, CaseFold::Sensitive) => Instruction::Char(*rune),
            NodeKind::Literal(rune, CaseFold::Insensitive) => self.letter(*rune),
            NodeKind::Class(at) => Instruction::Class(index(*at)),
            NodeKind::Any => Instruction::Any,
            NodeKind::AnyExceptNewline => Instruction::AnyExceptNewline,
            NodeKind::Assert(assertion) => Instruction::Assert(*assertion),
            NodeKind::Concat(items) => return items.iter().for_each(|item| self.emit(item)),
            NodeKind::Alternate(branches) => return self.alternate(branches),
            NodeKind::Repeat(item, repeat) => return self.repeat(item, *repeat),
        };
        self.instructions.push(instruction);
    }

    fn letter(&mut self, rune: u32) -> Instruction {
        if let Some(known) = self.by_letter.get(&rune) {
            return *known;
        }
        let instruction = match Class::of_case(rune) {
            Some(class) => {
                self.classes.push(class);
                Instruction::Class(index(self.classes.len() - 1))
            }
            None => Instruction::Char(rune),
        };
        self.by_letter.insert(rune, instruction);
        instruction
    }

    fn alternate(&mut self, branches: &[PatternNode]) {
        let mut jumps = Vec::new();
        let (last, others) = branches.split_last().expect("an alternation has branches");
        for branch in others {
            let split = self.hole();
            self.emit(branch);
            jumps.push(self.hole());
            self.instructions[split] = Instruction::Split(index(split + 1), self.here());
        }
        self.emit(last);
        let end = self.here();
        jumps
            .into_iter()
            .for_each(|jump| self.instructions[jump] = Instruction::Jump(end));
    }

    fn repeat(&mut self, item: &PatternNode, repeat: Repeat) {
        let Repeat { min, max, greedy } = repeat;
        let split = |on: u32, out: u32| {
            if greedy {
                Instruction::Split(on, out)
            } else {
                Instruction::Split(out, on)
            }
        };
        if matches!(item.kind, NodeKind::Empty) {
            return;
        }
        if let Some(max) = max {
            (0..min).for_each(|_| self.emit(item));
            let mut splits = Vec::new();
            for _ in min..max {
                splits.push(self.hole());
                self.emit(item);
            }
            let end = self.here();
            splits
                .into_iter()
                .for_each(|at| self.instructions[at] = split(index(at + 1), end));
            return;
        }
        (1..min).for_each(|_| self.emit(item));
        // Kubernetes: what matches the empty string is repeated as `(x+)?`, so that `(|a)*` prefers
        // what Go prefers.
        if min == 0 && !item.nullable {
            let at = self.hole();
            self.emit(item);
            self.instructions.push(Instruction::Jump(index(at)));
            self.instructions[at] = split(index(at + 1), self.here());
            return;
        }
        let skip = (min == 0).then(|| self.hole());
        let start = self.here();
        self.emit(item);
        let after = self.here() + 1;
        self.instructions.push(split(start, after));
        if let Some(skip) = skip {
            self.instructions[skip] = split(start, after);
        }
    }

    /// Reserves an instruction that is set later.
    fn hole(&mut self) -> usize {
        self.instructions.push(Instruction::Match);
        self.instructions.len() - 1
    }

    fn here(&self) -> u32 {
        index(self.instructions.len())
    }
}

fn index(at: usize) -> u32 {
    u32::try_from(at).expect("a program is bounded")
}
