//! What does the text of an expression say?
//!
//! A descent by hand makes the tree. When the text is wrong, `diagnose` reads it again in the manner of cel-go's
//! generated parser, whose messages people know.

mod balance;
mod diagnose;
mod lex;
mod literal;
mod macros;
mod nodes;
mod primary;
mod source;

use super::ast::{Expr, ExprKind, Id, Literal, Select};
use super::function::Macro;
use lex::{Kind, Token};
pub(super) use macros::{bindings, optional, standard, two_variables};
use mizzen_value::Str;
use nodes::call;
pub use source::{CompileError, Issue};

/// No expression may be longer, in characters.
const MAX_LENGTH: usize = 100_000;
/// After so many errors nobody looks any further.
const MAX_ISSUES: usize = 100;
/// Nothing may be inside itself more often.
const MAX_DEPTH: u32 = 250;

/// A tree, and where its nodes begin.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) expr: Expr,
    /// The position of each node, by its number.
    pub(crate) positions: Vec<u32>,
}

impl Parsed {
    /// Where a node begins.
    pub(crate) fn position(&self, id: Id) -> usize {
        self.positions.get(id as usize).copied().unwrap_or_default() as usize
    }
}

/// Reads an expression, expanding macros.
pub(crate) fn parse(text: &str, macros: &[Macro]) -> Result<Parsed, CompileError> {
    let mut characters: Vec<char> = text.chars().collect();
    if characters.len() > MAX_LENGTH {
        let size = characters.len();
        let message =
            format!("expression code point size exceeds limit: size: {size}, limit {MAX_LENGTH}");
        return Err(CompileError::new(text, vec![Issue::nowhere(message)]));
    }
    let (tokens, mut issues) = lex::lex(&mut characters);
    let mut parser = Parser {
        tokens: &tokens,
        next: 0,
        macros,
        positions: vec![0],
        macro_at: 0,
        issues: Vec::new(),
        depth: 0,
        heights: vec![0],
    };
    let outcome = parser.start();
    match outcome {
        Ok(expr) if issues.is_empty() && parser.issues.is_empty() => {
            return Ok(Parsed {
                expr,
                positions: parser.positions,
            });
        }
        Ok(_) => issues.append(&mut parser.issues),
        Err(Stop::TooDeep(message)) => issues.push(Issue::nowhere(message)),
        Err(Stop::Syntax) => issues.extend(diagnose::diagnose(&tokens, &characters)),
    }
    // The parser gives up after so many, and one that says so.
    issues.truncate(MAX_ISSUES + 1);
    Err(CompileError::new(text, issues))
}

enum Stop {
    /// The grammar does not allow what comes next.
    Syntax,
    /// The expression is too deep.
    TooDeep(String),
}

type Parse<T = Expr> = Result<T, Stop>;

struct Parser<'a> {
    tokens: &'a [Token],
    next: usize,
    macros: &'a [Macro],
    positions: Vec<u32>,
    /// Where the macro begins that is being expanded.
    macro_at: u32,
    issues: Vec<Issue>,
    /// How many expressions are being read that are inside of each other.
    depth: u32,
    /// For each node how many operators, selections and the like are inside of each other in it.
    heights: Vec<u32>,
}

/// The name and the rank of an operator between two operands; a higher rank binds closer.
fn operator(kind: Kind) -> Option<(&'static str, u8)> {
    Some(match kind {
        Kind::Less => ("_<_", 1),
        Kind::LessEquals => ("_<=_", 1),
        Kind::Greater => ("_>_", 1),
        Kind::GreaterEquals => ("_>=_", 1),
        Kind::Equals => ("_==_", 1),
        Kind::NotEquals => ("_!=_", 1),
        Kind::In => ("@in", 1),
        Kind::Plus => ("_+_", 2),
        Kind::Minus => ("_-_", 2),
        Kind::Star => ("_*_", 3),
        Kind::Slash => ("_/_", 3),
        Kind::Percent => ("_%_", 3),
        _ => return None,
    })
}

impl Parser<'_> {
    fn start(&mut self) -> Parse {
        let expr = self.expr()?;
        self.expect(Kind::Eof)?;
        if self.heights[expr.id as usize] > MAX_DEPTH {
            return Err(Stop::TooDeep("max recursion depth exceeded".into()));
        }
        Ok(expr)
    }

    fn expr(&mut self) -> Parse {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Stop::TooDeep(format!(
                "expression recursion limit exceeded: {MAX_DEPTH}"
            )));
        }
        let condition = self.logical()?;
        let expr = match self.accept(Kind::Question) {
            Some(question) => {
                let id = self.id_at(question);
                let then = self.logical()?;
                self.expect(Kind::Colon)?;
                let otherwise = self.expr()?;
                self.counted(id, "_?_:_", vec![condition, then, otherwise])
            }
            None => condition,
        };
        self.depth -= 1;
        Ok(expr)
    }

    /// `a && b || c && d`: terms, each of factors.
    fn logical(&mut self) -> Parse {
        let (mut terms, mut ors) = (Vec::new(), Vec::new());
        let (mut factors, mut ands) = (Vec::new(), Vec::new());
        loop {
            factors.push(self.binary(0)?);
            if let Some(at) = self.accept(Kind::And) {
                ands.push(self.id_at(at));
                continue;
            }
            terms.push(self.join(
                "_&&_",
                std::mem::take(&mut factors),
                std::mem::take(&mut ands),
            ));
            match self.accept(Kind::Or) {
                Some(at) => ors.push(self.id_at(at)),
                None => return Ok(self.join("_||_", terms, ors)),
            }
        }
    }

    fn join(&mut self, name: &str, terms: Vec<Expr>, operators: Vec<Id>) -> Expr {
        let highest = self.highest(&terms);
        let expr = balance::balance(name, terms, &operators);
        self.heights[expr.id as usize] = highest;
        expr
    }

    /// Operators of at least a rank; those of the same rank are nested to the left.
    fn binary(&mut self, least: u8) -> Parse {
        let mut left = self.unary()?;
        while let Some((name, rank)) = operator(self.peek()).filter(|(_, rank)| *rank >= least) {
            let id = self.id_at(self.tokens[self.next].at);
            self.next += 1;
            let right = self.binary(rank + 1)?;
            left = self.counted(id, name, vec![left, right]);
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parse {
        match self.peek() {
            Kind::Exclamation => self.repeated(Kind::Exclamation, "!_"),
            Kind::Minus if !self.at_signed_number() => self.repeated(Kind::Minus, "-_"),
            _ => self.member(),
        }
    }

    /// `!!a`: two of them are none.
    fn repeated(&mut self, operator: Kind, name: &str) -> Parse {
        let first = self.tokens[self.next].at;
        let mut n_operators = 0;
        while self.accept(operator).is_some() {
            n_operators += 1;
        }
        let odd = n_operators % 2 == 1;
        let id = if odd { self.id_at(first) } else { 0 };
        let operand = self.member()?;
        let highest = self.heights[operand.id as usize];
        if odd {
            self.heights[id as usize] = highest;
        }
        Ok(if odd {
            call(id, name, vec![operand])
        } else {
            operand
        })
    }

    fn at_signed_number(&self) -> bool {
        self.peek() == Kind::Minus && matches!(self.peek_at(1), Kind::Int | Kind::Float)
    }

    fn member(&mut self) -> Parse {
        let mut member = self.primary()?;
        loop {
            member = match self.peek() {
                Kind::Dot => self.select(member)?,
                Kind::LeftBracket => self.index(member)?,
                _ => break,
            };
        }
        Ok(member)
    }

    fn select(&mut self, operand: Expr) -> Parse {
        let dot = self.expect(Kind::Dot)?;
        let optional = self.accept(Kind::Question).is_some();
        let (name_at, name) = self.field_name()?;
        if optional {
            let id = self.id_at(dot);
            let field = self.node_at(name_at, ExprKind::Literal(Literal::String(name)));
            return Ok(self.counted(id, "_?._", vec![operand, field]));
        }
        if self.peek() == Kind::LeftParen && self.tokens[self.next - 1].kind == Kind::Ident {
            let open = self.expect(Kind::LeftParen)?;
            let id = self.id_at(open);
            let arguments = self.arguments()?;
            return Ok(self.call_or_macro(id, name, Some(operand), arguments));
        }
        let height = self.heights[operand.id as usize] + 1;
        let select = Select {
            operand,
            field: name,
            test: false,
        };
        let expr = self.node_at(dot, ExprKind::Select(Box::new(select)));
        self.heights[expr.id as usize] = height;
        Ok(expr)
    }

    fn field_name(&mut self) -> Parse<(usize, Str)> {
        let token = &self.tokens[self.next];
        match token.kind {
            Kind::Ident => {}
            Kind::EscapedIdent => self.report(token.at, "unsupported syntax: '`'"),
            _ => return Err(Stop::Syntax),
        }
        self.next += 1;
        Ok((token.at, token.text.as_str().into()))
    }

    fn index(&mut self, operand: Expr) -> Parse {
        let open = self.expect(Kind::LeftBracket)?;
        let id = self.id_at(open);
        let name = if self.accept(Kind::Question).is_some() {
            "_[?_]"
        } else {
            "_[_]"
        };
        let index = self.expr()?;
        self.expect(Kind::RightBracket)?;
        Ok(self.counted(id, name, vec![operand, index]))
    }

    fn arguments(&mut self) -> Parse<Vec<Expr>> {
        let mut arguments = Vec::new();
        if self.accept(Kind::RightParen).is_some() {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.expr()?);
            if self.accept(Kind::Comma).is_none() {
                self.expect(Kind::RightParen)?;
                return Ok(arguments);
            }
        }
    }

    fn peek(&self) -> Kind {
        self.peek_at(0)
    }

    fn peek_at(&self, ahead: usize) -> Kind {
        self.tokens
            .get(self.next + ahead)
            .map_or(Kind::Eof, |token| token.kind)
    }

    fn accept(&mut self, kind: Kind) -> Option<usize> {
        let token = self
            .tokens
            .get(self.next)
            .filter(|token| token.kind == kind)?;
        self.next += 1;
        Some(token.at)
    }

    fn expect(&mut self, kind: Kind) -> Parse<usize> {
        self.accept(kind).ok_or(Stop::Syntax)
    }
}
