//! How long may a node's kubelet rely on what it read? Longer, the more nodes there are; an annotation tells it.

use parking_lot::Mutex;
use std::sync::Arc;

use mizzen_sdk::api::Patch;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::NODES;
use mizzen_sdk::write::is_not_found;
use mizzen_sdk::{Key, Object};
use mizzen_value::value;

use crate::{After, Context, Error, Reconcile, Work};

/// The annotation.
const TTL: &str = "node.alpha.kubernetes.io/ttl";

/// From how many nodes on to how many a number of seconds holds. They overlap, so that a cluster of about such a size
/// does not go to and fro.
const STEPS: [(usize, usize, u32); 5] = [
    (0, 100, 0),
    (90, 500, 15),
    (450, 1000, 30),
    (900, 2000, 60),
    (1800, usize::MAX, 300),
];

/// The step for `n_nodes`, if it was `step` before.
fn next_step(mut step: usize, n_nodes: usize) -> usize {
    while n_nodes > STEPS[step].1 {
        step += 1;
    }
    while n_nodes < STEPS[step].0 {
        step -= 1;
    }
    step
}

struct Ttl {
    context: Context,
    nodes: Informer<Object>,
    step: Mutex<usize>,
}

/// Sets up the loop.
pub(crate) fn start(context: &Context) -> Work {
    let context = context.named("ttl-controller");
    let (queue, nodes) = (context.queue("ttlcontroller"), context.follow(&NODES));
    let todo = queue.clone();
    nodes.add_handler(move |event: Event<Object>| todo.add(event.key().clone()));
    Work::new(
        queue,
        5,
        Arc::new(Ttl {
            context,
            nodes,
            step: Mutex::default(),
        }),
    )
}

impl Reconcile for Ttl {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        let seconds = self.seconds();
        let Some(node) = self.nodes.lister().by_key(key)? else {
            return Ok(After::Done);
        };
        let known = node
            .annotation(TTL)
            .and_then(|text| text.parse::<u32>().ok());
        if known == Some(seconds) {
            return Ok(After::Done);
        }
        let mut annotations = value!({});
        annotations.set(TTL, seconds.to_string());
        let change = value!({"metadata": {"annotations": annotations}});
        match self
            .context
            .api
            .patch(&NODES, key, "", Patch::Strategic, &change)
            .await
        {
            Err(error) if !is_not_found(&error) => Err(error.into()),
            _ => Ok(After::Done),
        }
    }
}

impl Ttl {
    /// The seconds for as many nodes as there are now.
    fn seconds(&self) -> u32 {
        let mut step = self.step.lock();
        *step = next_step(*step, self.nodes.store().len());
        STEPS[*step].2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(sizes: &[usize], expect: &[u32]) {
        let mut step = 0;
        let seconds = sizes.iter().map(|size| {
            step = next_step(step, *size);
            STEPS[step].2
        });
        assert_eq!(seconds.collect::<Vec<_>>(), expect);
    }

    #[test]
    fn many_nodes_rely_longer() {
        check(
            &[1, 100, 101, 500, 501, 1001, 2001],
            &[0, 0, 15, 15, 30, 60, 300],
        );
        check(&[5000], &[300]);
    }

    #[test]
    fn a_cluster_that_shrinks_a_little_stays_where_it_was() {
        check(&[101, 90, 89], &[15, 15, 0]);
        check(&[2001, 1800, 1799, 0], &[300, 300, 60, 0]);
    }
}
