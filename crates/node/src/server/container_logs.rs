//! Container logs: which lines of which container instance are written, and in which format.

use std::time::Duration;

use mizzen_value::Value;
use mizzen_value::time::to_unix;

use crate::moment::{Moment, to_rfc3339, wall_of};
use crate::runtime::LogLine;
use crate::status::container_status;

/// The log options of a request (upstream: PodLogOptions).
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct PodLogOptions {
    pub follow: bool,
    /// The previous instance.
    pub previous: bool,
    timestamps: bool,
    since: Option<Since>,
    tail: Option<usize>,
    limit: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Since {
    Ago(Duration),
    /// By the wall clock.
    At(Duration),
}

/// An error response: the status code and the body.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HttpError(pub u16, pub String);

impl PodLogOptions {
    pub(super) fn parse(query: &str) -> Result<PodLogOptions, HttpError> {
        let mut options = PodLogOptions::default();
        for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let is_on = !matches!(value, "false" | "0");
            match key {
                "follow" => options.follow = is_on,
                "previous" => options.previous = is_on,
                "timestamps" => options.timestamps = is_on,
                "tailLines" => options.tail = Some(number(value, 0)?),
                "limitBytes" => options.limit = Some(number(value, 1)?),
                "sinceSeconds" => {
                    options.since = Some(Since::Ago(Duration::from_secs(number(value, 1)? as u64)))
                }
                "sinceTime" => options.since = Some(Since::At(time(value)?)),
                _ => {}
            }
        }
        Ok(options)
    }

    /// The number of last lines, if they are limited.
    pub(super) fn tail(&self) -> Option<usize> {
        self.tail
    }

    /// The most bytes.
    pub(super) fn limit(&self) -> usize {
        self.limit.unwrap_or(usize::MAX)
    }

    pub(super) fn has_timestamps(&self) -> bool {
        self.timestamps
    }

    /// The time before which lines are left out, by the wall clock.
    pub(super) fn from(&self, now: Moment) -> Duration {
        match self.since {
            None => Duration::ZERO,
            Some(Since::At(wall)) => wall,
            Some(Since::Ago(ago)) => now.wall().saturating_sub(ago),
        }
    }

    /// Whether a line written at `at` is selected at `now`.
    fn is_since(&self, at: Moment, now: Moment) -> bool {
        match self.since {
            None => true,
            Some(Since::At(wall)) => at.wall() >= wall,
            Some(Since::Ago(ago)) => at >= now.saturating_before(ago),
        }
    }
}

fn number(text: &str, least: i64) -> Result<usize, HttpError> {
    let unreadable = || HttpError(400, r#"{"message": "Unable to decode query."}"#.into());
    let number: i64 = text.parse().map_err(|_| unreadable())?;
    let invalid = || HttpError(422, r#"{"message": "Invalid request."}"#.into());
    usize::try_from(number)
        .ok()
        .filter(|_| number >= least)
        .ok_or_else(invalid)
}

fn time(text: &str) -> Result<Duration, HttpError> {
    let seconds = to_unix(&text.replace("%3A", ":").replace("%3a", ":"));
    let unreadable = || HttpError(400, r#"{"message": "Unable to decode query."}"#.into());
    seconds
        .and_then(|seconds| u64::try_from(seconds).ok())
        .map(Duration::from_secs)
        .ok_or_else(unreadable)
}

/// One instance of a container.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ContainerInstance {
    /// The container ID, which differs between instances.
    pub id: String,
    /// Its start, by the wall clock.
    pub since: Duration,
    /// Its end, if it has ended.
    pub until: Option<Duration>,
}

impl ContainerInstance {
    /// The instance that a request selects; the errors are those of a kubelet.
    pub(crate) fn find(
        pod: &Value,
        container: &str,
        previous: bool,
    ) -> Result<ContainerInstance, HttpError> {
        let pod_name = pod["metadata"]["name"].str();
        let refuse = |what: String| Err(HttpError(400, what));
        let status = container_status(pod, container);
        if status.is_null() {
            return refuse(format!(
                "container {container:?} in pod {pod_name:?} is not available"
            ));
        }
        let (state, last) = (&status["state"], &status["lastState"]["terminated"]);
        let is_real = |end: &Value| !end["containerID"].is_empty();
        match (previous, state.entries().next()) {
            (true, _) if is_real(last) => Ok(ContainerInstance::ended(last)),
            (true, _) => refuse(format!(
                "previous terminated container {container:?} in pod {pod_name:?} not found"
            )),
            (_, Some(("running", running))) => {
                let since = wall_of(&running["startedAt"]).unwrap_or_default();
                Ok(ContainerInstance {
                    id: status["containerID"].str().into(),
                    since,
                    until: None,
                })
            }
            (_, Some(("terminated", end))) if is_real(end) => Ok(ContainerInstance::ended(end)),
            _ if is_real(last) => Ok(ContainerInstance::ended(last)),
            (_, Some(("terminated", _))) => refuse(format!(
                "container {container:?} in pod {pod_name:?} is terminated"
            )),
            (_, Some(("waiting", waiting))) => {
                let reason = match waiting["reason"].str() {
                    "ErrImagePull" => "image can't be pulled",
                    "ImagePullBackOff" => "trying and failing to pull image",
                    reason => reason,
                };
                refuse(format!(
                    "container {container:?} in pod {pod_name:?} is waiting to start: {reason}"
                ))
            }
            _ => refuse(format!(
                "container {container:?} in pod {pod_name:?} is waiting to start - no logs yet"
            )),
        }
    }

    fn ended(end: &Value) -> ContainerInstance {
        let since = wall_of(&end["startedAt"]).unwrap_or_default();
        let until = Some(wall_of(&end["finishedAt"]).unwrap_or(since));
        ContainerInstance {
            id: end["containerID"].str().into(),
            since,
            until,
        }
    }
}

/// Writes the selected lines, each once.
#[derive(Debug)]
pub(super) struct LogPrinter {
    options: PodLogOptions,
    began: Moment,
    /// The number of lines processed; `None` before the first call.
    n_seen: Option<usize>,
    left: usize,
}

impl LogPrinter {
    pub(super) fn new(options: PodLogOptions, now: Moment) -> LogPrinter {
        let left = options.limit.unwrap_or(usize::MAX);
        LogPrinter {
            began: now,
            options,
            n_seen: None,
            left,
        }
    }

    /// Whether the byte limit is reached.
    pub(super) fn is_full(&self) -> bool {
        self.left == 0
    }

    /// The new lines in `lines`, which are all that there are.
    pub(super) fn print(&mut self, lines: &[LogLine]) -> Vec<u8> {
        let tail = self.options.tail.unwrap_or(usize::MAX);
        let first = self
            .n_seen
            .unwrap_or_else(|| lines.len().saturating_sub(tail));
        self.n_seen = Some(lines.len());
        let mut text = Vec::new();
        for line in lines
            .iter()
            .skip(first)
            .filter(|line| self.options.is_since(line.at, self.began))
        {
            if self.options.timestamps {
                text.extend_from_slice(to_rfc3339(line.at, 9).as_bytes());
                text.push(b' ');
            }
            text.extend_from_slice(line.text.as_bytes());
            text.push(b'\n');
        }
        text.truncate(self.left);
        self.left -= text.len();
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    fn lines() -> Vec<LogLine> {
        let line = |(at, text): (u64, &str)| LogLine {
            at: Moment::from_secs(100 + at),
            text: text.into(),
        };
        [(0, "a"), (1, "b"), (2, "c"), (3, "d")]
            .into_iter()
            .map(line)
            .collect()
    }

    #[track_caller]
    fn check(query: &str, expected: &str) {
        let options = PodLogOptions::parse(query).unwrap();
        let text = LogPrinter::new(options, Moment::from_secs(104)).print(&lines());
        assert_eq!(String::from_utf8(text).unwrap(), expected, "{query}");
    }

    #[test]
    fn lines_are_selected_by_the_options() {
        check("", "a\nb\nc\nd\n");
        check("tailLines=2", "c\nd\n");
        check("tailLines=0", "");
        check("sinceSeconds=2", "c\nd\n");
        check("sinceTime=1970-01-01T00%3A01%3A43Z", "d\n");
        check("limitBytes=3", "a\nb");
        check(
            "tailLines=1&timestamps=true",
            "1970-01-01T00:01:43.000000000Z d\n",
        );
    }

    #[test]
    fn a_followed_log_has_each_line_once() {
        let mut printer = LogPrinter::new(
            PodLogOptions::parse("tailLines=1").unwrap(),
            Moment::default(),
        );
        assert_eq!(printer.print(&lines()[..2]), b"b\n");
        assert_eq!(printer.print(&lines()[..2]), b"");
        assert_eq!(printer.print(&lines()), b"c\nd\n");
    }

    #[test]
    fn invalid_options_are_rejected() {
        let code = |query: &str| {
            PodLogOptions::parse(query)
                .err()
                .map(|HttpError(code, _)| code)
        };
        assert_eq!(code("tailLines=x"), Some(400));
        assert_eq!(code("tailLines=-1"), Some(422));
        assert_eq!(code("limitBytes=0"), Some(422));
        assert_eq!(code("sinceTime=yesterday"), Some(400));
    }

    #[track_caller]
    fn check_life(status: &str, previous: bool, expected: Result<(u64, Option<u64>), &str>) {
        let text = format!(
            r#"{{"metadata":{{"name":"p"}},"status":{{"containerStatuses":[{{"name":"c",{status}}}]}}}}"#
        );
        let pod = json::parse(text.as_bytes()).unwrap();
        let found = ContainerInstance::find(&pod, "c", previous)
            .map(|life| (life.since.as_secs(), life.until.map(|at| at.as_secs())));
        assert_eq!(
            found.map_err(|HttpError(_, text)| text),
            expected.map_err(str::to_string)
        );
    }

    #[test]
    fn the_selected_instance_is_found() {
        const END: &str = r#"{"terminated":{"containerID":"x","startedAt":"1970-01-01T00:00:01Z","finishedAt":"1970-01-01T00:00:02Z"}}"#;
        const RUNS: &str = r#""state":{"running":{"startedAt":"1970-01-01T00:00:05Z"}}"#;
        check_life(RUNS, false, Ok((5, None)));
        check_life(
            &format!(r#"{RUNS},"lastState":{END}"#),
            true,
            Ok((1, Some(2))),
        );
        check_life(&format!(r#""state":{END}"#), false, Ok((1, Some(2))));
        check_life(
            &format!(r#""state":{{"waiting":{{"reason":"CrashLoopBackOff"}}}},"lastState":{END}"#),
            false,
            Ok((1, Some(2))),
        );
        check_life(
            RUNS,
            true,
            Err("previous terminated container \"c\" in pod \"p\" not found"),
        );
        let waits = r#""state":{"waiting":{"reason":"PodInitializing"}}"#;
        check_life(
            waits,
            false,
            Err("container \"c\" in pod \"p\" is waiting to start: PodInitializing"),
        );
        for (reason, said) in [
            ("ErrImagePull", "image can't be pulled"),
            ("ImagePullBackOff", "trying and failing to pull image"),
        ] {
            let waits = format!(r#""state":{{"waiting":{{"reason":"{reason}"}}}}"#);
            let said = format!("container \"c\" in pod \"p\" is waiting to start: {said}");
            check_life(&waits, false, Err(&said));
        }
        let found = ContainerInstance::find(&Value::Null, "c", false);
        assert_eq!(
            found,
            Err(HttpError(
                400,
                "container \"c\" in pod \"\" is not available".into()
            ))
        );
    }
}
