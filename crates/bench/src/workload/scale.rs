//! The cost by size of the store: create, get and a page of 500 at several sizes of one collection.

use std::sync::Arc;

use super::{list, point};
use crate::chain;
use crate::load::WorkloadError;
use crate::meter::settle;
use crate::objects::{Collection, ObjectKind};
use crate::report::{BenchReport, WorkloadOutcome};
use crate::session::Session;

/// How many of the creates up to a size are measured: the last tenth, within these bounds.
const MEASURED: std::ops::RangeInclusive<u64> = 1000..=20_000;

/// Measures each size. An error ends it, because the next size needs the objects of this one.
pub(super) async fn run(session: &Arc<Session>, report: &mut BenchReport) {
    let collection = Collection::new(ObjectKind::Configmaps, &session.namespace);
    let mut sizes = session.options.scale.clone();
    sizes.sort_unstable();
    sizes.dedup();
    let mut n_objects = 0;
    for size in sizes {
        if let Err(error) = measure_size(session, &collection, n_objects, size, report).await {
            report.fail(format!("scale-{size}"), chain(&error));
            return;
        }
        n_objects = size;
    }
}

/// Grows the collection to `size`, and measures there.
async fn measure_size(
    session: &Session,
    collection: &Collection,
    from: u64,
    size: u64,
    report: &mut BenchReport,
) -> Result<(), WorkloadError> {
    let measured = n_measured(size - from);
    let name = |verb: &str| format!("scale-{size}/{verb}");
    let sized = |outcome: WorkloadOutcome| WorkloadOutcome {
        objects: Some(size),
        ..outcome
    };

    point::create_range(
        session,
        collection,
        format!("fill up to {size}"),
        from,
        size - measured,
    )
    .await?;
    settle(&session.servers).await?;
    let create =
        point::create_range(session, collection, name("create"), size - measured, size).await?;
    report.add(sized(create));
    settle(&session.servers).await?;
    report.add(sized(
        point::get_among(session, collection, name("get"), size).await?,
    ));
    settle(&session.servers).await?;
    report.add(sized(
        list::pages(session, collection, name("page"), size).await?,
    ));
    Ok(())
}

/// How many of `n_new` creates to measure.
fn n_measured(n_new: u64) -> u64 {
    (n_new / 10)
        .clamp(*MEASURED.start(), *MEASURED.end())
        .min(n_new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_tenth_is_measured_within_bounds() {
        let cases = [
            (10, 10),
            (1000, 1000),
            (9000, 1000),
            (90_000, 9000),
            (900_000, 20_000),
        ];
        for (n_new, expected) in cases {
            assert_eq!(n_measured(n_new), expected);
        }
    }
}
