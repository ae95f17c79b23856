//! RangeAllocation: the bitmap in which upstream keeps allocated node ports. It is in etcd and in no API.
//!
//! Kubernetes: core/v1/types.go, registry/core/service/allocator/storage/storage.go. Bit `n` of `data`, a big-endian
//! number, is port `n` of the range; `range` is as upstream's flag has it: `30000-32767`.

use std::sync::Arc;

use mizzen_object::schema::parse;
use mizzen_object::{Kind, NoHooks};

const DATA: &str = "
group core
version v1
kind RangeAllocation
  names rangeallocations rangeallocation
type RangeAllocation
  1 metadata !meta/v1.ObjectMeta
  2 range !string
  3 data !bytes
";

/// The kind of upstream's bitmaps, for a keyspace that is no resource: `ranges`.
///
/// # Panics
/// If the data that this crate ships does not parse, which its tests rule out.
pub fn range_allocation() -> Kind {
    let meta = mizzen_schemas::DATA[0];
    let schemas = parse([meta, ("range_allocation", DATA)]).expect("the data parse");
    let mut kinds = schemas.kinds.into_iter();
    let data = kinds
        .find(|kind| kind.gvk.kind == "RangeAllocation")
        .expect("the data have the kind");
    Kind {
        data: Arc::new(data),
        hooks: Arc::new(NoHooks),
    }
}
