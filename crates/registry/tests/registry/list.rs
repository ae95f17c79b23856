//! Listing objects: pages, versions, selectors, tokens that expire.

use mizzen_registry::{DeleteOptions, ListOptions, Match, Revision};

use crate::rig::{Rig, UpdateOptions, each_store, named, names, selected};

async fn make(rig: &Rig, n_objects: usize) {
    for number in 0..n_objects {
        let label = if number % 2 == 0 { "even" } else { "odd" };
        let text = format!(r#"{{"metadata":{{"name":"m{number}","labels":{{"l":"{label}"}}}}}}"#);
        rig.create(&rig.config_maps(), &text).await.unwrap();
    }
}

fn page(limit: usize, token: &str) -> ListOptions {
    ListOptions {
        limit,
        token: token.into(),
        ..ListOptions::default()
    }
}

#[tokio::test]
async fn every_page_shows_the_state_of_the_first() {
    for rig in each_store() {
        let maps = rig.config_maps();
        make(&rig, 5).await;
        let first = rig.list(&maps, &page(2, "")).await.ok().unwrap();
        assert_eq!(names(&first), ["m0", "m1"]);
        assert_eq!(first.remaining, Some(3));

        rig.create(&maps, &named("m11")).await.unwrap();
        let options = DeleteOptions::default();
        let key = crate::rig::key("m3");
        rig.registry
            .delete(&maps, &key, &options, &mizzen_registry::NoAdmission)
            .await
            .unwrap();
        let second = rig.list(&maps, &page(2, &first.token)).await.ok().unwrap();
        assert_eq!(names(&second), ["m2", "m3"]);
        assert_eq!((second.remaining, second.version), (Some(1), first.version));
        let last = rig.list(&maps, &page(2, &second.token)).await.ok().unwrap();
        assert_eq!(names(&last), ["m4"]);
        assert_eq!((last.token.as_str(), last.remaining), ("", None));
        let now = rig.list(&maps, &ListOptions::default()).await.ok().unwrap();
        assert_eq!(names(&now), ["m0", "m1", "m11", "m2", "m4"]);
    }
}

#[tokio::test]
async fn a_page_is_filled_with_selected_objects_and_has_no_remaining_count() {
    for rig in each_store() {
        let maps = rig.config_maps();
        make(&rig, 7).await;
        let options = |token: &str| ListOptions {
            selection: selected("l=even", ""),
            ..page(2, token)
        };
        let first = rig.list(&maps, &options("")).await.ok().unwrap();
        assert_eq!(
            (names(&first), first.remaining),
            (vec!["m0".into(), "m2".into()], None)
        );
        let last = rig.list(&maps, &options(&first.token)).await.ok().unwrap();
        assert_eq!(
            (names(&last), last.token.as_str()),
            (vec!["m4".into(), "m6".into()], "")
        );
    }
}

#[tokio::test]
async fn a_token_of_a_compacted_revision_is_answered_with_one_that_goes_on_now() {
    for rig in each_store() {
        let maps = rig.config_maps();
        make(&rig, 3).await;
        let first = rig.list(&maps, &page(1, "")).await.ok().unwrap();
        rig.create(&maps, &named("m9")).await.unwrap();
        let now = rig.registry.store().revision();
        rig.registry.store().compact_history(now).await;
        let expired = rig.list(&maps, &page(1, &first.token)).await.err().unwrap();
        assert_eq!((expired.code, expired.reason.as_str()), (410, "Expired"));
        let token = expired.token.unwrap();
        let rest = rig.list(&maps, &page(0, &token)).await.ok().unwrap();
        assert_eq!(names(&rest), ["m1", "m2", "m9"]);
        assert_eq!(rest.version, now);
    }
}

#[tokio::test]
async fn a_list_with_an_exact_match_shows_that_resource_version() {
    for rig in each_store() {
        let maps = rig.config_maps();
        make(&rig, 2).await;
        let version = rig.revision();
        make_one_more(&rig).await;
        let options = |matching, limit| ListOptions {
            version: version.clone(),
            matching,
            limit,
            ..ListOptions::default()
        };
        let count = async |options| rig.list(&maps, &options).await.ok().unwrap().items.len();
        assert_eq!(count(options(Match::Exact, 0)).await, 2);
        assert_eq!(count(options(Match::NotOlderThan, 0)).await, 3);
        assert_eq!(count(options(Match::Unset, 0)).await, 3);
        assert_eq!(
            count(options(Match::Unset, 5)).await,
            2,
            "a limit makes it exact"
        );
        let zero = ListOptions {
            version: "0".into(),
            limit: 1,
            ..ListOptions::default()
        };
        assert_eq!(count(zero).await, 3, "version 0 ignores limits");
    }
}

async fn make_one_more(rig: &Rig) {
    rig.create(&rig.config_maps(), &named("m8")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_yet_to_come_is_waited_for() {
    let [rig, _] = each_store();
    let maps = rig.config_maps();
    make(&rig, 1).await;
    let next = rig.registry.store().revision().0 + 1;
    let options = ListOptions {
        version: next.to_string(),
        ..ListOptions::default()
    };
    let refusal = rig.list(&maps, &options).await.err().unwrap();
    assert_eq!((refusal.code, refusal.retry_after), (504, Some(1)));
    let (list, ()) = tokio::join!(rig.list(&maps, &options), make_one_more(&rig));
    assert_eq!(list.ok().unwrap().version, Revision(next));
}

#[tokio::test]
async fn fields_select_with_an_index_and_without() {
    for rig in each_store() {
        let pods = rig.resource("v1/pods");
        for (name, node) in [("p0", "n0"), ("p1", "n1"), ("p2", "n0")] {
            let text = format!(
                r#"{{"metadata":{{"name":"{name}"}},"spec":{{"nodeName":"{node}","containers":[{{"name":"c","image":"i"}}]}}}}"#
            );
            rig.create(&pods, &text).await.unwrap();
        }
        let rig = rig.reopened().await;
        let pods = rig.resource("v1/pods");
        for (fields, expected) in [
            ("spec.nodeName=n0", vec!["p0", "p2"]),
            ("spec.nodeName!=n0", vec!["p1"]),
            ("spec.restartPolicy=Always", vec!["p0", "p1", "p2"]),
            ("metadata.name=p1", vec!["p1"]),
            ("metadata.name=p1,spec.nodeName=n0", vec![]),
        ] {
            let options = ListOptions {
                selection: selected("", fields),
                ..ListOptions::default()
            };
            let list = rig.list(&pods, &options).await.ok().unwrap();
            assert_eq!(names(&list), expected, "{fields}");
        }
    }
}

#[tokio::test]
async fn what_was_written_is_read_after_the_store_was_opened_again() {
    for rig in each_store() {
        make(&rig, 3).await;
        let before = rig
            .list(&rig.config_maps(), &ListOptions::default())
            .await
            .ok()
            .unwrap();
        let rig = rig.reopened().await;
        let maps = rig.config_maps();
        let after = rig.list(&maps, &ListOptions::default()).await.ok().unwrap();
        let texts = |list: &mizzen_registry::ObjectList| {
            list.items
                .iter()
                .map(|item| item.json.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(texts(&before), texts(&after));
        assert_eq!(before.version, after.version);
        let options = UpdateOptions {
            create: true,
            ..UpdateOptions::default()
        };
        let created = rig.replace(&maps, &named("a"), &options).await.unwrap();
        assert!(created.object.record().unwrap().revision > after.version);
    }
}
