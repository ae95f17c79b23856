//! What became of each object of an import.

use std::collections::BTreeMap;

use mizzen_value::Value;

use super::title;
use crate::log::{write_error, write_output};

/// What became of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was created.
    Created,
    /// It replaced the one that was there.
    Replaced,
    /// It was there already.
    Unchanged,
    /// Another one is there, and was left alone.
    Skipped,
    /// It was not written.
    Failed(String),
    /// It was not written, because the target does not know its kind.
    NotServed(String),
}

impl Outcome {
    fn word(&self) -> &'static str {
        match self {
            Outcome::Created => "created",
            Outcome::Replaced => "replaced",
            Outcome::Unchanged => "unchanged",
            Outcome::Skipped => "skipped",
            Outcome::Failed(_) => "failed",
            Outcome::NotServed(_) => "not served",
        }
    }
}

/// The outcomes of an import. Each is printed as it comes in.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Whether only failures are printed.
    is_quiet: bool,
    /// Whether nothing was really written.
    is_dry_run: bool,
    counts: BTreeMap<&'static str, usize>,
    /// The kinds that the target does not serve, with the number of their objects.
    not_served: BTreeMap<String, usize>,
    n_incomplete: usize,
}

impl Report {
    /// An empty report.
    pub(crate) fn new(is_quiet: bool, is_dry_run: bool) -> Report {
        Report {
            is_quiet,
            is_dry_run,
            ..Report::default()
        }
    }

    /// Records what became of an object, and what a user should know besides.
    pub(crate) fn add(&mut self, object: &Value, outcome: Outcome, notes: &[String]) {
        let title = title(object);
        *self.counts.entry(outcome.word()).or_default() += 1;
        let suffix = if self.is_dry_run { " (dry run)" } else { "" };
        match &outcome {
            Outcome::Failed(why) => write_error(format_args!("{title} failed: {why}")),
            Outcome::NotServed(why) => {
                *self.not_served.entry(why.clone()).or_default() += 1;
                write_error(format_args!("{title} not imported: {why}"));
            }
            _ if self.is_quiet => {}
            outcome => write_output(format_args!("{title} {}{suffix}", outcome.word())),
        }
        for note in notes {
            self.n_incomplete += 1;
            write_error(format_args!("{title}: {note}"));
        }
    }

    /// The objects that were not written.
    pub(crate) fn n_failed(&self) -> usize {
        let count = |word| self.counts.get(word).copied().unwrap_or_default();
        count("failed") + count("not served")
    }

    /// Objects that were written, but not all of them.
    pub(crate) fn n_incomplete(&self) -> usize {
        self.n_incomplete
    }

    /// One line about all objects, and one about each kind that is not served.
    pub(crate) fn summary(&self) -> Vec<String> {
        let order = [
            "created",
            "replaced",
            "unchanged",
            "skipped",
            "failed",
            "not served",
        ];
        let counts = order
            .iter()
            .filter_map(|word| self.counts.get(word).map(|count| format!("{count} {word}")));
        let counts: Vec<String> = counts.collect();
        let counts = match counts.is_empty() {
            true => "no objects".to_owned(),
            false => counts.join(", "),
        };
        let head = match self.is_dry_run {
            true => format!("dry run, nothing was written: {counts}"),
            false => format!("imported: {counts}"),
        };
        let kinds = self.not_served.iter();
        let kinds = kinds.map(|(why, count)| format!("{count} objects were not imported: {why}"));
        [head].into_iter().chain(kinds).collect()
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    #[test]
    fn the_summary_counts_every_object_once() {
        let mut report = Report::new(true, false);
        let object = value!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
        report.add(&object, Outcome::Created, &[]);
        report.add(&object, Outcome::Failed("no".into()), &[]);
        report.add(
            &object,
            Outcome::NotServed("the target does not serve X".into()),
            &[],
        );
        assert_eq!(report.n_failed(), 2);
        assert_eq!(
            report.summary(),
            [
                "imported: 1 created, 1 failed, 1 not served",
                "1 objects were not imported: the target does not serve X"
            ]
        );
    }
}
