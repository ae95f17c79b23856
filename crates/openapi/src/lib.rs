//! OpenAPI v2 and v3 documents of Kubernetes kinds, as JSON and as protobuf.
//!
//! Paths, operations, parameters, types, enums, defaults and extensions equal upstream's.
//! Descriptions of types and fields come from the `k8s-openapi` crate.
//!
//! ```
//! use std::sync::Arc;
//!
//! use mizzen_object::{Kind, NoHooks, schema};
//! use mizzen_openapi::OpenApi;
//! use mizzen_value::json;
//!
//! let data = "group example.com\nversion v1\n\nkind Pizza\n  names pizzas pizza\n  list PizzaList\n  verbs get list\n\ntype Pizza\n  2 spec PizzaSpec\n\ntype PizzaSpec\n  1 topping string\n";
//! let schemas = schema::parse([("pizza.kinds", data)]).unwrap();
//! let kinds = schemas.kinds.iter().map(|data| {
//!     let kind = Kind { data: Arc::new(data.clone()), hooks: Arc::new(NoHooks) };
//!     kind.into()
//! });
//! let openapi = OpenApi::new(kinds.collect::<Vec<_>>(), Arc::new(schemas));
//!
//! let document = openapi.v3("apis/example.com/v1").unwrap();
//! let document = json::parse(&document.bytes).unwrap();
//! assert_eq!(document["openapi"].str(), "3.0.0");
//! assert!(document["paths"].get("/apis/example.com/v1/pizzas").is_some());
//! ```
//!
//! A v3 document describes one group version. It is written at its first request and then kept. The
//! v2 document describes everything at once.
//!
//! # Modules
//!
//! - `operation`, `resource` and `parameter`: paths and operations, shared by both versions.
//! - `definition`, `custom`, `opaque` and `enums`: schemas of types.
//! - `prose`: descriptions.
//! - `v2` and `v3`: the documents.
//! - `proto` and `proto3`: their protobuf encodings.
//!
//! Invariant: the hash of a document does not depend on descriptions, so that the index does not
//! load them; it changes with everything else in the document.

mod operation;
mod parameter;
mod resource;

mod custom;
mod definition;
mod enums;
mod names;
mod opaque;
mod prose;
mod registered;

mod hash;
mod proto;
mod proto3;
mod v2;
mod v3;

#[cfg(test)]
mod tests;

pub use hash::hash;

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use definition::Named;
use mizzen_object::Kind;
use mizzen_object::schema::Schemas;
use mizzen_value::{Str, Value, json, value};

/// A document with its hash.
#[derive(Debug, Clone)]
pub struct SpecDocument {
    /// The encoded document.
    pub bytes: Bytes,
    /// The hash, for the ETag and for `?hash=`.
    pub hash: String,
    /// When it was first served, in Unix seconds.
    pub sent: OnceLock<i64>,
}

impl SpecDocument {
    fn new(bytes: impl Into<Bytes>, hash: String) -> SpecDocument {
        SpecDocument {
            bytes: bytes.into(),
            hash,
            sent: OnceLock::new(),
        }
    }
}

/// A kind that is described.
#[derive(Debug, Clone)]
pub struct Published {
    /// The kind.
    pub kind: Kind,
    /// The `spec.versions[].schema.openAPIV3Schema` of a custom kind.
    pub schema: Option<Arc<Value>>,
}

impl From<Kind> for Published {
    fn from(kind: Kind) -> Published {
        Published { kind, schema: None }
    }
}

impl Published {
    fn is_same(&self, other: &Published) -> bool {
        let schemas = match (&self.schema, &other.schema) {
            (Some(mine), Some(theirs)) => Arc::ptr_eq(mine, theirs),
            (mine, theirs) => mine.is_none() && theirs.is_none(),
        };
        schemas && Arc::ptr_eq(&self.kind.data, &other.kind.data)
    }
}

/// All documents, each written at its first request.
pub struct OpenApi {
    context: Arc<SpecContext>,
    pages: BTreeMap<String, Arc<SpecPage>>,
    index: OnceLock<Bytes>,
    v2_json: OnceLock<Arc<SpecDocument>>,
    v2_proto: OnceLock<Arc<SpecDocument>>,
}

/// The types that documents may refer to.
struct SpecContext {
    types: Arc<Schemas>,
    /// The built-in types that are kinds, by full name: `core/v1.Pod`.
    kinds: HashSet<Str>,
    /// The types by definition name.
    named: OnceLock<Named>,
}

/// Kinds of one group version that are built at the first request for their document.
pub struct Pending {
    /// The API group.
    pub group: Str,
    /// The version.
    pub version: Str,
    /// Identifies the kinds: changes whenever they do.
    pub seed: String,
    /// Builds the kinds.
    pub make: Arc<dyn Fn() -> Vec<Published> + Send + Sync>,
}

/// A v3 document and what it describes.
struct SpecPage {
    subject: SpecSubject,
    kinds: Vec<Published>,
    /// The source of the kinds, if they are built on demand.
    pending: Option<Pending>,
    hash: OnceLock<String>,
    document: OnceLock<Arc<SpecDocument>>,
    proto: OnceLock<Arc<SpecDocument>>,
}

/// The subject of a document besides kinds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum SpecSubject {
    /// The OpenID discovery document of the service account issuer.
    Issuer,
    /// `/api`.
    Core,
    /// `/apis`.
    Groups,
    /// `/apis/{group}`.
    Group(String),
    /// `/apis/{group}/{version}`, or `/api/{version}` for the core group.
    GroupVersion(String, String),
    /// The JSON Web Key Set of the service account issuer.
    Keys,
    /// `/version`.
    Version,
}

impl OpenApi {
    /// Describes `kinds`; `types` are those that kinds do not refer to, such as `meta/v1.Status`.
    pub fn new(kinds: impl IntoIterator<Item = Published>, types: Arc<Schemas>) -> OpenApi {
        let mut subjects: BTreeMap<SpecSubject, Vec<Published>> = BTreeMap::new();
        for subject in [
            SpecSubject::Issuer,
            SpecSubject::Core,
            SpecSubject::Groups,
            SpecSubject::Keys,
            SpecSubject::Version,
        ] {
            subjects.insert(subject, Vec::new());
        }
        let mut context = SpecContext {
            types,
            kinds: HashSet::new(),
            named: OnceLock::new(),
        };
        for published in kinds {
            let gvk = &published.kind.gvk;
            if published.schema.is_none() {
                let root = &published.kind.root;
                context
                    .kinds
                    .insert(format!("{}.{}", root.home, root.name).into());
            }
            if published.schema.is_none() && !gvk.group.is_empty() {
                subjects
                    .entry(SpecSubject::Group(gvk.group.to_string()))
                    .or_default();
            }
            let subject = SpecSubject::GroupVersion(gvk.group.to_string(), gvk.version.to_string());
            subjects.entry(subject).or_default().push(published);
        }
        let pages = subjects
            .into_iter()
            .map(|(subject, kinds)| (subject.path(), Arc::new(SpecPage::new(subject, kinds))));
        OpenApi {
            context: Arc::new(context),
            pages: pages.collect(),
            index: OnceLock::new(),
            v2_json: OnceLock::new(),
            v2_proto: OnceLock::new(),
        }
    }

    /// Replaces the kinds; documents whose kinds are the same are kept.
    pub fn with_kinds(&self, kinds: impl IntoIterator<Item = Published>) -> OpenApi {
        let mut next = OpenApi::new(kinds, self.context.types.clone());
        if next.context.kinds == self.context.kinds {
            next.context = self.context.clone();
        }
        for (path, page) in &mut next.pages {
            if let Some(known) = self.pages.get(path).filter(|known| known.is_same(page)) {
                *page = known.clone();
            }
        }
        next
    }

    /// Replaces the custom kinds; documents whose kinds are the same are kept.
    pub fn with_custom(&self, custom: impl IntoIterator<Item = Pending>) -> OpenApi {
        let known = self.pages.iter().filter(|(_, page)| page.pending.is_none());
        let mut pages: BTreeMap<String, Arc<SpecPage>> = known
            .map(|(path, page)| (path.clone(), page.clone()))
            .collect();
        for pending in custom {
            let subject =
                SpecSubject::GroupVersion(pending.group.to_string(), pending.version.to_string());
            let path = subject.path();
            let same = self
                .pages
                .get(&path)
                .filter(|page| page.seed() == Some(&pending.seed))
                .cloned();
            let fresh = || {
                Arc::new(SpecPage {
                    pending: Some(pending),
                    ..SpecPage::new(subject, Vec::new())
                })
            };
            pages
                .entry(path)
                .or_insert_with(|| same.unwrap_or_else(fresh));
        }
        OpenApi {
            context: self.context.clone(),
            pages,
            index: OnceLock::new(),
            v2_json: OnceLock::new(),
            v2_proto: OnceLock::new(),
        }
    }

    /// Whether custom kinds are described.
    pub fn has_custom(&self) -> bool {
        self.pages.values().any(|page| page.pending.is_some())
    }

    /// All pages with their kinds.
    fn ready(&self) -> Vec<Arc<SpecPage>> {
        self.pages.values().map(SpecPage::ready).collect()
    }

    /// `/openapi/v3`: the index of documents.
    pub fn v3_index(&self) -> Bytes {
        self.index.get_or_init(|| self.write_index()).clone()
    }

    fn write_index(&self) -> Bytes {
        let mut paths = Value::object();
        for (path, page) in &self.pages {
            let url = format!("/openapi/v3/{path}?hash={}", page.hash(&self.context));
            paths.set(path, value!({"serverRelativeURL": url}));
        }
        json::to_string(&value!({"paths": paths})).into()
    }

    /// Whether there is a document at `/openapi/v3/{path}`.
    pub fn has_v3(&self, path: &str) -> bool {
        self.pages.contains_key(path)
    }

    /// `/openapi/v3/{path}`: one document. The first call writes it and blocks for some
    /// milliseconds.
    pub fn v3(&self, path: &str) -> Option<Arc<SpecDocument>> {
        Some(self.pages.get(path)?.document(&self.context))
    }

    /// Like [`OpenApi::v3`], as protobuf: gnostic's `openapi.v3.Document`.
    pub fn v3_proto(&self, path: &str) -> Option<Arc<SpecDocument>> {
        Some(self.pages.get(path)?.proto(&self.context))
    }

    /// `/openapi/v2` as JSON.
    pub fn v2_json(&self) -> Arc<SpecDocument> {
        self.v2_json
            .get_or_init(|| Arc::new(v2::json(self.ready().iter(), &self.context, &[])))
            .clone()
    }

    /// `/openapi/v2` as protobuf: gnostic's `openapi.v2.Document`.
    pub fn v2_proto(&self) -> Arc<SpecDocument> {
        self.v2_proto
            .get_or_init(|| Arc::new(v2::proto(self.ready().iter(), &self.context, &[])))
            .clone()
    }

    /// `/openapi/v2` merged with the documents of aggregated API servers.
    pub fn v2_with(&self, others: &[Value], proto: bool) -> SpecDocument {
        match proto {
            true => v2::proto(self.ready().iter(), &self.context, others),
            false => v2::json(self.ready().iter(), &self.context, others),
        }
    }
}

impl SpecPage {
    fn new(subject: SpecSubject, kinds: Vec<Published>) -> SpecPage {
        SpecPage {
            subject,
            kinds,
            pending: None,
            hash: OnceLock::new(),
            document: OnceLock::new(),
            proto: OnceLock::new(),
        }
    }

    fn seed(&self) -> Option<&String> {
        self.pending.as_ref().map(|pending| &pending.seed)
    }

    /// The page with its kinds.
    fn ready(self: &Arc<SpecPage>) -> Arc<SpecPage> {
        match &self.pending {
            None => self.clone(),
            Some(pending) => Arc::new(SpecPage::new(self.subject.clone(), (pending.make)())),
        }
    }

    fn is_same(&self, other: &SpecPage) -> bool {
        self.subject == other.subject
            && self.kinds.len() == other.kinds.len()
            && self
                .kinds
                .iter()
                .zip(&other.kinds)
                .all(|(mine, theirs)| mine.is_same(theirs))
    }

    fn hash(&self, context: &SpecContext) -> &str {
        self.hash.get_or_init(|| match self.seed() {
            // The document is determined by the kinds, and these by the seed.
            Some(seed) => hash(seed.as_bytes()),
            None => hash(&v3::write(self, context, false)),
        })
    }

    fn document(self: &Arc<SpecPage>, context: &SpecContext) -> Arc<SpecDocument> {
        let write = || {
            SpecDocument::new(
                v3::write(&self.ready(), context, true),
                self.hash(context).into(),
            )
        };
        self.document.get_or_init(|| Arc::new(write())).clone()
    }

    /// Kubernetes: both encodings have the same hash (kube-openapi/pkg/handler3/handler.go).
    fn proto(self: &Arc<SpecPage>, context: &SpecContext) -> Arc<SpecDocument> {
        let write = || {
            let document = self.document(context);
            let value = json::parse(&document.bytes).expect("a document is JSON");
            SpecDocument::new(proto3::document(&value), document.hash.clone())
        };
        self.proto.get_or_init(|| Arc::new(write())).clone()
    }
}

impl SpecSubject {
    /// The name of the document, which is also the path it describes.
    fn path(&self) -> String {
        match self {
            SpecSubject::Issuer => ".well-known/openid-configuration".into(),
            SpecSubject::Core => "api".into(),
            SpecSubject::Groups => "apis".into(),
            SpecSubject::Group(group) => format!("apis/{group}"),
            SpecSubject::GroupVersion(group, version) if group.is_empty() => {
                format!("api/{version}")
            }
            SpecSubject::GroupVersion(group, version) => format!("apis/{group}/{version}"),
            SpecSubject::Keys => "openid/v1/jwks".into(),
            SpecSubject::Version => "version".into(),
        }
    }
}
