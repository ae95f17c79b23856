//! The authorities by signer name.

use std::collections::BTreeMap;
use std::sync::Arc;

use mizzen_controllers::{CertificateSigner, SigningRequest};

use super::Authority;

/// Authorities by signer name.
#[derive(Default)]
pub struct Signers(BTreeMap<&'static str, Arc<Authority>>);

impl Signers {
    /// Adds an authority for signers.
    pub fn add(&mut self, signers: &[&'static str], authority: Authority) {
        let authority = Arc::new(authority);
        self.0
            .extend(signers.iter().map(|signer| (*signer, authority.clone())));
    }
}

impl CertificateSigner for Signers {
    fn sign(&self, order: &SigningRequest) -> Result<String, String> {
        self.0
            .get(order.signer)
            .ok_or("no authority for this signer")?
            .sign(order)
    }

    fn signs_for(&self, signer: &str) -> bool {
        self.0.contains_key(signer)
    }
}
