//! The list and watch requests of a kind.

use std::io;
use std::marker::PhantomData;

use futures_util::io::{AsyncBufRead, AsyncBufReadExt};
use kube::Client;
use kube::api::{ListParams, WatchParams};
use kube::core::{Request, Status};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::cache::{Entry, Version, field};
use crate::fifo::Delta;

/// How the initial objects are read.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use k8s_openapi::api::core::v1::Pod;
/// use mizzen_sdk::watch::{Initial, ListWatch};
///
/// let mut pods: ListWatch<Pod> = ListWatch::all(client);
/// pods.initial = Initial::Stream; // a WatchList
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initial {
    /// By a list, with this page size.
    Pages(u32),
    /// By a streaming list (`sendInitialEvents`); by a list if the server does not support it.
    Stream,
}

/// What to list and watch.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use k8s_openapi::api::core::v1::Namespace;
/// use mizzen_sdk::watch::ListWatch;
///
/// let mut namespaces: ListWatch<Namespace> = ListWatch::all(client);
/// namespaces.fields = Some("metadata.name=default".into());
/// namespaces.metadata_only = true;
/// assert_eq!(namespaces.path(), "/api/v1/namespaces");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ListWatch<K> {
    client: Client,
    path: String,
    /// The label selector.
    pub labels: Option<String>,
    /// The field selector.
    pub fields: Option<String>,
    /// Read metadata alone; objects then have nothing else.
    pub metadata_only: bool,
    /// Drop the managed fields: they are seldom used, and a third of an object.
    pub forget_managed_fields: bool,
    /// How the initial objects are read.
    pub initial: Initial,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for ListWatch<K> {
    fn clone(&self) -> ListWatch<K> {
        ListWatch {
            client: self.client.clone(),
            path: self.path.clone(),
            labels: self.labels.clone(),
            fields: self.fields.clone(),
            metadata_only: self.metadata_only,
            forget_managed_fields: self.forget_managed_fields,
            initial: self.initial,
            kind: PhantomData,
        }
    }
}

/// Why a list or watch failed.
///
/// ```
/// use mizzen_sdk::watch::WatchError;
///
/// let error = WatchError::Expired("410".into());
/// assert_eq!(error.to_string(), "the version is too old: 410");
/// ```
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The resource version is too old; list again.
    #[error("the version is too old: {0}")]
    Expired(String),
    /// The request failed.
    #[error(transparent)]
    Client(#[from] kube::Error),
    /// The response cannot be decoded.
    #[error("cannot read what the server sent: {0}")]
    Read(#[from] serde_json::Error),
    /// The connection broke.
    #[error("the watch broke off: {0}")]
    Broken(#[from] io::Error),
    /// The server ended the watch with an error.
    #[error("the server ended the watch: {}", .0.message)]
    Refused(Box<Status>),
}

impl WatchError {
    /// Whether the server does not support streaming lists.
    fn is_unsupported(&self) -> bool {
        matches!(self, WatchError::Client(kube::Error::Api(status)) if matches!(status.code, 400 | 422))
    }
}

/// A page of a list.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use k8s_openapi::api::core::v1::Namespace;
/// use mizzen_sdk::watch::ListWatch;
///
/// let namespaces: ListWatch<Namespace> = ListWatch::all(client);
/// let page = namespaces.list("", "").await?;
/// assert!(page.next.is_empty() && !page.entries.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Page<K> {
    /// The objects.
    pub entries: Vec<Entry<K>>,
    /// The resource version of the list.
    pub version: String,
    /// The continue token; empty at the end.
    pub next: String,
}

#[derive(Deserialize)]
struct RawList<'a> {
    metadata: ListMetadata,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct ListMetadata {
    resource_version: String,
    r#continue: String,
}

impl<K: kube::Resource> ListWatch<K>
where
    K::DynamicType: Default,
{
    /// All objects of the kind, in every namespace.
    pub fn all(client: Client) -> ListWatch<K> {
        ListWatch::new(client, &K::DynamicType::default(), None)
    }

    /// The objects in one namespace.
    pub fn namespaced(client: Client, namespace: &str) -> ListWatch<K> {
        ListWatch::new(client, &K::DynamicType::default(), Some(namespace))
    }
}

impl<K: kube::Resource> ListWatch<K> {
    /// A kind that is known at run time, in a namespace or in all.
    pub fn new(client: Client, kind: &K::DynamicType, namespace: Option<&str>) -> ListWatch<K> {
        ListWatch::at(client, K::url_path(kind, namespace))
    }
}

impl<K> ListWatch<K> {
    /// The collection at a path.
    pub fn at(client: Client, path: impl Into<String>) -> ListWatch<K> {
        ListWatch {
            client,
            path: path.into(),
            labels: None,
            fields: None,
            metadata_only: false,
            forget_managed_fields: false,
            initial: Initial::Pages(500),
            kind: PhantomData,
        }
    }

    /// The path of the collection.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The path with the selectors, in one line.
    pub fn name(&self) -> String {
        let label = self
            .labels
            .as_ref()
            .map(|labels| format!("labelSelector={labels}"));
        let field = self
            .fields
            .as_ref()
            .map(|fields| format!("fieldSelector={fields}"));
        let metadata = self.metadata_only.then(|| "metadata".to_string());
        let chosen: Vec<String> = [label, field, metadata].into_iter().flatten().collect();
        if chosen.is_empty() {
            self.path.clone()
        } else {
            format!("{}?{}", self.path, chosen.join("&"))
        }
    }

    /// One page of a list. `version` is empty for the latest state, `0` for any.
    pub async fn list(&self, version: &str, next: &str) -> Result<Page<K>, WatchError> {
        let limit = match self.initial {
            Initial::Pages(limit) => Some(limit).filter(|limit| *limit > 0),
            Initial::Stream => None,
        };
        let mut params = ListParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            limit,
            ..ListParams::default()
        };
        if !next.is_empty() {
            params.continue_token = Some(next.into());
        } else if !version.is_empty() {
            params = params.at(version);
        }
        let request = Request::new(&self.path);
        let request = if self.metadata_only {
            request.list_metadata(&params)
        } else {
            request.list(&params)
        };
        let text = self
            .client
            .request_text(request.map_err(kube::Error::BuildRequest)?)
            .await;
        read_page(&text.map_err(expired)?, self.forget_managed_fields)
    }

    /// A watch from `version` on.
    pub async fn watch(&self, version: &str, seconds: u32) -> Result<WatchStream<K>, WatchError> {
        self.stream(self.watch_params(seconds), version).await
    }

    /// A watch that starts with the initial objects; `None` if the server does not support it.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use k8s_openapi::api::core::v1::Namespace;
    /// use mizzen_sdk::watch::ListWatch;
    ///
    /// let namespaces: ListWatch<Namespace> = ListWatch::all(client);
    /// match namespaces.watch_initial(60).await? {
    ///     Some(mut watch) => assert!(watch.next().await?.is_some()), // the first object
    ///     None => println!("the server does not stream lists"),
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn watch_initial(&self, seconds: u32) -> Result<Option<WatchStream<K>>, WatchError> {
        let params = self.watch_params(seconds).initial_events();
        match self.stream(params, "").await {
            Ok(stream) => Ok(Some(stream)),
            Err(error) if error.is_unsupported() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn watch_params(&self, seconds: u32) -> WatchParams {
        WatchParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            timeout: Some(seconds),
            ..WatchParams::default()
        }
    }

    async fn stream(
        &self,
        params: WatchParams,
        version: &str,
    ) -> Result<WatchStream<K>, WatchError> {
        let request = Request::new(&self.path);
        let request = match self.metadata_only {
            true => request.watch_metadata(&params, version),
            false => request.watch(&params, version),
        };
        let body = self
            .client
            .request_stream(request.map_err(kube::Error::BuildRequest)?)
            .await;
        Ok(WatchStream {
            body: Box::pin(body.map_err(expired)?),
            line: Vec::new(),
            forget: self.forget_managed_fields,
            kind: PhantomData,
        })
    }
}

fn expired(error: kube::Error) -> WatchError {
    match error {
        kube::Error::Api(status) if status.code == 410 => {
            WatchError::Expired(status.message.clone())
        }
        error => WatchError::Client(error),
    }
}

fn read_page<K>(text: &str, forget: bool) -> Result<Page<K>, WatchError> {
    let list: RawList = serde_json::from_str(text)?;
    let items = list.items.unwrap_or_default();
    let entries = items
        .iter()
        .map(|item| read_entry(item, forget))
        .collect::<Result<_, _>>()?;
    Ok(Page {
        entries,
        version: list.metadata.resource_version,
        next: list.metadata.r#continue,
    })
}

fn read_entry<K>(object: &RawValue, forget: bool) -> Result<Entry<K>, serde_json::Error> {
    let text = object.get();
    let managed: Option<&RawValue> = match forget {
        true => field::read(text.as_bytes(), &["metadata", "managedFields"])?,
        false => None,
    };
    let Some(managed) = managed.map(RawValue::get) else {
        return Entry::of_json(text.as_bytes());
    };
    let start = managed.as_ptr() as usize - text.as_ptr() as usize;
    let (before, after) = (&text[..start], &text[start + managed.len()..]);
    // An empty list would make the server drop the managed fields as well, once the object is
    // written back.
    Entry::of_json([before, "null", after].concat().into_bytes())
}

/// A running watch.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use k8s_openapi::api::core::v1::Namespace;
/// use mizzen_sdk::watch::{ListWatch, WatchEvent, WatchStream};
///
/// let namespaces: ListWatch<Namespace> = ListWatch::all(client);
/// let mut watch: WatchStream<Namespace> = namespaces.watch("0", 60).await?;
/// let event = watch.next().await?.expect("the watch is open");
/// assert!(matches!(event, WatchEvent::Delta(delta) if !delta.is_gone()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct WatchStream<K> {
    body: std::pin::Pin<Box<dyn AsyncBufRead + Send>>,
    line: Vec<u8>,
    forget: bool,
    kind: PhantomData<fn() -> K>,
}

/// One event of a watch.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use k8s_openapi::api::core::v1::Namespace;
/// use mizzen_sdk::watch::{ListWatch, WatchEvent, WatchStream};
///
/// let namespaces: ListWatch<Namespace> = ListWatch::all(client);
/// let mut watch: WatchStream<Namespace> = namespaces.watch("0", 60).await?;
/// let event = watch.next().await?.expect("the watch is open");
/// assert!(matches!(event, WatchEvent::Delta(delta) if !delta.is_gone()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub enum WatchEvent<K> {
    /// A change of an object.
    Delta(Delta<K>),
    /// No change up to this version.
    Bookmark {
        /// The version.
        version: String,
        /// Whether the initial objects are complete.
        initial_end: bool,
    },
}

#[derive(Deserialize)]
struct RawEvent<'a> {
    #[serde(borrow)]
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct BookmarkObject {
    metadata: kube::api::ObjectMeta,
}

impl<K> WatchStream<K> {
    /// The next event; `None` when the server has ended the watch.
    pub async fn next(&mut self) -> Result<Option<WatchEvent<K>>, WatchError> {
        self.line.clear();
        if self.body.read_until(b'\n', &mut self.line).await? == 0 {
            return Ok(None);
        }
        // A truncated line is ignored.
        if self.line.last() != Some(&b'\n')
            && serde_json::from_slice::<RawEvent>(&self.line).is_err()
        {
            return Ok(None);
        }
        read_event(&self.line, self.forget).map(Some)
    }
}

fn read_event<K>(line: &[u8], forget: bool) -> Result<WatchEvent<K>, WatchError> {
    let event: RawEvent = serde_json::from_slice(line)?;
    let text = event.object.get();
    let entry = || read_entry(event.object, forget);
    Ok(WatchEvent::Delta(match event.r#type {
        "ADDED" => Delta::Added(entry()?),
        "MODIFIED" => Delta::Updated(entry()?),
        "DELETED" => Delta::Deleted(entry()?),
        "BOOKMARK" => return read_bookmark(text),
        _ => return Err(refused(serde_json::from_str(text)?)),
    }))
}

fn read_bookmark<K>(text: &str) -> Result<WatchEvent<K>, WatchError> {
    let BookmarkObject { metadata } = serde_json::from_str(text)?;
    let initial_end = metadata
        .annotations
        .is_some_and(|notes| notes.contains_key("k8s.io/initial-events-end"));
    Ok(WatchEvent::Bookmark {
        version: metadata.resource_version.unwrap_or_default(),
        initial_end,
    })
}

fn refused(status: Status) -> WatchError {
    match status.code {
        410 => WatchError::Expired(status.message),
        _ => WatchError::Refused(Box::new(status)),
    }
}

impl<K> WatchEvent<K> {
    /// The version up to which everything is known with this event.
    pub(crate) fn version(&self) -> Version {
        match self {
            WatchEvent::Delta(delta) => delta.entry().version(),
            WatchEvent::Bookmark { version, .. } => Version::parse(version),
        }
    }
}

impl<K> Page<K> {
    /// The resource version of the list.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use k8s_openapi::api::core::v1::Namespace;
    /// use mizzen_sdk::cache::Version;
    /// use mizzen_sdk::watch::ListWatch;
    ///
    /// let namespaces: ListWatch<Namespace> = ListWatch::all(client);
    /// assert!(namespaces.list("", "").await?.as_of() > Version(0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn as_of(&self) -> Version {
        Version::parse(&self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Object;

    #[track_caller]
    fn check(text: &str, forget: bool, expected: &str) {
        let object: Box<RawValue> = serde_json::from_str(text).unwrap();
        let entry: Entry<Object> = read_entry(&object, forget).unwrap();
        assert_eq!(std::str::from_utf8(entry.text()).unwrap(), expected);
    }

    #[test]
    fn managed_fields_are_dropped_on_request() {
        let text = r#"{"metadata":{"name":"a","managedFields": [{"manager":"]"}] ,"uid":"u"},"managedFields":1}"#;
        let less =
            r#"{"metadata":{"name":"a","managedFields": null ,"uid":"u"},"managedFields":1}"#;
        check(text, true, less);
        check(text, false, text);
        check(r#"{"spec":{}}"#, true, r#"{"spec":{}}"#);
    }
}
