//! What changes an object: `set`, `scale`, `label`, `annotate`, `patch`, `replace`, `edit`, `rollout`.

use super::{Kubectl, text};

const IMAGE: &str = "{.spec.template.spec.containers[0].image}";

impl Kubectl {
    /// The value at a path of an object.
    async fn value(&self, object: &str, path: &str) -> String {
        self.run(&format!("get {object} -o jsonpath={path}")).await
    }
}

#[tokio::test]
async fn set_changes_one_thing() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    for create in [
        "create -f web.yaml",
        "create serviceaccount robot",
        "create -f reader.yaml",
    ] {
        kubectl.run(create).await;
    }
    let container = "{.spec.template.spec.containers[0]";
    for (set, object, path, expected) in [
        (
            "set image deploy/web web=web:2",
            "deploy web",
            IMAGE.to_owned(),
            "web:2",
        ),
        (
            "set env deploy/web COLOUR=blue",
            "deploy web",
            format!("{container}.env[0].value}}"),
            "blue",
        ),
        (
            "set resources deploy/web -c=web --limits=cpu=1",
            "deploy web",
            format!("{container}.resources.limits.cpu}}"),
            "1",
        ),
        (
            "set serviceaccount deploy/web robot",
            "deploy web",
            "{.spec.template.spec.serviceAccountName}".to_owned(),
            "robot",
        ),
        (
            "set subject rolebinding/reader --user=jane",
            "rolebinding reader",
            "{.subjects[1].apiGroup}".to_owned(),
            "rbac.authorization.k8s.io",
        ),
        (
            "set selector svc/web a=b",
            "svc web",
            "{.spec.selector}".to_owned(),
            r#"{"a":"b"}"#,
        ),
    ] {
        kubectl.run(set).await;
        assert_eq!(kubectl.value(object, &path).await, expected, "{set}");
    }
    kubectl
        .shows("set env deploy/web --list", &["COLOUR=blue"])
        .await;
}

#[tokio::test]
async fn every_kind_of_patch() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    kubectl.run("create -f web.yaml").await;
    let image = r#"{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"web:2"}]}}}}"#;
    kubectl.run(&format!("patch deploy web -p {image}")).await;
    assert_eq!(kubectl.value("deploy web", IMAGE).await, "web:2");
    kubectl
        .run(r#"patch deploy web --type=merge -p {"spec":{"paused":true}}"#)
        .await;
    kubectl
        .run(r#"patch deploy web --type=json -p [{"op":"remove","path":"/spec/paused"}]"#)
        .await;
    assert_eq!(kubectl.value("deploy web", "{.spec.paused}").await, "");
    let status = r#"patch deploy web --subresource=status --type=merge -p {"status":{"observedGeneration":3}}"#;
    if !kubectl.lacks(status) {
        kubectl.run(status).await;
        let generations = "{.status.observedGeneration}{.metadata.generation}";
        assert_eq!(kubectl.value("deploy web", generations).await, "34");
    }
    let missing = r#"patch deploy web --type=json -p [{"op":"remove","path":"/spec/none"}]"#;
    let refused = kubectl.refused(missing).await;
    // The second is how kubectl 1.20 prints it.
    let words = ["the server rejected our request", "The request is invalid"];
    assert!(
        words.iter().any(|words| refused.contains(words)),
        "{refused}"
    );
}

#[tokio::test]
async fn scale_label_and_annotate() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    kubectl.run("create -f web.yaml").await;
    kubectl
        .run("scale deploy/web --replicas=4 --current-replicas=2")
        .await;
    assert!(
        kubectl
            .refused("scale deploy/web --replicas=5 --current-replicas=2")
            .await
            .contains("replicas")
    );
    kubectl.run("label deploy/web x=y").await;
    kubectl.run("label deploy/web x=z --overwrite").await;
    kubectl.run("annotate deploy/web note=hello").await;
    let all = "{.spec.replicas}{.metadata.labels.x}{.metadata.annotations.note}";
    assert_eq!(kubectl.value("deploy web", all).await, "4zhello");
    kubectl.run("label deploy/web x-").await;
    kubectl.run("annotate deploy/web note-").await;
    assert_eq!(kubectl.value("deploy web", all).await, "4");
}

#[tokio::test]
async fn replace_and_edit() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    kubectl.run("create -f settings.yaml").await;
    let uid = kubectl.value("cm settings", "{.metadata.uid}").await;
    kubectl.run("label cm settings a=b").await;
    assert_eq!(
        kubectl.value("cm settings", "{.metadata.labels.a}").await,
        "b"
    );
    kubectl
        .shows("replace -f settings.yaml", &["configmap/settings replaced"])
        .await;
    assert_eq!(
        kubectl.value("cm settings", "{.metadata.labels.a}").await,
        ""
    );
    assert_eq!(kubectl.value("cm settings", "{.metadata.uid}").await, uid);
    kubectl
        .shows("replace --force -f settings.yaml", &["deleted", "replaced"])
        .await;
    assert_ne!(kubectl.value("cm settings", "{.metadata.uid}").await, uid);

    kubectl.run("create -f web.yaml").await;
    let mut edit = kubectl.command("edit deploy web");
    edit.env("KUBE_EDITOR", "sed -i s/web:1/web:9/");
    let output = kubectl.output(edit).await;
    assert_eq!(
        text(&output.stdout),
        "deployment.apps/web edited\n",
        "{}",
        text(&output.stderr)
    );
    assert_eq!(
        kubectl.value("deploy web", IMAGE).await,
        "example.com/web:9"
    );
    let mut spoil = kubectl.command("edit deploy web");
    spoil.env("KUBE_EDITOR", "sed -i s/replicas:.2/replicas:\\ -2/");
    let output = kubectl.output(spoil).await;
    assert!(!output.status.success(), "{}", text(&output.stdout));
    assert_eq!(kubectl.value("deploy web", "{.spec.replicas}").await, "2");
}

#[tokio::test]
async fn a_rollout_is_paused_resumed_restarted_and_undone() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    kubectl.run("create -f web.yaml").await;
    kubectl.run("rollout pause deploy/web").await;
    assert_eq!(kubectl.value("deploy web", "{.spec.paused}").await, "true");
    kubectl.run("rollout resume deploy/web").await;
    kubectl.run("rollout restart deploy/web").await;
    let restarted = "{.spec.template.metadata.annotations.kubectl\\.kubernetes\\.io/restartedAt}";
    assert_ne!(kubectl.value("deploy web", restarted).await, "");
    kubectl
        .shows(
            "rollout status deploy/web --watch=false",
            &["spec update to be observed"],
        )
        .await;

    let uid = kubectl.value("deploy web", "{.metadata.uid}").await;
    let client = kubectl.process.admin().await;
    for revision in [1, 2] {
        let set = replica_set(revision, &uid);
        client
            .call("POST", "/apis/apps/v1/namespaces/default/replicasets", set)
            .await
            .expect(201);
    }
    kubectl
        .shows("rollout history deploy/web", &["REVISION", "1", "2"])
        .await;
    kubectl
        .shows("rollout history deploy/web --revision=1", &["web:old-1"])
        .await;
    kubectl.run("rollout undo deploy/web --to-revision=1").await;
    assert_eq!(kubectl.value("deploy web", IMAGE).await, "web:old-1");
}

/// The history of revisions.
fn replica_set(revision: u32, owner: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"web-{revision}","labels":{{"app":"web"}},"annotations":{{"deployment.kubernetes.io/revision":"{revision}"}},
        "ownerReferences":[{{"apiVersion":"apps/v1","kind":"Deployment","name":"web","uid":"{owner}","controller":true}}]}},
        "spec":{{"selector":{{"matchLabels":{{"app":"web"}}}},"template":{{"metadata":{{"labels":{{"app":"web"}}}},
        "spec":{{"containers":[{{"name":"web","image":"web:old-{revision}"}}]}}}}}}}}"#
    )
}
