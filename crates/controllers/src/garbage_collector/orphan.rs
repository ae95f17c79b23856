//! Letting the dependents of an object be on their own, and then the object go.

use futures_util::StreamExt as _;
use futures_util::stream;
use mizzen_sdk::write::is_not_found;

use super::Collector;
use super::live::Trouble;
use super::name::{Identity, Uid};
use super::seen::ORPHAN;

/// How many dependents are changed at a time.
const AT_A_TIME: usize = 16;

impl Collector {
    /// Takes an object out of the owners of its dependents. It goes when all have let go of it.
    ///
    /// The server is asked who they are: one that the graph has not heard of would be deleted as soon as it has.
    pub(super) async fn orphan(&self, uid: &Uid) -> Result<(), Trouble> {
        let Some(item) = self.graph().item(uid) else {
            return Ok(());
        };
        let dependents = self.live.dependents(&item.identity).await?;
        let mut changes = Vec::new();
        for dependent in &dependents {
            changes.push(self.release(dependent, uid));
        }
        let mut changes = stream::iter(changes).buffer_unordered(AT_A_TIME);
        let mut outcome = Ok(());
        while let Some(change) = changes.next().await {
            outcome = outcome.and(change);
        }
        outcome?;
        self.live.remove_finalizer(&item.identity, ORPHAN).await
    }

    async fn release(&self, dependent: &Identity, owner: &Uid) -> Result<(), Trouble> {
        match self
            .live
            .strip(dependent, std::slice::from_ref(owner))
            .await
        {
            Err(Trouble::Api(error)) if is_not_found(&error) => Ok(()),
            outcome => outcome,
        }
    }
}
