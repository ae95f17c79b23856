//! `kubectl create` with all its subcommands, `run`, `expose` and `autoscale`.

use super::{Kubectl, text};

/// A command, and a path and a value that the object then has.
async fn check(kubectl: &Kubectl, create: &str, object: &str, expected: &str) {
    if kubectl.lacks(create) {
        return;
    }
    kubectl.run(create).await;
    let (path, value) = expected.rsplit_once("}=").expect("a path and a value");
    let found = kubectl
        .run(&format!("get {object} -o jsonpath={path}}}"))
        .await;
    assert_eq!(found, value, "{create}");
}

#[tokio::test]
async fn workloads() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    let container = "{.spec.template.spec.containers[0].image}";
    for (create, object, expected) in [
        (
            "create deployment web --image=web:1 --replicas=2 --port=80",
            "deploy web",
            "{.spec.replicas}{.spec.template.spec.containers[0].ports[0].containerPort}=280",
        ),
        (
            "create job once --image=once:1 -- sleep 1",
            "job once",
            &format!("{container}=once:1"),
        ),
        (
            "create cronjob often --image=often:1 --schedule=@hourly",
            "cronjob often",
            "{.spec.schedule}=@hourly",
        ),
        (
            "create job now --from=cronjob/often",
            "job now",
            "{.metadata.annotations.cronjob\\.kubernetes\\.io/instantiate}=manual",
        ),
        (
            "create poddisruptionbudget web --selector=app=web --min-available=50%",
            "pdb web",
            "{.spec.minAvailable}=50%",
        ),
        (
            "create priorityclass high --value=1000 --preemption-policy=Never",
            "priorityclass high",
            "{.value}{.preemptionPolicy}=1000Never",
        ),
        (
            "create quota small --hard=pods=3,services=2",
            "quota small",
            "{.spec.hard.pods}=3",
        ),
        (
            "expose deploy web --port=80 --name=front",
            "svc front",
            "{.spec.selector.app}=web",
        ),
        (
            "autoscale deploy web --min=1 --max=3 --cpu-percent=50",
            "hpa web",
            "{.spec.metrics[0].resource.target.averageUtilization}=50",
        ),
        (
            "run one --image=one:1 --labels=a=b --env=X=y --port=80 --command -- sleep 1",
            "pod one",
            "{.metadata.labels.a}{.spec.containers[0].command}=b[\"sleep\",\"1\"]",
        ),
        (
            "debug one --image=tools:1 --target=one --container=tools --profile=general",
            "pod one",
            "{.spec.ephemeralContainers[0].name}=tools",
        ),
    ] {
        check(&kubectl, create, object, expected).await;
    }
}

#[tokio::test]
async fn services_and_routes() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    for (create, object, expected) in [
        (
            "create service clusterip a --tcp=80:8080",
            "svc a",
            "{.spec.ports[0].targetPort}=8080",
        ),
        (
            "create service nodeport b --tcp=80 --node-port=30100",
            "svc b",
            "{.spec.ports[0].nodePort}=30100",
        ),
        (
            "create service loadbalancer c --tcp=80",
            "svc c",
            "{.spec.type}=LoadBalancer",
        ),
        (
            "create service externalname d --external-name=d.example.com",
            "svc d",
            "{.spec.externalName}=d.example.com",
        ),
        (
            "create ingress e --rule=e.example.com/x*=a:80,tls=secret --class=f --default-backend=a:http",
            "ingress e",
            "{.spec.rules[0].http.paths[0].pathType}{.spec.tls[0].secretName}=Prefixsecret",
        ),
    ] {
        check(&kubectl, create, object, expected).await;
    }
    let taken = kubectl
        .refused("create service nodeport g --tcp=80 --node-port=30100")
        .await;
    assert!(
        taken.contains("provided port is already allocated"),
        "{taken}"
    );
}

#[tokio::test]
async fn settings_and_secrets() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    let pair = rcgen::generate_simple_self_signed(["example.com".to_owned()]).unwrap();
    let (certificate, key) = (
        kubectl.home.path().join("tls.crt"),
        kubectl.home.path().join("tls.key"),
    );
    std::fs::write(&certificate, pair.cert.pem()).unwrap();
    std::fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
    let tls = format!(
        "create secret tls c --cert={} --key={}",
        certificate.display(),
        key.display()
    );
    for (create, object, expected) in [
        (
            "create namespace other",
            "ns other",
            "{.status.phase}=Active",
        ),
        (
            "create configmap a --from-literal=x=y --from-file=pod.yaml",
            "cm a",
            "{.data.x}=y",
        ),
        (
            "create secret generic b --from-literal=x=y --type=example.com/z",
            "secret b",
            "{.data.x}=eQ==",
        ),
        (&tls, "secret c", "{.type}=kubernetes.io/tls"),
        (
            "create secret docker-registry d --docker-username=u --docker-password=p --docker-server=s",
            "secret d",
            "{.type}=kubernetes.io/dockerconfigjson",
        ),
        (
            "create serviceaccount robot",
            "sa robot",
            "{.metadata.name}=robot",
        ),
    ] {
        check(&kubectl, create, object, expected).await;
    }
    if !kubectl.lacks("create token") {
        assert_eq!(
            kubectl
                .run("create token robot --duration=1h")
                .await
                .matches('.')
                .count(),
            2
        );
    }
}

#[tokio::test]
async fn roles_and_bindings() {
    let Some(kubectl) = Kubectl::start().await else {
        return;
    };
    for (create, object, expected) in [
        (
            "create clusterrole a --verb=get,list --resource=pods,deployments.apps",
            "clusterrole a",
            "{.rules[*].apiGroups}=[\"\"] [\"apps\"]",
        ),
        (
            "create clusterrole b --aggregation-rule=example.com/b=c",
            "clusterrole b",
            "{.aggregationRule.clusterRoleSelectors[0].matchLabels.example\\.com/b}=c",
        ),
        (
            "create clusterrole c --verb=get --non-resource-url=/healthz",
            "clusterrole c",
            "{.rules[0].nonResourceURLs[0]}=/healthz",
        ),
        (
            "create clusterrolebinding a --clusterrole=a --user=jane --group=g --serviceaccount=default:robot",
            "clusterrolebinding a",
            "{.subjects[*].kind}=User Group ServiceAccount",
        ),
        (
            "create role a --verb=get --resource=pods,pods/log",
            "role a",
            "{.rules[0].resources[1]}=pods/log",
        ),
        (
            "create rolebinding a --role=a --user=jane",
            "rolebinding a",
            "{.roleRef.kind}=Role",
        ),
    ] {
        check(&kubectl, create, object, expected).await;
    }
    kubectl.run("create -f reader.yaml").await;
    let changed = kubectl
        .output(kubectl.command("auth reconcile -f reader.yaml"))
        .await;
    assert!(changed.status.success(), "{}", text(&changed.stderr));
}
