//! Which lines of which life of a container are wanted, and how are they written?

use std::time::Duration;

use mizzen_value::Value;
use mizzen_value::time::{from_unix, to_unix};

use crate::moment::{Moment, wall_of};
use crate::runtime::Line;
use crate::status::of_container;

/// What is wanted.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Wanted {
    /// Lines that are written later, too.
    pub follow: bool,
    /// The life before this one.
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

/// Why a request is refused: a code, and a text for people.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refusal(pub u16, pub String);

impl Wanted {
    /// What a query asks for.
    pub(super) fn parse(query: &str) -> Result<Wanted, Refusal> {
        let mut wanted = Wanted::default();
        for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let is_on = !matches!(value, "false" | "0");
            match key {
                "follow" => wanted.follow = is_on,
                "previous" => wanted.previous = is_on,
                "timestamps" => wanted.timestamps = is_on,
                "tailLines" => wanted.tail = Some(number(value, 0)?),
                "limitBytes" => wanted.limit = Some(number(value, 1)?),
                "sinceSeconds" => {
                    wanted.since = Some(Since::Ago(Duration::from_secs(number(value, 1)? as u64)))
                }
                "sinceTime" => wanted.since = Some(Since::At(time(value)?)),
                _ => {}
            }
        }
        Ok(wanted)
    }

    /// Whether a line that was written at `at` is wanted at `now`.
    fn is_since(&self, at: Moment, now: Moment) -> bool {
        match self.since {
            None => true,
            Some(Since::At(wall)) => at.wall() >= wall,
            Some(Since::Ago(ago)) => at >= now.saturating_before(ago),
        }
    }
}

fn number(text: &str, least: i64) -> Result<usize, Refusal> {
    let unreadable = || Refusal(400, r#"{"message": "Unable to decode query."}"#.into());
    let number: i64 = text.parse().map_err(|_| unreadable())?;
    let invalid = || Refusal(422, r#"{"message": "Invalid request."}"#.into());
    usize::try_from(number)
        .ok()
        .filter(|_| number >= least)
        .ok_or_else(invalid)
}

fn time(text: &str) -> Result<Duration, Refusal> {
    let seconds = to_unix(&text.replace("%3A", ":").replace("%3a", ":"));
    let unreadable = || Refusal(400, r#"{"message": "Unable to decode query."}"#.into());
    seconds
        .and_then(|seconds| u64::try_from(seconds).ok())
        .map(Duration::from_secs)
        .ok_or_else(unreadable)
}

/// One life of a container.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Life {
    /// The container's id, which is another one in each life.
    pub id: String,
    /// When it was started, by the wall clock.
    pub since: Duration,
    /// When it ended, if it did.
    pub until: Option<Duration>,
}

impl Life {
    /// The life of a container that is asked for; the error is the kubelet's.
    pub(crate) fn find(pod: &Value, container: &str, previous: bool) -> Result<Life, Refusal> {
        let pod_name = pod["metadata"]["name"].str();
        let refuse = |what: String| Err(Refusal(400, what));
        let status = of_container(pod, container);
        if status.is_null() {
            return refuse(format!(
                "container {container:?} in pod {pod_name:?} is not available"
            ));
        }
        let (state, last) = (&status["state"], &status["lastState"]["terminated"]);
        let is_real = |end: &Value| !end["containerID"].is_empty();
        match (previous, state.entries().next()) {
            (true, _) if is_real(last) => Ok(Life::ended(last)),
            (true, _) => refuse(format!(
                "previous terminated container {container:?} in pod {pod_name:?} not found"
            )),
            (_, Some(("running", running))) => {
                let since = wall_of(&running["startedAt"]).unwrap_or_default();
                Ok(Life {
                    id: status["containerID"].str().into(),
                    since,
                    until: None,
                })
            }
            (_, Some(("terminated", end))) if is_real(end) => Ok(Life::ended(end)),
            _ if is_real(last) => Ok(Life::ended(last)),
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

    fn ended(end: &Value) -> Life {
        let since = wall_of(&end["startedAt"]).unwrap_or_default();
        let until = Some(wall_of(&end["finishedAt"]).unwrap_or(since));
        Life {
            id: end["containerID"].str().into(),
            since,
            until,
        }
    }
}

/// Writes lines as they are wanted, each once.
#[derive(Debug)]
pub(super) struct Printer {
    wanted: Wanted,
    began: Moment,
    /// How many lines were looked at; none before the first time.
    n_seen: Option<usize>,
    left: usize,
}

impl Printer {
    /// Writes what is `wanted`, as of now.
    pub(super) fn new(wanted: Wanted, now: Moment) -> Printer {
        let left = wanted.limit.unwrap_or(usize::MAX);
        Printer {
            began: now,
            wanted,
            n_seen: None,
            left,
        }
    }

    /// Whether nothing more can be written.
    pub(super) fn is_full(&self) -> bool {
        self.left == 0
    }

    /// What is new in `lines`, which are all there are.
    pub(super) fn print(&mut self, lines: &[Line]) -> Vec<u8> {
        let tail = self.wanted.tail.unwrap_or(usize::MAX);
        let first = self
            .n_seen
            .unwrap_or_else(|| lines.len().saturating_sub(tail));
        self.n_seen = Some(lines.len());
        let mut text = Vec::new();
        for line in lines
            .iter()
            .skip(first)
            .filter(|line| self.wanted.is_since(line.at, self.began))
        {
            if self.wanted.timestamps {
                text.extend_from_slice(stamp(line.at).as_bytes());
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

/// A time with all nine digits of its nanoseconds.
fn stamp(at: Moment) -> String {
    let at = at.wall();
    let seconds = from_unix(at.as_secs() as i64);
    format!(
        "{}.{:09}Z",
        seconds.trim_end_matches('Z'),
        at.subsec_nanos()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    /// Four lines, one a second.
    fn lines() -> Vec<Line> {
        let line = |(at, text): (u64, &str)| Line {
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
        let wanted = Wanted::parse(query).unwrap();
        let text = Printer::new(wanted, Moment::from_secs(104)).print(&lines());
        assert_eq!(String::from_utf8(text).unwrap(), expected, "{query}");
    }

    #[test]
    fn lines_are_chosen() {
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
    fn who_follows_gets_each_line_once() {
        let mut printer = Printer::new(Wanted::parse("tailLines=1").unwrap(), Moment::default());
        assert_eq!(printer.print(&lines()[..2]), b"b\n");
        assert_eq!(printer.print(&lines()[..2]), b"");
        assert_eq!(printer.print(&lines()), b"c\nd\n");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let code = |query: &str| Wanted::parse(query).err().map(|Refusal(code, _)| code);
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
        let found = Life::find(&pod, "c", previous)
            .map(|life| (life.since.as_secs(), life.until.map(|at| at.as_secs())));
        assert_eq!(
            found.map_err(|Refusal(_, text)| text),
            expected.map_err(str::to_string)
        );
    }

    #[test]
    fn a_life_is_found() {
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
        let found = Life::find(&Value::Null, "c", false);
        assert_eq!(
            found,
            Err(Refusal(
                400,
                "container \"c\" in pod \"\" is not available".into()
            ))
        );
    }
}
