//! Subresources of pods, services, nodes and service accounts, and resources that are not stored: a file each.

mod binding;
mod component_status;
mod eviction;
mod kubelet;
mod log;
mod proxy;
mod proxy_html;
mod proxy_links;
mod rollback;
mod stream;
mod token;

pub use component_status::ControlPlaneComponents;
pub use kubelet::get_from_kubelet;

use mizzen_apiserver::Builder;
use mizzen_apiserver::extend::Handler;
use mizzen_object::GroupResource;

/// Resource, subresource and what answers for it.
const HANDLERS: &[(GroupResource, &str, Handler)] = &[
    (GroupResource::new("", "bindings"), "", |call| {
        Box::pin(binding::create(call))
    }),
    (GroupResource::new("", "componentstatuses"), "", |call| {
        Box::pin(component_status::serve(call))
    }),
    (
        GroupResource::new("apps", "deployments"),
        "rollback",
        |call| Box::pin(rollback::create(call)),
    ),
    (
        GroupResource::new("extensions", "deployments"),
        "rollback",
        |call| Box::pin(rollback::create(call)),
    ),
    (GroupResource::new("", "pods"), "attach", |call| {
        Box::pin(stream::connect(call))
    }),
    (GroupResource::new("", "pods"), "binding", |call| {
        Box::pin(binding::create(call))
    }),
    (GroupResource::new("", "pods"), "eviction", |call| {
        Box::pin(eviction::create(call))
    }),
    (GroupResource::new("", "pods"), "exec", |call| {
        Box::pin(stream::connect(call))
    }),
    (GroupResource::new("", "pods"), "log", |call| {
        Box::pin(log::get(call))
    }),
    (GroupResource::new("", "pods"), "portforward", |call| {
        Box::pin(stream::connect(call))
    }),
    (GroupResource::new("", "serviceaccounts"), "token", |call| {
        Box::pin(token::create(call))
    }),
];

/// The resources whose objects have something behind them that listens.
const PROXIED: [GroupResource; 3] = [
    GroupResource::new("", "nodes"),
    GroupResource::new("", "pods"),
    GroupResource::new("", "services"),
];

/// Registers the handlers.
pub(crate) fn register(mut builder: Builder) -> Builder {
    for (resource, subresource, handler) in HANDLERS {
        builder = builder.handler(resource.clone(), subresource, *handler);
    }
    for resource in PROXIED {
        builder = builder.connection(resource, "proxy", |call| Box::pin(proxy::connect(call)));
    }
    builder
}
