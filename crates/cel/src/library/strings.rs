//! The strings library. Positions count characters.

use super::{MAX_TEXT, cost, int, list, show, string_format, text, texts};
use crate::ast::Literal;
use crate::{
    AstNode, CallEstimate, CallSite, CostRange, EvalError, Library, Outcome, Sizing, TRAVERSAL,
    Type, Value,
};

/// String functions.
pub(super) fn library() -> Library {
    use Type::{Int, String};
    let strings = || Type::list(String);
    let functions = functions! {
        "charAt" { member "string_char_at_int" (String, Int) -> String => |_, it| {
                let text = text(it, 0)?;
                let char = text[offset(text, int(it, 1)?)?..].chars().next();
                Ok(char.map(std::string::String::from).unwrap_or_default().into())
            };
        }
        "indexOf" {
            member "string_index_of_string" (String, String) -> Int => index_of,
                costs cost::traverse_tree, cost::estimate_compare_items;
            member "string_index_of_string_int" (String, String, Int) -> Int => index_of,
                costs cost::traverse_tree, cost::estimate_compare_items;
        }
        "lastIndexOf" {
            member "string_last_index_of_string" (String, String) -> Int => last_index_of,
                costs cost::traverse_tree, cost::estimate_compare_items;
            member "string_last_index_of_string_int" (String, String, Int) -> Int => last_index_of,
                costs cost::traverse_tree, cost::estimate_compare_items;
        }
        "lowerAscii" {
            member "string_lower_ascii" (String) -> String =>
                |_, it| Ok(text(it, 0)?.to_ascii_lowercase().into()),
                costs cost::traverse, cost::estimate_traverse_sized;
        }
        "upperAscii" {
            member "string_upper_ascii" (String) -> String =>
                |_, it| Ok(text(it, 0)?.to_ascii_uppercase().into()),
                costs cost::traverse, cost::estimate_traverse_sized;
        }
        "trim" {
            member "string_trim" (String) -> String => |_, it| Ok(text(it, 0)?.trim().to_owned().into()),
                costs cost::traverse, cost::estimate_traverse_sized;
        }
        "substring" {
            member "string_substring_int" (String, Int) -> String => substring,
                costs cost::traverse, cost::estimate_traverse_sized;
            member "string_substring_int_int" (String, Int, Int) -> String => substring,
                costs cost::traverse, cost::estimate_traverse_sized;
        }
        "replace" {
            member "string_replace_string_string" (String, String, String) -> String => replace,
                costs cost::traverse_twice, estimate_replace;
            member "string_replace_string_string_int" (String, String, String, Int) -> String => replace,
                costs cost::traverse_twice, estimate_replace;
        }
        "split" {
            member "string_split_string" (String, String) -> strings() => split,
                costs cost::traverse_twice, estimate_split;
            member "string_split_string_int" (String, String, Int) -> strings() => split,
                costs cost::traverse_twice, estimate_split;
        }
        "join" {
            member "list_join" (strings()) -> String => join,
                costs cost::traverse_result_twice, estimate_join;
            member "list_join_string" (strings(), String) -> String => join,
                costs cost::traverse_result_twice, estimate_join;
        }
        "strings.quote" {
            global "strings_quote" (String) -> String => |_, it| Ok(quote(text(it, 0)?).into()),
                costs cost::traverse, estimate_quote;
        }
        "format" {
            member "string_format" (String, Type::list(Type::Dyn)) -> String => string_format::run,
                costs cost::traverse, cost::estimate_traverse;
        }
    };
    Library::new("cel.lib.ext.strings", (1, 29), functions)
}

fn out_of_range(index: i64) -> EvalError {
    EvalError::new(format!("index out of range: {index}"))
}

/// The byte offset of the character at `index`; the end of the string is valid, too.
fn offset(text: &str, index: i64) -> Result<usize, EvalError> {
    let mut ends = text
        .char_indices()
        .map(|(offset, _)| offset)
        .chain([text.len()]);
    usize::try_from(index)
        .ok()
        .and_then(|index| ends.nth(index))
        .ok_or_else(|| out_of_range(index))
}

/// Kubernetes: the empty string is found at any position, even out of range (cel-go,
/// ext/strings.go).
fn index_of<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    let (text, part) = (text(arguments, 0)?, text(arguments, 1)?);
    let start = if arguments.len() > 2 {
        int(arguments, 2)?
    } else {
        0
    };
    if part.is_empty() {
        return Ok(start.into());
    }
    if start < 0 {
        return Err(out_of_range(start));
    }
    let Ok(from) = offset(text, start) else {
        return Ok(Value::Int(-1));
    };
    let found = text[from..]
        .find(part)
        .map(|at| start + text[from..from + at].chars().count() as i64);
    Ok(Value::Int(found.unwrap_or(-1)))
}

fn last_index_of<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    let chars = |index| text(arguments, index).map(|text| text.chars().collect::<Vec<char>>());
    let (whole, part) = (chars(0)?, chars(1)?);
    let last = match arguments.len() {
        2 if part.is_empty() => whole.len() as i64,
        2 if whole.is_empty() => return Ok(Value::Int(-1)),
        2 => whole.len() as i64 - 1,
        _ => int(arguments, 2)?,
    };
    if part.is_empty() {
        return Ok(last.into());
    }
    let start = usize::try_from(last).map_err(|_| out_of_range(last))?;
    let found = (0..=start).rev().find(|start| {
        whole
            .get(*start..)
            .is_some_and(|rest| rest.starts_with(&part))
    });
    Ok(Value::Int(
        found
            .filter(|_| start < whole.len())
            .map_or(-1, |at| at as i64),
    ))
}

fn substring<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    let (text, start) = (text(arguments, 0)?, int(arguments, 1)?);
    if arguments.len() == 2 {
        return Ok(text[offset(text, start)?..].to_owned().into());
    }
    let end = int(arguments, 2)?;
    if start > end {
        return Err(EvalError::new(format!(
            "invalid substring range. start: {start}, end: {end}"
        )));
    }
    Ok(text[offset(text, start)?..offset(text, end)?]
        .to_owned()
        .into())
}

fn replace<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    let (whole, old, new) = (
        text(arguments, 0)?,
        text(arguments, 1)?,
        text(arguments, 2)?,
    );
    let limit = if arguments.len() > 3 {
        int(arguments, 3)?
    } else {
        -1
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let n_found = whole.matches(old).take(limit).count();
    if n_found
        .saturating_mul(new.len())
        .saturating_add(whole.len())
        > MAX_TEXT
    {
        return Err(EvalError::CostLimit);
    }
    Ok(whole.replacen(old, new, limit).into())
}

fn split<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    let (whole, separator) = (text(arguments, 0)?, text(arguments, 1)?);
    let limit = if arguments.len() > 2 {
        int(arguments, 2)?
    } else {
        -1
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if !separator.is_empty() {
        return Ok(texts(
            whole.splitn(limit, separator).map(str::to_owned).collect(),
        ));
    }
    let n_chars = whole.chars().count().min(limit);
    let mut parts: Vec<String> = whole.chars().take(n_chars).map(String::from).collect();
    let kept: usize = parts.iter().map(String::len).sum();
    if let Some(last) = parts.last_mut() {
        last.push_str(&whole[kept..]);
    }
    Ok(texts(parts))
}

fn join<'a>(_: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    let separator = if arguments.len() > 1 {
        text(arguments, 1)?
    } else {
        ""
    };
    let mut joined = String::new();
    for (index, item) in list(arguments, 0)?.iter().enumerate() {
        if index > 0 {
            joined.push_str(separator);
        }
        let item = item?;
        let Some(part) = item.as_str() else {
            return Err(EvalError::new(format!(
                "join: invalid input: {}",
                show(&item)
            )));
        };
        joined.push_str(part);
        if joined.len() > MAX_TEXT {
            return Err(EvalError::CostLimit);
        }
    }
    Ok(joined.into())
}

/// Quotes a string as cel-go's `strings.quote` does: only these nine characters are escaped.
fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for char in text.chars() {
        let name = match char {
            '\x07' => 'a',
            '\x08' => 'b',
            '\x0c' => 'f',
            '\n' => 'n',
            '\r' => 'r',
            '\t' => 't',
            '\x0b' => 'v',
            '\\' | '"' => char,
            _ => {
                quoted.push(char);
                continue;
            }
        };
        quoted.extend(['\\', name]);
    }
    quoted.push('"');
    quoted
}

fn estimate_quote(
    sizing: &Sizing,
    _: Option<&AstNode>,
    arguments: &[AstNode],
) -> Option<CallEstimate> {
    let size = sizing.size(arguments.first()?);
    // Kubernetes: overflow is not handled here (cel-go, checker/cost.go).
    let result = CostRange {
        min: size.min.wrapping_add(2),
        max: size.max.wrapping_mul(2).wrapping_add(2),
    };
    Some(CallEstimate::sized(size.scale(TRAVERSAL), result))
}

/// The bounds of what is kept plus what is inserted.
fn estimate_replace(
    sizing: &Sizing,
    target: Option<&AstNode>,
    arguments: &[AstNode],
) -> Option<CallEstimate> {
    let size = sizing.size(target?);
    let (old, new) = (
        sizing.size(arguments.first()?),
        sizing.size(arguments.get(1)?),
    );
    let times = |size: u64, old: u64| (size as f64 / old as f64).ceil() as u64;
    let (count_max, kept_max) = match old.min {
        0 => (size.max.saturating_add(1), size.max),
        old_min if new.max <= old_min => (0, size.max),
        old_min => (times(size.max, old_min), 0),
    };
    let (count_min, kept_min) = match old.max {
        0 => (size.min.saturating_add(1), size.min),
        old_max if old_max <= new.min => (0, size.min),
        old_max => (times(size.min, old_max), 0),
    };
    let count = CostRange {
        min: count_min,
        max: count_max,
    };
    let result = count.multiply(new).add(CostRange {
        min: kept_min,
        max: kept_max,
    });
    Some(CallEstimate::sized(size.scale(2.0 * TRAVERSAL), result))
}

fn estimate_split(
    sizing: &Sizing,
    target: Option<&AstNode>,
    arguments: &[AstNode],
) -> Option<CallEstimate> {
    let size = sizing.size(target?);
    let limit = arguments
        .get(1)
        .and_then(|limit| limit.expr)
        .and_then(|limit| limit.as_literal());
    let max = match limit {
        Some(Literal::Int(limit)) => *limit as u64,
        _ => size.max,
    };
    Some(CallEstimate::sized(
        size.scale(2.0 * TRAVERSAL),
        CostRange { min: 0, max },
    ))
}

fn estimate_join(
    sizing: &Sizing,
    target: Option<&AstNode>,
    arguments: &[AstNode],
) -> Option<CallEstimate> {
    let target = target?;
    let n_items = sizing.size(target);
    let mut size = sizing
        .items(target)
        .map_or(CostRange::ZERO, |item| n_items.multiply(sizing.size(&item)));
    if let Some(separator) = arguments.first() {
        let n_separators = CostRange {
            min: n_items.min.saturating_sub(1),
            max: n_items.max.saturating_sub(1),
        };
        size = size.add(sizing.size(separator).multiply(n_separators));
    }
    Some(CallEstimate::sized(size.scale(TRAVERSAL), size))
}
