//! Addresses of kubelets, and the container of a request.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Limited};
use mizzen_object::Status;
use mizzen_registry::Key;
use mizzen_value::{Value, json};

use crate::ControlPlane;
use mizzen_apiserver::Server;
use mizzen_apiserver::server::ServerParts;
use mizzen_transport::{Target, Trust, whole};

/// Kubernetes: the port of a kubelet whose node has none.
const KUBELET_PORT: i64 = 10250;

/// The largest document that is read from a kubelet.
const MAX_DOCUMENT: usize = 32 * 1024 * 1024;

/// Fetches a document from the kubelet of a node, with this server's kubelet client certificate. `path` begins with a
/// slash. The caller sets a timeout.
pub async fn get_from_kubelet(server: &Server, node: &str, path: &str) -> Result<Bytes, Status> {
    let server = server.parts();
    let address = address(server, node).await?;
    let url = format!("https://{address}{path}");
    let failed = |why: String| Status::unknown(format!("Get {}: {why}", json::quote(&url)));
    let request = Request::get(&url)
        .body(whole(Bytes::new()))
        .map_err(|error| failed(error.to_string()))?;
    let target = target(server, &address);
    let answered = ControlPlane::of(server)
        .kubelets
        .send(&target, request)
        .await;
    let response = answered.map_err(|error| failed(error.to_string()))?;
    if response.status() != 200 {
        return Err(failed(format!(
            "request failed, status: {:?}",
            response.status().to_string()
        )));
    }
    let body = Limited::new(response.into_body(), MAX_DOCUMENT);
    let body = body.collect().await;
    Ok(body.map_err(|error| failed(error.to_string()))?.to_bytes())
}

/// The container of a request. Without a name it is the only one.
pub(super) fn container<'a>(pod: &'a Value, requested: &'a str) -> Result<&'a str, Status> {
    let (spec, pod_name) = (&pod["spec"], pod["metadata"]["name"].str());
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let all: Vec<&str> = lists
        .iter()
        .flat_map(|list| spec[*list].list())
        .map(|container| container["name"].str())
        .collect();
    match (requested, spec["containers"].list()) {
        ("", [only]) => Ok(only["name"].str()),
        ("", []) => Err(Status::bad_request(format!(
            "a container name must be specified for pod {pod_name}"
        ))),
        ("", _) => Err(Status::bad_request(format!(
            "a container name must be specified for pod {pod_name}, choose one of: [{}]",
            all.join(" ")
        ))),
        (requested, _) if all.contains(&requested) => Ok(requested),
        (requested, _) => Err(Status::bad_request(format!(
            "container {requested} is not valid for pod {pod_name}"
        ))),
    }
}

async fn node(server: &ServerParts, name: &str) -> Result<Value, Status> {
    let nodes = server
        .catalog
        .get("", "v1", "nodes")
        .ok_or_else(Status::no_such_resource)?;
    let key = Key::new("", name);
    Ok(server.registry.read(&nodes, &key, "").await?.value())
}

/// Whether the kubelet of a node declares a feature.
pub(super) async fn declares(
    server: &ServerParts,
    name: &str,
    feature: &str,
) -> Result<bool, Status> {
    let node = node(server, name).await?;
    let mut declared = node["status"]["declaredFeatures"].list().iter();
    Ok(declared.any(|declared| declared.str() == feature))
}

/// The host and port of a node's kubelet.
pub(super) async fn endpoint(server: &ServerParts, name: &str) -> Result<(String, i64), Status> {
    let node = node(server, name).await?;
    let addresses = node["status"]["addresses"].list();
    let of_type = |address_type: &String| {
        addresses
            .iter()
            .find(|address| address["type"].str() == address_type)
    };
    let address_types = &ControlPlane::of(server).kubelet_address_types;
    let Some(address) = address_types.iter().find_map(of_type) else {
        let known: Vec<String> = addresses
            .iter()
            .map(|address| format!("{{{} {}}}", address["type"].str(), address["address"].str()))
            .collect();
        return Err(Status::unknown(format!(
            "no preferred addresses found; known addresses: [{}]",
            known.join(" ")
        )));
    };
    let port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].int();
    let port = if port > 0 { port } else { KUBELET_PORT };
    Ok((address["address"].str().to_owned(), port))
}

/// The `host:port` of a node's kubelet.
pub(super) async fn address(server: &ServerParts, node: &str) -> Result<String, Status> {
    let (host, port) = endpoint(server, node).await?;
    Ok(join_host_port(&host, port))
}

/// Go: `net.JoinHostPort`.
pub(super) fn join_host_port(host: &str, port: impl std::fmt::Display) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// The target of a kubelet. Kubernetes: without `--kubelet-certificate-authority` its certificate is not verified, because
/// kubelets sign their own.
pub(super) fn target(server: &ServerParts, address: &str) -> Target {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let trust = match &ControlPlane::of(server).kubelet_authority {
        Some(authority) => Trust::bundle(authority.clone().into()),
        None => Trust::Anyone,
    };
    Target {
        address: address.into(),
        server_name: host.trim_matches(['[', ']']).into(),
        trust,
        as_front_proxy: true,
        http2: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::value;

    #[test]
    fn without_a_name_the_container_is_the_only_one() {
        let one = value!({ "metadata": { "name": "web" }, "spec": {
            "initContainers": [{ "name": "i" }], "containers": [{ "name": "a" }] } });
        let two = value!({ "metadata": { "name": "web" }, "spec": {
            "initContainers": [{ "name": "i" }], "containers": [{ "name": "a" }, { "name": "b" }] } });
        let found = |pod: &Value, requested: &str| match container(pod, requested) {
            Ok(name) => name.to_string(),
            Err(status) => status.message,
        };
        assert_eq!(found(&one, ""), "a");
        assert_eq!(found(&one, "i"), "i");
        assert_eq!(found(&one, "x"), "container x is not valid for pod web");
        assert_eq!(
            found(&two, ""),
            "a container name must be specified for pod web, choose one of: [i a b]"
        );
    }
}
