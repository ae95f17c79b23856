//! Subresources of pods, services, nodes and service accounts, and resources that are not stored: a file each.

mod binding;
mod component_status;
mod eviction;
mod kubelet;
mod log;
mod proxy;
mod rollback;
mod stream;
mod token;

pub use component_status::ControlPlaneComponents;
pub use kubelet::get_from_kubelet;

use mizzen_apiserver::Builder;
use mizzen_apiserver::extend::Handler;

/// Resource, subresource and what answers for it.
const HANDLERS: &[(&str, &str, Handler)] = &[
    ("bindings", "", |call| Box::pin(binding::create(call))),
    ("componentstatuses", "", |call| {
        Box::pin(component_status::serve(call))
    }),
    ("deployments.apps", "rollback", |call| {
        Box::pin(rollback::create(call))
    }),
    ("deployments.extensions", "rollback", |call| {
        Box::pin(rollback::create(call))
    }),
    ("pods", "attach", |call| Box::pin(stream::connect(call))),
    ("pods", "binding", |call| Box::pin(binding::create(call))),
    ("pods", "eviction", |call| Box::pin(eviction::create(call))),
    ("pods", "exec", |call| Box::pin(stream::connect(call))),
    ("pods", "log", |call| Box::pin(log::get(call))),
    ("pods", "portforward", |call| {
        Box::pin(stream::connect(call))
    }),
    ("serviceaccounts", "token", |call| {
        Box::pin(token::create(call))
    }),
];

/// The resources whose objects have something behind them that listens.
const PROXIED: [&str; 3] = ["nodes", "pods", "services"];

/// Registers the handlers.
pub(crate) fn register(mut builder: Builder) -> Builder {
    for (resource, subresource, handler) in HANDLERS {
        builder = builder.handler(resource, subresource, *handler);
    }
    for resource in PROXIED {
        builder = builder.connection(resource, "proxy", |call| Box::pin(proxy::connect(call)));
    }
    builder
}
