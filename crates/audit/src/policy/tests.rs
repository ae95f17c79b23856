//! Audit policies as data: which rules match, and what is invalid.

use mizzen_object::User;
use mizzen_request::{AttributesTarget, ResourceAttributes};

use super::*;

fn read(text: &str) -> Result<AuditPolicy, PolicyError> {
    AuditPolicy::read(text.as_bytes())
}

fn policy(rules: &str) -> AuditPolicy {
    read(&format!(
        "kind: Policy\napiVersion: audit.k8s.io/v1\nrules: [{rules}]"
    ))
    .unwrap()
}

const POD: ResourceAttributes = ResourceAttributes {
    group: "",
    version: "v1",
    resource: "pods",
    subresource: "",
    namespace: "default",
    name: "busybox",
    fields: "",
    labels: "",
};

fn pod() -> AttributesTarget<'static> {
    AttributesTarget::Resource(POD)
}

fn logs() -> AttributesTarget<'static> {
    AttributesTarget::Resource(ResourceAttributes {
        subresource: "log",
        ..POD
    })
}

fn node() -> AttributesTarget<'static> {
    AttributesTarget::Resource(ResourceAttributes {
        resource: "nodes",
        namespace: "",
        name: "n",
        ..POD
    })
}

fn role() -> AttributesTarget<'static> {
    AttributesTarget::Resource(ResourceAttributes {
        group: "rbac.authorization.k8s.io",
        resource: "roles",
        name: "edit",
        ..POD
    })
}

fn judge(policy: &AuditPolicy, target: AttributesTarget, known: bool) -> PolicyDecision {
    let groups = vec!["humans".into(), "system:authenticated".into()];
    let user = User {
        name: "tim@k8s.io".into(),
        groups,
        ..User::default()
    };
    policy.evaluate(
        &Attributes {
            user: &user,
            verb: "get",
            target,
        },
        known,
    )
}

/// Whether a rule of the level Metadata matches.
#[track_caller]
fn check(rule: &str, target: AttributesTarget, expected: bool) {
    let policy = policy(&format!("{{level: Metadata, {rule}}}"));
    assert_eq!(
        judge(&policy, target, true).level == AuditLevel::Metadata,
        expected,
        "{rule}"
    );
}

#[test]
fn a_rule_matches_users_groups_and_verbs() {
    check("users: [tim@k8s.io]", pod(), true);
    check("users: [jane]", pod(), false);
    check("userGroups: [animals, humans]", pod(), true);
    check("userGroups: [animals]", pod(), false);
    check("verbs: [list, get]", pod(), true);
    check("verbs: [list]", pod(), false);
    check("users: [tim@k8s.io], verbs: [list]", pod(), false);
}

#[test]
fn a_rule_matches_resources_in_namespaces() {
    check("namespaces: [default]", pod(), true);
    check("namespaces: [kube-system]", pod(), false);
    check("namespaces: ['']", node(), true);
    check("namespaces: ['']", pod(), false);
    check("resources: [{group: ''}]", pod(), true);
    check("resources: [{group: apps}]", pod(), false);
    check("resources: [{group: '*'}]", role(), true);
    check("resources: [{resources: [pods]}]", pod(), true);
    check("resources: [{resources: [pods]}]", logs(), false);
    check("resources: [{resources: [pods/log]}]", logs(), true);
    check("resources: [{resources: [pods/log]}]", pod(), false);
    check("resources: [{resources: ['pods/*']}]", logs(), true);
    check("resources: [{resources: ['pods/*']}]", pod(), true);
    check("resources: [{resources: ['*/log']}]", logs(), true);
    check("resources: [{resources: ['*/log']}]", pod(), false);
    check("resources: [{resources: ['*/scale']}]", logs(), false);
    check("resources: [{resources: ['*']}]", logs(), true);
    check(
        "resources: [{resources: [pods], resourceNames: [busybox]}]",
        pod(),
        true,
    );
    check(
        "resources: [{resources: [pods], resourceNames: [other]}]",
        pod(),
        false,
    );
    check(
        "resources: [{group: rbac.authorization.k8s.io, resources: [roles], resourceNames: [edit]}]",
        role(),
        true,
    );
    check(
        "resources: [{resources: [pods]}], namespaces: [other]",
        pod(),
        false,
    );
}

#[test]
fn a_rule_matches_non_resource_urls() {
    let metrics = || AttributesTarget::NonResource("/metrics");
    check("nonResourceURLs: [/metrics]", metrics(), true);
    check("nonResourceURLs: ['/met*']", metrics(), true);
    check("nonResourceURLs: ['*']", metrics(), true);
    check("nonResourceURLs: [/met]", metrics(), false);
    check("nonResourceURLs: ['*']", pod(), false);
    check("resources: [{resources: ['*']}]", metrics(), false);
    check("namespaces: ['']", metrics(), false);
    check("verbs: [get]", metrics(), true);
}

#[test]
fn the_first_matching_rule_decides_and_without_one_nothing_is_audited() {
    let rules = "{level: Request, verbs: [list]}, {level: None, users: [tim@k8s.io]}, {level: RequestResponse}";
    assert_eq!(judge(&policy(rules), pod(), true).level, AuditLevel::None);
    assert_eq!(
        judge(&policy("{level: Metadata, verbs: [list]}"), pod(), true).level,
        AuditLevel::None
    );
    assert_eq!(
        judge(&policy(rules), pod(), false).level,
        AuditLevel::RequestResponse,
        "a stranger is no user"
    );
}

#[test]
fn stages_are_omitted_for_all_rules_or_for_one() {
    let text = "kind: Policy\napiVersion: audit.k8s.io/v1\nomitStages: [RequestReceived]\nomitManagedFields: true\nrules: [
        {level: Metadata, verbs: [get], omitStages: [Panic], omitManagedFields: false}, {level: Request}]";
    let policy = read(text).unwrap();
    let decision = judge(&policy, pod(), true);
    let omitted = AuditStage::ALL.map(|stage| decision.omitted.has(stage));
    assert_eq!(
        (omitted, decision.omits_managed_fields),
        ([true, false, false, true], false)
    );
    let user = User::default();
    let decision = policy.evaluate(
        &Attributes {
            user: &user,
            verb: "list",
            target: pod(),
        },
        true,
    );
    assert!(decision.omitted.has(AuditStage::RequestReceived) && decision.omits_managed_fields);
}

#[track_caller]
fn check_refused(rest: &str, expected: &str) {
    let error = read(&format!(
        "kind: Policy\napiVersion: audit.k8s.io/v1\n{rest}"
    ))
    .unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[test]
fn an_invalid_policy_is_rejected_in_upstreams_words() {
    check_refused("rules: []", "loaded illegal policy with 0 rules");
    check_refused("rules: [{users: [a]}]", "rules[0].level: Required value");
    check_refused(
        "rules: [{level: all}]",
        "rules[0].level: Unsupported value: \"all\": supported values: \"None\", \"Metadata\", \"Request\", \
         \"RequestResponse\"",
    );
    check_refused(
        "omitStages: [End]\nrules: [{level: None, nonResourceURLs: [a, '/x*y']}]",
        "[omitStages[0]: Invalid value: \"End\": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic, \
         rules[0].nonResourceURLs[0]: Invalid value: \"a\": non-resource URL rules must begin with a '/' character, \
         rules[0].nonResourceURLs[1]: Invalid value: \"/x*y\": non-resource URL wildcards '*' must be the final character \
         of the rule]",
    );
    check_refused(
        "rules: [{level: None, namespaces: [a], nonResourceURLs: [/x]}]",
        "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: rules cannot apply to both regular resources and non-resource URLs",
    );
    check_refused(
        "rules: [{level: None, resources: [{resourceNames: [a]}]}]",
        "rules[0].resources.resourceNames: Invalid value: [\"a\"]: using resourceNames requires at least one resource",
    );
}

#[test]
fn an_undecodable_policy_is_rejected() {
    check_refused(
        "rules: [{level: None, users: a}]",
        "failed decoding: json: cannot unmarshal string into Go struct field PolicyRule.rules.users of type []string",
    );
    check_refused(
        "rules: 1",
        "failed decoding: json: cannot unmarshal number into Go struct field Policy.rules of type []v1.PolicyRule",
    );
    check_refused(
        "rules: [1]",
        "failed decoding: json: cannot unmarshal number into Go struct field Policy.rules of type v1.PolicyRule",
    );
    check_refused(
        "rules: [{level: None, resources: [{group: 1}]}]",
        "failed decoding: json: cannot unmarshal number into Go struct field GroupResources.rules.resources.group of type string",
    );
    check_refused(
        "omitManagedFields: x\nrules: []",
        "failed decoding: json: cannot unmarshal string into Go struct field Policy.omitManagedFields of type bool",
    );
    let error = read("kind: Policy\napiVersion: audit.k8s.io/v1beta1").unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed decoding: no kind \"Policy\" is registered for version \"audit.k8s.io/v1beta1\" in scheme \
         \"pkg/audit/scheme.go:30\""
    );
    assert_eq!(
        read("rules: []").unwrap_err().to_string(),
        "unknown group version field audit.k8s.io/__internal, Kind=Policy in policy"
    );
    let unknown =
        "kind: Policy\napiVersion: audit.k8s.io/v1\nunknown: field\nrules: [{level: None}]";
    assert!(read(unknown).is_ok());
}
