//! Where objects come from: an API server, a data directory that no server uses, or etcd.

use std::path::Path;
use std::sync::Arc;

use kube::{Client, Error};
use mizzen_encryption::Encryption;
use mizzen_sdk::dynamic::query;
use mizzen_sdk::write::message;
use mizzen_store::Revision;
use mizzen_value::Value;

use super::directory::{DirectoryError, EtcdObjects, OfflineServer};
use super::request::Requests;
use super::selection::{Selected, Selection};
use super::served::{ServedType, ServedTypes};
use super::strip::strip;
use super::{FileError, Keep, ObjectFile, order};

/// The objects in a page of a list. Kubernetes: as kubectl.
const PAGE: &str = "500";

/// How often a list is begun again if its continue token expires; after that it is read in one page.
const RESTARTS: usize = 3;

/// How the requests of an export introduce themselves.
pub(super) const AGENT: &str = "mizzen-export";

/// Why objects cannot be exported.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    /// The directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// Discovery failed.
    #[error("cannot discover the resources of the server: {0}")]
    Discover(String),
    /// A group is not available, so its objects would be missing.
    #[error("{group} is not available: {why}; leave it out with --exclude '*.{}'", group.split('/').next().unwrap_or_default())]
    Unavailable {
        /// The group and version.
        group: String,
        /// Why not.
        why: String,
    },
    /// Objects cannot be listed.
    #[error("cannot list {resource}: {why}; leave them out with --exclude {resource}")]
    List {
        /// The resource.
        resource: String,
        /// Why not.
        why: String,
    },
    /// The file cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Where objects come from.
pub(crate) enum Source {
    /// An API server.
    Server(Client),
    /// A data directory that no server uses, or etcd.
    Offline(OfflineSource),
}

/// A data directory that is open for reading, or a copy of the objects in etcd.
pub(crate) struct OfflineSource(OfflineServer);

/// What was exported, and what was not.
#[derive(Debug, Default)]
pub(crate) struct Exported {
    pub(crate) n_objects: usize,
    pub(crate) n_types: usize,
    /// Objects that clusters make themselves.
    pub(crate) n_generated: usize,
    /// Objects that are being deleted.
    pub(crate) n_deleting: usize,
    /// Groups of other servers behind this one.
    pub(crate) aggregated: Vec<String>,
}

impl Source {
    /// A data directory that no server uses.
    pub(crate) async fn directory(
        directory: &Path,
        encryption: Option<Arc<Encryption>>,
    ) -> Result<Source, DirectoryError> {
        let server = OfflineServer::open_read_only(directory, encryption).await?;
        Ok(Source::Offline(OfflineSource(server)))
    }

    /// The objects in etcd, all of one revision.
    pub(crate) async fn etcd(objects: EtcdObjects) -> Result<Source, DirectoryError> {
        let server = OfflineServer::etcd_copy_read_only(objects).await?;
        Ok(Source::Offline(OfflineSource(server)))
    }

    /// Writes the selected objects to a file: namespaces and definitions first, as an import needs them.
    pub(crate) async fn export(
        self,
        selection: &Selection,
        keep: &Keep,
        file: &mut ObjectFile,
    ) -> Result<Exported, SourceError> {
        match self {
            Source::Server(client) => {
                let requests = Requests::new(client);
                export(&requests, selection, keep, file).await
            }
            Source::Offline(OfflineSource(server)) => {
                let exported = export(&server.requests(AGENT), selection, keep, file).await;
                server.close().await;
                exported
            }
        }
    }
}

async fn export(
    requests: &Requests,
    selection: &Selection,
    keep: &Keep,
    file: &mut ObjectFile,
) -> Result<Exported, SourceError> {
    let served = ServedTypes::discover(requests).await;
    let served = served.map_err(|error| SourceError::Discover(message(&error)))?;
    let mut exported = Exported::default();
    // A list has the revision of the store, which deletes move on, too.
    let mut latest = Revision::ZERO;
    for (group, why) in &served.unavailable {
        let name = super::group_of(group);
        let is_wanted = selection.names_group(name) || !served.is_aggregated(group);
        if is_wanted && selection.wants_type(name, "", "", true) {
            let (group, why) = (group.clone(), why.clone());
            return Err(SourceError::Unavailable { group, why });
        }
    }
    let mut types = served.stored();
    types.retain(|one| {
        let resource = &one.resource;
        selection.wants_type(
            &resource.group,
            &resource.kind,
            &resource.plural,
            resource.namespaced,
        )
    });
    types.sort_by_cached_key(|one| {
        let resource = &one.resource;
        let rank = order::rank(&resource.group, &resource.kind);
        (rank, resource.group.clone(), resource.plural.clone())
    });
    for one in types {
        let api_version = one.resource.api_version();
        let is_aggregated = served.is_aggregated(&api_version);
        if is_aggregated && !selection.names_group(&one.resource.group) {
            exported.aggregated.push(api_version);
            continue;
        }
        let n_before = exported.n_objects;
        for listed in list_selected(requests, one, selection).await? {
            // Another server has a counter of its own.
            if !is_aggregated {
                latest = latest.max(listed.revision);
            }
            for object in listed.objects {
                let object = with_type(one, object);
                match selection.check(&object, &one.resource.plural, keep) {
                    Selected::Yes => {}
                    Selected::No => continue,
                    Selected::Generated => {
                        exported.n_generated += 1;
                        continue;
                    }
                    Selected::Deleting => {
                        exported.n_deleting += 1;
                        continue;
                    }
                }
                let mut object = object;
                strip(&mut object, keep);
                file.write(&object)?;
                exported.n_objects += 1;
            }
        }
        exported.n_types += usize::from(exported.n_objects > n_before);
    }
    if keep.revision && latest > Revision::ZERO {
        file.write_revision(latest)?;
    }
    exported.aggregated.sort();
    exported.aggregated.dedup();
    Ok(exported)
}

/// A list of all pages.
struct Listed {
    objects: Vec<Value>,
    /// The revision of the store that it shows; zero if it has none.
    revision: Revision,
}

/// The objects of a type, by namespace if namespaces are selected.
async fn list_selected(
    requests: &Requests,
    one: &ServedType,
    selection: &Selection,
) -> Result<Vec<Listed>, SourceError> {
    let all = [String::new()];
    let namespaces = match one.resource.namespaced && !selection.namespaces().is_empty() {
        true => selection.namespaces(),
        false => &all,
    };
    let mut lists = Vec::new();
    for namespace in namespaces {
        let path = one.resource.path(namespace);
        match list(requests, &path, selection.label_text()).await {
            Ok(listed) => lists.push(listed),
            // Its definition was deleted meanwhile, and with it all objects.
            Err(Error::Api(status)) if status.code == 404 => {}
            Err(error) => {
                let (group, plural) = (&one.resource.group, &one.resource.plural);
                let resource = match group.is_empty() {
                    true => plural.to_string(),
                    false => format!("{plural}.{group}"),
                };
                let why = message(&error);
                return Err(SourceError::List { resource, why });
            }
        }
    }
    Ok(lists)
}

/// All objects of a path, page by page. A list that takes so long that its continue token expires is begun again: objects of
/// another revision would not belong to the ones that were read.
async fn list(requests: &Requests, path: &str, labels: &str) -> Result<Listed, Error> {
    for limit in [PAGE; RESTARTS].into_iter().chain([""]) {
        match list_pages(requests, path, labels, limit).await {
            Err(Error::Api(status)) if status.code == 410 && !limit.is_empty() => {}
            listed => return listed,
        }
    }
    unreachable!("the last list has one page, so no token expires")
}

async fn list_pages(
    requests: &Requests,
    path: &str,
    labels: &str,
    limit: &str,
) -> Result<Listed, Error> {
    let (mut objects, mut token) = (Vec::new(), String::new());
    loop {
        let parameters = [
            ("labelSelector", labels),
            ("limit", limit),
            ("continue", &token),
        ];
        let mut page = requests
            .get(&format!("{path}{}", query(&parameters)))
            .await?;
        token = page["metadata"]["continue"].str().to_owned();
        if let Some(items) = page.get_mut("items") {
            objects.append(items.make_list());
        }
        if token.is_empty() {
            let revision = page["metadata"]["resourceVersion"].str().parse();
            let revision = Revision(revision.unwrap_or_default());
            return Ok(Listed { objects, revision });
        }
    }
}

/// The object with apiVersion and kind, which items of lists lack, in front.
fn with_type(one: &ServedType, object: Value) -> Value {
    let mut typed = Value::object();
    typed.set("apiVersion", one.resource.api_version());
    typed.set("kind", &*one.resource.kind);
    if let Value::Map(members) = object {
        for (name, value) in members {
            if name != "apiVersion" && name != "kind" {
                typed.set(&name, value);
            }
        }
    }
    typed
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::Full;
    use kube::client::Body;
    use parking_lot::Mutex;
    use tower::service_fn;

    use super::*;

    /// A server whose tokens expire `n_expiring` times.
    async fn read(n_expiring: usize) -> (Vec<String>, Vec<String>) {
        let queries = Arc::new(Mutex::new(Vec::new()));
        let seen = queries.clone();
        let service = service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let mut seen = seen.lock();
            seen.push(query.clone());
            let n_restarts = seen
                .iter()
                .filter(|query| query.contains("continue"))
                .count();
            let item = |name| format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
            let (code, text) = if query.contains("continue") && n_restarts <= n_expiring {
                let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old"}"#;
                (410, status.to_owned())
            } else if query.contains("continue") {
                (
                    200,
                    format!(
                        r#"{{"metadata":{{"resourceVersion":"7"}},"items":[{}]}}"#,
                        item("b")
                    ),
                )
            } else if query.contains("limit") {
                let text = format!(
                    r#"{{"metadata":{{"continue":"x"}},"items":[{}]}}"#,
                    item("a")
                );
                (200, text)
            } else {
                let items = [item("a"), item("b")].join(",");
                let text = format!(r#"{{"metadata":{{"resourceVersion":"7"}},"items":[{items}]}}"#);
                (200, text)
            };
            let response = Response::builder()
                .status(code)
                .body(Full::new(Bytes::from(text)));
            async move { Ok::<_, Infallible>(response.expect("it is valid")) }
        });
        let requests = Requests::new(Client::new(service, "default"));
        let listed = list(&requests, "/api/v1/configmaps", "").await.unwrap();
        assert_eq!(listed.revision, Revision(7));
        let name = |object: &Value| object["metadata"]["name"].str().to_owned();
        let queries = queries.lock().clone();
        (listed.objects.iter().map(name).collect(), queries)
    }

    #[tokio::test]
    async fn a_list_whose_token_expires_is_begun_again_and_at_last_read_whole() {
        let (names, queries) = read(0).await;
        assert_eq!(names, ["a", "b"]);
        assert_eq!(queries, ["limit=500", "limit=500&continue=x"]);
        let (names, queries) = read(1).await;
        assert_eq!((names.len(), queries.len()), (2, 4));
        let (names, queries) = read(10).await;
        assert_eq!(names, ["a", "b"]);
        assert_eq!(queries.last().unwrap(), "");
        assert_eq!(queries.len(), 7);
    }
}
