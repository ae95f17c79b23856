//! Do the OpenAPI documents say what clients and their generators need? Rules that hold for every operation and schema.

use std::collections::HashSet;

use http_body_util::BodyExt as _;
use mizzen_apiserver::User;
use mizzen_value::{Value, json};

use crate::crd::{define, definition, version};
use crate::rig::Rig;

const PROTOBUF: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
];

/// Every document, v2 first, with a custom kind among what they describe.
async fn documents(rig: &Rig) -> Vec<(String, Value)> {
    define(
        rig,
        &definition(vec![version("v1", true, r#"{"a":{"type":"string"}}"#)]),
    )
    .await;
    let mut documents = vec![(
        "v2".to_owned(),
        rig.get("/openapi/v2").await.expect(200).body,
    )];
    let index = rig.get("/openapi/v3").await.expect(200).body;
    for (path, document) in index["paths"].entries() {
        let document = rig
            .get(document["serverRelativeURL"].str())
            .await
            .expect(200)
            .body;
        documents.push((path.to_owned(), document));
    }
    assert!(
        documents
            .iter()
            .any(|(path, _)| path == "apis/example.com/v1")
    );
    documents
}

/// What a reference leads to, or the value itself.
fn resolve<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    match value.get("$ref") {
        Some(reference) => reference
            .str()
            .split('/')
            .skip(1)
            .fold(document, |at, part| &at[part]),
        None => value,
    }
}

/// Every operation, with its path and the parameters of it and of the path.
fn operations(document: &Value) -> Vec<(&str, &str, &Value, Vec<&Value>)> {
    let mut found = Vec::new();
    for (path, item) in document["paths"].entries() {
        for (method, operation) in item.entries().filter(|(method, _)| *method != "parameters") {
            let parameters = item["parameters"]
                .list()
                .iter()
                .chain(operation["parameters"].list());
            let parameters = parameters
                .map(|parameter| resolve(document, parameter))
                .collect();
            found.push((path, method, operation, parameters));
        }
    }
    found
}

#[tokio::test]
async fn every_parameter_has_a_description() {
    let rig = Rig::new().await;
    let mut seen = 0;
    for (name, document) in documents(&rig).await {
        for (path, method, _, parameters) in operations(&document) {
            let place = format!("{name}: {method} {path}");
            for parameter in &parameters {
                seen += 1;
                let called = parameter["name"].str();
                assert!(
                    !called.is_empty(),
                    "{place}: {}",
                    json::to_string(parameter)
                );
                if parameter["in"].str() == "body" {
                    assert!(
                        !resolve(&document, &parameter["schema"]).is_null(),
                        "{place}: {called}"
                    );
                    continue;
                }
                assert!(
                    !parameter["description"].str().is_empty(),
                    "{place}: {called} has no description"
                );
                let ty = if name == "v2" {
                    &parameter["type"]
                } else {
                    &parameter["schema"]["type"]
                };
                assert!(
                    matches!(ty.str(), "string" | "integer" | "boolean"),
                    "{place}: {called}"
                );
                let in_path =
                    path.contains(&format!("{{{called}}}")) && parameter["in"].str() == "path";
                assert!(
                    in_path || parameter["in"].str() == "query",
                    "{place}: {called}"
                );
                assert_eq!(parameter["required"].bool(), in_path, "{place}: {called}");
            }
            let in_path = parameters
                .iter()
                .filter(|parameter| parameter["in"].str() == "path");
            assert_eq!(in_path.count(), path.matches('{').count(), "{place}");
        }
    }
    assert!(seen > 10_000, "{seen}");
}

#[tokio::test]
async fn every_operation_has_an_id_a_response_and_a_kind() {
    let rig = Rig::new().await;
    for (name, document) in documents(&rig).await {
        let mut ids = HashSet::new();
        for (path, method, operation, _) in operations(&document) {
            let place = format!("{name}: {method} {path}");
            assert!(ids.insert(operation["operationId"].str()), "{place}");
            assert!(!operation["tags"][0].str().is_empty(), "{place}");
            assert!(!operation["responses"]["200"].is_null(), "{place}");
            assert!(!operation["responses"]["401"].is_null(), "{place}");
            let about_objects = !operation["x-kubernetes-action"].is_null();
            let kind = &operation["x-kubernetes-group-version-kind"]["kind"];
            assert_eq!(about_objects, !kind.str().is_empty(), "{place}");
        }
    }
}

/// Checks a schema and all within it.
fn check(document: &Value, place: &str, schema: &Value) {
    if schema.get("$ref").is_some() {
        assert!(
            !resolve(document, schema).is_null(),
            "{place}: {}",
            schema["$ref"].str()
        );
        return;
    }
    let properties = &schema["properties"];
    for required in schema["required"].list() {
        assert!(
            properties.get(required.str()).is_some(),
            "{place}: {} is required",
            required.str()
        );
    }
    if let Some(default) = schema.get("default") {
        let fits = match schema["type"].str() {
            "string" => default.as_str().is_some(),
            "integer" => default.as_int().is_some(),
            "boolean" => default.as_bool().is_some(),
            _ => true,
        };
        assert!(fits, "{place}: {}", json::to_string(default));
    }
    if schema["type"].str() == "array" {
        assert!(
            schema.get("items").is_some(),
            "{place} is a list of nothing"
        );
    }
    let of_map = schema["x-kubernetes-list-type"].str() == "map";
    assert_eq!(
        of_map,
        schema.get("x-kubernetes-list-map-keys").is_some(),
        "{place}"
    );
    for (name, property) in properties.entries() {
        check(document, &format!("{place}.{name}"), property);
    }
    for part in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get(part).filter(|inner| inner.as_map().is_some()) {
            check(document, &format!("{place}.{part}"), inner);
        }
    }
    for part in ["allOf", "oneOf", "anyOf"] {
        schema[part]
            .list()
            .iter()
            .for_each(|inner| check(document, place, inner));
    }
}

#[tokio::test]
async fn every_schema_is_valid() {
    let rig = Rig::new().await;
    for (name, document) in documents(&rig).await {
        let schemas = if name == "v2" {
            &document["definitions"]
        } else {
            &document["components"]["schemas"]
        };
        for (definition, schema) in schemas.entries() {
            check(&document, &format!("{name}: {definition}"), schema);
        }
    }
}

#[tokio::test]
async fn a_custom_kind_is_described_like_upstreams() {
    let rig = Rig::new().await;
    let documents = documents(&rig).await;
    let (_, document) = documents
        .iter()
        .find(|(name, _)| name == "apis/example.com/v1")
        .unwrap();
    assert_eq!(document["info"]["title"].str(), "Kubernetes CRD Swagger");
    assert!(document["components"]["securitySchemes"].is_null());
    let get = &document["paths"]["/apis/example.com/v1/namespaces/{namespace}/foos/{name}"]["get"];
    assert_eq!(get["parameters"][0]["name"].str(), "resourceVersion");
}

async fn bytes(rig: &Rig, path: &str, accept: &str) -> (u16, String, Vec<u8>) {
    let answer = rig
        .send_as(
            User::master("admin"),
            &[("accept", accept)],
            "GET",
            path,
            "",
        )
        .await;
    let status = answer.status().as_u16();
    let header = answer
        .headers()
        .get("content-type")
        .map(|value| value.to_str().unwrap().to_owned());
    let body = answer
        .into_body()
        .collect()
        .await
        .expect("bodies do not fail")
        .to_bytes();
    (status, header.unwrap_or_default(), body.to_vec())
}

#[tokio::test]
async fn documents_are_also_protobuf() {
    let rig = Rig::new().await;
    for (path, accept, start) in [
        ("/openapi/v2", PROTOBUF[0], &b"\n\x032.0"[..]),
        ("/openapi/v3/apis/apps/v1", PROTOBUF[1], b"\n\x053.0.0"),
        (
            "/openapi/v3/version",
            "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
            b"\n\x053.0.0",
        ),
    ] {
        let (status, media_type, body) = bytes(&rig, path, accept).await;
        assert_eq!(
            (status, media_type),
            (200, accept.replace('@', ".")),
            "{path}"
        );
        assert!(body.starts_with(start), "{path}");
        let (_, media_type, _) =
            bytes(&rig, path, &format!("{accept};q=0.5,application/json")).await;
        assert_eq!(media_type, "application/json", "{path}");
    }
    assert_eq!(bytes(&rig, "/openapi/v3/version", PROTOBUF[0]).await.0, 406);
    assert_eq!(bytes(&rig, "/openapi/v2", PROTOBUF[1]).await.0, 406);
}

#[tokio::test]
async fn a_document_of_v3_is_found_by_its_exact_path_and_hash() {
    let rig = Rig::new().await;
    let path = "/openapi/v3/apis/apps/v1";
    for (path, accept, status) in [
        (path, "application/json", 200),
        (path, "*", 200),
        (path, "application/yaml", 406),
        (path, "Application/JSON", 406),
        // Kubernetes: not a single clause.
        (path, "garbage", 200),
        ("/openapi/v3/apis/apps/v1/", "application/json", 404),
        ("/openapi/v3/nothing", "text/plain", 404),
    ] {
        assert_eq!(bytes(&rig, path, accept).await.0, status, "{path} {accept}");
    }
    let index = rig.get("/openapi/v3").await.expect(200).body;
    let known = index["paths"]["apis/apps/v1"]["serverRelativeURL"]
        .str()
        .to_owned();
    let header = async |path: &str, name: &str| {
        let answer = rig.send("GET", path, "").await;
        let value = answer
            .headers()
            .get(name)
            .map(|value| value.to_str().unwrap().to_owned());
        (answer.status().as_u16(), value.unwrap_or_default())
    };
    assert_eq!(
        header(&known, "cache-control").await,
        (200, "public, immutable".into())
    );
    assert_eq!(
        header(path, "cache-control").await,
        (200, "no-cache, private".into())
    );
    assert_eq!(header(path, "vary").await, (200, "Accept".into()));
    assert_eq!(
        header(&format!("{path}?hash=OLD"), "location").await,
        (301, known.clone())
    );
}

#[tokio::test]
async fn a_document_that_the_client_has_is_not_sent_again() {
    let rig = Rig::new().await;
    let send = async |method: &str, tag: &str| {
        rig.send_as(
            User::master("admin"),
            &[("if-none-match", tag)],
            method,
            "/openapi/v2",
            "",
        )
        .await
    };
    let first = send("GET", "").await;
    let tag = first.headers()["etag"].to_str().unwrap().to_owned();
    let varies: Vec<_> = first.headers().get_all("vary").iter().collect();
    assert_eq!(varies, ["Accept-Encoding", "Accept"]);
    for (method, known, status) in [
        ("GET", &*tag, 304),
        ("HEAD", &tag, 304),
        ("GET", &format!("W/{tag}"), 304),
        ("GET", &format!("\"a\", {tag}"), 304),
        ("GET", "*", 304),
        ("POST", &tag, 412),
        ("GET", "\"a\"", 200),
        ("GET", &format!("a,{tag}"), 200),
    ] {
        let answer = send(method, known).await;
        assert_eq!(answer.status().as_u16(), status, "{method} {known}");
        assert_eq!(
            answer.headers().contains_key("content-type"),
            status != 304,
            "{method} {known}"
        );
    }
}

#[tokio::test]
async fn a_document_has_a_modification_time_and_supports_ranges() {
    let rig = Rig::new().await;
    let send = async |path: &str, name: &'static str, value: &str| {
        rig.send_as(User::master("admin"), &[(name, value)], "GET", path, "")
            .await
    };
    for path in ["/openapi/v2", "/openapi/v3/version", "/openapi/v3"] {
        let answer = rig.send("GET", path, "").await;
        assert_eq!(answer.headers()["accept-ranges"], "bytes", "{path}");
        let modified = answer.headers()["last-modified"]
            .to_str()
            .unwrap()
            .to_owned();
        let whole = answer.into_body().collect().await.unwrap().to_bytes();
        let known = send(path, "if-modified-since", &modified).await;
        // The index may have changed since, though the clock shows the same second.
        let expected = if path == "/openapi/v3" { 200 } else { 304 };
        assert_eq!(known.status(), expected, "{path}");
        let changed = send(path, "if-unmodified-since", "Thu, 01 Jan 1970 00:00:00 GMT").await;
        assert_eq!(changed.status(), 412, "{path}");
        let part = send(path, "range", "bytes=2-5").await;
        assert_eq!(part.status(), 206, "{path}");
        assert_eq!(
            part.headers()["content-range"],
            format!("bytes 2-5/{}", whole.len()),
            "{path}"
        );
        assert_eq!(
            part.into_body().collect().await.unwrap().to_bytes(),
            whole[2..6],
            "{path}"
        );
        let behind = send(path, "range", &format!("bytes={}-", whole.len())).await;
        assert_eq!(behind.status(), 416, "{path}");
        assert_eq!(
            behind.headers()["content-range"],
            format!("bytes */{}", whole.len()),
            "{path}"
        );
        let odd = send(path, "range", "bytes=5-2").await;
        assert_eq!(odd.status(), 416, "{path}");
        assert!(!odd.headers().contains_key("content-range"), "{path}");
    }
}
