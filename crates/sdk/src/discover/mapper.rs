//! REST mapping: from resource names (`po`, `pods`, `Pod`, `pods.v1.apps`) to kinds, and back.

use parking_lot::RwLock;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    APIGroupList, APIResource, APIResourceList, APIVersions,
};
use kube::api::ApiResource;
use kube::core::{GroupVersionKind, GroupVersionResource};
use kube::{Client, Error};

/// One kind in one version, with all its names.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use mizzen_sdk::discover::Mapper;
///
/// let pods = Mapper::new(client).find("po").await?;
/// assert_eq!((&*pods.gvk().kind, &*pods.gvr().resource), ("Pod", "pods"));
/// assert_eq!(pods.path(Some("shop")), "/api/v1/namespaces/shop/pods");
/// assert!(pods.subresources.contains(&"status".to_owned()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// Group, version, kind and plural.
    pub resource: ApiResource,
    /// The singular name.
    pub singular: String,
    /// Short names, such as `po`.
    pub short_names: Vec<String>,
    /// Categories, such as `all`.
    pub categories: Vec<String>,
    /// Whether its objects are namespaced.
    pub namespaced: bool,
    /// Its verbs.
    pub verbs: Vec<String>,
    /// Its subresources: `status`, `scale`.
    pub subresources: Vec<String>,
}

impl Mapping {
    /// Group, version and kind.
    pub fn gvk(&self) -> GroupVersionKind {
        GroupVersionKind::gvk(
            &self.resource.group,
            &self.resource.version,
            &self.resource.kind,
        )
    }

    /// Group, version and plural.
    pub fn gvr(&self) -> GroupVersionResource {
        GroupVersionResource::gvr(
            &self.resource.group,
            &self.resource.version,
            &self.resource.plural,
        )
    }

    /// The path of its objects in a namespace, or in all.
    pub fn path(&self, namespace: Option<&str>) -> String {
        let ApiResource {
            group,
            version,
            plural,
            ..
        } = &self.resource;
        let root = if group.is_empty() {
            format!("/api/{version}")
        } else {
            format!("/apis/{group}/{version}")
        };
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
            None => format!("{root}/{plural}"),
        }
    }
}

/// Why a name maps to no kind.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use mizzen_sdk::discover::{MapError, Mapper};
///
/// let error = Mapper::new(client).find("ovens").await.unwrap_err();
/// assert!(matches!(error, MapError::Unknown(_)));
/// assert_eq!(error.to_string(), r#"the server doesn't have a resource type "ovens""#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The server has no such resource type.
    #[error("the server doesn't have a resource type {0:?}")]
    Unknown(String),
    /// The request failed.
    #[error(transparent)]
    Client(#[from] Error),
}

/// Maps names to kinds by discovery. It reads discovery once, and again for an unknown name, so
/// that a new CRD is found without a restart. Cheap to clone.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use mizzen_sdk::discover::Mapper;
///
/// let mapper = Mapper::new(client);
/// for name in ["deploy", "deployment", "Deployment", "deployments.apps", "deployments.v1.apps"] {
///     assert_eq!(mapper.find(name).await?.resource.plural, "deployments");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Mapper {
    client: Client,
    known: Arc<RwLock<Arc<Vec<Mapping>>>>,
}

impl Mapper {
    /// A mapper without any data yet.
    pub fn new(client: Client) -> Mapper {
        Mapper {
            client,
            known: Arc::default(),
        }
    }

    /// The kind of a name: `pods`, `pod`, `po`, `Pod`, `deployments.apps`, `deployments.v1.apps`.
    /// Of several groups the first counts, and of several versions the preferred one.
    pub async fn find(&self, name: &str) -> Result<Mapping, MapError> {
        self.find_where(|mapping| is_called(mapping, name))
            .await?
            .ok_or_else(|| MapError::Unknown(name.into()))
    }

    /// The mapping of a kind in a version.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use kube::core::GroupVersionKind;
    /// use mizzen_sdk::discover::Mapper;
    ///
    /// let deployments = Mapper::new(client).by_kind(&GroupVersionKind::gvk("apps", "v1", "Deployment")).await?;
    /// assert_eq!(deployments.resource.plural, "deployments");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn by_kind(&self, gvk: &GroupVersionKind) -> Result<Mapping, MapError> {
        let found = self.find_where(|mapping| mapping.gvk() == *gvk).await?;
        found
            .ok_or_else(|| MapError::Unknown(format!("{}/{} {}", gvk.group, gvk.version, gvk.kind)))
    }

    /// The mapping of a resource in a version.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use kube::core::GroupVersionResource;
    /// use mizzen_sdk::discover::Mapper;
    ///
    /// let deployments = Mapper::new(client).by_resource(&GroupVersionResource::gvr("apps", "v1", "deployments")).await?;
    /// assert_eq!(deployments.resource.kind, "Deployment");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn by_resource(&self, gvr: &GroupVersionResource) -> Result<Mapping, MapError> {
        let found = self.find_where(|mapping| mapping.gvr() == *gvr).await?;
        found.ok_or_else(|| {
            MapError::Unknown(format!("{}.{}.{}", gvr.resource, gvr.version, gvr.group))
        })
    }

    /// All kinds of a category, such as `all`.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use mizzen_sdk::discover::Mapper;
    ///
    /// let all = Mapper::new(client).by_category("all").await?;
    /// assert!(all.iter().any(|mapping| mapping.resource.kind == "Pod"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn by_category(&self, category: &str) -> Result<Vec<Mapping>, MapError> {
        let known = self.all().await?;
        let belongs = |mapping: &&Mapping| mapping.categories.iter().any(|known| known == category);
        Ok(known.iter().filter(belongs).cloned().collect())
    }

    /// All kinds, preferred versions first within their group.
    pub async fn all(&self) -> Result<Arc<Vec<Mapping>>, MapError> {
        let known = self.known.read().clone();
        if known.is_empty() {
            return self.refresh().await;
        }
        Ok(known)
    }

    async fn find_where(
        &self,
        wanted: impl Fn(&Mapping) -> bool,
    ) -> Result<Option<Mapping>, MapError> {
        if let Some(found) = self.all().await?.iter().find(|mapping| wanted(mapping)) {
            return Ok(Some(found.clone()));
        }
        Ok(self
            .refresh()
            .await?
            .iter()
            .find(|mapping| wanted(mapping))
            .cloned())
    }

    /// Reads discovery again.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use mizzen_sdk::discover::Mapper;
    ///
    /// let mapper = Mapper::new(client);
    /// let before = mapper.all().await?.len();
    /// assert_eq!(mapper.refresh().await?.len(), before); // no definition was added since
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn refresh(&self) -> Result<Arc<Vec<Mapping>>, MapError> {
        let mut mappings = Vec::new();
        let core: APIVersions = self.client.list_core_api_versions().await?;
        for version in core.versions {
            append(
                &mut mappings,
                "",
                &version,
                self.client.list_core_api_resources(&version).await?,
            );
        }
        let groups: APIGroupList = self.client.list_api_groups().await?;
        for group in groups.groups {
            let mut versions = group.versions;
            if let Some(preferred) = &group.preferred_version {
                versions.sort_by_key(|version| version.version != preferred.version);
            }
            for version in versions {
                // An unavailable group does not hide the rest.
                match self
                    .client
                    .list_api_group_resources(&version.group_version)
                    .await
                {
                    Ok(list) => append(&mut mappings, &group.name, &version.version, list),
                    Err(error) => {
                        tracing::debug!(%error, group = version.group_version, "cannot discover an API group")
                    }
                }
            }
        }
        let mappings = Arc::new(mappings);
        *self.known.write() = mappings.clone();
        Ok(mappings)
    }
}

fn append(mappings: &mut Vec<Mapping>, group: &str, version: &str, list: APIResourceList) {
    let (resources, below): (Vec<_>, Vec<_>) = list
        .resources
        .into_iter()
        .partition(|resource| !resource.name.contains('/'));
    for resource in resources {
        let prefix = format!("{}/", resource.name);
        let subresources = below
            .iter()
            .filter_map(|below| below.name.strip_prefix(&prefix))
            .map(String::from);
        mappings.push(mapping(group, version, subresources.collect(), resource));
    }
}

fn mapping(
    group: &str,
    version: &str,
    subresources: Vec<String>,
    resource: APIResource,
) -> Mapping {
    Mapping {
        resource: ApiResource {
            group: group.into(),
            version: version.into(),
            api_version: if group.is_empty() {
                version.into()
            } else {
                format!("{group}/{version}")
            },
            kind: resource.kind,
            plural: resource.name,
        },
        singular: resource.singular_name,
        short_names: resource.short_names.unwrap_or_default(),
        categories: resource.categories.unwrap_or_default(),
        namespaced: resource.namespaced,
        verbs: resource.verbs,
        subresources,
    }
}

/// Whether a name refers to this kind.
fn is_called(mapping: &Mapping, name: &str) -> bool {
    let ApiResource {
        group,
        version,
        plural,
        kind,
        ..
    } = &mapping.resource;
    let (word, rest) = name.split_once('.').unwrap_or((name, ""));
    let lower = word.to_lowercase();
    let called = lower == *plural
        || lower == mapping.singular
        || mapping.short_names.contains(&lower)
        || lower == kind.to_lowercase();
    let placed = match rest {
        "" => true,
        rest if rest == group => true,
        rest => rest
            .split_once('.')
            .map_or(rest == version && group.is_empty(), |(v, g)| {
                v == version && g == group
            }),
    };
    called && placed
}
