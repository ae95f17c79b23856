//! Evaluation of comprehensions.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Interpreter, Slot};
use crate::planner::{CallPlan, Fold};
use crate::standard;
use crate::value::{Entries, EvalError, MapKey, MapVal, Outcome, Value};

impl<'p, 'a> Interpreter<'p, 'a, '_> {
    pub(super) fn fold(&mut self, fold: &'p Fold) -> Outcome<'a> {
        let range = self.eval(&fold.range)?;
        self.slots[fold.accumulator] = Slot::Late(&fold.init);
        match (range, fold.second) {
            (Value::List(list), None) => self.each(fold, list.iter().map(|item| (item, None)))?,
            (Value::List(list), Some(_)) => {
                let pairs = list.iter().enumerate();
                self.each(
                    fold,
                    pairs.map(|(index, item)| (Ok(Value::Int(index as i64)), Some(item))),
                )?;
            }
            (Value::Map(map), None) => {
                self.each(fold, map.keys().into_iter().map(|key| (Ok(key), None)))?
            }
            (Value::Map(map), Some(_)) => {
                let keys = map.keys().into_iter();
                self.each(
                    fold,
                    keys.map(|key| {
                        let value = map.get(&key);
                        (Ok(key), value)
                    }),
                )?;
            }
            (other, None) => {
                return Err(EvalError::new(format!(
                    "got '{}', expected iterable type",
                    go_type(&other)
                )));
            }
            (other, Some(_)) => {
                let message = format!("unsupported comprehension range type: {}", go_type(&other));
                return Err(EvalError::new(message));
            }
        }
        let result = self.eval(&fold.result);
        self.slots[fold.accumulator] = Slot::Empty;
        result
    }

    fn each(
        &mut self,
        fold: &'p Fold,
        items: impl Iterator<Item = (Outcome<'a>, Option<Outcome<'a>>)>,
    ) -> Result<(), EvalError> {
        for (first, second) in items {
            self.slots[fold.variable] = Slot::Known(first);
            if let (Some(slot), Some(second)) = (fold.second, second) {
                self.slots[slot] = Slot::Known(second);
            }
            if let Ok(Value::Bool(false)) = self.strict(&fold.condition)? {
                return Ok(());
            }
            let next = self.strict(&fold.step)?;
            self.slots[fold.accumulator] = Slot::Known(next);
            if self
                .budget
                .interrupted
                .is_some_and(|flag| flag.load(Ordering::Relaxed))
            {
                return Err(EvalError::Interrupted);
            }
        }
        Ok(())
    }

    /// Appends to the accumulator in place: no other reference exists before the step ends.
    pub(super) fn accumulate(&mut self, slot: usize, call: &'p CallPlan) -> Outcome<'a> {
        let accumulated = self.local(slot);
        self.charge(1)?;
        let mut arguments = Vec::with_capacity(2);
        for argument in &call.arguments[1..] {
            arguments.push(self.strict(argument)?);
        }
        let (mut accumulated, arguments) = match (
            accumulated,
            arguments.into_iter().collect::<Result<Vec<_>, _>>(),
        ) {
            (Ok(accumulated), Ok(arguments)) => (accumulated, arguments),
            (Err(failed), _) | (_, Err(failed)) => {
                self.charge(1)?;
                return Err(failed);
            }
        };
        self.slots[slot] = Slot::Empty;
        self.charge(1)?;
        match (&mut accumulated, &arguments[..]) {
            (Value::List(list), [Value::List(items)]) => {
                items.iter().try_for_each(|item| list.push(item?))?
            }
            (Value::Map(MapVal::Made(map)), [key, value]) => insert(map, key, value)?,
            _ => {
                let arguments: Vec<_> = std::iter::once(accumulated).chain(arguments).collect();
                return super::call(call, &arguments);
            }
        }
        Ok(accumulated)
    }
}

fn insert<'a>(
    map: &mut Arc<Entries<'a>>,
    key: &Value<'a>,
    value: &Value<'a>,
) -> Result<(), EvalError> {
    let entry = MapKey::from_value(key).ok_or_else(EvalError::no_such_overload)?;
    if map.contains_key(&entry) {
        return Err(EvalError::new(format!(
            "insert failed: key {} already exists",
            standard::show(key)
        )));
    }
    Arc::make_mut(map).insert(entry, (key.clone(), value.clone()));
    Ok(())
}

/// The Go name of a value's type.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "types.Null",
        Value::Bool(_) => "types.Bool",
        Value::Int(_) => "types.Int",
        Value::Uint(_) => "types.Uint",
        Value::Double(_) => "types.Double",
        Value::String(_) => "types.String",
        Value::Bytes(_) => "types.Bytes",
        Value::Duration(_) => "types.Duration",
        Value::Timestamp(..) => "types.Timestamp",
        Value::Optional(_) => "*types.Optional",
        _ => "*types.Type",
    }
}
