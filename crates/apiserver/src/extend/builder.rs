//! The builder of API servers.

use std::any::Any;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use mizzen_authentication::Authenticator;
use mizzen_authorization::Authorizer;
use mizzen_object::schema::{SchemaParseError, Schemas};
use mizzen_object::{GroupResource, GroupVersionKind, Hooks, Kind, NoHooks};
use mizzen_registry::Registry;
use mizzen_serving::MetaSchemas;
use mizzen_value::Str;
use serde::Serialize;

use super::definition::{self, DefinitionExtensions};
use super::write_hook::WriteHookStrategy;
use super::{
    AdmissionPlugin, ConnectHandler, Extension, Extensions, Handler, Hints, NonResourceHandler,
    Storage, SubresourceHandler, WriteHook,
};
use crate::admission::WriteStrategy;
use crate::catalog::{BuiltInKinds, Catalog, ServedKind};
use crate::delegate::{
    self, InProcessMain, MainAuthorizer, MainServer, RunError, Serving, Upstream,
};
use crate::{Options, Server, health};

/// Builds an API server that serves the given kinds and nothing else.
///
/// ```
/// use std::sync::Arc;
/// use mizzen_apiserver::Server;
/// use mizzen_apiserver::clock::{SystemRandom, WallClock};
/// use mizzen_registry::{Registry, Store};
///
/// const THINGS: &str = "
/// apiVersion: apiextensions.k8s.io/v1
/// kind: CustomResourceDefinition
/// metadata: {name: things.example.com}
/// spec:
///   group: example.com
///   names: {plural: things, kind: Thing}
///   scope: Namespaced
///   versions:
///   - name: v1
///     served: true
///     storage: true
///     schema:
///       openAPIV3Schema:
///         type: object
///         properties:
///           size: {type: integer, minimum: 0}
/// ";
///
/// let store = Store::in_memory(Default::default());
/// let registry = Registry::new(store, Arc::new(WallClock), Arc::new(SystemRandom));
/// let server = Server::builder(registry).definition(THINGS).build().unwrap();
/// ```
pub struct Builder {
    registry: Registry,
    options: Options,
    files: Vec<(String, String)>,
    definitions: Vec<Result<String, String>>,
    hooks: HashMap<GroupVersionKind, Arc<dyn Hooks>>,
    /// The subresources with handlers, and their verbs where a definition describes the kind.
    subresources: HashMap<(GroupResource, Str), &'static [&'static str]>,
    built_in: Option<BuiltInKinds>,
    extensions: Extensions,
}

/// Why a server could not be built.
///
/// ```
/// use mizzen_apiserver::Server;
/// use mizzen_apiserver::extend::BuildError;
/// use mizzen_object::{GroupVersionKind, NoHooks};
/// # use std::sync::Arc;
/// # use mizzen_apiserver::clock::{SystemRandom, WallClock};
/// # use mizzen_registry::{Registry, Store};
/// # let registry = Registry::new(Store::in_memory(Default::default()), Arc::new(WallClock), Arc::new(SystemRandom));
/// # const THING: &str = "
/// # metadata: {name: things.example.com}
/// # spec:
/// #   group: example.com
/// #   names: {plural: things, kind: Thing}
/// #   scope: Cluster
/// #   versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {size: {type: integer}}}}}]
/// # ";
///
/// // A slip: the kind is called Thing.
/// let built = Server::builder(registry)
///     .definition(THING)
///     .hooks(GroupVersionKind::new("example.com", "v1", "Things"), NoHooks)
///     .build();
/// let Err(error @ BuildError::Unknown { .. }) = built else {
///     panic!("it is an error");
/// };
/// assert_eq!(error.to_string(), "there is no kind example.com/v1, Kind=Things; there are: example.com/v1, Kind=Thing");
/// ```
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A file of kinds is invalid.
    #[error(transparent)]
    Kinds(#[from] SchemaParseError),
    /// A definition is invalid.
    #[error("a definition cannot be served: {0}")]
    Definition(String),
    /// Hooks, a storage or a handler are given for an unknown kind or resource.
    #[error("there is no {what}{}", .known.as_ref().map(|known| format!("; there are: {known}")).unwrap_or_default())]
    Unknown {
        /// What was named.
        what: String,
        /// What could have been named.
        known: Option<String>,
    },
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
            subresources: HashMap::new(),
            built_in: None,
            extensions: Extensions::default(),
        }
    }
}

impl Builder {
    /// Serves the kinds of a CustomResourceDefinition, given as YAML or JSON. It need not be created through the API.
    /// [Hooks](Builder::hooks) add rules beyond its schema and convert between its versions.
    pub fn definition(mut self, text: &str) -> Builder {
        self.definitions.push(Ok(text.into()));
        self
    }

    /// Serves the kinds of a CustomResourceDefinition that is a value, such as `Pizza::crd()` of a Rust type that derives
    /// kube's `CustomResource`.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use mizzen_apiserver::Server;
    /// # use mizzen_apiserver::clock::{SystemRandom, WallClock};
    /// # use mizzen_registry::{Registry, Store};
    /// # let store = Store::in_memory(Default::default());
    /// # let registry = Registry::new(store, Arc::new(WallClock), Arc::new(SystemRandom));
    /// let schema = serde_json::json!({ "openAPIV3Schema": { "type": "object" } });
    /// let definition = serde_json::json!({
    ///     "metadata": { "name": "things.example.com" },
    ///     "spec": {
    ///         "group": "example.com",
    ///         "names": { "plural": "things", "kind": "Thing" },
    ///         "scope": "Cluster",
    ///         "versions": [{ "name": "v1", "served": true, "storage": true, "schema": schema }],
    ///     },
    /// });
    /// let server = Server::builder(registry).kind(&definition).build().unwrap();
    /// ```
    pub fn kind(mut self, definition: &impl Serialize) -> Builder {
        let text = serde_json::to_string(definition).map_err(|error| error.to_string());
        self.definitions.push(text);
        self
    }

    /// Serves the kinds of a file, in the form of `crates/schemas/data/README.md`; `name` is for error messages. Such kinds
    /// have protobuf, a hub that is not served, and subresources of other kinds. A kind without `verbs` is not served;
    /// other kinds can be `stored` as it.
    pub fn kinds(mut self, name: &str, text: &str) -> Builder {
        self.files.push((name.into(), text.into()));
        self
    }

    /// Serves these kinds instead of those of files and definitions. If CustomResourceDefinition is among them, the server
    /// serves custom resources once it is [started](Server::start).
    pub fn built_in(mut self, kinds: BuiltInKinds) -> Builder {
        self.built_in = Some(kinds);
        self
    }

    /// The hooks of a kind. Hooks of the version of the request convert, default and validate; hooks of the storage version
    /// control graceful deletion, for a definition those of the version of the request.
    pub fn hooks(mut self, kind: GroupVersionKind, hooks: impl Hooks + 'static) -> Builder {
        self.hooks.insert(kind, Arc::new(hooks));
        self
    }

    /// Adds an admission plug-in, after those that were added before.
    ///
    /// ```
    /// use mizzen_apiserver::Server;
    /// use mizzen_apiserver::extend::{AdmissionPlugin, Error, RequestContext};
    /// use mizzen_value::Value;
    /// # use std::sync::Arc;
    /// # use mizzen_apiserver::clock::{SystemRandom, WallClock};
    /// # use mizzen_registry::{Registry, Store};
    /// # let registry = Registry::new(Store::in_memory(Default::default()), Arc::new(WallClock), Arc::new(SystemRandom));
    /// # const THING: &str = "
    /// # metadata: {name: things.example.com}
    /// # spec:
    /// #   group: example.com
    /// #   names: {plural: things, kind: Thing}
    /// #   scope: Cluster
    /// #   versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {size: {type: integer}}}}}]
    /// # ";
    ///
    /// /// Things are not made on Sundays, and there is nothing but things.
    /// struct Closed;
    ///
    /// impl AdmissionPlugin for Closed {
    ///     async fn validate(&self, context: &RequestContext<'_>, object: Option<&Value>) -> Result<(), Error> {
    ///         match object {
    ///             Some(object) if context.verb == "create" => Err(context.forbidden(object, "it is Sunday")),
    ///             _ => Ok(()),
    ///         }
    ///     }
    /// }
    ///
    /// let server = Server::builder(registry).definition(THING).admission(Closed).build()?;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let body = r#"{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"one"}}"#.into();
    /// # let admin = mizzen_apiserver::User::master("admin");
    /// # let uri = "/apis/example.com/v1/things".parse().unwrap();
    /// # let answer = server.call(Some(admin), http::Method::POST, uri, http::HeaderMap::new(), body).await;
    /// # assert_eq!(answer.status(), 403);
    /// # });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn admission(mut self, admission: impl AdmissionPlugin + 'static) -> Builder {
        self.extensions.admission.push(Arc::new(admission));
        self
    }

    /// Adds a hook around writes, after those that were added before.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU16, Ordering};
    /// use mizzen_apiserver::Server;
    /// use mizzen_apiserver::extend::{Error, RequestContext, WriteHook};
    /// use mizzen_value::Value;
    /// # use mizzen_apiserver::clock::{SystemRandom, WallClock};
    /// # use mizzen_registry::{Registry, Store};
    /// # let registry = Registry::new(Store::in_memory(Default::default()), Arc::new(WallClock), Arc::new(SystemRandom));
    /// # const THING: &str = "
    /// # metadata: {name: things.example.com}
    /// # spec:
    /// #   group: example.com
    /// #   names: {plural: things, kind: Thing}
    /// #   scope: Cluster
    /// #   versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {size: {type: integer}}}}}]
    /// # ";
    ///
    /// /// Counts writes in progress.
    /// #[derive(Clone, Default)]
    /// struct InProgress(Arc<AtomicU16>);
    ///
    /// impl WriteHook for InProgress {
    ///     type Allocation = ();
    ///
    ///     async fn begin(&self, _: &RequestContext<'_>, _: &mut Value) -> Result<Option<()>, Error> {
    ///         self.0.fetch_add(1, Ordering::Relaxed);
    ///         Ok(Some(()))
    ///     }
    ///
    ///     async fn finish(&self, (): (), _is_stored: bool) {
    ///         self.0.fetch_sub(1, Ordering::Relaxed);
    ///     }
    /// }
    ///
    /// let in_progress = InProgress::default();
    /// let server = Server::builder(registry).definition(THING).write_hook(in_progress.clone()).build()?;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let body = r#"{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"one"}}"#.into();
    /// # let admin = mizzen_apiserver::User::master("admin");
    /// # let uri = "/apis/example.com/v1/things".parse().unwrap();
    /// # let answer = server.call(Some(admin), http::Method::POST, uri, http::HeaderMap::new(), body).await;
    /// # assert_eq!(answer.status(), 201);
    /// # assert_eq!(in_progress.0.load(Ordering::Relaxed), 0);
    /// # });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_hook(self, hook: impl WriteHook) -> Builder {
        self.write_strategy(WriteHookStrategy::new(hook))
    }

    /// Uses a storage in place of the store for a resource.
    ///
    /// ```
    /// use mizzen_apiserver::Server;
    /// use mizzen_apiserver::extend::{Error, RequestContext, Storage};
    /// use mizzen_object::GroupResource;
    /// use mizzen_value::{Value, value};
    /// # use std::sync::Arc;
    /// # use mizzen_apiserver::clock::{SystemRandom, WallClock};
    /// # use mizzen_registry::{Registry, Store};
    /// # let registry = Registry::new(Store::in_memory(Default::default()), Arc::new(WallClock), Arc::new(SystemRandom));
    /// # const THING: &str = "
    /// # metadata: {name: things.example.com}
    /// # spec:
    /// #   group: example.com
    /// #   names: {plural: things, kind: Thing}
    /// #   scope: Cluster
    /// #   versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {size: {type: integer}}}}}]
    /// # ";
    ///
    /// /// Two things that are computed.
    /// struct Computed;
    ///
    /// impl Storage for Computed {
    ///     async fn list(&self, _: &RequestContext<'_>) -> Result<Vec<Value>, Error> {
    ///         let thing = |name: &str, size: i64| value!({ "metadata": { "name": name }, "size": size });
    ///         Ok(vec![thing("large", 9), thing("small", 1)])
    ///     }
    /// }
    ///
    /// const THINGS: GroupResource = GroupResource::new("example.com", "things");
    ///
    /// let server = Server::builder(registry).definition(THING).storage(THINGS, Computed).build()?;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let small = server.read("/apis/example.com/v1/things/small").await?;
    /// assert_eq!(small["size"].int(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn storage(self, resource: GroupResource, storage: impl Storage + 'static) -> Builder {
        self.own(resource, "", Extension::Storage(Arc::new(storage)))
    }

    /// Adds the handler of a subresource.
    ///
    /// ```
    /// use mizzen_apiserver::Server;
    /// use mizzen_apiserver::extend::{Error, RequestContext, SubresourceHandler};
    /// use mizzen_object::GroupResource;
    /// use mizzen_value::{Value, value};
    /// # use std::sync::Arc;
    /// # use mizzen_apiserver::clock::{SystemRandom, WallClock};
    /// # use mizzen_registry::{Registry, Store};
    /// # let registry = Registry::new(Store::in_memory(Default::default()), Arc::new(WallClock), Arc::new(SystemRandom));
    /// # const THING: &str = "
    /// # metadata: {name: things.example.com}
    /// # spec:
    /// #   group: example.com
    /// #   names: {plural: things, kind: Thing}
    /// #   scope: Cluster
    /// #   versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {size: {type: integer}}}}}]
    /// # ";
    ///
    /// /// `things/NAME/greeting`.
    /// struct Greeting;
    ///
    /// impl SubresourceHandler for Greeting {
    ///     async fn answer(&self, context: &RequestContext<'_>, _body: Value) -> Result<Value, Error> {
    ///         let Some(_thing) = context.old else {
    ///             return Err(context.not_found());
    ///         };
    ///         Ok(value!({ "text": (format!("hello {}", context.name)) }))
    ///     }
    /// }
    ///
    /// const THINGS: GroupResource = GroupResource::new("example.com", "things");
    ///
    /// let server = Server::builder(registry).definition(THING).subresource(THINGS, "greeting", Greeting).build()?;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let body = r#"{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"one"}}"#.into();
    /// # let admin = mizzen_apiserver::User::master("admin");
    /// # let uri = "/apis/example.com/v1/things".parse().unwrap();
    /// # server.call(Some(admin), http::Method::POST, uri, http::HeaderMap::new(), body).await;
    /// let greeting = server.read("/apis/example.com/v1/things/one/greeting").await?;
    /// assert_eq!(greeting["text"].str(), "hello one");
    /// # assert_eq!(server.read("/apis/example.com/v1/things/two/greeting").await.unwrap_err().code, 404);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn subresource(
        mut self,
        resource: GroupResource,
        name: &str,
        handler: impl SubresourceHandler + 'static,
    ) -> Builder {
        let key = (resource.clone(), name.into());
        self.subresources.insert(key, handler.verbs());
        self.own(resource, name, Extension::Subresource(Arc::new(handler)))
    }

    /// Adds the handler of a subresource that upgrades the connection.
    pub fn connect(
        mut self,
        resource: GroupResource,
        name: &str,
        handler: impl ConnectHandler + 'static,
    ) -> Builder {
        let key = (resource.clone(), name.into());
        self.subresources.insert(key, &["create", "get"]);
        self.own(resource, name, Extension::Connect(Arc::new(handler)))
    }

    /// Adds a handler of a resource or of a subresource of it, with access to the whole request. An empty `subresource` is
    /// the resource itself.
    pub fn handler(self, resource: GroupResource, subresource: &str, handler: Handler) -> Builder {
        self.own(resource, subresource, Extension::Handler(handler))
    }

    /// Adds a CONNECT subresource of a built-in kind: `pods`, `proxy`. Unlike a [`handler`](Builder::handler) it gets requests
    /// of all methods, with any path after the subresource.
    pub fn connection(
        mut self,
        resource: GroupResource,
        subresource: &str,
        handler: Handler,
    ) -> Builder {
        let key = (resource, subresource.into());
        self.extensions.connections.insert(key, handler);
        self
    }

    /// Adds a write strategy, which allocates or reserves for writes, after those that were added before.
    pub fn write_strategy(mut self, strategy: impl WriteStrategy + 'static) -> Builder {
        self.extensions.write_strategies.push(Arc::new(strategy));
        self
    }

    /// Adds a handler of non-resource paths, after those that were added before.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::Response;
    /// use mizzen_apiserver::{NonResourceHandler, NonResourceRequest, Server, User};
    /// # use std::sync::Arc;
    /// # use mizzen_apiserver::clock::{SystemRandom, WallClock};
    /// # use mizzen_registry::{Registry, Store};
    /// # let registry = Registry::new(Store::in_memory(Default::default()), Arc::new(WallClock), Arc::new(SystemRandom));
    ///
    /// struct Greeting;
    ///
    /// impl NonResourceHandler for Greeting {
    ///     async fn serve(&self, request: NonResourceRequest<'_>) -> Option<Response<Bytes>> {
    ///         (request.path == "/greeting").then(|| Response::new("hello\n".into()))
    ///     }
    /// }
    ///
    /// let server = Server::builder(registry).non_resource(Greeting).build()?;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let (admin, uri) = (User::master("admin"), "/greeting".parse().unwrap());
    /// let answer = server.call(Some(admin), http::Method::GET, uri, Default::default(), Bytes::new()).await;
    /// assert_eq!(answer.into_body().into_bytes().unwrap(), "hello\n");
    /// # });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn non_resource(mut self, handler: impl NonResourceHandler + 'static) -> Builder {
        let handlers = std::mem::take(&mut self.options.non_resource_handlers);
        self.options.non_resource_handlers = handlers.with(handler);
        self
    }

    /// Adds hints for requests of resources that are not served.
    ///
    /// ```
    /// use mizzen_apiserver::Server;
    /// use mizzen_apiserver::extend::Hints;
    /// use mizzen_apiserver::request::Request;
    /// # use std::sync::Arc;
    /// # use mizzen_apiserver::clock::{SystemRandom, WallClock};
    /// # use mizzen_registry::{Registry, Store};
    /// # let registry = Registry::new(Store::in_memory(Default::default()), Arc::new(WallClock), Arc::new(SystemRandom));
    ///
    /// struct Moved;
    ///
    /// impl Hints for Moved {
    ///     fn not_found(&self, request: &Request) -> Option<String> {
    ///         let is_old = request.uri.path().starts_with("/apis/old.example.com");
    ///         is_old.then(|| "old.example.com is example.com now".into())
    ///     }
    ///
    ///     fn list_definitions(&self, _: &Request) -> Option<String> {
    ///         None
    ///     }
    /// }
    ///
    /// let server = Server::builder(registry).hints(Moved).build()?;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let admin = mizzen_apiserver::User::master("admin");
    /// # let uri = "/apis/old.example.com/v1/things".parse().unwrap();
    /// # let answer = server.call(Some(admin), http::Method::GET, uri, Default::default(), Default::default()).await;
    /// # assert_eq!(answer.headers()["warning"], r#"299 - "old.example.com is example.com now""#);
    /// # });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn hints(mut self, hints: impl Hints + 'static) -> Builder {
        self.extensions.hints = Some(Arc::new(hints));
        self
    }

    /// Keeps `state` with the server, for plug-ins and handlers: [`Server::state`].
    ///
    /// ```
    /// use mizzen_apiserver::Server;
    /// # use std::sync::Arc;
    /// # use mizzen_apiserver::clock::{SystemRandom, WallClock};
    /// # use mizzen_registry::{Registry, Store};
    /// # let registry = Registry::new(Store::in_memory(Default::default()), Arc::new(WallClock), Arc::new(SystemRandom));
    ///
    /// struct Prices {
    ///     cents: i64,
    /// }
    ///
    /// let server = Server::builder(registry).state(Prices { cents: 250 }).build()?;
    /// // A handler reads it by `context.server.state()`.
    /// assert_eq!(server.state::<Prices>().unwrap().cents, 250);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn state(mut self, state: impl Any + Send + Sync) -> Builder {
        self.extensions.state = Some(Arc::new(state));
        self
    }

    fn own(mut self, resource: GroupResource, subresource: &str, own: Extension) -> Builder {
        let key = (resource, subresource.into());
        self.extensions.answers.insert(key, own);
        self
    }

    /// Serves behind the main server `upstream`, as an aggregated API server: it authenticates and authorizes, and its
    /// namespaces, admission policies and admission webhooks apply to the kinds of this server.
    /// [`Options::admission_plugins`] has the plug-ins for that.
    pub fn upstream(mut self, upstream: &Upstream) -> Builder {
        let plugins = &mut self.options.admission_plugins;
        plugins.extend(delegate::ADMISSION_PLUGINS);
        self.options.authentication.proxy_headers = upstream.proxy_headers();
        self.extensions.main = Some(MainServer::Remote(upstream.clone()));
        self.authenticator(Arc::new(upstream.clone()))
            .authorizer(Arc::new(upstream.clone()))
    }

    /// Serves behind `main`, in the same process. The admission plug-ins of an aggregated server run, as far as `main` has
    /// them.
    pub(crate) fn behind(mut self, main: &Server) -> Builder {
        let plugins = delegate::ADMISSION_PLUGINS.into_iter();
        let enabled = plugins.filter(|plugin| main.0.options.has_plugin(plugin.name));
        self.options.admission_plugins.extend(enabled);
        self.extensions.main = Some(MainServer::InProcess(InProcessMain::new(main)));
        self.authorizer(Arc::new(MainAuthorizer(main.0.itself.clone())))
    }

    /// Adds an authenticator of tokens, after those that were added before.
    ///
    /// ```
    /// use mizzen_apiserver::{Server, User};
    /// use mizzen_authentication::{AuthenticatedToken, AuthenticationResult, Authenticator};
    /// use mizzen_authorization::{Attributes, Authorizer, Decision};
    /// use mizzen_registry::BoxFuture;
    /// use mizzen_value::Str;
    /// # use std::sync::Arc;
    /// # use mizzen_apiserver::clock::{SystemRandom, WallClock};
    /// # use mizzen_registry::{Registry, Store};
    /// # let registry = Registry::new(Store::in_memory(Default::default()), Arc::new(WallClock), Arc::new(SystemRandom));
    ///
    /// /// One token, of a user who may do anything.
    /// #[derive(Debug)]
    /// struct Sesame;
    ///
    /// impl Authenticator for Sesame {
    ///     fn authenticate<'a>(&'a self, token: &'a str, audiences: &'a [Str]) -> BoxFuture<'a, AuthenticationResult> {
    ///         let user = (token == "sesame").then(|| AuthenticatedToken {
    ///             user: User::master("jane"),
    ///             audiences: audiences.to_vec(),
    ///         });
    ///         Box::pin(std::future::ready(Ok(user)))
    ///     }
    /// }
    ///
    /// let server = Server::builder(registry).authenticator(Arc::new(Sesame)).build()?;
    /// # drop(server);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn authenticator(mut self, authenticator: Arc<dyn Authenticator>) -> Builder {
        self.options
            .authentication
            .authenticators
            .push(authenticator);
        self
    }

    /// Adds an authorizer, after those that were added before. Without one only `system:masters` is
    /// authorized.
    ///
    /// ```
    /// use mizzen_apiserver::{Server, User};
    /// use mizzen_authorization::{Attributes, Authorizer, Decision, DecisionReason};
    /// use mizzen_registry::BoxFuture;
    /// # use std::sync::Arc;
    /// # use mizzen_apiserver::clock::{SystemRandom, WallClock};
    /// # use mizzen_registry::{Registry, Store};
    /// # let registry = Registry::new(Store::in_memory(Default::default()), Arc::new(WallClock), Arc::new(SystemRandom));
    /// # const THING: &str = "
    /// # metadata: {name: things.example.com}
    /// # spec:
    /// #   group: example.com
    /// #   names: {plural: things, kind: Thing}
    /// #   scope: Cluster
    /// #   versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {size: {type: integer}}}}}]
    /// # ";
    ///
    /// /// Everyone may read.
    /// #[derive(Debug)]
    /// struct ReadOnly;
    ///
    /// impl Authorizer for ReadOnly {
    ///     fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Decision> {
    ///         let decision = match attributes.verb {
    ///             "get" | "list" | "watch" => Decision::Allow(DecisionReason::new("everyone may read")),
    ///             _ => Decision::NoOpinion(DecisionReason::default()),
    ///         };
    ///         Box::pin(std::future::ready(decision))
    ///     }
    /// }
    ///
    /// let server = Server::builder(registry).definition(THING).authorizer(Arc::new(ReadOnly)).build()?;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let jane = User { name: "jane".into(), ..User::default() };
    /// let things = server.read_as(jane, "/apis/example.com/v1/things").await?;
    /// assert!(things["items"].list().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn authorizer(mut self, authorizer: Arc<dyn Authorizer>) -> Builder {
        self.options.authorizers.push(authorizer);
        self
    }

    /// Changes any other option.
    ///
    /// ```
    /// use mizzen_apiserver::Server;
    /// # use std::sync::Arc;
    /// # use mizzen_apiserver::clock::{SystemRandom, WallClock};
    /// # use mizzen_registry::{Registry, Store};
    /// # let registry = Registry::new(Store::in_memory(Default::default()), Arc::new(WallClock), Arc::new(SystemRandom));
    ///
    /// let server = Server::builder(registry).options(|options| options.request_timeout = 10).build()?;
    /// # drop(server);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn options(mut self, change: impl FnOnce(&mut Options)) -> Builder {
        change(&mut self.options);
        self
    }

    /// Builds the server and [runs](Server::run) it until `stop` resolves.
    pub async fn run(
        self,
        serving: Serving,
        stop: impl Future<Output = ()>,
    ) -> Result<(), RunError> {
        self.build()?.run(serving, stop).await
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
        let mut served = self.join_hooks(&mut schemas);
        let mut extensions = DefinitionExtensions {
            hooks: &mut self.hooks,
            subresources: &self.subresources,
        };
        for text in &self.definitions {
            let kinds = text
                .as_ref()
                .map_err(String::clone)
                .and_then(|text| definition::read(text, self.registry.store(), &mut extensions));
            served.extend(kinds.map_err(BuildError::Definition)?);
        }
        self.check(&served)?;
        let types = MetaSchemas::new(&schemas);
        let catalog = Catalog::of(self.registry.store(), served, schemas, |_, _| None);
        let server = Server::join(self.registry, catalog, types, self.options, self.extensions);
        // Its kinds are served from the beginning: nothing has to be started.
        server.complete(&health::START);
        Ok(server)
    }

    /// The kinds of files, with their hooks.
    fn join_hooks(&mut self, schemas: &mut Schemas) -> Vec<ServedKind> {
        let kinds = std::mem::take(&mut schemas.kinds).into_iter();
        let served = kinds.map(|data| {
            let hooks = self.hooks.remove(&data.gvk);
            Kind {
                data: Arc::new(data),
                hooks: hooks.unwrap_or_else(|| Arc::new(NoHooks)),
            }
            .into()
        });
        served.collect()
    }

    /// Rejects hooks, storages and handlers of unknown kinds and resources.
    fn check(&self, all: &[ServedKind]) -> Result<(), BuildError> {
        let kinds = || all.iter().map(ServedKind::kind);
        for ServedKind { published, convert } in all {
            let kind = &published.kind;
            if kind.plural.is_empty() && !kind.verbs.is_empty() {
                return Err(BuildError::Unknown {
                    what: format!("plural name of {}", kind.gvk),
                    known: None,
                });
            }
            // A definition may store a version that it does not serve.
            let stored = kind.stored.as_ref().filter(|_| convert.is_none());
            if let Some(stored) = stored
                && !kinds().any(|other| other.gvk == *stored)
            {
                return Err(BuildError::Unknown {
                    what: format!("kind {stored}, as which {} is stored", kind.gvk),
                    known: alternatives(kinds().map(|kind| kind.gvk.to_string())),
                });
            }
        }
        if let Some(unknown) = self.hooks.keys().min() {
            return Err(BuildError::Unknown {
                what: format!("kind {unknown}"),
                known: alternatives(kinds().map(|kind| kind.gvk.to_string())),
            });
        }
        let mut named: Vec<_> = self.extensions.answers.keys().collect();
        named.sort();
        for (resource, name) in named {
            let of_resource = || kinds().filter(|kind| kind.resource() == *resource);
            if of_resource().next().is_none() {
                let served = kinds().filter(|kind| !kind.verbs.is_empty());
                return Err(BuildError::Unknown {
                    what: format!("resource {resource}"),
                    known: alternatives(served.map(|kind| kind.resource().to_string())),
                });
            }
            if !name.is_empty() && of_resource().all(|kind| kind.subresource(name).is_none()) {
                let known = of_resource().flat_map(|kind| &kind.subresources);
                return Err(BuildError::Unknown {
                    what: format!("subresource {name} of {resource}"),
                    known: alternatives(known.map(|subresource| subresource.name.to_string())),
                });
            }
        }
        Ok(())
    }
}

/// The names that could have been given, for an error message.
fn alternatives(names: impl Iterator<Item = String>) -> Option<String> {
    let names: BTreeSet<String> = names.collect();
    let names: Vec<String> = names.into_iter().collect();
    (!names.is_empty()).then(|| names.join(", "))
}
