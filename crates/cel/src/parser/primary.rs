//! Primary expressions: identifiers, literals, lists, maps, objects.

use super::{CelParser, Parse, ParseStop, TokenKind, literal};
use crate::ast::{Expr, ExprKind, FieldEntry, MapEntry};
use crate::escape::RESERVED;
use mizzen_value::Str;

impl CelParser<'_> {
    pub(super) fn primary(&mut self) -> Parse {
        match self.peek() {
            TokenKind::Dot | TokenKind::Ident => self.name(),
            TokenKind::LeftParen => {
                self.next += 1;
                let expr = self.expr()?;
                self.expect(TokenKind::RightParen)?;
                Ok(expr)
            }
            TokenKind::LeftBracket => self.list(),
            TokenKind::LeftBrace => self.map(),
            _ => self.literal(),
        }
    }

    /// Parses an identifier, a call, or an object.
    fn name(&mut self) -> Parse {
        let start = self.tokens[self.next].at;
        let dot = if self.accept(TokenKind::Dot).is_some() {
            "."
        } else {
            ""
        };
        if self.at_object() {
            return self.object(dot);
        }
        let token = &self.tokens[self.next];
        let at = self.expect(TokenKind::Ident)?;
        let reserved = RESERVED.contains(&token.text.as_str());
        let name: Str = format!("{dot}{}", token.text).into();
        let expr = match self.accept(TokenKind::LeftParen) {
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

    /// Whether a qualified name is followed by a brace.
    fn at_object(&self) -> bool {
        let mut ahead = 0;
        while self.peek_at(ahead) == TokenKind::Ident && self.peek_at(ahead + 1) == TokenKind::Dot {
            ahead += 2;
        }
        self.peek_at(ahead) == TokenKind::Ident && self.peek_at(ahead + 1) == TokenKind::LeftBrace
    }

    fn object(&mut self, dot: &str) -> Parse {
        let mut name = String::from(dot);
        while self.peek() != TokenKind::LeftBrace {
            name.push_str(&self.tokens[self.next].text);
            self.next += 1;
        }
        let open = self.expect(TokenKind::LeftBrace)?;
        let id = self.id_at(open);
        let fields = self.separated(TokenKind::RightBrace, |parser| {
            let optional = parser.accept(TokenKind::Question).is_some();
            let (_, name) = parser.field_name()?;
            let colon = parser.expect(TokenKind::Colon)?;
            let id = parser.id_at(colon);
            Ok(FieldEntry {
                id,
                name,
                value: parser.expr()?,
                optional,
            })
        })?;
        self.heights[id as usize] = self.highest(fields.iter().map(|field| &field.value));
        Ok(Expr {
            id,
            kind: ExprKind::Struct(name.into(), fields),
        })
    }

    fn map(&mut self) -> Parse {
        let open = self.expect(TokenKind::LeftBrace)?;
        let id = self.id_at(open);
        let entries = self.separated(TokenKind::RightBrace, |parser| {
            let optional = parser.accept(TokenKind::Question).is_some();
            let key = parser.expr()?;
            let colon = parser.expect(TokenKind::Colon)?;
            let id = parser.id_at(colon);
            Ok(MapEntry {
                id,
                key,
                value: parser.expr()?,
                optional,
            })
        })?;
        self.heights[id as usize] =
            self.highest(entries.iter().flat_map(|entry| [&entry.key, &entry.value]));
        Ok(Expr {
            id,
            kind: ExprKind::Map(entries),
        })
    }

    /// Parses items separated by commas, an optional trailing comma, and the closing token.
    fn separated<T>(
        &mut self,
        close: TokenKind,
        mut item: impl FnMut(&mut Self) -> Parse<T>,
    ) -> Parse<Vec<T>> {
        let mut items = Vec::new();
        let mut more = self.peek() != close && self.peek() != TokenKind::Comma;
        while more {
            items.push(item(self)?);
            more = self.peek() == TokenKind::Comma && self.peek_at(1) != close;
            self.next += usize::from(more);
        }
        self.accept(TokenKind::Comma);
        self.expect(close)?;
        Ok(items)
    }

    fn list(&mut self) -> Parse {
        let open = self.expect(TokenKind::LeftBracket)?;
        let id = self.id_at(open);
        let items = self.separated(TokenKind::RightBracket, |parser| {
            let optional = parser.accept(TokenKind::Question).is_some();
            Ok((parser.expr()?, optional))
        })?;
        let optional = items
            .iter()
            .enumerate()
            .filter(|(_, item)| item.1)
            .map(|(index, _)| index)
            .collect();
        let items: Vec<Expr> = items.into_iter().map(|(item, _)| item).collect();
        self.heights[id as usize] = self.highest(&items);
        Ok(Expr {
            id,
            kind: ExprKind::List(items, optional),
        })
    }

    fn literal(&mut self) -> Parse {
        let start = self.tokens[self.next].at;
        let negative = self.at_signed_number();
        self.next += usize::from(negative);
        let token = &self.tokens[self.next];
        let literal = literal::read(token.kind, &token.text, negative).ok_or(ParseStop::Syntax)?;
        self.next += 1;
        Ok(match literal {
            Ok(literal) => self.node_at(start, ExprKind::Literal(literal)),
            Err(message) => self.refuse(start, message),
        })
    }
}
