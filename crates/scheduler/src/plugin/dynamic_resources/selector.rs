//! Does a device suit an expression?

use mizzen_object::cel::{Budget, Environment, Map, Program, Text, Type, Value as CelValue};
use mizzen_object::{Str, Value};

/// The version whose expressions are understood.
const VERSION: (u16, u16) = (1, 36);
/// How much one look at a device may cost.
const BUDGET: Budget<'static> = Budget { cost: 1_000_000, interrupted: None };

/// Expressions that devices must suit.
pub(super) struct Selectors {
    programs: Vec<Program>,
    quantity: Program,
}

impl Selectors {
    /// Compiles the expressions of selectors.
    pub fn of<'a>(selectors: impl Iterator<Item = &'a Value>) -> Result<Selectors, String> {
        let environment = Environment::new(VERSION).with_variable("device", Type::Dyn);
        let compile = |selector: &Value| {
            environment.compile(selector["cel"]["expression"].str()).map_err(|error| error.to_string())
        };
        let quantity =
            Environment::new(VERSION).with_variable("text", Type::String).compile("quantity(text)");
        Ok(Selectors {
            programs: selectors.map(compile).collect::<Result<_, _>>()?,
            quantity: quantity.map_err(|error| error.to_string())?,
        })
    }

    /// Whether a device suits all of them; an error if one of them cannot say.
    pub fn suit(&self, driver: &str, device: &Value) -> Result<bool, String> {
        if self.programs.is_empty() {
            return Ok(true);
        }
        let variables = [("device", self.device(driver, device)?)];
        for program in &self.programs {
            let outcome = program.evaluate(&variables, BUDGET).value.map_err(|error| error.to_string())?;
            if outcome.as_bool() != Some(true) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn device(&self, driver: &str, device: &Value) -> Result<CelValue<'static>, String> {
        let attributes = by_domain(driver, &device["attributes"], |value| Ok(attribute(value)))?;
        let capacity = by_domain(driver, &device["capacity"], |value| self.amount(value["value"].str()))?;
        let fields = [
            (text("driver"), text(driver)),
            (text("attributes"), attributes),
            (text("capacity"), capacity),
            (text("allowMultipleAllocations"), CelValue::Bool(device["allowMultipleAllocations"].bool())),
        ];
        map(fields.into())
    }

    fn amount(&self, amount: &str) -> Result<CelValue<'static>, String> {
        let variables = [("text", text(amount))];
        match self.quantity.evaluate(&variables, BUDGET).value.map_err(|error| error.to_string())? {
            CelValue::Opaque(quantity) => Ok(CelValue::Opaque(quantity)),
            _ => Err(format!("{amount} is no quantity")),
        }
    }
}

fn text(text: &str) -> CelValue<'static> {
    CelValue::String(Text::Shared(text.into()))
}

fn attribute(value: &Value) -> CelValue<'static> {
    if let Some(truth) = value["bool"].as_bool() {
        return CelValue::Bool(truth);
    }
    if let Some(number) = value["int"].as_int() {
        return CelValue::Int(number);
    }
    text(value["string"].as_str().unwrap_or_else(|| value["version"].str()))
}

/// Names with a domain, or in the driver's, as maps of maps.
fn by_domain(
    driver: &str,
    members: &Value,
    read: impl Fn(&Value) -> Result<CelValue<'static>, String>,
) -> Result<CelValue<'static>, String> {
    let mut domains: Vec<(Str, Vec<(CelValue<'static>, CelValue<'static>)>)> = Vec::new();
    for (name, value) in members.entries() {
        let (domain, name) = name.split_once('/').unwrap_or((driver, name));
        let entry = (text(name), read(value)?);
        match domains.iter_mut().find(|(known, _)| known == domain) {
            Some((_, entries)) => entries.push(entry),
            None => domains.push((domain.into(), vec![entry])),
        }
    }
    let domains = domains.into_iter().map(|(domain, entries)| Ok((text(&domain), map(entries)?)));
    map(domains.collect::<Result<_, String>>()?)
}

fn map(entries: Vec<(CelValue<'static>, CelValue<'static>)>) -> Result<CelValue<'static>, String> {
    Map::new(entries).map(CelValue::Map).ok_or_else(|| "a key occurs twice".to_string())
}
