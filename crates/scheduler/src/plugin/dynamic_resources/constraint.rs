//! Constraints between the devices of one claim.

use mizzen_value::{Str, Value};

use super::pool::PoolDevice;

/// `matchAttribute` or `distinctAttribute`.
#[derive(Clone)]
pub(super) struct DeviceConstraint {
    /// The requests that it applies to; empty for all.
    requests: Vec<Str>,
    attribute: Str,
    is_distinct: bool,
    /// The attribute's values of the chosen devices, with their requests.
    chosen: Vec<(Str, Value)>,
}

impl DeviceConstraint {
    /// `None` if the constraint type is unknown.
    pub(super) fn from_value(constraint: &Value) -> Option<DeviceConstraint> {
        let is_distinct = constraint["matchAttribute"].is_null();
        let attribute = if is_distinct {
            &constraint["distinctAttribute"]
        } else {
            &constraint["matchAttribute"]
        };
        let requests = constraint["requests"]
            .list()
            .iter()
            .map(|name| name.str().into())
            .collect();
        let attribute = attribute.as_str()?.into();
        Some(DeviceConstraint {
            requests,
            attribute,
            is_distinct,
            chosen: Vec::new(),
        })
    }

    /// Adds a device for a request, if the constraint allows it. `request` includes the name of the
    /// subrequest.
    pub(super) fn add(&mut self, request: &str, offer: &PoolDevice) -> bool {
        if !self.applies_to(request) {
            return true;
        }
        let Some(value) = self.value(offer) else {
            return false;
        };
        let is_known = |(_, known): &(Str, Value)| known == value;
        let fits = match self.is_distinct {
            true => !self.chosen.iter().any(is_known),
            false => self.chosen.first().is_none_or(is_known),
        };
        if fits {
            self.chosen.push((request.into(), value.clone()));
        }
        fits
    }

    /// Removes the device that was added last.
    pub(super) fn remove(&mut self, request: &str) {
        if self.applies_to(request) {
            self.chosen.pop();
        }
    }

    fn applies_to(&self, request: &str) -> bool {
        let base = request.split('/').next().unwrap_or_default();
        self.requests.is_empty()
            || self
                .requests
                .iter()
                .any(|named| *named == base || *named == request)
    }

    /// The attribute of a device. The driver's own domain may be left out.
    fn value<'a>(&self, offer: &'a PoolDevice) -> Option<&'a Value> {
        let attributes = &offer.device["attributes"];
        let own = || {
            let (domain, name) = self.attribute.split_once('/')?;
            attributes.get(name).filter(|_| offer.id.0 == domain)
        };
        attributes.get(&self.attribute).or_else(own)
    }
}
