//! Type substitutions: assignability of types, and the inference of type parameters.

use std::collections::HashMap;

use crate::types::Type;
use mizzen_value::Str;

/// The types that type parameters were bound to.
#[derive(Debug, Clone, Default)]
pub(super) struct Substitutions(HashMap<Str, Type>);

impl Substitutions {
    /// Whether all of `from` are assignable to `to`; bindings are kept only if they are.
    pub(super) fn assign_all(&mut self, from: &[Type], to: &[Type]) -> bool {
        let mut trial = self.clone();
        let fits = trial.fits_all(from, to);
        if fits {
            *self = trial;
        }
        fits
    }

    /// Whether `from` is assignable to `to`.
    pub(super) fn assign(&mut self, from: &Type, to: &Type) -> bool {
        self.assign_all(std::slice::from_ref(from), std::slice::from_ref(to))
    }

    pub(super) fn bind(&mut self, parameter: Str, to: Type) {
        self.0.insert(parameter, to);
    }

    /// The type with every bound parameter substituted; unbound ones become `dyn` if `close`.
    pub(super) fn resolve(&self, of: &Type, close: bool) -> Type {
        match of {
            Type::Parameter(name) => match self.0.get(name) {
                Some(bound) => self.resolve(bound, close),
                None if close => Type::Dyn,
                None => of.clone(),
            },
            Type::List(items) => Type::list(self.resolve(items, close)),
            Type::Map(pair) => {
                Type::map(self.resolve(&pair.0, close), self.resolve(&pair.1, close))
            }
            Type::Type(inner) => Type::type_of(self.resolve(inner, close)),
            Type::Opaque(name, parameters) if !parameters.is_empty() => {
                let parameters = parameters
                    .iter()
                    .map(|parameter| self.resolve(parameter, close));
                Type::Opaque(name.clone(), parameters.collect())
            }
            _ => of.clone(),
        }
    }

    fn fits_all(&mut self, from: &[Type], to: &[Type]) -> bool {
        from.len() == to.len() && from.iter().zip(to).all(|(from, to)| self.fits(from, to))
    }

    fn fits(&mut self, from: &Type, to: &Type) -> bool {
        if let Type::Parameter(name) = to {
            match self.substitute(from, name, to) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if let Type::Parameter(name) = from {
            return self.substitute(to, name, from).0;
        }
        match (from, to) {
            _ if from.is_dyn_or_error() || to.is_dyn_or_error() => true,
            (Type::Null, other) | (other, Type::Null) => other.accepts_null(),
            (Type::List(from), Type::List(to)) => self.fits(from, to),
            (Type::Map(from), Type::Map(to)) => {
                self.fits(&from.0, &to.0) && self.fits(&from.1, &to.1)
            }
            (Type::Type(_), Type::Type(_)) => true,
            (Type::Opaque(name, from), Type::Opaque(other, to)) => {
                name == other && self.fits_all(from, to)
            }
            (_, Type::Nullable(inner)) => from == to || *from == **inner,
            _ => from == to,
        }
    }

    /// Whether the parameter can be bound to `other`, and whether it was bound before.
    fn substitute(&mut self, other: &Type, name: &Str, parameter: &Type) -> (bool, bool) {
        if other == parameter {
            return (true, true);
        }
        if let Some(bound) = self.0.get(name).cloned() {
            if *other == bound {
                return (true, true);
            }
            if !self.fits(other, &bound) {
                return (false, true);
            }
            let general = most_general(other, &bound);
            if !self.occurs(parameter, &general) {
                self.0.insert(name.clone(), general);
            }
            return (true, true);
        }
        if self.occurs(parameter, other) {
            return (false, false);
        }
        self.0.insert(name.clone(), other.clone());
        (true, false)
    }

    /// Whether the parameter occurs in the type.
    fn occurs(&self, parameter: &Type, within: &Type) -> bool {
        match within {
            _ if parameter == within => true,
            Type::Parameter(name) => self
                .0
                .get(name)
                .is_some_and(|bound| self.occurs(parameter, bound)),
            _ => within
                .parameters()
                .into_iter()
                .any(|part| self.occurs(parameter, part)),
        }
    }
}

/// The less specific of two assignable types.
pub(super) fn most_general(one: &Type, other: &Type) -> Type {
    if is_less_specific(one, other) {
        one.clone()
    } else {
        other.clone()
    }
}

fn is_less_specific(one: &Type, other: &Type) -> bool {
    match (one, other) {
        (Type::Dyn | Type::Any | Type::Parameter(_), _) => true,
        (_, Type::Dyn | Type::Any | Type::Parameter(_)) => false,
        (Type::List(one), Type::List(other)) => is_less_specific(one, other),
        (Type::Map(one), Type::Map(other)) => {
            is_less_specific(&one.0, &other.0) && is_less_specific(&one.1, &other.1)
        }
        (Type::Type(_), Type::Type(_)) => true,
        (Type::Opaque(name, one), Type::Opaque(other_name, other)) => {
            let all = one
                .iter()
                .zip(other.iter())
                .all(|(one, other)| is_less_specific(one, other));
            name == other_name && one.len() == other.len() && all
        }
        _ => one == other,
    }
}
