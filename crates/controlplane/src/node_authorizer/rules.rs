//! What may a node do with which resource, as far as that can be said without knowing what runs on it?

use std::borrow::Cow;

use mizzen_authorization::ResourceAttributes;
use mizzen_object::select::FieldSelector;
use mizzen_value::json::quote;

use super::GraphKind;

/// Where nodes have their leases.
const LEASES: &str = "kube-node-lease";

/// What every node may do with whole resources: verbs, groups, resources. What is said below of a resource counts
/// instead. Kubernetes: the role system:node says more, for those who have no authorizer of nodes
/// (rbac/bootstrappolicy/policy.go).
const ALL: [(&[&str], &[&str], &[&str]); 8] = [
    (&["create"], &["authentication.k8s.io"], &["tokenreviews"]),
    (
        &["create"],
        &["authorization.k8s.io"],
        &["subjectaccessreviews", "localsubjectaccessreviews"],
    ),
    (&["get", "list", "watch"], &[""], &["services"]),
    (
        &["create", "update", "patch"],
        &["", "events.k8s.io"],
        &["events"],
    ),
    (&["get"], &[""], &["endpoints"]),
    (
        &["create", "get", "list", "watch"],
        &["certificates.k8s.io"],
        &["certificatesigningrequests"],
    ),
    (
        &["get", "list", "watch"],
        &["storage.k8s.io"],
        &["csidrivers"],
    ),
    (
        &["get", "list", "watch"],
        &["node.k8s.io"],
        &["runtimeclasses"],
    ),
];

/// What can be said without looking.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NodeRule {
    /// Yes.
    Allow,
    /// Yes, if something that runs on the node has to do with the object, which is of this kind.
    IfRelated(GraphKind),
    /// No, and why; there may be nothing to say.
    Refuse(Cow<'static, str>),
}

use NodeRule::Allow;

/// Whether a node may do it.
pub(super) fn node_rule(node: &str, verb: &str, wanted: &ResourceAttributes) -> NodeRule {
    match (wanted.group, wanted.resource) {
        ("", "secrets") => read(GraphKind::Secret, verb, wanted),
        ("", "configmaps") => read(GraphKind::ConfigMap, verb, wanted),
        ("", "serviceaccounts") => service_account(verb, wanted),
        ("", "persistentvolumeclaims") => claim(verb, wanted),
        ("", "persistentvolumes") => get(GraphKind::Volume, verb, wanted),
        ("", "nodes") => itself(node, verb, wanted),
        ("", "pods") => pod(node, verb, wanted),
        ("resource.k8s.io", "resourceclaims") => get(GraphKind::ResourceClaim, verb, wanted),
        ("resource.k8s.io", "resourceslices") => slice(node, verb, wanted),
        ("storage.k8s.io", "volumeattachments") => get(GraphKind::Attachment, verb, wanted),
        ("storage.k8s.io", "csinodes") => csi_node(node, verb, wanted),
        ("coordination.k8s.io", "leases") => lease(node, verb, wanted),
        _ => like_all(verb, wanted),
    }
}

fn like_all(verb: &str, wanted: &ResourceAttributes) -> NodeRule {
    let allows = |(verbs, groups, resources): &(&[&str], &[&str], &[&str])| {
        verbs.contains(&verb)
            && groups.contains(&wanted.group)
            && resources.contains(&wanted.resource)
    };
    if wanted.subresource.is_empty() && ALL.iter().any(allows) {
        Allow
    } else {
        refuse("")
    }
}

fn refuse(why: &'static str) -> NodeRule {
    NodeRule::Refuse(why.into())
}

fn related(kind: GraphKind, wanted: &ResourceAttributes) -> NodeRule {
    if wanted.name.is_empty() {
        refuse("No Object name found")
    } else {
        NodeRule::IfRelated(kind)
    }
}

/// Single objects of a namespace are read.
fn read(kind: GraphKind, verb: &str, wanted: &ResourceAttributes) -> NodeRule {
    match verb {
        "get" | "list" | "watch" if !wanted.subresource.is_empty() => {
            refuse("cannot read subresource")
        }
        "get" | "list" | "watch" if wanted.namespace.is_empty() => {
            refuse("can only read namespaced object of this type")
        }
        "get" | "list" | "watch" => related(kind, wanted),
        _ => refuse("can only read resources of this type"),
    }
}

fn get(kind: GraphKind, verb: &str, wanted: &ResourceAttributes) -> NodeRule {
    match verb {
        "get" if wanted.subresource.is_empty() => related(kind, wanted),
        "get" => refuse("cannot get subresource"),
        _ => refuse("can only get individual resources of this type"),
    }
}

fn claim(verb: &str, wanted: &ResourceAttributes) -> NodeRule {
    match (wanted.subresource, verb) {
        ("status", "update" | "patch") => related(GraphKind::Claim, wanted),
        ("status", _) => refuse("can only get/update/patch this type"),
        _ => get(GraphKind::Claim, verb, wanted),
    }
}

/// Accounts are read, and tokens are made for them.
fn service_account(verb: &str, wanted: &ResourceAttributes) -> NodeRule {
    match (verb, wanted.subresource) {
        ("get", "") => read(GraphKind::ServiceAccount, verb, wanted),
        ("create", _) if wanted.name.is_empty() => {
            refuse("can only create tokens for individual service accounts")
        }
        ("create", "token") => NodeRule::IfRelated(GraphKind::ServiceAccount),
        ("create", _) => refuse("can only create token subresource of serviceaccount"),
        _ => refuse("can only create tokens for individual service accounts"),
    }
}

/// Whether a node that keeps an object of its own name may do this. The name of what is made is not known yet.
fn is_own(node: &str, verb: &str, wanted: &ResourceAttributes) -> bool {
    verb == "create" || wanted.name == node
}

fn is_kept(verb: &str) -> bool {
    matches!(verb, "get" | "create" | "update" | "patch" | "delete")
}

fn lease(node: &str, verb: &str, wanted: &ResourceAttributes) -> NodeRule {
    match is_kept(verb) {
        false => refuse("can only get, create, update, patch, or delete a node lease"),
        true if wanted.namespace != LEASES => {
            let why = format!(
                "can only access leases in the {} system namespace",
                quote(LEASES)
            );
            NodeRule::Refuse(why.into())
        }
        true if is_own(node, verb, wanted) => Allow,
        true => refuse("can only access node lease with the same name as the requesting node"),
    }
}

fn csi_node(node: &str, verb: &str, wanted: &ResourceAttributes) -> NodeRule {
    match is_kept(verb) {
        false => refuse("can only get, create, update, patch, or delete a CSINode"),
        true if !wanted.subresource.is_empty() => refuse("cannot authorize CSINode subresources"),
        true if is_own(node, verb, wanted) => Allow,
        true => refuse("can only access CSINode with the same name as the requesting node"),
    }
}

fn slice(node: &str, verb: &str, wanted: &ResourceAttributes) -> NodeRule {
    match verb {
        _ if !wanted.subresource.is_empty() => {
            refuse("cannot authorize ResourceSlice subresources")
        }
        "create" => Allow,
        "get" | "update" | "patch" | "delete" => related(GraphKind::Slice, wanted),
        "watch" | "list" | "deletecollection" if selects(wanted, node) => Allow,
        "watch" | "list" | "deletecollection" => refuse(
            "can only list/watch/deletecollection resourceslices with nodeName field selector",
        ),
        _ => refuse(
            "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, \
             delete, deletecollection",
        ),
    }
}

/// A node and its own object.
fn itself(node: &str, verb: &str, wanted: &ResourceAttributes) -> NodeRule {
    match (wanted.subresource, verb) {
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Allow,
        ("", "get" | "list" | "watch") => match wanted.name {
            name if name == node => Allow,
            "" => NodeRule::Refuse(
                format!("node '{node}' cannot read all nodes, only its own Node object").into(),
            ),
            name => NodeRule::Refuse(
                format!("node '{node}' cannot read '{name}', only its own Node object").into(),
            ),
        },
        _ => refuse(""),
    }
}

fn pod(node: &str, verb: &str, wanted: &ResourceAttributes) -> NodeRule {
    match (wanted.subresource, verb) {
        ("", "get") => related(GraphKind::Pod, wanted),
        ("", "list" | "watch") if selects(wanted, node) => Allow,
        ("", "list" | "watch") if !wanted.name.is_empty() => NodeRule::IfRelated(GraphKind::Pod),
        ("", "list" | "watch") => {
            refuse("can only list/watch pods with spec.nodeName field selector")
        }
        ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => {
            Allow
        }
        _ => refuse(""),
    }
}

/// Whether only what is on the node is asked for.
fn selects(wanted: &ResourceAttributes, node: &str) -> bool {
    let fields = FieldSelector::parse(wanted.fields).unwrap_or_default();
    fields
        .terms
        .iter()
        .any(|(field, equal, value)| field == "spec.nodeName" && *equal && value == node)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is asked: `VERB GROUP/RESOURCE[/SUBRESOURCE] [NAMESPACE/]NAME [SELECTOR]`, where `-` is nothing.
    #[track_caller]
    fn check(asked: &str, expected: &str) {
        let mut words = asked
            .split(' ')
            .map(|word| if word == "-" { "" } else { word });
        let verb = words.next().unwrap();
        let mut resource = words.next().unwrap().split('/');
        let mut part = || resource.next().unwrap_or_default();
        let (group, resource, subresource) = (part(), part(), part());
        let name = words.next().unwrap_or_default();
        let (namespace, name) = name.split_once('/').unwrap_or(("", name));
        let fields = words.next().unwrap_or_default();
        let wanted = ResourceAttributes {
            group,
            resource,
            subresource,
            namespace,
            name,
            fields,
            ..ResourceAttributes::default()
        };
        let found = match node_rule("n1", verb, &wanted) {
            Allow => "yes".into(),
            NodeRule::IfRelated(kind) => format!("if {kind:?}"),
            NodeRule::Refuse(why) => why.into_owned(),
        };
        assert_eq!(found, expected, "{asked}");
    }

    #[test]
    fn single_secrets_and_config_maps_are_read() {
        for verb in ["get", "list", "watch"] {
            check(&format!("{verb} /secrets ns/s"), "if Secret");
            check(&format!("{verb} /configmaps ns/c"), "if ConfigMap");
        }
        check("list /secrets ns/", "No Object name found");
        check(
            "get /secrets -",
            "can only read namespaced object of this type",
        );
        check("get /secrets/x ns/s", "cannot read subresource");
        check(
            "update /secrets ns/s",
            "can only read resources of this type",
        );
    }

    #[test]
    fn storage_and_devices_are_got() {
        check("get /persistentvolumes v", "if Volume");
        check("get /persistentvolumeclaims ns/c", "if Claim");
        check(
            "get resource.k8s.io/resourceclaims ns/c",
            "if ResourceClaim",
        );
        check("get storage.k8s.io/volumeattachments a", "if Attachment");
        check(
            "list /persistentvolumes -",
            "can only get individual resources of this type",
        );
        check("get /persistentvolumes/status v", "cannot get subresource");
        check("get /persistentvolumes -", "No Object name found");
        check("patch /persistentvolumeclaims/status ns/c", "if Claim");
        check(
            "get /persistentvolumeclaims/status ns/c",
            "can only get/update/patch this type",
        );
        check(
            "get /persistentvolumeclaims/other ns/c",
            "cannot get subresource",
        );
    }

    #[test]
    fn accounts_get_tokens() {
        check("get /serviceaccounts ns/a", "if ServiceAccount");
        check("create /serviceaccounts/token ns/a", "if ServiceAccount");
        check(
            "create /serviceaccounts/token ns/",
            "can only create tokens for individual service accounts",
        );
        check(
            "update /serviceaccounts/token ns/a",
            "can only create tokens for individual service accounts",
        );
        check(
            "create /serviceaccounts ns/a",
            "can only create token subresource of serviceaccount",
        );
        check(
            "list /serviceaccounts ns/",
            "can only create tokens for individual service accounts",
        );
    }

    #[test]
    fn a_node_may_change_its_lease_and_its_csi_node() {
        let leases = "coordination.k8s.io/leases";
        check(&format!("update {leases} kube-node-lease/n1"), "yes");
        check(&format!("create {leases} kube-node-lease/"), "yes");
        check(
            &format!("get {leases} kube-node-lease/n2"),
            "can only access node lease with the same name as the requesting node",
        );
        check(
            &format!("get {leases} default/n1"),
            r#"can only access leases in the "kube-node-lease" system namespace"#,
        );
        check(
            &format!("list {leases} kube-node-lease/"),
            "can only get, create, update, patch, or delete a node lease",
        );
        let nodes = "storage.k8s.io/csinodes";
        check(&format!("delete {nodes} n1"), "yes");
        check(&format!("create {nodes} -"), "yes");
        check(
            &format!("patch {nodes} n2"),
            "can only access CSINode with the same name as the requesting node",
        );
        check(
            &format!("watch {nodes} -"),
            "can only get, create, update, patch, or delete a CSINode",
        );
        check(
            &format!("get {nodes}/status n1"),
            "cannot authorize CSINode subresources",
        );
    }

    #[test]
    fn slices_are_selected_by_node() {
        let slices = "resource.k8s.io/resourceslices";
        check(&format!("create {slices} -"), "yes");
        check(&format!("patch {slices} s"), "if Slice");
        check(&format!("list {slices} - spec.nodeName=n1"), "yes");
        check(
            &format!("deletecollection {slices} - spec.driver=d,spec.nodeName=n1"),
            "yes",
        );
        let why =
            "can only list/watch/deletecollection resourceslices with nodeName field selector";
        check(&format!("watch {slices} - spec.nodeName=n2"), why);
        check(&format!("watch {slices} - spec.nodeName!=n1"), why);
        check(
            &format!("get {slices}/x s"),
            "cannot authorize ResourceSlice subresources",
        );
    }

    #[test]
    fn a_node_sees_itself() {
        check("get /nodes n1", "yes");
        check("list /nodes n1", "yes");
        check(
            "list /nodes -",
            "node 'n1' cannot read all nodes, only its own Node object",
        );
        check(
            "get /nodes n2",
            "node 'n1' cannot read 'n2', only its own Node object",
        );
        check("create /nodes -", "yes");
        check("patch /nodes/status n1", "yes");
        check("delete /nodes n1", "");
        check("get /nodes/proxy n1", "");
    }

    #[test]
    fn pods_are_listed_by_node_name_or_read_by_reference() {
        check("get /pods ns/p", "if Pod");
        check("watch /pods - spec.nodeName=n1", "yes");
        check("watch /pods - spec.nodeName==n1", "yes");
        check("list /pods ns/p metadata.name=p", "if Pod");
        check(
            "list /pods ns/",
            "can only list/watch pods with spec.nodeName field selector",
        );
        check(
            "list /pods - spec.nodeName=n2",
            "can only list/watch pods with spec.nodeName field selector",
        );
        for asked in [
            "create /pods ns/",
            "delete /pods ns/p",
            "patch /pods/status ns/p",
            "create /pods/eviction ns/p",
        ] {
            check(asked, "yes");
        }
        check("update /pods ns/p", "");
        check("create /pods/binding ns/p", "");
    }

    #[test]
    fn other_things_are_the_same_for_all_nodes() {
        check("create authentication.k8s.io/tokenreviews -", "yes");
        check("patch events.k8s.io/events ns/e", "yes");
        check(
            "list certificates.k8s.io/certificatesigningrequests -",
            "yes",
        );
        check(
            "list certificates.k8s.io/certificatesigningrequests/status -",
            "",
        );
        check("delete /services ns/s", "");
        check("get apps/deployments ns/d", "");
        check(
            "list certificates.k8s.io/podcertificaterequests ns/ spec.nodeName=n1",
            "",
        );
    }
}
