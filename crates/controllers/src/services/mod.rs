//! What the loops that publish the addresses of services have in common.
//!
//! | part | the question it answers |
//! |---|---|
//! | `member` | Does a pod stand behind a service, and where is it reached? |
//! | `trigger` | When did the change happen that made a loop write? |
//! | `slice` | What is an endpoint slice made of? |
//! | `subsets` | How are addresses and ports laid out in `Endpoints`? |
//! | `publish` | How do slices come to be as they are planned? |

pub(crate) mod member;
pub(crate) mod publish;
pub(crate) mod slice;
pub(crate) mod subsets;
pub(crate) mod trigger;

use std::time::Duration;

use mizzen_object::select::LabelSelector;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::queue::{Exponential, MaxOf, Options, Queue, TokenBucket};
use mizzen_sdk::{Key, Object};
use mizzen_value::{Value, value};

use crate::select::selecting;

/// Which pods a service selects; none if it selects nothing.
pub(crate) fn selector(service: &Value) -> Option<LabelSelector> {
    let labels = &service["spec"]["selector"];
    LabelSelector::of(&value!({"matchLabels": (labels.clone())}))
        .filter(|_| member::selects_pods(service))
}

/// Queues the services behind which a pod stands or stood, if it changed in a way that matters to them.
pub(crate) fn pod_changed(
    services: &Informer<Object>,
    queue: &Queue<Key>,
) -> impl FnMut(Event<Object>) + Send + 'static {
    let (services, queue) = (services.clone(), queue.clone());
    move |event| {
        let mut pods = vec![event.object().object()];
        if let Event::Updated { old, .. } = &event {
            pods.push(old.object());
        }
        let pods: Vec<_> = pods.into_iter().flatten().collect();
        if matches!(pods.as_slice(), [new, old] if !member::matters(old, new)) {
            return;
        }
        for pod in pods {
            let labels = &pod["metadata"]["labels"];
            let behind = selecting(&services, pod.namespace(), labels, selector);
            behind.iter().for_each(|service| queue.add(service.key()));
        }
    }
}

/// A queue whose failures wait a second at least: a service may need many writes, and others need the server, too.
pub(crate) fn patient_queue(name: &str, longest: Duration) -> Queue<Key> {
    let limiter = MaxOf(vec![
        Box::new(Exponential::new(Duration::from_secs(1), longest)),
        Box::new(TokenBucket::new(10.0, 100)),
    ]);
    Queue::with(Options {
        limiter: Box::new(limiter),
        ..Options::new(name)
    })
}
