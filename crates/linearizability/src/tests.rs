//! Histories that are accepted and rejected.

use std::collections::BTreeMap;

use crate::model::ObjectState;
use crate::search::linearize;
use crate::{
    Action, EventKind, Freshness, History, List, Operation, Outcome, Read, Scope, Version,
    Violation, Watch, WatchEvent, check,
};

fn version(revision: u64, value: &str) -> Version {
    Version {
        revision,
        value: value.into(),
    }
}

fn create(value: &str) -> Action {
    Action::Create {
        value: value.into(),
    }
}

fn update(value: &str, expected: Option<u64>) -> Action {
    Action::Update {
        value: value.into(),
        expected,
    }
}

const DELETE: Action = Action::Delete { expected: None };

fn stored(revision: u64) -> Outcome {
    Outcome::Stored { revision }
}

fn found(revision: u64, value: &str) -> Outcome {
    Outcome::Found(version(revision, value))
}

/// A request to the key `a`.
fn request(called: u64, returned: u64, action: Action, outcome: Outcome) -> Operation {
    request_to("a", called, returned, action, outcome)
}

fn request_to(
    key: &str,
    called: u64,
    returned: u64,
    action: Action,
    outcome: Outcome,
) -> Operation {
    Operation {
        client: 0,
        key: key.into(),
        called,
        returned,
        action,
        outcome,
    }
}

fn history(operations: Vec<Operation>) -> History {
    History {
        operations,
        ..History::default()
    }
}

#[track_caller]
fn accept(history: &History) {
    assert_eq!(check(history), []);
}

/// Expects that the message of one violation contains `text`.
#[track_caller]
fn reject(history: &History, text: &str) {
    let violations: Vec<String> = check(history).iter().map(Violation::to_string).collect();
    let is_found = violations.iter().any(|violation| violation.contains(text));
    assert!(is_found, "no {text:?} in {violations:?}");
}

#[track_caller]
fn accept_requests(operations: Vec<Operation>) {
    accept(&history(operations));
}

#[track_caller]
fn reject_requests(operations: Vec<Operation>) {
    reject(&history(operations), "not linearizable");
}

#[test]
fn one_client_reads_what_it_wrote() {
    accept_requests(vec![
        request(1, 2, create("x"), stored(5)),
        request(3, 4, Action::Get, found(5, "x")),
        request(5, 6, update("y", Some(5)), stored(6)),
        request(7, 8, update("z", Some(5)), Outcome::Conflict),
        request(9, 10, create("w"), Outcome::AlreadyExists),
        request(11, 12, DELETE, Outcome::Deleted),
        request(13, 14, DELETE, Outcome::NotFound),
        request(15, 16, create("v"), stored(9)),
    ]);
}

#[test]
fn a_stale_read_is_rejected() {
    let writes = [
        request(1, 2, create("x"), stored(5)),
        request(3, 4, update("y", None), stored(6)),
    ];
    let read = |called, outcome| request(called, 9, Action::Get, outcome);
    let with = |read| [writes.to_vec(), vec![read]].concat();
    reject_requests(with(read(5, found(5, "x"))));
    accept_requests(with(read(5, found(6, "y"))));
    // A read during the write may see either.
    accept_requests(with(read(3, found(5, "x"))));
    accept_requests(with(read(3, found(6, "y"))));
}

#[test]
fn reads_do_not_go_back_in_time() {
    let write = [
        request(1, 2, create("x"), stored(5)),
        request(3, 20, update("y", None), stored(6)),
    ];
    let reads = |first, second| {
        let reads = vec![
            request(4, 5, Action::Get, first),
            request(6, 7, Action::Get, second),
        ];
        [write.to_vec(), reads].concat()
    };
    accept_requests(reads(found(5, "x"), found(6, "y")));
    reject_requests(reads(found(6, "y"), found(5, "x")));
}

#[test]
fn a_lost_acknowledged_write_is_rejected() {
    reject_requests(vec![
        request(1, 2, create("x"), stored(5)),
        request(3, 4, Action::Get, Outcome::NotFound),
    ]);
}

#[test]
fn a_refused_write_leaves_no_trace() {
    let refused = request(1, 2, create("x"), Outcome::Refused);
    let read = |outcome| request(3, 4, Action::Get, outcome);
    accept_requests(vec![refused.clone(), read(Outcome::NotFound)]);
    reject_requests(vec![refused, read(found(5, "x"))]);
}

#[test]
fn a_write_without_a_response_may_have_happened_or_not_or_happen_later() {
    let unknown = request(1, 2, create("x"), Outcome::Unknown);
    let read = |called, outcome| request(called, called + 1, Action::Get, outcome);
    accept_requests(vec![unknown.clone(), read(3, Outcome::NotFound)]);
    accept_requests(vec![unknown.clone(), read(3, found(5, "x"))]);
    let (before, after) = (read(3, Outcome::NotFound), read(5, found(5, "x")));
    accept_requests(vec![unknown.clone(), before, after]);
    let (before, after) = (read(3, found(5, "x")), read(5, Outcome::NotFound));
    reject_requests(vec![unknown, before, after]);
}

#[test]
fn a_write_without_a_response_has_one_revision() {
    let write = request(1, 2, create("x"), Outcome::Unknown);
    let read = |called, revision| request(called, called + 1, Action::Get, found(revision, "x"));
    accept_requests(vec![write.clone(), read(3, 5), read(5, 5)]);
    reject_requests(vec![write, read(3, 5), read(5, 6)]);
}

#[test]
fn two_creates_and_two_updates_of_one_revision_do_not_both_succeed() {
    reject_requests(vec![
        request(1, 3, create("x"), stored(5)),
        request(2, 4, create("y"), stored(6)),
    ]);
    reject_requests(vec![
        request(1, 2, create("x"), stored(5)),
        request(3, 5, update("y", Some(5)), stored(6)),
        request(4, 6, update("z", Some(5)), stored(7)),
    ]);
}

#[test]
fn a_conflict_needs_a_cause() {
    let write = request(1, 2, create("x"), stored(5));
    let conflict = |expected| request(3, 4, update("y", Some(expected)), Outcome::Conflict);
    accept_requests(vec![write.clone(), conflict(4)]);
    reject_requests(vec![write, conflict(5)]);
}

#[test]
fn revisions_of_a_key_grow() {
    reject_requests(vec![
        request(1, 2, create("x"), stored(5)),
        request(3, 4, update("y", None), stored(4)),
    ]);
}

#[test]
fn revisions_grow_over_all_keys() {
    let writes = |revisions: [u64; 2]| {
        history(vec![
            request_to("a", 1, 2, create("x"), stored(revisions[0])),
            request_to("b", 3, 4, create("y"), stored(revisions[1])),
        ])
    };
    accept(&writes([5, 6]));
    reject(&writes([6, 5]), "after 6 was seen");
    reject(&writes([5, 5]), r#"("a", Some("x")) and ("b", Some("y"))"#);
}

/// `a` is written at 5 and 7, `b` at 6 and 8.
fn two_keys() -> History {
    history(vec![
        request_to("a", 1, 2, create("a5"), stored(5)),
        request_to("b", 3, 4, create("b6"), stored(6)),
        request_to("a", 5, 20, update("a7", None), stored(7)),
        request_to("b", 6, 21, update("b8", None), stored(8)),
    ])
}

fn items(items: &[(&str, u64)]) -> BTreeMap<String, Version> {
    let version = |key: &str, revision| version(revision, &format!("{key}{revision}"));
    let items = items
        .iter()
        .map(|&(key, revision)| (key.into(), version(key, revision)));
    items.collect()
}

fn listed(revision: u64, freshness: Freshness, content: &[(&str, u64)]) -> History {
    let mut history = two_keys();
    history.lists.push(List {
        scope: Scope::All,
        called: 7,
        returned: 8,
        freshness,
        revision,
        items: items(content),
    });
    history
}

#[test]
fn a_list_shows_one_revision() {
    let recent = Freshness::MostRecent;
    accept(&listed(6, recent, &[("a", 5), ("b", 6)]));
    accept(&listed(7, recent, &[("a", 7), ("b", 6)]));
    accept(&listed(8, recent, &[("a", 7), ("b", 8)]));
    reject(&listed(8, recent, &[("a", 5), ("b", 8)]), "7 came after it");
    reject(
        &listed(7, recent, &[("a", 7), ("b", 8)]),
        "newer than the list",
    );
    reject(&listed(6, recent, &[("a", 5)]), "6 is not in the list");
}

#[test]
fn a_list_of_the_present_is_not_stale_and_one_of_the_past_may_be() {
    let past = Freshness::Exact(5);
    reject(
        &listed(5, Freshness::MostRecent, &[("a", 5)]),
        "after 6 was seen",
    );
    accept(&listed(5, past, &[("a", 5)]));
    reject(&listed(6, past, &[("a", 5), ("b", 6)]), "5 was requested");
}

/// An empty list of the past at `revision`, after `operations`.
fn empty_list(revision: u64, operations: Vec<Operation>) -> History {
    let mut history = history(operations);
    history.lists.push(List {
        scope: Scope::All,
        called: 20,
        returned: 21,
        freshness: Freshness::Exact(revision),
        revision,
        items: BTreeMap::new(),
    });
    history
}

#[test]
fn a_delete_explains_what_a_list_lacks_only_if_it_may_lie_between_them() {
    let delete = |called, expected, outcome| {
        request(called, called + 1, Action::Delete { expected }, outcome)
    };
    let put = |called, value, outcome| request(called, called + 1, create(value), outcome);
    let first = || put(1, "a5", stored(5));
    let other = || request_to("b", 9, 10, create("b8"), stored(8));
    let lost = "is not in the list";
    for outcome in [Outcome::Deleted, Outcome::Unknown] {
        let delete = |called| delete(called, None, outcome.clone());
        // Between the put and the revision of the list.
        accept(&empty_list(7, vec![first(), delete(3), other()]));
        // The list shows the put itself.
        reject(&empty_list(5, vec![first(), delete(3)]), lost);
        // It was sent when a later revision than that of the list had been seen.
        reject(&empty_list(7, vec![first(), other(), delete(11)]), lost);
    }
    // The put came after it.
    let earlier = delete(3, None, Outcome::Deleted);
    let again = put(5, "a7", stored(7));
    reject(&empty_list(9, vec![first(), earlier.clone(), again]), lost);
    // The response of the put was lost, but not that of a read.
    let unseen = put(5, "a7", Outcome::Unknown);
    let read = request(7, 8, Action::Get, found(7, "a7"));
    let operations = |delete| vec![first(), delete, unseen.clone(), read.clone()];
    reject(&empty_list(9, operations(earlier)), lost);
    // It had no response, so that it may have come later. (Another one deleted the first version.)
    let pending = delete(4, None, Outcome::Unknown);
    let both = [operations(delete(3, None, Outcome::Unknown)), vec![pending]].concat();
    accept(&empty_list(9, both));
    // It was to delete another version.
    let other_version = delete(3, Some(4), Outcome::Unknown);
    reject(&empty_list(9, vec![first(), other_version]), lost);
    let same_version = delete(3, Some(5), Outcome::Unknown);
    accept(&empty_list(9, vec![first(), same_version]));
}

fn event(kind: EventKind, key: &str, revision: u64) -> WatchEvent {
    let version = version(revision, &format!("{key}{revision}"));
    WatchEvent {
        kind,
        key: key.into(),
        version,
    }
}

fn watched(events: Vec<WatchEvent>, end: u64) -> History {
    let mut history = two_keys();
    history.watches.push(Watch {
        scope: Scope::All,
        watcher: 0,
        start: 5,
        items: items(&[("a", 5)]),
        events,
        end,
    });
    history
}

#[test]
fn a_watch_delivers_every_change_once_and_in_order() {
    use EventKind::{Added, Modified};
    let (b6, a7, b8) = (
        event(Added, "b", 6),
        event(Modified, "a", 7),
        event(Modified, "b", 8),
    );
    let all = vec![b6.clone(), a7.clone(), b8.clone()];
    accept(&watched(all, 8));
    accept(&watched(vec![b6.clone()], 6));
    reject(&watched(vec![b6.clone()], 7), "was not delivered");
    reject(
        &watched(vec![b6.clone(), b8.clone()], 8),
        "was not delivered",
    );
    reject(
        &watched(vec![b6.clone(), a7.clone(), a7.clone()], 7),
        "it came after 7",
    );
    reject(&watched(vec![a7, b6.clone()], 7), "it came after 7");
    reject(&watched(vec![b8], 5), "after None");
    let phantom = vec![b6, event(Modified, "a", 9)];
    reject(&watched(phantom, 6), "no request wrote");
}

#[test]
fn a_delete_that_a_watch_does_not_deliver_is_found_by_a_list() {
    let mut history = history(vec![
        request(1, 2, create("a5"), stored(5)),
        request(3, 4, DELETE, Outcome::Deleted),
    ]);
    history.watches.push(Watch {
        scope: Scope::All,
        watcher: 0,
        start: 4,
        items: BTreeMap::new(),
        events: vec![event(EventKind::Added, "a", 5)],
        end: 6,
    });
    accept(&history);
    history.lists.push(List {
        scope: Scope::All,
        called: 5,
        returned: 6,
        freshness: Freshness::MostRecent,
        revision: 6,
        items: BTreeMap::new(),
    });
    reject(&history, "the events lead to");
    let mut deleted = event(EventKind::Deleted, "a", 6);
    deleted.version.value = "a5".into();
    history.watches[0].events.push(deleted);
    accept(&history);
}

/// `a` is red, blue, red again and then deleted, and `b` is blue.
fn colours() -> History {
    history(vec![
        request(1, 2, create("red/1"), stored(5)),
        request(3, 4, update("blue/2", None), stored(6)),
        request(5, 6, update("red/3", None), stored(7)),
        request(7, 8, DELETE, Outcome::Deleted),
        request_to("b", 9, 10, create("blue/4"), stored(9)),
    ])
}

fn red() -> Scope {
    Scope::Label("red".into())
}

fn event_of(kind: EventKind, key: &str, revision: u64, value: &str) -> WatchEvent {
    WatchEvent {
        version: version(revision, value),
        ..event(kind, key, revision)
    }
}

#[test]
fn a_watch_delivers_what_enters_and_leaves_its_scope() {
    use EventKind::{Added, Deleted};
    let watched = |scope: Scope, events: &[WatchEvent]| {
        let mut history = colours();
        history.watches.push(Watch {
            scope,
            watcher: 0,
            start: 4,
            items: BTreeMap::new(),
            events: events.to_vec(),
            end: 9,
        });
        history
    };
    let reds = [
        event_of(Added, "a", 5, "red/1"),
        event_of(Deleted, "a", 6, "red/1"),
        event_of(Added, "a", 7, "red/3"),
        event_of(Deleted, "a", 8, "red/3"),
    ];
    accept(&watched(red(), &reds));
    for lost in 0..3 {
        let mut events = reds.to_vec();
        events.remove(lost);
        reject(&watched(red(), &events), "was not delivered");
    }
    let mut foreign = reds.to_vec();
    foreign.push(event_of(Added, "b", 9, "blue/4"));
    reject(&watched(red(), &foreign), "is not in the scope");
    let mut early = reds.to_vec();
    early[2].kind = Deleted;
    reject(&watched(red(), &early), "was deleted, and is in the scope");

    let b = event_of(Added, "b", 9, "blue/4");
    let key = || Scope::Key("b".into());
    accept(&watched(key(), std::slice::from_ref(&b)));
    reject(&watched(key(), &[]), "was not delivered");
    reject(
        &watched(key(), &[reds[0].clone(), b]),
        "is not in the scope",
    );
}

#[test]
fn a_list_shows_its_scope() {
    let listed = |scope: Scope, revision: u64, items: &[(&str, u64, &str)]| {
        let mut history = colours();
        let items = items
            .iter()
            .map(|&(key, revision, value)| (key.into(), version(revision, value)));
        history.lists.push(List {
            scope,
            called: 11,
            returned: 12,
            freshness: Freshness::Exact(revision),
            revision,
            items: items.collect(),
        });
        history
    };
    accept(&listed(red(), 5, &[("a", 5, "red/1")]));
    accept(&listed(red(), 6, &[]));
    accept(&listed(red(), 9, &[]));
    reject(&listed(red(), 6, &[("a", 6, "blue/2")]), "is not in Label");
    reject(&listed(red(), 7, &[]), "7 is not in the list");
    let key = || Scope::Key("b".into());
    accept(&listed(key(), 9, &[("b", 9, "blue/4")]));
    reject(&listed(key(), 9, &[]), "9 is not in the list");
    // A write without a response may have changed the label.
    let mut history = listed(red(), 8, &[]);
    history.operations.truncate(1);
    reject(&history, "5 is not in the list");
    let unseen = request(3, 4, update("blue/2", None), Outcome::Unknown);
    history.operations.push(unseen);
    accept(&history);
    history.operations[1] = request(3, 4, update("red/2", None), Outcome::Unknown);
    reject(&history, "5 is not in the list");
    // Lists of the present are reads of what they show, and of a key that is their scope.
    let mut present = listed(key(), 10, &[]);
    present.lists[0].freshness = Freshness::MostRecent;
    reject(&present, "not linearizable");
    present.lists[0].scope = red();
    accept(&present);
}

#[test]
fn a_list_is_not_older_than_it_is_requested_and_may_be_older_than_the_present() {
    let requested = |revision| listed(6, Freshness::NotOlderThan(revision), &[("a", 5), ("b", 6)]);
    accept(&requested(5));
    accept(&requested(6));
    reject(&requested(7), "7 was requested");
    let mut late = requested(6);
    (late.lists[0].called, late.lists[0].returned) = (30, 31);
    accept(&late);
    late.lists[0].freshness = Freshness::MostRecent;
    reject(&late, "after 8 was seen");
}

/// Requests without a response stay candidates for good. A search that carries each of them out as early as it fits
/// has to take back all of them in every order when a read finds one of them at last.
#[test]
fn many_requests_without_a_response_are_searched_in_time() {
    let n = 60;
    let mut operations = Vec::new();
    for number in 0..n {
        let called = 10 * number + 1;
        let value = |prefix: &str| format!("{prefix}{number}");
        let lost = update(&value("lost"), None);
        operations.push(request(called, called + 1, lost, Outcome::Unknown));
        let action = match number {
            0 => create("kept0"),
            _ => update(&value("kept"), None),
        };
        operations.push(request(
            called + 2,
            called + 3,
            action,
            stored(2 * number + 5),
        ));
    }
    let end = 10 * n;
    // The first one took effect last.
    operations.push(request(
        end + 1,
        end + 2,
        Action::Get,
        found(2 * n + 5, "lost0"),
    ));
    accept(&history(operations.clone()));
    operations.push(request(
        end + 3,
        end + 4,
        Action::Get,
        found(2 * n + 3, "kept59"),
    ));
    reject(&history(operations), "not linearizable");
}

#[test]
fn a_read_from_a_cache_is_not_older_than_it_is_requested() {
    // `a` is put by 5, deleted, and put by 9.
    let mut written = history(vec![
        request(1, 2, create("1"), stored(5)),
        request(3, 4, DELETE, Outcome::Deleted),
        request(5, 6, create("2"), stored(9)),
    ]);
    let mut read = |not_older_than, found: Option<Version>| {
        written.reads = vec![Read {
            key: "a".into(),
            returned: 8,
            not_older_than,
            found,
        }];
        written.clone()
    };
    let (first, second) = (version(5, "1"), version(9, "2"));
    accept(&read(4, None));
    accept(&read(5, Some(first.clone())));
    // The delete is between 5 and 9, wherever that is.
    accept(&read(8, Some(first.clone())));
    accept(&read(5, None));
    reject(&read(9, Some(first)), "5 was found, 9 came after it");
    accept(&read(5, Some(second.clone())));
    accept(&read(9, Some(second.clone())));
    reject(&read(9, None), "9 was not found");
    let mut early = read(5, Some(second));
    early.reads[0].returned = 5;
    reject(&early, "9 was found before it was written");
    let mut never = read(5, None);
    never.operations.remove(1);
    never.operations[1].action = update("2", None);
    reject(&never, "5 was not found");
}

/// Numbers from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// A few requests with arbitrary outcomes.
fn arbitrary(random: &mut Random) -> Vec<Operation> {
    let n_requests = 2 + random.below(4);
    let mut revision = 0;
    let requests = (0..n_requests).map(|n| {
        let called = random.below(12);
        let mut revision = || {
            revision += random.below(2);
            revision
        };
        let (action, outcomes) = match n % 4 {
            0 => (
                create(&n.to_string()),
                vec![stored(revision()), Outcome::AlreadyExists],
            ),
            1 => {
                let expected = Some(revision()).filter(|&it| it > 0);
                let outcomes = vec![stored(revision() + 1), Outcome::Conflict, Outcome::NotFound];
                (update(&n.to_string(), expected), outcomes)
            }
            2 => (DELETE, vec![Outcome::Deleted, Outcome::NotFound]),
            _ => {
                let written = (n - 3).to_string();
                (
                    Action::Get,
                    vec![found(revision(), &written), Outcome::NotFound],
                )
            }
        };
        let outcome = match random.below(5) {
            0 => Outcome::Unknown,
            _ => outcomes[random.below(outcomes.len() as u64) as usize].clone(),
        };
        request(called, called + 1 + random.below(12), action, outcome)
    });
    requests.collect()
}

/// Tries all orders, without a memory and without a rule which request can come next.
fn is_linearizable(operations: &[&Operation], state: &ObjectState<'_>) -> bool {
    if operations.iter().all(|it| it.outcome == Outcome::Unknown) {
        return true;
    }
    (0..operations.len()).any(|idx| {
        let mut rest = operations.to_vec();
        let next = rest.remove(idx);
        let is_first = rest.iter().all(|other| other.deadline() > next.called);
        let follows = || {
            state
                .apply(next)
                .is_some_and(|state| is_linearizable(&rest, &state))
        };
        is_first && follows()
    })
}

#[test]
fn the_search_agrees_with_trying_all_orders() {
    let mut n_accepted = 0;
    for seed in 0..20_000 {
        let operations = arbitrary(&mut Random(seed));
        let operations: Vec<&Operation> = operations.iter().collect();
        let expected = is_linearizable(&operations, &ObjectState::default());
        let found = linearize(operations.clone()).is_ok();
        assert_eq!(found, expected, "seed {seed}: {operations:#?}");
        n_accepted += usize::from(found);
    }
    assert!(
        (1000..19_000).contains(&n_accepted),
        "{n_accepted} were accepted"
    );
}

#[test]
fn a_long_history_with_lost_responses_is_checked_in_time() {
    let mut operations = vec![request(0, 1, create("0"), stored(1))];
    for n in 1..2000_u64 {
        let at = n * 10;
        let lost = n.is_multiple_of(40);
        let outcome = if lost {
            Outcome::Unknown
        } else {
            stored(n + 1)
        };
        operations.push(request(at, at + 25, update(&n.to_string(), None), outcome));
    }
    let last = found(2000, "1999");
    operations.push(request(30_000, 30_001, Action::Get, last));
    accept_requests(operations);
}
