//! The store against a model that is too simple to be wrong: all versions of everything, in a list.
//!
//! Random transactions, expiries, watches, looks into the past and reopenings; after each step the store must show
//! exactly what the model shows. proptest prints the smallest failing sequence and remembers its seed.

use std::collections::BTreeMap;

use mizzen_store::{
    Draft, Event, EventKind, Expect, Expired, Options, Record, Revision, Snapshot, Store, Watch,
    WatchScope, WindowLimits, Write, WriteError, WriteOperation,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use crate::rig::Rig;

const SPACES: [&str; 2] = ["one", "two"];
const KEYS: [&str; 6] = ["a/1", "a/2", "b/1", "b/c/1", "b/c/2", "c"];
const TERMS: [&str; 3] = ["app=db", "app=web", "tier=1"];
const PREFIXES: [&str; 6] = ["", "a/", "b/", "b/c/", "b", "x/"];
const MAX_EVENTS: usize = 6;
const SCOPES: usize = 7;

/// What a follower mirrors: the first keys, prefixes and terms.
fn scope(number: usize) -> WatchScope {
    match number {
        0 => WatchScope::Everything,
        1 | 2 => WatchScope::Key(KEYS[3 * number - 3].into()),
        3 | 4 => WatchScope::Prefix(PREFIXES[2 * number - 5].into()),
        _ => WatchScope::Term(TERMS[number - 5].into()),
    }
}

/// Whether a record is in a scope, told from the model.
fn is_inside(scope: &WatchScope, key: &str, version: &Version) -> bool {
    match scope {
        WatchScope::Everything => true,
        WatchScope::Key(wanted) => key == &**wanted,
        WatchScope::Prefix(prefix) => key.starts_with(&**prefix),
        WatchScope::Term(term) => version.terms.iter().any(|own| *own == **term),
    }
}

#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<Entry>),
    Expire(u64),
    /// Begins to mirror the scope with this number by list and watch, from this many revisions ago on.
    Follow(usize, usize, u64),
    /// Tells followers what happened.
    CatchUp,
    /// Looks at a space as it was this many revisions ago, and keeps what it sees.
    LookBack(usize, u64),
    Retain(usize),
    Reopen,
    /// Records are encrypted with another key from now on.
    Rotate,
}

#[derive(Clone, Debug)]
struct Entry {
    space: usize,
    key: &'static str,
    expect: Expectation,
    change: What,
    terms: Vec<&'static str>,
    expires: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Expectation {
    Absent,
    Present,
    Any,
    /// What the caller has just read.
    Current,
    Stale,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Put,
    Delete,
    Check,
}

fn entry() -> impl Strategy<Value = Entry> {
    use Expectation::*;
    let expect = select(vec![Absent, Present, Any, Any, Current, Current, Stale]);
    let change = select(vec![
        What::Put,
        What::Put,
        What::Put,
        What::Delete,
        What::Check,
    ]);
    let terms = subsequence(TERMS.to_vec(), 0..=3).prop_shuffle();
    (
        0..2_usize,
        select(KEYS.to_vec()),
        expect,
        change,
        terms,
        option::weighted(0.3, 0..20_u64),
    )
        .prop_map(|(space, key, expect, change, terms, expires)| Entry {
            space,
            key,
            expect,
            change,
            terms,
            expires,
        })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => vec(entry(), 1..4).prop_map(Step::Commit),
        1 => (0..20_u64).prop_map(Step::Expire),
        2 => (0..2_usize, 0..SCOPES, 0..4_u64)
            .prop_map(|(space, scope, back)| Step::Follow(space, scope, back)),
        2 => Just(Step::CatchUp),
        2 => (0..2_usize, 0..12_u64).prop_map(|(space, back)| Step::LookBack(space, back)),
        1 => (0..2_usize).prop_map(Step::Retain),
        1 => Just(Step::Reopen),
        1 => Just(Step::Rotate),
    ]
}

/// One record, as the model knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Version {
    revision: u64,
    value: String,
    terms: Vec<String>,
    expires: Option<u64>,
}

type Content = BTreeMap<String, Version>;

/// The content of both spaces at one revision, and the keys that the last transaction changed.
#[derive(Clone, Debug, Default)]
struct Moment {
    spaces: [Content; 2],
    changed: [Vec<String>; 2],
}

struct Model {
    /// What was at revision `index`.
    history: Vec<Moment>,
    opened: u64,
    n_values: u64,
}

/// A reader that mirrors a scope of a space.
struct Follower {
    space: usize,
    scope: WatchScope,
    watch: Watch,
    /// A watch of everything from the same revision, until it expires.
    unscoped: Option<Watch>,
    mirror: Content,
    seen: Revision,
    /// The last revision when it began.
    began: u64,
}

impl Model {
    fn new() -> Model {
        Model {
            history: vec![Moment::default(); 2],
            opened: 0,
            n_values: 0,
        }
    }

    fn revision(&self) -> u64 {
        self.history.len() as u64 - 1
    }

    fn now(&self) -> &Moment {
        self.history.last().unwrap()
    }

    /// The oldest revision that a space's window must still reach.
    fn floor(&self, space: usize) -> u64 {
        let mut n_events = 0;
        for revision in (self.opened as usize + 1..self.history.len()).rev() {
            n_events += self.history[revision].changed[space].len();
            if n_events > MAX_EVENTS {
                return revision as u64;
            }
        }
        self.opened
    }

    /// The content of a scope at a revision.
    fn inside(&self, space: usize, scope: &WatchScope, revision: u64) -> Content {
        let mut content = self.history[revision as usize].spaces[space].clone();
        content.retain(|key, version| is_inside(scope, key, version));
        content
    }

    /// Whether an event of a scope after `seen` may have been forgotten.
    fn has_forgotten(&self, space: usize, scope: &WatchScope, seen: u64) -> bool {
        (seen + 1..=self.floor(space)).any(|revision| {
            let around =
                [revision - 1, revision].map(|at| &self.history[at as usize].spaces[space]);
            let is_concerned = |key: &String| {
                let versions = around.iter().filter_map(|content| content.get(key));
                versions
                    .into_iter()
                    .any(|version| is_inside(scope, key, version))
            };
            self.history[revision as usize].changed[space]
                .iter()
                .any(is_concerned)
        })
    }

    /// What the store should answer, and the moment that it should lead to.
    fn commit(
        &mut self,
        writes: &[Write],
        entries: &[Entry],
    ) -> Result<usize, (usize, &'static str)> {
        for (index, (write, entry)) in writes.iter().zip(entries).enumerate() {
            let current = self.now().spaces[entry.space].get(entry.key);
            let refusal = match (write.expect, current) {
                (Expect::Absent, Some(_)) => Some("exists"),
                (Expect::Present | Expect::At(_), None) => Some("missing"),
                (Expect::At(at), Some(current)) if at.0 != current.revision => Some("conflict"),
                (_, None) if matches!(entry.change, What::Delete) => Some("missing"),
                _ => None,
            };
            if let Some(refusal) = refusal {
                return Err((index, refusal));
            }
        }
        let n_changes = entries
            .iter()
            .filter(|entry| !matches!(entry.change, What::Check))
            .count();
        if n_changes > 0 {
            let moment = self.after(entries);
            self.history.push(moment);
        }
        Ok(n_changes)
    }

    fn after(&mut self, entries: &[Entry]) -> Moment {
        let revision = self.revision() + 1;
        let mut moment = Moment {
            changed: Default::default(),
            ..self.now().clone()
        };
        for entry in entries {
            let content = &mut moment.spaces[entry.space];
            match entry.change {
                What::Put => {
                    drop(content.insert(entry.key.into(), entry.version(revision, self.n_values)))
                }
                What::Delete => drop(content.remove(entry.key)),
                What::Check => continue,
            }
            moment.changed[entry.space].push(entry.key.into());
        }
        moment
    }

    /// Deletes in the order of spaces, then of expiry, then of keys, each at its own revision.
    fn expire(&mut self, now: u64) -> usize {
        let mut expired = Vec::new();
        for (space, content) in self.now().spaces.iter().enumerate() {
            let due = content
                .iter()
                .filter(|(_, version)| version.expires.is_some_and(|at| at <= now));
            expired.extend(due.map(|(key, version)| (space, version.expires, key.clone())));
        }
        expired.sort();
        for (space, _, key) in &expired {
            let mut moment = Moment {
                changed: Default::default(),
                ..self.now().clone()
            };
            moment.spaces[*space].remove(key);
            moment.changed[*space].push(key.clone());
            self.history.push(moment);
        }
        expired.len()
    }
}

impl Entry {
    fn write(&self, store: &Store, model: &Model) -> Write {
        let current = model.now().spaces[self.space]
            .get(self.key)
            .map(|version| version.revision);
        let expect = match self.expect {
            Expectation::Absent => Expect::Absent,
            Expectation::Present => Expect::Present,
            Expectation::Any => Expect::Any,
            Expectation::Current => {
                current.map_or(Expect::Absent, |revision| Expect::At(Revision(revision)))
            }
            Expectation::Stale => Expect::At(Revision(current.unwrap_or(2) - 1)),
        };
        let change = match self.change {
            What::Put => WriteOperation::Put(self.draft(model.n_values)),
            What::Delete => WriteOperation::Delete(self.draft(model.n_values)),
            What::Check => WriteOperation::Check,
        };
        let (space, uses_reserve) = (store.keyspace(SPACES[self.space]), false);
        Write {
            space,
            key: self.key.into(),
            expect,
            change,
            uses_reserve,
        }
    }

    fn draft(&self, n_values: u64) -> Draft {
        let value = format!("{n_values}@;");
        let stamp = Some(value.len() - 1);
        let terms = self.terms.iter().map(|&term| term.into()).collect();
        Draft {
            value: value.into(),
            stamp,
            terms,
            expires: self.expires,
            attachment: None,
        }
    }

    fn version(&self, revision: u64, n_values: u64) -> Version {
        let mut terms: Vec<_> = self.terms.iter().map(|&term| term.to_owned()).collect();
        terms.sort();
        Version {
            revision,
            value: format!("{n_values}@{revision};"),
            terms,
            expires: self.expires,
        }
    }
}

fn version(record: &Record) -> Version {
    Version {
        revision: record.revision.0,
        value: String::from_utf8(record.value.to_vec()).unwrap(),
        terms: record.terms.iter().map(|term| term.to_string()).collect(),
        expires: record.expires,
    }
}

fn content(snapshot: &Snapshot) -> Content {
    snapshot
        .range("", None)
        .map(|record| (record.key.to_string(), version(record)))
        .collect()
}

/// Every read of a snapshot agrees with `content`.
fn check_snapshot(snapshot: &Snapshot, expected: &Content) {
    assert_eq!(&content(snapshot), expected);
    assert_eq!(snapshot.len(), expected.len());
    for prefix in PREFIXES {
        let under = || expected.iter().filter(|(key, _)| key.starts_with(prefix));
        assert_eq!(snapshot.count(prefix), under().count());
        for after in [None, Some("a/1"), Some("b/c/1")] {
            let later =
                || under().filter(|(key, _)| after.is_none_or(|after| key.as_str() > after));
            let found: Vec<_> = snapshot
                .range(prefix, after)
                .map(|record| record.key.to_string())
                .collect();
            assert_eq!(
                found,
                later().map(|(key, _)| key.clone()).collect::<Vec<_>>()
            );
            for term in TERMS {
                let found: Vec<_> = snapshot
                    .with_term(term, prefix, after)
                    .map(|record| version(record))
                    .collect();
                let carry =
                    later().filter(|(_, version)| version.terms.iter().any(|own| own == term));
                assert_eq!(
                    found,
                    carry
                        .map(|(_, version)| version.clone())
                        .collect::<Vec<_>>()
                );
            }
        }
    }
}

fn check_present(store: &Store, model: &Model) {
    assert_eq!(store.revision().0, model.revision());
    for (name, content) in SPACES.iter().zip(&model.now().spaces) {
        let snapshot = store.keyspace(name).snapshot();
        assert_eq!(snapshot.at().0, model.revision());
        check_snapshot(&snapshot, content);
        let bytes: usize = content.values().map(|version| version.value.len()).sum();
        assert_eq!(store.keyspace(name).stats().bytes, bytes as u64);
    }
}

impl Follower {
    /// A follower of `scope` from `from` on; none if that was forgotten.
    fn new(
        store: &Store,
        model: &Model,
        space: usize,
        scope: WatchScope,
        from: u64,
    ) -> Option<Follower> {
        let handle = store.keyspace(SPACES[space]);
        let seen = Revision(from);
        let Ok(watch) = handle.watch_scope(seen, scope.clone()) else {
            assert!(from < model.floor(space), "refused too early");
            return None;
        };
        Some(Follower {
            space,
            watch,
            unscoped: handle.watch(seen).ok(),
            mirror: model.inside(space, &scope, from),
            scope,
            seen,
            began: model.revision(),
        })
    }

    /// Returns whether the follower still follows.
    fn catch_up(&mut self, model: &Model) -> bool {
        let events = match unseen(&mut self.watch) {
            Ok(events) => events,
            Err(expired) => {
                let is_early = match expired.requested.0 < self.began {
                    true => expired.requested.0 >= model.floor(self.space),
                    false => !model.has_forgotten(self.space, &self.scope, expired.requested.0),
                };
                assert!(!is_early, "{:?} expired too early", self.scope);
                return false;
            }
        };
        self.compare(&events);
        events.into_iter().for_each(|event| self.apply(event));
        let expected = model.inside(self.space, &self.scope, model.revision());
        assert_eq!(self.mirror, expected, "a gap or a repeat");
        assert_eq!(self.watch.progress().0, model.revision());
        true
    }

    /// A watch of everything has the same events of the scope.
    fn compare(&mut self, events: &[Event]) {
        let Some(unscoped) = &mut self.unscoped else {
            return;
        };
        let Ok(mut all) = unseen(unscoped) else {
            self.unscoped = None;
            return;
        };
        all.retain(|event| {
            let before = event.previous.iter();
            let mut records = before.chain([&event.record]);
            records.any(|record| is_inside(&self.scope, &record.key, &version(record)))
        });
        assert_eq!(format!("{events:?}"), format!("{all:?}"));
    }

    fn apply(&mut self, event: Event) {
        assert!(event.revision >= self.seen && event.record.revision == event.revision);
        self.seen = event.revision;
        let key = event.record.key.to_string();
        let now = version(&event.record);
        let stays = event.kind == EventKind::Put && is_inside(&self.scope, &key, &now);
        let before = event.previous.map(|before| version(&before));
        let before = before.filter(|before| is_inside(&self.scope, &key, before));
        let previous = match stays {
            true => self.mirror.insert(key, now),
            false => self.mirror.remove(&key),
        };
        assert_eq!(before, previous);
    }
}

/// All events that are there and have not been returned.
fn unseen(watch: &mut Watch) -> Result<Vec<Event>, Expired> {
    let mut all = Vec::new();
    loop {
        match watch.ready()? {
            events if events.is_empty() => return Ok(all),
            events => all.extend(events),
        }
    }
}

fn refusal(error: &WriteError) -> (usize, &'static str) {
    match error {
        WriteError::Exists { write, .. } => (*write, "exists"),
        WriteError::Missing { write } => (*write, "missing"),
        WriteError::Conflict { write, .. } => (*write, "conflict"),
        _ => panic!("{error}"),
    }
}

async fn run(mut rig: Rig, steps: Vec<Step>) {
    let mut model = Model::new();
    let mut followers = Vec::<Follower>::new();
    for step in steps {
        match step {
            Step::Commit(mut entries) => commit(&rig.store, &mut model, &mut entries).await,
            Step::Expire(now) => {
                assert_eq!(rig.store.expire(now).await.unwrap(), model.expire(now))
            }
            Step::Follow(space, number, back) => {
                let from = model.revision().saturating_sub(back);
                followers.extend(Follower::new(
                    &rig.store,
                    &model,
                    space,
                    scope(number),
                    from,
                ));
            }
            Step::CatchUp => followers.retain_mut(|follower| follower.catch_up(&model)),
            Step::LookBack(space, back) => look_back(&rig.store, &model, space, back),
            Step::Retain(space) => {
                let space = rig.store.keyspace(SPACES[space]);
                space.retain(&space.snapshot());
            }
            Step::Reopen => {
                followers.clear();
                rig.reopen().await;
                if rig.dir.is_some() {
                    model.opened = if model.revision() > 1 {
                        model.revision()
                    } else {
                        0
                    };
                }
            }
            Step::Rotate => rig.toy.iter().for_each(|toy| toy.rotate()),
        }
        check_present(&rig.store, &model);
    }
}

async fn commit(store: &Store, model: &mut Model, entries: &mut Vec<Entry>) {
    entries.sort_by_key(|entry| (entry.space, entry.key));
    entries.dedup_by_key(|entry| (entry.space, entry.key));
    model.n_values += 1;
    let writes: Vec<_> = entries
        .iter()
        .map(|entry| entry.write(store, model))
        .collect();
    let expected = model.commit(&writes, entries);
    let outcome = store.commit(writes).await;
    assert_eq!(
        outcome
            .map(|records| records.len())
            .map_err(|error| refusal(&error)),
        expected
    );
}

fn look_back(store: &Store, model: &Model, space: usize, back: u64) {
    let revision = model.revision().saturating_sub(back);
    match store
        .keyspace(SPACES[space])
        .snapshot_at(Revision(revision))
    {
        Ok(snapshot) => {
            assert_eq!(snapshot.at().0, revision);
            check_snapshot(&snapshot, &model.history[revision as usize].spaces[space]);
        }
        Err(expired) => assert!(
            expired.requested.0 < model.floor(space),
            "{expired} is wrong"
        ),
    }
}

fn options() -> Options {
    // Small enough that a run of steps sees events forgotten and logs compacted.
    let window = WindowLimits {
        min_events: 2,
        max_events: MAX_EVENTS,
        bytes: 1 << 20,
        seconds: u64::MAX,
        ..WindowLimits::default()
    };
    Options {
        window,
        compaction_bytes: 600,
        encryptor: None,
        unsafe_no_fsync: false,
    }
}

fn block_on(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(test);
}

proptest! {
    #[test]
    fn the_store_in_memory_behaves_as_the_model(steps in vec(step(), 1..80)) {
        block_on(run(Rig::memory(options()), steps));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn the_store_on_disk_behaves_as_the_model(steps in vec(step(), 1..80)) {
        block_on(run(Rig::disk(options()), steps));
    }

    #[test]
    fn the_encrypted_store_behaves_as_the_model(steps in vec(step(), 1..80)) {
        block_on(run(Rig::encrypted(options()), steps));
    }
}
