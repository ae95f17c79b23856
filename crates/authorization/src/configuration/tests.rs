//! Authorization configurations, valid and invalid.

use std::fs;

use tempfile::TempDir;

use super::{Authorization, AuthorizerType};

const KUBECONFIG: &str = "
current-context: here
contexts: [{name: here, context: {cluster: main}}]
clusters: [{name: main, cluster: {server: 'https://127.0.0.1:1/authorize'}}]
";

/// A valid webhook; `FILE` is its kubeconfig.
const WEBHOOK: &str = "
- type: Webhook
  name: other
  webhook:
    timeout: 3s
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: Deny
    connectionInfo:
      type: KubeConfigFile
      kubeConfigFile: FILE
    matchConditions:
    - expression: has(request.resourceAttributes)
    - expression: request.resourceAttributes.namespace == 'kube-system'
";

const HEAD: &str =
    "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:";

fn parse(text: &str) -> Result<Authorization, String> {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("kubeconfig");
    fs::write(&file, KUBECONFIG).unwrap();
    let shown = file.display().to_string();
    let parsed = Authorization::parse(text.replace("FILE", &shown).as_bytes());
    parsed.map_err(|error| error.to_string().replace(&shown, "FILE"))
}

fn shown(authorization: &Authorization) -> String {
    let entries = authorization
        .0
        .iter()
        .map(|entry| format!("{}={}", entry.name, entry.kind.name()));
    entries.collect::<Vec<_>>().join(",")
}

#[test]
fn authorizers_are_in_the_order_of_the_file() {
    let text =
        format!("{HEAD}\n- {{type: Node, name: node}}{WEBHOOK}\n- {{type: RBAC, name: rbac}}");
    for version in ["v1", "v1beta1", "v1alpha1"] {
        let read = parse(&text.replace("k8s.io/v1", &format!("k8s.io/{version}"))).unwrap();
        assert_eq!(shown(&read), "node=Node,other=Webhook,rbac=RBAC");
    }
}

#[test]
fn unset_fields_of_a_webhook_have_upstreams_defaults() {
    let read = |more: &str| {
        let Authorization(entries) = parse(&format!("{HEAD}{WEBHOOK}{more}")).unwrap();
        let AuthorizerType::Webhook(settings) = entries[0].kind.clone() else {
            panic!("no webhook")
        };
        (
            settings.timeout.as_secs(),
            settings.authorized_ttl.as_secs(),
            settings.unauthorized_ttl.as_secs(),
        )
    };
    assert_eq!(read(""), (3, 300, 30));
    assert_eq!(
        read("    cacheAuthorizedRequests: false\n    unauthorizedTTL: 1m\n"),
        (3, 0, 60)
    );
    assert_eq!(
        read("    cacheUnauthorizedRequests: false\n    authorizedTTL: 1m\n"),
        (3, 60, 0)
    );
}

/// An invalid file.
#[track_caller]
fn check(text: &str, expected: &str) {
    assert_eq!(
        parse(text).map(|read| shown(&read)),
        Err(expected.to_owned())
    );
}

/// A webhook with one line changed.
#[track_caller]
fn check_webhook(from: &str, to: &str, expected: &str) {
    assert!(WEBHOOK.contains(from), "{from}");
    check(
        &format!("{HEAD}{}", WEBHOOK.replacen(from, to, 1)),
        expected,
    );
}

#[test]
fn an_invalid_configuration_is_rejected() {
    let failed = |why: &str| format!("failed to load AuthorizationConfiguration from file: {why}");
    check(
        "apiVersion: v1\nkind: Pod",
        &failed(
            "no kind \"Pod\" is registered for version \"v1\" in scheme \"pkg/apis/apiserver/load/load.go:32\"",
        ),
    );
    check(
        "authorizers: []",
        &failed("Object 'Kind' is missing in 'authorizers: []'"),
    );
    check(
        &format!("{HEAD}\n- {{type: RBAC, name: rbac, nam: x}}\nmore: 1"),
        &failed(
            "strict decoding error: unknown field \"authorizers[0].nam\", unknown field \"more\"",
        ),
    );
    check_webhook(
        "timeout: 3s",
        "timeout: soon",
        &failed("time: invalid duration \"soon\""),
    );
    check(
        "",
        "authorizers: Required value: at least one authorization mode must be defined",
    );
}

#[test]
fn an_authorizer_with_a_wrong_name_is_rejected() {
    check(
        &format!(
            "{HEAD}\n- {{name: a}}\n- {{type: Nobody, name: b}}\n- {{type: RBAC, name: rbac}}\n- {{type: RBAC, name: c}}"
        ),
        "[authorizers[0].type: Required value, authorizers[1].type: Unsupported value: \"Nobody\": supported values: \
         \"ABAC\", \"AlwaysAllow\", \"AlwaysDeny\", \"Node\", \"RBAC\", \"Webhook\", authorizers[3].type: Duplicate value: \
         \"RBAC\"]",
    );
    check(
        &format!("{HEAD}\n- {{type: RBAC, name: roles}}"),
        "expected name rbac for authorizer RBAC instead of roles",
    );
    check(
        &format!("{HEAD}\n- {{type: ABAC, name: abac}}"),
        "the mode ABAC is not supported: roles say the same (RBAC)",
    );
    check(
        &format!("{HEAD}{WEBHOOK}{WEBHOOK}"),
        "authorizers[1].name: Duplicate value: \"other\"",
    );
    check_webhook(
        "name: other",
        "name: _",
        "authorizers[0].name: Invalid value: \"_\": authorizer name is invalid: a lowercase RFC 1123 subdomain must consist \
         of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
         'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
    );
    check(
        &format!("{HEAD}\n- {{type: Webhook, name: a}}"),
        "authorizers[0].webhook: Required value: required when type=Webhook",
    );
    check(
        &format!("{HEAD}\n- {{type: RBAC, name: rbac, webhook: {{}}}}"),
        "authorizers[0].webhook: Invalid value: \"non-null\": may only be specified when type=Webhook",
    );
}

#[test]
fn required_fields_of_a_webhook_are_enforced() {
    check(
        &format!("{HEAD}\n- {{type: Webhook, name: a, webhook: {{}}}}"),
        "[authorizers[0].timeout: Required value, authorizers[0].subjectAccessReviewVersion: Required value, \
         authorizers[0].failurePolicy: Required value, authorizers[0].connectionInfo.type: Required value]",
    );
    check_webhook(
        "timeout: 3s",
        "timeout: 31s",
        "authorizers[0].timeout: Invalid value: \"31s\": must be > 0s and <= 30s",
    );
    check_webhook(
        "timeout: 3s",
        "timeout: 3s\n    authorizedTTL: -1s",
        "authorizers[0].authorizedTTL: Invalid value: \"-1s\": must be > 0s",
    );
    check_webhook(
        "subjectAccessReviewVersion: v1",
        "subjectAccessReviewVersion: v2",
        "authorizers[0].subjectAccessReviewVersion: Unsupported value: \"v2\": supported values: \"v1\", \"v1beta1\"",
    );
    check_webhook(
        "    matchConditionSubjectAccessReviewVersion: v1\n",
        "",
        "authorizers[0].matchConditionSubjectAccessReviewVersion: Required value: required if match conditions are specified",
    );
    check_webhook(
        "failurePolicy: Deny",
        "failurePolicy: Allow",
        "authorizers[0].failurePolicy: Unsupported value: \"Allow\": supported values: \"NoOpinion\", \"Deny\"",
    );
}

#[test]
fn a_webhook_must_be_found() {
    let file = "authorizers[0].connectionInfo.kubeConfigFile: ";
    check_webhook(
        "kubeConfigFile: FILE",
        "kubeConfigFile: ''",
        &format!("{file}Required value"),
    );
    check_webhook(
        "kubeConfigFile: FILE",
        "kubeConfigFile: here",
        &format!("{file}Invalid value: \"here\": must be an absolute path"),
    );
    check_webhook(
        "kubeConfigFile: FILE",
        "kubeConfigFile: /nowhere/f",
        &format!(
            "{file}Invalid value: \"/nowhere/f\": error loading file: stat /nowhere/f: no such file or directory"
        ),
    );
    check_webhook(
        "kubeConfigFile: FILE",
        "kubeConfigFile: /",
        &format!("{file}Invalid value: \"/\": must be a regular file"),
    );
    check_webhook(
        "type: KubeConfigFile",
        "type: InClusterConfig",
        &format!("{file}Invalid value: \"FILE\": can only be set when type=KubeConfigFile"),
    );
}

#[test]
fn match_conditions_must_be_boolean_expressions() {
    let first = "authorizers[0].matchConditions[0].expression: ";
    let expression = "has(request.resourceAttributes)";
    check_webhook(expression, "' '", &format!("{first}Required value"));
    check_webhook(
        expression,
        "request.user",
        &format!("{first}Invalid value: \"request.user\": must evaluate to bool but got string"),
    );
    check_webhook(
        expression,
        "request.resourceAttributes.namespace == 'kube-system'",
        "authorizers[0].matchConditions[1].expression: Duplicate value: \"request.resourceAttributes.namespace == \
         'kube-system'\"",
    );
    let error = parse(&format!(
        "{HEAD}{}",
        WEBHOOK.replacen(expression, "request.nobody == 'x'", 1)
    ))
    .unwrap_err();
    let said = format!(
        "{first}Invalid value: \"request.nobody == 'x'\": compilation failed: ERROR: <input>:1:8: undefined field 'nobody'"
    );
    assert!(error.starts_with(&said), "{error}");
    let many: String = (0..65)
        .map(|n| format!("    - expression: request.user == 'u{n}'\n"))
        .collect();
    check(
        &format!(
            "{HEAD}{}{many}",
            WEBHOOK.split("    - expression").next().unwrap()
        ),
        "authorizers[0].matchConditions: Too many: 65: must have at most 64 items",
    );
}

#[test]
fn only_webhooks_can_change_on_reload() {
    let read = |text: &str| parse(&format!("{HEAD}{text}")).unwrap();
    let both = read("\n- {type: RBAC, name: rbac}\n- {type: AlwaysDeny, name: alwaysdeny}");
    let with_webhook = read(&format!(
        "\n- {{type: RBAC, name: rbac}}{WEBHOOK}\n- {{type: AlwaysDeny, name: alwaysdeny}}"
    ));
    let with_node = read(
        "\n- {type: RBAC, name: rbac}\n- {type: AlwaysDeny, name: alwaysdeny}\n- {type: Node, name: node}",
    );
    let alone = read(WEBHOOK);
    let verdict = |new: &Authorization, old: &Authorization| {
        new.check_successor_of(old)
            .map_err(|error| error.to_string())
    };
    assert_eq!(verdict(&with_webhook, &both), Ok(()));
    assert_eq!(verdict(&both, &with_webhook), Ok(()));
    assert_eq!(
        verdict(&alone, &both),
        Err("missing required types: [AlwaysDeny RBAC]".into())
    );
    assert_eq!(
        verdict(&with_node, &both),
        Err(
            "authorizer type Node is not allowed if it was not enabled at initial server startup"
                .into()
        )
    );
}
