//! Pages of custom objects. Claim: a page costs what is on it, wherever in the list it is and however many objects
//! there are.

use std::sync::{Arc, LazyLock};

use divan::{Bencher, black_box};
use mizzen_object::{Kind, Status, custom};
use mizzen_registry::{
    BoxFuture, Convert, Create, ListOptions, Record, Registry, Resource, Store, StoreOptions,
};
use mizzen_value::clock::{Clock, Random};
use mizzen_value::{Value, value};

fn main() {
    divan::main();
}

struct Fixed;

impl Clock for Fixed {
    fn now(&self) -> (i64, u32) {
        (1_800_000_000, 0)
    }
}

impl Random for Fixed {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(1);
    }
}

/// The converter of a kind that has one version.
struct OneVersion(Kind);

impl Convert for OneVersion {
    fn stored(&self) -> &Kind {
        &self.0
    }

    fn is_current(&self, _: &Record, _: &Kind) -> bool {
        true
    }

    fn read<'a>(
        &'a self,
        objects: Vec<Value>,
        _: &'a Kind,
    ) -> BoxFuture<'a, Result<Vec<Value>, Status>> {
        Box::pin(async { Ok(objects) })
    }

    fn write<'a>(&'a self, object: Value, _: &'a Kind) -> BoxFuture<'a, Result<Value, Status>> {
        Box::pin(async { Ok(object) })
    }

    fn translate<'a>(
        &'a self,
        objects: Vec<Value>,
        _: &'a Kind,
    ) -> BoxFuture<'a, Result<Vec<Value>, Status>> {
        Box::pin(async { Ok(objects) })
    }

    fn only_renames(&self) -> bool {
        true
    }
}

static RUNTIME: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
});

/// A registry with `n` widgets in one namespace.
fn filled(n: usize) -> (Registry, Resource) {
    let store = Store::in_memory(StoreOptions::default());
    let registry = Registry::new(store.clone(), Arc::new(Fixed), Arc::new(Fixed));
    let definition = value!({
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    });
    let kind = custom::kinds(&definition, &mizzen_kinds::object_meta()).remove(0);
    let widgets = Resource::custom(&store, kind.clone(), Arc::new(OneVersion(kind)));
    RUNTIME.block_on(async {
        for number in 0..n {
            let name = format!("w{number:07}");
            let draft = value!({
                "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": name },
                "spec": { "size": 1 },
            });
            let create = Create::new(&widgets, "ns", draft);
            registry.create(create).await.unwrap();
        }
    });
    (registry, widgets)
}

static SMALL: LazyLock<(Registry, Resource)> = LazyLock::new(|| filled(1_000));
static LARGE: LazyLock<(Registry, Resource)> = LazyLock::new(|| filled(100_000));

/// The first and the second page of `limit` widgets.
#[divan::bench(args = [1_000, 100_000], consts = [1, 100])]
fn page<const LIMIT: usize>(bencher: Bencher, n: usize) {
    let (registry, widgets) = if n == 1_000 { &*SMALL } else { &*LARGE };
    let page = |token: String| {
        let options = ListOptions {
            limit: LIMIT,
            token,
            ..ListOptions::default()
        };
        RUNTIME
            .block_on(registry.read_list(widgets, &options))
            .ok()
            .unwrap()
    };
    let first = page(String::new());
    bencher.bench(|| black_box(page(first.token.clone())).items.len());
}
