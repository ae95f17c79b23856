//! The device requests of a claim.

use mizzen_component_helpers::tolerations::Toleration;
use mizzen_sdk::{Key, Object};
use mizzen_value::{Str, Value};

use super::constraint::DeviceConstraint;
use super::selector::DeviceSelectors;
use crate::devices::Devices;

/// All requests of one claim.
pub(super) struct ClaimRequests {
    /// For each request its subrequests, the preferred first.
    pub requests: Vec<Vec<DeviceRequest>>,
    pub constraints: Vec<DeviceConstraint>,
}

/// One subrequest, or the whole of a request that has none.
pub(super) struct DeviceRequest {
    /// The name of the request, with that of the subrequest.
    pub name: Str,
    pub class: Str,
    pub selectors: DeviceSelectors,
    /// `None` for all devices.
    pub count: Option<usize>,
    pub is_admin: bool,
    pub tolerations: Box<[Toleration]>,
    /// The tolerations as the claim has them.
    pub tolerations_value: Value,
    /// The requested capacity.
    pub capacity: Value,
}

impl ClaimRequests {
    pub(super) fn from_claim(claim: &Object, devices: &Devices) -> Result<ClaimRequests, String> {
        let spec = &claim["spec"]["devices"];
        let claim = claim.key();
        let requests = spec["requests"].list().iter().map(|request| {
            let device_request = |(name, one): (String, &Value)| {
                DeviceRequest::from_request(&name, &claim, one, devices)
            };
            subrequests(request)
                .into_iter()
                .map(device_request)
                .collect()
        });
        let unknown = |at| {
            format!(
                "claim {claim}, constraint #{at}: empty constraint (unsupported constraint type?)"
            )
        };
        let constraints = spec["constraints"].list().iter().enumerate();
        let constraints = constraints
            .map(|(at, one)| DeviceConstraint::from_value(one).ok_or_else(|| unknown(at)));
        Ok(ClaimRequests {
            requests: requests.collect::<Result<_, String>>()?,
            constraints: constraints.collect::<Result<_, _>>()?,
        })
    }
}

impl DeviceRequest {
    fn from_request(
        name: &str,
        claim: &Key,
        request: &Value,
        devices: &Devices,
    ) -> Result<DeviceRequest, String> {
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
        let selectors = DeviceSelectors::compile(of_class.chain(own))?;
        let count = match request["allocationMode"].str() {
            "All" => None,
            _ => Some(request["count"].as_int().unwrap_or(1).max(0) as usize),
        };
        Ok(DeviceRequest {
            name: name.into(),
            class: class.into(),
            selectors,
            count,
            is_admin: request["adminAccess"].bool(),
            tolerations: Toleration::list(&request["tolerations"]),
            tolerations_value: request["tolerations"].clone(),
            capacity: request["capacity"]["requests"].clone(),
        })
    }
}

/// The subrequests of a request with their qualified names, the preferred first.
pub(super) fn subrequests(request: &Value) -> Vec<(String, &Value)> {
    let name = request["name"].str();
    match request["firstAvailable"].list() {
        [] => vec![(name.to_string(), &request["exactly"])],
        several => several
            .iter()
            .map(|one| (format!("{name}/{}", one["name"].str()), one))
            .collect(),
    }
}
