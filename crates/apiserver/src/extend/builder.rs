//! Puts an API server together.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

use mizzen_object::schema::{SchemaParseError, Schemas};
use mizzen_object::{GroupResource, Hooks, Kind, NoHooks};
use mizzen_registry::Registry;
use mizzen_value::Str;

use super::{
    AdmissionPlugin, Extension, Extensions, Handler, Hints, Storage, SubresourceHandler, definition,
};
use crate::admission::WriteStrategy;
use crate::authentication::Authenticator;
use crate::authorization::Authorizer;
use crate::catalog::{BuiltInKinds, Catalog, ServedKind};
use crate::types::MetaSchemas;
use crate::{Options, Server, health};

/// An API server that is being put together. It serves what it is told and nothing else.
///
/// ```
/// use std::sync::Arc;
/// use mizzen_apiserver::Server;
/// use mizzen_apiserver::seams::{SystemRandom, WallClock};
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

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A file of kinds cannot be read.
    #[error(transparent)]
    Kinds(#[from] SchemaParseError),
    /// A definition cannot be served.
    #[error("a definition cannot be served: {0}")]
    Definition(String),
    /// Something is said of a kind or resource that is not there.
    #[error("there is no {0}")]
    Unknown(String),
}

impl Server {
    /// Begins to put a server together on `registry`.
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
    /// Serves the kinds of a file, in the form of `crates/schemas/data/README.md`; `name` is for complaints. A kind
    /// without `verbs` is not served; other kinds can be `stored` as it.
    pub fn kinds(mut self, name: &str, text: &str) -> Builder {
        self.files.push((name.into(), text.into()));
        self
    }

    /// Serves the kinds of a CustomResourceDefinition, given as YAML or JSON, without anybody having to create it.
    /// Its rules are those of its schema; what they cannot say goes to [`Builder::admission`].
    pub fn definition(mut self, text: &str) -> Builder {
        self.definitions.push(text.into());
        self
    }

    /// Serves these kinds instead of those of files and definitions. If CustomResourceDefinition is among them, the server
    /// serves what is defined once it is [started](Server::start).
    pub fn built_in(mut self, kinds: BuiltInKinds) -> Builder {
        self.built_in = Some(kinds);
        self
    }

    /// The rules of a kind that are code: `example.com/v1.Thing`. Those of the version that a client speaks convert,
    /// default and judge; those of the version in which objects are stored say how they are deleted.
    pub fn hooks(mut self, kind: &str, hooks: impl Hooks + 'static) -> Builder {
        self.hooks.insert(kind.into(), Arc::new(hooks));
        self
    }

    /// Adds admission that mutates or rejects what is written, after what was added before.
    pub fn admission(mut self, admission: impl AdmissionPlugin + 'static) -> Builder {
        self.extensions.admission.push(Arc::new(admission));
        self
    }

    /// Has the objects of a resource, `things.example.com`, somewhere else than in the store.
    pub fn storage(self, resource: &str, storage: impl Storage + 'static) -> Builder {
        self.own(resource, "", Extension::Storage(Arc::new(storage)))
    }

    /// Answers for a subresource of a resource, `things.example.com`.
    pub fn subresource(
        self,
        resource: &str,
        name: &str,
        below: impl SubresourceHandler + 'static,
    ) -> Builder {
        self.own(resource, name, Extension::Below(Arc::new(below)))
    }

    /// Answers for a resource, `things.example.com`, or for a subresource of it, with everything that the server knows of a
    /// request. An empty `subresource` is the resource itself.
    pub fn handler(self, resource: &str, subresource: &str, handler: Handler) -> Builder {
        self.own(resource, subresource, Extension::Handler(handler))
    }

    /// Connects clients with what is behind the objects of a resource: `pods`, `proxy`. Unlike a [`handler`](Builder::handler)
    /// it gets requests of all methods, with whatever path follows the subresource.
    pub fn connection(mut self, resource: &str, subresource: &str, handler: Handler) -> Builder {
        let key = (group_resource(resource), subresource.into());
        self.extensions.connections.insert(key, handler);
        self
    }

    /// Allocates or reserves what writes need, after those that were added before.
    pub fn write_strategy(mut self, strategy: impl WriteStrategy + 'static) -> Builder {
        self.extensions.write_strategies.push(Arc::new(strategy));
        self
    }

    /// Gives hints to clients that look for what is not served.
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

    /// Changes whatever else can be said of a server.
    pub fn options(mut self, change: impl FnOnce(&mut Options)) -> Builder {
        change(&mut self.options);
        self
    }

    /// The server.
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
        // What it serves is there from the beginning: it has nothing to start.
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

    /// Whatever is said of a resource or kind must be said of one that is there.
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
