//! Reading objects.

use std::any::TypeId;
use std::fmt::Debug;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{HeaderMap, Method};
use http_body_util::BodyExt as _;
use kube::core::ClusterResourceScope;
use mizzen_apiserver::User;
use mizzen_value::{Value, json};
use serde::de::DeserializeOwned;

use crate::Cluster;

/// The path of the objects of a kind: one of `k8s-openapi`, or a derived custom resource.
fn collection<K>(namespace: Option<&str>) -> String
where
    K: kube::Resource<DynamicType: Default>,
{
    K::url_path(&K::DynamicType::default(), namespace)
}

/// The path of an object. A namespaced one is in `default`, unless `name` is `namespace/name`.
pub(crate) fn object_path<K>(name: &str) -> String
where
    K: kube::Resource<DynamicType: Default>,
    K::Scope: 'static,
{
    let (namespace, name) = split_name::<K>(name);
    format!("{}/{name}", collection::<K>(namespace))
}

fn split_name<K>(name: &str) -> (Option<&str>, &str)
where
    K: kube::Resource,
    K::Scope: 'static,
{
    let is_cluster_scoped = TypeId::of::<K::Scope>() == TypeId::of::<ClusterResourceScope>();
    match name.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None if is_cluster_scoped => (None, name),
        None => (Some("default"), name),
    }
}

impl Cluster {
    /// An object, by `name` (in the namespace `default`, or cluster-scoped) or `namespace/name`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use k8s_openapi::api::core::v1::{ConfigMap, Node};
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::start().await;
    /// let node: Node = cluster.get("node-0").await;
    /// // Controllers are still at work on other namespaces when a cluster is ready.
    /// cluster.settle().await;
    /// let ca: ConfigMap = cluster.get("kube-system/kube-root-ca.crt").await;
    /// assert!(node.spec.is_some() && ca.data.is_some());
    /// # }
    /// ```
    ///
    /// # Panics
    /// If it does not exist, with the last steps.
    pub async fn get<K>(&self, name: &str) -> K
    where
        K: kube::Resource<DynamicType: Default> + DeserializeOwned + Clone + Debug,
        K::Scope: 'static,
    {
        let found = self.find::<K>(name).await;
        found.unwrap_or_else(|| {
            let kind = K::kind(&K::DynamicType::default()).into_owned();
            panic!(
                "there is no {kind} {name}; the last steps:\n{}",
                self.last_steps(30)
            )
        })
    }

    /// An object, if it exists.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use k8s_openapi::api::core::v1::Pod;
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::start().await;
    /// assert!(cluster.find::<Pod>("default/web").await.is_none());
    /// # }
    /// ```
    pub async fn find<K>(&self, name: &str) -> Option<K>
    where
        K: kube::Resource<DynamicType: Default> + DeserializeOwned + Clone + Debug,
        K::Scope: 'static,
    {
        let path = object_path::<K>(name);
        let (code, object) = self.server().ask("GET", &path, None).await;
        match code {
            404 => None,
            200 => Some(decode(&object)),
            code => panic!("GET {path} answered {code}: {}", object["message"].str()),
        }
    }

    /// All objects of a kind, in every namespace.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use k8s_openapi::api::core::v1::Pod;
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::start().await;
    /// assert!(cluster.list::<Pod>().await.is_empty());
    /// # }
    /// ```
    pub async fn list<K>(&self) -> Vec<K>
    where
        K: kube::Resource<DynamicType: Default> + DeserializeOwned + Clone + Debug,
    {
        let path = collection::<K>(None);
        let (code, list) = self.server().ask("GET", &path, None).await;
        assert_eq!(code, 200, "GET {path}: {}", list["message"].str());
        list["items"].list().iter().map(decode).collect()
    }

    /// The states that an object had, oldest first; the last one may be from before its deletion. The server remembers as
    /// many as its watch window holds.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use k8s_openapi::api::core::v1::Pod;
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::start().await;
    /// cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: default},
    ///     spec: {containers: [{name: web, image: nginx}]}}").await;
    /// cluster.settle().await;
    /// let phases: Vec<String> = cluster.history::<Pod>("web").await.into_iter()
    ///     .filter_map(|pod| pod.status?.phase).collect();
    /// assert_eq!(phases.first().unwrap(), "Pending");
    /// assert_eq!(phases.last().unwrap(), "Running");
    /// # }
    /// ```
    pub async fn history<K>(&self, name: &str) -> Vec<K>
    where
        K: kube::Resource<DynamicType: Default> + DeserializeOwned + Clone + Debug,
        K::Scope: 'static,
    {
        let states = self.states::<K>(name).await;
        states.iter().map(decode).collect()
    }

    /// The states of an object as they are stored.
    pub(crate) async fn states<K>(&self, name: &str) -> Vec<Value>
    where
        K: kube::Resource<DynamicType: Default>,
        K::Scope: 'static,
    {
        let (namespace, name) = split_name::<K>(name);
        let path = format!(
            "{}?watch=true&resourceVersion=1&fieldSelector=metadata.name%3D{name}",
            collection::<K>(namespace)
        );
        let uri = path.parse().expect("names are valid in paths");
        let user = Some(User::master("admin"));
        let answer = self
            .server()
            .call(user, Method::GET, uri, HeaderMap::new(), Bytes::new())
            .await;
        let (mut body, mut text) = (answer.into_body(), Vec::new());
        // What is in the window is there at once; then the watch would wait.
        while let Some(Some(Ok(frame))) = tokio::task::unconstrained(body.frame()).now_or_never() {
            text.extend_from_slice(&frame.into_data().unwrap_or_default());
        }
        let events = text.split(|byte| *byte == b'\n');
        let events = events.filter_map(|line| json::parse(line).ok());
        events
            .filter(|event| matches!(event["type"].str(), "ADDED" | "MODIFIED" | "DELETED"))
            .map(|event| event["object"].clone())
            .collect()
    }
}

fn decode<K: DeserializeOwned>(object: &Value) -> K {
    let text = json::to_string(object);
    serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!(
            "{} cannot be read as {}: {error}",
            text,
            std::any::type_name::<K>()
        )
    })
}
