//! Event correlation, in the three steps of client-go: a spam filter per source and object,
//! aggregation of events that differ only in their message, and a count of repetitions.

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::quality::FixedState;
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::Occurrence;

/// The limits of correlation.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// use mizzen_sdk::clock;
/// use mizzen_sdk::event::{Broadcaster, Limits, LogSink};
///
/// let limits = Limits { burst: 100, ..Limits::default() };
/// let broadcaster = Broadcaster::with(vec![Box::new(LogSink)], limits, clock::wall_clock());
/// broadcaster.stop().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The burst of events about one object by one source.
    pub burst: u32,
    /// The seconds until each further one is allowed.
    pub refill_seconds: u32,
    /// The number of similar events within `similar_seconds` that are aggregated.
    pub similar: usize,
    /// For how long similar events are counted together.
    pub similar_seconds: i64,
    /// The most entries of each cache; the least recently used are dropped.
    pub remembered: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            burst: 25,
            refill_seconds: 300,
            similar: 10,
            similar_seconds: 600,
            remembered: 4096,
        }
    }
}

/// An event to send.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// # use std::pin::Pin;
/// # use k8s_openapi::api::core::v1::ObjectReference;
/// # use mizzen_sdk::event::{Broadcaster, Note, Sink};
/// use mizzen_sdk::event::CorrelatedEvent;
///
/// fn check(event: &CorrelatedEvent) {
///     assert_eq!((event.count, event.combined), (1, false));
///     assert_eq!(event.occurrence.note.reason, "Created");
/// }
/// # struct Check;
/// # impl Sink for Check {
/// #     fn send<'a>(&'a mut self, event: &'a CorrelatedEvent) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
/// #         Box::pin(async move { check(event) })
/// #     }
/// # }
/// # let broadcaster = Broadcaster::new(vec![Box::new(Check)]);
/// # let pod = ObjectReference { name: Some("web".into()), ..ObjectReference::default() };
/// # broadcaster.recorder("my-controller", "my-controller-0").record(&pod, Note::normal("Created", "Creating", "made a pod"));
/// # broadcaster.stop().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct CorrelatedEvent {
    /// The latest occurrence.
    pub occurrence: Occurrence,
    /// Its name, the same for each repetition.
    pub name: String,
    /// The number of occurrences.
    pub count: u32,
    /// When it occurred first.
    pub first: Timestamp,
    /// Whether it aggregates events with different messages.
    pub combined: bool,
}

pub(super) struct Correlator {
    limits: Limits,
    spam: CorrelationCache<SpamBucket>,
    similar: CorrelationCache<AggregateRecord>,
    known: CorrelationCache<EventLog>,
    /// The time in the latest name, in nanoseconds: simultaneous events need different names.
    named: i128,
}

struct SpamBucket {
    left: f64,
    at: Instant,
}

struct AggregateRecord {
    messages: Vec<String>,
    since: Instant,
}

struct EventLog {
    name: String,
    count: u32,
    first: Timestamp,
}

impl Correlator {
    pub(super) fn new(limits: Limits) -> Correlator {
        let memory = limits.remembered;
        Correlator {
            limits,
            spam: CorrelationCache::new(memory),
            similar: CorrelationCache::new(memory),
            known: CorrelationCache::new(memory),
            named: i128::MIN,
        }
    }

    /// The event to send for an occurrence recorded at `at`; `None` if the spam filter drops it.
    /// Intervals are measured on the monotonic clock.
    pub(super) fn correlate(
        &mut self,
        mut occurrence: Occurrence,
        at: Instant,
    ) -> Option<CorrelatedEvent> {
        if self.is_spam(&occurrence, at) {
            return None;
        }
        let combined = self.is_one_of_many(&occurrence, at);
        if combined {
            let note = &mut occurrence.note;
            note.message = format!("(combined from similar events): {}", note.message);
            (note.related, note.annotations) = (None, Default::default());
        }
        Some(self.count(occurrence, combined))
    }

    fn is_spam(&mut self, occurrence: &Occurrence, at: Instant) -> bool {
        let Limits {
            burst,
            refill_seconds,
            ..
        } = self.limits;
        let full = SpamBucket {
            left: f64::from(burst),
            at,
        };
        let tokens = self.spam.get(source(occurrence), || full);
        let passed = at.saturating_duration_since(tokens.at).as_secs_f64();
        tokens.left = (tokens.left + passed / f64::from(refill_seconds)).min(f64::from(burst));
        tokens.at = at;
        let spam = tokens.left < 1.0;
        if !spam {
            tokens.left -= 1.0;
        }
        spam
    }

    fn is_one_of_many(&mut self, occurrence: &Occurrence, at: Instant) -> bool {
        let fresh = || AggregateRecord {
            messages: Vec::new(),
            since: at,
        };
        let similar = self.similar.get(kind(occurrence), fresh);
        let passed = at.saturating_duration_since(similar.since).as_secs();
        if i64::try_from(passed).unwrap_or(i64::MAX) > self.limits.similar_seconds {
            *similar = fresh();
        }
        similar.since = at;
        let message = &occurrence.note.message;
        let is_new = !similar.messages.contains(message);
        let is_full = similar.messages.len() + 1 >= self.limits.similar;
        if is_new && !is_full {
            similar.messages.push(message.clone());
        }
        // Kubernetes: a message that was sent before the limit stays separate (client-go drops a
        // random one of them).
        is_new && is_full
    }

    fn count(&mut self, occurrence: Occurrence, combined: bool) -> CorrelatedEvent {
        let message = if combined {
            ""
        } else {
            &occurrence.note.message
        };
        // Two containers of a pod are counted separately.
        let part = occurrence
            .regarding
            .field_path
            .as_deref()
            .unwrap_or_default();
        let key = format!("{}|{part}|{message}", kind(&occurrence));
        let named = &mut self.named;
        let known = self.known.get(key, || {
            *named = occurrence.at.as_nanosecond().max(named.saturating_add(1));
            EventLog {
                name: event_name(&occurrence, *named),
                count: 0,
                first: occurrence.at,
            }
        });
        known.count += 1;
        CorrelatedEvent {
            name: known.name.clone(),
            count: known.count,
            first: known.first,
            combined,
            occurrence,
        }
    }
}

/// The key of the spam filter: source and object.
fn source(occurrence: &Occurrence) -> String {
    let Occurrence {
        regarding,
        controller,
        instance,
        ..
    } = occurrence;
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    [
        controller.clone(),
        instance.clone(),
        text(&regarding.api_version),
        text(&regarding.kind),
        text(&regarding.namespace),
        text(&regarding.name),
        text(&regarding.uid),
    ]
    .join("|")
}

/// The key of the aggregation: everything but the message.
fn kind(occurrence: &Occurrence) -> String {
    let note = &occurrence.note;
    format!(
        "{}|{}|{}|{}",
        source(occurrence),
        note.severity.as_str(),
        note.reason,
        note.action
    )
}

/// The longest name of an object.
const LONGEST_NAME: usize = 253;

/// The object's name and the time, as client-go names events. If that is no valid event name (roles
/// may be called `system:node`), a hash replaces the object's name.
fn event_name(occurrence: &Occurrence, nanos: i128) -> String {
    let time = format!("{nanos:x}");
    let name = occurrence.regarding.name.as_deref().unwrap_or_default();
    let plain = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let fits = name.len() + 1 + time.len() <= LONGEST_NAME
        && name.split('.').all(|part| {
            let ends = part.bytes().next().zip(part.bytes().last());
            ends.is_some_and(|(first, last)| plain(first) && plain(last))
                && part.bytes().all(|letter| plain(letter) || letter == b'-')
        });
    match fits {
        true => format!("{name}.{time}"),
        false => format!(
            "{:016x}.{time}",
            FixedState::default().hash_one(source(occurrence))
        ),
    }
}

/// A cache with a size limit; the least recently used half is dropped. Its values are changed in place and do not expire, as
/// those of the server's `LruCache` do.
struct CorrelationCache<T> {
    things: HashMap<String, (u64, T)>,
    room: usize,
    clock: u64,
}

impl<T> CorrelationCache<T> {
    fn new(room: usize) -> CorrelationCache<T> {
        CorrelationCache {
            things: HashMap::new(),
            room,
            clock: 0,
        }
    }

    fn get(&mut self, key: String, new: impl FnOnce() -> T) -> &mut T {
        self.clock += 1;
        if self.things.len() >= self.room && !self.things.contains_key(&key) {
            self.forget();
        }
        let (used, thing) = self.things.entry(key).or_insert_with(|| (0, new()));
        *used = self.clock;
        thing
    }

    /// Drops the older half, so that this happens seldom.
    fn forget(&mut self) {
        let mut ages: Vec<u64> = self.things.values().map(|(used, _)| *used).collect();
        let middle = ages.len() / 2;
        let (_, limit, _) = ages.select_nth_unstable(middle);
        let limit = *limit;
        self.things.retain(|_, (used, _)| *used > limit);
    }
}
