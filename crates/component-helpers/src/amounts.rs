//! Resource amounts by resource name.

use std::collections::BTreeMap;

use mizzen_value::Value;
use mizzen_value::quantity::{Quantity, QuantityFormat};

/// Amounts by the name of what they are of.
pub type Amounts = BTreeMap<String, Quantity>;

/// Reads a list of amounts, such as a container's requests.
pub fn amounts(list: &Value) -> Amounts {
    list.entries()
        .map(|(name, amount)| (name.to_string(), quantity(amount)))
        .collect()
}

/// Reads one amount; zero if there is none. Files and tests may have numbers.
pub fn quantity(amount: &Value) -> Quantity {
    match amount {
        Value::Int(amount) => Quantity::from_int(*amount, QuantityFormat::Decimal),
        amount => Quantity::parse_or_zero(amount.str()),
    }
}

/// Adds `more` to `total`.
pub fn add(total: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = total.get(name).map_or(*amount, |found| found.add(amount));
        total.insert(name.clone(), sum);
    }
}

/// Raises `total` to what `other` has where that is more.
pub fn raise(total: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let most = total
            .get(name)
            .map_or(*amount, |found| (*found).max(*amount));
        total.insert(name.clone(), most);
    }
}
