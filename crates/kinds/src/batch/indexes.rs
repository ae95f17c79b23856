//! Completion indexes of a Job in text form: `1,3-5,7`.

/// How many there are, if they are in order and below `completions`.
pub(super) fn count(text: &str, completions: i64) -> Result<i64, String> {
    let (mut n_indexes, mut last) = (0, None);
    for interval in intervals(text) {
        let (first, end) = parse(interval, completions)?;
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(out_of_order(last, first));
        }
        n_indexes += end - first + 1;
        last = Some(end);
    }
    Ok(n_indexes)
}

/// An index that is in both of two texts. What cannot be read is in neither.
pub(super) fn overlap(completed: &str, failed: &str, completions: i64) -> Option<i64> {
    let [mut completed, mut failed] = [completed, failed].map(|text| {
        let read = intervals(text).filter_map(|interval| parse(interval, completions).ok());
        read.collect::<Vec<_>>().into_iter().peekable()
    });
    while let (Some(&(c, c_end)), Some(&(f, f_end))) = (completed.peek(), failed.peek()) {
        if c <= f_end && f <= c_end {
            return Some(c.max(f));
        }
        if c <= f {
            completed.next()
        } else {
            failed.next()
        };
    }
    None
}

fn intervals(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').filter(move |_| !text.is_empty())
}

fn parse(interval: &str, completions: i64) -> Result<(i64, i64), String> {
    let bounds: Vec<&str> = interval.split('-').collect();
    match bounds[..] {
        [only] => index(only, completions).map(|index| (index, index)),
        [first, last] => {
            let (first, last) = (index(first, completions)?, index(last, completions)?);
            if first < last {
                Ok((first, last))
            } else {
                Err(out_of_order(first, last))
            }
        }
        _ => Err(format!(
            "the fragment \"{interval}\" violates the requirement that an index interval can have at most two parts \
             separated by '-'"
        )),
    }
}

fn index(text: &str, completions: i64) -> Result<i64, String> {
    match text.parse::<i64>() {
        Ok(index) if index < completions => Ok(index),
        Ok(_) => Err(format!("too large index: \"{text}\"")),
        Err(_) => Err(format!(
            "cannot convert string to integer for index: \"{text}\""
        )),
    }
}

fn out_of_order(previous: i64, current: i64) -> String {
    format!("non-increasing order, previous: {previous}, current: {current}")
}

#[cfg(test)]
mod tests {
    use super::{count, overlap};

    #[track_caller]
    fn check(text: &str, expected: Result<i64, &str>) {
        assert_eq!(
            count(text, 10),
            expected.map_err(ToString::to_string),
            "{text}"
        );
    }

    #[test]
    fn indexes_are_counted_in_order() {
        check("", Ok(0));
        check("1,3-5,7", Ok(5));
        check("3-3", Err("non-increasing order, previous: 3, current: 3"));
        check("4,2", Err("non-increasing order, previous: 4, current: 2"));
        check("10", Err("too large index: \"10\""));
        check(
            "a",
            Err("cannot convert string to integer for index: \"a\""),
        );
    }

    #[test]
    fn an_index_is_done_or_has_failed() {
        assert_eq!(overlap("0-2,5", "3-4,6", 10), None);
        assert_eq!(overlap("0-2,5", "2,6", 10), Some(2));
        assert_eq!(overlap("x,5", "5", 10), Some(5));
    }
}
