//! Operations of each document, shared by both OpenAPI versions.

use mizzen_object::GroupVersionKind;

use super::names::{self, META};
use super::parameter::Parameter;
use super::resource::ResourcePaths;
use super::{SpecContext, SpecPage, SpecSubject};

pub(super) struct PathItem {
    /// The path, with parameters in braces.
    pub path: String,
    /// At most one for each method.
    pub operations: Vec<PathOperation>,
}

/// An operation: one method of one path.
#[derive(Default)]
pub(super) struct PathOperation {
    /// `get`, `put`, `post`, `delete`, `options`, `head` or `patch`.
    pub method: &'static str,
    /// The `operationId`, by which generated clients name their methods.
    pub id: String,
    /// The tag.
    pub tag: String,
    /// The description.
    pub description: String,
    /// `x-kubernetes-action`; empty if the operation is not about objects.
    pub action: &'static str,
    /// The kind that it is about.
    pub kind: Option<GroupVersionKind>,
    /// Its query and path parameters.
    pub parameters: Vec<Parameter>,
    /// The request body.
    pub body: Option<RequestBody>,
    /// The media types of the request body.
    pub consumes: &'static [&'static str],
    /// The media types of the response.
    pub produces: &'static [&'static str],
    /// The success codes, and the definition of the response; `None` for text.
    pub responses: (&'static [&'static str], Option<String>),
}

pub(super) struct RequestBody {
    /// The definition name.
    pub definition: String,
    /// Whether it is required.
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

/// The codes of a plain success.
pub(super) const OK: &[&str] = &["200"];

/// The paths of a document, in order.
pub(super) fn paths(page: &SpecPage, context: &SpecContext) -> Vec<PathItem> {
    let mut paths: Vec<PathItem> = root(page).into_iter().collect();
    for published in &page.kinds {
        paths.extend(ResourcePaths::new(published, context).paths());
    }
    paths.sort_by(|a, b| a.path.cmp(&b.path));
    paths
}

/// The subject's own path; custom group versions have none.
fn root(page: &SpecPage) -> Option<PathItem> {
    let meta = |name: &str| Some(format!("{META}.{name}"));
    let group_id = |group: &str| names::group_words(group);
    let (id, tag, description, media, response) = match &page.subject {
        SpecSubject::Issuer => (
            "getServiceAccountIssuerOpenIDConfiguration".into(),
            "WellKnown".into(),
            "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'",
            JSON,
            None,
        ),
        SpecSubject::Keys => (
            "getServiceAccountIssuerOpenIDKeyset".into(),
            "openid".into(),
            "get service account issuer OpenID JSON Web Key Set (contains public token verification keys)",
            KEYS,
            None,
        ),
        SpecSubject::Version => (
            "getCodeVersion".into(),
            "version".into(),
            "get the version information for this server",
            JSON,
            Some("io.k8s.apimachinery.pkg.version.Info".into()),
        ),
        SpecSubject::Core => (
            "getCoreAPIVersions".into(),
            "core".into(),
            "get available API versions",
            OBJECTS,
            meta("APIVersions"),
        ),
        SpecSubject::Groups => (
            "getAPIVersions".into(),
            "apis".into(),
            "get available API versions",
            OBJECTS,
            meta("APIGroupList"),
        ),
        SpecSubject::Group(group) => (
            format!("get{}APIGroup", group_id(group)),
            names::tag(group, None),
            "get information of a group",
            OBJECTS,
            meta("APIGroup"),
        ),
        SpecSubject::GroupVersion(..)
            if page
                .kinds
                .iter()
                .any(|published| published.schema.is_some()) =>
        {
            return None;
        }
        SpecSubject::GroupVersion(group, version) => (
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
    let consumes = if response.is_some() { media } else { &[] };
    let operation = PathOperation {
        method: "get",
        id,
        tag,
        description: description.into(),
        consumes,
        produces: media,
        responses: (OK, response),
        ..PathOperation::default()
    };
    Some(PathItem {
        path: format!("/{}/", page.subject.path()),
        operations: vec![operation],
    })
}
