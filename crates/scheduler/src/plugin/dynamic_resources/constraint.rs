//! Which devices may a claim have together?

use mizzen_value::{Str, Value};

use super::pool::Offer;

/// What must hold between the devices of a claim.
#[derive(Clone)]
pub(super) struct Constraint {
    /// The requests that it is about; all if none is named.
    requests: Vec<Str>,
    attribute: Str,
    is_distinct: bool,
    /// The attribute's values of the devices that were chosen, with the requests for which they were.
    chosen: Vec<(Str, Value)>,
}

impl Constraint {
    /// None if it is of a kind that nobody knows.
    pub(super) fn of(constraint: &Value) -> Option<Constraint> {
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
        Some(Constraint {
            requests,
            attribute,
            is_distinct,
            chosen: Vec::new(),
        })
    }

    /// Takes a device for a request, if that may be. `request` is its whole name, with that of an alternative.
    pub(super) fn add(&mut self, request: &str, offer: &Offer) -> bool {
        if !self.is_about(request) {
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

    /// Takes back the last device that was taken.
    pub(super) fn remove(&mut self, request: &str) {
        if self.is_about(request) {
            self.chosen.pop();
        }
    }

    fn is_about(&self, request: &str) -> bool {
        let base = request.split('/').next().unwrap_or_default();
        self.requests.is_empty()
            || self
                .requests
                .iter()
                .any(|named| *named == base || *named == request)
    }

    /// The attribute of a device. Those of its driver need not say so.
    fn value<'a>(&self, offer: &'a Offer) -> Option<&'a Value> {
        let attributes = &offer.device["attributes"];
        let own = || {
            let (domain, name) = self.attribute.split_once('/')?;
            attributes.get(name).filter(|_| offer.id.0 == domain)
        };
        attributes.get(&self.attribute).or_else(own)
    }
}
