//! Does one type fit another, and what do the open types have to be for it?

use std::collections::HashMap;

use crate::types::Type;
use mizzen_value::Str;

/// What type parameters were found to stand for.
#[derive(Debug, Clone, Default)]
pub(super) struct Bindings(HashMap<Str, Type>);

impl Bindings {
    /// Whether all of `from` fit `to`; what this tells about parameters is kept only if they do.
    pub(super) fn assign_all(&mut self, from: &[Type], to: &[Type]) -> bool {
        let mut trial = self.clone();
        let fits = trial.fits_all(from, to);
        if fits {
            *self = trial;
        }
        fits
    }

    /// Whether `from` fits `to`.
    pub(super) fn assign(&mut self, from: &Type, to: &Type) -> bool {
        self.assign_all(std::slice::from_ref(from), std::slice::from_ref(to))
    }

    /// Binds a parameter.
    pub(super) fn bind(&mut self, parameter: Str, to: Type) {
        self.0.insert(parameter, to);
    }

    /// The type with every bound parameter replaced; what is not bound becomes `dyn` if `close`.
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
            (Type::Null, other) | (other, Type::Null) => accepts_null(other),
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

    /// Whether the parameter can stand for `other`, and whether it stood for something before.
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

    /// Whether the parameter is a part of the type.
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

fn accepts_null(other: &Type) -> bool {
    matches!(
        other,
        Type::Null
            | Type::Opaque(..)
            | Type::Object(_)
            | Type::Duration
            | Type::Timestamp
            | Type::Nullable(_)
    )
}

/// The one of two types that fit each other that says less.
pub(super) fn most_general(one: &Type, other: &Type) -> Type {
    if says_less(one, other) {
        one.clone()
    } else {
        other.clone()
    }
}

fn says_less(one: &Type, other: &Type) -> bool {
    match (one, other) {
        (Type::Dyn | Type::Any | Type::Parameter(_), _) => true,
        (_, Type::Dyn | Type::Any | Type::Parameter(_)) => false,
        (Type::List(one), Type::List(other)) => says_less(one, other),
        (Type::Map(one), Type::Map(other)) => {
            says_less(&one.0, &other.0) && says_less(&one.1, &other.1)
        }
        (Type::Type(_), Type::Type(_)) => true,
        (Type::Opaque(name, one), Type::Opaque(other_name, other)) => {
            let all = one
                .iter()
                .zip(other.iter())
                .all(|(one, other)| says_less(one, other));
            name == other_name && one.len() == other.len() && all
        }
        _ => one == other,
    }
}
