//! The ValidatingAdmissionPolicy status controller.

use mizzen_sdk::resource::VALIDATING_ADMISSION_POLICIES;
use mizzen_testing::Cluster;
use mizzen_value::Value;

use crate::{settle, start};

async fn cluster() -> Cluster {
    start(&["validatingadmissionpolicy-status-controller"]).await
}

/// Creates a policy for a resource, such as `apps/v1/deployments`.
async fn policy(cluster: &Cluster, of: &str, rest: &str) {
    let parts: Vec<&str> = of.split('/').collect();
    let [group, version, plural] = parts[..] else {
        panic!("{of} has {} parts", parts.len())
    };
    let rule = format!(
        "{{apiGroups: ['{group}'], apiVersions: [{version}], operations: [CREATE], resources: [{plural}]}}"
    );
    let constraints = format!("{{resourceRules: [{rule}]}}");
    cluster.create(&format!("{{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {{name: p}}, spec: {{matchConstraints: {constraints}, {rest}}}}}")).await;
    settle(cluster).await;
}

/// The warnings of the policy, and the observed generation.
async fn said(cluster: &Cluster) -> (Vec<String>, i64) {
    let policy = cluster.object(&VALIDATING_ADMISSION_POLICIES, "p").await;
    let show = |warning: &Value| {
        let first = warning["warning"]
            .str()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned();
        format!("{} {first}", warning["fieldRef"].str())
    };
    let warnings = policy["status"]["typeChecking"]["expressionWarnings"].list();
    (
        warnings.iter().map(show).collect(),
        policy["status"]["observedGeneration"].int(),
    )
}

#[tokio::test(start_paused = true)]
async fn type_warnings_are_written_and_removed() {
    let cluster = cluster().await;
    policy(
        &cluster,
        "apps/v1/deployments",
        "validations: [{expression: 'object.spec.replicsa <= 5'}]",
    )
    .await;
    let warning = "spec.validations[0].expression apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'replicsa'";
    assert_eq!(said(&cluster).await, (vec![warning.to_owned()], 1));
    cluster
        .change(&VALIDATING_ADMISSION_POLICIES, "p", |policy| {
            let validation = &mut policy.entry("spec").entry("validations").list_mut()[0];
            validation.set("expression", "object.spec.replicas <= 5");
        })
        .await;
    settle(&cluster).await;
    assert_eq!(said(&cluster).await, (Vec::new(), 2));
}

#[tokio::test(start_paused = true)]
async fn custom_kinds_have_types_too() {
    let cluster = cluster().await;
    let schema =
        "{type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}";
    let version =
        format!("{{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {schema}}}}}");
    cluster.create(&format!("{{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {{name: foos.example.com}}, spec: {{group: example.com, scope: Cluster, names: {{plural: foos, kind: Foo}}, versions: [{version}]}}}}")).await;
    let validations = "validations: [{expression: 'object.spec.size > 1 && object.metadata.labels.size() > 0'}, {expression: 'object.spec.seize > 1'}, {expression: 'params.spec.size == 1', messageExpression: 'string(params.nope)'}]";
    let params = "paramKind: {apiVersion: example.com/v1, kind: Foo}";
    policy(
        &cluster,
        "example.com/v1/foos",
        &format!("{params}, {validations}"),
    )
    .await;
    let warnings = [
        "spec.validations[1].expression example.com/v1, Kind=Foo: ERROR: <input>:1:12: undefined field 'seize'",
        "spec.validations[2].messageExpression example.com/v1, Kind=Foo: ERROR: <input>:1:14: undefined field 'nope'",
    ];
    assert_eq!(
        said(&cluster).await,
        (warnings.map(String::from).to_vec(), 1)
    );
}

#[tokio::test(start_paused = true)]
async fn an_unknown_kind_causes_no_warning() {
    let cluster = cluster().await;
    let validations = "validations: [{expression: 'object.nope == 1'}]";
    policy(
        &cluster,
        "example.com/v1/foos",
        &format!("paramKind: {{apiVersion: b.io/v1, kind: Bar}}, {validations}"),
    )
    .await;
    assert_eq!(said(&cluster).await, (Vec::new(), 1));
}
