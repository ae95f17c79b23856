//! What does each object look like, and what can be asked? OpenAPI v3 and v2, written from the kinds.
//!
//! A v3 document describes one group version. It is written when somebody first asks for it and then kept;
//! its prose comes from the `k8s-openapi` crate at that moment (`prose`). The v2 document describes everything
//! at once. Each is served as JSON or protobuf. Both are made of the same parts: `operation` and `resource` say what can be
//! asked, `definition` what its types look like, and `v2` and `v3` put that into their dialects.
//!
//! Invariant: a document's hash is known without its prose, so that the index costs no prose; it changes
//! with everything else that the document says.

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

/// A document and what tells it from every other.
#[derive(Debug, Clone)]
pub struct Document {
    /// The text.
    pub bytes: Bytes,
    /// Its hash: what an ETag and `?hash=` say.
    pub hash: String,
    /// When it was first sent, in Unix seconds; it was written then.
    pub sent: OnceLock<i64>,
}

impl Document {
    fn new(bytes: impl Into<Bytes>, hash: String) -> Document {
        Document {
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
    /// What its definition says of it, if it is a custom one: `spec.versions[].schema.openAPIV3Schema`.
    pub schema: Option<Arc<Value>>,
}

impl From<Kind> for Published {
    fn from(kind: Kind) -> Published {
        Published { kind, schema: None }
    }
}

impl Published {
    fn is(&self, other: &Published) -> bool {
        let schemas = match (&self.schema, &other.schema) {
            (Some(mine), Some(theirs)) => Arc::ptr_eq(mine, theirs),
            (mine, theirs) => mine.is_none() && theirs.is_none(),
        };
        schemas && Arc::ptr_eq(&self.kind.data, &other.kind.data)
    }
}

/// Every document, each written when it is first asked for.
pub struct OpenApi {
    context: Arc<Context>,
    pages: BTreeMap<String, Arc<Page>>,
    index: OnceLock<Bytes>,
    v2_json: OnceLock<Arc<Document>>,
    v2_proto: OnceLock<Arc<Document>>,
}

/// What every document may refer to.
struct Context {
    types: Arc<Schemas>,
    /// The built-in types that are kinds, by full name: `core/v1.Pod`.
    kinds: HashSet<Str>,
    /// The types by the names of their definitions.
    named: OnceLock<Named>,
}

/// Kinds of one group version that are only looked at when somebody wants to read of them.
pub struct Pending {
    /// The group.
    pub group: Str,
    /// The version.
    pub version: Str,
    /// Changes whenever the kinds do.
    pub seed: String,
    /// Makes them.
    pub make: Arc<dyn Fn() -> Vec<Published> + Send + Sync>,
}

/// What one v3 document is about.
struct Page {
    subject: Subject,
    kinds: Vec<Published>,
    /// Where the kinds come from, if they are not known yet.
    pending: Option<Pending>,
    hash: OnceLock<String>,
    document: OnceLock<Arc<Document>>,
    proto: OnceLock<Arc<Document>>,
}

/// What a document describes besides kinds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    /// Where service accounts' tokens come from.
    Issuer,
    /// `/api`.
    Core,
    /// `/apis`.
    Groups,
    /// `/apis/{group}`.
    Group(String),
    /// `/apis/{group}/{version}`, or `/api/{version}` when the group has no name.
    GroupVersion(String, String),
    /// The keys of service accounts' tokens.
    Keys,
    /// `/version`.
    Version,
}

impl OpenApi {
    /// Describes `kinds`; `types` are those that kinds do not lead to, such as `meta/v1.Status`.
    pub fn new(kinds: impl IntoIterator<Item = Published>, types: Arc<Schemas>) -> OpenApi {
        let mut subjects: BTreeMap<Subject, Vec<Published>> = BTreeMap::new();
        for subject in [
            Subject::Issuer,
            Subject::Core,
            Subject::Groups,
            Subject::Keys,
            Subject::Version,
        ] {
            subjects.insert(subject, Vec::new());
        }
        let mut context = Context {
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
                    .entry(Subject::Group(gvk.group.to_string()))
                    .or_default();
            }
            let subject = Subject::GroupVersion(gvk.group.to_string(), gvk.version.to_string());
            subjects.entry(subject).or_default().push(published);
        }
        let pages = subjects
            .into_iter()
            .map(|(subject, kinds)| (subject.path(), Arc::new(Page::new(subject, kinds))));
        OpenApi {
            context: Arc::new(context),
            pages: pages.collect(),
            index: OnceLock::new(),
            v2_json: OnceLock::new(),
            v2_proto: OnceLock::new(),
        }
    }

    /// The same for other kinds; documents whose kinds are the same are not written again.
    pub fn with_kinds(&self, kinds: impl IntoIterator<Item = Published>) -> OpenApi {
        let mut next = OpenApi::new(kinds, self.context.types.clone());
        if next.context.kinds == self.context.kinds {
            next.context = self.context.clone();
        }
        for (path, page) in &mut next.pages {
            if let Some(known) = self.pages.get(path).filter(|known| known.is(page)) {
                *page = known.clone();
            }
        }
        next
    }

    /// The same with other custom kinds; documents whose kinds are the same are not written again.
    pub fn with_custom(&self, custom: impl IntoIterator<Item = Pending>) -> OpenApi {
        let known = self.pages.iter().filter(|(_, page)| page.pending.is_none());
        let mut pages: BTreeMap<String, Arc<Page>> = known
            .map(|(path, page)| (path.clone(), page.clone()))
            .collect();
        for pending in custom {
            let subject =
                Subject::GroupVersion(pending.group.to_string(), pending.version.to_string());
            let path = subject.path();
            let same = self
                .pages
                .get(&path)
                .filter(|page| page.seed() == Some(&pending.seed))
                .cloned();
            let fresh = || {
                Arc::new(Page {
                    pending: Some(pending),
                    ..Page::new(subject, Vec::new())
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

    /// Every page, with its kinds.
    fn ready(&self) -> Vec<Arc<Page>> {
        self.pages.values().map(Page::ready).collect()
    }

    /// `/openapi/v3`: which documents there are.
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

    /// `/openapi/v3/{path}`: one document. Takes its time at first; ask where blocking is allowed.
    pub fn v3(&self, path: &str) -> Option<Arc<Document>> {
        Some(self.pages.get(path)?.document(&self.context))
    }

    /// The same as protobuf: gnostic's `openapi.v3.Document`.
    pub fn v3_proto(&self, path: &str) -> Option<Arc<Document>> {
        Some(self.pages.get(path)?.proto(&self.context))
    }

    /// `/openapi/v2` as JSON.
    pub fn v2_json(&self) -> Arc<Document> {
        self.v2_json
            .get_or_init(|| Arc::new(v2::json(self.ready().iter(), &self.context, &[])))
            .clone()
    }

    /// `/openapi/v2` as protobuf: gnostic's `openapi.v2.Document`.
    pub fn v2_proto(&self) -> Arc<Document> {
        self.v2_proto
            .get_or_init(|| Arc::new(v2::proto(self.ready().iter(), &self.context, &[])))
            .clone()
    }

    /// `/openapi/v2` with the paths and types of other servers' documents.
    pub fn v2_with(&self, others: &[Value], proto: bool) -> Document {
        match proto {
            true => v2::proto(self.ready().iter(), &self.context, others),
            false => v2::json(self.ready().iter(), &self.context, others),
        }
    }
}

impl Page {
    fn new(subject: Subject, kinds: Vec<Published>) -> Page {
        Page {
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
    fn ready(self: &Arc<Page>) -> Arc<Page> {
        match &self.pending {
            None => self.clone(),
            Some(pending) => Arc::new(Page::new(self.subject.clone(), (pending.make)())),
        }
    }

    fn is(&self, other: &Page) -> bool {
        self.subject == other.subject
            && self.kinds.len() == other.kinds.len()
            && self
                .kinds
                .iter()
                .zip(&other.kinds)
                .all(|(mine, theirs)| mine.is(theirs))
    }

    fn hash(&self, context: &Context) -> &str {
        self.hash.get_or_init(|| match self.seed() {
            // Whatever the document says comes from kinds that the seed names.
            Some(seed) => hash(seed.as_bytes()),
            None => hash(&v3::write(self, context, false)),
        })
    }

    fn document(self: &Arc<Page>, context: &Context) -> Arc<Document> {
        let write = || {
            Document::new(
                v3::write(&self.ready(), context, true),
                self.hash(context).into(),
            )
        };
        self.document.get_or_init(|| Arc::new(write())).clone()
    }

    /// Kubernetes: both forms have the same hash (kube-openapi/pkg/handler3/handler.go).
    fn proto(self: &Arc<Page>, context: &Context) -> Arc<Document> {
        let write = || {
            let document = self.document(context);
            let value = json::parse(&document.bytes).expect("a document is JSON");
            Document::new(proto3::document(&value), document.hash.clone())
        };
        self.proto.get_or_init(|| Arc::new(write())).clone()
    }
}

impl Subject {
    /// The name of its document, which is also the path it describes.
    fn path(&self) -> String {
        match self {
            Subject::Issuer => ".well-known/openid-configuration".into(),
            Subject::Core => "api".into(),
            Subject::Groups => "apis".into(),
            Subject::Group(group) => format!("apis/{group}"),
            Subject::GroupVersion(group, version) if group.is_empty() => format!("api/{version}"),
            Subject::GroupVersion(group, version) => format!("apis/{group}/{version}"),
            Subject::Keys => "openid/v1/jwks".into(),
            Subject::Version => "version".into(),
        }
    }
}
