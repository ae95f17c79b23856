//! CEL selectors of devices.

use mizzen_cel::{Environment, EvalLimits, MapVal, Program, StringVal, Type, Value as CelValue};
use mizzen_value::{Str, Value};

/// The version of the CEL environment.
const VERSION: (u16, u16) = (1, 36);

/// The cost limit of one evaluation.
const BUDGET: EvalLimits<'static> = EvalLimits {
    cost: 1_000_000,
    interrupted: None,
};

/// CEL expressions that devices must match.
pub(super) struct DeviceSelectors {
    /// Each with its origin, for messages.
    programs: Vec<(String, Program)>,
    quantity: Program,
    version: Program,
}

impl DeviceSelectors {
    /// Compiles the expressions of selectors, each given with its origin.
    pub(super) fn compile<'a>(
        selectors: impl Iterator<Item = (String, &'a Value)>,
    ) -> Result<DeviceSelectors, String> {
        let environment = Environment::new(VERSION).with_variable("device", Type::Dyn);
        let compile = |(asker, selector): (String, &Value)| {
            let program = environment.compile(selector["cel"]["expression"].str());
            let program =
                program.map_err(|error| format!("{asker}: CEL compile error: {error}"))?;
            Ok((asker, program))
        };
        let reader = Environment::new(VERSION).with_variable("text", Type::String);
        let reader = |text| reader.compile(text).map_err(|error| error.to_string());
        Ok(DeviceSelectors {
            programs: selectors.map(compile).collect::<Result<_, String>>()?,
            quantity: reader("quantity(text)")?,
            version: reader("semver(text)")?,
        })
    }

    /// Whether a device matches all selectors.
    pub(super) fn matches(&self, driver: &str, device: &Value) -> Result<bool, String> {
        if self.programs.is_empty() {
            return Ok(true);
        }
        let variables = [("device", self.device(driver, device)?)];
        for (asker, program) in &self.programs {
            let outcome = program.evaluate(&variables, BUDGET).value;
            let outcome = outcome
                .map_err(|error| error.to_string())
                .and_then(as_bool_result);
            if !outcome.map_err(|error| format!("{asker}: CEL runtime error: {error}"))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn device(&self, driver: &str, device: &Value) -> Result<CelValue<'static>, String> {
        let attributes = by_domain(driver, &device["attributes"], |value| self.attribute(value))?;
        let capacity = by_domain(driver, &device["capacity"], |value| {
            parse_with(&self.quantity, value["value"].str())
        })?;
        let fields = [
            (text("driver"), text(driver)),
            (text("attributes"), attributes),
            (text("capacity"), capacity),
            (
                text("allowMultipleAllocations"),
                CelValue::Bool(device["allowMultipleAllocations"].bool()),
            ),
        ];
        map(fields.into())
    }

    fn attribute(&self, value: &Value) -> Result<CelValue<'static>, String> {
        if let Some(truth) = value["bool"].as_bool() {
            return Ok(CelValue::Bool(truth));
        }
        if let Some(number) = value["int"].as_int() {
            return Ok(CelValue::Int(number));
        }
        match value["version"].as_str() {
            Some(version) => parse_with(&self.version, version),
            None => Ok(text(value["string"].str())),
        }
    }
}

/// Evaluates a program that parses a text into an opaque value.
fn parse_with(program: &Program, content: &str) -> Result<CelValue<'static>, String> {
    let variables = [("text", text(content))];
    match program
        .evaluate(&variables, BUDGET)
        .value
        .map_err(|error| error.to_string())?
    {
        CelValue::Opaque(value) => Ok(CelValue::Opaque(value)),
        _ => Err(format!("{content} cannot be read")),
    }
}

/// The boolean result of an expression; any other type is an error in cel-go's words.
fn as_bool_result(outcome: CelValue) -> Result<bool, String> {
    let kind = outcome.type_name();
    outcome.as_bool().ok_or_else(|| {
        let why = match kind.as_str() {
            "string" => "unsupported native conversion from string to 'bool'".to_string(),
            "int" => "unsupported type conversion from 'int' to bool".to_string(),
            _ => format!("type conversion error from '{kind}' to 'bool'"),
        };
        format!("CEL result of type {kind} could not be converted to bool: {why}")
    })
}

fn text(text: &str) -> CelValue<'static> {
    CelValue::String(StringVal::Shared(text.into()))
}

/// Qualified names as maps of maps; unqualified names belong to the driver's domain. A missing
/// domain is empty.
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
    let domains = domains
        .into_iter()
        .map(|(domain, entries)| Ok((text(&domain), map(entries)?)));
    let domains: Vec<_> = domains.collect::<Result<_, String>>()?;
    MapVal::open(domains)
        .map(CelValue::Map)
        .ok_or_else(|| "a key occurs twice".to_string())
}

fn map(entries: Vec<(CelValue<'static>, CelValue<'static>)>) -> Result<CelValue<'static>, String> {
    MapVal::new(entries)
        .map(CelValue::Map)
        .ok_or_else(|| "a key occurs twice".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::value;

    #[track_caller]
    fn check(expression: &str, expected: Result<bool, &str>) {
        let selector = value!({"cel": {"expression": expression}});
        let selectors =
            DeviceSelectors::compile([("class c: selector #0".to_string(), &selector)].into_iter())
                .unwrap();
        let device = value!({"attributes": {"text": {"string": "x"}, "number": {"int": 7i64}, "yes": {"bool": true}}});
        let outcome = selectors.matches("d", &device);
        assert_eq!(
            outcome.as_ref().map(|suits| *suits).map_err(String::as_str),
            expected
        );
    }

    #[test]
    fn a_result_that_is_no_boolean_is_an_error() {
        check("device.attributes['d'].yes", Ok(true));
        check("device.attributes['other'].?yes.orValue(false)", Ok(false));
        let text = "class c: selector #0: CEL runtime error: CEL result of type string could not be converted to bool: \
                    unsupported native conversion from string to 'bool'";
        check("device.attributes['d'].text", Err(text));
        let number = "class c: selector #0: CEL runtime error: CEL result of type int could not be converted to bool: \
                      unsupported type conversion from 'int' to bool";
        check("device.attributes['d'].number", Err(number));
    }
}
