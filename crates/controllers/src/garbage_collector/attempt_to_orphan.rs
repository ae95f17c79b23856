//! attemptToOrphan: removes an owner from its dependents, then its orphan finalizer.

use futures_util::StreamExt as _;
use futures_util::stream;
use mizzen_sdk::write::is_not_found;

use super::GarbageCollector;
use super::identity::{ObjectIdentity, Uid};
use super::live::CollectError;
use super::observed::ORPHAN;

/// How many dependents are patched at a time.
const AT_A_TIME: usize = 16;

impl GarbageCollector {
    /// Orphans the dependents of an object; the object can be deleted when all are patched.
    ///
    /// The dependents are read from the server: one that the graph does not have yet would be
    /// deleted later.
    pub(super) async fn attempt_to_orphan(&self, uid: &Uid) -> Result<(), CollectError> {
        let Some(item) = self.graph.lock().item(uid) else {
            return Ok(());
        };
        let dependents = self.live.dependents(&item.identity).await?;
        let mut changes = Vec::new();
        for dependent in &dependents {
            changes.push(self.orphan_dependent(dependent, uid));
        }
        let mut changes = stream::iter(changes).buffer_unordered(AT_A_TIME);
        let mut outcome = Ok(());
        while let Some(change) = changes.next().await {
            outcome = outcome.and(change);
        }
        outcome?;
        self.live.remove_finalizer(&item.identity, ORPHAN).await
    }

    async fn orphan_dependent(
        &self,
        dependent: &ObjectIdentity,
        owner: &Uid,
    ) -> Result<(), CollectError> {
        match self
            .live
            .remove_owners(dependent, std::slice::from_ref(owner))
            .await
        {
            Err(CollectError::Api(error)) if is_not_found(&error) => Ok(()),
            outcome => outcome,
        }
    }
}
