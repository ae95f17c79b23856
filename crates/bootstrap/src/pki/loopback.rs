//! The health check of the [`LOOPBACK`](super::LOOPBACK) certificate. It is signed when the server starts, so a restart
//! renews it.

use mizzen_apiserver::{HealthCheck, HealthEndpoint};
use mizzen_registry::{BoxFuture, Registry};

use super::CERTIFICATE_DAYS;

/// The health check of that certificate.
pub struct LoopbackCertificate {
    registry: Registry,
    /// The last second of its validity.
    expires: i64,
}

impl LoopbackCertificate {
    /// A certificate that is signed now.
    pub fn signed_now(registry: &Registry) -> LoopbackCertificate {
        let expires = registry
            .now()
            .saturating_add(CERTIFICATE_DAYS * 24 * 60 * 60);
        LoopbackCertificate {
            registry: registry.clone(),
            expires,
        }
    }
}

impl std::fmt::Debug for LoopbackCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LoopbackCertificate(until {})", self.expires)
    }
}

impl HealthCheck for LoopbackCertificate {
    fn name(&self) -> &str {
        "loopback-serving-certificate"
    }

    fn check(&self) -> BoxFuture<'_, Result<(), String>> {
        let is_expired = self.registry.now() > self.expires;
        let outcome = if is_expired {
            Err("loopback serving certificate is expired".into())
        } else {
            Ok(())
        };
        Box::pin(std::future::ready(outcome))
    }

    fn endpoint(&self) -> HealthEndpoint {
        HealthEndpoint::Livez
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mizzen_apiserver::clock::{CountingRandom, SettableClock};
    use mizzen_registry::Store;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_with_an_expired_loopback_certificate_is_not_alive() {
        let clock = SettableClock::starting_at(1_700_000_000);
        let store = Store::in_memory(Default::default());
        let registry = Registry::new(
            store,
            Arc::new(clock.clone()),
            Arc::new(CountingRandom::default()),
        );
        let check = LoopbackCertificate::signed_now(&registry);
        clock.step(CERTIFICATE_DAYS * 86_400);
        assert_eq!(check.check().await, Ok(()));
        clock.step(1);
        assert!(check.check().await.is_err());
    }
}
