//! Table rows of a dozen kinds, as data.

use mizzen_object::KindData;
use mizzen_object::schema::{Presence, Struct};
use mizzen_schemas::schemas;
use mizzen_value::{Value, json};

use super::{cells, row_conditions, row_rank};

/// 2026-01-01T01:00:00Z; the objects below are an hour old.
const NOW: i64 = 1_767_229_200;

fn row(gvk: &str, object: &str) -> Vec<Value> {
    let mut object = value(object);
    object
        .entry("metadata")
        .set_default("creationTimestamp", "2026-01-01T00:00:00Z");
    let (api_version, name) = gvk.rsplit_once(' ').expect("version and kind");
    let kind = kind(|kind| kind.gvk.api_version() == api_version && kind.gvk.kind == name);
    let mut computed = cells(&kind.gvk)(&object, NOW).into_iter();
    let paths = kind.columns.iter().map(|column| column.path.as_deref());
    let mut row: Vec<_> = paths
        .map(|path| cell(&object, path, &mut computed))
        .collect();
    row.extend(computed);
    row
}

fn kind(matches: impl Fn(&KindData) -> bool) -> &'static KindData {
    let mut kinds = schemas().kinds.iter();
    kinds
        .find(|kind| matches(kind))
        .expect("the test's kind exists")
}

fn cell(object: &Value, path: Option<&str>, computed: &mut impl Iterator<Item = Value>) -> Value {
    match path {
        Some(path) => object.at(&path[1..]).clone(),
        None => computed.next().expect("as many cells as columns"),
    }
}

fn value(text: &str) -> Value {
    json::parse(text.as_bytes()).expect("the test's text is JSON")
}

#[track_caller]
fn check(gvk: &str, object: &str, expected: &str) {
    assert_eq!(row(gvk, object), value(expected).list());
}

#[track_caller]
fn check_pod(status: &str, expected: &str) {
    let spec = r#"{"containers":[{"name":"a"},{"name":"b"}],"initContainers":[{"name":"i"},{"name":"s","restartPolicy":"Always"}]}"#;
    let object = format!(r#"{{"metadata":{{"name":"p"}},"spec":{spec},"status":{status}}}"#);
    let row = row("v1 Pod", &object);
    assert_eq!(row[..4], *value(expected).list());
}

#[test]
fn a_pod_starts_with_its_init_containers() {
    check_pod(r#"{"phase":"Pending"}"#, r#"["p","0/3","Pending","0"]"#);
    check_pod(
        r#"{"phase":"Pending","initContainerStatuses":[{"name":"i","state":{"running":{}}}]}"#,
        r#"["p","0/3","Init:0/2","0"]"#,
    );
    check_pod(
        r#"{"phase":"Pending","initContainerStatuses":[
            {"name":"i","state":{"terminated":{"exitCode":0}}},
            {"name":"s","started":true,"ready":true,"state":{"running":{}}}]}"#,
        r#"["p","1/3","Pending","0"]"#,
    );
    check_pod(
        r#"{"phase":"Pending","initContainerStatuses":[{"name":"i","restartCount":2,"state":{"terminated":{"exitCode":3}},
            "lastState":{"terminated":{"exitCode":3,"finishedAt":"2026-01-01T00:59:00Z"}}}]}"#,
        r#"["p","0/3","Init:ExitCode:3","2 (60s ago)"]"#,
    );
}

#[test]
fn the_status_of_a_pod_follows_its_containers() {
    check_pod(
        r#"{"phase":"Running","containerStatuses":[{"name":"a","ready":true,"state":{"running":{}}},
            {"name":"b","restartCount":4,"state":{"waiting":{"reason":"CrashLoopBackOff"}}}]}"#,
        r#"["p","1/3","CrashLoopBackOff","4"]"#,
    );
    let one_left = r#""containerStatuses":[{"name":"a","state":{"terminated":{"exitCode":0,"reason":"Completed"}}},
        {"name":"b","ready":true,"state":{"running":{}}}]"#;
    check_pod(
        &format!(r#"{{"phase":"Running",{one_left}}}"#),
        r#"["p","1/3","NotReady","0"]"#,
    );
    check_pod(
        &format!(
            r#"{{"phase":"Running","conditions":[{{"type":"Ready","status":"True"}}],{one_left}}}"#
        ),
        r#"["p","1/3","Running","0"]"#,
    );
    check_pod(
        r#"{"phase":"Failed","containerStatuses":[{"name":"a","state":{"terminated":{"exitCode":0,"reason":"Completed"}}},
            {"name":"b","state":{"terminated":{"exitCode":1,"signal":9}}}]}"#,
        r#"["p","0/3","Signal:9","0"]"#,
    );
    check_pod(
        r#"{"phase":"Failed","reason":"Evicted"}"#,
        r#"["p","0/3","Evicted","0"]"#,
    );
}

#[test]
fn a_pod_that_is_deleted_says_so() {
    let pod = |status: &str| {
        format!(
            r#"{{"metadata":{{"name":"p","deletionTimestamp":"2026-01-01T00:00:00Z"}},"status":{status}}}"#
        )
    };
    let tail = r#""0","60m","<none>","<none>","<none>","<none>"]"#;
    check(
        "v1 Pod",
        &pod(r#"{"phase":"Running"}"#),
        &format!(r#"["p","0/0","Terminating",{tail}"#),
    );
    check(
        "v1 Pod",
        &pod(r#"{"phase":"Succeeded"}"#),
        &format!(r#"["p","0/0","Succeeded",{tail}"#),
    );
    check(
        "v1 Pod",
        &pod(r#"{"phase":"Running","reason":"NodeLost"}"#),
        &format!(r#"["p","0/0","Unknown",{tail}"#),
    );
}

#[test]
fn a_wide_pod_shows_where_it_runs() {
    check(
        "v1 Pod",
        r#"{"metadata":{"name":"p"},
            "spec":{"containers":[{"name":"a"}],"nodeName":"n","readinessGates":[{"conditionType":"x"},{"conditionType":"y"}]},
            "status":{"phase":"Pending","podIPs":[{"ip":"10.0.0.1"}],"conditions":[
              {"type":"x","status":"True"},{"type":"PodScheduled","status":"False","reason":"SchedulingGated"}]}}"#,
        r#"["p","0/1","SchedulingGated","0","60m","10.0.0.1","n","<none>","1/2"]"#,
    );
}

#[test]
fn workloads_count_their_pods() {
    let template = r#"{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"},{"name":"d","image":"j"}]}}"#;
    let selector = r#"{"matchLabels":{"z":"1","a":"b"},"matchExpressions":[{"key":"k","operator":"In","values":["w","v"]},
        {"key":"m","operator":"Exists"},{"key":"n","operator":"DoesNotExist"},{"key":"o","operator":"NotIn","values":["x"]}]}"#;
    let text = "a=b,k in (v,w),m,!n,o notin (x),z=1";
    let spec = format!(r#""spec":{{"replicas":3,"selector":{selector},"template":{template}}}"#);
    check(
        "apps/v1 Deployment",
        &format!(
            r#"{{"metadata":{{"name":"d"}},{spec},"status":{{"readyReplicas":1,"updatedReplicas":2}}}}"#
        ),
        &format!(r#"["d","1/3",2,0,"60m","c,d","i,j","{text}"]"#),
    );
    check(
        "apps/v1 ReplicaSet",
        &format!(r#"{{"metadata":{{"name":"r"}},{spec},"status":{{"replicas":2}}}}"#),
        &format!(r#"["r",3,2,0,"60m","c,d","i,j","{text}"]"#),
    );
    check(
        "apps/v1 StatefulSet",
        &format!(r#"{{"metadata":{{"name":"s"}},{spec},"status":{{"replicas":2}}}}"#),
        r#"["s","0/3","60m","c,d","i,j"]"#,
    );
    check(
        "apps/v1 DaemonSet",
        r#"{"metadata":{"name":"s"},"spec":{"template":{"spec":{"nodeSelector":{"x":"y"}}},"selector":{}},
            "status":{"desiredNumberScheduled":4,"currentNumberScheduled":3,"numberReady":2}}"#,
        r#"["s",4,3,2,0,0,"x=y","60m","","","<none>"]"#,
    );
}

#[test]
fn a_job_shows_how_far_it_is() {
    let job = |spec: &str, status: &str| {
        format!(r#"{{"metadata":{{"name":"j"}},"spec":{spec},"status":{status}}}"#)
    };
    check(
        "batch/v1 Job",
        &job(
            r#"{"completions":5}"#,
            r#"{"succeeded":2,"startTime":"2026-01-01T00:59:30Z"}"#,
        ),
        r#"["j","Running","2/5","30s","60m","","","<none>"]"#,
    );
    check(
        "batch/v1 Job",
        &job(
            r#"{"parallelism":3}"#,
            r#"{"succeeded":1,"startTime":"2026-01-01T00:00:00Z","completionTime":"2026-01-01T00:05:00Z",
                "conditions":[{"type":"SuccessCriteriaMet","status":"True"},{"type":"Complete","status":"True"}]}"#,
        ),
        r#"["j","Complete","1/1 of 3","5m","60m","","","<none>"]"#,
    );
}

#[test]
fn a_cron_job_shows_when_it_ran() {
    check(
        "batch/v1 CronJob",
        r#"{"metadata":{"name":"c"},"spec":{"schedule":"* * * * *","suspend":false},
            "status":{"active":[{}],"lastScheduleTime":"2026-01-01T00:59:59Z"}}"#,
        r#"["c","* * * * *","<none>","False",1,"1s","60m","","","<none>"]"#,
    );
}

#[test]
fn a_service_shows_how_to_reach_it() {
    check(
        "v1 Service",
        r#"{"metadata":{"name":"s"},"spec":{"type":"LoadBalancer","clusterIPs":["10.0.0.1"],"externalIPs":["9.9.9.9"],
            "ports":[{"port":80,"protocol":"TCP","nodePort":30000},{"port":53,"protocol":"UDP"}]},
            "status":{"loadBalancer":{"ingress":[{"hostname":"h"},{"ip":"1.2.3.4"}]}}}"#,
        r#"["s","LoadBalancer","10.0.0.1","1.2.3.4,h,9.9.9.9","80:30000/TCP,53/UDP","60m","<none>"]"#,
    );
    check(
        "v1 Service",
        r#"{"metadata":{"name":"s"},"spec":{"type":"ExternalName","externalName":"x.y"}}"#,
        r#"["s","ExternalName","<none>","x.y","<none>","60m","<none>"]"#,
    );
}

#[test]
fn many_endpoints_are_cut_short() {
    check(
        "v1 Endpoints",
        r#"{"metadata":{"name":"e"},"subsets":[{"addresses":[{"ip":"::1"},{"ip":"b"}],"ports":[{"port":1},{"port":2}]}]}"#,
        r#"["e","[::1]:1,b:1,[::1]:2 + 1 more...","60m"]"#,
    );
    check(
        "discovery.k8s.io/v1 EndpointSlice",
        r#"{"metadata":{"name":"e"},"addressType":"IPv4","ports":[{"name":""}],"endpoints":[{"addresses":["a","b"]},{"addresses":["c","d"]}]}"#,
        r#"["e","IPv4","<unset>","a,b,c + 1 more...","60m"]"#,
    );
}

#[test]
fn an_ingress_shows_three_hosts() {
    check(
        "networking.k8s.io/v1 Ingress",
        r#"{"metadata":{"name":"i"},"spec":{"rules":[{"host":"a"},{},{"host":"b"},{"host":"c"},{}],"tls":[{}]}}"#,
        r#"["i","<none>","a,b,c + 2 more...","","80, 443","60m"]"#,
    );
}

#[test]
fn the_default_class_is_marked() {
    check(
        "storage.k8s.io/v1 StorageClass",
        r#"{"metadata":{"name":"s","annotations":{"storageclass.kubernetes.io/is-default-class":"true"}},"provisioner":"p"}"#,
        r#"["s (default)","p","Delete","Immediate",false,"60m"]"#,
    );
}

#[test]
fn a_node_shows_status_and_roles() {
    check(
        "v1 Node",
        r#"{"metadata":{"name":"n","labels":{"node-role.kubernetes.io/b":"","kubernetes.io/role":"a","node-role.kubernetes.io/":""}},
            "spec":{"unschedulable":true},"status":{"conditions":[{"type":"Ready","status":"Unknown"}],
            "addresses":[{"type":"InternalIP","address":"1.1.1.1"}],"nodeInfo":{"kubeletVersion":"v1","architecture":"arm64"}}}"#,
        r#"["n","NotReady,SchedulingDisabled","a,b","60m","v1","1.1.1.1","<none>","<unknown>","<unknown> (arm64)","<unknown>"]"#,
    );
}

#[test]
fn a_quota_shows_requests_and_limits_apart() {
    check(
        "v1 ResourceQuota",
        r#"{"metadata":{"name":"q"},"status":{"hard":{"pods":"3","limits.cpu":"2","cpu":"1"},"used":{"pods":"1"}}}"#,
        r#"["q","cpu: 0/1, pods: 1/3","limits.cpu: 0/2","60m"]"#,
    );
}

#[test]
fn an_event_shows_what_it_is_about() {
    check(
        "v1 Event",
        r#"{"metadata":{"name":"e"},"type":"Normal","reason":"R","involvedObject":{"kind":"Pod","name":"p"},"message":" m\n",
            "reportingComponent":"c","reportingInstance":"h","eventTime":"2026-01-01T00:59:00.000000Z"}"#,
        r#"["60s","Normal","R","pod/p","","c, h","m","60s",1,"e"]"#,
    );
}

#[test]
fn an_autoscaler_shows_two_metrics() {
    check(
        "autoscaling/v2 HorizontalPodAutoscaler",
        r#"{"metadata":{"name":"h"},"spec":{"scaleTargetRef":{"kind":"Deployment","name":"d"},"minReplicas":1,"maxReplicas":5,"metrics":[
            {"type":"Resource","resource":{"name":"cpu","target":{"averageUtilization":80}}},
            {"type":"External","external":{"target":{"averageValue":"3"}}},
            {"type":"Pods","pods":{"target":{"averageValue":"3"}}}]},
            "status":{"currentMetrics":[{"type":"Resource","resource":{"current":{"averageUtilization":7}}}]}}"#,
        r#"["h","Deployment/d","cpu: 7%/80%, <unknown>/3 (avg) + 1 more...","1",5,0,"60m"]"#,
    );
}

#[test]
fn a_claim_shows_what_it_got_only_when_bound() {
    let claim = |spec: &str| {
        format!(
            r#"{{"metadata":{{"name":"c"}},"spec":{spec},"status":{{"phase":"Pending","capacity":{{"storage":"1Gi"}},"accessModes":["ReadOnlyMany","ReadWriteOnce"]}}}}"#
        )
    };
    check(
        "v1 PersistentVolumeClaim",
        &claim(r#"{"storageClassName":"s"}"#),
        r#"["c","Pending","","","","s","<unset>","60m","<unset>"]"#,
    );
    check(
        "v1 PersistentVolumeClaim",
        &claim(r#"{"volumeName":"v","volumeMode":"Block"}"#),
        r#"["c","Pending","v","1Gi","RWO,ROX","","<unset>","60m","Block"]"#,
    );
}

#[test]
fn an_address_has_a_cell_without_a_column() {
    check(
        "networking.k8s.io/v1 IPAddress",
        r#"{"metadata":{"name":"1.1.1.1"},"spec":{"parentRef":{"group":"apps","resource":"Things","namespace":"n","name":"x"}}}"#,
        r#"["1.1.1.1","things.apps/n/x","60m"]"#,
    );
}

#[test]
fn a_policy_binding_shows_its_selector_as_go_does() {
    check(
        "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding",
        r#"{"metadata":{"name":"b"},"spec":{"policyName":"p","paramRef":{"selector":{"matchLabels":{"a":"b"},
            "matchExpressions":[{"key":"k","operator":"In","values":["x","y"]}]}}}}"#,
        r#"["b","p","&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{LabelSelectorRequirement{Key:k,Operator:In,Values:[x y],},},}","60m"]"#,
    );
}

#[test]
fn a_kind_without_a_printer_shows_when_it_was_made() {
    check(
        "v1 LimitRange",
        r#"{"metadata":{"name":"l"}}"#,
        r#"["l","2026-01-01T00:00:00Z"]"#,
    );
}

#[test]
fn a_pod_that_has_ended_has_a_row_condition() {
    let pod = &kind(|kind| kind.gvk.kind == "Pod").gvk;
    let reason = |phase: &str| {
        let object = value(&format!(r#"{{"status":{{"phase":"{phase}"}}}}"#));
        row_conditions(pod)(&object)
            .first()
            .map(|condition| condition["reason"].str().to_string())
    };
    assert_eq!(reason("Succeeded").as_deref(), Some("Succeeded"));
    assert_eq!(reason("Failed").as_deref(), Some("Failed"));
    assert_eq!(reason("Running"), None);
}

#[test]
fn flow_schemas_are_ranked_by_precedence() {
    let kind = kind(|kind| kind.gvk.kind == "FlowSchema");
    let object = value(r#"{"spec":{"matchingPrecedence":7}}"#);
    assert_eq!(row_rank(&kind.gvk).map(|rank| rank(&object)), Some(7));
}

/// Otherwise a cell could be `null`, which no built-in kind's table has.
#[test]
fn columns_with_a_path_are_always_written() {
    for kind in &schemas().kinds {
        for column in &kind.columns {
            let Some(path) = &column.path else { continue };
            assert!(
                is_always_written(&kind.root, &path[1..]),
                "{} {path}",
                kind.gvk
            );
        }
    }
}

fn is_always_written(root: &Struct, path: &str) -> bool {
    let (name, rest) = path.split_once('.').unwrap_or((path, ""));
    let Some(field) = root.field(name) else {
        return false;
    };
    let written = field.presence == Presence::Always || root.name == "ObjectMeta";
    written
        && (rest.is_empty()
            || field
                .ty
                .as_struct()
                .is_some_and(|inner| is_always_written(inner, rest)))
}

#[test]
fn every_kind_that_is_listed_gives_a_cell_for_each_column() {
    let empty = Value::object();
    for kind in schemas()
        .kinds
        .iter()
        .filter(|kind| kind.list_kind.is_some() && kind.stored.is_none())
    {
        let computed = kind
            .columns
            .iter()
            .filter(|column| column.path.is_none())
            .count();
        let extra = usize::from(kind.gvk.kind == "IPAddress");
        assert_eq!(
            cells(&kind.gvk)(&empty, NOW).len(),
            computed + extra,
            "{}",
            kind.gvk
        );
        assert!(!kind.columns.is_empty(), "{}", kind.gvk);
    }
}
