//! Code that the Endpoints and EndpointSlice controllers share.
//!
//! | file | contents |
//! |---|---|
//! | `member` | pods as members of services |
//! | `trigger` | the trigger time annotation |
//! | `slice` | EndpointSlices |
//! | `subsets` | the subsets of Endpoints |
//! | `publish` | writes planned slices |

pub(crate) mod member;
pub(crate) mod publish;
pub(crate) mod slice;
pub(crate) mod subsets;
pub(crate) mod trigger;

use std::time::Duration;

use mizzen_object::select::LabelSelector;
use mizzen_sdk::controller::objects_selecting;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::queue::{Exponential, MaxOf, Options, Queue, TokenBucket};
use mizzen_sdk::{Key, Object};
use mizzen_value::value;

/// A service's selector; none if it selects nothing.
pub(crate) fn selector(service: &Object) -> Option<LabelSelector> {
    let labels = &service["spec"]["selector"];
    LabelSelector::from_value(&value!({"matchLabels": (labels.clone())}))
        .filter(|_| member::selects_pods(service))
}

/// Enqueues the services that select or selected a pod, if an event changes their endpoints.
pub(crate) fn enqueue_services_of_pod(
    services: Informer<Object>,
) -> impl FnMut(&Event<Object>, &Queue<Key>) + Send + 'static {
    move |event, queue| {
        let mut pods = vec![event.object().object()];
        if let Event::Updated { old, .. } = event {
            pods.push(old.object());
        }
        let pods: Vec<_> = pods.into_iter().flatten().collect();
        if matches!(pods.as_slice(), [new, old] if !member::has_endpoint_change(old, new)) {
            return;
        }
        for pod in pods {
            let (store, labels) = (services.store(), pod.labels());
            let behind = objects_selecting(store, pod.namespace(), &labels, selector);
            behind.iter().for_each(|service| queue.add(service.key()));
        }
    }
}

/// A queue with retry delays of at least a second: one service may need many writes.
pub(crate) fn slow_retry_queue(name: &str, longest: Duration) -> Queue<Key> {
    let limiter = MaxOf(vec![
        Box::new(Exponential::new(Duration::from_secs(1), longest)),
        Box::new(TokenBucket::new(10.0, 100)),
    ]);
    Queue::with(Options {
        limiter: Box::new(limiter),
        ..Options::new(name)
    })
}
