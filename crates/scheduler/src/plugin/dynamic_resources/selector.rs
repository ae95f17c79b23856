//! Does a device suit an expression?

use mizzen_cel::{Environment, EvalLimits, MapVal, Program, StringVal, Type, Value as CelValue};
use mizzen_value::{Str, Value};

/// The version whose expressions are understood.
const VERSION: (u16, u16) = (1, 36);
/// How much one look at a device may cost.
const BUDGET: EvalLimits<'static> = EvalLimits {
    cost: 1_000_000,
    interrupted: None,
};

/// Expressions that devices must suit.
pub(super) struct Selectors {
    /// Each with who asks for it.
    programs: Vec<(String, Program)>,
    quantity: Program,
    version: Program,
}

impl Selectors {
    /// Compiles the expressions of selectors, each of which comes with who asks for it.
    pub(super) fn of<'a>(
        selectors: impl Iterator<Item = (String, &'a Value)>,
    ) -> Result<Selectors, String> {
        let environment = Environment::new(VERSION).with_variable("device", Type::Dyn);
        let compile = |(asker, selector): (String, &Value)| {
            let program = environment.compile(selector["cel"]["expression"].str());
            let program =
                program.map_err(|error| format!("{asker}: CEL compile error: {error}"))?;
            Ok((asker, program))
        };
        let reader = Environment::new(VERSION).with_variable("text", Type::String);
        let reader = |text| reader.compile(text).map_err(|error| error.to_string());
        Ok(Selectors {
            programs: selectors.map(compile).collect::<Result<_, String>>()?,
            quantity: reader("quantity(text)")?,
            version: reader("semver(text)")?,
        })
    }

    /// Whether a device suits all of them; an error if one of them cannot say.
    pub(super) fn suit(&self, driver: &str, device: &Value) -> Result<bool, String> {
        if self.programs.is_empty() {
            return Ok(true);
        }
        let variables = [("device", self.device(driver, device)?)];
        for (asker, program) in &self.programs {
            let outcome = program.evaluate(&variables, BUDGET).value;
            let outcome = outcome.map_err(|error| error.to_string()).and_then(truth);
            if !outcome.map_err(|error| format!("{asker}: CEL runtime error: {error}"))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn device(&self, driver: &str, device: &Value) -> Result<CelValue<'static>, String> {
        let attributes = by_domain(driver, &device["attributes"], |value| self.attribute(value))?;
        let capacity = by_domain(driver, &device["capacity"], |value| {
            read(&self.quantity, value["value"].str())
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
            Some(version) => read(&self.version, version),
            None => Ok(text(value["string"].str())),
        }
    }
}

/// What a program makes of a text: a value of a type of its own.
fn read(program: &Program, content: &str) -> Result<CelValue<'static>, String> {
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

/// What an expression says of a device; what it says otherwise is an error in cel-go's words.
fn truth(outcome: CelValue) -> Result<bool, String> {
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

/// Names with a domain, or in the driver's, as maps of maps. A domain of which there is nothing is empty.
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
            Selectors::of([("class c: selector #0".to_string(), &selector)].into_iter()).unwrap();
        let device = value!({"attributes": {"text": {"string": "x"}, "number": {"int": 7i64}, "yes": {"bool": true}}});
        let outcome = selectors.suit("d", &device);
        assert_eq!(
            outcome.as_ref().map(|suits| *suits).map_err(String::as_str),
            expected
        );
    }

    #[test]
    fn an_answer_that_is_neither_yes_nor_no_is_an_error() {
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
