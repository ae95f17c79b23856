//! What can be asked? The operations of each document, said once for both dialects.

use mizzen_object::GroupVersionKind;

use super::names::{self, META};
use super::parameter::Parameter;
use super::resource::Resource;
use super::{Context, Page, Subject};

/// A path and what can be done there.
pub(super) struct Path {
    /// With parameters in braces.
    pub path: String,
    /// At most one for each method.
    pub operations: Vec<Operation>,
}

/// One method on one path.
#[derive(Default)]
pub(super) struct Operation {
    /// `get`, `put`, `post`, `delete`, `options`, `head` or `patch`.
    pub method: &'static str,
    /// Its name, by which generated clients call their functions.
    pub id: String,
    /// The group of operations it belongs to.
    pub tag: String,
    /// What it does.
    pub description: String,
    /// What Kubernetes calls what it does; empty if it is not about objects.
    pub action: &'static str,
    /// The kind it is about.
    pub kind: Option<GroupVersionKind>,
    /// What else it takes.
    pub parameters: Vec<Parameter>,
    /// What it wants to be sent.
    pub body: Option<Body>,
    /// The media types that can be sent.
    pub consumes: &'static [&'static str],
    /// The media types that can be asked for.
    pub produces: &'static [&'static str],
    /// The status codes of success, and the definition that is answered; none if it is text.
    pub answers: (&'static [&'static str], Option<String>),
}

/// What is sent with a request.
pub(super) struct Body {
    /// Its definition.
    pub definition: String,
    /// Whether there must be one.
    pub required: bool,
}

const JSON: &[&str] = &["application/json"];
const KEYS: &[&str] = &["application/jwk-set+json"];

/// The media types of built-in objects.
pub(super) const OBJECTS: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];

/// The codes of an answer that has nothing else to say.
pub(super) const OK: &[&str] = &["200"];

/// The paths of a document, in order.
pub(super) fn paths(page: &Page, context: &Context) -> Vec<Path> {
    let mut paths: Vec<Path> = root(page).into_iter().collect();
    for published in &page.kinds {
        paths.extend(Resource::new(published, context).paths());
    }
    paths.sort_by(|a, b| a.path.cmp(&b.path));
    paths
}

/// The subject's own path; custom versions are not described.
fn root(page: &Page) -> Option<Path> {
    let meta = |name: &str| Some(format!("{META}.{name}"));
    let group_id = |group: &str| names::group_words(group);
    let (id, tag, description, media, answer) = match &page.subject {
        Subject::Issuer => (
            "getServiceAccountIssuerOpenIDConfiguration".into(),
            "WellKnown".into(),
            "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'",
            JSON,
            None,
        ),
        Subject::Keys => (
            "getServiceAccountIssuerOpenIDKeyset".into(),
            "openid".into(),
            "get service account issuer OpenID JSON Web Key Set (contains public token verification keys)",
            KEYS,
            None,
        ),
        Subject::Version => (
            "getCodeVersion".into(),
            "version".into(),
            "get the version information for this server",
            JSON,
            Some("io.k8s.apimachinery.pkg.version.Info".into()),
        ),
        Subject::Core => (
            "getCoreAPIVersions".into(),
            "core".into(),
            "get available API versions",
            OBJECTS,
            meta("APIVersions"),
        ),
        Subject::Groups => (
            "getAPIVersions".into(),
            "apis".into(),
            "get available API versions",
            OBJECTS,
            meta("APIGroupList"),
        ),
        Subject::Group(group) => (
            format!("get{}APIGroup", group_id(group)),
            names::tag(group, None),
            "get information of a group",
            OBJECTS,
            meta("APIGroup"),
        ),
        Subject::GroupVersion(..)
            if page
                .kinds
                .iter()
                .any(|published| published.schema.is_some()) =>
        {
            return None;
        }
        Subject::GroupVersion(group, version) => (
            format!(
                "get{}{}APIResources",
                group_id(group),
                names::operation_word(version, true)
            ),
            names::tag(group, Some(version)),
            "get available resources",
            OBJECTS,
            meta("APIResourceList"),
        ),
    };
    let consumes = if answer.is_some() { media } else { &[] };
    let operation = Operation {
        method: "get",
        id,
        tag,
        description: description.into(),
        consumes,
        produces: media,
        answers: (OK, answer),
        ..Operation::default()
    };
    Some(Path {
        path: format!("/{}/", page.subject.path()),
        operations: vec![operation],
    })
}
