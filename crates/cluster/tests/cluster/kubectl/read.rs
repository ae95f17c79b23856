//! Read-only commands: `get` in every form, `describe`, `explain`, `wait`, `events`, `auth`, `cluster-info`.

use super::Kubectl;

#[tokio::test]
async fn get_in_every_form() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    kubectl.run("create -f web.yaml").await;
    for (get, expected) in [
        ("get deploy web -o name", "deployment.apps/web\n"),
        ("get deploy web -o jsonpath={.metadata.name}", "web"),
        ("get deploy -o jsonpath={.items[*].spec.replicas}", "2"),
        (
            "get deploy -o custom-columns=N:.metadata.name,R:.spec.replicas --no-headers",
            "web   2\n",
        ),
        (
            "get svc --sort-by=.metadata.name -o go-template={{.kind}}",
            "List",
        ),
        (
            "get svc --field-selector metadata.name=web -o name",
            "service/web\n",
        ),
        ("get deploy,svc -l app=web -o name", "deployment.apps/web\n"),
        (
            "get deploy web --subresource=status -o jsonpath={.kind}",
            "Deployment",
        ),
    ] {
        if !kubectl.lacks(get) {
            assert_eq!(kubectl.run(get).await, expected, "{get}");
        }
    }
    kubectl
        .shows(
            "get deploy web -o wide",
            &["CONTAINERS", "example.com/web:1"],
        )
        .await;
    kubectl
        .shows(
            "get deploy web -o yaml --show-managed-fields",
            &["managedFields:", "f:replicas"],
        )
        .await;
    kubectl
        .shows("get deploy web -o json", &["\"kind\": \"Deployment\""])
        .await;
    kubectl
        .shows(
            "get svc -A --show-labels",
            &["NAMESPACE", "component=apiserver"],
        )
        .await;
    kubectl
        .shows("get deploy web --subresource=scale", &["DESIRED", "web"])
        .await;
    kubectl
        .shows("get all", &["service/web", "deployment.apps/web"])
        .await;
}

#[tokio::test]
async fn describe_shows_details() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    for create in [
        "create -f web.yaml",
        "create -f pod.yaml",
        "create -f often.yaml",
        "create -f node.yaml",
        "create -f reader.yaml",
        "create -f requests.yaml",
        "create job once --image=once:1",
        "create secret generic hidden --from-literal=a=b",
        "create quota small --hard=pods=3",
        "create ingress way --rule=a.example.com/=web:80",
        "create -f budget.yaml",
        "create priorityclass high --value=1000",
        "autoscale deploy web --max=3 --cpu-percent=50",
    ] {
        kubectl.run(create).await;
    }
    for (object, words) in [
        ("deploy web", ["RollingUpdate", "example.com/web:1"]),
        ("svc web", ["8080/TCP", "ClusterIP"]),
        ("pod one", ["BestEffort", "COLOUR"]),
        ("cronjob often", ["*/5 * * * *", "example.com/often:1"]),
        ("node one", ["Unschedulable:", "Allocated resources"]),
        ("role reader", ["pods", "[get watch]"]),
        ("rolebinding reader", ["ServiceAccount", "robot"]),
        ("csr good", ["example.com/signer", "Pending"]),
        ("job once", ["Parallelism:", "once:1"]),
        ("secret hidden", ["Opaque", "1 bytes"]),
        ("quota small", ["Resource", "Hard"]),
        ("ingress way", ["a.example.com", "web:80"]),
        ("pdb web", ["Min available:", "1"]),
        ("priorityclass high", ["Value:", "1000"]),
        ("hpa web", ["Deployment/web", "50%"]),
        ("ns default", ["Active", "small"]),
    ] {
        kubectl.shows(&format!("describe {object}"), &words).await;
    }
}

#[tokio::test]
async fn explain_and_discovery() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    kubectl
        .shows(
            "explain --recursive pod",
            &["containers", "<[]Container> -required-"],
        )
        .await;
    kubectl
        .shows(
            "explain --recursive deploy.spec.strategy",
            &["maxSurge", "IntOrString"],
        )
        .await;
    kubectl
        .shows(
            "explain deploy.spec.strategy.rollingUpdate",
            &["maxSurge", "maxUnavailable"],
        )
        .await;
    kubectl
        .shows(
            "explain hpa.spec.metrics --api-version=autoscaling/v2",
            &["containerResource"],
        )
        .await;
    kubectl
        .shows("api-resources --api-group=apps", &["deployments", "deploy"])
        .await;
    kubectl
        .shows(
            "api-resources -o wide --api-group=apps",
            &["deployments", "deploy", "watch", "all"],
        )
        .await;
    kubectl
        .shows("api-versions", &["apps/v1", "autoscaling/v2"])
        .await;
    kubectl
        .shows("cluster-info", &["control plane", "is running at"])
        .await;
}

#[tokio::test]
async fn wait_for_conditions_and_deletion() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    kubectl.run("create -f web.yaml").await;
    kubectl
        .shows(
            "wait --for=jsonpath={.spec.replicas}=2 deploy/web --timeout=30s",
            &["condition met"],
        )
        .await;
    kubectl
        .shows(
            "wait --for=jsonpath={.spec.replicas} deploy/web --timeout=30s",
            &["condition met"],
        )
        .await;
    kubectl
        .shows("wait --for=delete deploy/none --timeout=30s", &[])
        .await;
    let deleted = "wait --for=delete deploy/web --timeout=30s";
    if !kubectl.lacks(deleted) {
        let mut waiting = kubectl.command(deleted).spawn().unwrap();
        kubectl.run("delete deploy web").await;
        assert!(waiting.wait().await.unwrap().success());
    }
    kubectl.run("create -f pod.yaml").await;
    let late = kubectl
        .refused("wait --for=condition=Ready pod/one --timeout=1s")
        .await;
    assert!(late.contains("timed out"), "{late}");
}

#[tokio::test]
async fn events_are_listed() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    kubectl.run("create -f pod.yaml").await;
    let uid = kubectl.run("get pod one -o jsonpath={.metadata.uid}").await;
    let about = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","namespace":"default","name":"one","uid":"{uid}"}}"#
    );
    let event = format!(
        r#"{{"metadata":{{"name":"one.1"}},"involvedObject":{about},"type":"Warning","reason":"Odd","message":"something is odd",
        "source":{{"component":"test"}}}}"#
    );
    let client = kubectl.process.admin().await;
    client
        .call("POST", "/api/v1/namespaces/default/events", event)
        .await
        .expect(201);
    kubectl
        .shows("events", &["Warning", "Odd", "Pod/one", "something is odd"])
        .await;
    kubectl
        .shows("events --for pod/one", &["something is odd"])
        .await;
    kubectl
        .shows(
            "get events --field-selector involvedObject.name=one",
            &["something is odd"],
        )
        .await;
    kubectl
        .shows("describe pod one", &["something is odd"])
        .await;
}

#[tokio::test]
async fn whoami_and_can_i() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    kubectl
        .shows("auth whoami", &["Username", "admin", "system:masters"])
        .await;
    assert_eq!(kubectl.run("auth can-i create pods").await, "yes\n");
    kubectl.shows("auth can-i --list", &["*.*", "[*]"]).await;
    kubectl
        .run("create role reader --verb=get --resource=pods")
        .await;
    kubectl
        .shows(
            "auth reconcile -f reader.yaml",
            &["role.rbac.authorization.k8s.io/reader reconciled"],
        )
        .await;
    let verbs = "get role reader -o jsonpath={.rules[*].verbs}";
    assert_eq!(kubectl.run(verbs).await, r#"["get"] ["watch"]"#);
}
