//! A node changes its own object, what it keeps beside it, and its pods; nothing else. So who takes over a node can
//! neither draw other people's pods to it nor read their secrets.
//!
//! The authorizer of nodes (`node_authorizer`) has let the request through; here is what it cannot see: objects. `pod`,
//! `node`, `token` and `claim` have the rules that are longer than a line. The messages are Kubernetes'
//! (plugin/pkg/admission/noderestriction).

mod claim;
mod node;
mod pod;
mod token;

use mizzen_object::{GroupResource, Status};
use mizzen_registry::Future;
use mizzen_value::Value;
use mizzen_value::json::quote;

use super::Attributes;

/// Where nodes have their leases.
const LEASES: &str = "kube-node-lease";
/// Who signs certificates of nodes.
const SIGNERS: [&str; 2] = [
    "kubernetes.io/kubelet-serving",
    "kubernetes.io/kube-apiserver-client-kubelet",
];

/// Whether a node writes.
pub(super) fn concerns(attributes: &Attributes) -> bool {
    attributes.call.request.user.node_name().is_some()
}

/// Lets a node write an object, or refuses. Nothing is changed.
pub(super) fn admit<'a>(
    attributes: &'a Attributes<'a>,
    object: &'a mut Value,
) -> Future<'a, Result<(), Status>> {
    Box::pin(async move {
        let asked = Asked {
            attributes,
            new: Some(object),
        };
        asked.check_identity()?;
        match token::is_asked(&asked) {
            true => token::check(&asked).await,
            false => check(&asked),
        }
    })
}

/// Rejects the deletion of an object that the node may not delete.
pub(super) fn check_delete(attributes: &Attributes) -> Result<(), Status> {
    if !concerns(attributes) {
        return Ok(());
    }
    let asked = Asked {
        attributes,
        new: None,
    };
    asked.check_identity()?;
    check(&asked)
}

/// What a node wants.
struct Asked<'a> {
    attributes: &'a Attributes<'a>,
    /// The object as it shall be; none if it shall go.
    new: Option<&'a Value>,
}

fn check(asked: &Asked) -> Result<(), Status> {
    let kind = asked.attributes.call.resource.kind();
    match (
        kind.gvk.group.as_str(),
        kind.plural.as_str(),
        asked.attributes.subresource(),
    ) {
        ("", "pods", "") => pod::check(asked),
        ("", "pods", "status") => pod::check_status(asked),
        ("", "pods", "eviction") => pod::check_eviction(asked),
        ("", "pods", other) => {
            let other = quote(other);
            let why = format!(
                "unexpected pod subresource {other}, only 'status' and 'eviction' are allowed"
            );
            asked.refuse(why)
        }
        ("", "nodes", _) => node::check(asked),
        ("", "persistentvolumeclaims", "status") => claim::check_status(asked),
        ("", "persistentvolumeclaims", _) => asked.refuse("may only update PVC status"),
        ("coordination.k8s.io", "leases", _) => check_lease(asked),
        ("storage.k8s.io", "csinodes", _) => check_own(asked, "CSINode"),
        ("resource.k8s.io", "resourceslices", _) => check_slice(asked),
        ("certificates.k8s.io", "certificatesigningrequests", _) => check_certificate(asked),
        _ => Ok(()),
    }
}

fn check_lease(asked: &Asked) -> Result<(), Status> {
    if asked.attributes.namespace() != LEASES {
        let namespace = quote(LEASES);
        return asked.refuse(format!(
            "can only access leases in the {namespace} system namespace"
        ));
    }
    check_own(asked, "node lease")
}

/// What bears the node's name is its own.
fn check_own(asked: &Asked, what: &str) -> Result<(), Status> {
    if asked.name() == asked.node() {
        return Ok(());
    }
    asked.refuse(format!(
        "can only access {what} with the same name as the requesting node"
    ))
}

/// What is there already was looked at by the authorizer, but not one by one when many are deleted.
fn check_slice(asked: &Asked) -> Result<(), Status> {
    let (slice, verb) = match (asked.new, asked.attributes.old) {
        (Some(new), None) => (new, "create"),
        (None, Some(old)) => (old, "delete"),
        _ => return Ok(()),
    };
    if slice["spec"]["nodeName"].str() == asked.node() {
        return Ok(());
    }
    asked.refuse(format!(
        "can only {verb} ResourceSlice with the same NodeName as the requesting node"
    ))
}

/// A node asks for certificates in its own name.
fn check_certificate(asked: &Asked) -> Result<(), Status> {
    let Some(request) = asked.new.filter(|_| asked.attributes.is_create()) else {
        return Ok(());
    };
    let spec = &request["spec"];
    if !SIGNERS.contains(&spec["signerName"].str()) {
        return Ok(());
    }
    let own = &asked.attributes.call.request.user.name;
    match mizzen_kinds::requested_name(spec["request"].str()) {
        Err(why) => asked.refuse(format!("unable to parse csr: {why}")),
        Ok(name) if name == **own => Ok(()),
        Ok(_) => asked.refuse(format!("can only create a node CSR with CN={own}")),
    }
}

impl Asked<'_> {
    /// The node that asks.
    fn node(&self) -> &str {
        self.attributes
            .call
            .request
            .user
            .node_name()
            .unwrap_or_default()
    }

    /// Whose pods have no node is nobody's agent.
    fn check_identity(&self) -> Result<(), Status> {
        if !self.node().is_empty() {
            return Ok(());
        }
        let user = quote(&self.attributes.call.request.user.name);
        self.refuse(format!("could not determine node from user {user}"))
    }

    fn operation(&self) -> &'static str {
        match (self.new, self.attributes.old) {
            (None, _) => "DELETE",
            (Some(_), None) => "CREATE",
            (Some(_), Some(_)) => "UPDATE",
        }
    }

    /// The name in the path; of what is made, and of one of many, its own.
    fn name(&self) -> &str {
        match self.attributes.call.path.name.as_str() {
            "" => self.object()["metadata"]["name"].str(),
            name => name,
        }
    }

    fn object(&self) -> &Value {
        self.new.or(self.attributes.old).unwrap_or(&Value::Null)
    }

    /// 403. Kubernetes: what has no name at all is called Unknown (apiserver/pkg/admission/errors.go).
    fn refuse(&self, why: impl AsRef<str>) -> Result<(), Status> {
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

    fn refuse_operation(&self) -> Result<(), Status> {
        self.refuse(format!("unexpected operation {}", quote(self.operation())))
    }

    /// A pod in the namespace of the request.
    fn pod(&self, name: &str) -> Result<Value, Status> {
        self.find("pod", "pods", self.attributes.namespace(), name)
    }

    /// An object that must be there. Kubernetes: what is missing is called by its singular (client-go/listers).
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
