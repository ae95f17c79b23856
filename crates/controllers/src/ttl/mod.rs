//! The TTL controller: annotates nodes with how long kubelets may cache secrets and config maps,
//! depending on the cluster size.

use parking_lot::Mutex;

use mizzen_sdk::controller::Context;
use mizzen_sdk::dynamic::PatchType;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::NODES;
use mizzen_sdk::write::ignore_not_found;
use mizzen_sdk::{Key, Object};
use mizzen_value::value;

use crate::{Action, Controller, ControllerContext, Error, Reconcile};

const TTL: &str = "node.alpha.kubernetes.io/ttl";

/// From and to how many nodes a TTL in seconds applies. The ranges overlap, so that a cluster at a
/// boundary does not flap.
const STEPS: [(usize, usize, u32); 5] = [
    (0, 100, 0),
    (90, 500, 15),
    (450, 1000, 30),
    (900, 2000, 60),
    (1800, usize::MAX, 300),
];

/// The range for `n_nodes`, starting from the current one.
fn next_step(mut step: usize, n_nodes: usize) -> usize {
    while n_nodes > STEPS[step].1 {
        step += 1;
    }
    while n_nodes < STEPS[step].0 {
        step -= 1;
    }
    step
}

struct TtlController {
    context: ControllerContext,
    nodes: Informer<Object>,
    step: Mutex<usize>,
}

pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context.named("ttl-controller");
    let nodes = context.informer(&NODES);
    Controller::for_kind(&context, &NODES)
        .queue_name("ttlcontroller")
        .workers(5)
        .reconcile(TtlController {
            context,
            nodes,
            step: Mutex::default(),
        })
}

impl Reconcile for TtlController {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let seconds = self.seconds();
        let Some(node) = self.nodes.lister().by_key(key)? else {
            return Ok(Action::done());
        };
        let known = node
            .annotation(TTL)
            .and_then(|text| text.parse::<u32>().ok());
        if known == Some(seconds) {
            return Ok(Action::done());
        }
        let mut annotations = value!({});
        annotations.set(TTL, seconds.to_string());
        let change = value!({"metadata": {"annotations": annotations}});
        ignore_not_found(
            self.context
                .api
                .patch(&NODES, key, "", PatchType::Strategic, &change)
                .await,
        )?;
        Ok(Action::done())
    }
}

impl TtlController {
    /// The TTL for the current number of nodes.
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
    fn larger_clusters_have_a_longer_ttl() {
        check(
            &[1, 100, 101, 500, 501, 1001, 2001],
            &[0, 0, 15, 15, 30, 60, 300],
        );
        check(&[5000], &[300]);
    }

    #[test]
    fn a_slightly_smaller_cluster_keeps_its_ttl() {
        check(&[101, 90, 89], &[15, 15, 0]);
        check(&[2001, 1800, 1799, 0], &[300, 300, 60, 0]);
    }
}
