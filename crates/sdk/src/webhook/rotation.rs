//! Certificates of its own: made, shared by replicas in a Secret, injected, rotated.
//!
//! The Secret has the authority (`ca.crt`, `ca.key`) and the serving certificate (`tls.crt`,
//! `tls.key`). The first replica makes them, all replicas read them, and the first that notices
//! that a certificate ends soon renews it; an update with the resourceVersion decides a race. A new
//! authority comes first in `ca.crt`, and the previous one stays behind it until it expires.
//!
//! Invariant: a certificate is served after its authority is in every CA bundle, so that no request
//! fails during a rotation. Replicas that still serve the previous certificate stay trusted.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::{Client, Error};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::certificate::{
    Authority, CertificateError, KeyPem, ServingCertificate, Validity, seconds, unexpired,
};
use super::inject::InjectionTarget;
use crate::clock::{self, Clock};
use crate::failure_log::FailureLog;
use crate::informer::{Event, Informer};
use crate::object::Object;
use crate::rbac::RbacRule;
use crate::resource::{ResourceType, SECRETS};
use crate::watch::ListWatch;
use crate::write::{is_already_exists, is_conflict};

/// How many authorities a bundle has: the current one, and the previous ones until they expire.
const MAX_AUTHORITIES: usize = 3;
/// How often a lost race for the Secret is tried again.
const TRIES: usize = 5;

/// Where certificates are kept, and for which names.
///
/// ```
/// use mizzen_sdk::webhook::{Endpoint, InjectionTarget, RotationOptions};
///
/// let endpoint = Endpoint::service("shop", "shop-webhook");
/// let mut options = RotationOptions::new("shop", "shop-webhook-certificates", endpoint.names());
/// options.targets = vec![InjectionTarget::ApiService("v1.shop.example.com".into())];
/// assert_eq!(options.rules().len(), 3); // what the service account needs
/// ```
#[derive(Clone)]
pub struct RotationOptions {
    /// The namespace of the Secret.
    pub namespace: String,
    /// The name of the Secret; [`rules`](RotationOptions::rules) has the permissions for it.
    pub secret: String,
    /// The names of the serving certificate, see [`Endpoint::names`](super::Endpoint::names).
    pub names: Vec<String>,
    /// The objects that get the CA bundle.
    pub targets: Vec<InjectionTarget>,
    /// How long certificates are valid.
    pub validity: Validity,
    /// How often the certificates are checked, besides when the Secret or a target changes.
    pub interval: Duration,
    /// The wall clock.
    pub clock: Clock,
}

impl RotationOptions {
    /// A Secret, and the names of the serving certificate.
    pub fn new(
        namespace: impl Into<String>,
        secret: impl Into<String>,
        names: Vec<String>,
    ) -> RotationOptions {
        RotationOptions {
            namespace: namespace.into(),
            secret: secret.into(),
            names,
            targets: Vec::new(),
            validity: Validity::default(),
            interval: Duration::from_secs(600),
            clock: clock::wall_clock(),
        }
    }

    /// What the service account needs: the Secret in its own namespace, and the targets. Lists and
    /// watches select one object by its name, so that a rule with names allows them.
    pub fn rules(&self) -> Vec<RbacRule> {
        let verbs = ["get", "list", "watch", "update"];
        let secret = RbacRule::new("", ["secrets"], verbs).names([&self.secret]);
        let mut rules = vec![
            RbacRule::new("", ["secrets"], ["create"]).namespaced(),
            secret.namespaced(),
        ];
        rules.extend(self.targets.iter().map(|target| {
            let (resource, name) = target.resource();
            RbacRule::new(&resource.group, [&*resource.plural], verbs).names([name])
        }));
        rules
    }
}

/// Why certificates could not be made or distributed.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use mizzen_sdk::webhook::{CertificateRotator, RotationError, RotationOptions};
///
/// let options = RotationOptions::new("no-such-namespace", "webhook", vec!["shop.default.svc".into()]);
/// let error = CertificateRotator::start(client, options).await.err().expect("no namespace, no Secret");
/// assert!(matches!(error, RotationError::Request(_)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
pub enum RotationError {
    /// A request failed.
    #[error(transparent)]
    Request(#[from] Error),
    /// A certificate could not be made.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// Other replicas changed the Secret at each attempt.
    #[error("the Secret with the certificates was changed at each of {TRIES} attempts")]
    Contended,
}

/// Makes, injects and rotates the certificates of a webhook server. Replicas share them through a
/// Secret.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use mizzen_sdk::webhook::{CertificateRotator, Endpoint, RotationOptions, Server};
///
/// let server = Server::builder("shop").build()?;
/// let endpoint = Endpoint::service("default", "shop-webhook");
/// let mut options = RotationOptions::new("default", "shop-webhook-certificates", endpoint.names());
/// options.targets = server.injection_targets();
/// let rotator = CertificateRotator::start(client.clone(), options).await?;
/// server.apply(&client, &endpoint, &rotator.bundle()).await?;
/// let certificate = rotator.certificate();
/// tokio::spawn(async move { rotator.run().await });
/// # drop(certificate);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CertificateRotator {
    client: Client,
    options: RotationOptions,
    serving: ServingCertificate,
    current: Mutex<CertificateMaterial>,
}

/// The content of the Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CertificateMaterial {
    /// The certificates of all authorities that are trusted, the current one first, as PEM.
    bundle: String,
    /// The key of the current authority.
    authority_key: String,
    leaf: KeyPem,
}

/// What must be made anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Renewal {
    Nothing,
    Leaf,
    Authority,
}

impl CertificateMaterial {
    fn from_secret(secret: &Secret) -> Option<CertificateMaterial> {
        let text = |key: &str| String::from_utf8(secret.data.as_ref()?.get(key)?.0.clone()).ok();
        Some(CertificateMaterial {
            bundle: text("ca.crt")?,
            authority_key: text("ca.key")?,
            leaf: KeyPem {
                certificate: text("tls.crt")?,
                key: text("tls.key")?,
            },
        })
    }

    fn write_to(&self, secret: &mut Secret) {
        let data = secret.data.get_or_insert_default();
        let CertificateMaterial {
            bundle,
            authority_key,
            leaf,
        } = self;
        for (key, text) in [
            ("ca.crt", bundle),
            ("ca.key", authority_key),
            ("tls.crt", &leaf.certificate),
            ("tls.key", &leaf.key),
        ] {
            data.insert(key.into(), ByteString(text.clone().into_bytes()));
        }
    }

    fn authority(&self) -> Authority {
        Authority(KeyPem {
            certificate: self.bundle.clone(),
            key: self.authority_key.clone(),
        })
    }

    /// Decides what must be renewed. An authority is renewed while it can still sign a certificate
    /// of full length.
    fn renewal(&self, options: &RotationOptions, now: i64) -> Renewal {
        let RotationOptions {
            names, validity, ..
        } = options;
        let authority = self.authority();
        let authority_end = authority.not_after();
        if authority_end.is_err() || rcgen::KeyPair::from_pem(&self.authority_key).is_err() {
            return Renewal::Authority;
        }
        if authority_end
            .is_ok_and(|end| end - now <= seconds(validity.leaf.min(validity.authority / 2)))
        {
            return Renewal::Authority;
        }
        match authority.signed_until(&self.leaf, names) {
            Ok(Some(end)) if end - now > seconds(validity.renew_before.min(validity.leaf / 2)) => {
                Renewal::Nothing
            }
            _ => Renewal::Leaf,
        }
    }

    /// A new authority. The previous ones stay in the bundle.
    fn generate(
        previous: &str,
        options: &RotationOptions,
        now: i64,
    ) -> Result<CertificateMaterial, CertificateError> {
        let authority = Authority::generate(&options.secret, &options.validity, now)?;
        let mut bundle = unexpired(authority.certificate(), now, 1);
        bundle.extend(unexpired(previous, now, MAX_AUTHORITIES - 1));
        Ok(CertificateMaterial {
            leaf: authority.sign(&options.names, &options.validity, now)?,
            authority_key: authority.0.key,
            bundle: bundle.concat(),
        })
    }

    fn renew_leaf(
        &self,
        options: &RotationOptions,
        now: i64,
    ) -> Result<CertificateMaterial, CertificateError> {
        Ok(CertificateMaterial {
            leaf: self
                .authority()
                .sign(&options.names, &options.validity, now)?,
            bundle: unexpired(&self.bundle, now, MAX_AUTHORITIES).concat(),
            ..self.clone()
        })
    }
}

impl CertificateRotator {
    /// Reads the certificates, or makes them, and injects the CA bundle.
    pub async fn start(
        client: Client,
        options: RotationOptions,
    ) -> Result<CertificateRotator, RotationError> {
        let material = share(&client, &options, "").await?;
        let rotator = CertificateRotator {
            serving: material.leaf.serving()?,
            current: Mutex::new(material),
            client,
            options,
        };
        rotator.inject(&rotator.bundle()).await?;
        Ok(rotator)
    }

    /// The certificate to serve; it is replaced on rotation.
    pub fn certificate(&self) -> ServingCertificate {
        self.serving.clone()
    }

    /// The certificates of the authorities, as PEM.
    pub fn bundle(&self) -> String {
        self.current.lock().bundle.clone()
    }

    /// Checks everything once: renews certificates that end soon, injects the CA bundle where it is
    /// missing, and then serves the certificate of the Secret.
    pub async fn reconcile(&self) -> Result<(), RotationError> {
        let material = share(&self.client, &self.options, &self.bundle()).await?;
        self.inject(&material.bundle).await?;
        if *self.current.lock() != material {
            self.serving.replace(&material.leaf)?;
            *self.current.lock() = material;
            tracing::info!(
                secret = self.options.secret,
                "serving a new webhook certificate"
            );
        }
        Ok(())
    }

    /// Checks everything whenever the Secret or a target changes, and at intervals, until it is
    /// dropped. A failure is retried; meanwhile the previous certificate is served.
    pub async fn run(&self) {
        let RotationOptions {
            namespace,
            secret,
            targets,
            interval,
            ..
        } = &self.options;
        let wake = Arc::new(Notify::new());
        let follow = |resource: &ResourceType, namespace: &str, name: &str| {
            let mut source = ListWatch::<Object>::at(self.client.clone(), resource.path(namespace));
            source.fields = Some(format!("metadata.name={name}"));
            let (informer, wake) = (Informer::new(source), wake.clone());
            informer.add_handler(move |_: Event<Object>| wake.notify_one());
            informer.start();
            informer
        };
        let mut informers = vec![follow(&SECRETS, namespace, secret)];
        informers.extend(targets.iter().map(|target| {
            let (resource, name) = target.resource();
            follow(&resource, "", name)
        }));
        let _stop = StopOnDrop(informers);
        let failures = FailureLog::after(Duration::ZERO);
        loop {
            let _ = timeout(*interval, wake.notified()).await;
            let mut pause = Duration::from_secs(1);
            while let Err(error) = self.reconcile().await {
                if let Some(unlogged) = failures.failed() {
                    tracing::warn!(%error, unlogged, "failed to rotate the webhook certificates");
                }
                sleep(pause).await;
                pause = (2 * pause).min(*interval);
            }
            failures.recovered();
        }
    }

    async fn inject(&self, bundle: &str) -> Result<(), Error> {
        let mut outcome = Ok(());
        for target in &self.options.targets {
            outcome = outcome.and(target.inject(&self.client, bundle).await);
        }
        outcome
    }
}

/// Informers are stopped when the rotator is.
struct StopOnDrop(Vec<Informer<Object>>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.iter().for_each(Informer::stop);
    }
}

/// Reads the Secret, and writes what must be renewed. `bundle` is the one in use: its authorities
/// stay trusted even if the Secret was deleted.
async fn share(
    client: &Client,
    options: &RotationOptions,
    bundle: &str,
) -> Result<CertificateMaterial, RotationError> {
    let api: kube::Api<Secret> = kube::Api::namespaced(client.clone(), &options.namespace);
    let now = (options.clock)().as_second();
    for _ in 0..TRIES {
        let secret = api.get_opt(&options.secret).await?;
        let known = secret.as_ref().and_then(CertificateMaterial::from_secret);
        let renewal = known
            .as_ref()
            .map_or(Renewal::Authority, |known| known.renewal(options, now));
        let material = match (known, renewal) {
            (Some(known), Renewal::Nothing) => return Ok(known),
            (Some(known), Renewal::Leaf) => known.renew_leaf(options, now)?,
            (known, _) => {
                let previous = known.as_ref().map_or(bundle, |known| &known.bundle);
                CertificateMaterial::generate(previous, options, now)?
            }
        };
        let written = match secret {
            Some(mut secret) => {
                material.write_to(&mut secret);
                api.replace(&options.secret, &PostParams::default(), &secret)
                    .await
            }
            None => {
                let mut secret = Secret {
                    metadata: ObjectMeta {
                        name: Some(options.secret.clone()),
                        ..ObjectMeta::default()
                    },
                    type_: Some("kubernetes.io/tls".into()),
                    ..Secret::default()
                };
                material.write_to(&mut secret);
                api.create(&PostParams::default(), &secret).await
            }
        };
        match written {
            Ok(_) => {
                tracing::info!(
                    secret = options.secret,
                    ?renewal,
                    "renewed the webhook certificates"
                );
                return Ok(material);
            }
            // Another replica came first; its certificates are read.
            Err(error) if is_conflict(&error) || is_already_exists(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(RotationError::Contended)
}
