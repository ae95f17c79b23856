//! The search for an order of the requests to one key that the model could have carried out.
//!
//! Depth first, as Wing and Gong describe it, with the memory of Lowe: a set of requests that led to the same state before
//! is not tried twice. A request can come next if it was sent before any other that is not yet in the order had
//! its response. Keys are independent of each other, so each is searched alone; `revisions` and `lists` check what
//! connects them.

use std::collections::HashSet;
use std::mem::{Discriminant, discriminant};

use crate::model::ObjectState;
use crate::{Action, Freshness, History, List, Operation, Outcome, Scope, Violation};

/// The client of reads that are items of lists.
const LISTS: usize = usize::MAX;

/// Checks each key.
pub(crate) fn check(history: &History, violations: &mut Vec<Violation>) {
    for key in history.keys() {
        let requests = history.operations.iter().filter(|it| it.key == key);
        let present = |list: &&List| list.freshness == Freshness::MostRecent;
        let lists = history.lists.iter().filter(present);
        let reads: Vec<Operation> = lists.filter_map(|list| read_of(list, key)).collect();
        let operations = requests.chain(&reads).collect();
        if let Err(stuck) = linearize(operations) {
            let lines: Vec<String> = stuck.iter().map(ToString::to_string).collect();
            violations.push(Violation::NotLinearizable {
                key: key.into(),
                stuck: lines.join("\n"),
            });
        }
    }
}

/// A list as a read of one key. None if the list lacks the key, but may do so because its value has another label.
fn read_of(list: &List, key: &str) -> Option<Operation> {
    let outcome = match (list.items.get(key), &list.scope) {
        (Some(found), _) => Outcome::Found(found.clone()),
        (None, Scope::Label(_)) => return None,
        (None, scope) => scope.has(key, "").then_some(Outcome::NotFound)?,
    };
    Some(Operation {
        client: LISTS,
        key: key.into(),
        called: list.called,
        returned: list.returned,
        action: Action::Get,
        outcome,
    })
}

/// Returns the requests that could come next where the longest order ended, if none is complete.
pub(crate) fn linearize(mut operations: Vec<&Operation>) -> Result<(), Vec<&Operation>> {
    operations.sort_by_key(|operation| operation.called);
    let found = operations.iter().filter_map(|it| match &it.outcome {
        Outcome::Found(version) => Some(version.value.as_str()),
        _ => None,
    });
    let mut search = Search {
        found: found.collect(),
        done: Requests::none_of(operations.len()),
        n_due: operations
            .iter()
            .filter(|it| it.deadline() < u64::MAX)
            .count(),
        operations,
        state: ObjectState::default(),
        order: Vec::new(),
        seen: HashSet::new(),
    };
    search.run()
}

struct Search<'a> {
    /// In the order of their calls.
    operations: Vec<&'a Operation>,
    /// The values that reads found.
    found: HashSet<&'a str>,
    /// Those in the order.
    done: Requests,
    /// How many of the others had a response, and so must come into the order.
    n_due: usize,
    state: ObjectState<'a>,
    /// Each request in the order, with its place among the candidates and the state before it.
    order: Vec<(usize, usize, ObjectState<'a>)>,
    seen: HashSet<(Requests, ObjectState<'a>)>,
}

impl<'a> Search<'a> {
    fn run(&mut self) -> Result<(), Vec<&'a Operation>> {
        let (mut longest, mut stuck) = (0, Vec::new());
        let mut from = 0;
        while self.n_due > 0 {
            if self.advance(from) {
                from = 0;
                continue;
            }
            if self.order.len() >= longest {
                longest = self.order.len();
                let candidates = self.candidates().into_iter();
                stuck = candidates.map(|idx| self.operations[idx]).collect();
            }
            let Some((idx, place, state)) = self.order.pop() else {
                return Err(stuck);
            };
            self.done.remove(idx);
            self.n_due += usize::from(self.operations[idx].deadline() < u64::MAX);
            self.state = state;
            from = place + 1;
        }
        Ok(())
    }

    /// Appends to the order the first candidate, from the one at `from` on, that leads to something new.
    fn advance(&mut self, from: usize) -> bool {
        for (place, idx) in self.candidates().into_iter().enumerate().skip(from) {
            let operation = self.operations[idx];
            let Some(next) = self.state.apply(operation) else {
                continue;
            };
            self.done.insert(idx);
            if self.seen.insert((self.done.clone(), next.clone())) {
                let before = std::mem::replace(&mut self.state, next);
                self.order.push((idx, place, before));
                self.n_due -= usize::from(operation.deadline() < u64::MAX);
                return true;
            }
            self.done.remove(idx);
        }
        false
    }

    /// The requests that can come next. Those without a response come last: most have no effect that a client saw, and one
    /// that has is needed only before what shows it.
    fn candidates(&self) -> Vec<usize> {
        let mut first_deadline = u64::MAX;
        let open = (0..self.operations.len()).filter(|&idx| !self.done.contains(idx));
        let next = open.take_while(move |&idx| {
            let operation = self.operations[idx];
            let is_open = operation.called < first_deadline;
            first_deadline = first_deadline.min(operation.deadline());
            is_open
        });
        let has_response = |idx: &usize| self.operations[*idx].outcome != Outcome::Unknown;
        let (mut first, mut last): (Vec<usize>, Vec<usize>) = next.partition(has_response);
        let mut kinds = HashSet::new();
        last.retain(|&idx| self.may_differ(self.operations[idx], &mut kinds));
        first.extend(last);
        first
    }

    /// Whether a request without a response is no copy of one before it. Of those whose value no read found only their
    /// number matters, as each can take effect at any time once it was sent: the first one stands for all of its kind.
    fn may_differ(&self, operation: &Operation, kinds: &mut HashSet<UnseenKind>) -> bool {
        let is_found = |value: &String| self.found.contains(value.as_str());
        let (value, expected) = match &operation.action {
            Action::Create { value } => (Some(value), None),
            Action::Update { value, expected } => (Some(value), *expected),
            Action::Delete { expected } => (None, *expected),
            // It changes nothing.
            Action::Get => return false,
        };
        value.is_some_and(is_found) || kinds.insert((discriminant(&operation.action), expected))
    }
}

/// Requests of a kind do the same to an object, but for a value that no read finds.
type UnseenKind = (Discriminant<Action>, Option<u64>);

/// A set of requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Requests(Box<[u64]>);

impl Requests {
    fn none_of(n_requests: usize) -> Requests {
        Requests(vec![0; n_requests.div_ceil(64)].into())
    }

    fn contains(&self, idx: usize) -> bool {
        self.0[idx / 64] >> (idx % 64) & 1 == 1
    }

    fn insert(&mut self, idx: usize) {
        self.0[idx / 64] |= 1 << (idx % 64);
    }

    fn remove(&mut self, idx: usize) {
        self.0[idx / 64] &= !(1 << (idx % 64));
    }
}
