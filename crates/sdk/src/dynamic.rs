//! The dynamic client: requests for single objects and collections of any kind.
//!
//! ```
//! # use mizzen_apiserver::User;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
//! # let config = mizzen_sdk::Object::parse(br#"{"metadata":{"name":"web","namespace":"default"}}"#)?;
//! # mizzen_sdk::dynamic::DynamicClient::new(client.clone()).create(&mizzen_sdk::resource::CONFIG_MAPS, &config).await?;
//! use mizzen_sdk::dynamic::{DeleteOptions, DynamicClient};
//! use mizzen_sdk::resource::CONFIG_MAPS;
//! use mizzen_sdk::Key;
//!
//! let api = DynamicClient::new(client);
//! let key = Key::new("default", "web");
//! let mut config = api.get(&CONFIG_MAPS, &key).await?;
//! config.entry("data").set("colour", "red");
//! let config = api.update(&CONFIG_MAPS, &config).await?;
//! assert_eq!(config["data"]["colour"].str(), "red");
//! api.delete(&CONFIG_MAPS, &key, &DeleteOptions::default()).await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use http::{Method, Request, request};
use kube::{Client, Error};
use mizzen_value::{Value, json};
use serde::de::Error as _;

use crate::key::Key;
use crate::object::Object;
use crate::resource::ResourceType;
use crate::write::is_not_found;

/// The page size of lists.
const PAGE: usize = 500;

/// A client for objects of any kind. Cheap to clone.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use mizzen_sdk::dynamic::{DynamicClient, ListOptions};
/// use mizzen_sdk::resource::NAMESPACES;
///
/// let api = DynamicClient::new(client);
/// let options = ListOptions { fields: "metadata.name=default".into(), ..ListOptions::default() };
/// assert_eq!(api.list(&NAMESPACES, "", &options).await?.len(), 1);
/// let names = api.metadata_only().list(&NAMESPACES, "", &ListOptions::default()).await?;
/// assert!(names.iter().all(|namespace| namespace["spec"].is_null()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct DynamicClient {
    client: Client,
    metadata_only: bool,
}

/// Selectors of a list.
///
/// ```
/// use mizzen_sdk::dynamic::ListOptions;
///
/// let options = ListOptions { labels: "app=web".into(), ..ListOptions::default() };
/// assert!(options.fields.is_empty());
/// ```
#[derive(Debug, Clone, Default)]
pub struct ListOptions {
    /// The label selector.
    pub labels: String,
    /// The field selector.
    pub fields: String,
}

/// The patch type.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// # let config = mizzen_sdk::Object::parse(br#"{"metadata":{"name":"web","namespace":"default"},"data":{"a":"1"}}"#)?;
/// # mizzen_sdk::dynamic::DynamicClient::new(client.clone()).create(&mizzen_sdk::resource::CONFIG_MAPS, &config).await?;
/// use mizzen_sdk::Key;
/// use mizzen_sdk::dynamic::{DynamicClient, PatchType};
/// use mizzen_sdk::resource::CONFIG_MAPS;
/// use mizzen_value::value;
///
/// let (api, key) = (DynamicClient::new(client), Key::new("default", "web"));
/// let change = value!({"data": {"a": null, "b": "2"}});
/// let config = api.patch(&CONFIG_MAPS, &key, "", PatchType::Merge, &change).await?;
/// assert_eq!((config["data"]["a"].str(), config["data"]["b"].str()), ("", "2"));
/// let change = value!([{"op": "test", "path": "/data/b", "value": "2"}, {"op": "remove", "path": "/data/b"}]);
/// api.patch(&CONFIG_MAPS, &key, "", PatchType::Json, &change).await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType<'a> {
    /// JSON merge patch: fields are replaced; null removes.
    Merge,
    /// Strategic merge patch: lists are merged by their keys.
    Strategic,
    /// JSON patch: a list of operations.
    Json,
    /// Server-side apply with force: conflicts are overwritten.
    Apply {
        /// The field manager.
        manager: &'a str,
    },
}

/// Preconditions and options of a deletion.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// # let config = mizzen_sdk::Object::parse(br#"{"metadata":{"name":"web","namespace":"default"}}"#)?;
/// # let config = mizzen_sdk::dynamic::DynamicClient::new(client.clone()).create(&mizzen_sdk::resource::CONFIG_MAPS, &config).await?;
/// use mizzen_sdk::dynamic::{DeleteOptions, DynamicClient};
/// use mizzen_sdk::resource::CONFIG_MAPS;
/// use mizzen_sdk::write::is_conflict;
///
/// let (api, key) = (DynamicClient::new(client), config.key());
/// let options = DeleteOptions { uid: Some("another"), ..DeleteOptions::default() };
/// assert!(is_conflict(&api.delete(&CONFIG_MAPS, &key, &options).await.unwrap_err()));
/// let options = DeleteOptions { uid: Some(config.uid()), ..DeleteOptions::default() };
/// api.delete(&CONFIG_MAPS, &key, &options).await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct DeleteOptions<'a> {
    /// The UID that the object must have.
    pub uid: Option<&'a str>,
    /// The resource version that the object must have.
    pub version: Option<&'a str>,
    /// The propagation policy: `Background`, `Foreground` or `Orphan`.
    pub propagation: Option<&'a str>,
    /// The grace period.
    pub grace_seconds: Option<i64>,
}

impl DynamicClient {
    /// Sends requests through `client`.
    pub fn new(client: Client) -> DynamicClient {
        DynamicClient {
            client,
            metadata_only: false,
        }
    }

    /// The same, but reads return metadata alone (PartialObjectMetadata).
    pub fn metadata_only(&self) -> DynamicClient {
        DynamicClient {
            client: self.client.clone(),
            metadata_only: true,
        }
    }

    /// The underlying client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Reads one object.
    pub async fn get(&self, of: &ResourceType, key: &Key) -> Result<Object, Error> {
        self.send(Method::GET, &of.path_of(key), "", Vec::new())
            .await
    }

    /// Reads one object; `None` if it does not exist.
    pub async fn find(&self, of: &ResourceType, key: &Key) -> Result<Option<Object>, Error> {
        match self.get(of, key).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lists all objects of a kind, or those in a namespace unless that is empty.
    pub async fn list(
        &self,
        of: &ResourceType,
        namespace: &str,
        options: &ListOptions,
    ) -> Result<Vec<Object>, Error> {
        let (mut objects, mut next) = (Vec::new(), String::new());
        loop {
            let query = query(&[
                ("labelSelector", &options.labels),
                ("fieldSelector", &options.fields),
                ("limit", &PAGE.to_string()),
                ("continue", &next),
            ]);
            let mut page = self.page(&format!("{}{query}", of.path(namespace))).await?;
            objects.extend(
                std::mem::take(page.entry("items").make_list())
                    .into_iter()
                    .map(Object),
            );
            next = page["metadata"]["continue"].str().to_string();
            if next.is_empty() {
                return Ok(objects);
            }
        }
    }

    /// The number of objects in a namespace, from the `remainingItemCount` of a list with one item.
    pub async fn count(&self, of: &ResourceType, namespace: &str) -> Result<usize, Error> {
        let page = self
            .metadata_only()
            .page(&format!("{}?limit=1", of.path(namespace)))
            .await?;
        let first = page["items"].list().len();
        match (
            page["metadata"]["continue"].str(),
            page["metadata"]["remainingItemCount"].as_int(),
        ) {
            ("", _) => Ok(first),
            (_, Some(others)) => Ok(first + usize::try_from(others).unwrap_or_default()),
            // The server does not report the count, so all objects are listed.
            _ => Ok(self
                .metadata_only()
                .list(of, namespace, &ListOptions::default())
                .await?
                .len()),
        }
    }

    /// Creates an object, in the namespace that it names.
    pub async fn create(&self, of: &ResourceType, object: &Value) -> Result<Object, Error> {
        let path = of.path(object["metadata"]["namespace"].str());
        self.send(Method::POST, &path, JSON, body(of, object)).await
    }

    /// Creates a subresource of an object, such as `binding` or `eviction`.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// # let pod = mizzen_sdk::Object::parse(br#"{"metadata":{"name":"web","namespace":"default"},"spec":{"containers":[{"name":"web","image":"web"}]}}"#)?;
    /// # mizzen_sdk::dynamic::DynamicClient::new(client.clone()).create(&mizzen_sdk::resource::PODS, &pod).await?;
    /// use mizzen_sdk::Key;
    /// use mizzen_sdk::dynamic::DynamicClient;
    /// use mizzen_sdk::resource::PODS;
    /// use mizzen_value::value;
    ///
    /// let binding = value!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "web"}, "target": {"kind": "Node", "name": "n1"}});
    /// DynamicClient::new(client).create_at(&PODS, &Key::new("default", "web"), "binding", &binding).await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn create_at(
        &self,
        of: &ResourceType,
        key: &Key,
        subresource: &str,
        object: &Value,
    ) -> Result<Object, Error> {
        let path = format!("{}/{subresource}", of.path_of(key));
        self.send(Method::POST, &path, JSON, json::to_string(object).into())
            .await
    }

    /// Updates an object.
    pub async fn update(&self, of: &ResourceType, object: &Object) -> Result<Object, Error> {
        self.send(
            Method::PUT,
            &of.path_of(&object.key()),
            JSON,
            body(of, object),
        )
        .await
    }

    /// Updates the status of an object.
    pub async fn update_status(&self, of: &ResourceType, object: &Object) -> Result<Object, Error> {
        self.update_at(of, "status", object).await
    }

    /// Updates a subresource of an object.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// # let pod = mizzen_sdk::Object::parse(br#"{"metadata":{"name":"web","namespace":"default"},"spec":{"containers":[{"name":"web","image":"web"}]}}"#)?;
    /// # let mut pod = mizzen_sdk::dynamic::DynamicClient::new(client.clone()).create(&mizzen_sdk::resource::PODS, &pod).await?;
    /// use mizzen_sdk::dynamic::DynamicClient;
    /// use mizzen_sdk::resource::PODS;
    ///
    /// pod.entry("status").set("phase", "Running");
    /// let pod = DynamicClient::new(client).update_at(&PODS, "status", &pod).await?; // or update_status
    /// assert_eq!(pod["status"]["phase"].str(), "Running");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn update_at(
        &self,
        of: &ResourceType,
        subresource: &str,
        object: &Object,
    ) -> Result<Object, Error> {
        let path = format!("{}/{subresource}", of.path_of(&object.key()));
        self.send(Method::PUT, &path, JSON, body(of, object)).await
    }

    /// Patches an object, or a subresource unless that is empty.
    pub async fn patch(
        &self,
        of: &ResourceType,
        key: &Key,
        subresource: &str,
        how: PatchType<'_>,
        change: &Value,
    ) -> Result<Object, Error> {
        let mut path = of.path_of(key);
        if !subresource.is_empty() {
            path = format!("{path}/{subresource}");
        }
        if let PatchType::Apply { manager } = how {
            path += &query(&[("fieldManager", manager), ("force", "true")]);
        }
        self.send(
            Method::PATCH,
            &path,
            how.content_type(),
            json::to_string(change).into(),
        )
        .await
    }

    /// Deletes an object. Returns the object while it is terminating, or a Status.
    pub async fn delete(
        &self,
        of: &ResourceType,
        key: &Key,
        options: &DeleteOptions<'_>,
    ) -> Result<Object, Error> {
        self.send(Method::DELETE, &of.path_of(key), JSON, options.body())
            .await
    }

    /// Deletes all matching objects in a namespace.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use mizzen_sdk::dynamic::{DeleteOptions, DynamicClient, ListOptions};
    /// use mizzen_sdk::resource::CONFIG_MAPS;
    ///
    /// let which = ListOptions { labels: "app=web".into(), ..ListOptions::default() };
    /// DynamicClient::new(client).delete_collection(&CONFIG_MAPS, "default", &which, &DeleteOptions::default()).await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn delete_collection(
        &self,
        of: &ResourceType,
        namespace: &str,
        which: &ListOptions,
        options: &DeleteOptions<'_>,
    ) -> Result<(), Error> {
        let query = query(&[
            ("labelSelector", &which.labels),
            ("fieldSelector", &which.fields),
        ]);
        let path = format!("{}{query}", of.path(namespace));
        self.send(Method::DELETE, &path, JSON, options.body())
            .await
            .map(drop)
    }

    /// Sends a request to any path.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use mizzen_sdk::dynamic::DynamicClient;
    ///
    /// let version = DynamicClient::new(client).raw(http::Method::GET, "/version", None).await?;
    /// assert_eq!(version["major"].str(), "1");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn raw(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Object, Error> {
        let text = body
            .map(|body| json::to_string(body).into())
            .unwrap_or_default();
        self.send(method, path, JSON, text).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Vec<u8>,
    ) -> Result<Object, Error> {
        let accept = if self.metadata_only && method != Method::DELETE {
            METADATA
        } else {
            JSON
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("accept", accept);
        self.finish(request, content_type, body).await
    }

    async fn page(&self, path: &str) -> Result<Object, Error> {
        let accept = if self.metadata_only {
            METADATA_LIST
        } else {
            JSON
        };
        self.finish(Request::get(path).header("accept", accept), "", Vec::new())
            .await
    }

    async fn finish(
        &self,
        mut request: request::Builder,
        content_type: &str,
        body: Vec<u8>,
    ) -> Result<Object, Error> {
        if !body.is_empty() {
            request = request.header("content-type", content_type);
        }
        let request = request.body(body).map_err(Error::HttpError)?;
        let text = self.client.request_text(request).await?;
        Object::parse(text.as_bytes())
            .map_err(|error| Error::SerdeError(serde_json::Error::custom(error)))
    }
}

const JSON: &str = "application/json";
/// A server that cannot return metadata alone returns whole objects, which do as well.
const METADATA: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

impl PatchType<'_> {
    fn content_type(self) -> &'static str {
        match self {
            PatchType::Merge => "application/merge-patch+json",
            PatchType::Strategic => "application/strategic-merge-patch+json",
            PatchType::Json => "application/json-patch+json",
            PatchType::Apply { .. } => "application/apply-patch+yaml",
        }
    }
}

impl DeleteOptions<'_> {
    fn body(&self) -> Vec<u8> {
        let mut options = Value::object();
        options.set("kind", "DeleteOptions");
        options.set("apiVersion", "v1");
        if let Some(uid) = self.uid {
            options.entry("preconditions").set("uid", uid);
        }
        if let Some(version) = self.version {
            options
                .entry("preconditions")
                .set("resourceVersion", version);
        }
        if let Some(propagation) = self.propagation {
            options.set("propagationPolicy", propagation);
        }
        if let Some(seconds) = self.grace_seconds {
            options.set("gracePeriodSeconds", seconds);
        }
        json::to_string(&options).into()
    }
}

/// The body of an object. Items of a list lack kind and apiVersion, so they are added.
fn body(of: &ResourceType, object: &Value) -> Vec<u8> {
    let text = json::to_string(object);
    if !object["kind"].str().is_empty() || text.len() <= "{}".len() {
        return text.into();
    }
    format!(
        r#"{{"kind":"{}","apiVersion":"{}",{}"#,
        of.kind,
        of.api_version(),
        &text[1..]
    )
    .into()
}

/// The query string of all parameters that are not empty.
///
/// ```
/// use mizzen_sdk::dynamic::query;
///
/// assert_eq!(query(&[("labelSelector", "app=web"), ("limit", "")]), "?labelSelector=app%3Dweb");
/// ```
pub fn query(parameters: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in parameters.iter().filter(|(_, value)| !value.is_empty()) {
        text.push(if text.is_empty() { '?' } else { '&' });
        text.push_str(name);
        text.push('=');
        value.bytes().for_each(|byte| escape(byte, &mut text));
    }
    text
}

fn escape(byte: u8, text: &mut String) {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
            text.push(char::from(byte))
        }
        _ => text.push_str(&format!("%{byte:02X}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::PODS;

    #[test]
    fn queries_are_escaped_and_empty_parameters_omitted() {
        assert_eq!(
            query(&[("a", "x=1,y in (b c)"), ("b", "")]),
            "?a=x%3D1%2Cy%20in%20%28b%20c%29"
        );
        assert_eq!(query(&[("a", "")]), "");
    }

    #[test]
    fn a_body_has_its_kind_once() {
        let check = |object: &str, expected: &str| {
            let object = json::parse(object.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(body(&PODS, &object)).unwrap(), expected);
        };
        check(
            r#"{"metadata":{}}"#,
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{}}"#,
        );
        check(r#"{"kind":"Pod","spec":{}}"#, r#"{"kind":"Pod","spec":{}}"#);
    }
}
