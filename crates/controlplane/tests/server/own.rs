//! Servers of one's own: nothing is served but what they are told, and everything as with built-in kinds.

use parking_lot::Mutex;
use std::sync::Arc;

use bytes::Bytes;
use http::header;
use http_body_util::BodyExt as _;
use mizzen_apiserver::delegate::Upstream;
use mizzen_apiserver::discovery::Priority;
use mizzen_apiserver::extend::{
    AdmissionPlugin, ConnectHandler, Connection, Error, RequestContext, RoundTrip, Storage,
    SubresourceHandler, WriteHook,
};
use mizzen_apiserver::{Builder, NonResourceHandler, NonResourceRequest, Server, User};
use mizzen_authentication::{AuthenticatedToken, AuthenticationResult, Authenticator};
use mizzen_authorization::{Attributes, Authorizer, Decision, DecisionReason};
use mizzen_object::{GroupResource, GroupVersionKind, HookContext, Hooks, Violations};
use mizzen_registry::{BoxFuture, Store, WatchChange};
use mizzen_value::{Str, Value, value};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::aggregation::read_until;
use crate::network::Network;
use crate::rig::{Reply, Rig, registry};

/// Boats in two versions, stored in a third that nobody sees, and a harbour that is not stored.
const KINDS: &str = "
group sea.example.com
version v1
kind Boat
  names boats boat
  scope Namespaced
  verbs create delete deletecollection get list patch update watch
  subresource status get patch update
  subresource horn create kind=sea.example.com/v1.Sound
  subresource radio get
  list BoatList
  stored sea.example.com/hub.Boat
  rules generation
  column Name string format=name at=.metadata.name
kind Harbour
  names harbours harbour
  scope Cluster
  verbs create delete get list update watch
  list HarbourList
kind Lighthouse
  names lighthouses lighthouse
  scope Cluster
  verbs get list create
  list LighthouseList
type Boat
  1 metadata !meta/v1.ObjectMeta
  2 feet int32
  3 sails ![]string list=atomic
type Sound
  - kind string
  - apiVersion string
  1 text string
type Harbour
  1 metadata !meta/v1.ObjectMeta
  2 berths int32
type Lighthouse
  1 metadata !meta/v1.ObjectMeta

version v2
kind Boat
  names boats boat
  scope Namespaced
  verbs create delete deletecollection get list patch update watch
  list BoatList
  stored sea.example.com/hub.Boat
type Boat
  1 metadata !meta/v1.ObjectMeta
  2 inches int32
  3 sails ![]string list=atomic

version hub
kind Boat
  names boats boat
  scope Namespaced
type Boat
  1 metadata !meta/v1.ObjectMeta
  2 inches int32
  3 sails ![]string list=atomic
";

const SEA: &str = "sea.example.com";
const BOAT: GroupVersionKind = GroupVersionKind::new(SEA, "v1", "Boat");
const BOAT_HUB: GroupVersionKind = GroupVersionKind::new(SEA, "hub", "Boat");
const BOAT_RESOURCE: GroupResource = GroupResource::new(SEA, "boats");
const HARBOUR_RESOURCE: GroupResource = GroupResource::new(SEA, "harbours");
const LIGHTHOUSE_RESOURCE: GroupResource = GroupResource::new(SEA, "lighthouses");

pub(crate) const BOATS: &str = "/apis/sea.example.com/v1/namespaces/default/boats";
const HARBOURS: &str = "/apis/sea.example.com/v1/harbours";

/// Feet outside, inches inside.
struct Feet;

impl Hooks for Feet {
    fn default(&self, boat: &mut Value) {
        if boat["sails"].list().is_empty() {
            boat.set("sails", vec!["mizzen".into()]);
        }
    }

    fn to_stored(&self, boat: &mut Value) {
        let feet = boat.remove("feet").unwrap_or_default().int();
        boat.set("inches", feet * 12);
    }

    fn from_stored(&self, boat: &mut Value) {
        let inches = boat.remove("inches").unwrap_or_default().int();
        boat.set("feet", inches / 12);
    }

    fn validate(
        &self,
        boat: &Value,
        _: Option<&Value>,
        _: &HookContext,
        violations: &mut Violations,
    ) {
        if boat["inches"].int() > 1200 {
            violations.invalid(
                "feet",
                boat["inches"].int() / 12,
                "does not fit into the harbour",
            );
        }
    }
}

/// Boats take their time to sink.
struct Hub;

impl Hooks for Hub {
    fn grace_period(&self, _: &Value, asked: Option<i64>) -> Option<i64> {
        Some(asked.unwrap_or(30))
    }
}

/// Nobody has a boat called Titanic, and captains are remembered.
struct Captain;

impl AdmissionPlugin for Captain {
    async fn mutate(&self, asked: &RequestContext<'_>, boat: &mut Value) -> Result<(), Error> {
        if asked.is(&BOAT_RESOURCE) && asked.old.is_none() {
            boat.entry("metadata")
                .entry("annotations")
                .set("captain", &asked.user.name);
        }
        Ok(())
    }

    async fn validate(
        &self,
        asked: &RequestContext<'_>,
        boat: Option<&Value>,
    ) -> Result<(), Error> {
        match boat {
            Some(boat) if boat.at("metadata.name").str() == "titanic" => {
                Err(asked.forbidden(boat, "it sinks"))
            }
            None if asked.name == "eternal" => Err(asked.forbidden(asked.old.unwrap(), "it stays")),
            _ => Ok(()),
        }
    }

    async fn connect(&self, asked: &RequestContext<'_>) -> Result<(), Error> {
        match asked.name {
            "ghost" => Err(asked.forbidden(asked.old.unwrap(), "no crew listens")),
            _ => Ok(()),
        }
    }
}

/// Harbours, in a list of our own.
#[derive(Default)]
struct Harbours {
    all: Mutex<Vec<Value>>,
    watchers: Mutex<Vec<Sender<(WatchChange, Value)>>>,
}

impl Harbours {
    fn tell(&self, change: WatchChange, harbour: &Value) {
        for watcher in &*self.watchers.lock() {
            let _ = watcher.try_send((change, harbour.clone()));
        }
    }

    fn take(&self, name: &str) {
        self.all
            .lock()
            .retain(|harbour| harbour.at("metadata.name").str() != name);
    }
}

impl Storage for Harbours {
    async fn list(&self, _: &RequestContext<'_>) -> Result<Vec<Value>, Error> {
        Ok(self.all.lock().clone())
    }

    async fn create(&self, _: &RequestContext<'_>, harbour: Value) -> Result<Value, Error> {
        self.all.lock().push(harbour.clone());
        self.tell(WatchChange::Added, &harbour);
        Ok(harbour)
    }

    async fn update(&self, asked: &RequestContext<'_>, harbour: Value) -> Result<Value, Error> {
        self.take(asked.name);
        self.all.lock().push(harbour.clone());
        self.tell(WatchChange::Modified, &harbour);
        Ok(harbour)
    }

    async fn delete(&self, asked: &RequestContext<'_>) -> Result<Value, Error> {
        self.take(asked.name);
        self.tell(WatchChange::Deleted, asked.old.unwrap());
        self.watchers.lock().clear();
        Ok(asked.old.unwrap().clone())
    }

    async fn watch(&self, _: &RequestContext<'_>) -> Result<Receiver<(WatchChange, Value)>, Error> {
        let (sender, receiver) = channel(8);
        self.watchers.lock().push(sender);
        Ok(receiver)
    }
}

/// Says that it makes lighthouses, and does not.
struct Lighthouses;

impl Storage for Lighthouses {
    async fn list(&self, _: &RequestContext<'_>) -> Result<Vec<Value>, Error> {
        Ok(Vec::new())
    }
}

struct Horn;

impl SubresourceHandler for Horn {
    async fn answer(&self, asked: &RequestContext<'_>, body: Value) -> Result<Value, Error> {
        let feet = asked.old.unwrap()["feet"].int();
        let text = format!("{} of {feet} feet: {}", asked.name, body["text"].str());
        Ok(value!({ "text": text }))
    }
}

/// Sends back what it receives, if the client knows the frequency, and has the last word.
struct Radio;

impl ConnectHandler for Radio {
    async fn connect(&self, asked: &RequestContext<'_>) -> Result<Connection, Error> {
        let boat = asked.old.unwrap();
        let frequency: u16 = asked.query.text("frequency").parse()?;
        if frequency != 16 {
            return Err(asked.forbidden(boat, "the boat listens on 16"));
        }
        Ok(Connection::upgrade("radio", |stream| async {
            let (mut from_client, mut to_client) = tokio::io::split(stream);
            let _ = tokio::io::copy(&mut from_client, &mut to_client).await;
            let _ = to_client.write_all(b"roger.").await;
            let _ = to_client.shutdown().await;
        }))
    }
}

pub(crate) fn builder() -> Builder {
    Server::builder(registry(Store::in_memory(Default::default())))
        .kinds("sea.kinds", KINDS)
        .hooks(BOAT, Feet)
        .hooks(BOAT_HUB, Hub)
        .admission(Captain)
        .storage(HARBOUR_RESOURCE, Harbours::default())
        .storage(LIGHTHOUSE_RESOURCE, Lighthouses)
        .subresource(BOAT_RESOURCE, "horn", Horn)
        .connect(BOAT_RESOURCE, "radio", Radio)
}

fn rig() -> Rig {
    Rig {
        server: builder().build().unwrap(),
    }
}

pub(crate) async fn launch(rig: &Rig, name: &str, feet: i64) -> Reply {
    rig.post(
        BOATS,
        &format!(r#"{{"metadata":{{"name":"{name}"}},"feet":{feet}}}"#),
    )
    .await
}

#[tokio::test(start_paused = true)]
async fn versions_convert_through_an_internal_hub() {
    let rig = rig();
    let boat = launch(&rig, "jolle", 10).await.expect(201).body;
    assert_eq!(
        (boat["feet"].int(), boat["sails"].list()[0].str()),
        (10, "mizzen")
    );
    let other = rig
        .get(&format!("{}/jolle", BOATS.replace("v1", "v2")))
        .await
        .expect(200)
        .body;
    assert_eq!(other["inches"].int(), 120);
    rig.get(&format!("{}/jolle", BOATS.replace("v1", "hub")))
        .await
        .expect(404);
    let versions = rig.get("/apis/sea.example.com").await.expect(200).body;
    let versions: Vec<&str> = versions["versions"]
        .list()
        .iter()
        .map(|it| it["version"].str())
        .collect();
    assert_eq!(versions, ["v2", "v1"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_else_is_served() {
    let rig = rig();
    rig.get("/api").await.expect(404);
    rig.get("/api/v1/namespaces").await.expect(404);
    rig.get("/apis/apps/v1/deployments").await.expect(404);
    let groups = rig.get("/apis").await.expect(200).body;
    assert_eq!(groups["groups"].list().len(), 1);
    let index = rig.get("/openapi/v3").await.expect(200).body;
    let document = rig
        .get("/openapi/v3/apis/sea.example.com/v1")
        .await
        .expect(200)
        .body;
    assert!(!index["paths"]["apis/sea.example.com/v1"].is_null());
    let boat = &document["components"]["schemas"]["com.example.sea.v1.Boat"];
    assert_eq!(boat.at("properties.feet.type").str(), "integer");
    assert_eq!(
        boat["x-kubernetes-group-version-kind"].list()[0]["kind"].str(),
        "Boat"
    );
}

#[tokio::test(start_paused = true)]
async fn hooks_and_admission_plugins_of_a_custom_server_reject_objects() {
    let rig = rig();
    let refused = launch(&rig, "liner", 101).await.expect(422);
    let why = r#"Boat.sea.example.com "liner" is invalid: feet: Invalid value: 101: does not fit into the harbour"#;
    assert_eq!(refused.message(), why);
    let refused = launch(&rig, "titanic", 9).await.expect(403);
    assert_eq!(
        refused.message(),
        r#"boats.sea.example.com "titanic" is forbidden: it sinks"#
    );
    let boat = launch(&rig, "eternal", 9).await.expect(201).body;
    assert_eq!(boat.at("metadata.annotations.captain").str(), "admin");
    let refused = rig
        .delete(&format!("{BOATS}/eternal"), "")
        .await
        .expect(403);
    assert!(
        refused.message().ends_with("it stays"),
        "{}",
        refused.message()
    );
}

#[tokio::test(start_paused = true)]
async fn a_custom_server_may_delete_gracefully() {
    let rig = rig();
    launch(&rig, "jolle", 10).await.expect(201);
    let going = rig
        .delete(&format!("{BOATS}/jolle"), "")
        .await
        .expect(200)
        .body;
    assert_eq!(going.at("metadata.deletionGracePeriodSeconds").int(), 30);
    rig.get(&format!("{BOATS}/jolle")).await.expect(200);
    rig.delete(&format!("{BOATS}/jolle"), r#"{"gracePeriodSeconds":0}"#)
        .await
        .expect(200);
    rig.get(&format!("{BOATS}/jolle")).await.expect(404);
}

#[tokio::test(start_paused = true)]
async fn a_kind_with_numbers_has_protobuf() {
    let rig = rig();
    launch(&rig, "jolle", 10).await.expect(201);
    let mut headers = http::HeaderMap::new();
    headers.insert(
        header::ACCEPT,
        "application/vnd.kubernetes.protobuf".parse().unwrap(),
    );
    let uri = format!("{BOATS}/jolle").parse().unwrap();
    let answer = rig
        .server
        .call(
            Some(User::master("admin")),
            http::Method::GET,
            uri,
            headers,
            "".into(),
        )
        .await;
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert!(body.starts_with(b"k8s\0"), "{body:?}");
    assert!(body.windows(6).any(|part| part == b"mizzen"));
}

#[tokio::test(start_paused = true)]
async fn a_subresource_has_a_handler_of_its_own() {
    let rig = rig();
    launch(&rig, "jolle", 10).await.expect(201);
    let sound = rig
        .post(&format!("{BOATS}/jolle/horn"), r#"{"text":"tuut"}"#)
        .await
        .expect(201)
        .body;
    assert_eq!(
        (sound["kind"].str(), sound["text"].str()),
        ("Sound", "jolle of 10 feet: tuut")
    );
    rig.get(&format!("{BOATS}/jolle/horn")).await.expect(405);
    rig.post(&format!("{BOATS}/wherry/horn"), "")
        .await
        .expect(404);
    rig.post(&format!("{BOATS}/jolle/horn"), "{")
        .await
        .expect(400);
}

#[tokio::test(start_paused = true)]
async fn a_custom_storage_chooses_its_verbs() {
    let rig = rig();
    let mut events = rig
        .watch(&format!(
            "{HARBOURS}?watch=true&fieldSelector=metadata.name%3Dkiel"
        ))
        .await;
    for name in ["kiel", "cork"] {
        let harbour =
            format!(r#"{{"metadata":{{"name":"{name}","labels":{{"at":"{name}"}}}},"berths":7}}"#);
        let made = rig.post(HARBOURS, &harbour).await.expect(201).body;
        assert_eq!((made["kind"].str(), made["berths"].int()), ("Harbour", 7));
    }
    assert_eq!(
        rig.get(HARBOURS).await.expect(200).names(),
        ["kiel", "cork"]
    );
    assert_eq!(
        rig.get(&format!("{HARBOURS}?labelSelector=at%3Dcork"))
            .await
            .expect(200)
            .names(),
        ["cork"]
    );
    rig.put(
        &format!("{HARBOURS}/kiel"),
        r#"{"metadata":{"name":"kiel"},"berths":9}"#,
    )
    .await
    .expect(200);
    assert_eq!(
        rig.get(&format!("{HARBOURS}/kiel")).await.expect(200).body["berths"].int(),
        9
    );
    rig.patch(&format!("{HARBOURS}/kiel"), "{}")
        .await
        .expect(405);
    rig.delete(&format!("{HARBOURS}/kiel"), "")
        .await
        .expect(200);
    rig.get(&format!("{HARBOURS}/kiel")).await.expect(404);
    for expected in ["ADDED kiel", "MODIFIED kiel", "DELETED kiel", "end"] {
        assert_eq!(events.next_name().await, expected);
    }
    rig.post(
        "/apis/sea.example.com/v1/lighthouses",
        r#"{"metadata":{"name":"one"}}"#,
    )
    .await
    .expect(405);
    let resources = rig.get("/apis/sea.example.com/v1").await.expect(200).body;
    let find = |name: &str| {
        resources["resources"]
            .list()
            .iter()
            .find(|it| it["name"].str() == name)
            .unwrap()
    };
    let verbs: Vec<&str> = find("harbours")["verbs"]
        .list()
        .iter()
        .map(Value::str)
        .collect();
    assert_eq!(
        verbs,
        ["create", "delete", "get", "list", "update", "watch"]
    );
}

const DEFINITION: &str = "
metadata: {name: buoys.sea.example.com}
spec:
  group: sea.example.com
  names: {plural: buoys, kind: Buoy}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          colour: {type: string, enum: [red, green], default: red}
";

#[tokio::test(start_paused = true)]
async fn a_definition_that_is_built_in_is_served_at_once() {
    let server = builder().definition(DEFINITION).build().unwrap();
    let rig = Rig { server };
    let buoys = "/apis/sea.example.com/v1/buoys";
    let head = r#""apiVersion":"sea.example.com/v1","kind":"Buoy""#;
    let buoy = rig
        .post(
            buoys,
            &format!(r#"{{{head},"metadata":{{"name":"one"}},"size":3}}"#),
        )
        .await;
    let buoy = buoy.expect(201).body;
    assert_eq!(
        (buoy["colour"].str(), buoy["size"].is_null()),
        ("red", true)
    );
    let refused = rig
        .post(
            buoys,
            &format!(r#"{{{head},"metadata":{{"name":"two"}},"colour":"blue"}}"#),
        )
        .await
        .expect(422);
    assert!(
        refused
            .message()
            .contains(r#"colour: Unsupported value: "blue""#),
        "{}",
        refused.message()
    );
    assert_eq!(rig.get(buoys).await.expect(200).names(), ["one"]);
    let document = rig
        .get("/openapi/v3/apis/sea.example.com/v1")
        .await
        .expect(200)
        .body;
    let schemas = &document["components"]["schemas"];
    assert!(
        !schemas["com.example.sea.v1.Buoy"].is_null()
            && !schemas["com.example.sea.v1.Boat"].is_null()
    );
}

#[test]
fn an_invalid_builder_is_an_error() {
    #[track_caller]
    fn check(builder: Builder, problem: &str) {
        let error = builder.build().map(drop).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
    check(
        builder().kinds("more.kinds", "group x\nnonsense"),
        "more.kinds:2: unknown word \"nonsense\"",
    );
    check(
        builder().hooks(GroupVersionKind::new(SEA, "v9", "Boat"), Feet),
        "there is no kind sea.example.com/v9, Kind=Boat; there are: sea.example.com/hub, Kind=Boat, sea.example.com/v1",
    );
    check(
        builder().storage(GroupResource::new(SEA, "rafts"), Lighthouses),
        "there is no resource rafts.sea.example.com; there are: boats.sea.example.com, harbours.sea.example.com",
    );
    check(
        builder().subresource(BOAT_RESOURCE, "bell", Horn),
        "there is no subresource bell of boats.sea.example.com; there are: horn, radio, status",
    );
    let lost = "group a.b\nversion v1\nkind X\n  names xs x\n  verbs get\n  stored a.b/v2.X\ntype X\n  1 metadata !meta/v1.ObjectMeta\n";
    check(builder().kinds("lost.kinds", lost), "as which");
    let nameless = lost
        .replace("  names xs x\n", "")
        .replace("  stored a.b/v2.X\n", "");
    check(
        builder().kinds("nameless.kinds", &nameless),
        "there is no plural name of",
    );
    let webhook =
        "webhook: {conversionReviewVersions: [v1], clientConfig: {url: 'https://example.com'}}";
    let converted = format!("{DEFINITION}  conversion: {{strategy: Webhook, {webhook}}}\n");
    check(builder().definition(&converted), "no webhook is called");
    check(
        builder().definition("spec: {group: sea.example.com}"),
        "a definition cannot be served: ",
    );
}

/// Knows one token and allows what its name says.
#[derive(Debug)]
struct Porter;

impl Authenticator for Porter {
    fn authenticate<'a>(
        &'a self,
        token: &'a str,
        audiences: &'a [Str],
    ) -> BoxFuture<'a, AuthenticationResult> {
        let user = User {
            name: "list".into(),
            ..User::default()
        };
        let known = (token == "secret").then(|| AuthenticatedToken {
            user,
            audiences: audiences.to_vec(),
        });
        Box::pin(async { Ok(known) })
    }
}

impl Authorizer for Porter {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Decision> {
        let may = attributes.user.name == attributes.verb;
        Box::pin(async move {
            if may {
                Decision::Allow(DecisionReason::default())
            } else {
                Decision::NoOpinion(DecisionReason::default())
            }
        })
    }
}

async fn code(server: &Server, token: &str, path: &str) -> u16 {
    let mut headers = http::HeaderMap::new();
    if !token.is_empty() {
        headers.insert(
            header::AUTHORIZATION,
            format!("Bearer {token}").parse().unwrap(),
        );
    }
    let uri = path.parse().unwrap();
    server
        .call(None, http::Method::GET, uri, headers, "".into())
        .await
        .status()
        .as_u16()
}

#[tokio::test(start_paused = true)]
async fn a_custom_server_has_an_authenticator_and_an_authorizer_of_its_own() {
    let server = builder()
        .authenticator(Arc::new(Porter))
        .authorizer(Arc::new(Porter))
        .build()
        .unwrap();
    assert_eq!(code(&server, "secret", BOATS).await, 200);
    assert_eq!(
        code(&server, "secret", &format!("{BOATS}/jolle")).await,
        403
    );
    assert_eq!(code(&server, "guess", BOATS).await, 401);
    assert_eq!(code(&server, "", BOATS).await, 403);
    let closed = builder().authenticator(Arc::new(Porter)).build().unwrap();
    assert_eq!(
        code(&closed, "secret", BOATS).await,
        403,
        "without an authorizer nobody may do anything"
    );
}

#[tokio::test]
async fn delegated_authentication_fails_closed_without_the_main_server() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kubeconfig");
    let text = format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nclusters: [{{name: c, cluster: \
         {{server: 'https://127.0.0.1:{port}', insecure-skip-tls-verify: true}}}}]\nusers: [{{name: u, user: {{token: t}}}}]\n"
    );
    std::fs::write(&file, text).unwrap();
    let registry = registry(Store::in_memory(Default::default()));
    let upstream = Upstream::load(&file, &registry).unwrap();
    let server = builder().upstream(&upstream).build().unwrap();
    assert_eq!(code(&server, "anything", BOATS).await, 401);
    assert_eq!(code(&server, "", BOATS).await, 403);
    assert_eq!(code(&server, "", "/readyz").await, 200);
    let problem = upstream
        .request("GET", "/version", None)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        problem.contains("does not answer: ") && problem.contains("connection refused"),
        "{problem}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_of_the_same_process_is_served_under_our_name() {
    let rig = Rig::new().await;
    let priority = Priority {
        group: 200,
        version: 7,
    };
    rig.server.serve_locally(builder(), priority).unwrap();
    rig.server.aggregate().await.unwrap();
    let boat = launch(&rig, "jolle", 10).await.expect(201).body;
    assert_eq!(boat.at("metadata.annotations.captain").str(), "admin");
    let other = format!("{}/jolle", BOATS.replace("v1", "v2"));
    assert_eq!(rig.get(&other).await.expect(200).body["inches"].int(), 120);
    rig.get("/apis/sea.example.com/hub/boats").await.expect(404);

    // The filters of the main server come first.
    let jane = User::component("jane");
    let refused = rig.call_as(jane, &[], "GET", BOATS, "").await.expect(403);
    assert!(refused.message().contains("User \"jane\" cannot list"));

    let group = rig.get("/apis/sea.example.com").await.expect(200).body;
    assert_eq!(group["preferredVersion"]["version"].str(), "v2");
    let resources = rig.get("/apis/sea.example.com/v1").await.expect(200).body;
    assert_eq!(resources["groupVersion"].str(), "sea.example.com/v1");
    let aggregated = rig.aggregated("/apis").await;
    let mut groups = aggregated["items"].list().iter();
    let group = groups.find(|group| group.at("metadata.name").str() == "sea.example.com");
    let versions = group.unwrap()["versions"].list();
    assert_eq!(versions.len(), 2);
    assert_eq!(versions[1]["freshness"].str(), "Current");
    let index = rig.get("/openapi/v3").await.expect(200).body;
    let url = &index["paths"]["apis/sea.example.com/v1"]["serverRelativeURL"];
    let document = rig.get(url.str()).await.expect(200).body;
    assert!(
        document["components"]["schemas"]
            .get("com.example.sea.v1.Boat")
            .is_some()
    );
    let document = rig.get("/openapi/v2").await.expect(200).body;
    for path in [HARBOURS, "/api/v1/pods"] {
        assert!(document["paths"].get(path).is_some(), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_service_or_a_definition_wins_over_a_server_of_the_same_process() {
    let rig = Rig::new().await;
    let priority = Priority {
        group: 200,
        version: 7,
    };
    rig.server.serve_locally(builder(), priority).unwrap();
    rig.server.aggregate().await.unwrap();
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let service = format!("{services}/v1.sea.example.com");
    let minute = std::time::Duration::from_secs(60);
    tokio::time::sleep(minute).await;
    let made = rig.get(&service).await.expect(200).body;
    assert_eq!(made.at("spec.groupPriorityMinimum").int(), 200);
    assert_eq!(made.at("spec.versionPriority").int(), 7);

    // Deleted, it comes back; with a service, it stays as it is.
    rig.delete(&service, "").await.expect(200);
    tokio::time::sleep(minute).await;
    let remote =
        r#"{"spec":{"insecureSkipTLSVerify":true,"service":{"namespace":"default","name":"sea"}}}"#;
    rig.patch(&service, remote).await.expect(200);
    tokio::time::sleep(minute).await;
    let kept = rig.get(&service).await.expect(200).body;
    assert_eq!(kept.at("spec.service.name").str(), "sea");
    rig.get(BOATS).await.expect(503);
    rig.get(&BOATS.replace("v1", "v2")).await.expect(200);
    rig.delete(&service, "").await.expect(200);
    tokio::time::sleep(minute).await;
    rig.get(BOATS).await.expect(200);

    let definition = r#"{"metadata":{"name":"boats.sea.example.com"},"spec":{"group":"sea.example.com","scope":"Namespaced",
        "names":{"plural":"boats","kind":"Boat"},"versions":[{"name":"v1","served":true,"storage":true,
        "schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}"#;
    rig.post(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        definition,
    )
    .await
    .expect(201);
    let boat = r#"{"kind":"Boat","apiVersion":"sea.example.com/v1","metadata":{"name":"custom"},"anything":1}"#;
    let boat = rig.post(BOATS, boat).await.expect(201).body;
    assert_eq!(boat["anything"].int(), 1);
    tokio::time::sleep(minute).await;
    let made = rig.get(&service).await.expect(200).body;
    assert_eq!(made.at("spec.groupPriorityMinimum").int(), 1000);
}

/// Berths, of which there are few: a boat takes one when it is launched.
#[derive(Default)]
struct Berths {
    taken: Mutex<Vec<i64>>,
    finished: Mutex<Vec<(i64, bool)>>,
}

const N_BERTHS: i64 = 2;

/// The hook of the harbour master.
struct HarbourMaster(Arc<Berths>);

impl WriteHook for HarbourMaster {
    type Allocation = i64;

    async fn begin(
        &self,
        asked: &RequestContext<'_>,
        boat: &mut Value,
    ) -> Result<Option<i64>, Error> {
        if !asked.is(&BOAT_RESOURCE) || asked.old.is_some() {
            return Ok(None);
        }
        let mut taken = self.0.taken.lock();
        let berth = (1..=N_BERTHS).find(|berth| !taken.contains(berth));
        let berth = berth.ok_or_else(|| asked.forbidden(boat, "the harbour is full"))?;
        taken.push(berth);
        let annotations = boat.entry("metadata").entry("annotations");
        annotations.set("berth", berth.to_string());
        Ok(Some(berth))
    }

    async fn finish(&self, berth: i64, is_stored: bool) {
        self.0.finished.lock().push((berth, is_stored));
        if !is_stored {
            self.0.taken.lock().retain(|taken| *taken != berth);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_write_allocated_is_given_back_when_it_is_not_stored() {
    let berths = Arc::new(Berths::default());
    let rig = Rig {
        server: builder()
            .write_hook(HarbourMaster(berths.clone()))
            .build()
            .unwrap(),
    };
    let finished = || std::mem::take(&mut *berths.finished.lock());

    // Validation, an admission plug-in and the commit fail after the allocation.
    launch(&rig, "liner", 101).await.expect(422);
    launch(&rig, "titanic", 9).await.expect(403);
    assert_eq!(finished(), [(1, false), (1, false)]);
    let boat = launch(&rig, "jolle", 10).await.expect(201).body;
    assert_eq!(boat.at("metadata.annotations.berth").str(), "1");
    launch(&rig, "jolle", 10).await.expect(409);
    assert_eq!(finished(), [(1, true), (2, false)]);

    // A dry run stores nothing.
    let dry_run = format!("{BOATS}?dryRun=All");
    let body = r#"{"metadata":{"name":"wherry"},"feet":9}"#;
    rig.post(&dry_run, body).await.expect(201);
    assert_eq!(finished(), [(2, false)]);

    // Not an update, nor a rejected allocation.
    rig.patch(&format!("{BOATS}/jolle"), r#"{"feet":11}"#)
        .await
        .expect(200);
    launch(&rig, "dory", 9).await.expect(201);
    let refused = launch(&rig, "punt", 9).await.expect(403);
    assert!(refused.message().ends_with("the harbour is full"));
    assert_eq!(finished(), [(2, true)]);
}

#[tokio::test(start_paused = true)]
async fn what_a_write_allocated_is_given_back_when_the_client_goes_away() {
    /// Never admits a boat.
    struct Slow;

    impl AdmissionPlugin for Slow {
        async fn validate(&self, _: &RequestContext<'_>, _: Option<&Value>) -> Result<(), Error> {
            std::future::pending().await
        }
    }

    let berths = Arc::new(Berths::default());
    let rig = Rig {
        server: builder()
            .write_hook(HarbourMaster(berths.clone()))
            .admission(Slow)
            .build()
            .unwrap(),
    };
    let soon = std::time::Duration::from_secs(1);
    let launched = tokio::time::timeout(soon, launch(&rig, "jolle", 10)).await;
    assert!(launched.is_err());
    while berths.finished.lock().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(*berths.finished.lock(), [(1, false)]);
}

#[tokio::test(start_paused = true)]
async fn an_error_of_a_plugin_is_an_internal_error_with_its_sources() {
    /// Parses what is no number.
    struct Broken;

    impl AdmissionPlugin for Broken {
        async fn mutate(&self, _: &RequestContext<'_>, boat: &mut Value) -> Result<(), Error> {
            let _: u8 = boat["metadata"]["name"].str().parse()?;
            Ok(())
        }
    }

    let rig = Rig {
        server: builder().admission(Broken).build().unwrap(),
    };
    let refused = launch(&rig, "jolle", 9).await.expect(500);
    let message = "Internal error occurred: invalid digit found in string";
    assert_eq!(refused.message(), message);
}

#[tokio::test]
async fn a_subresource_upgrades_the_connection() {
    let rig = rig();
    launch(&rig, "jolle", 10).await.expect(201);
    rig.get(&format!("{BOATS}/jolle/radio")).await.expect(400);
    launch(&rig, "ghost", 10).await.expect(201);
    let refused = rig.get(&format!("{BOATS}/ghost/radio")).await.expect(403);
    assert!(refused.message().ends_with("no crew listens"));
    let network = Network::start(&rig.server).await;
    let open = async |query: &str| {
        let mut stream = network.connect().await;
        let path = format!("{BOATS}/jolle/radio?frequency={query}");
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: radio\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let head = read_until(&mut stream, "\r\n\r\n").await;
        (head, stream)
    };
    let (head, mut stream) = open("16").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.to_lowercase().contains("upgrade: radio"), "{head}");
    stream.write_all(b"mayday.").await.unwrap();
    assert_eq!(read_until(&mut stream, ".").await, "mayday.");
    let (head, _) = open("17").await;
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    let (head, _) = open("x").await;
    assert!(head.starts_with("HTTP/1.1 500 "), "{head}");
}

/// The tide, at a path of its own.
struct Tide;

impl NonResourceHandler for Tide {
    async fn serve(&self, request: NonResourceRequest<'_>) -> Option<http::Response<Bytes>> {
        tokio::task::yield_now().await;
        (request.path == "/tide").then(|| http::Response::new(r#"{"metres":3}"#.into()))
    }

    fn listed_paths(&self) -> Vec<String> {
        vec!["/tide".into()]
    }
}

#[tokio::test(start_paused = true)]
async fn a_non_resource_path_has_a_handler_of_its_own() {
    let server = builder().non_resource(Tide).build().unwrap();
    let rig = Rig { server };
    let tide = rig.get("/tide").await.expect(200).body;
    assert_eq!(tide["metres"].int(), 3);
    rig.get("/tides").await.expect(404);
    let index = rig.get("/").await.expect(200).body;
    assert!(index["paths"].list().contains(&"/tide".into()));
    let jane = User::component("jane");
    rig.call_as(jane, &[], "GET", "/tide", "").await.expect(403);
}

const RAFTS: &str = "
metadata: {name: rafts.sea.example.com}
spec:
  group: sea.example.com
  names: {plural: rafts, kind: Raft}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: false
    schema:
      openAPIV3Schema:
        type: object
        properties:
          feet: {type: integer}
  - name: v2
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          inches: {type: integer, maximum: 1200}
";

/// Rafts of `v1` have feet, those of `v2` inches.
struct RaftFeet;

impl Hooks for RaftFeet {
    fn to_stored(&self, raft: &mut Value) {
        if let Some(feet) = raft.remove("feet") {
            raft.set("inches", feet.int() * 12);
        }
    }

    fn from_stored(&self, raft: &mut Value) {
        if let Some(inches) = raft.remove("inches") {
            raft.set("feet", inches.int() / 12);
        }
    }

    fn validate(
        &self,
        raft: &Value,
        _: Option<&Value>,
        _: &HookContext,
        violations: &mut Violations,
    ) {
        if raft["feet"].int() == 13 {
            violations.invalid("feet", 13, "brings bad luck");
        }
    }
}

/// The weather of a raft.
struct Weather;

impl SubresourceHandler for Weather {
    async fn answer(&self, asked: &RequestContext<'_>, _: Value) -> Result<Value, Error> {
        Ok(value!({ "text": (format!("{} drifts", asked.name)) }))
    }
}

#[tokio::test(start_paused = true)]
async fn kinds_of_a_definition_have_hooks_and_subresources() {
    const RAFT_V1: GroupVersionKind = GroupVersionKind::new(SEA, "v1", "Raft");
    const RAFT_V2: GroupVersionKind = GroupVersionKind::new(SEA, "v2", "Raft");
    let rafts = GroupResource::new(SEA, "rafts");
    let server = builder()
        .definition(RAFTS)
        .hooks(RAFT_V1, RaftFeet)
        .hooks(RAFT_V2, Hub)
        .subresource(rafts, "weather", Weather)
        .build()
        .unwrap();
    server.check_round_trips(RoundTrip::default()).unwrap();
    let rig = Rig { server };
    let path = "/apis/sea.example.com/v1/rafts";
    let raft = |name: &str, feet: i64| {
        format!(
            r#"{{"apiVersion":"sea.example.com/v1","kind":"Raft","metadata":{{"name":"{name}"}},"feet":{feet}}}"#
        )
    };
    let made = rig.post(path, &raft("kon", 10)).await.expect(201).body;
    assert_eq!(made["feet"].int(), 10);
    let other = "/apis/sea.example.com/v2/rafts/kon";
    assert_eq!(rig.get(other).await.expect(200).body["inches"].int(), 120);
    let refused = rig.post(path, &raft("tiki", 13)).await.expect(422);
    assert!(refused.message().contains("brings bad luck"));

    let weather = rig.get(&format!("{path}/kon/weather")).await.expect(200);
    assert_eq!(weather.body["text"].str(), "kon drifts");
    rig.put(&format!("{path}/kon/weather"), "{}")
        .await
        .expect(405);
    rig.get(&format!("{path}/kon/tide")).await.expect(404);

    // The hooks of the second version delete gracefully.
    let going = rig.delete(other, "").await.expect(200);
    let period = going.body.at("metadata.deletionGracePeriodSeconds");
    assert_eq!(period.int(), 30);
}

#[test]
fn every_kind_survives_its_round_trips() {
    let server = builder().definition(DEFINITION).build().unwrap();
    server.check_round_trips(RoundTrip::default()).unwrap();

    /// Loses the sails on the way.
    struct Storm;

    impl Hooks for Storm {
        fn to_stored(&self, boat: &mut Value) {
            boat.remove("sails");
        }
    }
    let server = builder().hooks(BOAT, Storm).build().unwrap();
    let lost = server.check_round_trips(RoundTrip::default()).unwrap_err();
    let text = lost.to_string();
    assert!(text.contains("the storage version and back"), "{text}");
    let calm = RoundTrip {
        normalize: |_, boat| drop(boat.remove("sails")),
        ..RoundTrip::default()
    };
    server.check_round_trips(calm).unwrap();
}

/// Boats of another group, in the same place.
const LAKE: &str = "
group lake.example.com
version v1
kind Boat
  names boats boat
  scope Namespaced
  verbs create delete get list update watch
  list BoatList
  stored sea.example.com/hub.Boat
type Boat
  1 metadata !meta/v1.ObjectMeta
  2 inches int32
  3 sails ![]string list=atomic
";

#[tokio::test(start_paused = true)]
async fn kinds_of_two_groups_share_their_objects() {
    let server = builder().kinds("lake.kinds", LAKE).build().unwrap();
    let rig = Rig { server };
    launch(&rig, "jolle", 10).await.expect(201);
    let path = "/apis/lake.example.com/v1/namespaces/default/boats";
    let mut boat = rig.get(&format!("{path}/jolle")).await.expect(200).body;
    assert_eq!(boat["apiVersion"].str(), "lake.example.com/v1");
    assert_eq!(boat["inches"].int(), 120);
    boat.set("inches", 24);
    let text = mizzen_value::json::to_string(&boat);
    rig.put(&format!("{path}/jolle"), &text).await.expect(200);
    let boat = rig.get(&format!("{BOATS}/jolle")).await.expect(200).body;
    assert_eq!(boat["feet"].int(), 2);
    // A plug-in for one group does not see the other.
    let other = r#"{"metadata":{"name":"punt"},"inches":9}"#;
    let punt = rig.post(path, other).await.expect(201).body;
    assert!(punt.at("metadata.annotations").is_null());
}
