//! Tests of networking, discovery and flow control.

use expect_test::expect;

use super::{check, check_update};

const INGRESS: &str = "networking.k8s.io/v1 Ingress";

#[test]
fn an_ingress_leads_somewhere() {
    check(
        INGRESS,
        r#"{"spec":{}}"#,
        expect![[r#"
        spec: Invalid value: null: either `defaultBackend` or `rules` must be specified
    "#]],
    );
    let ingress = r#"{"spec":{"rules":[{"host":"1.2.3.4","http":{"paths":[
        {"path":"a//b","pathType":"Exact","backend":{"service":{"name":"s","port":{"name":"p","number":1}}}},
        {"pathType":"ImplementationSpecific","backend":{}}]}}]}}"#;
    check(
        INGRESS,
        ingress,
        expect![[r#"
        spec.rules[0].host: Invalid value: "1.2.3.4": must be a DNS name, not an IP address
        spec.rules[0].http.paths[0].path: Invalid value: "a//b": must be an absolute path
        spec.rules[0].http.paths[0].path: Invalid value: "a//b": must not contain '//'
        spec.rules[0].http.paths[0].backend: Invalid value: "": cannot set both port name & port number
        spec.rules[0].http.paths[1].backend: Invalid value: "": resource or service backend is required
    "#]],
    );
}

#[test]
fn the_old_way_to_choose_a_class_is_warned_of() {
    let annotated = r#"{"metadata":{"annotations":{"kubernetes.io/ingress.class":"a"}},"spec":{"rules":[{"host":"a.com"}]}}"#;
    check(
        INGRESS,
        annotated,
        expect![[r#"
        {"metadata":{"annotations":{"kubernetes.io/ingress.class":"a"}},"spec":{"rules":[{"host":"a.com"}]},"status":{"loadBalancer":{}}}
        annotation "kubernetes.io/ingress.class" is deprecated, please use 'spec.ingressClassName' instead
    "#]],
    );
}

#[test]
fn a_network_policy_is_about_both_directions_if_it_has_egress_rules() {
    let policy = r#"{"spec":{"podSelector":{},"egress":[{"ports":[{"port":53}],"to":[{"ipBlock":{"cidr":"10.0.0.0/8"}}]}]}}"#;
    check(
        "networking.k8s.io/v1 NetworkPolicy",
        policy,
        expect![[r#"
        {"metadata":{},"spec":{"podSelector":{},"egress":[{"ports":[{"protocol":"TCP","port":53}],"to":[{"ipBlock":{"cidr":"10.0.0.0/8"}}]}],"policyTypes":["Ingress","Egress"]}}
    "#]],
    );
    let policy = r#"{"spec":{"podSelector":{},"ingress":[{"ports":[{"port":"web","endPort":5}],
        "from":[{},{"ipBlock":{"cidr":"10.0.0.0/8","except":["11.0.0.0/16"]},"podSelector":{}}]}]}}"#;
    check(
        "networking.k8s.io/v1 NetworkPolicy",
        policy,
        expect![[r#"
        spec.ingress[0].ports[0].endPort: Invalid value: 5: may not be specified when `port` is non-numeric
        spec.ingress[0].from[0]: Required value: must specify a peer
        spec.ingress[0].from[1].ipBlock.except[0]: Invalid value: "11.0.0.0/16": must be a strict subset of `cidr`
        spec.ingress[0].from[1]: Forbidden: may not specify both ipBlock and another peer
    "#]],
    );
}

#[test]
fn a_service_range_may_only_get_a_second_family() {
    let (kind, old) = (
        "networking.k8s.io/v1 ServiceCIDR",
        r#"{"spec":{"cidrs":["10.0.0.0/24"]}}"#,
    );
    check_update(
        kind,
        r#"{"spec":{"cidrs":["10.0.0.0/24","2001:db8::/64"]}}"#,
        old,
        expect![[r#"
        {"metadata":{},"spec":{"cidrs":["10.0.0.0/24","2001:db8::/64"]},"status":{}}
    "#]],
    );
    check_update(
        kind,
        r#"{"spec":{"cidrs":["10.0.1.0/24","10.0.2.0/24"]}}"#,
        old,
        expect![[r#"
        spec.cidrs[0]: Invalid value: "10.0.1.0/24": field is immutable
        spec.cidrs: Invalid value: ["10.0.1.0/24","10.0.2.0/24"]: may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64
    "#]],
    );
}

#[test]
fn an_endpoint_is_somewhere_else() {
    let slice = r#"{"addressType":"IPv4","ports":[{"port":80}],"endpoints":[{"addresses":["127.0.0.1","::2"]},{"addresses":[]}]}"#;
    check(
        "discovery.k8s.io/v1 EndpointSlice",
        slice,
        expect![[r#"
        endpoints[0].addresses[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)
        endpoints[0].addresses: Invalid value: "::2": must be an IPv4 address
        endpoints[1].addresses: Required value: must contain at least 1 address
    "#]],
    );
    let slice = r#"{"addressType":"FQDN","ports":[{}],"endpoints":[{"addresses":["a.b.c"],"deprecatedTopology":{"a":"b"}}]}"#;
    check(
        "discovery.k8s.io/v1 EndpointSlice",
        slice,
        expect![[r#"
        {"metadata":{},"addressType":"FQDN","endpoints":[{"addresses":["a.b.c"],"conditions":{}}],"ports":[{"name":"","protocol":"TCP"}]}
        spec.addressType: FQDN endpoints are deprecated
    "#]],
    );
}

#[test]
fn the_server_s_own_flow_schemas_stay_as_they_are() {
    let kind = "flowcontrol.apiserver.k8s.io/v1 FlowSchema";
    check(
        kind,
        r#"{"metadata":{"name":"exempt"},"spec":{"priorityLevelConfiguration":{"name":"p"}}}"#,
        expect![[r#"
        spec: Invalid value: {"PriorityLevelConfiguration":{"Name":"p"},"MatchingPrecedence":1000,"DistinguisherMethod":null,"Rules":null}: spec of 'exempt' must equal the fixed value
    "#]],
    );
}

#[test]
fn queues_are_sized_so_that_they_can_be_shuffled() {
    let kind = "flowcontrol.apiserver.k8s.io/v1 PriorityLevelConfiguration";
    let level = |queuing: &str| {
        format!(
            r#"{{"spec":{{"type":"Limited","limited":{{"limitResponse":{{"type":"Queue","queuing":{queuing}}}}}}}}}"#
        )
    };
    check(
        kind,
        &level("{}"),
        expect![[r#"
        {"metadata":{},"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":30,"limitResponse":{"type":"Queue","queuing":{"queues":64,"handSize":8,"queueLengthLimit":50}},"lendablePercent":0}},"status":{}}
    "#]],
    );
    check(
        kind,
        &level(r#"{"queues":100000,"handSize":9}"#),
        expect![[r#"
        spec.limited.limitResponse.queuing.handSize: Invalid value: 9: required entropy bits of deckSize 100000 and handSize 9 should not be greater than 60
    "#]],
    );
}
