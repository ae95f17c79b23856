//! From what people say (`po`, `pods`, `Pod`, `pods.v1.apps`) to what the server calls it, and back.

use parking_lot::RwLock;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    APIGroupList, APIResource, APIResourceList, APIVersions,
};
use kube::api::ApiResource;
use kube::core::{GroupVersionKind, GroupVersionResource};
use kube::{Client, Error};

/// One kind in one version, under all its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// Group, version, kind and plural.
    pub resource: ApiResource,
    /// Its name for one.
    pub singular: String,
    /// Abbreviations.
    pub short_names: Vec<String>,
    /// Groups of resources it belongs to, such as `all`.
    pub categories: Vec<String>,
    /// Whether its objects live in a namespace.
    pub namespaced: bool,
    /// What can be done with it.
    pub verbs: Vec<String>,
    /// What can be asked for below an object: `status`, `scale`.
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

/// Why a name leads to no kind.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// Nothing of that name.
    #[error("the server doesn't have a resource type {0:?}")]
    Unknown(String),
    /// The server could not be asked.
    #[error(transparent)]
    Client(#[from] Error),
}

/// Knows what a server calls its kinds. It asks once, and again when somebody asks for what it does not know: a
/// new definition is found without a restart. Cheap to clone.
#[derive(Clone)]
pub struct Mapper {
    client: Client,
    known: Arc<RwLock<Arc<Vec<Mapping>>>>,
}

impl Mapper {
    /// Knows nothing yet.
    pub fn new(client: Client) -> Mapper {
        Mapper {
            client,
            known: Arc::default(),
        }
    }

    /// The kind that somebody means: `pods`, `pod`, `po`, `Pod`, `deployments.apps`, `deployments.v1.apps`. Of
    /// several groups the first counts, and of several versions the one that its group prefers.
    pub async fn find(&self, name: &str) -> Result<Mapping, MapError> {
        self.find_where(|mapping| is_called(mapping, name))
            .await?
            .ok_or_else(|| MapError::Unknown(name.into()))
    }

    /// A kind in a version.
    pub async fn by_kind(&self, gvk: &GroupVersionKind) -> Result<Mapping, MapError> {
        let found = self.find_where(|mapping| mapping.gvk() == *gvk).await?;
        found
            .ok_or_else(|| MapError::Unknown(format!("{}/{} {}", gvk.group, gvk.version, gvk.kind)))
    }

    /// A resource in a version.
    pub async fn by_resource(&self, gvr: &GroupVersionResource) -> Result<Mapping, MapError> {
        let found = self.find_where(|mapping| mapping.gvr() == *gvr).await?;
        found.ok_or_else(|| {
            MapError::Unknown(format!("{}.{}.{}", gvr.resource, gvr.version, gvr.group))
        })
    }

    /// Every kind of a category, such as `all`.
    pub async fn by_category(&self, category: &str) -> Result<Vec<Mapping>, MapError> {
        let known = self.all().await?;
        let belongs = |mapping: &&Mapping| mapping.categories.iter().any(|known| known == category);
        Ok(known.iter().filter(belongs).cloned().collect())
    }

    /// Everything, preferred versions first within their group.
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

    /// Asks the server again.
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
                // A group whose server is away does not hide the others.
                match self
                    .client
                    .list_api_group_resources(&version.group_version)
                    .await
                {
                    Ok(list) => append(&mut mappings, &group.name, &version.version, list),
                    Err(error) => {
                        tracing::debug!(%error, group = version.group_version, "cannot be discovered")
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

/// Whether somebody who says `name` may mean this kind.
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
