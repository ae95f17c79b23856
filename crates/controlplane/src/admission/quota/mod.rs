//! ResourceQuota: usage is charged to the quotas of a namespace before a write is stored.
//!
//! `mizzen_component_helpers::quota` computes the usage of an object and the matching quotas; `charge` keeps the charges.
//!
//! Invariant: usage is written to a quota's status before the object is stored, if the quota has not changed since it
//! was checked; it is returned if it is known that the object is not stored. So concurrent writes never exceed a
//! quota, and a rejected write leaves no usage.

mod charge;

pub(crate) use charge::Charges;

use std::collections::BTreeSet;

use mizzen_component_helpers::amounts::{Amounts, add, amounts};
use mizzen_component_helpers::quota::{QuotaEvaluator, ScopeSelector, selectors};
use mizzen_object::Status;
use mizzen_registry::{BoxFuture, ListOptions, Selection};
use mizzen_value::Value;
use mizzen_value::quantity::Quantity;

use super::{Attributes, admission};
use mizzen_apiserver::admission::{WriteOutcome, WriteStrategy, WriteTransaction};
use mizzen_apiserver::verbs::ResourceCall;

/// A resource that needs a quota.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LimitedResource {
    /// The group of the resource.
    pub group: String,
    /// Its plural name.
    pub resource: String,
    /// Usage whose name contains one of these needs a quota.
    pub containing: Vec<String>,
    /// Objects in one of these scopes need a quota with that scope.
    pub scopes: Vec<Value>,
}

/// Whether a write may be charged.
fn concerns(attributes: &Attributes) -> bool {
    if attributes.namespace().is_empty() || attributes.is("", "namespaces") {
        return false;
    }
    let limited = !admission(attributes).limited_resources.is_empty();
    (limited || has_quotas(attributes)) && counted(attributes).is_some()
}

fn counted(attributes: &Attributes) -> Option<QuotaEvaluator> {
    let resource = attributes.resource();
    QuotaEvaluator::of(&resource.group, &resource.resource)
}

fn has_quotas(attributes: &Attributes) -> bool {
    let server = attributes.call.server;
    let Some(quotas) = server.catalog.get("", "v1", "resourcequotas") else {
        return false;
    };
    let selection = Selection {
        namespace: attributes.namespace().into(),
        ..Selection::default()
    };
    let found = server.registry.list(
        &quotas,
        &ListOptions {
            selection,
            limit: 1,
            ..ListOptions::default()
        },
    );
    // A quota that cannot be decoded may be exceeded.
    found.map_or(true, |found| !found.items.is_empty())
}

/// The plug-in ResourceQuota, which is the last: what it counts must not be rejected any more.
pub(crate) struct ResourceQuota;

impl WriteStrategy for ResourceQuota {
    fn begin(&self, call: &ResourceCall) -> Option<Box<dyn WriteTransaction>> {
        (!call.path.namespace.is_empty()).then(|| Box::<Charges>::default() as _)
    }
}

impl WriteTransaction for Charges {
    fn begin_attempt<'a>(
        &'a self,
        _attributes: &'a Attributes<'a>,
        _new: Option<&'a Value>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(self.give_back())
    }

    fn reserve<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        new: &'a Value,
    ) -> BoxFuture<'a, Result<(), Status>> {
        match concerns(attributes) {
            true => self.charge(attributes, new),
            false => Box::pin(std::future::ready(Ok(()))),
        }
    }

    fn settle<'a>(
        &'a self,
        _call: &'a ResourceCall<'a>,
        outcome: WriteOutcome,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            match outcome.may_be_stored() {
                true => self.keep(),
                false => self.give_back().await,
            }
        })
    }
}

impl Charges {
    /// Charges the quotas with what a write needs, or rejects it.
    fn charge<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: &'a Value,
    ) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let Some(counted) = counted(attributes) else {
                return Ok(());
            };
            if !counted.handles(attributes.subresource(), attributes.old, object) {
                return Ok(());
            }
            let request = QuotaRequest {
                attributes,
                counted,
                object,
            };
            let quotas = attributes.all("", "resourcequotas", attributes.namespace())?;
            let needed = request.needed(&quotas)?;
            match attributes.is_dry_run() {
                true => Ok(()),
                false => self.take(&request, needed).await,
            }
        })
    }
}

/// A write that is charged.
pub(super) struct QuotaRequest<'a> {
    attributes: &'a Attributes<'a>,
    counted: QuotaEvaluator,
    object: &'a Value,
}

/// The usage of a write in one quota.
pub(super) struct QuotaCharge {
    quota: String,
    delta: Amounts,
}

impl QuotaRequest<'_> {
    /// The usage in each quota, or why the write is rejected.
    fn needed(&self, quotas: &[Value]) -> Result<Vec<QuotaCharge>, Status> {
        let mut interesting = Vec::new();
        let mut covered_names = BTreeSet::new();
        let mut covered_scopes = Vec::new();
        for quota in quotas {
            let selectors = selectors(quota);
            covered_scopes.extend(
                selectors
                    .iter()
                    .filter(|selector| self.counted.is_in(selector, self.object))
                    .cloned(),
            );
            let hard = amounts(&quota["status"]["hard"]);
            let names: Vec<&str> = hard
                .keys()
                .map(String::as_str)
                .filter(|name| self.counted.counts_as(name))
                .collect();
            if names.is_empty()
                || !selectors
                    .iter()
                    .all(|selector| self.counted.is_in(selector, self.object))
            {
                continue;
            }
            self.check_known(quota, &names)?;
            covered_names.extend(names.into_iter().map(String::from));
            interesting.push(quota);
        }
        let usage = self.usage(self.object);
        self.check_negative(&usage)?;
        let delta = self.delta(&usage);
        let needed: Vec<(&Value, Amounts)> = interesting
            .iter()
            .map(|quota| (*quota, self.delta_for(quota, &usage, &delta)))
            .filter(|(_, delta)| !delta.is_empty())
            .collect();
        if needed.is_empty() && (!interesting.is_empty() || delta.is_empty()) {
            return Ok(Vec::new());
        }
        self.check_covered(&covered_names, &covered_scopes)?;
        for (quota, delta) in &needed {
            self.check_fits(quota, delta)?;
        }
        let need = |(quota, mut delta): (&Value, Amounts)| {
            delta.retain(|name, _| quota["status"]["hard"].get(name).is_some());
            let quota = quota["metadata"]["name"].str().to_string();
            QuotaCharge { quota, delta }
        };
        Ok(needed.into_iter().map(need).collect())
    }

    fn usage(&self, object: &Value) -> Amounts {
        self.counted
            .usage(object, self.attributes.call.server.registry.now())
    }

    /// Both the object's usage and the quota's current usage must be known.
    fn check_known(&self, quota: &Value, names: &[&str]) -> Result<(), Status> {
        let name = quota["metadata"]["name"].str();
        if let Some(missing) = self.counted.missing(names, self.object) {
            return Err(self.forbidden(&format!("failed quota: {name}: must specify {missing}")));
        }
        if names
            .iter()
            .any(|resource| quota["status"]["used"].get(resource).is_none())
        {
            let why = format!(
                "status unknown for quota: {name}, resources: {}",
                names.join(",")
            );
            return Err(self.forbidden(&why));
        }
        Ok(())
    }

    fn check_negative(&self, usage: &Amounts) -> Result<(), Status> {
        let negative: Vec<&str> = usage
            .iter()
            .filter(|(_, amount)| amount.is_negative())
            .map(|(name, _)| name.as_str())
            .collect();
        if negative.is_empty() {
            return Ok(());
        }
        Err(self.forbidden(&format!(
            "quota usage is negative for resource(s): {}",
            negative.join(",")
        )))
    }

    /// The increase of the object's usage.
    fn delta(&self, usage: &Amounts) -> Amounts {
        let before = self
            .attributes
            .old
            .map(|old| self.usage(old))
            .unwrap_or_default();
        more_than(usage, &before)
    }

    /// The same for one quota: an object that did not match it before counts in full.
    fn delta_for(&self, quota: &Value, usage: &Amounts, delta: &Amounts) -> Amounts {
        let was_counted = |old: &Value| {
            selectors(quota)
                .iter()
                .all(|selector| self.counted.is_in(selector, old))
        };
        match self.attributes.old.is_none_or(was_counted) {
            true => delta.clone(),
            false => more_than(usage, &Amounts::new()),
        }
    }

    /// Checks that limited resources are covered by a quota.
    fn check_covered(
        &self,
        names: &BTreeSet<String>,
        scopes: &[ScopeSelector],
    ) -> Result<(), Status> {
        let limited = &admission(self.attributes).limited_resources;
        let resource = self.attributes.resource();
        let usage = self.usage(self.object);
        let here = limited.iter().filter(|limited| {
            limited.group == *resource.group && limited.resource == *resource.resource
        });
        let needing = here.flat_map(|limited| {
            let is_limited = |name: &str| {
                limited
                    .containing
                    .iter()
                    .any(|part| name.contains(part.as_str()))
            };
            usage
                .iter()
                .filter(move |(name, amount)| !amount.is_zero() && is_limited(name))
                .map(|(name, _)| name)
        });
        let uncovered: BTreeSet<&str> = needing
            .filter(|name| !names.contains(*name))
            .map(String::as_str)
            .collect();
        if !uncovered.is_empty() {
            let list: Vec<&str> = uncovered.into_iter().collect();
            return Err(self.forbidden(&format!(
                "insufficient quota to consume: {}",
                list.join(",")
            )));
        }
        let wanted = limited
            .iter()
            .flat_map(|limited| limited.scopes.iter().map(ScopeSelector::of));
        let uncovered: Vec<String> = wanted
            .filter(|selector| self.counted.is_in(selector, self.object))
            .filter(|selector| !scopes.iter().any(|covered| covered.scope == selector.scope))
            .map(|selector| selector.to_string())
            .collect();
        if uncovered.is_empty() {
            return Ok(());
        }
        // Kubernetes: this error is no Forbidden (resourcequota/controller.go).
        Err(Status::unknown(format!(
            "insufficient quota to match these scopes: [{}]",
            uncovered.join(" ")
        )))
    }

    /// Checks that the usage fits into a quota.
    fn check_fits(&self, quota: &Value, delta: &Amounts) -> Result<(), Status> {
        if self.attributes.subresource() == "status" {
            return Ok(());
        }
        let (hard, used) = (
            amounts(&quota["status"]["hard"]),
            amounts(&quota["status"]["used"]),
        );
        let is_over = |name: &str, wanted: &Quantity| {
            let used = used.get(name).copied().unwrap_or_default();
            hard.get(name).is_some_and(|hard| used.add(wanted) > *hard)
        };
        let over: Vec<&String> = delta
            .iter()
            .filter(|(name, wanted)| is_over(name, wanted))
            .map(|(name, _)| name)
            .collect();
        if over.is_empty() {
            return Ok(());
        }
        let list = |amounts: &Amounts| {
            let known = over
                .iter()
                .filter_map(|name| Some(format!("{name}={}", amounts.get(*name)?)));
            known.collect::<Vec<_>>().join(",")
        };
        Err(self.forbidden(&format!(
            "exceeded quota: {}, requested: {}, used: {}, limited: {}",
            quota["metadata"]["name"].str(),
            list(delta),
            list(&used),
            list(&hard)
        )))
    }

    fn forbidden(&self, why: &str) -> Status {
        self.attributes.forbidden(self.object, why)
    }
}

/// The positive differences between `amounts` and `before`.
fn more_than(amounts: &Amounts, before: &Amounts) -> Amounts {
    let more = amounts.iter().map(|(name, amount)| {
        let more = before
            .get(name)
            .map_or(*amount, |before| amount.sub(before));
        (name.clone(), more)
    });
    more.filter(|(_, more)| !more.is_zero() && !more.is_negative())
        .collect()
}

/// Adds `delta` to `used`, or subtracts it; never below zero.
fn set_used(quota: &mut Value, delta: &Amounts, give_back: bool) {
    let mut used = amounts(&quota["status"]["used"]);
    match give_back {
        false => add(&mut used, delta),
        true => {
            for (name, amount) in delta {
                let Some(found) = used.get_mut(name) else {
                    continue;
                };
                let rest = found.sub(amount);
                *found = if rest.is_negative() {
                    Quantity::default()
                } else {
                    rest
                };
            }
        }
    }
    for name in delta.keys() {
        if let Some(amount) = used.get(name) {
            quota
                .entry("status")
                .entry("used")
                .set(name, amount.to_string());
        }
    }
}
