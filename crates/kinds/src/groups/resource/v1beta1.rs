//! Claims and slices of v1beta1, which may be in etcd: a request has the fields of `exactly` itself, and a device has its
//! fields below `basic`. Kubernetes: resource/v1beta1/conversion.go.

use mizzen_value::Value;

use super::claim::{self, default_spec};
use super::slice::{self, default_mappings, devices_mut};
use crate::Behaviour;

pub(super) const CLAIM: Behaviour = Behaviour {
    to_stored: |claim| spec_to_stored(claim.entry("spec")),
    ..claim::CLAIM
};
pub(super) const TEMPLATE: Behaviour = Behaviour {
    to_stored: |template| spec_to_stored(template.entry("spec").entry("spec")),
    ..claim::TEMPLATE
};
pub(super) const SLICE: Behaviour = Behaviour {
    to_stored: |slice| devices_mut(slice).iter_mut().for_each(device_to_stored),
    ..slice::SLICE
};

/// The fields of a request that are those of `exactly`.
const EXACTLY: [&str; 7] = [
    "deviceClassName",
    "selectors",
    "allocationMode",
    "count",
    "adminAccess",
    "tolerations",
    "capacity",
];

fn spec_to_stored(spec: &mut Value) {
    let requests = spec.at_mut("devices.requests").into_iter();
    requests
        .flat_map(Value::list_mut)
        .for_each(request_to_stored);
    default_spec(spec);
}

fn request_to_stored(request: &mut Value) {
    let mut exactly = Value::object();
    let mut is_exact = false;
    for name in EXACTLY {
        let Some(field) = request.remove(name) else {
            continue;
        };
        let is_option = matches!(name, "adminAccess" | "capacity");
        is_exact |= match is_option {
            true => !field.is_null(),
            false => !field.is_empty(),
        };
        exactly.set(name, field);
    }
    if is_exact {
        request.set("exactly", exactly);
    }
}

fn device_to_stored(device: &mut Value) {
    let basic = device.remove("basic").unwrap_or_default();
    for (name, field) in basic.entries() {
        device.set(name, field.clone());
    }
    default_mappings(device);
}
