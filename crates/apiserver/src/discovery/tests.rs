use std::cmp::Ordering;
use std::sync::Arc;

use expect_test::{Expect, expect};
use mizzen_object::schema::Struct;
use mizzen_object::{GroupVersionKind, KindData, NoHooks};
use mizzen_value::json;

use super::*;

fn built_in() -> Vec<Group> {
    groups(&mizzen_kinds::catalog().kinds)
}

/// A custom kind in one of its versions.
fn gizmo(version: &str) -> Kind {
    let group = "stable.example.com";
    let gvk = GroupVersionKind {
        group: group.into(),
        version: version.into(),
        kind: "Gizmo".into(),
    };
    let data = KindData {
        plural: "gizmos".into(),
        singular: "gizmo".into(),
        verbs: vec!["get".into(), "watch".into()],
        ..KindData::new(gvk, Arc::new(Struct::new("Gizmo", group, false)))
    };
    Kind {
        data: Arc::new(data),
        hooks: Arc::new(NoHooks),
    }
}

fn find<'a>(groups: &'a [Group], name: &str) -> &'a Group {
    groups.iter().find(|group| group.name == name).unwrap()
}

#[track_caller]
fn check(document: Value, expect: Expect) {
    expect.assert_eq(&json::to_string(&document));
}

#[test]
fn groups_come_in_the_order_of_their_priority() {
    let mut kinds = vec![gizmo("v1")];
    kinds.extend(mizzen_kinds::catalog().kinds);
    let names: Vec<Str> = groups(&kinds).into_iter().map(|group| group.name).collect();
    expect![[r#"
        apiregistration.k8s.io

        apps
        events.k8s.io
        authentication.k8s.io
        authorization.k8s.io
        autoscaling
        batch
        certificates.k8s.io
        networking.k8s.io
        policy
        rbac.authorization.k8s.io
        storage.k8s.io
        admissionregistration.k8s.io
        apiextensions.k8s.io
        scheduling.k8s.io
        coordination.k8s.io
        node.k8s.io
        discovery.k8s.io
        resource.k8s.io
        flowcontrol.apiserver.k8s.io
        stable.example.com"#]]
    .assert_eq(&names.join("\n"));
}

#[test]
fn the_preferred_version_comes_first() {
    check(
        group(find(&built_in(), "autoscaling")),
        expect![[
            r#"{"kind":"APIGroup","apiVersion":"v1","name":"autoscaling","versions":[{"groupVersion":"autoscaling/v2","version":"v2"},{"groupVersion":"autoscaling/v1","version":"v1"}],"preferredVersion":{"groupVersion":"autoscaling/v2","version":"v2"}}"#
        ]],
    );
}

#[test]
fn a_group_list_leaves_core_out() {
    let groups = built_in();
    let list = group_list(&groups);
    assert_eq!(list["groups"].list().len(), groups.len() - 1);
    check(
        list["groups"][1].clone(),
        expect![[
            r#"{"name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}}"#
        ]],
    );
}

#[test]
fn resources_are_followed_by_their_subresources() {
    let groups = built_in();
    let batch = find(&groups, "batch");
    check(
        resource_list(batch, &batch.versions[0]),
        expect![[
            r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"batch/v1","resources":[{"name":"cronjobs","singularName":"cronjob","namespaced":true,"kind":"CronJob","verbs":["create","delete","deletecollection","get","list","patch","update","watch"],"shortNames":["cj"],"categories":["all"],"storageVersionHash":"sd5LIXh4Fjs="},{"name":"cronjobs/status","singularName":"","namespaced":true,"kind":"CronJob","verbs":["get","patch","update"]},{"name":"jobs","singularName":"job","namespaced":true,"kind":"Job","verbs":["create","delete","deletecollection","get","list","patch","update","watch"],"categories":["all"],"storageVersionHash":"mudhfqk/qZY="},{"name":"jobs/status","singularName":"","namespaced":true,"kind":"Job","verbs":["get","patch","update"]}]}"#
        ]],
    );
}

#[test]
fn a_subresource_names_its_kind_of_another_group() {
    let groups = built_in();
    let core = find(&groups, "");
    let list = resource_list(core, core.version("v1").unwrap());
    assert!(list["apiVersion"].is_null());
    let eviction = list["resources"]
        .list()
        .iter()
        .find(|line| line["name"].str() == "pods/eviction");
    check(
        eviction.unwrap().clone(),
        expect![[
            r#"{"name":"pods/eviction","singularName":"","namespaced":true,"group":"policy","version":"v1","kind":"Eviction","verbs":["create"]}"#
        ]],
    );
}

#[test]
fn aggregated_discovery_nests_subresources() {
    let groups = built_in();
    check(
        aggregated([find(&groups, "certificates.k8s.io")]),
        expect![[
            r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{"name":"certificates.k8s.io"},"versions":[{"version":"v1","resources":[{"resource":"certificatesigningrequests","responseKind":{"group":"","version":"","kind":"CertificateSigningRequest"},"scope":"Cluster","singularResource":"certificatesigningrequest","verbs":["create","delete","deletecollection","get","list","patch","update","watch"],"shortNames":["csr"],"subresources":[{"subresource":"approval","responseKind":{"group":"","version":"","kind":"CertificateSigningRequest"},"verbs":["get","patch","update"]},{"subresource":"status","responseKind":{"group":"","version":"","kind":"CertificateSigningRequest"},"verbs":["get","patch","update"]}]}],"freshness":"Current"}]}]}"#
        ]],
    );
}

#[test]
fn a_custom_kind_has_its_full_name() {
    let groups = groups(&[gizmo("v1beta1"), gizmo("v1")]);
    check(
        aggregated(&groups),
        expect![[
            r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{"name":"stable.example.com"},"versions":[{"version":"v1","resources":[{"resource":"gizmos","responseKind":{"group":"stable.example.com","version":"v1","kind":"Gizmo"},"scope":"Namespaced","singularResource":"gizmo","verbs":["get","watch"]}],"freshness":"Current"},{"version":"v1beta1","resources":[{"resource":"gizmos","responseKind":{"group":"stable.example.com","version":"v1beta1","kind":"Gizmo"},"scope":"Namespaced","singularResource":"gizmo","verbs":["get","watch"]}],"freshness":"Current"}]}]}"#
        ]],
    );
}

#[test]
fn paths_are_sorted() {
    let paths = root_paths(&built_in(), &["/debug"]);
    let first: Vec<&str> = paths["paths"]
        .list()
        .iter()
        .take(6)
        .map(Value::str)
        .collect();
    expect![[r#"
        /.well-known/openid-configuration
        /api
        /api/v1
        /apis
        /apis/
        /apis/admissionregistration.k8s.io"#]]
    .assert_eq(&first.join("\n"));
    assert!(
        paths["paths"]
            .list()
            .is_sorted_by_key(|path| path.str().to_string())
    );
}

#[test]
fn versions_are_ordered_by_stability() {
    let best_first = [
        "v10",
        "v2",
        "v1",
        "v11beta2",
        "v10beta3",
        "v3beta1",
        "v12alpha1",
        "v11alpha2",
        "foo1",
        "foo10",
    ];
    for pair in best_first.windows(2) {
        assert_eq!(
            compare_versions(pair[0], pair[1]),
            Ordering::Greater,
            "{pair:?}"
        );
    }
}
