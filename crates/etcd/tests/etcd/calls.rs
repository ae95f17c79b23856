//! Reads, transactions, leases, compaction, and what is wrong with a request.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mizzen_etcd::client::{Client, Code, Config, ConfigError, Outcome};
use mizzen_etcd::messages::{
    CompactionRequest, Compare, KeyValue, LeaseGrantRequest, LeaseRevokeRequest, RangeRequest,
    RequestOp, Response, TxnRequest, TxnResponse,
};

use crate::server::{self, Options, WallClock};

/// Writes a key whatever it is, and returns the revision.
pub(crate) async fn put(client: &Client, key: &str, value: impl Into<Bytes>) -> i64 {
    let put = RequestOp::put(key.to_owned(), value, 0);
    let response = client.txn(unconditional(put)).await.expect("a write");
    revision(&response)
}

pub(crate) fn unconditional(op: RequestOp) -> TxnRequest {
    TxnRequest {
        success: vec![op],
        ..TxnRequest::default()
    }
}

pub(crate) fn get(key: &str) -> RangeRequest {
    RangeRequest {
        key: key.to_owned().into(),
        ..RangeRequest::default()
    }
}

fn revision(response: &TxnResponse) -> i64 {
    response.header.as_ref().expect("a header").revision
}

#[tokio::test]
async fn a_range_is_read_in_pages_at_one_revision() {
    for etcd in server::installed() {
        let cluster = etcd.start(Options::default()).await;
        let client = cluster.client();
        let mut last = 0;
        for index in 0..7 {
            last = put(&client, &format!("/pods/{index}"), format!("v{index}")).await;
        }
        let mut request = RangeRequest {
            key: "/pods/".into(),
            range_end: "/pods0".into(),
            limit: 3,
            ..RangeRequest::default()
        };
        let mut pages = Vec::new();
        loop {
            let page = client.range(request.clone()).await.expect("a page");
            let keys = page
                .kvs
                .iter()
                .map(|kv| String::from_utf8_lossy(&kv.key).into_owned());
            pages.push((keys.collect::<Vec<_>>().join(" "), page.count));
            if request.revision == 0 {
                request.revision = page.header.expect("a header").revision;
                // Not seen by the pages that follow.
                put(&client, "/pods/55", "late").await;
            }
            let Some(kv) = page.kvs.last().filter(|_| page.more) else {
                break;
            };
            request.key = [&kv.key[..], &[0]].concat().into();
        }
        assert_eq!(request.revision, last);
        let expected = [
            ("/pods/0 /pods/1 /pods/2".to_owned(), 7),
            ("/pods/3 /pods/4 /pods/5".to_owned(), 4),
            ("/pods/6".to_owned(), 1),
        ];
        assert_eq!(pages, expected);
    }
}

#[tokio::test]
async fn a_transaction_takes_the_branch_of_its_comparisons() {
    for etcd in server::installed() {
        let cluster = etcd.start(Options::default()).await;
        let client = cluster.client();
        let create = TxnRequest {
            compare: vec![Compare::mod_revision("/a", 0)],
            success: vec![RequestOp::put("/a", "1", 0)],
            failure: vec![RequestOp::get("/a")],
        };
        let first = client.txn(create.clone()).await.expect("a transaction");
        assert!(first.succeeded);
        let second = client.txn(create).await.expect("a transaction");
        assert!(!second.succeeded);
        let Some(Response::Range(found)) = &second.responses[0].response else {
            panic!("{second:?}");
        };
        assert_eq!(found.kvs[0].value, "1");
        assert_eq!(found.kvs[0].mod_revision, revision(&first));

        let delete = TxnRequest {
            compare: vec![Compare::mod_revision("/a", revision(&first))],
            success: vec![RequestOp::delete("/a")],
            failure: vec![],
        };
        assert!(client.txn(delete).await.expect("a transaction").succeeded);
        let gone = client.range(get("/a")).await.expect("a read");
        assert_eq!(gone.count, 0);
    }
}

#[tokio::test]
async fn a_revision_that_is_compacted_or_not_reached_cannot_be_read() {
    for etcd in server::installed() {
        let cluster = etcd.start(Options::default()).await;
        let client = cluster.client();
        let first = put(&client, "/a", "1").await;
        let second = put(&client, "/a", "2").await;
        let compact = CompactionRequest {
            revision: second,
            physical: true,
        };
        client.compact(compact.clone()).await.expect("a compaction");

        let at = |revision| RangeRequest {
            revision,
            ..get("/a")
        };
        let error = client.range(at(first)).await.expect_err("compacted");
        assert!(error.is_compacted(), "{error:?}");
        let error = client
            .range(at(second + 9))
            .await
            .expect_err("in the future");
        assert!(error.is_future_revision(), "{error:?}");
        let again = client.compact(compact).await.expect_err("compacted");
        assert!(again.is_compacted(), "{again:?}");
        assert_eq!(again.outcome, Outcome::NotExecuted);
        let read = client.range(at(second)).await.expect("the oldest revision");
        assert_eq!(read.kvs[0].value, "2");
    }
}

#[tokio::test]
async fn several_keys_are_read_at_one_revision() {
    for etcd in server::installed() {
        let cluster = etcd.start(Options::default()).await;
        let client = cluster.client();
        put(&client, "/a", "1").await;
        let second = put(&client, "/b", "1").await;
        let last = put(&client, "/a", "2").await;
        let at = |revision| {
            let read = |key| RangeRequest {
                revision,
                ..get(key)
            };
            client.ranges(["/b", "/missing", "/a"].map(read).into())
        };
        for (revision, expected) in [(second, "1"), (last, "2"), (0, "2")] {
            let ranges = at(revision).await.expect("a read");
            let values = ranges.iter().map(|range| {
                let value = |kv: &KeyValue| String::from_utf8(kv.value.to_vec()).unwrap();
                range.kvs.iter().map(value).collect::<String>()
            });
            assert_eq!(values.collect::<Vec<_>>(), ["1", "", expected]);
        }
        let compact = CompactionRequest {
            revision: last,
            physical: true,
        };
        client.compact(compact).await.expect("a compaction");
        let error = at(second).await.expect_err("compacted");
        assert!(error.is_compacted(), "{error:?}");
        let error = at(last + 9).await.expect_err("in the future");
        assert!(error.is_future_revision(), "{error:?}");
    }
}

#[tokio::test]
async fn a_lease_that_is_revoked_takes_its_keys_with_it() {
    for etcd in server::installed() {
        let cluster = etcd.start(Options::default()).await;
        let client = cluster.client();
        let grant = LeaseGrantRequest { ttl: 600, id: 0 };
        let lease = client.lease_grant(grant).await.expect("a lease").id;
        let event = unconditional(RequestOp::put("/events/e", "{}", lease));
        client.txn(event.clone()).await.expect("a write");
        let read = client.range(get("/events/e")).await.expect("a read");
        assert_eq!(read.kvs[0].lease, lease);

        let revoke = LeaseRevokeRequest { id: lease };
        client.lease_revoke(revoke).await.expect("an end");
        let read = client.range(get("/events/e")).await.expect("a read");
        assert_eq!(read.count, 0);
        let error = client.txn(event).await.expect_err("no lease");
        assert!(error.is_lease_not_found(), "{error:?}");
        assert_eq!(error.outcome, Outcome::NotExecuted);
        let error = client.lease_revoke(revoke).await.expect_err("no lease");
        assert!(error.is_lease_not_found(), "{error:?}");
    }
}

#[tokio::test]
async fn a_request_that_is_too_large_is_refused_by_etcd_or_before_it_is_sent() {
    for etcd in server::installed() {
        let cluster = etcd.start(Options::default()).await;
        let client = cluster.client();
        // etcd's own limit is 1.5 MiB.
        for n_bytes in [1_600_000, 3_000_000] {
            let put = unconditional(RequestOp::put("/large", vec![b'x'; n_bytes], 0));
            let error = client.txn(put).await.expect_err("too large");
            assert!(error.is_too_large(), "{error:?}");
            assert_eq!(error.outcome, Outcome::NotExecuted);
        }
        let value = vec![b'x'; 1_500_000];
        put(&client, "/large", value.clone()).await;
        let read = client.range(get("/large")).await.expect("a read");
        assert_eq!(read.kvs[0].value, value);
    }
}

#[tokio::test]
async fn a_full_database_refuses_writes_and_answers_reads() {
    for etcd in server::installed() {
        let options = Options {
            flags: vec!["--quota-backend-bytes=2000000"],
            ..Options::default()
        };
        let cluster = etcd.start(options).await;
        let client = cluster.client();
        let mut error = None;
        for index in 0..100 {
            let key = format!("/fill/{index}");
            let put = unconditional(RequestOp::put(key, vec![b'x'; 400_000], 0));
            if let Err(refused) = client.txn(put).await {
                error = Some(refused);
                break;
            }
        }
        let error = error.expect("the database has a limit");
        assert!(error.is_no_space(), "{error:?}");
        assert_eq!(error.outcome, Outcome::NotExecuted);
        let read = client.range(get("/fill/0")).await.expect("a read");
        assert_eq!(read.count, 1);
    }
}

#[tokio::test]
async fn the_status_tells_versions_from_which_features_follow() {
    for etcd in server::installed() {
        let options = Options {
            n_members: 3,
            ..Options::default()
        };
        let cluster = etcd.start(options).await;
        let client = cluster.client();
        let answers = client.status().await;
        assert_eq!(answers.len(), 3);
        let mut is_fixed = true;
        for (index, answer) in answers.iter().enumerate() {
            assert_eq!(answer.endpoint, cluster.endpoint(index));
            let status = answer.status.as_ref().expect("a status");
            assert!(status.db_size > 0 && status.leader != 0, "{status:?}");
            let old = ["3.4.2", "3.5.1", "3.5.0"];
            is_fixed &= !old.iter().any(|old| status.version.starts_with(old));
        }
        let features = client.features().await;
        assert_eq!(features.request_watch_progress, is_fixed);
        assert!(features.unchecked.is_empty());
        let limit = Duration::from_secs(10);
        client.health("registry", limit).await.expect("healthy");
    }
}

#[tokio::test]
async fn an_unreachable_endpoint_is_named() {
    // Port 9 of loopback: discard, which does not listen.
    let config = Config::new(vec!["127.0.0.1:9".into()], Arc::new(WallClock));
    let client = Client::connect(config).expect("a good configuration");
    let put = unconditional(RequestOp::put("/a", "1", 0));
    let error = client.txn(put).await.expect_err("no server");
    assert_eq!(
        (error.code, error.outcome),
        (Code::Unavailable, Outcome::NotExecuted)
    );
    assert_eq!(
        error.message,
        "connection to http://127.0.0.1:9: dial tcp 127.0.0.1:9: connect: connection refused"
    );
    let limit = Duration::from_millis(300);
    let error = client.health("/registry", limit).await.expect_err("down");
    assert!(
        error
            .message
            .starts_with("error getting data from etcd: connection to http://127.0.0.1:9:"),
        "{error:?}"
    );
    let features = client.features().await;
    assert!(!features.request_watch_progress);
    assert_eq!(features.unchecked, ["http://127.0.0.1:9"]);
}

#[tokio::test]
async fn a_configuration_that_makes_no_sense_is_rejected() {
    let connect = |endpoints: &[&str]| {
        let endpoints = endpoints.iter().map(|endpoint| (*endpoint).to_owned());
        Config::new(endpoints.collect(), Arc::new(WallClock))
    };
    let rejected = |config| Client::connect(config).expect_err("no sense");
    assert_eq!(rejected(connect(&[])), ConfigError::NoEndpoints);
    for endpoint in [
        "",
        "etcd",
        "unix:///run/etcd",
        "http://a:1/path",
        "http://:::",
    ] {
        let error = rejected(connect(&["http://127.0.0.1:1", endpoint]));
        assert_eq!(error, ConfigError::Endpoint(endpoint.into()));
    }
    let mut config = connect(&["127.0.0.1:1"]);
    config.cert_file = Some("client.pem".into());
    assert_eq!(rejected(config), ConfigError::Identity);
}
