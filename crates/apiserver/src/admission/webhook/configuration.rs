//! The configured webhooks in call order, indexed by resource.

use parking_lot::RwLock;
use std::sync::Arc;

use mizzen_object::Status;
use mizzen_outgoing::WebhookClient;
use mizzen_registry::{ListOptions, Registry, Resource, Revision};
use mizzen_value::{Str, Value};

use super::failing_open::FailingOpen;
use super::matching::{MatchIndex, Matching};
use crate::admission::policy::MatchConditions;

/// The webhooks that are configured.
pub(crate) struct Webhooks {
    pub mutating: WebhookCache,
    pub validating: WebhookCache,
    /// Failures that were ignored.
    pub failing_open: FailingOpen,
}

impl Webhooks {
    /// `find` finds a resource of `admissionregistration.k8s.io`.
    pub(crate) fn new(find: impl Fn(&str) -> Option<Resource>) -> Webhooks {
        let configured = |plural: &str| WebhookCache {
            resource: find(plural),
            kept: RwLock::default(),
        };
        Webhooks {
            mutating: configured("mutatingwebhookconfigurations"),
            validating: configured("validatingwebhookconfigurations"),
            failing_open: FailingOpen::default(),
        }
    }
}

/// The webhooks of one kind of configuration.
pub(crate) struct WebhookCache {
    resource: Option<Resource>,
    kept: RwLock<Arc<ConfiguredWebhooks>>,
}

impl WebhookCache {
    /// The current webhooks. The first request after a change reads the configurations. One that cannot be decoded fails the
    /// request, because its webhooks might have denied it.
    pub(crate) fn hooks(&self, registry: &Registry) -> Result<Arc<ConfiguredWebhooks>, Status> {
        let Some(resource) = &self.resource else {
            return Ok(Arc::default());
        };
        let revision = resource.space().snapshot().revision();
        let kept = self.kept.read().clone();
        if kept.revision == revision {
            return Ok(kept);
        }
        let configurations = registry.list(resource, &ListOptions::default())?.items;
        let values: Vec<Value> = configurations
            .iter()
            .map(|configuration| configuration.value())
            .collect();
        let hooks = Arc::new(ConfiguredWebhooks::new(revision, &values));
        *self.kept.write() = hooks.clone();
        Ok(hooks)
    }
}

/// Webhooks in call order: by the name of their configuration, then by their position in it.
#[derive(Default)]
pub(crate) struct ConfiguredWebhooks {
    revision: Revision,
    all: Vec<Arc<AdmissionWebhook>>,
    index: MatchIndex,
}

impl ConfiguredWebhooks {
    fn new(revision: Revision, configurations: &[Value]) -> ConfiguredWebhooks {
        let each = configurations.iter().flat_map(|configuration| {
            let name = configuration["metadata"]["name"].str();
            configuration["webhooks"]
                .list()
                .iter()
                .map(move |hook| AdmissionWebhook::parse(name, hook))
        });
        let each = each
            .enumerate()
            .map(|(index, webhook)| Arc::new(AdmissionWebhook { index, ..webhook }));
        let all: Vec<Arc<AdmissionWebhook>> = each.collect();
        let index = MatchIndex::new(all.iter().map(|webhook| &webhook.matching));
        ConfiguredWebhooks {
            revision,
            all,
            index,
        }
    }

    /// The webhooks that may match a resource, in order. Most requests have none.
    pub(crate) fn about(&self, plural: &str) -> Vec<Arc<AdmissionWebhook>> {
        self.index
            .about(plural)
            .into_iter()
            .map(|at| self.all[at].clone())
            .collect()
    }
}

/// One webhook of a configuration.
pub(crate) struct AdmissionWebhook {
    /// Its own name.
    pub name: Str,
    /// The name of its configuration.
    pub configuration: Str,
    /// Its position among all webhooks.
    pub index: usize,
    /// Identifies it between rounds.
    pub id: Str,
    pub matching: Matching,
    /// `failurePolicy: Ignore`.
    pub ignores_failure: bool,
    /// Whether it may be called for a dry run.
    pub allows_dry_run: bool,
    /// `reinvocationPolicy: IfNeeded`.
    pub reinvoked: bool,
    pub timeout: u64,
    /// Its `admissionReviewVersions`, by preference.
    pub versions: Vec<Str>,
    pub hook: WebhookClient,
    /// `matchConditions`.
    pub conditions: MatchConditions,
}

impl AdmissionWebhook {
    fn parse(configuration: &str, webhook: &Value) -> AdmissionWebhook {
        let name = webhook["name"].str();
        let timeout = webhook["timeoutSeconds"]
            .as_int()
            .and_then(|seconds| u64::try_from(seconds).ok());
        AdmissionWebhook {
            name: name.into(),
            configuration: configuration.into(),
            index: 0,
            id: format!("{configuration}/{name}").into(),
            matching: Matching::of_webhook(webhook),
            ignores_failure: webhook["failurePolicy"].str() == "Ignore",
            allows_dry_run: matches!(webhook["sideEffects"].str(), "None" | "NoneOnDryRun"),
            reinvoked: webhook["reinvocationPolicy"].str() == "IfNeeded",
            timeout: timeout.unwrap_or(10),
            versions: webhook["admissionReviewVersions"]
                .list()
                .iter()
                .map(|text| text.str().into())
                .collect(),
            hook: WebhookClient::parse(&webhook["clientConfig"]),
            conditions: MatchConditions::parse(&webhook["matchConditions"]),
        }
    }
}
