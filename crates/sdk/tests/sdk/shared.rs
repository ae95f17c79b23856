//! Shared informers: factories, namespaces, metrics, indexes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use mizzen_sdk::Key;
use mizzen_sdk::cache::{by_field, by_label};
use mizzen_sdk::informer::{Event, Factory, FactoryOptions, Informer, Options};
use mizzen_sdk::metrics::Families;
use mizzen_sdk::watch::ListWatch;
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::informer::{Diary, MINUTE, PATH, change, create, informer, names, see, version};
use crate::wire::{End, Wire};
use crate::{create_namespace, send, start};

fn only(namespace: &str) -> FactoryOptions {
    FactoryOptions {
        namespaces: vec![namespace.into()],
        ..FactoryOptions::default()
    }
}

#[tokio::test(start_paused = true)]
async fn factory_users_share_one_watch() {
    let cluster = start().await;
    let wire = Wire::to(&cluster);
    create(&cluster, "a").await;
    let factory = Factory::with(wire.client(), only("default"));
    let (one, two) = (
        factory.informer::<ConfigMap>(),
        factory.informer::<ConfigMap>(),
    );
    let other = factory.informer_of::<ConfigMap>(&(), |source| source.labels = Some("x=y".into()));
    factory.start();
    factory.wait_for_sync().await;
    let written = change(&cluster, "a", 1).await;
    see(&one, &written).await;
    assert_eq!(
        (names(&one), names(&two), names(&other)),
        (vec!["a=1".into()], vec!["a=1".into()], vec![])
    );
    assert_eq!(
        (
            wire.n_lists.load(Ordering::Relaxed),
            wire.n_watches.load(Ordering::Relaxed)
        ),
        (2, 2)
    );
    factory.stop();
}

#[tokio::test(start_paused = true)]
async fn stopped_scope_removes_its_handlers_only() {
    let cluster = start().await;
    let wire = Wire::to(&cluster);
    let factory = Factory::with(wire.client(), only("default"));
    let heard = |factory: &Factory| {
        let count = Arc::new(AtomicUsize::new(0));
        let counting = count.clone();
        factory
            .informer::<ConfigMap>()
            .add_handler(move |_: Event<ConfigMap>| {
                counting.fetch_add(1, Ordering::Relaxed);
            });
        count
    };
    let (scope, again) = (factory.scoped(), factory.scoped());
    let (ours, theirs) = (heard(&factory), heard(&scope));
    scope.start();
    scope.wait_for_sync().await;
    see(&scope.informer::<ConfigMap>(), &create(&cluster, "a").await).await;
    scope.stop();
    let next = heard(&again);
    see(
        &factory.informer::<ConfigMap>(),
        &create(&cluster, "b").await,
    )
    .await;
    sleep(MINUTE).await;
    let counts = [ours, theirs, next].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(counts, [2, 1, 2]);
    assert_eq!(
        wire.n_lists.load(Ordering::Relaxed),
        1,
        "one watch serves all"
    );
}

#[tokio::test(start_paused = true)]
async fn metadata_informer_is_separate() {
    let cluster = start().await;
    create(&cluster, "a").await;
    let factory = Factory::with(cluster.client(), only("default"));
    let whole = factory.informer::<ConfigMap>();
    let head = factory.informer_of::<ConfigMap>(&(), |source| source.metadata_only = true);
    factory.start();
    factory.wait_for_sync().await;
    let has_data = |informer: &Informer<ConfigMap>| {
        let entry = informer.store().get(&Key::new("default", "a")).unwrap();
        String::from_utf8_lossy(entry.text()).contains("\"data\"")
    };
    assert!(has_data(&whole) && !has_data(&head));
}

#[tokio::test(start_paused = true)]
async fn factory_watches_namespaces_and_cluster_scoped_kinds() {
    let cluster = start().await;
    for namespace in ["other", "third"] {
        create_namespace(&cluster, namespace).await;
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        send(&cluster, "POST", &path, json!({"metadata": {"name": "a"}})).await;
    }
    create(&cluster, "a").await;
    let namespaces = vec!["default".into(), "other".into()];
    let factory = Factory::with(
        cluster.client(),
        FactoryOptions {
            namespaces,
            ..FactoryOptions::default()
        },
    );
    let configs = factory.informer::<ConfigMap>();
    let namespaces = factory.informer::<Namespace>();
    factory.start();
    timeout(MINUTE, factory.wait_for_sync())
        .await
        .expect("it never synced");
    let mut found: Vec<String> = configs
        .store()
        .list()
        .iter()
        .map(|entry| entry.key().to_string())
        .collect();
    found.sort();
    assert_eq!(found, ["default/a", "other/a"]);
    // Those that every cluster has, and two more.
    assert_eq!(namespaces.store().len(), 4 + 2);
    let text = Families::of(&[&factory]).to_string();
    assert_eq!(
        text.matches("# TYPE reflector_lists_total counter").count(),
        1,
        "{text}"
    );
    assert_eq!(
        text.matches("\nreflector_lists_total{").count(),
        3,
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn informer_metrics_have_the_upstream_names() {
    let cluster = start().await;
    let wire = Wire::to(&cluster);
    create(&cluster, "a").await;
    create(&cluster, "b").await;
    wire.faults(|faults| faults.refused = vec![500]);
    let (informer, diary) = (informer(wire.client()), Diary::default());
    informer.add_handler(diary.handler());
    informer.start();
    sleep(MINUTE).await;
    let written = change(&cluster, "a", 1).await;
    see(&informer, &written).await;
    wire.hang_up(End::Closed);
    sleep(MINUTE).await;
    let written = create(&cluster, "c").await;
    see(&informer, &written).await;
    let metrics = informer.metrics();
    let reflector = &metrics.reflectors[0];
    assert_eq!(
        (reflector.lists, reflector.watches, reflector.errors),
        (1, 2, 1)
    );
    assert_eq!(
        (
            reflector.items_per_list.sum,
            reflector.items_per_watch.sum,
            reflector.events
        ),
        (2.0, 1.0, 2)
    );
    assert_eq!(reflector.last_version, version(&written));
    assert_eq!((metrics.objects, metrics.queued, metrics.events), (3, 0, 4));
    let text = Families::of(&[&metrics]).to_string();
    let name = format!("{{name=\"{PATH}\"}}");
    let labels = format!("{{group=\"\",name=\"{PATH}\",resource=\"configmaps\",version=\"v1\"}}");
    for line in [
        format!("reflector_lists_total{name} 1"),
        format!("reflector_items_per_list_sum{name} 2"),
        format!("reflector_watches_total{name} 2"),
        format!(
            "reflector_last_resource_version{name} {}",
            version(&written)
        ),
        format!("informer_queued_items{labels} 0"),
        format!(
            "informer_store_resource_version{labels} {}",
            version(&written)
        ),
        format!("informer_objects{labels} 3"),
    ] {
        assert!(
            text.lines().any(|known| known == line),
            "{line} is not in\n{text}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn namespaces_share_a_cache() {
    let cluster = start().await;
    create_namespace(&cluster, "other").await;
    let sources = ["default", "other"].map(|namespace| {
        (
            namespace.to_string(),
            ListWatch::namespaced(cluster.client(), namespace),
        )
    });
    let informer: Informer<ConfigMap> = Informer::namespaces(sources.into(), Options::default());
    informer.start();
    informer.wait_for_sync().await;
    let first = create(&cluster, "a").await;
    let body = json!({"metadata": {"name": "a"}, "data": {"step": "9"}});
    let second = send(
        &cluster,
        "POST",
        "/api/v1/namespaces/other/configmaps",
        body,
    )
    .await;
    informer
        .wait_for(&Key::new("default", "a"), version(&first))
        .await;
    informer
        .wait_for(&Key::new("other", "a"), version(&second))
        .await;
    assert_eq!(
        informer.lister().namespaced("other").list().unwrap().len(),
        1
    );
    assert_eq!(informer.store().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn objects_are_indexed_and_transformed() {
    let cluster = start().await;
    let body = json!({"metadata": {"name": "a", "labels": {"app": "web"}}, "data": {"step": "0", "large": "x"}});
    send(&cluster, "POST", PATH, body).await;
    let options = Options {
        transform: Some(Arc::new(|object| {
            object["data"]
                .as_object_mut()
                .map(|data| data.remove("large"));
        })),
        ..Options::default()
    };
    let informer: Informer<ConfigMap> =
        Informer::with_options(ListWatch::namespaced(cluster.client(), "default"), options);
    informer.add_index("app", by_label("app"));
    informer.add_index("step", by_field("data.step"));
    informer.add_index("missing", by_field("data.step.deeper"));
    informer.start();
    informer.wait_for_sync().await;
    let values = |index: &str| {
        let snapshot = informer.store().snapshot();
        snapshot
            .index_values(index)
            .unwrap()
            .map(String::from)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (values("step"), values("missing")),
        (vec!["0".into()], vec![])
    );
    let found = informer.lister().by_index("app", "web").unwrap().unwrap();
    assert_eq!(found[0].data.as_ref().unwrap().len(), 1);
    let moved = send(
        &cluster,
        "PATCH",
        &format!("{PATH}/a"),
        json!({"metadata": {"labels": {"app": "db"}}}),
    )
    .await;
    see(&informer, &moved).await;
    assert!(informer.store().by_index("app", "web").unwrap().is_empty());
    assert_eq!(informer.store().by_index("app", "db").unwrap().len(), 1);
    assert!(informer.store().by_index("none", "db").is_none());
}

#[tokio::test(start_paused = true)]
async fn undecodable_object_is_an_error_for_its_reader_only() {
    let cluster = start().await;
    create(&cluster, "a").await;
    let mut source: ListWatch<Strict> = ListWatch::namespaced(cluster.client(), "default");
    source.fields = Some("metadata.name=a".into());
    let informer = Informer::new(source);
    informer.start();
    informer.wait_for_sync().await;
    let error = informer
        .lister()
        .by_key(&Key::new("default", "a"))
        .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("cannot read default/a: missing field `absent`"),
        "{error}"
    );
}

/// A ConfigMap type with a required field that no ConfigMap has.
#[derive(Debug, Clone, serde::Deserialize)]
struct Strict {
    metadata: kube::api::ObjectMeta,
    #[expect(dead_code, reason = "it is there to be missed")]
    absent: String,
}

impl kube::Resource for Strict {
    type DynamicType = ();
    type Scope = kube::core::NamespaceResourceScope;

    fn kind(_: &()) -> std::borrow::Cow<'_, str> {
        "ConfigMap".into()
    }

    fn group(_: &()) -> std::borrow::Cow<'_, str> {
        "".into()
    }

    fn version(_: &()) -> std::borrow::Cow<'_, str> {
        "v1".into()
    }

    fn plural(_: &()) -> std::borrow::Cow<'_, str> {
        "configmaps".into()
    }

    fn meta(&self) -> &kube::api::ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut kube::api::ObjectMeta {
        &mut self.metadata
    }
}
