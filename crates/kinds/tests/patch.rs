//! Patches keep their word on every kind that ships with us: the difference between two objects, applied to the
//! one, gives the other.

mod generate;

use std::sync::LazyLock;

use mizzen_kinds::{KindCatalog, catalog};
use mizzen_object::decode::from_unstructured;
use mizzen_object::patch::{strategic_diff, strategic_merge};
use mizzen_object::schema::canonical;
use mizzen_value::{Value, json};
use proptest::prelude::*;

use generate::object;

static CATALOG: LazyLock<KindCatalog> = LazyLock::new(catalog);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_strategic_patch_of_a_difference_gives_the_target(shape: u64, here: u64, there: u64) {
        for kind in &CATALOG.kinds {
            let (from, to) = (object(&kind.root, shape, here), object(&kind.root, shape, there));
            let patch = strategic_diff(&kind.root, &from, &to);
            let mut patched = from.clone();
            let outcome = strategic_merge(&kind.root, &mut patched, &mut patch.clone());
            prop_assert_eq!(outcome, Ok(()), "{}: {}", kind.gvk.kind, json::to_string(&patch));
            canonical(&kind.root, &mut patched);
            let context = [&from, &patch, &to].map(json::to_string).join("\n");
            prop_assert_eq!(patched, to, "{}: {}", kind.gvk.kind, context);
        }
    }

    #[test]
    fn the_same_is_no_difference(shape: u64, here: u64) {
        for kind in &CATALOG.kinds {
            let value = object(&kind.root, shape, here);
            prop_assert_eq!(strategic_diff(&kind.root, &value, &value), Value::object());
        }
    }

    #[test]
    fn a_typed_object_is_restored_as_it_is(shape: u64, here: u64) {
        for kind in &CATALOG.kinds {
            let value = object(&kind.root, shape, here);
            let restored = from_unstructured(&kind.root, value.clone());
            let restored = restored.map_err(|error| TestCaseError::fail(format!("{}: {error}", kind.gvk.kind)))?;
            prop_assert_eq!(restored.value, value);
            prop_assert_eq!(restored.complaints, Vec::<String>::new());
        }
    }
}
