//! The parameters of admission policies, read from the main server.

use mizzen_object::GroupVersionKind;
use mizzen_object::select::LabelSelector;
use mizzen_value::Value;

use super::{KEPT, Upstream, version_path};

/// Where the objects of a kind are.
#[derive(Clone)]
pub(crate) struct ParamResource {
    /// `/apis/example.com/v1`.
    root: String,
    plural: String,
    pub is_namespaced: bool,
}

impl Upstream {
    /// The resource of a kind, by discovery; none if the main server does not serve it.
    pub(crate) async fn find_resource(
        &self,
        kind: &GroupVersionKind,
    ) -> Result<Option<ParamResource>, String> {
        let root = version_path(kind);
        let cached = format!("{root} {}", kind.kind);
        if let Some(resource) = self.0.resources.get(&cached) {
            return Ok(Some(resource));
        }
        let (code, document) = self
            .request("GET", &root, None)
            .await
            .map_err(|error| error.to_string())?;
        if code == 404 {
            return Ok(None);
        }
        let mut resources = document["resources"].list().iter();
        let found = resources.find(|resource| {
            resource["kind"].str() == kind.kind && !resource["name"].str().contains('/')
        });
        let found = found.map(|resource| ParamResource {
            root,
            plural: resource["name"].str().into(),
            is_namespaced: resource["namespaced"].bool(),
        });
        if let Some(resource) = &found {
            self.0.resources.put(cached, resource.clone(), KEPT);
        }
        Ok(found)
    }

    /// One object; none if it does not exist.
    pub(crate) async fn find_param(
        &self,
        resource: &ParamResource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, String> {
        let path = format!("{}/{name}", resource.path(namespace));
        let answer = self.request("GET", &path, None).await;
        match answer.map_err(|error| error.to_string())? {
            (200, object) => Ok(Some(object)),
            (404, _) => Ok(None),
            (_, status) => Err(status["message"].str().into()),
        }
    }

    /// The objects that a selector selects.
    pub(crate) async fn select_params(
        &self,
        resource: &ParamResource,
        namespace: &str,
        selector: &LabelSelector,
    ) -> Result<Vec<Value>, String> {
        let list = self.list(&resource.path(namespace), "").await?;
        let mut objects = list.map(|(objects, _)| objects).unwrap_or_default();
        objects.retain(|object| {
            let labels = &object["metadata"]["labels"];
            selector.matches(|label| labels[label].as_str())
        });
        Ok(objects)
    }
}

impl ParamResource {
    fn path(&self, namespace: &str) -> String {
        match namespace {
            "" => format!("{}/{}", self.root, self.plural),
            namespace => format!("{}/namespaces/{namespace}/{}", self.root, self.plural),
        }
    }
}
