//! What one scrape shows: metric families with their series.
//!
//! Invariant: a family is declared once, however many components have series of it. Series with the same labels are added up.
//! Invariant: families are in the order of their names, series in that of their labels, and a family without series is left
//! out, as in Go's client.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use crate::histogram::{Histogram, Summary};
use crate::number::{self, Number};
use crate::registry::Collector;

/// The metric families of a scrape, by name.
#[derive(Debug, Default)]
pub struct Families {
    by_name: BTreeMap<Cow<'static, str>, MetricFamily>,
    /// The label of all series that are added now.
    common: Option<(&'static str, String)>,
}

/// All series of one name.
#[derive(Debug)]
pub struct MetricFamily {
    kind: &'static str,
    help: Cow<'static, str>,
    /// The label of all series that are added now.
    common: Option<(&'static str, String)>,
    /// By the text of their labels, which are in the order of their names.
    series: BTreeMap<String, MetricSeries>,
}

#[derive(Debug)]
enum MetricSeries {
    Value(f64),
    Histogram(Histogram),
    Summary(Summary),
}

impl Families {
    /// The counter of this name.
    pub fn counter(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        help: impl Into<Cow<'static, str>>,
    ) -> &mut MetricFamily {
        self.family(name.into(), help.into(), "counter")
    }

    /// The gauge of this name.
    pub fn gauge(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        help: impl Into<Cow<'static, str>>,
    ) -> &mut MetricFamily {
        self.family(name.into(), help.into(), "gauge")
    }

    /// The histogram of this name.
    pub fn histogram(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        help: impl Into<Cow<'static, str>>,
    ) -> &mut MetricFamily {
        self.family(name.into(), help.into(), "histogram")
    }

    /// The summary of this name.
    pub fn summary(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        help: impl Into<Cow<'static, str>>,
    ) -> &mut MetricFamily {
        self.family(name.into(), help.into(), "summary")
    }

    fn family(
        &mut self,
        name: Cow<'static, str>,
        help: Cow<'static, str>,
        kind: &'static str,
    ) -> &mut MetricFamily {
        let family = self.by_name.entry(name).or_insert_with(|| MetricFamily {
            kind,
            help,
            common: None,
            series: BTreeMap::new(),
        });
        family.common.clone_from(&self.common);
        family
    }

    /// Adds the series of a component with a label besides its own, for example the cluster that it
    /// works with. An empty value is no label.
    ///
    /// ```
    /// use mizzen_metrics::{Collector, Families};
    ///
    /// struct Cache;
    ///
    /// impl Collector for Cache {
    ///     fn collect(&self, families: &mut Families) {
    ///         families.gauge("objects", "Objects in the cache.").add(&[], 7_u64);
    ///     }
    /// }
    ///
    /// let mut families = Families::default();
    /// families.collect_labelled(("cluster", "remote"), &Cache);
    /// assert!(families.to_string().contains(r#"objects{cluster="remote"} 7"#));
    /// ```
    pub fn collect_labelled(
        &mut self,
        (name, value): (&'static str, &str),
        collector: &dyn Collector,
    ) {
        let common = (!value.is_empty()).then(|| (name, value.to_owned()));
        let outer = std::mem::replace(&mut self.common, common);
        collector.collect(self);
        self.common = outer;
    }

    /// The series of these components.
    pub fn of(collectors: &[&dyn Collector]) -> Families {
        let mut families = Families::default();
        collectors
            .iter()
            .for_each(|collector| collector.collect(&mut families));
        families
    }

    /// The names of all families that have series.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let filled = self
            .by_name
            .iter()
            .filter(|(_, family)| !family.series.is_empty());
        filled.map(|(name, _)| &**name)
    }
}

impl MetricFamily {
    /// Adds the series with these labels, or to it.
    pub fn add(&mut self, labels: &[(&str, &str)], value: impl Number) {
        let value = value.to_f64();
        let labels = self.text_of(labels);
        match self
            .series
            .entry(labels)
            .or_insert(MetricSeries::Value(0.0))
        {
            MetricSeries::Value(sum) => *sum += value,
            other => *other = MetricSeries::Value(value),
        }
    }

    /// Adds the series of a histogram with these labels, or to it.
    pub fn add_histogram(&mut self, labels: &[(&str, &str)], histogram: &Histogram) {
        let labels = self.text_of(labels);
        match self.series.get_mut(&labels) {
            Some(MetricSeries::Histogram(known)) => known.merge(histogram),
            _ => {
                let series = MetricSeries::Histogram(histogram.clone());
                self.series.insert(labels, series);
            }
        }
    }

    /// Adds the series of a summary with these labels, or to it.
    pub fn add_summary(&mut self, labels: &[(&str, &str)], summary: Summary) {
        let labels = self.text_of(labels);
        match self.series.get_mut(&labels) {
            Some(MetricSeries::Summary(known)) => {
                known.count += summary.count;
                known.sum += summary.sum;
            }
            _ => {
                self.series.insert(labels, MetricSeries::Summary(summary));
            }
        }
    }

    /// Labels in the order of their names, without the braces.
    fn text_of(&self, labels: &[(&str, &str)]) -> String {
        let common = self.common.iter().map(|(name, value)| (*name, &**value));
        let mut labels: Vec<_> = labels.iter().copied().chain(common).collect();
        labels.sort_unstable();
        let mut text = String::new();
        for (name, value) in labels {
            if !text.is_empty() {
                text.push(',');
            }
            text.push_str(name);
            text.push_str("=\"");
            for letter in value.chars() {
                match letter {
                    '\\' => text.push_str(r"\\"),
                    '"' => text.push_str(r#"\""#),
                    '\n' => text.push_str(r"\n"),
                    other => text.push(other),
                }
            }
            text.push('"');
        }
        text
    }
}

/// The text format, version 0.0.4.
impl fmt::Display for Families {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        for (name, family) in self
            .by_name
            .iter()
            .filter(|(_, family)| !family.series.is_empty())
        {
            let help = family.help.replace('\\', r"\\").replace('\n', r"\n");
            writeln!(out, "# HELP {name} {help}\n# TYPE {name} {}", family.kind)?;
            for (labels, series) in &family.series {
                series.write(&mut out, name, labels)?;
            }
        }
        f.write_str(&out)
    }
}

impl MetricSeries {
    fn write(&self, out: &mut String, name: &str, labels: &str) -> fmt::Result {
        match self {
            MetricSeries::Value(value) => write_line(out, [name, ""], [labels, ""], *value),
            MetricSeries::Summary(Summary { count, sum }) => {
                write_line(out, [name, "_sum"], [labels, ""], *sum)?;
                write_line(out, [name, "_count"], [labels, ""], *count as f64)
            }
            MetricSeries::Histogram(histogram) => {
                let infinite = (f64::INFINITY, histogram.count());
                let mut bound_label = String::new();
                for (bound, count) in histogram.cumulative().chain([infinite]) {
                    bound_label.clear();
                    bound_label.push_str("le=\"");
                    number::write(&mut bound_label, bound)?;
                    bound_label.push('"');
                    write_line(out, [name, "_bucket"], [labels, &bound_label], count as f64)?;
                }
                write_line(out, [name, "_sum"], [labels, ""], histogram.sum())?;
                write_line(
                    out,
                    [name, "_count"],
                    [labels, ""],
                    histogram.count() as f64,
                )
            }
        }
    }
}

/// A line: a name with its suffix, labels with a last one, and a value.
fn write_line(
    out: &mut String,
    [name, suffix]: [&str; 2],
    [labels, last]: [&str; 2],
    value: f64,
) -> fmt::Result {
    let comma = if labels.is_empty() || last.is_empty() {
        ""
    } else {
        ","
    };
    match labels.is_empty() && last.is_empty() {
        true => write!(out, "{name}{suffix} ")?,
        false => write!(out, "{name}{suffix}{{{labels}{comma}{last}}} ")?,
    }
    number::write(out, value)?;
    out.write_char('\n')
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Timings;

    #[test]
    fn labels_are_sorted_and_escaped_and_families_without_series_are_left_out() {
        let mut families = Families::default();
        families.gauge("unused", "Nothing.");
        families
            .counter("authentication_attempts", "Requests\nby \\ result.")
            .add(&[("z", "a\"b\\c\nd"), ("a", "1")], 1_000_000_u64);
        families.gauge("a", "First.").add(&[], -0.5);
        assert_eq!(
            families.names().collect::<Vec<_>>(),
            ["a", "authentication_attempts"]
        );
        assert_eq!(
            families.to_string(),
            "# HELP a First.\n# TYPE a gauge\na -0.5\n\
             # HELP authentication_attempts Requests\\nby \\\\ result.\n# TYPE authentication_attempts counter\n\
             authentication_attempts{a=\"1\",z=\"a\\\"b\\\\c\\nd\"} 1e+06\n"
        );
    }

    #[test]
    fn series_with_the_same_labels_are_added_up() {
        let mut families = Families::default();
        for _ in 0..2 {
            let timings = Timings::new(&[0.5, 1.0]);
            [500, 501, 2_000]
                .into_iter()
                .for_each(|millis| timings.observe(Duration::from_millis(millis)));
            assert_eq!(timings.count(), 3);
            let label = [("name", "x")];
            families.counter("c", "C.").add(&label, 2_u64);
            families
                .histogram("h", "H.")
                .add_histogram(&label, &timings.histogram());
            let summary = Summary {
                count: 1,
                sum: 0.25,
            };
            families.summary("s", "S.").add_summary(&[], summary);
        }
        assert_eq!(
            families.to_string(),
            "# HELP c C.\n# TYPE c counter\nc{name=\"x\"} 4\n\
             # HELP h H.\n# TYPE h histogram\nh_bucket{name=\"x\",le=\"0.5\"} 2\nh_bucket{name=\"x\",le=\"1\"} 4\n\
             h_bucket{name=\"x\",le=\"+Inf\"} 6\nh_sum{name=\"x\"} 6.002\nh_count{name=\"x\"} 6\n\
             # HELP s S.\n# TYPE s summary\ns_sum 0.5\ns_count 2\n"
        );
    }
}
