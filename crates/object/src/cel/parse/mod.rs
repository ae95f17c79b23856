//! What does the text of an expression say?
//!
//! A descent by hand makes the tree. When the text is wrong, `diagnose` reads it again in the manner of cel-go's
//! generated parser, whose messages people know.

mod balance;
mod diagnose;
mod lex;
mod literal;
mod macros;
mod source;

use super::ast::{Call, Entry, Expr, ExprKind, FieldEntry, Id, Literal, Select};
use super::escape::RESERVED;
use super::function::{Expander, Macro};
use crate::Str;
pub(crate) use lex::{Kind, Token};
pub(super) use macros::{optional, standard, two_variables};
pub use source::{CompileError, Issue};

/// No expression may be longer, in characters.
const MAX_LENGTH: usize = 100_000;
/// No rule of the grammar may be inside itself so often.
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
    let characters: Vec<char> = text.chars().collect();
    if characters.len() > MAX_LENGTH {
        let size = characters.len();
        let message = format!("expression code point size exceeds limit: size: {size}, limit {MAX_LENGTH}");
        return Err(CompileError::new(text, vec![Issue::nowhere(message)]));
    }
    let (tokens, mut issues) = lex::lex(&characters);
    let mut parser = Parser {
        tokens: &tokens,
        next: 0,
        macros,
        positions: vec![0],
        macro_at: 0,
        issues: Vec::new(),
        depth: Depth::default(),
    };
    let outcome = parser.start();
    match outcome {
        Ok(expr) if issues.is_empty() && parser.issues.is_empty() => {
            return Ok(Parsed { expr, positions: parser.positions });
        }
        Ok(_) => issues.append(&mut parser.issues),
        Err(Stop::TooDeep(message)) => issues.push(Issue::nowhere(message)),
        Err(Stop::Syntax) => issues.extend(diagnose::diagnose(&tokens, &characters)),
    }
    Err(CompileError::new(text, issues))
}

enum Stop {
    /// The grammar does not allow what comes next.
    Syntax,
    /// The expression is too deep.
    TooDeep(String),
}

type Parse<T = Expr> = Result<T, Stop>;

/// How often each recursive rule is inside itself.
#[derive(Default)]
struct Depth {
    expr: u32,
    relation: u32,
    calc: u32,
    member: u32,
}

fn deeper(depth: &mut u32) -> Parse<()> {
    *depth += 1;
    if *depth > MAX_DEPTH {
        return Err(Stop::TooDeep(format!("expression recursion limit exceeded: {MAX_DEPTH}")));
    }
    Ok(())
}

struct Parser<'a> {
    tokens: &'a [Token],
    next: usize,
    macros: &'a [Macro],
    positions: Vec<u32>,
    /// Where the macro begins that is being expanded.
    macro_at: u32,
    issues: Vec<Issue>,
    depth: Depth,
}

/// A rank of operators that bind equally, and their names.
fn relation(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Less => "_<_",
        Kind::LessEquals => "_<=_",
        Kind::Greater => "_>_",
        Kind::GreaterEquals => "_>=_",
        Kind::Equals => "_==_",
        Kind::NotEquals => "_!=_",
        Kind::In => "@in",
        _ => return None,
    })
}

fn product(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Star => "_*_",
        Kind::Slash => "_/_",
        Kind::Percent => "_%_",
        _ => return None,
    })
}

fn sum(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Plus => "_+_",
        Kind::Minus => "_-_",
        _ => return None,
    })
}

impl Parser<'_> {
    fn start(&mut self) -> Parse {
        let expr = self.expr()?;
        self.expect(Kind::Eof)?;
        Ok(expr)
    }

    fn expr(&mut self) -> Parse {
        deeper(&mut self.depth.expr)?;
        let condition = self.logical(Kind::Or)?;
        let expr = match self.accept(Kind::Question) {
            Some(question) => {
                let id = self.id_at(question);
                let then = self.logical(Kind::Or)?;
                self.expect(Kind::Colon)?;
                let otherwise = self.expr()?;
                call(id, "_?_:_", vec![condition, then, otherwise])
            }
            None => condition,
        };
        self.depth.expr -= 1;
        Ok(expr)
    }

    /// `a || b || c`, or with `&&` one rank below.
    fn logical(&mut self, operator: Kind) -> Parse {
        let term = |parser: &mut Self| match operator {
            Kind::Or => parser.logical(Kind::And),
            _ => parser.relation(),
        };
        let (mut terms, mut operators) = (vec![term(self)?], Vec::new());
        while let Some(at) = self.accept(operator) {
            terms.push(term(self)?);
            operators.push(self.id_at(at));
        }
        let name = if operator == Kind::Or { "_||_" } else { "_&&_" };
        Ok(balance::balance(name, terms, &operators))
    }

    fn relation(&mut self) -> Parse {
        deeper(&mut self.depth.relation)?;
        let before = self.depth.relation;
        let mut left = self.sum()?;
        while let Some((at, name)) = self.accept_any(relation) {
            deeper(&mut self.depth.relation)?;
            let id = self.id_at(at);
            let right = self.sum()?;
            left = call(id, name, vec![left, right]);
        }
        self.depth.relation = before - 1;
        Ok(left)
    }

    fn sum(&mut self) -> Parse {
        deeper(&mut self.depth.calc)?;
        let before = self.depth.calc;
        let mut left = self.product()?;
        while let Some((at, name)) = self.accept_any(sum) {
            deeper(&mut self.depth.calc)?;
            let id = self.id_at(at);
            let right = self.product()?;
            left = call(id, name, vec![left, right]);
        }
        self.depth.calc = before - 1;
        Ok(left)
    }

    fn product(&mut self) -> Parse {
        let before = self.depth.calc;
        let mut left = self.unary()?;
        while let Some((at, name)) = self.accept_any(product) {
            deeper(&mut self.depth.calc)?;
            let id = self.id_at(at);
            let right = self.unary()?;
            left = call(id, name, vec![left, right]);
        }
        self.depth.calc = before;
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
        Ok(if odd { call(id, name, vec![operand]) } else { operand })
    }

    fn at_signed_number(&self) -> bool {
        self.peek() == Kind::Minus && matches!(self.peek_at(1), Kind::Int | Kind::Float)
    }

    fn member(&mut self) -> Parse {
        deeper(&mut self.depth.member)?;
        let before = self.depth.member;
        let mut member = self.primary()?;
        loop {
            member = match self.peek() {
                Kind::Dot => self.select(member)?,
                Kind::LeftBracket => self.index(member)?,
                _ => break,
            };
            deeper(&mut self.depth.member)?;
        }
        self.depth.member = before - 1;
        Ok(member)
    }

    fn select(&mut self, operand: Expr) -> Parse {
        let dot = self.expect(Kind::Dot)?;
        let optional = self.accept(Kind::Question).is_some();
        let (name_at, name) = self.field_name()?;
        if optional {
            let id = self.id_at(dot);
            let field = self.node_at(name_at, ExprKind::Literal(Literal::String(name)));
            return Ok(call(id, "_?._", vec![operand, field]));
        }
        if self.peek() == Kind::LeftParen && self.tokens[self.next - 1].kind == Kind::Ident {
            let open = self.expect(Kind::LeftParen)?;
            let id = self.id_at(open);
            let arguments = self.arguments()?;
            return Ok(self.call_or_macro(id, name, Some(operand), arguments));
        }
        let select = Select { operand, field: name, test: false };
        Ok(self.node_at(dot, ExprKind::Select(Box::new(select))))
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
        let name = if self.accept(Kind::Question).is_some() { "_[?_]" } else { "_[_]" };
        let index = self.expr()?;
        self.expect(Kind::RightBracket)?;
        Ok(call(id, name, vec![operand, index]))
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

    fn primary(&mut self) -> Parse {
        match self.peek() {
            Kind::Dot | Kind::Ident => self.name(),
            Kind::LeftParen => {
                self.next += 1;
                let expr = self.expr()?;
                self.expect(Kind::RightParen)?;
                Ok(expr)
            }
            Kind::LeftBracket => self.list(),
            Kind::LeftBrace => self.map(),
            _ => self.literal(),
        }
    }

    /// A name, a call, or an object.
    fn name(&mut self) -> Parse {
        let start = self.tokens[self.next].at;
        let dot = if self.accept(Kind::Dot).is_some() { "." } else { "" };
        if self.at_object() {
            return self.object(dot);
        }
        let token = &self.tokens[self.next];
        let at = self.expect(Kind::Ident)?;
        let reserved = RESERVED.contains(&token.text.as_str());
        let name: Str = format!("{dot}{}", token.text).into();
        let expr = match self.accept(Kind::LeftParen) {
            Some(open) => {
                let id = if reserved { 0 } else { self.id_at(open) };
                let arguments = self.arguments()?;
                if reserved {
                    return Ok(self.refuse(start, format!("reserved identifier: {}", token.text)));
                }
                self.call_or_macro(id, name, None, arguments)
            }
            None if reserved => self.refuse(start, format!("reserved identifier: {}", token.text)),
            None => self.node_at(at, ExprKind::Ident(name)),
        };
        Ok(expr)
    }

    /// Whether names with dots between them are followed by a brace.
    fn at_object(&self) -> bool {
        let mut ahead = 0;
        while self.peek_at(ahead) == Kind::Ident && self.peek_at(ahead + 1) == Kind::Dot {
            ahead += 2;
        }
        self.peek_at(ahead) == Kind::Ident && self.peek_at(ahead + 1) == Kind::LeftBrace
    }

    fn object(&mut self, dot: &str) -> Parse {
        let mut name = String::from(dot);
        while self.peek() != Kind::LeftBrace {
            name.push_str(&self.tokens[self.next].text);
            self.next += 1;
        }
        let open = self.expect(Kind::LeftBrace)?;
        let id = self.id_at(open);
        let fields = self.separated(Kind::RightBrace, |parser| {
            let optional = parser.accept(Kind::Question).is_some();
            let (_, name) = parser.field_name()?;
            let colon = parser.expect(Kind::Colon)?;
            let id = parser.id_at(colon);
            Ok(FieldEntry { id, name, value: parser.expr()?, optional })
        })?;
        Ok(Expr { id, kind: ExprKind::Struct(name.into(), fields) })
    }

    fn map(&mut self) -> Parse {
        let open = self.expect(Kind::LeftBrace)?;
        let id = self.id_at(open);
        let entries = self.separated(Kind::RightBrace, |parser| {
            let optional = parser.accept(Kind::Question).is_some();
            let key = parser.expr()?;
            let colon = parser.expect(Kind::Colon)?;
            let id = parser.id_at(colon);
            Ok(Entry { id, key, value: parser.expr()?, optional })
        })?;
        Ok(Expr { id, kind: ExprKind::Map(entries) })
    }

    /// Items with commas between them, perhaps one after the last, and what closes them.
    fn separated<T>(&mut self, close: Kind, mut item: impl FnMut(&mut Self) -> Parse<T>) -> Parse<Vec<T>> {
        let mut items = Vec::new();
        let mut more = self.peek() != close && self.peek() != Kind::Comma;
        while more {
            items.push(item(self)?);
            more = self.peek() == Kind::Comma && self.peek_at(1) != close;
            self.next += usize::from(more);
        }
        self.accept(Kind::Comma);
        self.expect(close)?;
        Ok(items)
    }

    fn list(&mut self) -> Parse {
        let open = self.expect(Kind::LeftBracket)?;
        let id = self.id_at(open);
        let items = self.separated(Kind::RightBracket, |parser| {
            let optional = parser.accept(Kind::Question).is_some();
            Ok((parser.expr()?, optional))
        })?;
        let optional = items.iter().enumerate().filter(|(_, item)| item.1).map(|(index, _)| index).collect();
        let items = items.into_iter().map(|(item, _)| item).collect();
        Ok(Expr { id, kind: ExprKind::List(items, optional) })
    }

    fn literal(&mut self) -> Parse {
        let start = self.tokens[self.next].at;
        let negative = self.at_signed_number();
        self.next += usize::from(negative);
        let token = &self.tokens[self.next];
        let literal = literal::read(token.kind, &token.text, negative).ok_or(Stop::Syntax)?;
        self.next += 1;
        Ok(match literal {
            Ok(literal) => self.node_at(start, ExprKind::Literal(literal)),
            Err(message) => self.refuse(start, message),
        })
    }

    fn call_or_macro(&mut self, id: Id, name: Str, target: Option<Expr>, arguments: Vec<Expr>) -> Expr {
        let found = self.macros.iter().rev().find(|it| {
            it.name == name && it.member == target.is_some() && it.arity.is_none_or(|n| n == arguments.len())
        });
        if let Some(found) = found {
            self.macro_at = self.positions[id as usize];
            match (found.expand)(self, target.as_ref(), &arguments) {
                Ok(Some(expr)) => return expr,
                Ok(None) => {}
                Err(error) => {
                    let at = self.positions.get(error.at as usize).copied().unwrap_or_default();
                    return self.refuse(at as usize, error.message);
                }
            }
        }
        Expr { id, kind: ExprKind::Call(Box::new(Call { function: name, target, arguments })) }
    }

    fn refuse(&mut self, at: usize, message: impl Into<String>) -> Expr {
        self.report(at, message);
        self.node_at(at, ExprKind::Literal(Literal::Null))
    }

    fn report(&mut self, at: usize, message: impl Into<String>) {
        self.issues.push(Issue::new(at, message));
    }

    fn id_at(&mut self, at: usize) -> Id {
        self.positions.push(at as u32);
        (self.positions.len() - 1) as Id
    }

    fn node_at(&mut self, at: usize, kind: ExprKind) -> Expr {
        Expr { id: self.id_at(at), kind }
    }

    fn renumber(&mut self, expr: &mut Expr) {
        expr.id = self.id_at(self.positions[expr.id as usize] as usize);
        expr.children_mut().into_iter().for_each(|child| self.renumber(child));
    }

    fn peek(&self) -> Kind {
        self.peek_at(0)
    }

    fn peek_at(&self, ahead: usize) -> Kind {
        self.tokens.get(self.next + ahead).map_or(Kind::Eof, |token| token.kind)
    }

    fn accept(&mut self, kind: Kind) -> Option<usize> {
        let token = self.tokens.get(self.next).filter(|token| token.kind == kind)?;
        self.next += 1;
        Some(token.at)
    }

    fn accept_any(&mut self, name: fn(Kind) -> Option<&'static str>) -> Option<(usize, &'static str)> {
        let token = self.tokens.get(self.next)?;
        let name = name(token.kind)?;
        self.next += 1;
        Some((token.at, name))
    }

    fn expect(&mut self, kind: Kind) -> Parse<usize> {
        self.accept(kind).ok_or(Stop::Syntax)
    }
}

impl Expander for Parser<'_> {
    fn node(&mut self, kind: ExprKind) -> Expr {
        self.node_at(self.macro_at as usize, kind)
    }

    fn copy(&mut self, expr: &Expr) -> Expr {
        let mut copy = expr.clone();
        self.renumber(&mut copy);
        copy
    }
}

fn call(id: Id, function: &str, arguments: Vec<Expr>) -> Expr {
    Expr { id, kind: ExprKind::Call(Box::new(Call { function: function.into(), target: None, arguments })) }
}
