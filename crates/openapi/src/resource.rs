//! Paths of a resource: its collections, its objects, and their subresources.
//!
//! Kubernetes: names, descriptions and parameters are those of
//! apiserver/pkg/endpoints/installer.go, from which generated clients derive their methods.

use mizzen_object::schema::Struct;
use mizzen_object::{GroupVersionKind, Subresource};
use mizzen_value::Str;

use super::definition::{definition_of, sibling};
use super::names::{self, META, capital, with_article};
use super::operation::{OBJECTS, OK, PathItem, PathOperation, RequestBody};
use super::parameter::{self, Parameter};
use super::{Published, SpecContext, SpecSubject};

const ANY: &[&str] = &["*/*"];
const CUSTOM_OBJECTS: &[&str] = &["application/json", "application/yaml"];
const LOGS: &[&str] = &[
    "text/plain",
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];
const STREAMS: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];
const PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];
const CUSTOM_PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
];

/// The methods of a path, in order.
const METHODS: &[&str] = &["get", "put", "post", "delete", "options", "head", "patch"];

const CREATED: &[&str] = &["200", "201"];
const ACCEPTED: &[&str] = &["200", "202"];
const CREATED_OR_ACCEPTED: &[&str] = &["200", "201", "202"];

/// A kind with the names of its paths and operations.
pub(super) struct ResourcePaths<'a> {
    published: &'a Published,
    context: &'a SpecContext,
    definition: String,
    base: String,
    words: String,
    tag: String,
    objects: &'static [&'static str],
    streams: &'static [&'static str],
    sent: &'static [&'static str],
    patches: &'static [&'static str],
}

impl<'a> ResourcePaths<'a> {
    /// The paths of a kind; `context` has the types of its query parameters.
    pub(super) fn new(published: &'a Published, context: &'a SpecContext) -> ResourcePaths<'a> {
        let gvk = &published.kind.gvk;
        let subject = SpecSubject::GroupVersion(gvk.group.to_string(), gvk.version.to_string());
        let custom = published.schema.is_some();
        ResourcePaths {
            published,
            context,
            definition: definition_of(published),
            base: format!("/{}", subject.path()),
            words: format!(
                "{}{}",
                names::group_words(&gvk.group),
                names::operation_word(&gvk.version, true)
            ),
            tag: names::tag(&gvk.group, Some(&gvk.version)),
            objects: if custom { CUSTOM_OBJECTS } else { OBJECTS },
            streams: if custom { CUSTOM_OBJECTS } else { STREAMS },
            sent: if custom { CUSTOM_OBJECTS } else { ANY },
            patches: if custom { CUSTOM_PATCHES } else { PATCHES },
        }
    }

    /// Its paths, without those that have no operations.
    pub(super) fn paths(&self) -> Vec<PathItem> {
        let kind = &self.published.kind;
        let mut paths = vec![self.collection(), self.object()];
        if kind.is_namespaced() {
            paths.push(self.everywhere());
        }
        if self.watches() {
            paths.push(self.watch_object());
            paths.push(self.watch_collection());
        }
        if self.watches() && kind.is_namespaced() {
            paths.push(self.watch_everywhere());
        }
        for below in &kind.subresources {
            paths.extend(self.below(below));
        }
        paths.retain(|path| !path.operations.is_empty());
        paths
    }

    fn can(&self, verb: &str) -> bool {
        self.published.kind.verbs.iter().any(|known| known == verb)
    }

    /// Kubernetes: custom kinds have no `/watch/` paths, and their lists do not say "or watch".
    fn watches(&self) -> bool {
        self.can("watch") && self.published.schema.is_none()
    }

    fn collection(&self) -> PathItem {
        let kind = &self.published.kind.gvk.kind;
        let mut operations = Vec::new();
        if self.can("list") {
            operations.push(self.list(self.id("list", "", "")));
        }
        if self.can("create") {
            let description = format!("create {}", with_article(kind));
            operations.push(self.create(self.id("create", "", ""), description, &self.itself()));
        }
        if self.can("deletecollection") {
            operations.push(self.delete_collection());
        }
        self.path("", &self.collection_path(), kind, operations)
    }

    fn object(&self) -> PathItem {
        let kind = &self.published.kind.gvk.kind;
        let itself = self.itself();
        let mut operations = Vec::new();
        if self.can("get") {
            operations.push(self.read(
                self.id("read", "", ""),
                format!("read the specified {kind}"),
                &itself,
            ));
        }
        if self.can("update") {
            let description = format!("replace the specified {kind}");
            operations.push(self.replace(self.id("replace", "", ""), description, &itself));
        }
        if self.can("delete") {
            operations.push(self.delete());
        }
        if self.can("patch") {
            let description = format!("partially update the specified {kind}");
            operations.push(self.patch(self.id("patch", "", ""), description, &itself));
        }
        self.path("", &self.object_path(), kind, operations)
    }

    fn everywhere(&self) -> PathItem {
        let operations = Vec::from_iter(
            self.can("list")
                .then(|| self.list(self.id_everywhere("list", ""))),
        );
        self.path("", &self.published.kind.plural, "", operations)
    }

    fn watch_object(&self) -> PathItem {
        let kind = &self.published.kind.gvk.kind;
        let description = format!(
            "watch changes to an object of kind {kind}. deprecated: use the 'watch' parameter with a list operation \
             instead, filtered to a single item with the 'fieldSelector' parameter."
        );
        let operation = self.watch("watch", self.id("watch", "", ""), description);
        self.path("watch/", &self.object_path(), kind, vec![operation])
    }

    fn watch_collection(&self) -> PathItem {
        let operation = self.watch(
            "watchlist",
            self.id("watch", "", "List"),
            self.watch_description(),
        );
        self.path("watch/", &self.collection_path(), "", vec![operation])
    }

    fn watch_everywhere(&self) -> PathItem {
        let id = self.id_everywhere("watch", "List");
        let operation = self.watch("watchlist", id, self.watch_description());
        self.path("watch/", &self.published.kind.plural, "", vec![operation])
    }

    fn watch_description(&self) -> String {
        format!(
            "watch individual changes to a list of {}. deprecated: use the 'watch' parameter with a list operation \
             instead.",
            self.published.kind.gvk.kind
        )
    }

    /// The paths of a subresource: two if a free path may follow.
    fn below(&self, below: &Subresource) -> Vec<PathItem> {
        let speaks = below.kind.as_ref().unwrap_or(&self.published.kind.gvk);
        match self.options(speaks) {
            Some(options) => self.connections(&ConnectSubresource {
                below,
                speaks,
                options,
            }),
            None => vec![self.subresource(below, speaks)],
        }
    }

    /// The type of the query parameters of a connection.
    fn options(&self, speaks: &GroupVersionKind) -> Option<&'a Struct> {
        let is_options = speaks.kind.ends_with("Options") && speaks.group.is_empty();
        is_options.then(|| self.core_type(&speaks.kind)).flatten()
    }

    fn core_type(&self, name: &str) -> Option<&'a Struct> {
        Some(
            self.context
                .types
                .types
                .get(format!("core/v1.{name}").as_str())?,
        )
    }

    fn subresource(&self, below: &Subresource, speaks: &GroupVersionKind) -> PathItem {
        let kind = &self.published.kind.gvk.kind;
        // Kubernetes: every subresource of a custom kind is said to be about that kind.
        let about = if self.published.schema.is_some() {
            &self.published.kind.gvk
        } else {
            speaks
        };
        let operation_kind = OperationKind {
            kind: about,
            definition: self.definition_of(speaks),
        };
        let (name, suffix) = (&below.name, capital(&below.name));
        let operations = below.verbs.iter().filter_map(|verb| {
            Some(match verb.as_str() {
                "get" if name == "log" => self.read_log(),
                "get" => self.read(
                    self.id("read", "", &suffix),
                    format!("read {name} of the specified {kind}"),
                    &operation_kind,
                ),
                "update" => {
                    let description = format!("replace {name} of the specified {kind}");
                    self.replace(
                        self.id("replace", "", &suffix),
                        description,
                        &operation_kind,
                    )
                }
                "create" => {
                    let description = format!("create {name} of {}", with_article(kind));
                    self.create(self.id("create", "", &suffix), description, &operation_kind)
                }
                "patch" => {
                    let description = format!("partially update {name} of the specified {kind}");
                    self.patch(self.id("patch", "", &suffix), description, &operation_kind)
                }
                _ => return None,
            })
        });
        self.path(
            "",
            &format!("{}/{name}", self.object_path()),
            &about.kind,
            operations.collect(),
        )
    }

    fn connections(&self, connection: &ConnectSubresource) -> Vec<PathItem> {
        let ConnectSubresource {
            below,
            speaks,
            options,
        } = connection;
        let path = format!("{}/{}", self.object_path(), below.name);
        let connect = |suffix: &str| {
            let methods = methods(&below.verbs).iter();
            methods
                .map(|method| self.connect(connection, method, suffix))
                .collect::<Vec<_>>()
        };
        let mut paths = vec![self.path("", &path, &speaks.kind, connect(""))];
        if options.field("path").is_some() {
            let mut open = self.path(
                "",
                &format!("{path}/{{path}}"),
                &speaks.kind,
                connect("WithPath"),
            );
            let rest = parameter::path("path", "path to the resource".into());
            open.operations
                .iter_mut()
                .for_each(|operation| operation.parameters.push(rest.clone()));
            paths.push(open);
        }
        paths
    }

    fn connect(
        &self,
        connection: &ConnectSubresource,
        method: &'static str,
        suffix: &str,
    ) -> PathOperation {
        let ConnectSubresource {
            below,
            speaks,
            options,
        } = connection;
        let kind = &self.published.kind.gvk.kind;
        let suffix = format!("{}{suffix}", capital(&below.name));
        PathOperation {
            method,
            id: self.id("connect", &capital(method), &suffix),
            description: format!(
                "connect {} requests to {} of {kind}",
                method.to_uppercase(),
                below.name
            ),
            action: "connect",
            kind: Some((*speaks).clone()),
            parameters: parameter::options(options).collect(),
            consumes: ANY,
            produces: ANY,
            responses: (OK, None),
            ..PathOperation::default()
        }
    }

    fn list(&self, id: String) -> PathOperation {
        let gvk = &self.published.kind.gvk;
        let what = if self.watches() {
            "list or watch"
        } else {
            "list"
        };
        let list = self
            .published
            .kind
            .list_kind
            .as_ref()
            .map(|list| sibling(&self.definition, list));
        PathOperation {
            method: "get",
            id,
            description: format!("{what} objects of kind {}", gvk.kind),
            action: "list",
            kind: Some(gvk.clone()),
            parameters: self.with_pretty(parameter::LIST),
            consumes: self.sent,
            produces: self.streams,
            responses: (OK, list),
            ..PathOperation::default()
        }
    }

    fn watch(&self, action: &'static str, id: String, description: String) -> PathOperation {
        PathOperation {
            method: "get",
            id,
            description,
            action,
            kind: Some(self.published.kind.gvk.clone()),
            parameters: self.with_pretty(parameter::LIST),
            consumes: self.sent,
            produces: self.streams,
            responses: (OK, Some(format!("{META}.WatchEvent"))),
            ..PathOperation::default()
        }
    }

    fn read(
        &self,
        id: String,
        description: String,
        operation_kind: &OperationKind,
    ) -> PathOperation {
        // Kubernetes: built-in kinds do not document GetOptions
        // (apiserver/pkg/endpoints/installer.go).
        let options: &[&str] = if self.published.schema.is_some() {
            &["resourceVersion"]
        } else {
            &[]
        };
        PathOperation {
            method: "get",
            id,
            description,
            action: "get",
            kind: Some(operation_kind.kind.clone()),
            parameters: self.with_pretty(options),
            consumes: self.sent,
            produces: self.objects,
            responses: (OK, Some(operation_kind.definition.clone())),
            ..PathOperation::default()
        }
    }

    fn read_log(&self) -> PathOperation {
        let description = format!("read log of the specified {}", self.published.kind.gvk.kind);
        let mut operation = self.read(self.id("read", "", "Log"), description, &self.itself());
        let options = self.core_type(&format!("{}LogOptions", self.published.kind.gvk.kind));
        operation
            .parameters
            .extend(options.into_iter().flat_map(parameter::options));
        operation.produces = LOGS;
        operation.responses = (OK, None);
        operation
    }

    fn create(
        &self,
        id: String,
        description: String,
        operation_kind: &OperationKind,
    ) -> PathOperation {
        PathOperation {
            method: "post",
            action: "post",
            ..self.write(id, description, operation_kind, CREATED_OR_ACCEPTED)
        }
    }

    fn replace(
        &self,
        id: String,
        description: String,
        operation_kind: &OperationKind,
    ) -> PathOperation {
        PathOperation {
            method: "put",
            action: "put",
            ..self.write(id, description, operation_kind, CREATED)
        }
    }

    fn write(
        &self,
        id: String,
        description: String,
        operation_kind: &OperationKind,
        codes: &'static [&'static str],
    ) -> PathOperation {
        PathOperation {
            id,
            description,
            kind: Some(operation_kind.kind.clone()),
            parameters: self.with_pretty(parameter::WRITE),
            body: Some(RequestBody {
                definition: operation_kind.definition.clone(),
                required: true,
            }),
            consumes: self.sent,
            produces: self.objects,
            responses: (codes, Some(operation_kind.definition.clone())),
            ..PathOperation::default()
        }
    }

    fn patch(
        &self,
        id: String,
        description: String,
        operation_kind: &OperationKind,
    ) -> PathOperation {
        let codes = if self.published.schema.is_some() {
            OK
        } else {
            CREATED
        };
        PathOperation {
            method: "patch",
            action: "patch",
            parameters: parameter::patch()
                .chain(parameter::query(&["pretty"]))
                .collect(),
            body: Some(RequestBody {
                definition: format!("{META}.Patch"),
                required: true,
            }),
            consumes: self.patches,
            ..self.write(id, description, operation_kind, codes)
        }
    }

    fn delete(&self) -> PathOperation {
        let kind = &self.published.kind;
        // Kubernetes: the storage of namespaces returns the object without documenting it
        // (registry/core/namespace/storage).
        let hidden = kind.gvk.group.is_empty() && kind.gvk.kind == "Namespace";
        let returns_object = kind.rules.delete_answers_object && !hidden;
        let response = if returns_object {
            self.definition.clone()
        } else {
            format!("{META}.Status")
        };
        PathOperation {
            method: "delete",
            id: self.id("delete", "", ""),
            description: format!("delete {}", with_article(&kind.gvk.kind)),
            action: "delete",
            kind: Some(kind.gvk.clone()),
            parameters: self.with_pretty(parameter::DELETE),
            body: Some(RequestBody {
                definition: format!("{META}.DeleteOptions"),
                required: false,
            }),
            consumes: self.sent,
            produces: self.objects,
            responses: (ACCEPTED, Some(response)),
            ..PathOperation::default()
        }
    }

    fn delete_collection(&self) -> PathOperation {
        if self.published.schema.is_some() {
            return self.delete_custom_collection();
        }
        let mut operation = PathOperation {
            id: self.id("delete", "Collection", ""),
            description: format!("delete collection of {}", self.published.kind.gvk.kind),
            action: "deletecollection",
            responses: (OK, Some(format!("{META}.Status"))),
            ..self.delete()
        };
        operation
            .parameters
            .extend(parameter::query(parameter::SELECT));
        operation
    }

    /// Kubernetes: the collection of a custom kind has the parameters of its list, and no options.
    fn delete_custom_collection(&self) -> PathOperation {
        PathOperation {
            id: self.id("delete", "Collection", ""),
            description: format!("delete collection of {}", self.published.kind.gvk.kind),
            action: "deletecollection",
            parameters: self.with_pretty(parameter::LIST),
            body: None,
            responses: (OK, Some(format!("{META}.Status"))),
            ..self.delete()
        }
    }

    /// A path with its parameters. `subject` is what the name parameter names.
    fn path(
        &self,
        before: &str,
        after: &str,
        subject: &str,
        mut operations: Vec<PathOperation>,
    ) -> PathItem {
        let path = format!("{}/{before}{after}", self.base);
        operations.sort_by_key(|operation| {
            METHODS
                .iter()
                .position(|method| *method == operation.method)
        });
        for operation in &mut operations {
            operation.tag = self.tag.clone();
            if path.contains("{name}") {
                operation
                    .parameters
                    .push(parameter::path("name", format!("name of the {subject}")));
            }
            if path.contains("{namespace}") {
                let description = "object name and auth scope, such as for teams and projects";
                operation
                    .parameters
                    .push(parameter::path("namespace", description.into()));
            }
        }
        PathItem { path, operations }
    }

    fn collection_path(&self) -> String {
        let kind = &self.published.kind;
        if kind.is_namespaced() {
            format!("namespaces/{{namespace}}/{}", kind.plural)
        } else {
            kind.plural.to_string()
        }
    }

    fn object_path(&self) -> String {
        format!("{}/{{name}}", self.collection_path())
    }

    fn id(&self, verb: &str, infix: &str, suffix: &str) -> String {
        let kind = &self.published.kind;
        let namespaced = if kind.is_namespaced() {
            "Namespaced"
        } else {
            ""
        };
        let noun = names::operation_word(
            &format!("{infix}{namespaced}{}{suffix}", kind.gvk.kind),
            true,
        );
        format!("{verb}{}{noun}", self.words)
    }

    fn id_everywhere(&self, verb: &str, suffix: &str) -> String {
        let kind = names::operation_word(&self.published.kind.gvk.kind, true);
        format!("{verb}{}{kind}{suffix}ForAllNamespaces", self.words)
    }

    fn with_pretty(&self, names: &[&str]) -> Vec<Parameter> {
        parameter::query(names)
            .chain(parameter::query(&["pretty"]))
            .collect()
    }

    fn itself(&self) -> OperationKind<'_> {
        OperationKind {
            kind: &self.published.kind.gvk,
            definition: self.definition.clone(),
        }
    }

    fn definition_of(&self, speaks: &GroupVersionKind) -> String {
        if *speaks == self.published.kind.gvk {
            return self.definition.clone();
        }
        let group = if speaks.group.is_empty() {
            "core"
        } else {
            &speaks.group
        };
        format!(
            "{}.{}",
            names::package(&format!("{group}/{}", speaks.version)),
            speaks.kind
        )
    }
}

/// A connect subresource with the type of its query parameters.
struct ConnectSubresource<'a> {
    below: &'a Subresource,
    speaks: &'a GroupVersionKind,
    options: &'a Struct,
}

/// What a request to a path is about.
struct OperationKind<'a> {
    kind: &'a GroupVersionKind,
    definition: String,
}

/// The methods of a connection.
///
/// Kubernetes: a proxy also has OPTIONS and HEAD, which no verb corresponds to.
fn methods(verbs: &[Str]) -> &'static [&'static str] {
    if verbs.iter().any(|verb| verb == "delete") {
        METHODS
    } else {
        &["get", "post"]
    }
}
