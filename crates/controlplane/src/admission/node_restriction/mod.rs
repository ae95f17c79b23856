//! NodeRestriction: a node may change only its own Node, its Lease and CSINode, and its pods. A compromised node can
//! neither attract pods nor read their secrets.
//!
//! The node authorizer (`node_authorizer`) has authorized the request; this plug-in checks objects. `pod`, `node`, `token`
//! and `claim` have the longer rules. The messages are Kubernetes' (plugin/pkg/admission/noderestriction).

mod claim;
mod node;
mod pod;
mod token;

use mizzen_object::schema::CanonicalObject;
use mizzen_object::{GroupResource, Status};
use mizzen_registry::BoxFuture;
use mizzen_value::Value;
use mizzen_value::json::quote;

use super::Attributes;

/// The namespace of node leases.
const LEASES: &str = "kube-node-lease";
/// The signers of node certificates.
const SIGNERS: [&str; 2] = [
    "kubernetes.io/kubelet-serving",
    "kubernetes.io/kube-apiserver-client-kubelet",
];

/// Whether the user is a node.
pub(super) fn concerns(attributes: &Attributes) -> bool {
    attributes.call.request.user.node_name().is_some()
}

/// Checks a write by a node. Nothing is changed.
pub(super) fn admit<'a>(
    attributes: &'a Attributes<'a>,
    object: &'a mut CanonicalObject,
) -> BoxFuture<'a, Result<(), Status>> {
    Box::pin(async move {
        let request = NodeRequest {
            attributes,
            new: Some(object),
        };
        request.check_identity()?;
        match token::is_token_request(&request) {
            true => token::check(&request).await,
            false => check(&request),
        }
    })
}

/// Rejects the deletion of an object that the node may not delete.
pub(super) fn check_delete(attributes: &Attributes) -> Result<(), Status> {
    if !concerns(attributes) {
        return Ok(());
    }
    let request = NodeRequest {
        attributes,
        new: None,
    };
    request.check_identity()?;
    check(&request)
}

/// A request of a node.
struct NodeRequest<'a> {
    attributes: &'a Attributes<'a>,
    /// The new object; `None` for a deletion.
    new: Option<&'a Value>,
}

fn check(request: &NodeRequest) -> Result<(), Status> {
    let kind = request.attributes.call.resource.kind();
    match (
        kind.gvk.group.as_str(),
        kind.plural.as_str(),
        request.attributes.subresource(),
    ) {
        ("", "pods", "") => pod::check(request),
        ("", "pods", "status") => pod::check_status(request),
        ("", "pods", "eviction") => pod::check_eviction(request),
        ("", "pods", other) => {
            let other = quote(other);
            let why = format!(
                "unexpected pod subresource {other}, only 'status' and 'eviction' are allowed"
            );
            request.reject(why)
        }
        ("", "nodes", _) => node::check(request),
        ("", "persistentvolumeclaims", "status") => claim::check_status(request),
        ("", "persistentvolumeclaims", _) => request.reject("may only update PVC status"),
        ("coordination.k8s.io", "leases", _) => request.check_lease(),
        ("storage.k8s.io", "csinodes", _) => request.check_own("CSINode"),
        ("resource.k8s.io", "resourceslices", _) => request.check_slice(),
        ("certificates.k8s.io", "certificatesigningrequests", _) => request.check_certificate(),
        _ => Ok(()),
    }
}

impl NodeRequest<'_> {
    fn check_lease(&self) -> Result<(), Status> {
        if self.attributes.namespace() != LEASES {
            let namespace = quote(LEASES);
            return self.reject(format!(
                "can only access leases in the {namespace} system namespace"
            ));
        }
        self.check_own("node lease")
    }

    /// A node may write only the object with its own name.
    fn check_own(&self, what: &str) -> Result<(), Status> {
        if self.name() == self.node() {
            return Ok(());
        }
        self.reject(format!(
            "can only access {what} with the same name as the requesting node"
        ))
    }

    /// The authorizer has checked existing slices, but not those of a collection that is deleted.
    fn check_slice(&self) -> Result<(), Status> {
        let (slice, verb) = match (self.new, self.attributes.old) {
            (Some(new), None) => (new, "create"),
            (None, Some(old)) => (old, "delete"),
            _ => return Ok(()),
        };
        if slice["spec"]["nodeName"].str() == self.node() {
            return Ok(());
        }
        self.reject(format!(
            "can only {verb} ResourceSlice with the same NodeName as the requesting node"
        ))
    }

    /// A node may request certificates only for itself.
    fn check_certificate(&self) -> Result<(), Status> {
        let Some(certificate) = self.new.filter(|_| self.attributes.is_create()) else {
            return Ok(());
        };
        let spec = &certificate["spec"];
        if !SIGNERS.contains(&spec["signerName"].str()) {
            return Ok(());
        }
        let own = &self.attributes.call.request.user.name;
        match mizzen_kinds::requested_name(spec["request"].str()) {
            Err(why) => self.reject(format!("unable to parse csr: {why}")),
            Ok(name) if name == **own => Ok(()),
            Ok(_) => self.reject(format!("can only create a node CSR with CN={own}")),
        }
    }

    /// The name of the node.
    fn node(&self) -> &str {
        self.attributes
            .call
            .request
            .user
            .node_name()
            .unwrap_or_default()
    }

    /// The user must have the name of a node.
    fn check_identity(&self) -> Result<(), Status> {
        if !self.node().is_empty() {
            return Ok(());
        }
        let user = quote(&self.attributes.call.request.user.name);
        self.reject(format!("could not determine node from user {user}"))
    }

    fn operation(&self) -> &'static str {
        match (self.new, self.attributes.old) {
            (None, _) => "DELETE",
            (Some(_), None) => "CREATE",
            (Some(_), Some(_)) => "UPDATE",
        }
    }

    /// The name in the path; for a create or a collection, that of the object.
    fn name(&self) -> &str {
        match self.attributes.call.path.name.as_str() {
            "" => self.object()["metadata"]["name"].str(),
            name => name,
        }
    }

    fn object(&self) -> &Value {
        self.new.or(self.attributes.old).unwrap_or(&Value::Null)
    }

    /// 403. Kubernetes: an object without a name is called Unknown (apiserver/pkg/admission/errors.go).
    fn reject(&self, why: impl AsRef<str>) -> Result<(), Status> {
        let made = self.object()["metadata"]["generateName"].str();
        let names = [self.name(), made, "Unknown"];
        let name = names
            .into_iter()
            .find(|name| !name.is_empty())
            .unwrap_or_default();
        Err(Status::forbidden(
            &self.attributes.resource(),
            name,
            why.as_ref(),
        ))
    }

    fn reject_operation(&self) -> Result<(), Status> {
        self.reject(format!("unexpected operation {}", quote(self.operation())))
    }

    /// A pod in the namespace of the request.
    fn pod(&self, name: &str) -> Result<Value, Status> {
        self.find("pod", "pods", self.attributes.namespace(), name)
    }

    /// An object that must exist. Kubernetes: the error has the singular name of the resource (client-go/listers).
    fn find(
        &self,
        singular: &str,
        plural: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Value, Status> {
        self.attributes
            .find("", plural, namespace, name)
            .ok_or_else(|| {
                Status::not_found(
                    &GroupResource {
                        group: "".into(),
                        resource: singular.into(),
                    },
                    name,
                )
            })
    }
}
