//! Is what is authorized what is executed? Every method on every form of path, with roles that allow one verb.
//!
//! The oracle does not read paths: it looks at what has become of the objects. Whatever was created must have been
//! created by a POST and the role for `create`, and so on.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use expect_test::{Expect, expect};
use http_body::Body as _;
use mizzen_apiserver::extend::{Error, RequestContext, Storage, SubresourceHandler};
use mizzen_apiserver::{Server, User};
use mizzen_authorization::{Attributes, Authorizer, Decision, DecisionReason};
use mizzen_object::GroupResource;
use mizzen_registry::{BoxFuture, Store};
use mizzen_value::{Value, json, value};

use crate::rig::{Rig, registry};

/// `APPLY` is a PATCH, too.
const METHODS: [&str; 8] = [
    "GET", "HEAD", "POST", "PUT", "PATCH", "APPLY", "DELETE", "OPTIONS",
];
const VERBS: [&str; 8] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];

/// A path's parts: below which version, in which namespace (none for cluster-scoped kinds), and what.
struct Place<'a> {
    root: &'a str,
    namespace: &'a str,
    /// `things`, `things/one`, `things/one/status`.
    object: &'a str,
}

impl Place<'_> {
    fn plain(&self) -> String {
        format!("{}{}/{}", self.root, self.namespace, self.object)
    }

    fn below(&self, prefix: &str) -> String {
        format!("{}/{prefix}{}/{}", self.root, self.namespace, self.object)
    }
}

/// A form of paths.
type Form = fn(&Place) -> String;

/// All forms of a path; those of an object that make no sense are refused, but must not do anything either.
const FORMS: [Form; 17] = [
    |place| place.plain(),
    |place| place.below("watch"),
    |place| place.below("proxy"),
    |place| place.below("%77atch"),
    |place| place.below("watch/"),
    |place| place.plain() + "?watch=true",
    |place| place.below("watch") + "?watch=true",
    |place| place.plain() + "?fieldSelector=metadata.name%3Done",
    |place| place.below("watch") + "?fieldSelector=metadata.name%3Done",
    |place| format!("{}/{}", place.root, place.object),
    |place| format!("{}/namespaces//{}", place.root, place.object),
    |place| format!("/{}", place.plain()),
    |place| place.below(""),
    |place| {
        format!(
            "{}{}/{}",
            place.root,
            place.namespace,
            place.object.replace('/', "//")
        )
    },
    |place| place.plain() + "/",
    |place| {
        format!(
            "{}{}/%{:02x}{}",
            place.root,
            place.namespace,
            place.object.as_bytes()[0],
            &place.object[1..]
        )
    },
    |place| place.plain().replace('/', "%2F").replacen("%2F", "/", 2),
];

/// A kind under test, with two objects: `one` and `two`.
struct Subject {
    rig: Rig,
    root: &'static str,
    namespace: &'static str,
    plural: &'static str,
    subresources: [&'static str; 2],
    /// An object without its name. Everything in it differs from what is there.
    object: Value,
    /// How often the server's own code has done something.
    calls: Arc<AtomicUsize>,
}

/// What has become of the objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Created,
    Modified,
    Deleted,
    AllDeleted,
    Called,
}

type Objects = BTreeMap<String, Value>;

impl Subject {
    fn collection(&self) -> String {
        format!("{}{}/{}", self.root, self.namespace, self.plural)
    }

    fn named(&self, name: &str) -> Value {
        let mut object = self.object.clone();
        object.entry("metadata").set("name", name);
        object
    }

    async fn objects(&self) -> Objects {
        let list = self.rig.get(&self.collection()).await.expect(200).body;
        list["items"]
            .list()
            .iter()
            .map(|it| (it.at("metadata.name").str().to_owned(), it.clone()))
            .collect()
    }

    /// Puts the two objects back as they were.
    async fn restore(&self) -> Objects {
        for name in self.objects().await.keys() {
            self.rig
                .delete(&format!("{}/{name}", self.collection()), "")
                .await
                .expect(200);
        }
        for name in ["one", "two"] {
            let mut object = self.named(name);
            object.entry("metadata").remove("labels");
            self.rig
                .post(&self.collection(), &json::to_string(&object))
                .await
                .expect(201);
        }
        self.objects().await
    }

    /// What can have changed only if this has.
    fn version(&self) -> (u64, usize) {
        (
            self.rig.server.registry().store().revision().0,
            self.calls.load(Ordering::Relaxed),
        )
    }

    /// A body that does what the method is for.
    fn body(&self, method: &str, object: &str, objects: &Objects) -> String {
        let mut parts = object.split('/').skip(1);
        let (name, subresource) = (
            parts.next().unwrap_or("new"),
            parts.next().unwrap_or_default(),
        );
        let spec = value!({ "replicas": 5 });
        let body = match (method, subresource) {
            ("GET" | "HEAD" | "OPTIONS" | "DELETE", _) => return String::new(),
            ("PATCH", "scale") => value!({ "spec": (spec) }),
            (_, "scale") => value!({
                "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": { "name": name }, "spec": (spec)
            }),
            ("PATCH", _) => {
                value!({ "metadata": { "labels": { "changed": "yes" } }, "status": (self.object["status"].clone()) })
            }
            ("POST", _) => self.named("new"),
            (_, _) => {
                let mut body = self.named(name);
                let version = objects
                    .get(name)
                    .map(|object| object.at("metadata.resourceVersion"));
                if let Some(version) =
                    version.filter(|version| !version.is_null() && method == "PUT")
                {
                    body.entry("metadata")
                        .set("resourceVersion", version.clone());
                }
                body
            }
        };
        json::to_string(&body)
    }

    /// All paths, each with the object that it is meant for.
    fn paths(&self) -> Vec<(String, String)> {
        let Subject {
            root,
            namespace,
            plural,
            subresources: [first, second],
            ..
        } = self;
        let objects = [
            plural.to_string(),
            format!("{plural}/one"),
            format!("{plural}/missing"),
            format!("{plural}/one/{first}"),
            format!("{plural}/one/{second}"),
        ];
        let mut paths = Vec::new();
        for (form, object) in FORMS
            .iter()
            .flat_map(|form| objects.iter().map(move |object| (form, object)))
        {
            let path = (
                form(&Place {
                    root,
                    namespace,
                    object,
                }),
                object.clone(),
            );
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        paths
    }
}

fn change(before: &Objects, after: &Objects) -> Option<Change> {
    let is_new = |name: &&String| !before.contains_key(*name);
    match (
        after.keys().any(|name| is_new(&name)),
        before.len().saturating_sub(after.len()),
    ) {
        (true, 0) => Some(Change::Created),
        (false, 1) => Some(Change::Deleted),
        (false, 2) => Some(Change::AllDeleted),
        (false, 0) => (before != after).then_some(Change::Modified),
        other => panic!("{other:?}"),
    }
}

/// Whether a role for `verb` alone allows a change by a method.
fn allows(verb: &str, method: &str, change: Change) -> bool {
    match (method, change) {
        ("POST", Change::Created | Change::Called) => verb == "create",
        ("PUT", Change::Modified) => verb == "update",
        ("PATCH" | "APPLY", Change::Modified) => verb == "patch",
        // A selector can leave one object of a collection.
        ("DELETE", Change::Deleted) => matches!(verb, "delete" | "deletecollection"),
        ("DELETE", Change::AllDeleted) => verb == "deletecollection",
        _ => false,
    }
}

/// Plays all combinations; `expected` has, by verb, how many requests were authorized and how many changed something.
async fn check(subject: Subject, expected: Expect) {
    let mut objects = subject.restore().await;
    let mut counts = BTreeMap::<&str, (usize, usize)>::new();
    let mut n_combinations = 0;
    for (path, object) in subject.paths() {
        for method in METHODS {
            let apply = if path.contains('?') {
                "&fieldManager=m&force=true"
            } else {
                "?fieldManager=m&force=true"
            };
            let path = if method == "APPLY" {
                format!("{path}{apply}")
            } else {
                path.clone()
            };
            let mut n_authorized = 0;
            for verb in VERBS {
                n_combinations += 1;
                let (version, body) = (subject.version(), subject.body(method, &object, &objects));
                let user = User {
                    name: verb.into(),
                    ..User::default()
                };
                let answer = subject.rig.send_as(user, &[], method, &path, &body).await;
                let what = format!("{method} {path} with {verb} alone: {}", answer.status());
                let is_streamed = answer.body().size_hint().exact().is_none();
                assert!(!is_streamed || verb == "watch", "{what} is a watch");
                let (is_authorized, answered) = (answer.status() != 403, answer.status());
                drop(answer);
                n_authorized += usize::from(is_authorized);
                let count = counts.entry(verb).or_default();
                count.0 += usize::from(is_authorized);
                if subject.version() == version {
                    continue;
                }
                let is_called = subject.version().1 != version.1;
                let after = subject.objects().await;
                let Some(change) = change(&objects, &after).or(is_called.then_some(Change::Called))
                else {
                    continue;
                };
                assert!(allows(verb, method, change), "{what}: {change:?}");
                assert!(answered.is_success(), "{what}: {change:?}");
                count.1 += 1;
                objects = subject.restore().await;
            }
            assert!(
                n_authorized <= 1,
                "{method} {path} is allowed by {n_authorized} verbs"
            );
        }
    }
    let mut table = String::new();
    for verb in VERBS {
        let (n_authorized, n_changed) = counts.get(verb).copied().unwrap_or_default();
        writeln!(
            table,
            "{verb:<16} {n_authorized:>3} authorized {n_changed:>3} changed"
        )
        .unwrap();
    }
    println!("{}: {n_combinations} combinations", subject.plural);
    expected.assert_eq(&table);
}

/// A server with a role for each verb, bound to a user of its name.
async fn with_roles() -> Rig {
    let rig = Rig::new().await;
    for verb in VERBS {
        let role = value!({
            "metadata": { "name": verb },
            "rules": [{ "verbs": [verb], "apiGroups": ["*"], "resources": ["*"] }]
        });
        let binding = value!({
            "metadata": { "name": verb },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": verb },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": verb }]
        });
        let root = "/apis/rbac.authorization.k8s.io/v1";
        rig.post(&format!("{root}/clusterroles"), &json::to_string(&role))
            .await
            .expect(201);
        rig.post(
            &format!("{root}/clusterrolebindings"),
            &json::to_string(&binding),
        )
        .await
        .expect(201);
    }
    rig
}

#[tokio::test(start_paused = true)]
async fn permission_for_a_verb_allows_nothing_else_on_a_built_in_kind() {
    let subject = Subject {
        rig: with_roles().await,
        root: "/apis/apps/v1",
        namespace: "/namespaces/default",
        plural: "deployments",
        subresources: ["status", "scale"],
        object: value!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "labels": { "changed": "yes" } },
            "spec": {
                "selector": { "matchLabels": { "app": "a" } },
                "template": {
                    "metadata": { "labels": { "app": "a" } },
                    "spec": { "containers": [{ "name": "c", "image": "i" }] }
                }
            },
            "status": { "observedGeneration": 7 }
        }),
        calls: Arc::default(),
    };
    check(
        subject,
        expect![[r#"
        get               82 authorized   0 changed
        list              24 authorized   0 changed
        watch            202 authorized   0 changed
        create            54 authorized   6 changed
        update            54 authorized  18 changed
        patch            102 authorized  36 changed
        delete            41 authorized   6 changed
        deletecollection  13 authorized   6 changed
    "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn permission_for_a_verb_allows_nothing_else_on_a_kind_that_is_created_on_update() {
    let subject = Subject {
        rig: with_roles().await,
        root: "/apis/coordination.k8s.io/v1",
        namespace: "/namespaces/default",
        plural: "leases",
        subresources: ["status", "scale"],
        object: value!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "labels": { "changed": "yes" } },
            "spec": { "holderIdentity": "me" }
        }),
        calls: Arc::default(),
    };
    check(
        subject,
        expect![[r#"
        get               82 authorized   0 changed
        list              24 authorized   0 changed
        watch            202 authorized   0 changed
        create            54 authorized   6 changed
        update            48 authorized   6 changed
        patch            102 authorized  12 changed
        delete            41 authorized   6 changed
        deletecollection  13 authorized   6 changed
    "#]],
    )
    .await;
}

const DEFINITION: &str = r#"{"metadata":{"name":"things.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
    "names":{"plural":"things","singular":"thing","kind":"Thing","listKind":"ThingList"},
    "versions":[{"name":"v1","served":true,"storage":true,
        "subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}},
        "schema":{"openAPIV3Schema":{"type":"object","properties":{
            "spec":{"type":"object","properties":{"replicas":{"type":"integer"}}},
            "status":{"type":"object","properties":{"replicas":{"type":"integer"}}}}}}}]}}"#;

async fn custom(scope: &str, namespace: &'static str) -> Subject {
    let (rig, definition) = (with_roles().await, DEFINITION.replace("Namespaced", scope));
    rig.post(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        &definition,
    )
    .await
    .expect(201);
    Subject {
        rig,
        root: "/apis/example.com/v1",
        namespace,
        plural: "things",
        subresources: ["status", "scale"],
        object: value!({
            "apiVersion": "example.com/v1", "kind": "Thing",
            "metadata": { "labels": { "changed": "yes" } },
            "spec": { "replicas": 1 }, "status": { "replicas": 7 }
        }),
        calls: Arc::default(),
    }
}

#[tokio::test(start_paused = true)]
async fn permission_for_a_verb_allows_nothing_else_on_a_custom_kind() {
    check(
        custom("Namespaced", "/namespaces/default").await,
        expect![[r#"
        get               82 authorized   0 changed
        list              24 authorized   0 changed
        watch            202 authorized   0 changed
        create            54 authorized  18 changed
        update            54 authorized  18 changed
        patch            102 authorized  30 changed
        delete            41 authorized   6 changed
        deletecollection  13 authorized   6 changed
    "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn permission_for_a_verb_allows_nothing_else_on_a_cluster_scoped_custom_kind() {
    check(
        custom("Cluster", "").await,
        expect![[r#"
        get               74 authorized   0 changed
        list              22 authorized   0 changed
        watch            202 authorized   0 changed
        create            49 authorized  21 changed
        update            49 authorized  21 changed
        patch             91 authorized  35 changed
        delete            37 authorized   7 changed
        deletecollection  12 authorized   7 changed
    "#]],
    )
    .await;
}

#[tokio::test]
async fn the_legacy_watch_prefix_of_a_custom_kind_is_for_get() {
    let subject = custom("Namespaced", "/namespaces/default").await;
    let Subject {
        rig,
        root,
        namespace,
        ..
    } = &subject;
    for object in ["things", "things/one", "things/one/status"] {
        let path = Place {
            root,
            namespace,
            object,
        }
        .below("watch");
        for method in ["HEAD", "POST", "PUT", "PATCH", "APPLY", "DELETE"] {
            rig.call(method, &path, "{}").await.expect(405);
        }
    }
}

/// A kind in the store with a handler below it, and one with a storage of its own.
const KINDS: &str = "
group sea.example.com
version v1
kind Boat
  names boats boat
  scope Namespaced
  verbs create delete deletecollection get list patch update watch
  subresource status get patch update
  subresource horn create kind=sea.example.com/v1.Sound
  list BoatList
kind Harbour
  names harbours harbour
  scope Cluster
  verbs create delete get list update watch
  list HarbourList
type Boat
  1 metadata !meta/v1.ObjectMeta
  2 feet int32
  3 status !BoatStatus
type BoatStatus
  1 knots int32
type Sound
  - kind string
  - apiVersion string
  1 text string
type Harbour
  1 metadata !meta/v1.ObjectMeta
  2 berths int32
";

/// Allows each user the verb of that name.
#[derive(Debug)]
struct ByName;

impl Authorizer for ByName {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Decision> {
        let is_allowed = attributes.user.name == attributes.verb;
        let decision = if is_allowed {
            Decision::Allow
        } else {
            Decision::NoOpinion
        };
        Box::pin(async move { decision(DecisionReason::default()) })
    }
}

struct Horn(Arc<AtomicUsize>);

impl SubresourceHandler for Horn {
    async fn answer(&self, _: &RequestContext<'_>, _: Value) -> Result<Value, Error> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(Value::object())
    }
}

struct Harbours {
    all: Mutex<Vec<Value>>,
    calls: Arc<AtomicUsize>,
}

impl Harbours {
    fn change(&self, name: &str, new: Option<&Value>) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let mut all = self.all.lock();
        all.retain(|harbour| harbour.at("metadata.name").str() != name);
        all.extend(new.cloned());
    }
}

impl Storage for Harbours {
    async fn list(&self, _: &RequestContext<'_>) -> Result<Vec<Value>, Error> {
        Ok(self.all.lock().clone())
    }

    async fn create(&self, _: &RequestContext<'_>, harbour: Value) -> Result<Value, Error> {
        self.change("", Some(&harbour));
        Ok(harbour)
    }

    async fn update(&self, asked: &RequestContext<'_>, harbour: Value) -> Result<Value, Error> {
        self.change(asked.name, Some(&harbour));
        Ok(harbour)
    }

    async fn delete(&self, asked: &RequestContext<'_>) -> Result<Value, Error> {
        self.change(asked.name, None);
        Ok(asked.old.unwrap().clone())
    }
}

fn own(calls: &Arc<AtomicUsize>) -> Rig {
    let server = Server::builder(registry(Store::in_memory(Default::default())))
        .kinds("sea.kinds", KINDS)
        .storage(
            GroupResource::new("sea.example.com", "harbours"),
            Harbours {
                all: Mutex::default(),
                calls: calls.clone(),
            },
        )
        .subresource(
            GroupResource::new("sea.example.com", "boats"),
            "horn",
            Horn(calls.clone()),
        )
        .authorizer(Arc::new(ByName));
    Rig {
        server: server.build().unwrap(),
    }
}

#[tokio::test(start_paused = true)]
async fn permission_for_a_verb_allows_nothing_else_on_a_kind_of_a_custom_server() {
    let calls = Arc::default();
    let subject = Subject {
        rig: own(&calls),
        root: "/apis/sea.example.com/v1",
        namespace: "/namespaces/default",
        plural: "boats",
        subresources: ["status", "horn"],
        object: value!({
            "apiVersion": "sea.example.com/v1", "kind": "Boat",
            "metadata": { "labels": { "changed": "yes" } }, "feet": 9, "status": { "knots": 7 }
        }),
        calls,
    };
    check(
        subject,
        expect![[r#"
        get               82 authorized   0 changed
        list              24 authorized   0 changed
        watch            202 authorized   0 changed
        create            54 authorized  12 changed
        update            54 authorized  12 changed
        patch            102 authorized  24 changed
        delete            41 authorized   6 changed
        deletecollection  13 authorized   6 changed
    "#]],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn permission_for_a_verb_allows_nothing_else_on_a_custom_storage() {
    let calls = Arc::default();
    let subject = Subject {
        rig: own(&calls),
        root: "/apis/sea.example.com/v1",
        namespace: "",
        plural: "harbours",
        subresources: ["status", "scale"],
        object: value!({
            "apiVersion": "sea.example.com/v1", "kind": "Harbour",
            "metadata": { "labels": { "changed": "yes" } }, "berths": 9
        }),
        calls,
    };
    check(
        subject,
        expect![[r#"
        get               74 authorized   0 changed
        list              22 authorized   0 changed
        watch            202 authorized   0 changed
        create            49 authorized   6 changed
        update            49 authorized   6 changed
        patch             98 authorized   0 changed
        delete            37 authorized   6 changed
        deletecollection  12 authorized   0 changed
    "#]],
    )
    .await;
}
