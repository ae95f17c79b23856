//! Invalid configurations, with upstream's messages.

use super::*;

/// Reads a configuration with one issuer, in which `from` became `to`.
fn read(from: &str, to: &str) -> Result<AuthenticationConfiguration, String> {
    const GOOD: &str = r#"
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: https://id.example.com
    audiences: [mizzen]
  claimValidationRules:
  - {claim: hd, requiredValue: example.com}
  - {expression: 'claims.admin == true', message: no admin}
  claimMappings:
    username: {claim: sub, prefix: ''}
    groups: {expression: claims.groups}
    uid: {claim: oid}
    extra:
    - {key: example.com/team, valueExpression: claims.team}
  userValidationRules:
  - {expression: "!user.username.startsWith('system:')", message: reserved}
"#;
    let text = GOOD.replace(from, to);
    assert!(from.is_empty() || text != GOOD, "{from} is not there");
    AuthenticationConfiguration::read(&text, &["https://own".into()])
}

#[track_caller]
fn check(from: &str, to: &str, expected: &str) {
    let problem = read(from, to).map(drop).unwrap_err();
    let problem = problem
        .strip_prefix("invalid authentication configuration: ")
        .unwrap_or(&problem);
    assert_eq!(problem, expected);
}

#[test]
fn a_valid_configuration_is_loaded() {
    let configuration = read("", "").unwrap();
    assert_eq!(
        configuration.issuers[0].endpoint.issuer,
        "https://id.example.com"
    );
    assert_eq!(configuration.issuers[0].audiences, ["mizzen"]);
    assert_eq!(configuration.anonymous, None);
    assert!(read("/v1", "/v1beta1").is_ok());
    let nobody = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";
    assert!(
        AuthenticationConfiguration::read(nobody, &[])
            .unwrap()
            .issuers
            .is_empty()
    );
}

#[test]
fn anonymous_requests_are_configurable() {
    let read = |said: &str| {
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous: ";
        AuthenticationConfiguration::read(&format!("{head}{said}\n"), &[])
            .map(|read| read.anonymous.unwrap())
    };
    assert_eq!(read("{enabled: true}"), Ok(Anonymous::Enabled));
    assert_eq!(read("{enabled: false}"), Ok(Anonymous::Disabled));
    assert_eq!(read("{}"), Ok(Anonymous::Disabled));
    let some = Anonymous::AtPaths(HashSet::from(["/livez".into(), "/readyz".into()]));
    assert_eq!(
        read("{enabled: true, conditions: [{path: /livez}, {path: /readyz}]}"),
        Ok(some)
    );
    let expected = r#"invalid authentication configuration: anonymous.conditions: Invalid value: [{"Path":"/livez"}]: enabled should be set to true when conditions are defined"#;
    assert_eq!(
        read("{enabled: false, conditions: [{path: /livez}]}"),
        Err(expected.into())
    );
}

#[test]
fn an_invalid_configuration_is_rejected() {
    assert_eq!(
        AuthenticationConfiguration::read("", &[]).map(drop),
        Err("empty config data".into())
    );
    let expected = r#"no kind "AuthenticationConfiguration" is registered for version "apiserver.config.k8s.io/v9" in scheme "pkg/kubeapiserver/options/authentication.go:879""#;
    check("/v1", "/v9", expected);
    check(
        "audiences:",
        "audience:",
        r#"strict decoding error: unknown field "jwt[0].issuer.audience""#,
    );
    check(
        "[mizzen]",
        "mizzen",
        "json: cannot unmarshal string into Go struct field Issuer.jwt.issuer.audiences of type []string",
    );
}

#[test]
fn an_issuer_has_an_address_of_its_own() {
    const URL: &str = "jwt[0].issuer.url: Invalid value: ";
    let refused = |url: &str, why: &str| {
        check(
            "https://id.example.com",
            url,
            &format!("{URL}\"{url}\": {why}"),
        )
    };
    check(
        "https://id.example.com",
        "''",
        "jwt[0].issuer.url: Required value",
    );
    refused("http://id.example.com", "URL scheme must be https");
    refused(
        "https://a:b@id.example.com",
        "URL must not contain a username or password",
    );
    refused("https://id.example.com?a=b", "URL must not contain a query");
    check(
        "https://id.example.com",
        "'https://id.example.com#a'",
        &format!("{URL}\"https://id.example.com#a\": URL must not contain a fragment"),
    );
    refused(
        "https://a b",
        r#"parse "https://a b": invalid character " " in host name"#,
    );
    refused(
        "https://own",
        "URL must not overlap with disallowed issuers: [https://own]",
    );
    let discovery = "    audiences: [mizzen]\n    discoveryURL: https://id.example.com/";
    let same = r#"jwt[0].issuer.discoveryURL: Invalid value: "https://id.example.com/": discoveryURL must be different from URL"#;
    check("    audiences: [mizzen]", discovery, same);
    let authority = "    audiences: [mizzen]\n    certificateAuthority: nonsense";
    let no_authority = r#"jwt[0].issuer.certificateAuthority: Invalid value: "<omitted>": data does not contain any valid RSA or ECDSA certificates"#;
    check("    audiences: [mizzen]", authority, no_authority);
    let egress = "    audiences: [mizzen]\n    egressSelectorType: moon";
    let nowhere = r#"jwt[0].issuer.egressSelectorType: Invalid value: "moon": egress selector must be either controlplane or cluster"#;
    check("    audiences: [mizzen]", egress, nowhere);
}

#[test]
fn issuers_must_be_unique() {
    let second = "jwt:\n- {issuer: {url: 'https://id.example.com', audiences: [a]}, claimMappings: {username: {claim: sub, prefix: ''}}}";
    check(
        "jwt:",
        second,
        r#"jwt[1].issuer.url: Duplicate value: "https://id.example.com""#,
    );
}

#[test]
fn audiences_are_required() {
    let policy = "jwt[0].issuer.audienceMatchPolicy: Invalid value: ";
    check(
        "[mizzen]",
        "[]",
        "jwt[0].issuer.audiences: Required value: at least one jwt[0].issuer.audiences is required",
    );
    check(
        "[mizzen]",
        "['']",
        "jwt[0].issuer.audiences[0]: Required value",
    );
    let many = "[a, a]\n    audienceMatchPolicy: MatchAny";
    check(
        "[mizzen]",
        many,
        r#"jwt[0].issuer.audiences[1]: Duplicate value: "a""#,
    );
    let unsaid =
        format!("{policy}\"\": audienceMatchPolicy must be MatchAny for multiple audiences");
    check("[mizzen]", "[a, b]", &unsaid);
    let other = format!(
        "{policy}\"MatchAll\": audienceMatchPolicy must be empty or MatchAny for single audience"
    );
    check("[mizzen]", "[a]\n    audienceMatchPolicy: MatchAll", &other);
}

#[test]
fn a_rule_has_a_claim_or_an_expression() {
    const RULE: &str = "jwt[0].claimValidationRules[0]";
    let rule = "{claim: hd, requiredValue: example.com}";
    let refused = |to: &str, expected: &str| check(rule, to, &format!("{RULE}{expected}"));
    refused(
        "{message: x}",
        ": Required value: claim or expression is required",
    );
    refused(
        "{claim: a, expression: b}",
        r#": Invalid value: "a": claim and expression can't both be set"#,
    );
    refused(
        "{claim: a, message: b}",
        r#".message: Invalid value: "b": may not be specified when claim is set"#,
    );
    refused(
        "{expression: 'true', requiredValue: b}",
        r#".requiredValue: Invalid value: "b": may not be specified when expression is set"#,
    );
    refused(
        "{expression: claims.admin}",
        r#".expression: Invalid value: "claims.admin": must evaluate to bool"#,
    );
    let twice = "{expression: 'claims.admin == true'}";
    let expected =
        r#"jwt[0].claimValidationRules[1].expression: Duplicate value: "claims.admin == true""#;
    check(rule, twice, expected);
    let broken = read(rule, "{expression: claim.admin}")
        .map(drop)
        .unwrap_err();
    assert!(broken.contains(r#"Invalid value: "claim.admin": compilation failed: ERROR: <input>:1:1: undeclared reference to 'claim'"#), "{broken}");
    check(
        "{expression: \"!user.username.startsWith('system:')\", message: reserved}",
        "{message: reserved}",
        "jwt[0].userValidationRules[0].expression: Required value",
    );
}

#[test]
fn a_user_name_needs_a_mapping() {
    const NAME: &str = "jwt[0].claimMappings.username";
    let name = "{claim: sub, prefix: ''}";
    let refused = |to: &str, expected: &str| check(name, to, &format!("{NAME}{expected}"));
    refused("{}", ": Required value: claim or expression is required");
    refused(
        "{claim: a, expression: b}",
        r#": Invalid value: "": claim and expression can't both be set"#,
    );
    refused(
        "{claim: sub}",
        ".prefix: Required value: prefix is required when claim is set. It can be set to an empty string to disable prefixing",
    );
    refused(
        "{expression: claims.sub, prefix: a}",
        r#".prefix: Invalid value: "a": may not be specified when expression is set"#,
    );
    refused(
        "{expression: claims.email}",
        r#".expression: Invalid value: "claims.email": claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression"#,
    );
    assert!(
        read(
            name,
            "{expression: 'claims.email_verified ? claims.email : claims.sub'}"
        )
        .is_ok()
    );
}

#[test]
fn extra_keys_have_a_domain() {
    const KEY: &str = "jwt[0].claimMappings.extra[0].key: ";
    let refused =
        |to: &str, expected: &str| check("example.com/team", to, &format!("{KEY}{expected}"));
    refused("''", "Required value");
    refused(
        "team",
        r#"Invalid value: "team": must be a domain-prefixed path (such as "acme.io/foo")"#,
    );
    let reserved = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
    refused(
        "a.k8s.io/b",
        &format!("Invalid value: \"a.k8s.io/b\": {reserved}"),
    );
    refused(
        "kubernetes.io/b",
        &format!("Invalid value: \"kubernetes.io/b\": {reserved}"),
    );
    refused(
        "example.com/Team",
        r#"Invalid value: "example.com/Team": must be lowercase"#,
    );
    assert!(read("example.com/team", "notk8s.io/b").is_ok());
    check(
        "valueExpression: claims.team",
        "valueExpression: ''",
        "jwt[0].claimMappings.extra[0].valueExpression: Required value",
    );
    check(
        "uid: {claim: oid}",
        "uid: {claim: a, expression: b}",
        r#"jwt[0].claimMappings.uid: Invalid value: "": claim and expression can't both be set"#,
    );
}
