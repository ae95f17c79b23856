//! Adoption and release of objects of custom kinds, which have no strategic merge patch.

use std::sync::Arc;

use mizzen_sdk::controller::{Context, ControllerRefManager, Error, index_controllers};
use mizzen_sdk::dynamic::{DeleteOptions, PatchType};
use mizzen_sdk::{Object, ResourceType};
use mizzen_testing::Cluster;
use mizzen_value::{Value, value};

const SHELVES: ResourceType =
    ResourceType::namespaced("shop.example.com", "v1", "shelves", "Shelf");
const BOOKS: ResourceType = ResourceType::namespaced("shop.example.com", "v1", "books", "Book");

async fn define(cluster: &Cluster, kind: &ResourceType) {
    let ResourceType {
        group,
        plural,
        kind,
        ..
    } = kind;
    let schema = "{openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}";
    let definition = format!(
        "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {plural}.{group}}}
spec:
  group: {group}
  scope: Namespaced
  names: {{plural: {plural}, kind: {kind}}}
  versions: [{{name: v1, served: true, storage: true, schema: {schema}}}]
"
    );
    cluster.apply(&definition).await;
}

async fn create(context: &Context, kind: &ResourceType, name: &str, more: Value) -> Object {
    let mut object = value!({"metadata": {"name": name, "namespace": "default"}});
    for (field, value) in more.entries() {
        object.entry("metadata").set(field, value.clone());
    }
    context.api.create(kind, &object).await.unwrap()
}

/// A server that has shelves and books, and one shelf.
async fn library() -> (Cluster, Context, Object) {
    let cluster = Cluster::builder()
        .server_only()
        .without_bootstrap()
        .start()
        .await;
    let context = Context::new(cluster.client()).named("shelves");
    define(&cluster, &SHELVES).await;
    define(&cluster, &BOOKS).await;
    let shelf = create(&context, &SHELVES, "shelf", Value::object()).await;
    (cluster, context, shelf)
}

async fn claim(
    context: &Context,
    shelf: &Object,
    books: &[&Object],
    topic: &str,
) -> Result<Vec<String>, Error> {
    let books = books.iter().map(|book| Arc::new((*book).clone())).collect();
    let claimed = ControllerRefManager::new(&context.api, (shelf, &SHELVES), &BOOKS)
        .with_finalizers(&["example.com/shelved"])
        .claim(books, |book| book.label("topic") == Some(topic))
        .await?;
    Ok(claimed.iter().map(|book| book.name().to_owned()).collect())
}

async fn read(context: &Context, book: &Object) -> Object {
    context.api.get(&BOOKS, &book.key()).await.unwrap()
}

async fn change(context: &Context, book: &Object, metadata: Value) -> Object {
    let change = value!({"metadata": metadata});
    context
        .api
        .patch(&BOOKS, &book.key(), "", PatchType::Merge, &change)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_custom_object_is_adopted_and_released_and_keeps_what_others_wrote() {
    let (_cluster, context, shelf) = library().await;
    let reader =
        value!({"apiVersion": "v1", "kind": "ConfigMap", "name": "reader", "uid": "reader-1"});
    let metadata = value!({"labels": {"topic": "sea"}, "ownerReferences": [(reader.clone())], "finalizers": ["example.com/lent"]});
    let book = create(&context, &BOOKS, "moby-dick", metadata).await;
    let other = create(
        &context,
        &BOOKS,
        "emma",
        value!({"labels": {"topic": "love"}}),
    )
    .await;

    let claimed = claim(&context, &shelf, &[&book, &other], "sea")
        .await
        .unwrap();
    assert_eq!(claimed, ["moby-dick"]);
    let adopted = read(&context, &book).await;
    assert!(adopted.is_controlled_by(shelf.uid()));
    assert_eq!(adopted.owners()[0], reader);
    let owner = &adopted.owners()[1];
    assert_eq!(owner["apiVersion"].str(), "shop.example.com/v1");
    assert_eq!(
        (owner["kind"].str(), owner["name"].str()),
        ("Shelf", "shelf")
    );
    assert!(
        adopted.has_finalizer("example.com/lent") && adopted.has_finalizer("example.com/shelved")
    );
    assert!(read(&context, &other).await.owners().is_empty());

    let claimed = claim(&context, &shelf, &[&adopted], "land").await.unwrap();
    assert!(claimed.is_empty(), "{claimed:?}");
    let released = read(&context, &book).await;
    assert_eq!(released.owners(), [reader]);
    assert!(released.has_finalizer("example.com/lent"));
    assert!(!released.has_finalizer("example.com/shelved"));
}

#[tokio::test]
async fn a_stale_cache_neither_steals_nor_loses_a_custom_object() {
    let (_cluster, context, shelf) = library().await;
    let book = create(
        &context,
        &BOOKS,
        "emma",
        value!({"labels": {"topic": "love"}}),
    )
    .await;
    // A change that the cache has not seen is kept.
    change(
        &context,
        &book,
        value!({"annotations": {"shelf": "3"}, "finalizers": ["example.com/new"]}),
    )
    .await;
    assert_eq!(
        claim(&context, &shelf, &[&book], "love").await.unwrap(),
        ["emma"]
    );
    let adopted = read(&context, &book).await;
    assert!(adopted.is_controlled_by(shelf.uid()) && adopted.has_finalizer("example.com/new"));

    // The cache does not know that another owner controls it by now.
    let rival = value!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "rival", "uid": "rival-1", "controller": true}]);
    change(&context, &book, value!({"ownerReferences": rival})).await;
    assert!(
        claim(&context, &shelf, &[&book], "love")
            .await
            .unwrap()
            .is_empty()
    );
    assert!(
        claim(&context, &shelf, &[&adopted], "sea")
            .await
            .unwrap()
            .is_empty()
    );
    assert!(read(&context, &book).await.is_controlled_by("rival-1"));

    // An object that is gone, or a new one of the same name, is not claimed.
    change(&context, &book, value!({"finalizers": []})).await;
    let options = DeleteOptions::default();
    context
        .api
        .delete(&BOOKS, &book.key(), &options)
        .await
        .unwrap();
    assert!(
        claim(&context, &shelf, &[&book], "love")
            .await
            .unwrap()
            .is_empty()
    );
    create(
        &context,
        &BOOKS,
        "emma",
        value!({"labels": {"topic": "love"}}),
    )
    .await;
    assert!(
        claim(&context, &shelf, &[&book], "love")
            .await
            .unwrap()
            .is_empty()
    );
    assert!(read(&context, &book).await.owners().is_empty());
}

#[tokio::test]
async fn writes_that_race_the_adoption_of_a_custom_object_are_kept() {
    let (_cluster, context, shelf) = library().await;
    let book = create(
        &context,
        &BOOKS,
        "emma",
        value!({"labels": {"topic": "love"}}),
    )
    .await;
    let books = context.informer(&BOOKS);
    index_controllers(&books);
    books.start();
    books.wait_for_sync().await;
    for round in 0..20 {
        let round = round.to_string();
        let annotations = value!({"annotations": {"round": (&*round)}});
        let (owner, kind) = ((&shelf, &SHELVES), &BOOKS);
        let manager = ControllerRefManager::new(&context.api, owner, kind);
        let (claimed, _) = tokio::join!(
            manager.claim_candidates(&books, |book| book.label("topic") == Some("love")),
            change(&context, &book, annotations),
        );
        assert_eq!(claimed.unwrap().len(), 1);
        let adopted = read(&context, &book).await;
        assert!(adopted.is_controlled_by(shelf.uid()));
        assert_eq!(adopted.annotation("round"), Some(&*round));
        let orphaned = change(&context, &book, value!({"ownerReferences": []})).await;
        books.wait_for_write(&orphaned).await;
    }
}
