//! The builder of API servers.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use mizzen_authentication::Authenticator;
use mizzen_authorization::Authorizer;
use mizzen_object::schema::{SchemaParseError, Schemas};
use mizzen_object::{GroupResource, Hooks, Kind, NoHooks};
use mizzen_registry::Registry;
use mizzen_serving::MetaSchemas;
use mizzen_value::Str;

use super::{
    AdmissionPlugin, Extension, Extensions, Handler, Hints, Storage, SubresourceHandler, definition,
};
use crate::admission::WriteStrategy;
use crate::catalog::{BuiltInKinds, Catalog, ServedKind};
use crate::{Options, Server, health};

/// Builds an API server that serves the given kinds and nothing else.
///
/// ```
/// use std::sync::Arc;
/// use mizzen_apiserver::Server;
/// use mizzen_apiserver::clock::{SystemRandom, WallClock};
/// use mizzen_registry::{Registry, Store};
///
/// const KINDS: &str = "
/// group example.com
/// version v1
/// kind Thing
///   names things thing
///   scope Namespaced
///   verbs create delete get list update watch
///   list ThingList
/// type Thing
///   1 metadata !meta/v1.ObjectMeta
///   2 size int32
/// ";
///
/// let store = Store::in_memory(Default::default());
/// let registry = Registry::new(store, Arc::new(WallClock), Arc::new(SystemRandom));
/// let server = Server::builder(registry).kinds("things.kinds", KINDS).build().unwrap();
/// ```
pub struct Builder {
    registry: Registry,
    options: Options,
    files: Vec<(String, String)>,
    definitions: Vec<String>,
    hooks: HashMap<String, Arc<dyn Hooks>>,
    built_in: Option<BuiltInKinds>,
    extensions: Extensions,
}

/// Why a server could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A file of kinds is invalid.
    #[error(transparent)]
    Kinds(#[from] SchemaParseError),
    /// A definition is invalid.
    #[error("a definition cannot be served: {0}")]
    Definition(String),
    /// Hooks, a storage or a handler are given for an unknown kind or resource.
    #[error("there is no {0}")]
    Unknown(String),
}

impl Server {
    /// A builder of a server on `registry`.
    pub fn builder(registry: Registry) -> Builder {
        Builder {
            registry,
            options: Options::default(),
            files: Vec::new(),
            definitions: Vec::new(),
            hooks: HashMap::new(),
            built_in: None,
            extensions: Extensions::default(),
        }
    }
}

impl Builder {
    /// Serves the kinds of a file, in the form of `crates/schemas/data/README.md`; `name` is for error messages. A
    /// kind without `verbs` is not served; other kinds can be `stored` as it.
    pub fn kinds(mut self, name: &str, text: &str) -> Builder {
        self.files.push((name.into(), text.into()));
        self
    }

    /// Serves the kinds of a CustomResourceDefinition, given as YAML or JSON. It need not be created through the API.
    /// Rules beyond its schema go to [`Builder::admission`].
    pub fn definition(mut self, text: &str) -> Builder {
        self.definitions.push(text.into());
        self
    }

    /// Serves these kinds instead of those of files and definitions. If CustomResourceDefinition is among them, the server
    /// serves custom resources once it is [started](Server::start).
    pub fn built_in(mut self, kinds: BuiltInKinds) -> Builder {
        self.built_in = Some(kinds);
        self
    }

    /// The hooks of a kind: `example.com/v1.Thing`. Hooks of the version of the request convert, default and validate;
    /// hooks of the storage version control graceful deletion.
    pub fn hooks(mut self, kind: &str, hooks: impl Hooks + 'static) -> Builder {
        self.hooks.insert(kind.into(), Arc::new(hooks));
        self
    }

    /// Adds an admission plug-in, after those that were added before.
    pub fn admission(mut self, admission: impl AdmissionPlugin + 'static) -> Builder {
        self.extensions.admission.push(Arc::new(admission));
        self
    }

    /// Uses a storage in place of the store for a resource: `things.example.com`.
    pub fn storage(self, resource: &str, storage: impl Storage + 'static) -> Builder {
        self.own(resource, "", Extension::Storage(Arc::new(storage)))
    }

    /// Adds the handler of a subresource of a resource: `things.example.com`.
    pub fn subresource(
        self,
        resource: &str,
        name: &str,
        below: impl SubresourceHandler + 'static,
    ) -> Builder {
        self.own(resource, name, Extension::Below(Arc::new(below)))
    }

    /// Adds a handler of a resource, `things.example.com`, or of a subresource of it, with access to the whole request. An
    /// empty `subresource` is the resource itself.
    pub fn handler(self, resource: &str, subresource: &str, handler: Handler) -> Builder {
        self.own(resource, subresource, Extension::Handler(handler))
    }

    /// Adds a CONNECT subresource: `pods`, `proxy`. Unlike a [`handler`](Builder::handler) it gets requests of all methods,
    /// with any path after the subresource.
    pub fn connection(mut self, resource: &str, subresource: &str, handler: Handler) -> Builder {
        let key = (group_resource(resource), subresource.into());
        self.extensions.connections.insert(key, handler);
        self
    }

    /// Adds a write strategy, which allocates or reserves for writes, after those that were added before.
    pub fn write_strategy(mut self, strategy: impl WriteStrategy + 'static) -> Builder {
        self.extensions.write_strategies.push(Arc::new(strategy));
        self
    }

    /// Adds hints for requests of resources that are not served.
    pub fn hints(mut self, hints: impl Hints + 'static) -> Builder {
        self.extensions.hints = Some(Arc::new(hints));
        self
    }

    /// Keeps `state` with the server, for plug-ins and handlers: [`Server::state`].
    pub fn state(mut self, state: impl Any + Send + Sync) -> Builder {
        self.extensions.state = Some(Arc::new(state));
        self
    }

    fn own(mut self, resource: &str, subresource: &str, own: Extension) -> Builder {
        let key = (group_resource(resource), subresource.into());
        self.extensions.answers.insert(key, own);
        self
    }

    /// Adds an authenticator of tokens, after those that were added before.
    pub fn authenticator(mut self, authenticator: Arc<dyn Authenticator>) -> Builder {
        self.options
            .authentication
            .authenticators
            .push(authenticator);
        self
    }

    /// Adds an authorizer, after those that were added before. Without one only `system:masters` is
    /// authorized.
    pub fn authorizer(mut self, authorizer: Arc<dyn Authorizer>) -> Builder {
        self.options.authorizers.push(authorizer);
        self
    }

    /// Changes any other option.
    pub fn options(mut self, change: impl FnOnce(&mut Options)) -> Builder {
        change(&mut self.options);
        self
    }

    /// Builds the server.
    pub fn build(mut self) -> Result<Server, BuildError> {
        if let Some(built_in) = self.built_in {
            let types = MetaSchemas::new(&built_in.schemas);
            let catalog = Catalog::new(self.registry.store(), built_in);
            return Ok(Server::join(
                self.registry,
                catalog,
                types,
                self.options,
                self.extensions,
            ));
        }
        let files: Vec<(&str, &str)> = self
            .files
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .collect();
        let mut schemas = mizzen_schemas::others(&files)?;
        let mut served = self.join_hooks(&mut schemas)?;
        self.check(&served)?;
        for text in &self.definitions {
            served.extend(
                definition::read(text, self.registry.store()).map_err(BuildError::Definition)?,
            );
        }
        let types = MetaSchemas::new(&schemas);
        let catalog = Catalog::of(self.registry.store(), served, schemas, |_, _| None);
        let server = Server::join(self.registry, catalog, types, self.options, self.extensions);
        // Its kinds are served from the beginning: nothing has to be started.
        server.complete(&health::START);
        Ok(server)
    }

    fn join_hooks(&mut self, schemas: &mut Schemas) -> Result<Vec<ServedKind>, BuildError> {
        let mut served: Vec<ServedKind> = Vec::new();
        for data in std::mem::take(&mut schemas.kinds) {
            let name = format!("{}.{}", data.gvk.api_version(), data.gvk.kind);
            let hooks = self
                .hooks
                .remove(&name)
                .unwrap_or_else(|| Arc::new(NoHooks));
            served.push(
                Kind {
                    data: Arc::new(data),
                    hooks,
                }
                .into(),
            );
        }
        match self.hooks.keys().next() {
            Some(unknown) => Err(BuildError::Unknown(format!("kind {unknown}"))),
            None => Ok(served),
        }
    }

    /// Rejects hooks, storages and handlers of unknown kinds and resources.
    fn check(&self, all: &[ServedKind]) -> Result<(), BuildError> {
        let kinds = || all.iter().map(ServedKind::kind);
        for kind in kinds() {
            if kind.plural.is_empty() && !kind.verbs.is_empty() {
                return Err(BuildError::Unknown(format!("plural name of {}", kind.gvk)));
            }
            let stored = kind
                .stored
                .as_ref()
                .filter(|stored| !kinds().any(|other| other.gvk == **stored));
            if let Some(stored) = stored {
                return Err(BuildError::Unknown(format!(
                    "kind {stored}, as which {} is stored",
                    kind.gvk
                )));
            }
        }
        let has = |kind: &Kind, name: &Str| name.is_empty() || kind.subresource(name).is_some();
        let there = |resource: &GroupResource, name: &Str| {
            kinds().any(|kind| kind.resource() == *resource && has(kind, name))
        };
        let mut answers = self.extensions.answers.keys();
        match answers.find(|(resource, name)| !there(resource, name)) {
            Some((resource, name)) if name.is_empty() => {
                Err(BuildError::Unknown(format!("resource {resource}")))
            }
            Some((resource, name)) => Err(BuildError::Unknown(format!(
                "subresource {name} of {resource}"
            ))),
            None => Ok(()),
        }
    }
}

/// A resource by its name: `things.example.com`.
fn group_resource(name: &str) -> GroupResource {
    let (plural, group) = name.split_once('.').unwrap_or((name, ""));
    GroupResource {
        group: group.into(),
        resource: plural.into(),
    }
}
