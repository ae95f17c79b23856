//! ResourceClaims: fields that only administrators, schedulers and drivers may write.
//!
//! Admin access needs a label of the namespace. In the status, `allocation` and `reservedFor` need
//! `resourceclaims/binding` in the whole cluster, and `devices` need `resourceclaims/driver` by the
//! name of their driver. Kubernetes: registry/resource/utils.go.

use std::collections::BTreeSet;

use mizzen_authorization::{
    Attributes, AttributesTarget, ResourceAttributes, associated_node, denial_reason, forbidden,
};
use mizzen_object::{Path, ViolationReason, Violations, schema};
use mizzen_registry::Key;
use mizzen_value::Value;

use super::AuthorizedWrite;

/// The namespace label that allows claims with admin access.
const ADMIN_ACCESS: &str = "resource.kubernetes.io/admin-access";

/// Adds a violation if a new claim requests admin access and its namespace does not have the label.
pub(super) async fn check_admin_access(
    write: AuthorizedWrite<'_>,
    spec: &Value,
    violations: &mut Violations,
) {
    let requests = spec["devices"]["requests"].list();
    let Some(idx) = requests
        .iter()
        .position(|request| request["exactly"]["adminAccess"].bool())
    else {
        return;
    };
    // Kubernetes: the path is that of an older version, and the same in a template.
    let path = format!("spec.devices.requests[{idx}].adminAccess");
    let violation = write.admin_violation(&path).await;
    violations.0.splice(0..0, violation);
}

/// Adds a violation for each unauthorized change of a status, before those of validation.
pub(super) async fn authorize_status(write: AuthorizedWrite<'_>, violations: &mut Violations) {
    let Some(old) = write.old else { return };
    let canonical = |object: &Value| {
        let mut object = object.clone();
        schema::canonical_stored(&write.call.resource.kind().root, &mut object);
        object["status"].clone()
    };
    let (new, old) = (canonical(write.new), canonical(old));
    let mut refused = Violations::default();
    write.check_admin_status(&new, &old, &mut refused).await;
    write.authorize_binding(&new, &old, &mut refused).await;
    // Device statuses belong to the allocation.
    if !new["allocation"].is_null() {
        write.authorize_devices(&new, &old, &mut refused).await;
    }
    violations.0.splice(0..0, refused.0);
}

impl AuthorizedWrite<'_> {
    /// Why the namespace does not allow admin access.
    async fn admin_violation(&self, path: &str) -> Option<mizzen_object::Violation> {
        let AuthorizedWrite { call, .. } = self;
        let mut violations = Violations::default();
        let namespaces = call.server.catalog.get("", "v1", "namespaces")?;
        let key = Key::new("", &call.path.namespace);
        match call.server.registry.read(&namespaces, &key, "").await {
            Ok(namespace) if namespace.value()["metadata"]["labels"][ADMIN_ACCESS].str() == "true" => {}
            Ok(_) => violations.forbidden(
                path,
                &format!(
                    "admin access to devices requires the `{ADMIN_ACCESS}: true` label on the containing namespace"
                ),
            ),
            Err(status) => violations.push(
                ViolationReason::Internal,
                path,
                format!(
                    "Internal error: could not retrieve namespace to verify admin access: {}",
                    status.message
                ),
            ),
        }
        violations.0.pop()
    }

    async fn check_admin_status(&self, new: &Value, old: &Value, refused: &mut Violations) {
        let granted = |status: &Value| {
            let results = status["allocation"]["devices"]["results"].list();
            results
                .iter()
                .position(|result| result["adminAccess"].bool())
        };
        if let (Some(idx), None) = (granted(new), granted(old)) {
            let path = format!("status.allocation.devices.results[{idx}].adminAccess");
            refused.0.extend(self.admin_violation(&path).await);
        }
    }

    /// A change of `allocation` or `reservedFor` binds the claim.
    async fn authorize_binding(&self, new: &Value, old: &Value, refused: &mut Violations) {
        if ["allocation", "reservedFor"]
            .iter()
            .all(|field| new[*field] == old[*field])
        {
            return;
        }
        let verb = self.call.request.info.verb();
        if let Err(why) = self.authorize_part(verb, "binding", "", "").await {
            let detail = format!(
                "changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", \
                 verb=\"{verb}\" permission: {why}"
            );
            refused.forbidden(Path::new("status").child("allocation"), &detail);
        }
    }

    /// A change of a device status needs the permission of its driver: on the claim's node, or on
    /// any.
    async fn authorize_devices(&self, new: &Value, old: &Value, refused: &mut Violations) {
        let verb = self.call.request.info.verb();
        let mut verbs = vec![format!("arbitrary-node:{verb}")];
        let own = associated_node(&self.call.request.user);
        if own.is_some() && own == allocated_node(&new["allocation"]) {
            verbs.insert(0, format!("associated-node:{verb}"));
        }
        for driver in changed_drivers(new["devices"].list(), old["devices"].list()) {
            if let Err(why) = self.authorize_driver(&verbs, driver).await {
                let detail = format!(
                    "changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[{}]\" permission: {why}",
                    verbs.join(" ")
                );
                refused.forbidden(Path::new("status").child("devices"), &detail);
            }
        }
    }

    /// One of the verbs suffices. The error is that of the first.
    async fn authorize_driver(&self, verbs: &[String], driver: &str) -> Result<(), String> {
        let mut first = Ok(());
        for verb in verbs {
            match self
                .authorize_part(verb, "driver", &self.call.path.namespace, driver)
                .await
            {
                Ok(()) => return Ok(()),
                Err(why) => first = first.and(Err(why)),
            }
        }
        first
    }

    /// Authorizes a virtual subresource of claims.
    async fn authorize_part(
        &self,
        verb: &str,
        subresource: &str,
        namespace: &str,
        name: &str,
    ) -> Result<(), String> {
        let path = self.call.path;
        let resource = ResourceAttributes {
            group: &path.group,
            version: &path.version,
            resource: &path.resource,
            subresource,
            namespace,
            name,
            ..ResourceAttributes::default()
        };
        let decision = self.authorize(verb, resource).await;
        if decision.is_allowed() {
            return Ok(());
        }
        let (user, target) = (
            &self.call.request.user,
            AttributesTarget::Resource(resource),
        );
        Err(forbidden(
            &Attributes { user, verb, target },
            &denial_reason(decision.reason()),
        )
        .message)
    }
}

/// The single node of an allocation, if there is one.
fn allocated_node(allocation: &Value) -> Option<&str> {
    let [term] = allocation["nodeSelector"]["nodeSelectorTerms"].list() else {
        return None;
    };
    let ([], [field]) = (term["matchExpressions"].list(), term["matchFields"].list()) else {
        return None;
    };
    match (
        field["key"].str(),
        field["operator"].str(),
        field["values"].list(),
    ) {
        ("metadata.name", "In", [node]) => Some(node.str()),
        _ => None,
    }
}

/// The drivers of devices whose entries were added, changed or removed.
fn changed_drivers<'a>(new: &'a [Value], old: &'a [Value]) -> BTreeSet<&'a str> {
    let id = |device: &'a Value| {
        ["driver", "pool", "device", "shareID"].map(|field| device[field].str())
    };
    let mut left: Vec<&Value> = old.iter().collect();
    let mut drivers = BTreeSet::new();
    for device in new {
        let known = left
            .iter()
            .position(|old| id(old) == id(device))
            .map(|idx| left.remove(idx));
        if known != Some(device) {
            drivers.insert(device["driver"].str());
        }
    }
    drivers.extend(left.iter().map(|device| device["driver"].str()));
    drivers
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::value;

    #[track_caller]
    fn check_drivers(new: &Value, old: &Value, expected: &[&str]) {
        let drivers: Vec<&str> = changed_drivers(new.list(), old.list())
            .into_iter()
            .collect();
        assert_eq!(drivers, expected);
    }

    #[test]
    fn a_driver_is_authorized_when_an_entry_of_its_devices_changes() {
        let a = value!({ "driver": "a", "pool": "p", "device": "d" });
        let b = value!({ "driver": "b", "pool": "p", "device": "d" });
        let ready = value!({ "driver": "a", "pool": "p", "device": "d", "data": {"ready": true} });
        let share = value!({ "driver": "a", "pool": "p", "device": "d", "shareID": "1" });
        let list = |items: &[&Value]| {
            Value::from(items.iter().map(|item| (*item).clone()).collect::<Vec<_>>())
        };
        check_drivers(&list(&[&a, &b]), &list(&[&b, &a]), &[]);
        check_drivers(&list(&[&b, &a]), &list(&[]), &["a", "b"]);
        check_drivers(&list(&[&ready, &b]), &list(&[&a, &b]), &["a"]);
        check_drivers(&list(&[&b]), &list(&[&a, &b]), &["a"]);
        check_drivers(&list(&[&a]), &list(&[&share]), &["a"]);
        check_drivers(&list(&[&a, &a]), &list(&[&a]), &["a"]);
    }

    #[test]
    fn an_allocation_is_on_a_node_if_it_names_that_alone() {
        let field = || value!({ "key": "metadata.name", "operator": "In", "values": ["n1"] });
        let terms = |terms: Vec<Value>| value!({ "nodeSelector": { "nodeSelectorTerms": terms } });
        let term = || value!({ "matchFields": [(field())] });
        assert_eq!(allocated_node(&terms(vec![term()])), Some("n1"));
        assert_eq!(allocated_node(&terms(vec![term(), term()])), None);
        let label = value!({ "key": "zone", "operator": "In", "values": ["n1"] });
        let both = value!({ "matchFields": [(field())], "matchExpressions": [(label.clone())] });
        assert_eq!(allocated_node(&terms(vec![both])), None);
        assert_eq!(
            allocated_node(&terms(vec![value!({ "matchFields": [label] })])),
            None
        );
        assert_eq!(allocated_node(&Value::Null), None);
    }
}
