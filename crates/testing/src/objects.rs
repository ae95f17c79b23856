//! Reading and writing objects without a type.

use http::Method;
use mizzen_sdk::dynamic::{DeleteOptions, PatchType};
use mizzen_sdk::{Key, Object, ResourceType, yaml};
use mizzen_value::Value;

use crate::Cluster;
use crate::apply::collection_path;

/// Objects without a type: by [`ResourceType`] and key, `namespace/name` or the name of a cluster-scoped object. These
/// methods panic if the server rejects a request; [`Cluster::dynamic_client`] returns errors.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use mizzen_sdk::resource::CONFIG_MAPS;
/// use mizzen_testing::Cluster;
///
/// let cluster = Cluster::builder().server_only().start().await;
/// cluster.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: menu, namespace: default}}").await;
/// cluster.change(&CONFIG_MAPS, "default/menu", |menu| menu.entry("data").set("dish", "soup")).await;
/// assert_eq!(cluster.object(&CONFIG_MAPS, "default/menu").await["data"]["dish"].str(), "soup");
/// # }
/// ```
impl Cluster {
    /// Creates an object from YAML or JSON. A namespaced object without a namespace is in `default`.
    pub async fn create(&self, text: &str) -> Object {
        let object = yaml::read::<Object>(text.as_bytes());
        let mut object = object.unwrap_or_else(|error| panic!("{text} cannot be read: {error}"));
        let path = collection_path(self.server(), &mut object);
        let path = path.unwrap_or_else(|error| panic!("{text} cannot be created: {error}"));
        let created = self
            .dynamic_client()
            .raw(Method::POST, &path, Some(&object))
            .await;
        created.unwrap_or_else(|error| panic!("{text} cannot be created: {error}"))
    }

    /// An object that exists.
    pub async fn object(&self, of: &ResourceType, key: &str) -> Object {
        let found = self.dynamic_client().get(of, &parse(key)).await;
        found.unwrap_or_else(|error| panic!("{} {key} cannot be read: {error}", of.kind))
    }

    /// An object, if it exists.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use mizzen_sdk::resource::CONFIG_MAPS;
    /// use mizzen_testing::Cluster;
    ///
    /// # let cluster = Cluster::builder().server_only().start().await;
    /// # cluster.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: menu, namespace: default}, data: {dish: soup}}").await;
    /// assert!(cluster.find_object(&CONFIG_MAPS, "default/menu").await.is_some());
    /// assert!(cluster.find_object(&CONFIG_MAPS, "default/wine").await.is_none());
    /// # }
    /// ```
    pub async fn find_object(&self, of: &ResourceType, key: &str) -> Option<Object> {
        let found = self.dynamic_client().find(of, &parse(key)).await;
        found.unwrap_or_else(|error| panic!("{} {key} cannot be read: {error}", of.kind))
    }

    /// The objects of a kind in a namespace, or in all if it is empty, by name.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use mizzen_sdk::resource::CONFIG_MAPS;
    /// use mizzen_testing::Cluster;
    ///
    /// # let cluster = Cluster::builder().server_only().start().await;
    /// # cluster.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: menu, namespace: default}, data: {dish: soup}}").await;
    /// let configs = cluster.objects(&CONFIG_MAPS, "default").await;
    /// assert_eq!(configs.last().unwrap().name(), "menu");
    /// # }
    /// ```
    pub async fn objects(&self, of: &ResourceType, namespace: &str) -> Vec<Object> {
        let found = self
            .dynamic_client()
            .list(of, namespace, &Default::default())
            .await;
        found.unwrap_or_else(|error| panic!("{} cannot be listed: {error}", of.kind))
    }

    /// Reads an object, changes it and updates it.
    pub async fn change(
        &self,
        of: &ResourceType,
        key: &str,
        change: impl FnOnce(&mut Object),
    ) -> Object {
        let mut object = self.object(of, key).await;
        change(&mut object);
        let updated = self.dynamic_client().update(of, &object).await;
        updated.unwrap_or_else(|error| panic!("{} {key} cannot be updated: {error}", of.kind))
    }

    /// Reads an object, changes its status and updates that.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use mizzen_sdk::resource::NODES;
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::builder().server_only().start().await;
    /// cluster.create("{apiVersion: v1, kind: Node, metadata: {name: far}}").await;
    /// cluster.change_status(&NODES, "far", |status| status.set("phase", "Running")).await;
    /// assert_eq!(cluster.object(&NODES, "far").await["status"]["phase"].str(), "Running");
    /// # }
    /// ```
    pub async fn change_status(
        &self,
        of: &ResourceType,
        key: &str,
        change: impl FnOnce(&mut Value),
    ) -> Object {
        let mut object = self.object(of, key).await;
        change(object.entry("status"));
        let updated = self.dynamic_client().update_status(of, &object).await;
        updated.unwrap_or_else(|error| panic!("{} {key} cannot be updated: {error}", of.kind))
    }

    /// Patches an object, or a subresource if it is not empty, with a merge patch in YAML or JSON.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use mizzen_sdk::resource::CONFIG_MAPS;
    /// use mizzen_testing::Cluster;
    ///
    /// # let cluster = Cluster::builder().server_only().start().await;
    /// # cluster.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: menu, namespace: default}, data: {dish: soup}}").await;
    /// let menu = cluster.patch(&CONFIG_MAPS, "default/menu", "", "data: {dish: null, drink: tea}").await;
    /// assert_eq!(menu["data"]["drink"].str(), "tea");
    /// assert!(menu["data"]["dish"].is_null());
    /// # }
    /// ```
    pub async fn patch(
        &self,
        of: &ResourceType,
        key: &str,
        subresource: &str,
        text: &str,
    ) -> Object {
        let patch = yaml::read::<Object>(text.as_bytes());
        let patch = patch.unwrap_or_else(|error| panic!("{text} cannot be read: {error}"));
        let key = parse(key);
        let patched = self
            .dynamic_client()
            .patch(of, &key, subresource, PatchType::Merge, &patch)
            .await;
        patched.unwrap_or_else(|error| panic!("{} {key} cannot be patched: {error}", of.kind))
    }

    /// Deletes an object. It stays for its grace period and finalizers.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use mizzen_sdk::resource::CONFIG_MAPS;
    /// use mizzen_testing::Cluster;
    ///
    /// # let cluster = Cluster::builder().server_only().start().await;
    /// # cluster.create("{apiVersion: v1, kind: ConfigMap, metadata: {name: menu, namespace: default}, data: {dish: soup}}").await;
    /// cluster.delete(&CONFIG_MAPS, "default/menu").await;
    /// assert!(cluster.find_object(&CONFIG_MAPS, "default/menu").await.is_none());
    /// # }
    /// ```
    pub async fn delete(&self, of: &ResourceType, key: &str) {
        self.delete_with(of, key, &DeleteOptions::default()).await;
    }

    /// Deletes an object with options.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use mizzen_sdk::dynamic::DeleteOptions;
    /// use mizzen_sdk::resource::PODS;
    /// use mizzen_testing::Cluster;
    ///
    /// # let cluster = Cluster::start().await;
    /// # cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: web, image: nginx}]}}").await;
    /// # cluster.settle().await;
    /// cluster.delete_with(&PODS, "default/web", &DeleteOptions { grace_seconds: Some(0), ..DeleteOptions::default() }).await;
    /// assert!(cluster.find_object(&PODS, "default/web").await.is_none()); // at once
    /// # }
    /// ```
    pub async fn delete_with(&self, of: &ResourceType, key: &str, options: &DeleteOptions<'_>) {
        let deleted = self.dynamic_client().delete(of, &parse(key), options).await;
        deleted.unwrap_or_else(|error| panic!("{} {key} cannot be deleted: {error}", of.kind));
    }
}

fn parse(key: &str) -> Key {
    key.parse().unwrap_or_else(|error| panic!("{error}"))
}
