//! Certificate signing requests: approval, signing and cleanup.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use kube::Client;
use mizzen_apiserver::User;
use mizzen_controllers::{CertificateSigner, SigningRequest};
use mizzen_sdk::dynamic::DynamicClient;
use mizzen_sdk::resource::CERTIFICATE_SIGNING_REQUESTS;
use mizzen_testing::Cluster;
use mizzen_value::{Value, value};

use crate::{cluster_of, read, settle};

const CONTROLLERS: [&str; 3] = [
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller",
    "certificatesigningrequest-signing-controller",
];
/// O=system:nodes, CN=system:node:n1.
const NODE: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIc01JR1NBZ0VBTURBeEZUQVRCZ05WQkFvTURITjVjM1JsYlRwdWIyUmxjekVYTUJVR0ExVUVBd3dPYzNsegpkR1Z0T201dlpHVTZiakV3V1RBVEJnY3Foa2pPUFFJQkJnZ3Foa2pPUFFNQkJ3TkNBQVFBQTM0UnpiY0VjbUp3CmxObXRUeEE2VXZaNHA1ck8rN2hrVmtlem1ESkNOLzgvdnJ3WWRZQmlvRUJnUmV0OWZJSnBjSWNCeXhHeHAzZmoKZWdaOVpZMnFvQUF3Q2dZSUtvWkl6ajBFQXdJRFNRQXdSZ0loQUt4elVDMnowOFNWNVdYZURucjVUSmZpVGp1QQpMUWNVeVlKdFdYaE1wMitOQWlFQTBWcVpoSGw0em10ZWxla3lKRWtKK1h0aDZxb0paa3liRTgvbERwZENwbFk9Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=";
/// O=devs, O=ops, CN=jane, with other names.
const JANE: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlJQlNUQ0I4QUlCQURBc01RMHdDd1lEVlFRS0RBUmtaWFp6TVF3d0NnWURWUVFLREFOdmNITXhEVEFMQmdOVgpCQU1NQkdwaGJtVXdXVEFUQmdjcWhrak9QUUlCQmdncWhrak9QUU1CQndOQ0FBUUFBMzRSemJjRWNtSndsTm10ClR4QTZVdlo0cDVyTys3aGtWa2V6bURKQ04vOC92cndZZFlCaW9FQmdSZXQ5ZklKcGNJY0J5eEd4cDNmamVnWjkKWlkycW9HSXdZQVlKS29aSWh2Y05BUWtPTVZNd1VUQU1CZ05WSFJNRUJUQURBUUgvTUVFR0ExVWRFUVE2TURpQwpFR3BoYm1VdVpYaGhiWEJzWlM1amIyMkhCQW9CQWdPQkVHcGhibVZBWlhoaGJYQnNaUzVqYjIyR0RITndhV1ptClpUb3ZMM2d2ZVRBS0JnZ3Foa2pPUFFRREFnTklBREJGQWlCSzhZbHhPTVZjdUFGRUp1TmVtYzNqVDU5UVBTangKVFE2VGhTaEFKUWJoQkFJaEFMQzliSk5XZ0k2SFlKbEkxb2VWRWhobEFiajJxSjl6RFlLS2c3d2tPekJGCi0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=";

/// Any certificate.
const CERTIFICATE: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBcDCCARWgAwIBAgIUV2YB0wBT3il14SBJozbZQ/v3XAMwCgYIKoZIzj0EAwIw\n\
DDEKMAgGA1UEAwwBeDAgFw0yNjExMTUxNzAxMTRaGA8yMTI2MTAyMjE3MDExNFow\n\
DDEKMAgGA1UEAwwBeDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABAADfhHNtwRy\n\
YnCU2a1PEDpS9ninms77uGRWR7OYMkI3/z++vBh1gGKgQGBF6318gmlwhwHLEbGn\n\
d+N6Bn1ljaqjUzBRMB0GA1UdDgQWBBTXAhDeta7I+tg57P1TwMxMQfJpRTAfBgNV\n\
HSMEGDAWgBTXAhDeta7I+tg57P1TwMxMQfJpRTAPBgNVHRMBAf8EBTADAQH/MAoG\n\
CCqGSM49BAMCA0kAMEYCIQC6JQW937ZMbjGQmzYxBa+KPQVeoMFQbJIExee/g8FA\n\
MwIhAPlu9Q4EUnm4i5KHv8uZNWaArn0yraLTsZVAM4W1alFx\n\
-----END CERTIFICATE-----\n\
";

/// An authority that records what it signs.
#[derive(Clone, Default)]
struct RecordingSigner(Arc<Mutex<Vec<String>>>);

impl CertificateSigner for RecordingSigner {
    fn sign(&self, order: &SigningRequest) -> Result<String, String> {
        let SigningRequest {
            signer,
            usages,
            not_before,
            not_after,
            ..
        } = order;
        let line = format!(
            "{signer}: {} for {}",
            usages.join(", "),
            not_after - not_before
        );
        self.0.lock().push(line);
        Ok(CERTIFICATE.into())
    }
}

async fn cluster() -> (Cluster, RecordingSigner) {
    let clerk = RecordingSigner::default();
    let authority = Arc::new(clerk.clone());
    let cluster = cluster_of(&CONTROLLERS)
        .tune_controllers(move |options| options.authority = Some(authority.clone()))
        .start()
        .await;
    (cluster, clerk)
}

async fn ask(cluster: &Cluster, request: &str, signer: &str, usages: &str, more: &str) {
    cluster.create(&format!(
            "{{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, metadata: {{name: r}}, spec: \
             {{request: {request}, signerName: {signer}, usages: [{usages}]{more}}}}}"
        ))
        .await;
    settle(cluster).await;
}

async fn answer(cluster: &Cluster, kind: &str) {
    let mut request = cluster.object(&CERTIFICATE_SIGNING_REQUESTS, "r").await;
    let condition = value!({"type": kind, "status": "True", "reason": "ByHand"});
    request
        .entry("status")
        .entry("conditions")
        .make_list()
        .push(condition);
    cluster
        .dynamic_client()
        .update_at(&CERTIFICATE_SIGNING_REQUESTS, "approval", &request)
        .await
        .unwrap();
    settle(cluster).await;
}

async fn is_issued(cluster: &Cluster) -> bool {
    let request = cluster.object(&CERTIFICATE_SIGNING_REQUESTS, "r").await;
    let text = base64::engine::general_purpose::STANDARD
        .decode(request["status"]["certificate"].str())
        .unwrap();
    text == CERTIFICATE.as_bytes()
}

fn conditions(request: &Value) -> Vec<(&str, &str, &str)> {
    let conditions = request["status"]["conditions"].list().iter();
    conditions
        .map(|one| (one["type"].str(), one["reason"].str(), one["message"].str()))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_node_request_is_approved_automatically() {
    let (cluster, clerk) = cluster().await;
    ask(
        &cluster,
        NODE,
        "kubernetes.io/kube-apiserver-client-kubelet",
        "digital signature, client auth",
        "",
    )
    .await;
    let request = cluster.object(&CERTIFICATE_SIGNING_REQUESTS, "r").await;
    let message = "Auto approving kubelet client certificate after SubjectAccessReview.";
    assert_eq!(
        conditions(&request),
        [("Approved", "AutoApproved", message)]
    );
    assert!(is_issued(&cluster).await);
    let year = 365 * 24 * 3600;
    let wanted = format!(
        "kubernetes.io/kube-apiserver-client-kubelet: digital signature, client auth for {year}"
    );
    assert_eq!(*clerk.0.lock(), [wanted]);
}

/// Allows the user `joiner` to create this resource.
async fn allow(cluster: &Cluster, resource: &str) {
    let name = resource.replace('/', "-");
    let rule =
        format!("{{apiGroups: [certificates.k8s.io], resources: [{resource}], verbs: [create]}}");
    let group = "rbac.authorization.k8s.io";
    cluster.create(&format!(
            "{{apiVersion: {group}/v1, kind: ClusterRole, metadata: {{name: {name}}}, rules: [{rule}]}}"
        ))
        .await;
    cluster.create(&format!(
            "{{apiVersion: {group}/v1, kind: ClusterRoleBinding, metadata: {{name: {name}}}, roleRef: {{apiGroup: {group}, \
             kind: ClusterRole, name: {name}}}, subjects: [{{apiGroup: {group}, kind: User, name: joiner}}]}}"
        ))
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_node_certificate_is_approved_for_users_with_the_permission() {
    let (cluster, _) = cluster().await;
    allow(&cluster, "certificatesigningrequests").await;
    let joiner = cluster
        .server()
        .in_process(User::component("joiner"), "kubelet");
    let request = read(&format!(
        "{{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, metadata: {{name: r}}, spec: {{request: \
         {NODE}, signerName: kubernetes.io/kube-apiserver-client-kubelet, usages: [digital signature, client auth]}}}}"
    ));
    let api = DynamicClient::new(Client::new(joiner, "default"));
    api.create(&CERTIFICATE_SIGNING_REQUESTS, &request)
        .await
        .unwrap();
    cluster.advance(Duration::from_secs(60)).await;
    let waiting = cluster.object(&CERTIFICATE_SIGNING_REQUESTS, "r").await;
    assert!(conditions(&waiting).is_empty());
    // That permission is for the node itself.
    allow(&cluster, "certificatesigningrequests/selfnodeclient").await;
    cluster.advance(Duration::from_secs(120)).await;
    let waiting = cluster.object(&CERTIFICATE_SIGNING_REQUESTS, "r").await;
    assert!(conditions(&waiting).is_empty());
    allow(&cluster, "certificatesigningrequests/nodeclient").await;
    cluster.advance(Duration::from_secs(600)).await;
    let message = "Auto approving kubelet client certificate after SubjectAccessReview.";
    let request = cluster.object(&CERTIFICATE_SIGNING_REQUESTS, "r").await;
    assert_eq!(
        conditions(&request),
        [("Approved", "AutoApproved", message)]
    );
}

#[tokio::test(start_paused = true)]
async fn other_requests_wait_for_an_administrator() {
    let (cluster, clerk) = cluster().await;
    ask(
        &cluster,
        JANE,
        "kubernetes.io/kube-apiserver-client",
        "client auth",
        ", expirationSeconds: 3600",
    )
    .await;
    assert!(!is_issued(&cluster).await);
    answer(&cluster, "Approved").await;
    assert!(is_issued(&cluster).await);
    assert_eq!(
        *clerk.0.lock(),
        ["kubernetes.io/kube-apiserver-client: client auth for 3900"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_violates_its_signer_fails() {
    let (cluster, _) = cluster().await;
    ask(
        &cluster,
        JANE,
        "kubernetes.io/kubelet-serving",
        "digital signature, server auth",
        "",
    )
    .await;
    answer(&cluster, "Approved").await;
    let request = cluster.object(&CERTIFICATE_SIGNING_REQUESTS, "r").await;
    let failed = (
        "Failed",
        "SignerValidationFailure",
        "subject organization is not system:nodes",
    );
    assert_eq!(conditions(&request)[1], failed);
}

#[tokio::test(start_paused = true)]
async fn old_requests_are_deleted() {
    let (cluster, _) = cluster().await;
    ask(&cluster, JANE, "example.com/mine", "client auth", "").await;
    cluster.advance(Duration::from_secs(23 * 3600)).await;
    assert!(
        cluster
            .find_object(&CERTIFICATE_SIGNING_REQUESTS, "r")
            .await
            .is_some()
    );
    cluster.advance(Duration::from_secs(2 * 3600)).await;
    assert!(
        cluster
            .find_object(&CERTIFICATE_SIGNING_REQUESTS, "r")
            .await
            .is_none()
    );
    ask(&cluster, JANE, "example.com/mine", "client auth", "").await;
    answer(&cluster, "Denied").await;
    cluster.advance(Duration::from_secs(2 * 3600 + 60)).await;
    assert!(
        cluster
            .find_object(&CERTIFICATE_SIGNING_REQUESTS, "r")
            .await
            .is_none()
    );
}
