//! Which webhooks are there? What is stored, in the order in which it is called, found by what it is about.

use parking_lot::RwLock;
use std::sync::Arc;

use mizzen_object::Status;
use mizzen_registry::{ListOptions, Registry, Resource, Revision};
use mizzen_value::{Str, Value};

use super::failing_open::FailingOpen;
use super::matching::{Index, Matching};
use crate::admission::policy::Conditions;
use crate::catalog::Catalog;
use crate::outgoing::Hook;

/// The webhooks that are configured.
pub(crate) struct Webhooks {
    pub mutating: Configured,
    pub validating: Configured,
    /// Those that fail and are ignored.
    pub failing_open: FailingOpen,
}

impl Webhooks {
    pub(crate) fn new(catalog: &Catalog) -> Webhooks {
        let find = |plural: &str| Configured {
            resource: catalog.get("admissionregistration.k8s.io", "v1", plural),
            kept: RwLock::default(),
        };
        Webhooks {
            mutating: find("mutatingwebhookconfigurations"),
            validating: find("validatingwebhookconfigurations"),
            failing_open: FailingOpen::default(),
        }
    }
}

/// The webhooks of one kind of configuration.
pub(crate) struct Configured {
    resource: Option<Resource>,
    kept: RwLock<Arc<Hooks>>,
}

impl Configured {
    /// The webhooks as they are stored at this moment. Only the first request after a change reads the configurations.
    /// A configuration that cannot be decoded fails the request: its webhooks might have rejected it.
    pub(crate) fn hooks(&self, registry: &Registry) -> Result<Arc<Hooks>, Status> {
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
        let hooks = Arc::new(Hooks::new(revision, &values));
        *self.kept.write() = hooks.clone();
        Ok(hooks)
    }
}

/// Webhooks in the order in which they are called: by the name of their configuration, then as it has them.
#[derive(Default)]
pub(crate) struct Hooks {
    revision: Revision,
    all: Vec<Arc<Webhook>>,
    index: Index,
}

impl Hooks {
    fn new(revision: Revision, configurations: &[Value]) -> Hooks {
        let each = configurations.iter().flat_map(|configuration| {
            let name = configuration["metadata"]["name"].str();
            configuration["webhooks"]
                .list()
                .iter()
                .map(move |hook| Webhook::parse(name, hook))
        });
        let each = each
            .enumerate()
            .map(|(index, webhook)| Arc::new(Webhook { index, ..webhook }));
        let all: Vec<Arc<Webhook>> = each.collect();
        let index = Index::new(all.iter().map(|webhook| &webhook.matching));
        Hooks {
            revision,
            all,
            index,
        }
    }

    /// The webhooks that may be about a resource, in order. For most requests there is none.
    pub(crate) fn about(&self, plural: &str) -> Vec<Arc<Webhook>> {
        self.index
            .about(plural)
            .into_iter()
            .map(|at| self.all[at].clone())
            .collect()
    }
}

/// One webhook of a configuration.
pub(crate) struct Webhook {
    /// Its own name.
    pub name: Str,
    /// The name of its configuration.
    pub configuration: Str,
    /// How many come before it.
    pub index: usize,
    /// By which it is known from one round to the next.
    pub id: Str,
    pub matching: Matching,
    /// Whether a request goes on if it cannot be called.
    pub ignores_failure: bool,
    /// Whether it may be called for what is not stored.
    pub allows_dry_run: bool,
    /// Whether it is called again when others have changed the object.
    pub reinvoked: bool,
    pub timeout: u64,
    /// The versions of reviews that it understands, best first.
    pub versions: Vec<Str>,
    pub hook: Hook,
    /// What must hold besides.
    pub conditions: Conditions,
}

impl Webhook {
    fn parse(configuration: &str, webhook: &Value) -> Webhook {
        let name = webhook["name"].str();
        let timeout = webhook["timeoutSeconds"]
            .as_int()
            .and_then(|seconds| u64::try_from(seconds).ok());
        Webhook {
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
            hook: Hook::parse(&webhook["clientConfig"]),
            conditions: Conditions::parse(&webhook["matchConditions"]),
        }
    }
}
