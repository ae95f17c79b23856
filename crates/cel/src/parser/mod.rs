//! The parser: recursive descent. For a syntax error, `diagnose` parses the text again like
//! cel-go's generated parser, to produce its messages.

mod balance;
mod diagnose;
mod lexer;
mod literal;
mod macros;
mod nodes;
mod primary;
mod source;

use super::ast::{Expr, ExprKind, Id, Literal, Select};
use super::function::Macro;
use lexer::{LexToken, TokenKind};
pub(super) use macros::{bindings, optional, standard, two_variables};
use mizzen_value::Str;
use nodes::call;
pub use source::{CompileError, Issue};

/// The maximum length of an expression, in characters.
const MAX_LENGTH: usize = 100_000;
/// The maximum number of reported errors.
const MAX_ISSUES: usize = 100;
/// The maximum nesting depth.
const MAX_DEPTH: u32 = 250;

/// A parsed expression with the positions of its nodes.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) expr: Expr,
    /// The position of each node, by ID.
    pub(crate) positions: Vec<u32>,
}

impl Parsed {
    pub(crate) fn position(&self, id: Id) -> usize {
        self.positions.get(id as usize).copied().unwrap_or_default() as usize
    }
}

/// Parses an expression and expands its macros.
pub(crate) fn parse(text: &str, macros: &[Macro]) -> Result<Parsed, CompileError> {
    let mut characters: Vec<char> = text.chars().collect();
    if characters.len() > MAX_LENGTH {
        let size = characters.len();
        let message =
            format!("expression code point size exceeds limit: size: {size}, limit {MAX_LENGTH}");
        return Err(CompileError::new(text, vec![Issue::nowhere(message)]));
    }
    let (tokens, mut issues) = lexer::lex(&mut characters);
    let mut parser = CelParser {
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
        Err(ParseStop::TooDeep(message)) => issues.push(Issue::nowhere(message)),
        Err(ParseStop::Syntax) => issues.extend(diagnose::diagnose(&tokens, &characters)),
    }
    // The maximum, and one that says that there are too many.
    issues.truncate(MAX_ISSUES + 1);
    Err(CompileError::new(text, issues))
}

enum ParseStop {
    /// A syntax error.
    Syntax,
    /// The expression is nested too deeply.
    TooDeep(String),
}

type Parse<T = Expr> = Result<T, ParseStop>;

struct CelParser<'a> {
    tokens: &'a [LexToken],
    next: usize,
    macros: &'a [Macro],
    positions: Vec<u32>,
    /// The position of the macro that is being expanded.
    macro_at: u32,
    issues: Vec<Issue>,
    /// The current nesting depth.
    depth: u32,
    /// The height of each node in operators, selections and calls.
    heights: Vec<u32>,
}

/// The function and the precedence of a binary operator.
fn operator(kind: TokenKind) -> Option<(&'static str, u8)> {
    Some(match kind {
        TokenKind::Less => ("_<_", 1),
        TokenKind::LessEquals => ("_<=_", 1),
        TokenKind::Greater => ("_>_", 1),
        TokenKind::GreaterEquals => ("_>=_", 1),
        TokenKind::Equals => ("_==_", 1),
        TokenKind::NotEquals => ("_!=_", 1),
        TokenKind::In => ("@in", 1),
        TokenKind::Plus => ("_+_", 2),
        TokenKind::Minus => ("_-_", 2),
        TokenKind::Star => ("_*_", 3),
        TokenKind::Slash => ("_/_", 3),
        TokenKind::Percent => ("_%_", 3),
        _ => return None,
    })
}

impl CelParser<'_> {
    fn start(&mut self) -> Parse {
        let expr = self.expr()?;
        self.expect(TokenKind::Eof)?;
        if self.heights[expr.id as usize] > MAX_DEPTH {
            return Err(ParseStop::TooDeep("max recursion depth exceeded".into()));
        }
        Ok(expr)
    }

    fn expr(&mut self) -> Parse {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(ParseStop::TooDeep(format!(
                "expression recursion limit exceeded: {MAX_DEPTH}"
            )));
        }
        let condition = self.logical()?;
        let expr = match self.accept(TokenKind::Question) {
            Some(question) => {
                let id = self.id_at(question);
                let then = self.logical()?;
                self.expect(TokenKind::Colon)?;
                let otherwise = self.expr()?;
                self.counted(id, "_?_:_", vec![condition, then, otherwise])
            }
            None => condition,
        };
        self.depth -= 1;
        Ok(expr)
    }

    /// Parses `a && b || c && d`: terms of factors.
    fn logical(&mut self) -> Parse {
        let (mut terms, mut ors) = (Vec::new(), Vec::new());
        let (mut factors, mut ands) = (Vec::new(), Vec::new());
        loop {
            factors.push(self.binary(0)?);
            if let Some(at) = self.accept(TokenKind::And) {
                ands.push(self.id_at(at));
                continue;
            }
            terms.push(self.join(
                "_&&_",
                std::mem::take(&mut factors),
                std::mem::take(&mut ands),
            ));
            match self.accept(TokenKind::Or) {
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

    /// Parses left-associative operators of at least a precedence.
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
            TokenKind::Exclamation => self.repeated(TokenKind::Exclamation, "!_"),
            TokenKind::Minus if !self.at_signed_number() => self.repeated(TokenKind::Minus, "-_"),
            _ => self.member(),
        }
    }

    /// `!!a`: an even number cancels out.
    fn repeated(&mut self, operator: TokenKind, name: &str) -> Parse {
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
        self.peek() == TokenKind::Minus
            && matches!(self.peek_at(1), TokenKind::Int | TokenKind::Float)
    }

    fn member(&mut self) -> Parse {
        let mut member = self.primary()?;
        loop {
            member = match self.peek() {
                TokenKind::Dot => self.select(member)?,
                TokenKind::LeftBracket => self.index(member)?,
                _ => break,
            };
        }
        Ok(member)
    }

    fn select(&mut self, operand: Expr) -> Parse {
        let dot = self.expect(TokenKind::Dot)?;
        let optional = self.accept(TokenKind::Question).is_some();
        let (name_at, name) = self.field_name()?;
        if optional {
            let id = self.id_at(dot);
            let field = self.node_at(name_at, ExprKind::Literal(Literal::String(name)));
            return Ok(self.counted(id, "_?._", vec![operand, field]));
        }
        if self.peek() == TokenKind::LeftParen
            && self.tokens[self.next - 1].kind == TokenKind::Ident
        {
            let open = self.expect(TokenKind::LeftParen)?;
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
            TokenKind::Ident => {}
            TokenKind::EscapedIdent => self.report(token.at, "unsupported syntax: '`'"),
            _ => return Err(ParseStop::Syntax),
        }
        self.next += 1;
        Ok((token.at, token.text.as_str().into()))
    }

    fn index(&mut self, operand: Expr) -> Parse {
        let open = self.expect(TokenKind::LeftBracket)?;
        let id = self.id_at(open);
        let name = if self.accept(TokenKind::Question).is_some() {
            "_[?_]"
        } else {
            "_[_]"
        };
        let index = self.expr()?;
        self.expect(TokenKind::RightBracket)?;
        Ok(self.counted(id, name, vec![operand, index]))
    }

    fn arguments(&mut self) -> Parse<Vec<Expr>> {
        let mut arguments = Vec::new();
        if self.accept(TokenKind::RightParen).is_some() {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.expr()?);
            if self.accept(TokenKind::Comma).is_none() {
                self.expect(TokenKind::RightParen)?;
                return Ok(arguments);
            }
        }
    }

    fn peek(&self) -> TokenKind {
        self.peek_at(0)
    }

    fn peek_at(&self, ahead: usize) -> TokenKind {
        self.tokens
            .get(self.next + ahead)
            .map_or(TokenKind::Eof, |token| token.kind)
    }

    fn accept(&mut self, kind: TokenKind) -> Option<usize> {
        let token = self
            .tokens
            .get(self.next)
            .filter(|token| token.kind == kind)?;
        self.next += 1;
        Some(token.at)
    }

    fn expect(&mut self, kind: TokenKind) -> Parse<usize> {
        self.accept(kind).ok_or(ParseStop::Syntax)
    }
}
