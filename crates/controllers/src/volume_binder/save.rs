//! Writes claims and volumes, and waits until the cache has them.

use std::time::Duration;

use mizzen_sdk::Object;
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES};

use super::{PersistentVolumeController, bind};
use crate::Error;

/// How long to wait for the cache; after that the next write conflicts and is retried.
const PATIENCE: Duration = Duration::from_secs(1);

impl PersistentVolumeController {
    pub(super) async fn save_claim(&self, claim: &Object) -> Result<Object, Error> {
        let api = &self.context.api;
        let saved = api.update(&PERSISTENT_VOLUME_CLAIMS, claim).await?;
        Ok(wait_for_cache(&self.claims, saved).await)
    }

    pub(super) async fn save_claim_status(&self, claim: &Object) -> Result<Object, Error> {
        let api = &self.context.api;
        let saved = api.update_status(&PERSISTENT_VOLUME_CLAIMS, claim).await?;
        Ok(wait_for_cache(&self.claims, saved).await)
    }

    pub(super) async fn save_volume(&self, volume: &Object) -> Result<Object, Error> {
        let saved = self.context.api.update(&PERSISTENT_VOLUMES, volume).await?;
        Ok(wait_for_cache(&self.volumes, saved).await)
    }

    /// Sets the phase of a claim without a volume; none if it has it.
    pub(super) async fn set_claim_phase(
        &self,
        claim: &Object,
        phase: &str,
    ) -> Result<Option<Object>, Error> {
        match bind::claim_phase(claim, phase) {
            Some(after) => self.save_claim_status(&after).await.map(Some),
            None => Ok(None),
        }
    }

    /// Sets the phase of a volume; none if it has it.
    pub(super) async fn set_volume_phase(
        &self,
        volume: &Object,
        phase: &str,
        message: &str,
    ) -> Result<Option<Object>, Error> {
        let Some(after) = bind::volume_phase(volume, phase, message) else {
            return Ok(None);
        };
        let api = &self.context.api;
        let saved = api.update_status(&PERSISTENT_VOLUMES, &after).await?;
        Ok(Some(wait_for_cache(&self.volumes, saved).await))
    }

    pub(super) fn record_claim_event(&self, claim: &Object, note: Note) {
        self.context
            .record_event(&PERSISTENT_VOLUME_CLAIMS, claim, note);
    }

    pub(super) fn record_volume_event(&self, volume: &Object, note: Note) {
        self.context.record_event(&PERSISTENT_VOLUMES, volume, note);
    }
}

async fn wait_for_cache(informer: &Informer<Object>, saved: Object) -> Object {
    informer.has_write_within(PATIENCE, &saved).await;
    saved
}
