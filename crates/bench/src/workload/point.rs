//! One object at a time: create, get, update, patch, apply, delete.

use std::sync::Arc;

use crate::client::{Call, CallError};
use crate::load::{Load, Operation, Worker, WorkloadError, drive};
use crate::objects::{Collection, scramble, set_turn};
use crate::report::Outcome;
use crate::session::Session;

/// Operations per client before the clock starts.
const WARM_UP: u64 = 10;

/// Fills the collection: all objects, whatever the budget.
pub(super) async fn create(
    session: &Session,
    collection: &Collection,
    name: String,
) -> Result<Outcome, WorkloadError> {
    create_range(session, collection, name, 0, n_objects(session, collection)).await
}

/// Creates the objects numbered from `first` up to, not including, `end`.
pub(super) async fn create_range(
    session: &Session,
    collection: &Collection,
    name: String,
    first: u64,
    end: u64,
) -> Result<Outcome, WorkloadError> {
    drive(
        session,
        Load::range(name, session.options.clients, first, end),
        Create(collection.clone()),
    )
    .await
}

pub(super) async fn get(
    session: &Session,
    collection: &Collection,
    name: String,
) -> Result<Outcome, WorkloadError> {
    get_among(session, collection, name, n_objects(session, collection)).await
}

/// Reads objects at random, all of them below `n_objects`.
pub(super) async fn get_among(
    session: &Session,
    collection: &Collection,
    name: String,
    n_objects: u64,
) -> Result<Outcome, WorkloadError> {
    let operation = Get {
        collection: collection.clone(),
        n_objects,
    };
    drive(session, warm(session, name), operation).await
}

pub(super) async fn update(
    session: &Arc<Session>,
    collection: &Collection,
    name: String,
) -> Result<Outcome, WorkloadError> {
    let operation = Update {
        session: session.clone(),
        collection: collection.clone(),
    };
    drive(session, exclusive(session, collection, name), operation).await
}

pub(super) async fn patch(
    session: &Arc<Session>,
    collection: &Collection,
    name: String,
) -> Result<Outcome, WorkloadError> {
    let operation = Patch {
        session: session.clone(),
        collection: collection.clone(),
    };
    drive(session, exclusive(session, collection, name), operation).await
}

/// Gives one of many containers another image.
pub(super) async fn strategic_patch(
    session: &Arc<Session>,
    collection: &Collection,
    name: String,
) -> Result<Outcome, WorkloadError> {
    let operation = Change {
        session: session.clone(),
        collection: collection.clone(),
        call: Collection::strategic_patch,
    };
    drive(session, exclusive(session, collection, name), operation).await
}

/// Applies whole objects that have a new turn.
pub(super) async fn apply(
    session: &Arc<Session>,
    collection: &Collection,
    name: String,
) -> Result<Outcome, WorkloadError> {
    let operation = Change {
        session: session.clone(),
        collection: collection.clone(),
        call: Collection::application,
    };
    drive(session, exclusive(session, collection, name), operation).await
}

/// Each object at most once, so at most all of them.
pub(super) async fn delete(
    session: &Session,
    collection: &Collection,
    name: String,
) -> Result<Outcome, WorkloadError> {
    let end = n_objects(session, collection);
    let load = Load {
        end,
        ..Load::new(session, name, session.options.clients)
    };
    drive(session, load, Delete(collection.clone())).await
}

fn n_objects(session: &Session, collection: &Collection) -> u64 {
    collection.kind.n_objects(session.options.objects)
}

fn warm(session: &Session, name: String) -> Load {
    let clients = session.options.clients;
    Load {
        warm_up: WARM_UP * clients as u64,
        ..Load::new(session, name, clients)
    }
}

/// Never more clients than objects, so that no two write the same one at once.
fn exclusive(session: &Session, collection: &Collection, name: String) -> Load {
    let clients = session
        .options
        .clients
        .min(n_objects(session, collection) as usize);
    Load {
        clients,
        ..warm(session, name)
    }
}

/// All objects in turn, but not in the order of their names.
///
/// Invariant: as long as the prime does not divide `n_objects`, any `n_objects` turns in a row are different objects.
fn scatter(turn: u64, n_objects: u64) -> u64 {
    const PRIME: u64 = 2_654_435_761;
    (turn % n_objects) * PRIME % n_objects
}

struct Create(Collection);

impl Operation for Create {
    async fn perform(&self, worker: &mut Worker, turn: u64) -> Result<u64, CallError> {
        Ok(worker.connection.count(&self.0.creation(turn)).await?.bytes)
    }
}

struct Get {
    collection: Collection,
    n_objects: u64,
}

impl Operation for Get {
    async fn perform(&self, worker: &mut Worker, turn: u64) -> Result<u64, CallError> {
        let call = Call::get(self.collection.item(scramble(turn) % self.n_objects));
        Ok(worker.connection.count(&call).await?.bytes)
    }
}

struct Update {
    session: Arc<Session>,
    collection: Collection,
}

impl Operation for Update {
    async fn perform(&self, worker: &mut Worker, turn: u64) -> Result<u64, CallError> {
        let path = self
            .collection
            .item(scatter(turn, n_objects(&self.session, &self.collection)));
        let get = Call::get(&path);
        let mut object = worker.connection.fetch(&get).await?.to_vec();
        let n_read = object.len() as u64;
        set_turn(&mut object, self.session.next_turn())
            .ok_or_else(|| get.unexpected("the object lost its turn"))?;
        Ok(n_read
            + worker
                .connection
                .count(&Call::put(path, object))
                .await?
                .bytes)
    }
}

struct Patch {
    session: Arc<Session>,
    collection: Collection,
}

impl Operation for Patch {
    async fn perform(&self, worker: &mut Worker, turn: u64) -> Result<u64, CallError> {
        let path = self
            .collection
            .item(scatter(turn, n_objects(&self.session, &self.collection)));
        let patch = self.collection.patch(self.session.next_turn());
        Ok(worker
            .connection
            .count(&Call::merge_patch(path, patch))
            .await?
            .bytes)
    }
}

/// A call that changes the object of a number, different at each turn.
struct Change {
    session: Arc<Session>,
    collection: Collection,
    call: fn(&Collection, u64, u64) -> Call,
}

impl Operation for Change {
    async fn perform(&self, worker: &mut Worker, turn: u64) -> Result<u64, CallError> {
        let n = scatter(turn, n_objects(&self.session, &self.collection));
        let call = (self.call)(&self.collection, n, self.session.next_turn());
        Ok(worker.connection.count(&call).await?.bytes)
    }
}

struct Delete(Collection);

impl Operation for Delete {
    async fn perform(&self, worker: &mut Worker, turn: u64) -> Result<u64, CallError> {
        Ok(worker
            .connection
            .count(&Call::delete(self.0.item(turn)))
            .await?
            .bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn scattered_turns_meet_every_object_once() {
        for n_objects in [1, 7, 100, 10_000] {
            let met: BTreeSet<u64> = (5..5 + n_objects)
                .map(|turn| scatter(turn, n_objects))
                .collect();
            assert_eq!(met.len() as u64, n_objects);
        }
    }
}
