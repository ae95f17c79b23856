//! A server, a clock that tests move, and a client that speaks JSON.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Uri, header};
use http_body_util::BodyExt as _;
use mizzen_apiserver::clock::{CountingRandom, VirtualClock};
use mizzen_apiserver::{Body, Response, Server, User};
use mizzen_controlplane::Options;
use mizzen_registry::Registry;
use mizzen_registry::Store;
use mizzen_value::{Value, json};

pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The time at which every test begins.
const BEGIN: i64 = 1_800_000_000;

/// An engine of its own, on time that tests move.
pub(crate) fn registry(store: Store) -> Registry {
    Registry::new(
        store,
        Arc::new(VirtualClock::starting_at(BEGIN)),
        Arc::new(CountingRandom::default()),
    )
}

/// A server with the namespace `default` and somebody who may do everything.
#[derive(Clone)]
pub(crate) struct Rig {
    pub server: Server,
}

impl Rig {
    pub(crate) async fn new() -> Rig {
        Rig::with(Options::default()).await
    }

    /// The same, set up in another way.
    pub(crate) async fn with(options: impl Into<Options>) -> Rig {
        Rig::on(Store::in_memory(Default::default()), options).await
    }

    pub(crate) async fn on(store: Store, options: impl Into<Options>) -> Rig {
        let rig = Rig {
            server: mizzen_controlplane::server(registry(store), options),
        };
        rig.server.start().await;
        rig.post("/api/v1/namespaces", r#"{"metadata":{"name":"default"}}"#)
            .await
            .expect(201);
        rig
    }

    /// Another server on a copy of the store.
    pub(crate) async fn restarted(&self) -> Rig {
        let clock = Arc::new(VirtualClock::starting_at(BEGIN));
        let random = Arc::new(CountingRandom::from(1 << 40));
        let registry = Registry::new(self.server.registry().store().fork(), clock, random);
        let rig = Rig {
            server: mizzen_controlplane::server(registry, Options::default()),
        };
        rig.server.start().await;
        rig
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.call("GET", path, "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Reply {
        self.call("POST", path, body).await
    }

    pub(crate) async fn put(&self, path: &str, body: &str) -> Reply {
        self.call("PUT", path, body).await
    }

    /// A merge patch.
    pub(crate) async fn patch(&self, path: &str, body: &str) -> Reply {
        self.call("PATCH", path, body).await
    }

    pub(crate) async fn delete(&self, path: &str, body: &str) -> Reply {
        self.call("DELETE", path, body).await
    }

    /// A server-side apply by `manager`.
    pub(crate) async fn apply(&self, path: &str, manager: &str, body: &str) -> Reply {
        self.call("APPLY", &format!("{path}?fieldManager={manager}"), body)
            .await
    }

    /// What the admin gets; the method may be a form of patches.
    pub(crate) async fn call(&self, method: &str, path: &str, body: &str) -> Reply {
        self.call_as(User::master("admin"), &[], method, path, body)
            .await
    }

    /// What somebody gets who says something in headers besides.
    pub(crate) async fn call_as(
        &self,
        user: User,
        headers: &[(&'static str, &str)],
        method: &str,
        path: &str,
        body: &str,
    ) -> Reply {
        let answer = self.send_as(user, headers, method, path, body).await;
        let status = answer.status().as_u16();
        let warnings = answer.headers().get_all(header::WARNING).iter();
        let warnings = warnings
            .map(|warning| warning.to_str().expect("text").to_owned())
            .collect();
        let body = answer
            .into_body()
            .collect()
            .await
            .expect("bodies do not fail")
            .to_bytes();
        Reply {
            status,
            warnings,
            body: json::parse(&body)
                .unwrap_or_else(|_| String::from_utf8_lossy(&body).into_owned().into()),
        }
    }

    /// The aggregated form of a discovery document.
    pub(crate) async fn aggregated(&self, path: &str) -> Value {
        let mut headers = HeaderMap::new();
        let form = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        headers.insert(header::ACCEPT, HeaderValue::from_static(form));
        let user = User::master("admin");
        let answer = self
            .server
            .call(
                Some(user),
                Method::GET,
                path.parse().unwrap(),
                headers,
                Bytes::new(),
            )
            .await;
        assert_eq!(answer.status(), 200);
        json::parse(
            &answer
                .into_body()
                .collect()
                .await
                .expect("no failure")
                .to_bytes(),
        )
        .expect("sound JSON")
    }

    /// Sends a request; the answer's body is still to come.
    pub(crate) async fn send(&self, method: &str, path: &str, body: &str) -> Response {
        self.send_as(User::master("admin"), &[], method, path, body)
            .await
    }

    pub(crate) async fn send_as(
        &self,
        user: User,
        more: &[(&'static str, &str)],
        method: &str,
        path: &str,
        body: &str,
    ) -> Response {
        let mut headers = HeaderMap::new();
        for (name, value) in more {
            headers.append(*name, value.parse().unwrap());
        }
        let (method, media_type) = match method {
            "PATCH" => (method, "application/merge-patch+json"),
            "APPLY" => ("PATCH", "application/apply-patch+yaml"),
            "JSON" => ("PATCH", "application/json-patch+json"),
            "STRATEGIC" => ("PATCH", "application/strategic-merge-patch+json"),
            _ => (method, "application/json"),
        };
        headers
            .entry(header::CONTENT_TYPE)
            .or_insert(HeaderValue::from_static(media_type));
        let (method, uri): (Method, Uri) = (method.parse().unwrap(), path.parse().unwrap());
        self.server
            .call(
                Some(user),
                method,
                uri,
                headers,
                Bytes::from(body.to_owned()),
            )
            .await
    }

    /// Makes a ConfigMap with a text in it.
    pub(crate) async fn make(&self, name: &str, text: &str) -> Reply {
        let body = format!(r#"{{"metadata":{{"name":"{name}"}},"data":{{"text":"{text}"}}}}"#);
        self.post(CONFIG_MAPS, &body).await.expect(201)
    }

    /// The events of a collection.
    pub(crate) async fn watch(&self, path: &str) -> Events {
        let answer = self.send("GET", path, "").await;
        assert_eq!(answer.status(), 200);
        Events {
            body: answer.into_body(),
            rest: Vec::new(),
        }
    }
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub status: u16,
    /// The `Warning` headers.
    pub warnings: Vec<String>,
    pub body: Value,
}

impl Reply {
    /// Itself, if its status is the expected one.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Reply {
        assert_eq!(self.status, status, "{}", json::to_string(&self.body));
        self
    }

    pub(crate) fn version(&self) -> u64 {
        self.body
            .at("metadata.resourceVersion")
            .str()
            .parse()
            .expect("a version")
    }

    /// Why it was refused.
    pub(crate) fn message(&self) -> &str {
        self.body["message"].str()
    }

    /// The names of a list's items.
    pub(crate) fn names(&self) -> Vec<String> {
        self.body["items"]
            .list()
            .iter()
            .map(|item| item.at("metadata.name").str().to_owned())
            .collect()
    }
}

/// A watch's events, as they come.
pub(crate) struct Events {
    body: Body,
    rest: Vec<u8>,
}

impl Events {
    /// The next event, or none when the watch is over. Virtual time passes while it waits.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(json::parse(&line).expect("sound JSON"));
            }
            let frame = self.body.frame().await?.expect("bodies do not fail");
            self.rest
                .extend_from_slice(&frame.into_data().expect("data"));
        }
    }

    /// The next event as `TYPE name`, or as `end`.
    pub(crate) async fn next_name(&mut self) -> String {
        match self.next().await {
            Some(event) => format!(
                "{} {}",
                event["type"].str(),
                event.at("object.metadata.name").str()
            ),
            None => "end".into(),
        }
    }
}
