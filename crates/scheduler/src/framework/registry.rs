//! Which plugins exist besides those in tree.

use std::collections::BTreeMap;
use std::sync::Arc;

use mizzen_value::Value;

use super::{BoxError, Plugin, WaitingPods};
use crate::plugin::Name;

/// The arguments of a plugin: `args` of its entry in the `pluginConfig` of a profile, or null.
///
/// ```
/// use mizzen_scheduler::framework::{BoxError, PluginArgs};
///
/// /// The label of `pluginConfig: [{name: Tiers, args: {label: example.com/tier}}]`.
/// fn label(args: &PluginArgs) -> Result<&str, BoxError> {
///     match args["label"].as_str() {
///         Some("") => Err("label must not be empty".into()),
///         Some(label) => Ok(label),
///         None => Ok("tier"),
///     }
/// }
///
/// assert_eq!(label(&PluginArgs::default()).unwrap(), "tier");
/// ```
pub type PluginArgs = Value;

type CreatePlugin = Arc<dyn Fn(&PluginArgs) -> Result<Plugin, BoxError> + Send + Sync>;

/// Creates the plugins that a configuration may name besides those in tree (upstream: Registry).
///
/// ```
/// use mizzen_scheduler::Configuration;
/// use mizzen_scheduler::framework::{CycleState, Filter, Node, Plugin, Pod, Registry, Rejection};
///
/// /// Pods go to nodes with the label that the arguments name.
/// struct Labelled(String);
///
/// impl Filter for Labelled {
///     fn filter(&self, _: &CycleState, _: Pod, node: Node) -> Result<(), Rejection> {
///         let found = node.label(&self.0).map(|_| ());
///         found.ok_or_else(|| Rejection::unresolvable("node(s) lacked a label"))
///     }
/// }
///
/// let registry = Registry::new().with("Labelled", |args| {
///     let label = args["label"].as_str().ok_or("label must be set")?;
///     Ok(Plugin::new(Labelled(label.into())).filter().build())
/// })?;
/// let profile = |args: &str| format!("
/// apiVersion: kubescheduler.config.k8s.io/v1
/// kind: KubeSchedulerConfiguration
/// profiles:
/// - plugins: {{filter: {{enabled: [{{name: Labelled}}]}}}}
///   pluginConfig: [{{name: Labelled, args: {args}}}]
/// ");
/// Configuration::parse_with(profile("{label: ssd}").as_bytes(), &registry)?;
/// let error = Configuration::parse_with(profile("{}").as_bytes(), &registry).err().unwrap();
/// assert_eq!(error.to_string(), "initializing plugin \"Labelled\": label must be set");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct Registry {
    plugins: BTreeMap<&'static str, (Name, CreatePlugin)>,
    waiting_pods: WaitingPods,
}

/// Why a plugin cannot be registered.
///
/// ```
/// use mizzen_scheduler::framework::{Plugin, Registry, RegistryError};
///
/// let error = Registry::new().with("NodeAffinity", |_| Ok(Plugin::default())).err();
/// assert_eq!(error, Some(RegistryError::Exists("NodeAffinity".into())));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// Another plugin has the name.
    #[error("a plugin named {0} already exists")]
    Exists(String),
    /// The process has too many plugins.
    #[error("at most {max} plugins can be registered in a process")]
    TooMany {
        /// The limit.
        max: usize,
    },
}

impl Registry {
    /// No plugins.
    pub fn new() -> Registry {
        Registry::default()
    }

    /// Adds a plugin. `create` is called once for each profile that enables it, with its arguments.
    pub fn with(
        mut self,
        name: &str,
        create: impl Fn(&PluginArgs) -> Result<Plugin, BoxError> + Send + Sync + 'static,
    ) -> Result<Registry, RegistryError> {
        if Name::parse(name).is_some() || self.plugins.contains_key(name) {
            return Err(RegistryError::Exists(name.to_owned()));
        }
        let name = Name::register(name).ok_or(RegistryError::TooMany {
            max: Name::MAX_CUSTOM,
        })?;
        self.plugins.insert(name.as_str(), (name, Arc::new(create)));
        Ok(self)
    }

    /// The pods that [`Permit`](super::Permit) plugins delay. A plugin keeps a clone to allow or
    /// reject them later.
    pub fn waiting_pods(&self) -> WaitingPods {
        self.waiting_pods.clone()
    }

    /// The names of all plugins.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.plugins.keys().copied()
    }

    /// The name of a plugin, in tree or not.
    pub(crate) fn parse(&self, name: &str) -> Option<Name> {
        let custom = || self.plugins.get(name).map(|(name, _)| *name);
        Name::parse(name).or_else(custom)
    }

    /// Creates a plugin; `None` if the name is not registered.
    pub(crate) fn create(&self, name: Name, args: &PluginArgs) -> Option<Result<Plugin, BoxError>> {
        let (_, create) = self.plugins.get(name.as_str())?;
        Some(create(args))
    }
}
