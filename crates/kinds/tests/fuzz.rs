//! The fuzzer's targets of values, kinds, patches, selectors and expressions, on seeded inputs.

#[path = "../../../fuzz/src/seeded.rs"]
mod seeded;
#[path = "../../../fuzz/src/targets.rs"]
mod targets;

#[test]
fn json_is_read_or_refused() {
    let other = br#"[1,-2.5e3,"\u00e9\n\"",{"a":[null,true,false]},{}]"#;
    seeded::check(targets::json, &[targets::POD_TEXT, other], 4_000);
}

#[test]
fn yaml_is_read_or_refused() {
    let other = b"# c\na: &x {b: [1, 'two', \"th\\tree\"], ? c : d}\ne: |+\n  f\n  g\nh: >-\n  i\n\n  j\nk: *x\n<<: *x\nl: !!str 5\nm: 0x1F\nn: ~\n- o\n---\np: q\n";
    seeded::check(targets::yaml, &[targets::POD_TEXT, other], 3_000);
}

#[test]
fn pods_in_json_are_read_or_refused() {
    seeded::check(targets::pod_json, &[targets::POD_TEXT], 1_500);
}

#[test]
fn pods_in_protobuf_are_read_or_refused() {
    let message = targets::pod_message();
    seeded::check(targets::pod_proto, &[&message], 1_500);
}

#[test]
fn selectors_are_read_or_refused() {
    let seeds: [&[u8]; 3] = [
        b"a=b,c!=d,e in (f,g),h notin (i),j,!k,l>5,m<6",
        b"x.y/z==1",
        b"metadata.name=a\\,b,spec.nodeName!=",
    ];
    seeded::check(targets::label_selector, &seeds, 10_000);
    seeded::check(targets::field_selector, &seeds, 10_000);
}

#[test]
fn quantities_are_read_or_refused() {
    let seeds: [&[u8]; 5] = [
        b"1500m",
        b"-0.5Gi",
        b"12e-6",
        b"999999999999999999999999999.9999999999",
        b"+1E",
    ];
    seeded::check(targets::quantity, &seeds, 20_000);
}

#[test]
fn patches_are_applied_or_refused() {
    let patch = br#"[{"op":"add","path":"/metadata/labels/x~1y","value":"z"},{"op":"copy","from":"/spec","path":"/status/a"},{"op":"remove","path":"/spec/containers/0/env/-1"},{"op":"test","path":"/spec/containers/0/name","value":"l"},{"op":"move","from":"/spec/volumes/0","path":"/spec/volumes/-"},{"op":"replace","path":"","value":{}}]"#;
    seeded::check(targets::json_patch, &[patch], 2_000);
    let patch = br#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["j/k"],"labels":{"$patch":"replace","a":"b"}},"spec":{"$setElementOrder/containers":[{"name":"x"},{"name":"l"}],"$retainKeys":["containers","volumes"],"containers":[{"name":"x"},{"name":"l","$patch":"delete"}],"volumes":[{"name":"o","emptyDir":null,"hostPath":{"path":"/"}}]}}"#;
    seeded::check(targets::strategic_patch, &[patch, targets::POD_TEXT], 2_000);
}

#[test]
fn expressions_are_compiled_and_evaluated_or_refused() {
    let seeds: [&[u8]; 4] = [
        b"object.spec.containers.all(c, c.name.matches('^[a-z]+$') && c.image.startsWith(\"m\"))",
        b"has(object.metadata.labels) ? object.metadata.labels.map(k, k + '=' + object.metadata.labels[k]).join(',') : ''",
        b"quantity('1500m').isLessThan(quantity('2')) || duration('1h').getSeconds() > 60 || [1, 2u, 3.0, b'x', null].size() in [5]",
        b"object.spec.?tolerations[0].orValue({'key': 't'}).key.lowerAscii().split('').reverse() == [] || 'a'.format([1]) == '%d'",
    ];
    seeded::check(targets::cel, &seeds, 300);
}

#[test]
fn regular_expressions_are_compiled_or_refused() {
    let seeds: [&[u8]; 5] = [
        b"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        b"(?i:a|b)+?(?P<n>\\d{2,5})\\Q.*\\E[[:alpha:]\\pL^-]\\x{10FFFF}$",
        b"(a*)*(b|c|){0,1000}",
        b"[^\\W\\d_]\\b\\A\\z(?s).(?-s).",
        b"x{2}{3}**",
    ];
    seeded::check(targets::go_regexp, &seeds, 5_000);
}

#[test]
fn schemas_are_compiled_and_used_or_refused() {
    seeded::check(targets::structural_schema, &[targets::SCHEMA_TEXT], 1_000);
}

#[test]
fn sets_of_fields_are_read_or_refused() {
    let seeds: [&[u8]; 2] = [
        br#"{"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{}}},"f:finalizers":{"v:\"x\"":{}},"f:list":{"i:0":{}}}}"#,
        br#"{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{"f:status":{}}}},"v:1.5":{},"k:{}":{}}"#,
    ];
    seeded::check(targets::fields_v1, &seeds, 5_000);
}

#[test]
fn paths_are_followed_or_refused() {
    let seeds: [&[u8]; 4] = [
        b"{.spec.containers[*].name}",
        b"{range .spec.volumes[?(@.name==\"o\")]}{.name}{\"\\n\"}{end}",
        b"{.metadata.labels['c']} {..name} {.spec.containers[-1:].ports[0,1].containerPort}",
        b"{$.status.conditions[?(@.type!='x')].status}{[0]}",
    ];
    seeded::check(targets::json_path, &seeds, 5_000);
}
