//! The capacity of a node.

use mizzen_value::quantity::canonical;
use mizzen_value::{Map, Value};

/// The default capacity of a node.
pub(crate) fn default_capacity() -> Value {
    let amounts = [
        ("cpu", "8"),
        ("ephemeral-storage", "100Gi"),
        ("hugepages-1Gi", "0"),
        ("hugepages-2Mi", "0"),
        ("memory", "32Gi"),
        ("pods", "110"),
    ];
    Value::Map(amounts.into_iter().collect::<Map>())
}

/// The default capacity with the changes of a text such as `cpu=4,memory=16Gi`.
pub fn parse_capacity(text: &str) -> Result<Value, String> {
    let mut capacity = default_capacity();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (name, amount) = part
            .split_once('=')
            .ok_or_else(|| format!("{part:?} is not NAME=AMOUNT"))?;
        let amount = canonical(amount.trim())
            .map_err(|_| format!("{amount:?} is not an amount such as 8 or 16Gi"))?;
        capacity.set(name.trim(), amount);
    }
    Ok(capacity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_that_are_not_named_keep_their_default() {
        let capacity = parse_capacity("cpu=4, acme.com/gpu=2").unwrap();
        let amount = |name: &str| capacity[name].str().to_string();
        assert_eq!(
            (amount("cpu"), amount("acme.com/gpu"), amount("pods")),
            ("4".into(), "2".into(), "110".into())
        );
        assert_eq!(parse_capacity("").unwrap(), default_capacity());
    }

    #[test]
    fn invalid_capacities_are_rejected() {
        assert_eq!(
            parse_capacity("cpu"),
            Err("\"cpu\" is not NAME=AMOUNT".into())
        );
        assert_eq!(
            parse_capacity("cpu=much"),
            Err("\"much\" is not an amount such as 8 or 16Gi".into())
        );
    }
}
