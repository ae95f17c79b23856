//! Applying objects from YAML.

use http_body_util::BodyExt as _;
use mizzen_apiserver::Server;
use mizzen_object::GroupVersionKind;
use mizzen_sdk::{Object, yaml};
use mizzen_value::json;

use crate::Cluster;

/// Why objects cannot be applied.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use mizzen_testing::{ApplyError, Cluster};
///
/// let cluster = Cluster::start().await;
/// let error = cluster.try_apply("{apiVersion: v2, kind: Pod, metadata: {name: web}}").await.unwrap_err();
/// assert!(matches!(error, ApplyError::UnknownKind { .. }));
/// assert_eq!(error.to_string(), r#"the server has no kind "Pod" in "v2""#);
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The text is no YAML.
    #[error(transparent)]
    Read(#[from] yaml::ReadError),
    /// The server has no such kind.
    #[error("the server has no kind {kind:?} in {api_version:?}")]
    UnknownKind {
        /// The kind.
        kind: String,
        /// The apiVersion.
        api_version: String,
    },
    /// The server rejects an object.
    #[error("{object}: {message}")]
    Rejected {
        /// The object: `Deployment default/web`.
        object: String,
        /// Why.
        message: String,
    },
}

impl Cluster {
    /// Applies objects in YAML or JSON, as `kubectl apply --server-side --force-conflicts` does. Documents are separated by
    /// `---`; the objects of a CustomResourceDefinition may follow it. Namespaced objects without a namespace are in
    /// `default`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::start().await;
    /// cluster.apply("
    /// apiVersion: v1
    /// kind: Namespace
    /// metadata: {name: shop}
    /// ---
    /// apiVersion: v1
    /// kind: ConfigMap
    /// metadata: {name: settings, namespace: shop}
    /// data: {colour: red}
    /// ").await;
    /// assert!(cluster.find::<ConfigMap>("shop/settings").await.is_some());
    /// # }
    /// ```
    ///
    /// # Panics
    /// If the text or an object is invalid; [`try_apply`](Cluster::try_apply) returns the error.
    pub async fn apply(&self, text: &str) {
        if let Err(error) = self.try_apply(text).await {
            panic!("cannot apply: {error}");
        }
    }

    /// Applies objects. Objects before one that fails stay applied.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::start().await;
    /// let error = cluster.try_apply("{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {}}").await.unwrap_err();
    /// assert!(error.to_string().contains("spec.ports: Required value"), "{error}");
    /// # }
    /// ```
    pub async fn try_apply(&self, text: &str) -> Result<(), ApplyError> {
        for object in yaml::read_all::<Object>(text.as_bytes())? {
            self.apply_object(object).await?;
        }
        Ok(())
    }

    async fn apply_object(&self, mut object: Object) -> Result<(), ApplyError> {
        let collection = collection_path(self.server(), &mut object)?;
        let name = object.name();
        let path = format!("{collection}/{name}?fieldManager=mizzen-testing&force=true");
        let (code, answer) = self.send_apply(&path, &object).await;
        match code {
            200 | 201 => Ok(()),
            _ => Err(ApplyError::Rejected {
                object: format!("{} {}", object["kind"].str(), object.key()),
                message: answer["message"].str().to_owned(),
            }),
        }
    }

    async fn send_apply(&self, path: &str, object: &Object) -> (u16, Object) {
        let request = http::Request::patch(path)
            .header("content-type", "application/apply-patch+yaml")
            .body(json::to_string(object).into_bytes())
            .expect("the path is valid");
        let answer = self.client().send(request.map(Into::into)).await;
        let answer = answer.expect("a server in the same process answers");
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await;
        let text = body.map(|body| body.to_bytes()).unwrap_or_default();
        (code, Object::parse(&text).unwrap_or_default())
    }
}

/// The path of the collection of an object. A namespaced object without a namespace gets `default`.
pub(crate) fn collection_path(server: &Server, object: &mut Object) -> Result<String, ApplyError> {
    let (api_version, kind) = (
        object["apiVersion"].str().to_owned(),
        object["kind"].str().to_owned(),
    );
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let gvk = GroupVersionKind {
        group: group.into(),
        version: version.into(),
        kind: kind.as_str().into(),
    };
    let Some(resource) = server.parts().catalog.of_kind(&gvk) else {
        return Err(ApplyError::UnknownKind { kind, api_version });
    };
    let is_namespaced = resource.kind().scope == mizzen_object::ResourceScope::Namespaced;
    if is_namespaced && object.namespace().is_empty() {
        object.entry("metadata").set("namespace", "default");
    }
    let root = match group {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}/{version}"),
    };
    let plural = &resource.kind().plural;
    Ok(match object.namespace() {
        "" => format!("{root}/{plural}"),
        namespace => format!("{root}/namespaces/{namespace}/{plural}"),
    })
}
