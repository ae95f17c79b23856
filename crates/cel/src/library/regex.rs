//! The regex library.

use super::{cost, int, text, texts};
use crate::{
    AstNode, CallEstimate, CallSite, CostRange, EvalError, Library, Outcome, REGEX, Sizing,
    TRAVERSAL, Type, Value,
};

/// `find` and `findAll`.
pub(super) fn library() -> Library {
    use Type::{Int, String};
    let found = || Type::list(String);
    let mut functions = functions! {
        "find" {
            member "string_find_string" (String, String) -> String =>
                |site, it| Ok(matches(site, it, 1)?.into_iter().next().unwrap_or_default().into()),
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

fn find_all<'a>(site: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
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

fn matches(site: &CallSite, arguments: &[Value], limit: usize) -> Result<Vec<String>, EvalError> {
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
    target: Option<&AstNode>,
    arguments: &[AstNode],
) -> Option<CallEstimate> {
    let size = sizing.size(target?);
    let text = size.add(CostRange::ONE).scale(TRAVERSAL);
    let pattern = sizing.size(arguments.first()?).scale(REGEX);
    Some(CallEstimate::sized(
        text.multiply(pattern),
        CostRange {
            min: 0,
            max: size.max,
        },
    ))
}
