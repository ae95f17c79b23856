//! Which events are worth telling, and which are another of the same?
//!
//! Three steps, as client-go takes them: what is said too often about one object by one source is left out; many
//! events that differ only in their message become one; the same again is counted.

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::quality::FixedState;
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::Occurrence;

/// How much is told.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How many events about one object a source may send at once.
    pub burst: u32,
    /// How many seconds it then waits for each further one.
    pub refill_seconds: u32,
    /// How many similar events within `similar_seconds` become one.
    pub similar: usize,
    /// For how long similar events are counted together.
    pub similar_seconds: i64,
    /// How many things are remembered; the oldest are forgotten.
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

/// An event to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// What happened, the last time.
    pub occurrence: Occurrence,
    /// Its name, the same for each time.
    pub name: String,
    /// How often it happened.
    pub count: u32,
    /// When it happened first.
    pub first: Timestamp,
    /// Whether it stands for many that differ in their message.
    pub combined: bool,
}

pub(super) struct Correlator {
    limits: Limits,
    spam: Memory<Tokens>,
    similar: Memory<Similar>,
    known: Memory<Known>,
    /// The time in the name that was given last, in nanoseconds: two that happen at once need two names.
    named: i128,
}

struct Tokens {
    left: f64,
    at: Instant,
}

struct Similar {
    messages: Vec<String>,
    since: Instant,
}

struct Known {
    name: String,
    count: u32,
    first: Timestamp,
}

impl Correlator {
    pub(super) fn new(limits: Limits) -> Correlator {
        let memory = limits.remembered;
        Correlator {
            limits,
            spam: Memory::new(memory),
            similar: Memory::new(memory),
            known: Memory::new(memory),
            named: i128::MIN,
        }
    }

    /// What to send of an occurrence that was recorded at `at`; none if it is one too many. How often is counted on the
    /// monotonic clock.
    pub(super) fn tell(&mut self, mut occurrence: Occurrence, at: Instant) -> Option<Told> {
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
        let full = Tokens {
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
        let fresh = || Similar {
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
        // Kubernetes: what was told apart before stays so (client-go forgets one of those messages, any of them).
        is_new && is_full
    }

    fn count(&mut self, occurrence: Occurrence, combined: bool) -> Told {
        let message = if combined {
            ""
        } else {
            &occurrence.note.message
        };
        // Two containers of a pod have a history each.
        let part = occurrence
            .regarding
            .field_path
            .as_deref()
            .unwrap_or_default();
        let key = format!("{}|{part}|{message}", kind(&occurrence));
        let named = &mut self.named;
        let known = self.known.get(key, || {
            *named = occurrence.at.as_nanosecond().max(named.saturating_add(1));
            Known {
                name: event_name(&occurrence, *named),
                count: 0,
                first: occurrence.at,
            }
        });
        known.count += 1;
        Told {
            name: known.name.clone(),
            count: known.count,
            first: known.first,
            combined,
            occurrence,
        }
    }
}

/// Who talks about what.
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

/// What is the same in events that differ only in their message.
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

/// The longest name that an object can have.
const LONGEST_NAME: usize = 253;

/// The object's name and the time, as client-go names events. Where that is no name of an event (roles may be called
/// `system:node`), a number stands for the object.
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

/// Remembers so many things; the one that was used longest ago is forgotten.
struct Memory<T> {
    things: HashMap<String, (u64, T)>,
    room: usize,
    clock: u64,
}

impl<T> Memory<T> {
    fn new(room: usize) -> Memory<T> {
        Memory {
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

    /// Forgets the older half, so that forgetting is seldom.
    fn forget(&mut self) {
        let mut ages: Vec<u64> = self.things.values().map(|(used, _)| *used).collect();
        let middle = ages.len() / 2;
        let (_, limit, _) = ages.select_nth_unstable(middle);
        let limit = *limit;
        self.things.retain(|_, (used, _)| *used > limit);
    }
}
