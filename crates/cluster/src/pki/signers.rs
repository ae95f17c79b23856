//! Who signs for which signer: one authority for all, or one for each that has its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use mizzen_controllers::{Order, Sign};

use super::Authority;

/// Authorities by the names of their signers.
#[derive(Default)]
pub(crate) struct Signers(BTreeMap<&'static str, Arc<Authority>>);

impl Signers {
    /// Lets an authority sign for signers.
    pub(crate) fn add(&mut self, signers: &[&'static str], authority: Authority) {
        let authority = Arc::new(authority);
        self.0
            .extend(signers.iter().map(|signer| (*signer, authority.clone())));
    }
}

impl Sign for Signers {
    fn sign(&self, order: &Order) -> Result<String, String> {
        self.0
            .get(order.signer)
            .ok_or("nobody signs for this signer")?
            .sign(order)
    }

    fn signs_for(&self, signer: &str) -> bool {
        self.0.contains_key(signer)
    }
}
