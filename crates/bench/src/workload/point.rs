//! One object at a time: create, get, update, patch, apply, delete.

use std::sync::Arc;

use crate::client::{ApiCall, ApiCallError};
use crate::load::{BenchOperation, LoadClient, LoadSpec, WorkloadError, drive};
use crate::objects::{Collection, scramble, set_turn};
use crate::report::WorkloadOutcome;
use crate::session::Session;

/// Operations per client before the measurement.
const WARM_UP: u64 = 10;

/// Creates all objects of the collection, regardless of the budget.
pub(super) async fn create(
    session: &Session,
    collection: &Collection,
    name: String,
) -> Result<WorkloadOutcome, WorkloadError> {
    create_range(session, collection, name, 0, n_objects(session, collection)).await
}

/// Creates the objects numbered from `first` up to, not including, `end`.
pub(super) async fn create_range(
    session: &Session,
    collection: &Collection,
    name: String,
    first: u64,
    end: u64,
) -> Result<WorkloadOutcome, WorkloadError> {
    drive(
        session,
        LoadSpec::range(name, session.options.clients, first, end),
        CreateObject(collection.clone()),
    )
    .await
}

pub(super) async fn get(
    session: &Session,
    collection: &Collection,
    name: String,
) -> Result<WorkloadOutcome, WorkloadError> {
    get_among(session, collection, name, n_objects(session, collection)).await
}

/// Gets random objects of the first `n_objects`.
pub(super) async fn get_among(
    session: &Session,
    collection: &Collection,
    name: String,
    n_objects: u64,
) -> Result<WorkloadOutcome, WorkloadError> {
    let operation = GetObject {
        collection: collection.clone(),
        n_objects,
    };
    drive(session, warm_load(session, name), operation).await
}

pub(super) async fn update(
    session: &Arc<Session>,
    collection: &Collection,
    name: String,
) -> Result<WorkloadOutcome, WorkloadError> {
    let operation = UpdateObject {
        session: session.clone(),
        collection: collection.clone(),
    };
    drive(
        session,
        exclusive_load(session, collection, name),
        operation,
    )
    .await
}

pub(super) async fn patch(
    session: &Arc<Session>,
    collection: &Collection,
    name: String,
) -> Result<WorkloadOutcome, WorkloadError> {
    let operation = ChangeObject {
        session: session.clone(),
        collection: collection.clone(),
        call: Collection::merge_patch,
    };
    drive(
        session,
        exclusive_load(session, collection, name),
        operation,
    )
    .await
}

/// Changes the image of one of many containers.
pub(super) async fn strategic_patch(
    session: &Arc<Session>,
    collection: &Collection,
    name: String,
) -> Result<WorkloadOutcome, WorkloadError> {
    let operation = ChangeObject {
        session: session.clone(),
        collection: collection.clone(),
        call: Collection::strategic_patch,
    };
    drive(
        session,
        exclusive_load(session, collection, name),
        operation,
    )
    .await
}

/// Applies whole objects with a new turn.
pub(super) async fn apply(
    session: &Arc<Session>,
    collection: &Collection,
    name: String,
) -> Result<WorkloadOutcome, WorkloadError> {
    let operation = ChangeObject {
        session: session.clone(),
        collection: collection.clone(),
        call: Collection::apply,
    };
    drive(
        session,
        exclusive_load(session, collection, name),
        operation,
    )
    .await
}

/// Deletes each object once.
pub(super) async fn delete(
    session: &Session,
    collection: &Collection,
    name: String,
) -> Result<WorkloadOutcome, WorkloadError> {
    let end = n_objects(session, collection);
    let load = LoadSpec {
        end,
        ..LoadSpec::new(session, name, session.options.clients)
    };
    drive(session, load, DeleteObject(collection.clone())).await
}

fn n_objects(session: &Session, collection: &Collection) -> u64 {
    collection.kind.n_objects(session.options.objects)
}

/// A load with warm-up.
fn warm_load(session: &Session, name: String) -> LoadSpec {
    let clients = session.options.clients;
    LoadSpec {
        warm_up: WARM_UP * clients as u64,
        ..LoadSpec::new(session, name, clients)
    }
}

/// A load with at most as many clients as objects, so that no two write the same object at once.
fn exclusive_load(session: &Session, collection: &Collection, name: String) -> LoadSpec {
    let clients = session
        .options
        .clients
        .min(n_objects(session, collection) as usize);
    LoadSpec {
        clients,
        ..warm_load(session, name)
    }
}

/// The object of a turn: all objects, but not in the order of their names.
///
/// Invariant: unless the prime divides `n_objects`, any `n_objects` consecutive turns are different objects.
fn scatter(turn: u64, n_objects: u64) -> u64 {
    const PRIME: u64 = 2_654_435_761;
    (turn % n_objects) * PRIME % n_objects
}

struct CreateObject(Collection);

impl BenchOperation for CreateObject {
    async fn perform(&self, client: &mut LoadClient, turn: u64) -> Result<u64, ApiCallError> {
        Ok(client.connection.count(&self.0.create(turn)).await?.bytes)
    }
}

struct GetObject {
    collection: Collection,
    n_objects: u64,
}

impl BenchOperation for GetObject {
    async fn perform(&self, client: &mut LoadClient, turn: u64) -> Result<u64, ApiCallError> {
        let call = ApiCall::get(self.collection.item(scramble(turn) % self.n_objects));
        Ok(client.connection.count(&call).await?.bytes)
    }
}

struct UpdateObject {
    session: Arc<Session>,
    collection: Collection,
}

impl BenchOperation for UpdateObject {
    async fn perform(&self, client: &mut LoadClient, turn: u64) -> Result<u64, ApiCallError> {
        let path = self
            .collection
            .item(scatter(turn, n_objects(&self.session, &self.collection)));
        let get = ApiCall::get(&path);
        let mut object = client.connection.fetch(&get).await?.to_vec();
        let n_read = object.len() as u64;
        set_turn(&mut object, self.session.next_turn())
            .ok_or_else(|| get.unexpected("the object lost its turn"))?;
        Ok(n_read
            + client
                .connection
                .count(&ApiCall::put(path, object))
                .await?
                .bytes)
    }
}

/// Patches or applies an object, with a change at each turn.
struct ChangeObject {
    session: Arc<Session>,
    collection: Collection,
    call: fn(&Collection, u64, u64) -> ApiCall,
}

impl BenchOperation for ChangeObject {
    async fn perform(&self, client: &mut LoadClient, turn: u64) -> Result<u64, ApiCallError> {
        let n = scatter(turn, n_objects(&self.session, &self.collection));
        let call = (self.call)(&self.collection, n, self.session.next_turn());
        Ok(client.connection.count(&call).await?.bytes)
    }
}

struct DeleteObject(Collection);

impl BenchOperation for DeleteObject {
    async fn perform(&self, client: &mut LoadClient, turn: u64) -> Result<u64, ApiCallError> {
        Ok(client
            .connection
            .count(&ApiCall::delete(self.0.item(turn)))
            .await?
            .bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn scattered_turns_cover_every_object_once() {
        for n_objects in [1, 7, 100, 10_000] {
            let met: BTreeSet<u64> = (5..5 + n_objects)
                .map(|turn| scatter(turn, n_objects))
                .collect();
            assert_eq!(met.len() as u64, n_objects);
        }
    }
}
