//! What in a text matches a regular expression?

use super::{cost, int, text, texts};
use crate::{
    CallEstimate, EvalError, Library, Node, Outcome, REGEX, Range, Site, Sizing, TRAVERSAL, Type,
    Value,
};

/// `find` and `findAll`.
pub(super) fn library() -> Library {
    use Type::{Int, String};
    let found = || Type::list(String);
    let mut functions = functions! {
        "find" {
            member "string_find_string" (String, String) -> String => find,
                costs search_cost, search_estimate;
        }
        "findAll" {
            member "string_find_all_string" (String, String) -> found() => find_all,
                costs search_cost, search_estimate;
            member "string_find_all_string_int" (String, String, Int) -> found() => find_all,
                costs search_cost, search_estimate;
        }
    };
    functions
        .iter_mut()
        .flat_map(|function| &mut function.overloads)
        .for_each(|overload| overload.pattern = Some(1));
    Library::new("kubernetes.regex", (1, 0), functions)
}

fn find<'a>(site: &Site, arguments: &[Value<'a>]) -> Outcome<'a> {
    let found = matches(site, arguments, 1)?;
    Ok(found.into_iter().next().unwrap_or_default().into())
}

fn find_all<'a>(site: &Site, arguments: &[Value<'a>]) -> Outcome<'a> {
    let limit = if arguments.len() > 2 {
        int(arguments, 2)?
    } else {
        -1
    };
    Ok(texts(matches(
        site,
        arguments,
        usize::try_from(limit).unwrap_or(usize::MAX),
    )?))
}

fn matches(site: &Site, arguments: &[Value], limit: usize) -> Result<Vec<String>, EvalError> {
    let (whole, pattern) = (text(arguments, 0)?, text(arguments, 1)?);
    let regexp = site.regexp(pattern);
    let found = regexp.find_all(whole, limit);
    let found = found.map_err(|error| EvalError::new(format!("Illegal regex: {error}")))?;
    Ok(found.into_iter().map(str::to_owned).collect())
}

fn search_cost(arguments: &[Value], _: &Value) -> u64 {
    cost::search(arguments[0].size(), arguments[1].size())
}

fn search_estimate(
    sizing: &Sizing,
    target: Option<&Node>,
    arguments: &[Node],
) -> Option<CallEstimate> {
    let size = sizing.of(target?);
    let text = size.add(Range::ONE).scale(TRAVERSAL);
    let pattern = sizing.of(arguments.first()?).scale(REGEX);
    Some(CallEstimate::sized(
        text.multiply(pattern),
        Range {
            min: 0,
            max: size.max,
        },
    ))
}
