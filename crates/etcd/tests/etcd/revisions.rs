//! Revisions that are used up for objects that keep theirs.

use mizzen_etcd::Revisions;
use mizzen_etcd::messages::RangeRequest;

use crate::calls::{get, put};
use crate::server::{self, Options};

#[tokio::test]
async fn revisions_are_used_up_and_compacted_on_the_way() {
    for etcd in server::installed() {
        let cluster = etcd.start(Options::default()).await;
        let client = cluster.client();
        let mut revisions = Revisions::begin(client.clone(), 50).await.expect("etcd");
        for (key, revision) in [("/a", 30), ("/b", 31), ("/c", 230)] {
            revisions.use_up_to(revision).await.expect("etcd");
            assert_eq!(put(&client, key, "").await, revision as i64);
            revisions.written();
            assert_eq!(revisions.at(), revision);
        }
        // etcd begins at revision 1, so that the fourth time that 50 were used up was at 203.
        let at = |revision: i64| {
            let request = RangeRequest {
                revision,
                ..get("/a")
            };
            client.range(request)
        };
        let compacted = at(202).await.expect_err("a compacted revision");
        assert!(compacted.is_compacted(), "{compacted}");
        let kept = at(204).await.expect("a revision that was not compacted");
        assert_eq!(kept.kvs[0].mod_revision, 30);
        let now = async || {
            let left = client.range(get("mizzen_import_revision")).await;
            let left = left.expect("etcd");
            assert!(left.kvs.is_empty());
            left.header.expect("a header").revision
        };
        revisions.end_at(300).await.expect("etcd");
        assert_eq!(now().await, 300, "also after the last write");
        // A revision of the past needs none, and the next one two, since nothing but the key takes it.
        for (end, expected) in [(200, 300), (301, 302)] {
            let revisions = Revisions::begin(client.clone(), 50).await.expect("etcd");
            revisions.end_at(end).await.expect("etcd");
            assert_eq!(now().await, expected);
        }
    }
}
