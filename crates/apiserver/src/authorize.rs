//! May they? Until roles are known, only `system:masters` may, and everybody may ask how the server is.

use mizzen_object::{GroupResource, Status};

use crate::request::{Request, ResourcePath, Target};

/// Lets a request through or refuses it.
pub(crate) fn check(request: &Request) -> Result<(), Status> {
    if request.user.is_master() {
        return Ok(());
    }
    match &request.target {
        Target::Page(path) if matches!(path.as_str(), "/healthz" | "/livez" | "/readyz") => Ok(()),
        Target::Page(path) => Err(refuse_page(request, path)),
        Target::Resource(path) => Err(refuse_resource(request, path)),
    }
}

fn refuse_page(request: &Request, path: &str) -> Status {
    let (user, verb) = (&request.user.name, request.method.as_str().to_ascii_lowercase());
    let message = format!("forbidden: User \"{user}\" cannot {verb} path \"{path}\"");
    Status { details: Some(Box::default()), ..Status::failure(403, "Forbidden", message) }
}

fn refuse_resource(request: &Request, path: &ResourcePath) -> Status {
    let resource = GroupResource { group: path.group.clone(), resource: path.resource.clone() };
    let mut what = path.resource.to_string();
    if !path.subresource.is_empty() {
        what = format!("{what}/{}", path.subresource);
    }
    let (user, verb, group) = (&request.user.name, verb(request, path), &path.group);
    let place = match path.namespace.as_str() {
        "" => "at the cluster scope".to_string(),
        namespace => format!("in the namespace \"{namespace}\""),
    };
    let why = format!("User \"{user}\" cannot {verb} resource \"{what}\" in API group \"{group}\" {place}");
    Status::forbidden(&resource, &path.name, &why)
}

/// What is asked for, as roles call it.
pub(crate) fn verb(request: &Request, path: &ResourcePath) -> &'static str {
    let all = path.name.is_empty();
    let watch = path.watch || request.query.bool("watch").unwrap_or(false);
    match request.method.as_str() {
        "GET" | "HEAD" if watch => "watch",
        "GET" | "HEAD" if all => "list",
        "GET" | "HEAD" => "get",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" if all => "deletecollection",
        "DELETE" => "delete",
        _ => "unknown",
    }
}
