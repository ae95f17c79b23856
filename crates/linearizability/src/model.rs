//! One object, handled by one server, one request at a time.

use crate::{Action, Operation, Outcome};

/// The state of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ObjectState<'a> {
    /// The latest revision that is known to have changed the key. Later ones are larger.
    floor: u64,
    live: Option<LiveObject<'a>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct LiveObject<'a> {
    /// Unknown if its write had no response and no read has shown it yet.
    revision: Option<u64>,
    value: &'a str,
}

impl<'a> ObjectState<'a> {
    /// The state after `operation`, if it can be carried out here with its outcome. `None` for a request without a response
    /// that would change nothing here, too: it need not be carried out.
    pub(crate) fn apply(&self, operation: &'a Operation) -> Option<ObjectState<'a>> {
        use Outcome::*;
        match (&operation.action, &operation.outcome) {
            (_, Refused) => Some(self.clone()),
            (Action::Create { value }, Stored { revision }) => match self.live {
                None => self.store(*revision, value),
                Some(_) => None,
            },
            (Action::Create { value }, Unknown) => match self.live {
                None => Some(self.store_unseen(value)),
                Some(_) => None,
            },
            (Action::Create { .. }, AlreadyExists) => self.live.is_some().then(|| self.clone()),
            (Action::Update { value, expected }, Stored { revision }) => {
                self.meet(*expected)?.store(*revision, value)
            }
            (Action::Update { value, expected }, Unknown) => {
                Some(self.meet(*expected)?.store_unseen(value))
            }
            (Action::Delete { expected }, Deleted | Unknown) => Some(ObjectState {
                live: None,
                ..self.meet(*expected)?
            }),
            (Action::Update { expected, .. } | Action::Delete { expected }, Conflict) => {
                let (live, expected) = (self.live.as_ref()?, (*expected)?);
                (live.revision != Some(expected)).then(|| self.clone())
            }
            (Action::Get, Found(version)) => {
                let live = self.live.as_ref()?;
                let state = self.meet(Some(version.revision))?;
                (live.value == version.value).then_some(state)
            }
            (Action::Get, Unknown) => Some(self.clone()),
            (Action::Get | Action::Update { .. } | Action::Delete { .. }, NotFound) => {
                self.live.is_none().then(|| self.clone())
            }
            _ => None,
        }
    }

    /// The state if there is an object, and the revision `expected` wrote it.
    fn meet(&self, expected: Option<u64>) -> Option<ObjectState<'a>> {
        let live = self.live.as_ref()?;
        let Some(expected) = expected else {
            return Some(self.clone());
        };
        let fits = match live.revision {
            Some(revision) => revision == expected,
            None => expected > self.floor,
        };
        fits.then_some(ObjectState {
            floor: expected,
            live: Some(LiveObject {
                revision: Some(expected),
                value: live.value,
            }),
        })
    }

    fn store(&self, revision: u64, value: &'a str) -> Option<ObjectState<'a>> {
        (revision > self.floor).then_some(ObjectState {
            floor: revision,
            live: Some(LiveObject {
                revision: Some(revision),
                value,
            }),
        })
    }

    fn store_unseen(&self, value: &'a str) -> ObjectState<'a> {
        ObjectState {
            floor: self.floor,
            live: Some(LiveObject {
                revision: None,
                value,
            }),
        }
    }
}
