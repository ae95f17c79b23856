//! Every type that ships with us survives every codec: what goes out as JSON, YAML or protobuf comes back
//! as it was.

use std::sync::LazyLock;

use mizzen_kinds::{KindCatalog, catalog};
use mizzen_object::round_trip::{arbitrary, check_protobuf, check_text};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn every_type_survives_every_codec(seed in any::<u64>()) {
        static CATALOG: LazyLock<KindCatalog> = LazyLock::new(catalog);
        let mut names: Vec<_> = CATALOG.schemas.types.keys().collect();
        names.sort();
        for name in names {
            let ty = &CATALOG.schemas.types[name];
            let value = arbitrary(ty, seed);
            let survived = check_text(ty, &value).and_then(|()| check_protobuf(ty, &value));
            prop_assert_eq!(survived, Ok(()), "{}", name);
        }
    }
}
