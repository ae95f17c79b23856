//! What does a claim ask for?

use mizzen_kinds::tolerations::Toleration;
use mizzen_sdk::{Key, Object};
use mizzen_value::{Str, Value};

use super::constraint::Constraint;
use super::selector::Selectors;
use crate::devices::Devices;

/// All that one claim asks for.
pub(super) struct Wishes {
    /// For each request the alternatives, the best first.
    pub requests: Vec<Vec<Wish>>,
    pub constraints: Vec<Constraint>,
}

/// One thing that a claim would be content with.
pub(super) struct Wish {
    /// What the claim calls it, with the name of the request to which it is an alternative.
    pub name: Str,
    pub class: Str,
    pub selectors: Selectors,
    /// None for all that there are.
    pub count: Option<usize>,
    pub is_admin: bool,
    pub tolerations: Box<[Toleration]>,
    /// The same as the claim says them.
    pub said_tolerations: Value,
    /// How much of each capacity is asked for.
    pub capacity: Value,
}

impl Wishes {
    pub(super) fn of(claim: &Object, devices: &Devices) -> Result<Wishes, String> {
        let spec = &claim["spec"]["devices"];
        let claim = claim.key();
        let requests = spec["requests"].list().iter().map(|request| {
            let wish = |(name, one): (String, &Value)| Wish::of(&name, &claim, one, devices);
            alternatives(request).into_iter().map(wish).collect()
        });
        let unknown = |at| {
            format!(
                "claim {claim}, constraint #{at}: empty constraint (unsupported constraint type?)"
            )
        };
        let constraints = spec["constraints"].list().iter().enumerate();
        let constraints =
            constraints.map(|(at, one)| Constraint::of(one).ok_or_else(|| unknown(at)));
        Ok(Wishes {
            requests: requests.collect::<Result<_, String>>()?,
            constraints: constraints.collect::<Result<_, _>>()?,
        })
    }
}

impl Wish {
    fn of(name: &str, claim: &Key, request: &Value, devices: &Devices) -> Result<Wish, String> {
        let class = request["deviceClassName"].str();
        let of_class = devices
            .classes
            .get(class)
            .map(|class| class["spec"]["selectors"].clone());
        let of_class = of_class.unwrap_or_default();
        let of_class = of_class.list().iter().enumerate();
        let of_class = of_class.map(|(at, one)| (format!("class {class}: selector #{at}"), one));
        let own = request["selectors"].list().iter().enumerate();
        let own = own.map(|(at, one)| (format!("claim {claim}: selector #{at}"), one));
        let selectors = Selectors::of(of_class.chain(own))?;
        let count = match request["allocationMode"].str() {
            "All" => None,
            _ => Some(request["count"].as_int().unwrap_or(1).max(0) as usize),
        };
        Ok(Wish {
            name: name.into(),
            class: class.into(),
            selectors,
            count,
            is_admin: request["adminAccess"].bool(),
            tolerations: Toleration::list(&request["tolerations"]),
            said_tolerations: request["tolerations"].clone(),
            capacity: request["capacity"]["requests"].clone(),
        })
    }
}

/// What a request would be content with, the best first, each with its name.
pub(super) fn alternatives(request: &Value) -> Vec<(String, &Value)> {
    let name = request["name"].str();
    match request["firstAvailable"].list() {
        [] => vec![(name.to_string(), &request["exactly"])],
        several => several
            .iter()
            .map(|one| (format!("{name}/{}", one["name"].str()), one))
            .collect(),
    }
}
