//! The manifests of an operator: CustomResourceDefinitions, RBAC, Deployment, webhook configurations,
//! as Kustomize bases with overlays and as a Helm chart.
//!
//! A program of the operator, `src/bin/manifests.rs`, writes them from what the code says. `mizzen
//! generate` runs it:
//!
//! ```no_run
//! use std::process::ExitCode;
//! # use kube::{CustomResource, CustomResourceExt as _};
//! # use schemars::JsonSchema;
//! # use serde::{Deserialize, Serialize};
//! use mizzen_sdk::Rbac;
//! use mizzen_sdk::manifests::Manifests;
//!
//! # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
//! # #[kube(group = "cache.example.com", version = "v1", kind = "Memcached", namespaced)]
//! # struct MemcachedSpec {}
//! #[derive(Rbac)]
//! #[rbac(group("cache.example.com"), resources("memcacheds"), verbs("get", "list", "watch"))]
//! #[rbac(group("apps"), resources("deployments"), verbs("get", "list", "watch", "create", "update"))]
//! struct MemcachedReconciler;
//!
//! fn manifests() -> Manifests {
//!     Manifests::new("memcached-operator")
//!         .image("registry.example.com/memcached-operator:1.0.0")
//!         .crd(Memcached::crd())
//!         .rules::<MemcachedReconciler>()
//! }
//!
//! fn main() -> ExitCode {
//!     manifests().main()
//! }
//!
//! // The files that are committed are current.
//! #[test]
//! fn manifests_are_current() {
//!     manifests().check("config").unwrap();
//! }
//! ```
//!
//! | below `config/` | |
//! |---|---|
//! | `crd/` | a file per CustomResourceDefinition |
//! | `rbac/` | a ServiceAccount of its own, its roles and their bindings |
//! | `manager/` | the Namespace and the Deployment |
//! | `webhook/` | the Service and the webhook configurations |
//! | `default/` | all of it: `kubectl apply -k config/default` |
//! | `overlays/` | `development` and `production` |
//! | `charts/NAME/` | a Helm chart: `helm install NAME config/charts/NAME` |
//!
//! The process is expected to serve [`/healthz` and `/readyz`](crate::manager) at `--endpoints
//! 0.0.0.0:8080`, and to elect a leader with `--leader-elect`; its pod has the environment variables
//! `POD_NAME` and `POD_NAMESPACE`.
//!
//! A generated file begins with a comment that says so. Invariant: a file without that comment belongs
//! to the user; it is neither changed nor deleted nor compared.

mod chart;
mod files;
mod kustomize;
mod objects;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::controller::Context;
use crate::election;
use crate::rbac::{Rbac, RbacRule};
#[cfg(feature = "webhook")]
use crate::webhook::{Endpoint, RotationOptions, Server};
pub use files::{FileChange, ManifestsError};

/// The port of `/metrics`, `/healthz` and `/readyz`.
const ENDPOINTS_PORT: u16 = 8080;

/// The port of webhooks in the pod.
#[cfg(feature = "webhook")]
const WEBHOOK_PORT: u16 = 9443;

/// The manifests of an operator, before they are written.
///
/// ```
/// # use kube::{CustomResource, CustomResourceExt as _};
/// # use schemars::JsonSchema;
/// # use serde::{Deserialize, Serialize};
/// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
/// # #[kube(group = "cache.example.com", version = "v1", kind = "Memcached", namespaced)]
/// # struct MemcachedSpec {}
/// use mizzen_sdk::RbacRule;
/// use mizzen_sdk::manifests::{FileChange, Manifests};
///
/// let manifests = Manifests::new("memcached-operator")
///     .crd(Memcached::crd())
///     .rule(RbacRule::new("cache.example.com", ["memcacheds"], ["get", "list", "watch"]));
///
/// let directory = tempfile::tempdir()?;
/// let changes = manifests.write(directory.path())?;
/// assert!(changes.contains(&FileChange::Created("crd/cache.example.com_memcacheds.yaml".into())));
/// manifests.check(directory.path())?;
///
/// std::fs::remove_file(directory.path().join("rbac/role.yaml"))?;
/// let error = manifests.check(directory.path()).unwrap_err().to_string();
/// assert!(error.contains("rbac/role.yaml is missing"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Manifests {
    name: String,
    namespace: String,
    image: String,
    version: String,
    args: Vec<String>,
    definitions: Vec<CustomResourceDefinition>,
    rules: Vec<RbacRule>,
    records_events: bool,
    /// The name of the Lease, if the replicas elect a leader.
    lease: Option<String>,
    #[cfg(feature = "webhook")]
    webhooks: Option<Server>,
}

impl Manifests {
    /// An operator: its ServiceAccount and its Deployment have this name, its namespace is
    /// `NAME-system`.
    ///
    /// The roles contain what a manager needs: Events, and a Lease of the operator's name in its own
    /// namespace. See [`without_events`](Manifests::without_events) and
    /// [`without_leader_election`](Manifests::without_leader_election).
    pub fn new(name: impl Into<String>) -> Manifests {
        let name = name.into();
        Manifests {
            namespace: format!("{name}-system"),
            image: "controller:latest".into(),
            version: "0.1.0".into(),
            args: vec![format!("--endpoints=0.0.0.0:{ENDPOINTS_PORT}")],
            definitions: Vec::new(),
            rules: Vec::new(),
            records_events: true,
            lease: Some(name.clone()),
            #[cfg(feature = "webhook")]
            webhooks: None,
            name,
        }
    }

    /// In another namespace.
    ///
    /// ```
    /// use mizzen_sdk::manifests::Manifests;
    ///
    /// let manifests = Manifests::new("shop").namespace("shops").version(env!("CARGO_PKG_VERSION"));
    /// # drop(manifests);
    /// ```
    pub fn namespace(mut self, namespace: impl Into<String>) -> Manifests {
        self.namespace = namespace.into();
        self
    }

    /// The image of the manager; by default `controller:latest`.
    ///
    /// ```
    /// use mizzen_sdk::manifests::Manifests;
    ///
    /// let manifests = Manifests::new("shop").image("registry.example.com/shop:1.2.3");
    /// # drop(manifests);
    /// ```
    pub fn image(mut self, image: impl Into<String>) -> Manifests {
        self.image = image.into();
        self
    }

    /// The version of the chart and of the application; by default `0.1.0`.
    pub fn version(mut self, version: impl Into<String>) -> Manifests {
        self.version = version.into();
        self
    }

    /// The arguments of the manager, instead of `--endpoints=0.0.0.0:8080`. `--leader-elect` is added
    /// if there is leader election.
    ///
    /// ```
    /// use mizzen_sdk::manifests::Manifests;
    ///
    /// let manifests = Manifests::new("shop").args(["--endpoints=0.0.0.0:8080", "--region=north"]);
    /// # drop(manifests);
    /// ```
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<String>>) -> Manifests {
        self.args = args.into_iter().map(Into::into).collect();
        self
    }

    /// Adds a CustomResourceDefinition.
    pub fn crd(mut self, definition: CustomResourceDefinition) -> Manifests {
        self.definitions.push(definition);
        self
    }

    /// Adds the rules of a reconciler.
    ///
    /// ```
    /// use mizzen_sdk::Rbac;
    /// use mizzen_sdk::manifests::Manifests;
    ///
    /// #[derive(Rbac)]
    /// #[rbac(group("apps"), resources("deployments"), verbs("get", "list", "watch"))]
    /// struct Reconciler;
    ///
    /// let manifests = Manifests::new("shop").rules::<Reconciler>();
    /// # drop(manifests);
    /// ```
    pub fn rules<R: Rbac>(mut self) -> Manifests {
        self.rules.extend(R::rules());
        self
    }

    /// Adds one rule.
    pub fn rule(mut self, rule: RbacRule) -> Manifests {
        self.rules.push(rule);
        self
    }

    /// No controller records Events: without the rule for them.
    ///
    /// ```
    /// use mizzen_sdk::manifests::Manifests;
    ///
    /// let manifests = Manifests::new("shop").without_events().without_leader_election();
    /// # drop(manifests);
    /// ```
    pub fn without_events(mut self) -> Manifests {
        self.records_events = false;
        self
    }

    /// One replica runs without a Lease: neither `--leader-elect` nor the Role for it.
    pub fn without_leader_election(mut self) -> Manifests {
        self.lease = None;
        self
    }

    /// The name of the Lease; by default that of the operator.
    ///
    /// ```
    /// use mizzen_sdk::manifests::Manifests;
    ///
    /// let manifests = Manifests::new("shop").lease("shop-leader.example.com");
    /// # drop(manifests);
    /// ```
    pub fn lease(mut self, name: impl Into<String>) -> Manifests {
        self.lease = Some(name.into());
        self
    }

    /// Adds the webhooks of a server: a Service `NAME-webhook`, their configurations, and the
    /// conversion of the CustomResourceDefinitions.
    ///
    /// The process serves them at port 9443 with the certificates of a
    /// [`CertificateRotator`](crate::webhook::CertificateRotator), which keeps them in the Secret
    /// `NAME-webhook` and injects the CA bundle. The roles allow that for the server's
    /// [`injection_targets`](Server::injection_targets) and no other object. So the process need not
    /// [`apply`](Server::apply) the configurations, and may not.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// use mizzen_sdk::manifests::Manifests;
    /// use mizzen_sdk::webhook::{Rule, Server, Webhook};
    ///
    /// let webhook = Webhook::defaulting("defaults.shop.example.com", Rule::kind::<ConfigMap>(), |_: &mut ConfigMap| {});
    /// let server = Server::builder("shop").webhook(webhook).build()?;
    /// let manifests = Manifests::new("shop").webhooks(server);
    /// # drop(manifests);
    /// # Ok::<(), mizzen_sdk::webhook::BuildError>(())
    /// ```
    #[cfg(feature = "webhook")]
    pub fn webhooks(mut self, server: Server) -> Manifests {
        self.webhooks = Some(server);
        self
    }

    /// All rules, with those of the manager and of the webhook server; not those of the leader election.
    fn all_rules(&self) -> Vec<RbacRule> {
        let mut rules = self.rules.clone();
        if self.records_events {
            rules.extend(Context::rules());
        }
        #[cfg(feature = "webhook")]
        if let Some(server) = &self.webhooks {
            let endpoint = Endpoint::service(&self.namespace, self.webhook_name());
            let mut rotation =
                RotationOptions::new(&self.namespace, self.webhook_name(), endpoint.names());
            rotation.targets = server.injection_targets();
            rules.extend(rotation.rules());
        }
        rules
    }

    fn lease_rules(&self) -> Vec<RbacRule> {
        self.lease
            .as_deref()
            .map(election::rules)
            .unwrap_or_default()
    }

    /// The name of the Service of webhooks, and of the Secret with their certificates.
    #[cfg(feature = "webhook")]
    fn webhook_name(&self) -> String {
        format!("{}-webhook", self.name)
    }

    /// The contents of all files, by their paths below the directory.
    fn files(&self) -> BTreeMap<String, String> {
        let mut files = self.kustomize_files();
        files.extend(self.chart_files());
        files
    }

    /// Whether the files in a directory are current. The error lists files that are missing, stale or
    /// left over from an earlier version, with the lines that differ.
    pub fn check(&self, directory: impl AsRef<Path>) -> Result<(), ManifestsError> {
        files::check(directory.as_ref(), &self.files())
    }

    /// Writes the files into a directory, and deletes generated files that are left over. Returns what
    /// has changed.
    pub fn write(&self, directory: impl AsRef<Path>) -> Result<Vec<FileChange>, ManifestsError> {
        files::write(directory.as_ref(), &self.files())
    }

    /// The program that `mizzen generate` runs: writes the files into `--output DIR`, by default
    /// `config`; with `--check` only compares them.
    ///
    /// ```no_run
    /// use std::process::ExitCode;
    /// use mizzen_sdk::manifests::Manifests;
    ///
    /// fn main() -> ExitCode {
    ///     Manifests::new("shop").main()
    /// }
    /// ```
    pub fn main(&self) -> ExitCode {
        const USAGE: &str = "usage: manifests [--output DIR] [--check]\n\n  \
             --output DIR  Write the manifests into this directory [default: config]\n  \
             --check       Fail if the files in the directory are not current; change nothing";
        let (mut directory, mut is_check) = (PathBuf::from("config"), false);
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            match (argument.as_str(), argument.strip_prefix("--output=")) {
                (_, Some(value)) => directory = value.into(),
                ("--output", _) => match arguments.next() {
                    Some(value) => directory = value.into(),
                    None => return usage_error("--output needs a directory", USAGE),
                },
                ("--check", _) => is_check = true,
                ("--help" | "-h", _) => {
                    println!("{USAGE}");
                    return ExitCode::SUCCESS;
                }
                _ => return usage_error(&format!("unknown argument {argument:?}"), USAGE),
            }
        }
        let outcome = match is_check {
            true => self.check(&directory).map(|()| Vec::new()),
            false => self.write(&directory),
        };
        match outcome {
            Ok(changes) => {
                for change in &changes {
                    println!("{}", change.within(&directory));
                }
                let has_changed = |change: &FileChange| !matches!(change, FileChange::Kept(_));
                if !changes.iter().any(has_changed) {
                    println!("{} is current", directory.display());
                }
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("{}: {error}", directory.display());
                ExitCode::FAILURE
            }
        }
    }
}

fn usage_error(message: &str, usage: &str) -> ExitCode {
    eprintln!("{message}\n{usage}");
    ExitCode::from(2)
}
