//! One object of each of the common kinds, from creation to deletion.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::time::timeout;

use super::{Kubectl, text};
use crate::process::STEP_TIMEOUT;

#[tokio::test]
async fn reads_an_empty_cluster() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    kubectl
        .shows(
            "get ns",
            &["NAME", "STATUS", "AGE", "default", "kube-system", "Active"],
        )
        .await;
    kubectl
        .shows(
            "get svc",
            &["kubernetes", "ClusterIP", "10.0.0.1", "443/TCP"],
        )
        .await;
    kubectl
        .shows(
            "api-resources",
            &["configmaps", "deployments", "deploy", "apps/v1", "Pod"],
        )
        .await;
    kubectl
        .shows(
            "api-resources --namespaced=false -o name",
            &["nodes", "namespaces"],
        )
        .await;
    kubectl
        .shows("api-versions", &["v1", "apps/v1", "batch/v1"])
        .await;
    kubectl.shows("version", &["Server Version", "v1.36"]).await;
    kubectl
        .shows(
            "get --raw /readyz?verbose",
            &["[+]ping ok", "readyz check passed"],
        )
        .await;
    kubectl
        .shows(
            "explain pod.spec.containers",
            &["FIELD", "image", "Container image name"],
        )
        .await;
    kubectl
        .shows(
            "explain deployment.spec.replicas",
            &["Number of desired pods"],
        )
        .await;
    assert!(
        kubectl
            .refused("get pod none")
            .await
            .contains("(NotFound): pods \"none\" not found")
    );
    assert!(
        kubectl
            .refused("get nonsense")
            .await
            .contains("the server doesn't have a resource type \"nonsense\"")
    );
    let empty = kubectl.output(kubectl.command("get pods")).await;
    assert_eq!(
        text(&empty.stderr),
        "No resources found in default namespace.\n"
    );
}

#[tokio::test]
async fn a_config_map_from_creation_to_deletion() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    assert_eq!(
        kubectl.run("create -f settings.yaml").await,
        "configmap/settings created\n"
    );
    assert!(
        kubectl
            .refused("create -f settings.yaml")
            .await
            .contains("configmaps \"settings\" already exists")
    );
    kubectl
        .shows("get cm settings", &["NAME", "DATA", "settings", "2"])
        .await;
    kubectl
        .shows(
            "get cm settings -o yaml",
            &["colour: blue", "kind: ConfigMap", "Mind the gap."],
        )
        .await;
    kubectl
        .shows(
            "get cm -o json",
            &["\"colour\": \"blue\"", "\"kind\": \"List\""],
        )
        .await;
    kubectl
        .shows(
            "describe cm settings",
            &["Name:         settings", "colour:", "Mind the gap."],
        )
        .await;
    kubectl.run("label cm settings tier=front").await;
    kubectl.run("annotate cm settings note=hello").await;
    kubectl
        .shows("get cm -l tier=front -o name", &["configmap/settings"])
        .await;
    assert_eq!(kubectl.run("get cm -l tier=back -o name").await, "");
    assert!(
        kubectl
            .refused("label cm settings tier=back")
            .await
            .contains("tier")
    );
    kubectl.run("label cm settings tier-").await;
    assert_eq!(kubectl.run("get cm -l tier -o name").await, "");
    kubectl
        .run(r#"patch cm settings -p {"data":{"colour":"red"}}"#)
        .await;
    let note = "get cm settings -o jsonpath={.data.colour}/{.metadata.annotations.note}";
    assert_eq!(kubectl.run(note).await, "red/hello");
    kubectl
        .run(r#"patch cm settings --type=json -p [{"op":"remove","path":"/data/motd"}]"#)
        .await;
    kubectl
        .run(r#"patch cm settings --type=merge -p {"data":{"colour":null,"a":"b"}}"#)
        .await;
    assert_eq!(
        kubectl.run("get cm settings -o jsonpath={.data}").await,
        r#"{"a":"b"}"#
    );
    kubectl
        .shows("delete cm settings", &["configmap \"settings\" deleted"])
        .await;
    assert!(
        kubectl
            .refused("get cm settings")
            .await
            .contains("NotFound")
    );
}

#[tokio::test]
async fn an_editor_changes_an_object() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    kubectl.run("create -f settings.yaml").await;
    let mut edit = kubectl.command("edit cm settings");
    edit.env("KUBE_EDITOR", "sed -i s/blue/green/");
    let output = kubectl.output(edit).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "configmap/settings edited\n");
    assert_eq!(
        kubectl
            .run("get cm settings -o jsonpath={.data.colour}")
            .await,
        "green"
    );
}

#[tokio::test]
async fn a_second_apply_changes_nothing() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    assert_eq!(
        kubectl.run("apply -f web.yaml").await,
        "service/web created\ndeployment.apps/web created\n"
    );
    assert_eq!(
        kubectl.run("apply -f web.yaml").await,
        "service/web unchanged\ndeployment.apps/web unchanged\n"
    );
    assert_eq!(kubectl.run("diff -f web.yaml").await, "");
    kubectl.run("scale deploy web --replicas=5").await;
    let diff = kubectl.output(kubectl.command("diff -f web.yaml")).await;
    assert_eq!(diff.status.code(), Some(1), "{}", text(&diff.stderr));
    let shown = text(&diff.stdout);
    assert!(
        shown.contains("-  replicas: 5") && shown.contains("+  replicas: 2"),
        "{shown}"
    );
    assert_eq!(
        kubectl.run("apply -f web.yaml").await,
        "service/web unchanged\ndeployment.apps/web configured\n"
    );
    assert_eq!(
        kubectl
            .run("get deploy web -o jsonpath={.spec.replicas}")
            .await,
        "2"
    );
}

#[tokio::test]
async fn server_side_apply_records_managed_fields() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    kubectl.run("apply --server-side -f web.yaml").await;
    kubectl.run("apply --server-side -f web.yaml").await;
    kubectl.run("scale deploy web --replicas=5").await;
    let conflict = kubectl.refused("apply --server-side -f web.yaml").await;
    assert!(conflict.contains(".spec.replicas"), "{conflict}");
    kubectl
        .run("apply --server-side --force-conflicts -f web.yaml")
        .await;
    assert_eq!(
        kubectl
            .run("get deploy web -o jsonpath={.spec.replicas}")
            .await,
        "2"
    );
}

#[tokio::test]
async fn a_deployment_from_creation_to_deletion() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    kubectl.run("create -f web.yaml").await;
    kubectl
        .shows("get deploy", &["READY", "UP-TO-DATE", "AVAILABLE", "0/2"])
        .await;
    kubectl
        .shows(
            "get deploy -o wide",
            &[
                "CONTAINERS",
                "IMAGES",
                "SELECTOR",
                "example.com/web:1",
                "app=web",
            ],
        )
        .await;
    kubectl
        .shows(
            "describe deploy web",
            &["app=web", "RollingUpdate", "example.com/web:1", "8080/TCP"],
        )
        .await;
    kubectl
        .shows(
            "describe svc web",
            &["TargetPort:", "8080/TCP", "ClusterIP"],
        )
        .await;
    assert_eq!(
        kubectl.run("scale deploy web --replicas=3").await,
        "deployment.apps/web scaled\n"
    );
    kubectl
        .run("set image deploy/web web=example.com/web:2")
        .await;
    kubectl
        .shows("get deploy -o wide", &["0/3", "example.com/web:2"])
        .await;
    kubectl.run("rollout pause deploy/web").await;
    assert_eq!(
        kubectl
            .run("get deploy web -o jsonpath={.spec.paused}")
            .await,
        "true"
    );
    kubectl.run("delete -f web.yaml").await;
    assert!(kubectl.refused("get deploy web").await.contains("NotFound"));
}

#[tokio::test]
async fn a_pod_from_creation_to_deletion() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    kubectl.run("create -f pod.yaml").await;
    kubectl
        .shows("get pods", &["READY", "RESTARTS", "one", "0/1", "Pending"])
        .await;
    kubectl
        .shows(
            "get pods -o wide",
            &["IP", "NODE", "NOMINATED NODE", "<none>"],
        )
        .await;
    kubectl
        .shows(
            "get pods -A --field-selector status.phase=Pending -o name",
            &["pod/one"],
        )
        .await;
    kubectl
        .shows(
            "describe pod one",
            &["example.com/one:1", "COLOUR:", "BestEffort", "sleep"],
        )
        .await;
    assert!(
        kubectl
            .refused("wait pod one --for=condition=Ready --timeout=1s")
            .await
            .contains("timed out")
    );
    let ready = r#"{"status":{"conditions":[{"type":"Ready","status":"True"}]}}"#;
    let client = kubectl.process.admin().await;
    client
        .call("PATCH", "/api/v1/namespaces/default/pods/one/status", ready)
        .await
        .expect(200);
    kubectl
        .shows(
            "wait pod one --for=condition=Ready --timeout=30s",
            &["condition met"],
        )
        .await;
    kubectl.run("delete pod one").await;
    assert!(kubectl.refused("get pod one").await.contains("NotFound"));
}

#[tokio::test]
async fn an_unknown_field_is_rejected() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    // Kubectl before 1.25 knows only true and false, and checks by itself.
    let strict = kubectl
        .refused("create --validate=strict -f misspelt.yaml")
        .await;
    let message = match strict.contains("invalid argument") {
        true => {
            kubectl
                .refused("create --validate=true -f misspelt.yaml")
                .await
        }
        false => strict,
    };
    assert!(
        message.contains("unknown field \"") && message.contains("comand"),
        "{message}"
    );
    kubectl
        .run("create --validate=false -f misspelt.yaml")
        .await;
}

#[tokio::test]
async fn an_invalid_object_is_rejected_with_every_violation() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    let message = kubectl
        .refused("run UPPER --image=x --restart=Sometimes")
        .await;
    assert!(message.contains("restart"), "{message}");
    let message = kubectl.refused("create ns UPPER").await;
    assert!(
        message.contains("metadata.name: Invalid value: \"UPPER\""),
        "{message}"
    );
    let message = kubectl.refused("run one --image=x -n absent").await;
    assert!(
        message.contains("namespaces \"absent\" not found"),
        "{message}"
    );
}

#[tokio::test]
async fn watching_sees_a_change() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    kubectl.run("create -f settings.yaml").await;
    let mut watch =
        kubectl.command("get cm --watch -o custom-columns=COLOUR:.data.colour --no-headers");
    let mut child = watch.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for colour in ["blue", "red"] {
        let line = timeout(STEP_TIMEOUT, lines.next_line())
            .await
            .expect("an event in time")
            .unwrap();
        assert_eq!(line.as_deref().map(str::trim), Some(colour));
        kubectl
            .run(r#"patch cm settings -p {"data":{"colour":"red"}}"#)
            .await;
    }
}

#[tokio::test]
async fn dry_runs_change_nothing() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    kubectl
        .shows(
            "create -f settings.yaml --dry-run=server",
            &["created (server dry run)"],
        )
        .await;
    assert!(
        kubectl
            .refused("get cm settings")
            .await
            .contains("NotFound")
    );
    kubectl.run("create -f settings.yaml").await;
    kubectl.run("delete cm settings --dry-run=server").await;
    kubectl.run("get cm settings").await;
}

#[tokio::test]
async fn other_kinds_have_upstreams_table_columns() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    for create in [
        "create secret generic hidden --from-literal=a=b",
        "create job once --image=example.com/once:1",
        "create -f often.yaml",
        "create serviceaccount robot",
        "create role reader --verb=get --resource=pods",
        "create rolebinding reader --role=reader --serviceaccount=default:robot",
        "create quota small --hard=pods=3",
    ] {
        kubectl.run(create).await;
    }
    kubectl
        .shows("get secret hidden", &["TYPE", "Opaque"])
        .await;
    kubectl.shows("get job once", &["once", "0/1"]).await;
    kubectl
        .shows("get cronjob often", &["SCHEDULE", "*/5 * * * *"])
        .await;
    kubectl.shows("get sa", &["robot"]).await;
    kubectl
        .shows("describe role reader", &["pods", "[get]"])
        .await;
    kubectl
        .shows("describe rolebinding reader", &["ServiceAccount", "robot"])
        .await;
    kubectl
        .shows(
            "get all",
            &[
                "service/kubernetes",
                "job.batch/once",
                "cronjob.batch/often",
            ],
        )
        .await;
    kubectl.run("delete job,cronjob,secret --all").await;
    assert_eq!(kubectl.run("get job,cronjob,secret -o name").await, "");
}

#[tokio::test]
async fn auth_whoami_and_can_i() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    kubectl
        .shows("auth whoami", &["Username", "admin", "system:masters"])
        .await;
    kubectl
        .shows(
            "auth can-i --list",
            &["*.*", "selfsubjectreviews.authentication.k8s.io", "[*]"],
        )
        .await;
    kubectl.shows("auth can-i delete nodes", &["yes"]).await;
    kubectl.run("create ns quiet").await;
    kubectl
        .run("create rolebinding reader --clusterrole view --user jane -n quiet")
        .await;
    kubectl
        .shows("auth can-i list pods -n quiet --as jane", &["yes"])
        .await;
    let no = kubectl
        .output(kubectl.command("auth can-i list pods --as jane"))
        .await;
    assert_eq!(
        (no.status.success(), text(&no.stdout).trim()),
        (false, "no")
    );
    let refused = kubectl.refused("get pods --as jane").await;
    let sentence =
        r#"User "jane" cannot list resource "pods" in API group "" in the namespace "default""#;
    assert!(refused.contains(sentence), "{refused}");
}

#[tokio::test]
async fn reconciles_roles() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    kubectl
        .run("create clusterrole reader --verb get --resource pods")
        .await;
    kubectl
        .shows(
            "auth reconcile -f roles.yaml",
            &["clusterrole.rbac.authorization.k8s.io/reader reconciled"],
        )
        .await;
    kubectl
        .shows(
            "get clusterrole reader -o jsonpath={.rules[*].resources}",
            &["pods", "services"],
        )
        .await;
    kubectl
        .shows(
            "get clusterrolebinding reader -o jsonpath={.subjects[*].name}",
            &["dev"],
        )
        .await;
}

#[tokio::test]
async fn a_custom_kind_is_served_once_its_crd_is_created() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    kubectl
        .shows(
            "apply -f crontab-definition.yaml",
            &["crontabs.stable.example.com created"],
        )
        .await;
    kubectl
        .shows(
            "apply -f crontab.yaml",
            &["crontab.stable.example.com/mine created"],
        )
        .await;
    kubectl
        .shows(
            "apply --server-side --force-conflicts -f crontab.yaml",
            &["serverside-applied"],
        )
        .await;
    kubectl
        .shows(
            "get ct",
            &["SPEC", "REPLICAS", "AGE", "mine", "* * * * */5"],
        )
        .await;
    kubectl
        .shows(
            "explain crontab.spec",
            &["What is wanted.", "cronSpec", "When it runs."],
        )
        .await;
    kubectl
        .shows("scale --replicas=3 crontab/mine", &["scaled"])
        .await;
    kubectl
        .shows("get ct mine -o jsonpath={.spec.replicas}", &["3"])
        .await;
    let refused = kubectl.refused("scale --replicas=11 crontab/mine").await;
    assert!(
        refused.contains("spec.replicas in body should be less than or equal to 10"),
        "{refused}"
    );
    kubectl
        .shows(
            "api-resources --api-group=stable.example.com",
            &["crontabs", "ct", "CronTab"],
        )
        .await;
    kubectl
        .shows(
            "wait --for=condition=Established crd/crontabs.stable.example.com",
            &["condition met"],
        )
        .await;
    kubectl
        .shows("delete -f crontab-definition.yaml", &["deleted"])
        .await;
    kubectl.refused("get crontabs").await;
}
