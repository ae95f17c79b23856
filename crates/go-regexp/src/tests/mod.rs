//! Facts about Go's `regexp`, and the limits that are our own.

use super::{MAX_SIZE, Regexp, check};
use mizzen_value::Value;
use mizzen_value::json;

/// Texts, then a line for each pattern: the pattern, Go's error, and what `FindAllString` finds in
/// which text. Made with Go 1.27.
const FACTS: &str = include_str!("go.jsonl");

#[test]
fn accepts_rejects_and_finds_what_go_does() {
    let mut lines = FACTS
        .lines()
        .map(|line| json::parse(line.as_bytes()).expect("valid JSON"));
    let texts = lines.next().expect("the texts");
    let mut n_wrong = 0;
    for fact in lines {
        let pattern = fact[0].str();
        let (expected, found) = (expected(&fact, texts.list()), found(pattern, texts.list()));
        if expected != found {
            n_wrong += 1;
            eprintln!("{pattern:?}:\n  Go:   {expected:?}\n  here: {found:?}");
        }
    }
    assert_eq!(n_wrong, 0, "patterns that differ");
}

type Finds = Vec<(String, Vec<String>)>;

fn expected(fact: &Value, texts: &[Value]) -> Result<Finds, String> {
    if !fact[1].str().is_empty() {
        return Err(fact[1].str().to_string());
    }
    let owned = |value: &Value| value.str().to_string();
    let finds = fact[2].list().iter().map(|find| {
        let text = &texts[usize::try_from(find[0].int()).expect("an index")];
        (owned(text), find[1].list().iter().map(owned).collect())
    });
    Ok(finds.collect())
}

fn found(pattern: &str, texts: &[Value]) -> Result<Finds, String> {
    check(pattern).map_err(|error| error.to_string())?;
    let regexp = Regexp::new(pattern);
    let mut all = Vec::new();
    for text in texts.iter().map(Value::str) {
        let found = regexp
            .find_all(text, usize::MAX)
            .map_err(|error| error.to_string())?;
        assert_eq!(
            regexp.is_match(text).ok(),
            Some(!found.is_empty()),
            "{pattern} in {text}"
        );
        if !found.is_empty() {
            all.push((
                text.to_string(),
                found.into_iter().map(str::to_string).collect(),
            ));
        }
    }
    Ok(all)
}

#[track_caller]
fn rejects(pattern: &str, expected: &str) {
    let error = check(pattern).expect_err("rejected").to_string();
    assert!(
        error.starts_with(&format!("error parsing regexp: {expected}: `")),
        "{:.100}",
        error
    );
}

#[test]
fn a_pattern_that_is_too_large_is_rejected_before_anything_is_built() {
    assert!(check(&"(x{1000})".repeat(99)).is_ok());
    rejects(&"(x{1000})".repeat(101), "expression too large");
    rejects(&"x".repeat(MAX_SIZE + 1), "expression too large");
    rejects(
        &format!("[{}]", "a".repeat(MAX_SIZE + 1)),
        "expression too large",
    );
    rejects(&"[a]".repeat(MAX_SIZE / 4), "expression too large");
    rejects(&"(?:".repeat(MAX_SIZE + 1), "expression too large");
}

#[test]
fn nesting_is_bounded() {
    let nested = |open: &str, depth: usize| format!("{}a{}", open.repeat(depth), ")".repeat(depth));
    assert!(check(&nested("(", 999)).is_ok());
    rejects(&nested("(", 1000), "expression nests too deeply");
    assert!(check(&nested("(?:", 5000)).is_ok());
    rejects(&nested("(?:b", 5000), "expression nests too deeply");
    rejects(
        &format!("{}a{}", "(?:".repeat(1001), ")*".repeat(1001)),
        "expression nests too deeply",
    );
}

/// Each of these took quadratic time in some parser.
#[test]
fn a_megabyte_is_parsed_in_linear_time() {
    for piece in [
        "{", "{1", "[[:", "(?P<a", "\\p{", "[", "(?:", "a|", "\\Q", "(?i-", "x{1,",
    ] {
        let _ = check(&piece.repeat(1_000_000 / piece.len()));
        let _ = check(&format!("[{}]", piece.repeat(1_000_000 / piece.len())));
    }
}

/// The classic case of exponential backtracking.
#[test]
fn a_search_takes_time_in_proportion_to_the_text() {
    let text = "a".repeat(10_000);
    assert_eq!(
        Regexp::new("^(a+)+$").is_match(&format!("{text}b")),
        Ok(false)
    );
    assert_eq!(Regexp::new("(a*)*b").is_match(&text), Ok(false));
}
