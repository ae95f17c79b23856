//! The server creates the objects that it owns, and restores them at kube-apiserver's intervals. Time is paused.

use std::sync::Arc;

use mizzen_apiserver::clock::{CountingRandom, VirtualClock};
use mizzen_apiserver::{Options, kube_apiserver_boot_sequence};
use mizzen_registry::{Registry, Store};
use mizzen_value::address::Cidr;
use tokio::time::sleep;

use super::*;

const SERVICE: &str = "/api/v1/namespaces/default/services/kubernetes";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints/kubernetes";
const SLICE: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
const RANGE: &str = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes";
const SCHEMA: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const LEVEL: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

/// A bootstrapped server that reconciles the objects that it owns.
struct Rig {
    server: Server,
    client: LoopbackClient,
}

impl Rig {
    async fn new() -> Rig {
        let rig = Rig::empty();
        rig.server.start().await;
        bootstrap(&rig.server, &location(), &TrustedAuthorities::default())
            .await
            .unwrap();
        tokio::spawn(reconcile_owned(rig.server.clone(), location()));
        pass(1).await;
        rig
    }

    /// A server that is not bootstrapped.
    fn empty() -> Rig {
        let clock = Arc::new(VirtualClock::starting_at(1_700_000_000));
        let registry = Registry::new(
            Store::in_memory(Default::default()),
            clock,
            Arc::new(CountingRandom::default()),
        );
        let options = Options {
            boot_sequence: kube_apiserver_boot_sequence(false),
            ..Options::default()
        };
        let server = mizzen_controlplane::server(registry, options);
        Rig {
            client: LoopbackClient::new(&server, KUBE_APISERVER),
            server,
        }
    }

    async fn get(&self, path: &str) -> Option<Value> {
        let (code, object) = self.client.call(Method::GET, path, None).await.unwrap();
        (code == 200).then_some(object)
    }

    async fn delete(&self, path: &str) {
        self.client.call(Method::DELETE, path, None).await.unwrap();
    }

    /// Changes an object.
    async fn change(&self, path: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.get(path).await.unwrap();
        change(&mut object);
        self.client
            .call(Method::PUT, path, Some(&object))
            .await
            .unwrap();
    }

    /// Checks that a deleted object is missing shortly before `seconds` have passed, and restored shortly after. Loops that
    /// have run for a second when this begins are due after `seconds - 1`.
    async fn comes_back(&self, path: &str, seconds: u64) -> Value {
        assert!(self.get(path).await.is_none(), "{path} is not gone");
        pass(seconds - 3).await;
        assert!(self.get(path).await.is_none(), "{path} is back too early");
        pass(4).await;
        self.get(path)
            .await
            .unwrap_or_else(|| panic!("{path} is not back"))
    }

    async fn page(&self, path: &str) -> (u16, String) {
        use http_body_util::BodyExt as _;
        let response = self.client.send(Method::GET, path, None).await.unwrap();
        let code = response.status().as_u16();
        let text = response.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8_lossy(&text).into_owned())
    }
}

async fn pass(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

fn location() -> ServerLocation {
    let service_ranges: Vec<Cidr> = Cidr::parse_sloppy("10.0.0.0/24").into_iter().collect();
    let service_ip = service_ranges[0].nth(1);
    let advertise_address = Some([192, 0, 2, 7].into());
    ServerLocation {
        service_ranges,
        service: KubernetesService {
            service_ip,
            advertise_address,
            port: 6443,
            node_port: None,
        },
        peer_address: Some(([192, 0, 2, 7], 6443).into()),
    }
}

#[tokio::test(start_paused = true)]
async fn the_kubernetes_service_has_the_address_of_the_server() {
    let rig = Rig::new().await;
    let service = rig.get(SERVICE).await.unwrap();
    assert_eq!(
        service["metadata"]["labels"],
        value!({ "component": "apiserver", "provider": "kubernetes" })
    );
    let port = value!({ "name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443 });
    assert_eq!(service["spec"]["ports"], value!([(port)]));
    assert_eq!(service["spec"]["clusterIPs"], value!(["10.0.0.1"]));
    assert_eq!(service["spec"]["ipFamilies"], value!(["IPv4"]));
    let owned = &service["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"];
    assert!(!owned["f:clusterIP"].is_null());
    for allocated in ["f:clusterIPs", "f:ipFamilies"] {
        assert!(owned[allocated].is_null(), "{allocated}");
    }
    let endpoints = rig.get(ENDPOINTS).await.unwrap();
    let ports = value!([{ "name": "https", "port": 6443, "protocol": "TCP" }]);
    let labels = value!({ "endpointslice.kubernetes.io/skip-mirror": "true" });
    assert_eq!(endpoints["metadata"]["labels"], labels);
    assert_eq!(
        endpoints["subsets"],
        value!([{ "addresses": [{ "ip": "192.0.2.7" }], "ports": (ports.clone()) }])
    );
    let slice = rig.get(SLICE).await.unwrap();
    assert_eq!(
        slice["metadata"]["labels"],
        value!({ "kubernetes.io/service-name": "kubernetes" })
    );
    assert_eq!(slice["addressType"].str(), "IPv4");
    assert_eq!(slice["ports"], ports);
    assert_eq!(
        slice["endpoints"],
        value!([{ "addresses": ["192.0.2.7"], "conditions": { "ready": true } }])
    );
}

#[tokio::test(start_paused = true)]
async fn objects_deleted_from_the_default_namespace_are_restored() {
    let rig = Rig::new().await;
    for path in [SERVICE, ENDPOINTS, SLICE] {
        rig.delete(path).await;
    }
    let service = rig.comes_back(SERVICE, 10).await;
    assert_eq!(service["spec"]["clusterIP"].str(), "10.0.0.1");
    for path in [ENDPOINTS, SLICE] {
        assert!(rig.get(path).await.is_some(), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn changed_endpoints_are_restored_and_a_changed_service_is_kept() {
    let rig = Rig::new().await;
    let before = [
        rig.get(ENDPOINTS).await.unwrap(),
        rig.get(SLICE).await.unwrap(),
    ];
    rig.change(ENDPOINTS, |it| {
        it.set(
            "subsets",
            value!([{ "addresses": [{ "ip": "192.0.2.9" }] }]),
        )
    })
    .await;
    rig.change(SLICE, |it| {
        it.set("endpoints", value!([{ "addresses": ["192.0.2.9"] }]))
    })
    .await;
    rig.change(SERVICE, |it| {
        it.entry("spec").set("sessionAffinity", "ClientIP")
    })
    .await;
    pass(10).await;
    assert_eq!(
        rig.get(ENDPOINTS).await.unwrap()["subsets"][0]["addresses"],
        before[0]["subsets"][0]["addresses"]
    );
    assert_eq!(
        rig.get(SLICE).await.unwrap()["endpoints"],
        before[1]["endpoints"]
    );
    assert_eq!(
        rig.get(SERVICE).await.unwrap()["spec"]["sessionAffinity"].str(),
        "ClientIP"
    );
}

#[tokio::test(start_paused = true)]
async fn the_default_service_cidr_is_restored_and_ready() {
    let rig = Rig::new().await;
    rig.delete(RANGE).await;
    let range = rig.comes_back(RANGE, 10).await;
    assert_eq!(range["spec"]["cidrs"], value!(["10.0.0.0/24"]));
    assert_eq!(range["status"]["conditions"][0]["status"].str(), "True");
    // A removed condition is set again; a false one is kept.
    rig.change(&format!("{RANGE}/status"), |it| {
        it.set("status", Value::object())
    })
    .await;
    pass(10).await;
    assert_eq!(
        rig.get(RANGE).await.unwrap()["status"]["conditions"][0]["status"].str(),
        "True"
    );
    rig.change(&format!("{RANGE}/status"), |it| {
        let condition = value!({
            "type": "Ready", "status": "False", "reason": "Tested", "message": "no",
            "lastTransitionTime": "2023-11-14T22:13:20Z"
        });
        it.entry("status").set("conditions", vec![condition]);
    })
    .await;
    pass(30).await;
    assert_eq!(
        rig.get(RANGE).await.unwrap()["status"]["conditions"][0]["status"].str(),
        "False"
    );
}

#[tokio::test(start_paused = true)]
async fn flow_schemas_and_priority_levels_are_restored_within_a_minute() {
    let rig = Rig::new().await;
    let (schema, level) = (format!("{SCHEMA}/probes"), format!("{LEVEL}/workload-low"));
    rig.delete(&schema).await;
    rig.delete(&level).await;
    rig.comes_back(&schema, 60).await;
    assert!(rig.get(&level).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn changes_of_suggested_flow_schemas_are_kept_and_of_mandatory_ones_reverted() {
    let rig = Rig::new().await;
    const SWITCH: &str = "apf.kubernetes.io/autoupdate-spec";
    let precedence = async |name: &str| {
        rig.get(&format!("{SCHEMA}/{name}")).await.unwrap()["spec"]["matchingPrecedence"].int()
    };
    let before = [
        precedence("service-accounts").await,
        precedence("global-default").await,
    ];
    for (name, switch) in [("service-accounts", "false"), ("global-default", "true")] {
        rig.change(&format!("{SCHEMA}/{name}"), |it| {
            it.entry("spec").set("matchingPrecedence", 9_999);
            it.entry("metadata")
                .entry("annotations")
                .set(SWITCH, switch);
        })
        .await;
    }
    // Objects of an earlier version are deleted; objects of an operator are kept.
    for (name, switch) in [("left", "true"), ("made", "false")] {
        let mut schema = rig.get(&format!("{SCHEMA}/probes")).await.unwrap();
        schema.set(
            "metadata",
            value!({ "name": name, "annotations": { "apf.kubernetes.io/autoupdate-spec": switch } }),
        );
        rig.client
            .call(Method::POST, SCHEMA, Some(&schema))
            .await
            .unwrap();
    }
    pass(61).await;
    assert_eq!(
        [
            precedence("service-accounts").await,
            precedence("global-default").await
        ],
        [9_999, before[1]]
    );
    assert!(rig.get(&format!("{SCHEMA}/left")).await.is_none());
    assert!(rig.get(&format!("{SCHEMA}/made")).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn objects_that_are_up_to_date_are_not_written() {
    let rig = Rig::new().await;
    let version =
        async |path: &str| rig.get(path).await.unwrap()["metadata"]["resourceVersion"].clone();
    let paths = [SERVICE, ENDPOINTS, SLICE, RANGE]
        .map(String::from)
        .into_iter();
    let paths: Vec<String> = paths
        .chain([format!("{SCHEMA}/exempt"), format!("{LEVEL}/catch-all")])
        .collect();
    let mut before = Vec::new();
    for path in &paths {
        before.push(version(path).await);
    }
    pass(600).await;
    for (path, before) in paths.iter().zip(before) {
        assert_eq!(version(path).await, before, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_system_namespace_is_restored_within_a_minute() {
    const PATH: &str = "/api/v1/namespaces/kube-node-lease";
    let rig = Rig::new().await;
    rig.delete(PATH).await;
    let mut going = rig.get(PATH).await.unwrap();
    going.entry("spec").set("finalizers", Vec::<Value>::new());
    rig.client
        .call(Method::PUT, &format!("{PATH}/finalize"), Some(&going))
        .await
        .unwrap();
    rig.comes_back(PATH, 60).await;
}

#[tokio::test(start_paused = true)]
async fn built_in_api_services_stay_deleted_until_the_next_start() {
    const PATH: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v1.apps";
    let rig = Rig::new().await;
    rig.server.aggregate().await.unwrap();
    rig.delete(PATH).await;
    pass(600).await;
    assert!(rig.get(PATH).await.is_none());
    rig.server.aggregate().await.unwrap();
    assert!(rig.get(PATH).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn the_identity_lease_is_renewed_and_expired_ones_are_deleted() {
    let rig = Rig::new().await;
    let leases = async || rig.get(LEASES).await.unwrap()["items"].list().to_vec();
    let [lease]: [Value; 1] = leases().await.try_into().unwrap();
    assert_eq!(
        lease["metadata"]["labels"]["apiserver.kubernetes.io/identity"].str(),
        "kube-apiserver"
    );
    assert_eq!(lease["spec"]["leaseDurationSeconds"].int(), 3600);
    let annotation = &lease["metadata"]["annotations"]["kubernetes.io/peer-advertise-address"];
    assert_eq!(annotation.str(), "192.0.2.7:6443");
    let mut other = lease.clone();
    other.set(
        "metadata",
        value!({
            "name": "apiserver-other", "labels": { "apiserver.kubernetes.io/identity": "kube-apiserver" }
        }),
    );
    rig.client
        .call(Method::POST, LEASES, Some(&other))
        .await
        .unwrap();
    pass(10).await;
    let renewed = rig
        .get(&format!("{LEASES}/{}", lease["metadata"]["name"].str()))
        .await
        .unwrap();
    assert!(renewed["spec"]["renewTime"].str() > lease["spec"]["renewTime"].str());
    pass(7200).await;
    assert_eq!(leases().await.len(), 1, "the other one has expired");
}

#[tokio::test(start_paused = true)]
async fn the_server_is_ready_when_its_boot_sequence_is_done() {
    let rig = Rig::empty();
    let (code, text) = rig.page("/readyz").await;
    assert_eq!(code, 500);
    for line in [
        "[-]informer-sync failed",
        "[-]poststarthook/rbac/bootstrap-roles failed",
        "[+]etcd-readiness ok",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let page = rig.page("/livez/poststarthook/rbac/bootstrap-roles").await;
    assert_eq!(page, (500, "internal server error: not finished\n".into()));
    rig.server.start().await;
    bootstrap(&rig.server, &location(), &TrustedAuthorities::default())
        .await
        .unwrap();
    let (code, text) = rig.page("/readyz").await;
    assert!(
        code == 500 && text.contains("[-]autoregister-completion failed"),
        "{text}"
    );
    rig.server.aggregate().await.unwrap();
    tokio::spawn(reconcile_owned(rig.server.clone(), location()));
    tokio::spawn(crate::token_tracking::reconcile(rig.server.clone()));
    rig.server.booted().await;
    for root in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(rig.page(root).await, (200, "ok".into()), "{root}");
    }
}
