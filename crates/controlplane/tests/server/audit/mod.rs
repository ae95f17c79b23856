//! What is remembered of requests: the file read back.

mod admission;
mod connection;
mod delivery;
mod secrets;
mod storage;

use parking_lot::Mutex;
use std::path::PathBuf;
use std::time::Duration;

use mizzen_apiserver::{Options, User};
use mizzen_audit::{
    AuditLogFormat, AuditOptions, AuditPolicy, BatchOptions, Delivery, DeliveryMode, LogFile,
};
use mizzen_authentication::{Authentication, StaticTokens};
use mizzen_registry::Store;
use mizzen_value::{Value, json};

use crate::rig::{CONFIG_MAPS, Rig};

/// A server that writes down what happens, and the file.
struct Audited {
    rig: Rig,
    path: PathBuf,
    read: Mutex<usize>,
    _directory: tempfile::TempDir,
}

fn delivery(mode: DeliveryMode) -> Delivery {
    let batch = BatchOptions {
        buffer: 100,
        size: 1,
        wait: Duration::from_secs(30),
        throttle: None,
    };
    Delivery {
        mode,
        batch,
        truncation: None,
    }
}

fn log_file(path: PathBuf) -> LogFile {
    LogFile {
        path,
        format: AuditLogFormat::Json,
        max_age: 0,
        max_backups: 0,
        max_size: 100,
        compress: false,
        delivery: delivery(DeliveryMode::Blocking),
    }
}

fn policy(rules: &str) -> AuditPolicy {
    let text = format!("kind: Policy\napiVersion: audit.k8s.io/v1\nrules: [{rules}]");
    AuditPolicy::read(text.as_bytes()).unwrap()
}

impl Audited {
    /// A server that goes by these rules.
    async fn by(rules: &str) -> Audited {
        Audited::with(rules, |_| {}, Options::default()).await
    }

    async fn with(rules: &str, change: impl FnOnce(&mut LogFile), options: Options) -> Audited {
        Audited::on(Store::in_memory(Default::default()), rules, change, options).await
    }

    async fn on(
        store: Store,
        rules: &str,
        change: impl FnOnce(&mut LogFile),
        options: Options,
    ) -> Audited {
        let directory = tempfile::tempdir().unwrap();
        let mut log = log_file(directory.path().join("audit.log"));
        change(&mut log);
        let path = log.path.clone();
        let setup = AuditOptions {
            policy: policy(rules),
            log: Some(log),
            webhook: None,
        };
        let rig = Rig::on(
            store,
            Options {
                audit: Some(setup),
                ..options
            },
        )
        .await;
        let audited = Audited {
            rig,
            path,
            read: Mutex::default(),
            _directory: directory,
        };
        audited.text();
        audited
    }

    /// The text that was written since this was asked last.
    fn text(&self) -> String {
        if !self.path.is_file() {
            return String::new();
        }
        let all = std::fs::read_to_string(&self.path).unwrap();
        let mut read = self.read.lock();
        let text = all[*read..].to_owned();
        *read = all.len();
        text
    }

    /// The events that were written since this was asked last.
    fn events(&self) -> Vec<Value> {
        self.text()
            .lines()
            .map(|line| json::parse(line.as_bytes()).expect("sound JSON"))
            .collect()
    }

    /// Their stages, verbs, objects and codes.
    fn lines(&self) -> Vec<String> {
        self.events().iter().map(line).collect()
    }

    /// The last of them.
    fn last(&self) -> Value {
        self.events().pop().expect("an event")
    }
}

fn line(event: &Value) -> String {
    let object = &event["objectRef"];
    let parts = [
        event["stage"].str().to_owned(),
        event["verb"].str().to_owned(),
        [
            object["resource"].str(),
            object["subresource"].str(),
            object["name"].str(),
        ]
        .join("/"),
        event["responseStatus"]["code"]
            .as_int()
            .map(|code| code.to_string())
            .unwrap_or_default(),
    ];
    parts.join(" ").trim_end().to_owned()
}

const METADATA: &str = "{level: Metadata}";
const ALL: &str = "{level: RequestResponse}";

#[tokio::test(start_paused = true)]
async fn an_event_is_written_as_upstream_writes_it() {
    let audited = Audited::by(METADATA).await;
    let headers = [
        ("audit-id", "my-own"),
        ("user-agent", "test/1 <x>"),
        ("x-forwarded-for", "1.2.3.4"),
    ];
    let user = User {
        uid: "7".into(),
        ..User::master("admin")
    };
    let made = r#"{"metadata":{"name":"one"}}"#;
    audited
        .rig
        .call_as(user, &headers, "POST", CONFIG_MAPS, made)
        .await
        .expect(201);
    let head = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"my-own","stage":"#;
    let asked = r#","requestURI":"/api/v1/namespaces/default/configmaps","verb":"create","user":{"username":"admin","uid":"7","groups":["system:masters","system:authenticated"]},"sourceIPs":["1.2.3.4"],"userAgent":"test/1 \u003cx\u003e","objectRef":{"resource":"configmaps","namespace":"default","#;
    let times = r#""requestReceivedTimestamp":"2027-01-15T08:00:00.000000Z","stageTimestamp":"2027-01-15T08:00:00.000000Z""#;
    let received = format!(r#"{head}"RequestReceived"{asked}"apiVersion":"v1"}},{times}}}"#);
    let complete = format!(
        r#"{head}"ResponseComplete"{asked}"name":"one","apiVersion":"v1"}},"responseStatus":{{"metadata":{{}},"code":201}},{times},"annotations":{{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":""}}}}"#
    );
    assert_eq!(audited.text(), format!("{received}\n{complete}\n"));
}

#[tokio::test(start_paused = true)]
async fn every_verb_is_audited_with_object_and_status() {
    let audited = Audited::by("{level: Metadata, omitStages: [RequestReceived]}").await;
    let rig = &audited.rig;
    rig.make("one", "x").await;
    rig.make("two", "x").await;
    rig.get(&format!("{CONFIG_MAPS}/one")).await.expect(200);
    rig.get(&format!("{CONFIG_MAPS}/none")).await.expect(404);
    rig.get(&format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3Done"))
        .await
        .expect(200);
    rig.patch(&format!("{CONFIG_MAPS}/one"), r#"{"data":{"a":"b"}}"#)
        .await
        .expect(200);
    rig.apply(
        &format!("{CONFIG_MAPS}/three"),
        "m",
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"three"}}"#,
    )
    .await;
    rig.put(
        &format!("{CONFIG_MAPS}/one"),
        r#"{"metadata":{"name":"one","uid":"0"}}"#,
    )
    .await
    .expect(409);
    rig.delete(&format!("{CONFIG_MAPS}/one"), "")
        .await
        .expect(200);
    rig.delete(CONFIG_MAPS, "").await.expect(200);
    rig.get("/version").await.expect(200);
    rig.get("/nowhere").await.expect(404);
    let expected = [
        "ResponseComplete create configmaps//one 201",
        "ResponseComplete create configmaps//two 201",
        "ResponseComplete get configmaps//one 200",
        "ResponseComplete get configmaps//none 404",
        "ResponseComplete list configmaps//one 200",
        "ResponseComplete patch configmaps//one 200",
        "ResponseComplete patch configmaps//three 201",
        "ResponseComplete update configmaps//one 409",
        "ResponseComplete delete configmaps//one 200",
        "ResponseComplete deletecollection configmaps// 200",
        "ResponseComplete get // 200",
        "ResponseComplete get // 404",
    ];
    assert_eq!(audited.lines(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_status_is_audited_in_every_encoding() {
    let audited = Audited::by(METADATA).await;
    let expected = json::parse(
        br#"{"metadata":{},"status":"Failure","message":"configmaps \"none\" not found","reason":"NotFound","details":{"name":"none","kind":"configmaps"},"code":404}"#,
    );
    for form in [
        "application/json",
        "application/yaml",
        "application/vnd.kubernetes.protobuf",
    ] {
        let path = format!("{CONFIG_MAPS}/none");
        audited
            .rig
            .call_as(User::master("admin"), &[("accept", form)], "GET", &path, "")
            .await
            .expect(404);
        assert_eq!(
            Ok(audited.last()["responseStatus"].clone()),
            expected,
            "{form}"
        );
    }
    audited.rig.make("one", "x").await;
    audited
        .rig
        .delete(&format!("{CONFIG_MAPS}/one"), "")
        .await
        .expect(200);
    let status = &audited.last()["responseStatus"];
    assert_eq!(
        (status["status"].str(), status["code"].int()),
        ("Success", 200)
    );
    assert_eq!(status["details"]["name"].str(), "one");
}

#[tokio::test(start_paused = true)]
async fn objects_are_audited_as_json_in_every_encoding() {
    let audited = Audited::by(ALL).await;
    let made = r#"{"metadata":{"name":"one"},"data":{"a":"b"},"unknown":1}"#;
    audited.rig.post(CONFIG_MAPS, made).await.expect(201);
    let event = audited.last();
    let sent =
        r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"one"},"data":{"a":"b"}}"#;
    assert_eq!(json::to_string(&event["requestObject"]), sent);
    assert_eq!(
        event["responseObject"]
            .at("metadata.managedFields")
            .list()
            .len(),
        1
    );
    let whole = json::to_string(&event["responseObject"]);
    let forms = [
        "application/json",
        "application/yaml",
        "application/vnd.kubernetes.protobuf",
        "application/json;pretty=1",
    ];
    for form in forms {
        let path = format!("{CONFIG_MAPS}/one?pretty={}", form.ends_with("pretty=1"));
        audited
            .rig
            .call_as(User::master("admin"), &[("accept", form)], "GET", &path, "")
            .await
            .expect(200);
        assert_eq!(
            json::to_string(&audited.last()["responseObject"]),
            whole,
            "{form}"
        );
        audited
            .rig
            .call_as(
                User::master("admin"),
                &[("accept", form)],
                "GET",
                CONFIG_MAPS,
                "",
            )
            .await
            .expect(200);
        let list = &audited.last()["responseObject"];
        assert_eq!(
            (list["kind"].str(), list["items"].list().len()),
            ("ConfigMapList", 1),
            "{form}"
        );
    }
    audited.rig.get("/api").await.expect(200);
    assert_eq!(
        audited.last()["responseObject"]["kind"].str(),
        "APIVersions"
    );
    audited.rig.get("/version").await.expect(200);
    assert!(
        audited.last()["responseObject"].is_null(),
        "what has no kind is no object"
    );
}

#[tokio::test(start_paused = true)]
async fn patches_and_options_are_audited_as_sent() {
    let audited = Audited::by("{level: Request}").await;
    let (rig, one) = (&audited.rig, format!("{CONFIG_MAPS}/one"));
    let sent = |event: &Value| json::to_string(&event["requestObject"]);
    rig.make("one", "x").await;
    audited.events();
    rig.patch(&one, "{\"data\": {\"b\": \"c\",\n \"a\": null}}")
        .await
        .expect(200);
    assert_eq!(sent(&audited.last()), r#"{"data":{"b":"c","a":null}}"#);
    let applied = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n";
    rig.apply(&one, "m", applied).await.expect(200);
    assert_eq!(
        sent(&audited.last()),
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one"}}"#
    );
    rig.patch(&one, "{bad").await.expect(400);
    assert_eq!(
        sent(&audited.last()),
        "null",
        "the event is told nevertheless"
    );
    rig.delete(&one, r#"{"gracePeriodSeconds":0}"#)
        .await
        .expect(200);
    let options =
        r#"{"kind":"DeleteOptions","apiVersion":"meta.k8s.io/__internal","gracePeriodSeconds":0}"#;
    let event = audited.last();
    assert_eq!(sent(&event), options);
    assert!(event["responseObject"].is_null());
}

#[tokio::test(start_paused = true)]
async fn managed_fields_can_be_omitted() {
    let audited = Audited::by("{level: RequestResponse, omitManagedFields: true}").await;
    let rig = &audited.rig;
    let made = rig.make("one", "x").await;
    assert_eq!(
        made.body.at("metadata.managedFields").list().len(),
        1,
        "the client gets it"
    );
    rig.put(&format!("{CONFIG_MAPS}/one"), &json::to_string(&made.body))
        .await
        .expect(200);
    rig.get(CONFIG_MAPS).await.expect(200);
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let path = format!("{CONFIG_MAPS}?includeObject=Object");
    rig.call_as(User::master("admin"), &table, "GET", &path, "")
        .await
        .expect(200);
    let text = audited.text();
    assert!(
        text.contains("\"rows\":[{") && text.contains("\"requestObject\":{\"kind\":\"ConfigMap\"")
    );
    assert!(!text.contains("managedFields"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_audited_at_its_start_and_end() {
    let audited = Audited::by(ALL).await;
    let watch = audited
        .rig
        .watch(&format!("{CONFIG_MAPS}?watch=true"))
        .await;
    let begun = [
        "RequestReceived watch configmaps//",
        "ResponseStarted watch configmaps// 200",
    ];
    assert_eq!(audited.lines(), begun);
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(audited.lines(), [""; 0]);
    drop(watch);
    let event = audited.last();
    assert_eq!(line(&event), "ResponseComplete watch configmaps// 200");
    assert!(event["responseObject"].is_null());
    let [received, complete] =
        ["requestReceivedTimestamp", "stageTimestamp"].map(|field| event[field].str().to_owned());
    assert_eq!(
        (&received[11..19], &complete[11..19]),
        ("08:00:00", "08:01:40")
    );
    assert_eq!(
        event["annotations"]["apiserver.latency.k8s.io/total"].str(),
        "",
        "nothing was slow on the way"
    );
}

#[tokio::test(start_paused = true)]
async fn unauthenticated_and_forbidden_requests_are_audited() {
    let tokens = StaticTokens::parse("good,jane,1,\"dev\"\n").unwrap();
    let options = Options {
        authentication: Authentication {
            tokens,
            ..Default::default()
        },
        ..Options::default()
    };
    let audited = Audited::with(METADATA, |_| {}, options).await;
    let call = async |token: &str| {
        let mut headers = http::HeaderMap::new();
        if !token.is_empty() {
            headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        let uri = CONFIG_MAPS.parse().unwrap();
        audited
            .rig
            .server
            .call(None, http::Method::GET, uri, headers, "".into())
            .await
            .status()
            .as_u16()
    };
    assert_eq!(call("bad").await, 401);
    let events = audited.events();
    let [event] = events.as_slice() else {
        panic!("one event: {events:?}")
    };
    assert_eq!(line(event), "ResponseStarted list configmaps// 401");
    assert_eq!(json::to_string(&event["user"]), "{}");
    assert_eq!(event["responseStatus"]["reason"].str(), "Unauthorized");
    assert!(event["annotations"].is_null());

    assert_eq!(call("").await, 403);
    let event = audited.last();
    assert_eq!(event["user"]["username"].str(), "system:anonymous");
    assert_eq!(
        event["annotations"]["authorization.k8s.io/decision"].str(),
        "forbid"
    );
    assert!(
        event["responseStatus"]["message"]
            .str()
            .contains("cannot list resource \"configmaps\"")
    );

    assert_eq!(call("good").await, 403);
    let event = audited.last();
    assert_eq!(
        (event["user"]["username"].str(), event["user"]["uid"].str()),
        ("jane", "1")
    );
}

#[tokio::test(start_paused = true)]
async fn the_impersonated_user_is_audited() {
    let audited = Audited::by("{level: Metadata, users: [admin]}").await;
    let headers = [
        ("impersonate-user", "jane"),
        ("impersonate-group", "dev"),
        ("impersonate-extra-example.com%2fa", "b"),
    ];
    audited
        .rig
        .call_as(User::master("admin"), &headers, "GET", CONFIG_MAPS, "")
        .await
        .expect(403);
    let event = audited.last();
    assert_eq!(event["user"]["username"].str(), "admin");
    let expected = r#"{"username":"jane","groups":["dev","system:authenticated"],"extra":{"example.com/a":["b"]}}"#;
    assert_eq!(json::to_string(&event["impersonatedUser"]), expected);
    let constraint = event
        .at("authenticationMetadata.impersonationConstraint")
        .str();
    assert_eq!(constraint, "impersonate:user-info");
    let headers = [
        ("impersonate-user", "jane"),
        ("impersonate-group", "system:masters"),
    ];
    audited
        .rig
        .call_as(User::master("admin"), &headers, "GET", CONFIG_MAPS, "")
        .await
        .expect(200);
    assert!(
        audited.last()["authenticationMetadata"].is_null(),
        "allowed in the old way only"
    );
}

#[tokio::test(start_paused = true)]
async fn the_authorization_reason_is_annotated() {
    let audited = Audited::by("{level: Metadata, users: [jane]}").await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = r#"{"metadata":{"name":"r"},"rules":[{"verbs":["list"],"apiGroups":[""],"resources":["configmaps"]}]}"#;
    let binding = r#"{"metadata":{"name":"b"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"r"},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"jane"}]}"#;
    audited
        .rig
        .post(&format!("{rbac}/clusterroles"), role)
        .await
        .expect(201);
    audited
        .rig
        .post(&format!("{rbac}/clusterrolebindings"), binding)
        .await
        .expect(201);
    let jane = User {
        name: "jane".into(),
        ..User::default()
    };
    audited
        .rig
        .call_as(jane, &[], "GET", CONFIG_MAPS, "")
        .await
        .expect(200);
    let annotations = &audited.last()["annotations"];
    assert_eq!(annotations["authorization.k8s.io/decision"].str(), "allow");
    assert_eq!(
        annotations["authorization.k8s.io/reason"].str(),
        r#"RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "r" to User "jane""#
    );
}
