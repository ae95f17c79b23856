//! The webhooks of an operator for backups: defaults, validation, and conversion between two
//! versions of its kind.

pub mod v1;
pub mod v2;

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::crd::merge_crds;
use kube::{Client, CustomResourceExt as _};
use mizzen_sdk::discover::Scheme;
use mizzen_sdk::webhook::{
    AdmissionRequest, CertificateRotator, Denied, Endpoint, RotationOptions, Rule, Server,
    Violations, Webhook,
};
use mizzen_sdk::write::Applier;
use tokio::net::TcpListener;

use v2::{Backup, Retention};

/// Why the webhooks do not run.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// How long requests in flight may take when the process stops.
const GRACE: Duration = Duration::from_secs(10);

/// The name of the CustomResourceDefinition.
pub const DEFINITION: &str = "backups.example.com";

/// The CustomResourceDefinition, with both versions. Backups are stored as v2.
pub fn definition() -> Result<CustomResourceDefinition, Error> {
    Ok(merge_crds(
        vec![v1::Backup::crd(), v2::Backup::crd()],
        "v2",
    )?)
}

/// Every night, and a month of retention.
pub fn apply_defaults(backup: &mut Backup) {
    backup
        .spec
        .schedule
        .get_or_insert_with(|| "0 3 * * *".into());
    backup.spec.retention.get_or_insert(Retention { days: 30 });
}

/// Rejects what the schema cannot: a malformed schedule, another claim for an existing backup.
pub async fn validate(request: AdmissionRequest<Backup>) -> Result<(), Denied> {
    let spec = &request.object()?.spec;
    let mut violations = Violations::default();
    let schedule = spec.schedule.as_deref().unwrap_or_default();
    if schedule.split_whitespace().count() != 5 {
        violations.invalid("spec.schedule", schedule, "must have five fields");
    }
    if spec
        .retention
        .as_ref()
        .is_some_and(|retention| retention.days == 0)
    {
        violations.invalid("spec.retention.days", 0, "must be at least 1");
    }
    if let Some(old) = &request.old_object
        && old.spec.claim != spec.claim
    {
        violations.forbidden("spec.claim", "field is immutable");
    }
    if spec
        .retention
        .as_ref()
        .is_some_and(|retention| retention.days > 365)
    {
        request.warn("spec.retention.days: backups of more than a year are large");
    }
    request.reject_invalid(&violations)
}

/// The webhooks. A rule for v2 applies to v1 as well: the API server converts.
pub fn server() -> Result<Server, Error> {
    let mut scheme = Scheme::new();
    scheme.register_conversion::<v1::Backup, v2::Backup>()?;
    let rule = Rule::kind::<Backup>();
    Ok(Server::builder("backup-webhook")
        .webhook(Webhook::defaulting(
            "defaults.backups.example.com",
            rule.clone(),
            apply_defaults,
        ))
        .webhook(Webhook::validating("backups.example.com", rule, validate))
        .conversion(DEFINITION, scheme.converter())
        .build()?)
}

/// Webhooks that are registered, and can be served.
pub struct Registered {
    server: Server,
    rotator: CertificateRotator,
}

/// Applies the definition, makes certificates in a Secret of `namespace`, and registers the
/// webhooks, which the API server reaches at `endpoint`.
pub async fn register(
    client: Client,
    namespace: &str,
    endpoint: Endpoint,
) -> Result<Registered, Error> {
    let server = server()?;
    let definitions: kube::Api<CustomResourceDefinition> = kube::Api::all(client.clone());
    Applier::new("backup-webhook")
        .apply(&definitions, DEFINITION, &definition()?)
        .await?;
    let mut options = RotationOptions::new(namespace, "backup-webhook", endpoint.names());
    options.targets = server.injection_targets();
    let rotator = CertificateRotator::start(client.clone(), options).await?;
    server.apply(&client, &endpoint, &rotator.bundle()).await?;
    Ok(Registered { server, rotator })
}

impl Registered {
    /// Serves the webhooks and rotates their certificates until `stop` resolves.
    pub async fn serve(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let certificate = self.rotator.certificate();
        tokio::select! {
            () = self.server.serve(listener, certificate, stop, GRACE) => {}
            () = self.rotator.run() => {}
        }
    }
}
