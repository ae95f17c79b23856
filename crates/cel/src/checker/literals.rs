//! Validators of literals: durations, timestamps and regular expressions are parsed in advance, and
//! lists must be homogeneous.

use super::Checked;
use crate::ast::{Expr, ExprKind, Literal};
use crate::parser::{Issue, Parsed};
use crate::types::Type;
use crate::{library, standard};

/// All errors in literals.
pub(super) fn check(checked: &Checked, parsed: &Parsed) -> Vec<Issue> {
    let mut issues = Vec::new();
    for function in ["duration", "timestamp", "matches"] {
        arguments(&checked.expr, function, parsed, &mut issues);
    }
    items(&checked.expr, checked, parsed, &mut issues, false);
    formats(&checked.expr, checked, parsed, &mut issues);
    entries(&checked.expr, checked, parsed, &mut issues, false);
    issues
}

fn arguments(expr: &Expr, function: &str, parsed: &Parsed, issues: &mut Vec<Issue>) {
    if let Some(call) = expr.as_call()
        && call.function == function
        && let Some(argument) = call.arguments.first()
        && let Some(Literal::String(text)) = argument.as_literal()
        && !match function {
            "duration" => standard::parse_duration(text).is_ok(),
            "timestamp" => standard::parse_timestamp(text).is_ok(),
            _ => mizzen_go_regexp::check(text).is_ok(),
        }
    {
        issues.push(Issue::new(
            parsed.position(argument.id),
            format!("invalid {function} argument"),
        ));
    }
    expr.children()
        .into_iter()
        .for_each(|child| arguments(child, function, parsed, issues));
}

fn formats(expr: &Expr, checked: &Checked, parsed: &Parsed, issues: &mut Vec<Issue>) {
    if let Some(call) = expr.as_call()
        && call.function == "format"
        && let Some(Literal::String(format)) = call.target.as_ref().and_then(Expr::as_literal)
        && let [
            Expr {
                kind: ExprKind::List(items, _),
                ..
            },
        ] = &call.arguments[..]
        && let Err(error) = library::check_format(format, items, &|id| checked.kind(id).clone())
    {
        issues.push(Issue::new(
            parsed.position(error.at.unwrap_or(expr.id)),
            error.message,
        ));
    }
    expr.children()
        .into_iter()
        .for_each(|child| formats(child, checked, parsed, issues));
}

/// Kubernetes: the arguments of `format` may have mixed types (cel-go's
/// HomogeneousAggregateLiterals).
fn is_exempt(expr: &Expr, exempt: bool) -> bool {
    exempt || expr.as_call().is_some_and(|call| call.function == "format")
}

fn items(expr: &Expr, checked: &Checked, parsed: &Parsed, issues: &mut Vec<Issue>, exempt: bool) {
    if let (ExprKind::List(list, optional), false) = (&expr.kind, exempt) {
        let kinds = list.iter().enumerate().map(|(index, item)| {
            let kind = checked.kind(item.id);
            let inside = kind.inside_optional().filter(|_| optional.contains(&index));
            (item.id, inside.unwrap_or(kind))
        });
        let kinds: Vec<_> = kinds.collect();
        let odd = kinds.iter().find(|(_, kind)| kinds[0].1 != *kind);
        issues.extend(odd.map(|(id, kind)| mismatch(parsed, *id, kinds[0].1, kind)));
    }
    let exempt = is_exempt(expr, exempt);
    expr.children()
        .into_iter()
        .for_each(|child| items(child, checked, parsed, issues, exempt));
}

fn entries(expr: &Expr, checked: &Checked, parsed: &Parsed, issues: &mut Vec<Issue>, exempt: bool) {
    if let (ExprKind::Map(entries), false) = (&expr.kind, exempt) {
        let value = |index: usize| {
            let kind = checked.kind(entries[index].value.id);
            kind.inside_optional()
                .filter(|_| entries[index].optional)
                .unwrap_or(kind)
        };
        for index in 1..entries.len() {
            let (first, key) = (
                checked.kind(entries[0].key.id),
                checked.kind(entries[index].key.id),
            );
            if first != key {
                issues.push(mismatch(parsed, entries[index].key.id, first, key));
            }
            if value(0) != value(index) {
                issues.push(mismatch(
                    parsed,
                    entries[index].value.id,
                    value(0),
                    value(index),
                ));
            }
        }
    }
    let exempt = is_exempt(expr, exempt);
    expr.children()
        .into_iter()
        .for_each(|child| self::entries(child, checked, parsed, issues, exempt));
}

fn mismatch(parsed: &Parsed, id: u32, expected: &Type, found: &Type) -> Issue {
    Issue::new(
        parsed.position(id),
        format!("expected type '{expected}' but found '{found}'"),
    )
}
