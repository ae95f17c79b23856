//! The standard macros.

use crate::ast::{ACCUMULATOR, Comprehension, Expr, ExprKind, Literal, Select};
use crate::function::{ExprFactory, Macro, MacroError, MacroExpander};
use mizzen_value::Str;

/// The macros of every environment.
pub(crate) fn standard() -> Vec<Macro> {
    vec![
        Macro {
            name: "has",
            member: false,
            arity: Some(1),
            expand: has,
        },
        member("all", 2, all),
        member("exists", 2, exists),
        member("exists_one", 2, exists_one),
        member("existsOne", 2, exists_one),
        member("map", 2, map),
        member("map", 3, map),
        member("filter", 2, filter),
    ]
}

/// The macros with two iteration variables.
pub(crate) fn two_variables() -> Vec<Macro> {
    vec![
        member("all", 3, all),
        member("exists", 3, exists),
        member("existsOne", 3, exists_one),
        member("exists_one", 3, exists_one),
        member("transformList", 3, transform_list),
        member("transformList", 4, transform_list),
        member("transformMap", 3, transform_map),
        member("transformMap", 4, transform_map),
        member("transformMapEntry", 3, transform_map_entry),
        member("transformMapEntry", 4, transform_map_entry),
    ]
}

/// The macros for optional values.
pub(crate) fn optional() -> Vec<Macro> {
    vec![
        member("optMap", 2, |make, target, arguments| {
            opt_map(make, target, arguments, "optMap")
        }),
        member("optFlatMap", 2, |make, target, arguments| {
            opt_map(make, target, arguments, "optFlatMap")
        }),
    ]
}

/// `cel.bind(name, value, expression)` (cel-go's ext.Bindings, version 0).
pub(crate) fn bindings() -> Macro {
    member("bind", 3, bind)
}

fn member(name: &'static str, arity: usize, expand: MacroExpander) -> Macro {
    Macro {
        name,
        member: true,
        arity: Some(arity),
        expand,
    }
}

type Expanded = Result<Option<Expr>, MacroError>;

fn has(make: &mut dyn ExprFactory, _: Option<&Expr>, arguments: &[Expr]) -> Expanded {
    match &arguments[0].kind {
        ExprKind::Select(select) if !select.test => {
            let test = Select {
                test: true,
                ..(**select).clone()
            };
            Ok(Some(make.node(ExprKind::Select(Box::new(test)))))
        }
        _ => Err(MacroError::new(
            &arguments[0],
            "invalid argument to has() macro",
        )),
    }
}

fn all(make: &mut dyn ExprFactory, target: Option<&Expr>, arguments: &[Expr]) -> Expanded {
    let mut it = ComprehensionBuilder::new(
        target,
        arguments,
        arguments.len() - 1,
        "argument must be a simple name",
    )?;
    it.init = make.literal(Literal::Bool(true));
    let accumulator = make.accumulator();
    it.condition = make.call("@not_strictly_false", vec![accumulator]);
    let accumulator = make.accumulator();
    it.step = make.call("_&&_", vec![accumulator, it.body(0)]);
    it.result = make.accumulator();
    Ok(Some(it.finish(make)))
}

fn exists(make: &mut dyn ExprFactory, target: Option<&Expr>, arguments: &[Expr]) -> Expanded {
    let mut it = ComprehensionBuilder::new(
        target,
        arguments,
        arguments.len() - 1,
        "argument must be a simple name",
    )?;
    it.init = make.literal(Literal::Bool(false));
    let accumulator = make.accumulator();
    let not = make.call("!_", vec![accumulator]);
    it.condition = make.call("@not_strictly_false", vec![not]);
    let accumulator = make.accumulator();
    it.step = make.call("_||_", vec![accumulator, it.body(0)]);
    it.result = make.accumulator();
    Ok(Some(it.finish(make)))
}

fn exists_one(make: &mut dyn ExprFactory, target: Option<&Expr>, arguments: &[Expr]) -> Expanded {
    let mut it = ComprehensionBuilder::new(
        target,
        arguments,
        arguments.len() - 1,
        "argument must be a simple name",
    )?;
    it.init = make.literal(Literal::Int(0));
    it.condition = make.literal(Literal::Bool(true));
    let (accumulator, one) = (make.accumulator(), make.literal(Literal::Int(1)));
    let more = make.call("_+_", vec![accumulator, one]);
    let accumulator = make.accumulator();
    it.step = make.call("_?_:_", vec![it.body(0), more, accumulator]);
    let (accumulator, one) = (make.accumulator(), make.literal(Literal::Int(1)));
    it.result = make.call("_==_", vec![accumulator, one]);
    Ok(Some(it.finish(make)))
}

fn map(make: &mut dyn ExprFactory, target: Option<&Expr>, arguments: &[Expr]) -> Expanded {
    let it = ComprehensionBuilder::new(target, arguments, 1, "argument is not an identifier")?;
    let item = it.body(it.bodies.len() - 1);
    Ok(Some(it.collect(make, item)))
}

fn filter(make: &mut dyn ExprFactory, target: Option<&Expr>, arguments: &[Expr]) -> Expanded {
    let mut it = ComprehensionBuilder::new(target, arguments, 1, "argument is not an identifier")?;
    it.bodies.push(arguments[0].clone());
    Ok(Some(it.collect(make, arguments[0].clone())))
}

fn transform_list(
    make: &mut dyn ExprFactory,
    target: Option<&Expr>,
    arguments: &[Expr],
) -> Expanded {
    let it = ComprehensionBuilder::new(target, arguments, 2, "argument must be a simple name")?;
    let item = it.body(it.bodies.len() - 1);
    Ok(Some(it.collect(make, item)))
}

fn transform_map(
    make: &mut dyn ExprFactory,
    target: Option<&Expr>,
    arguments: &[Expr],
) -> Expanded {
    let it = ComprehensionBuilder::new(target, arguments, 2, "argument must be a simple name")?;
    let (accumulator, key) = (make.accumulator(), make.ident(&it.variable.clone()));
    let step = make.call(
        "cel.@mapInsert",
        vec![accumulator, key, it.body(it.bodies.len() - 1)],
    );
    Ok(Some(it.insert(make, step)))
}

fn transform_map_entry(
    make: &mut dyn ExprFactory,
    target: Option<&Expr>,
    arguments: &[Expr],
) -> Expanded {
    let it = ComprehensionBuilder::new(target, arguments, 2, "argument must be a simple name")?;
    let accumulator = make.accumulator();
    let step = make.call(
        "cel.@mapInsert",
        vec![accumulator, it.body(it.bodies.len() - 1)],
    );
    Ok(Some(it.insert(make, step)))
}

fn opt_map(
    make: &mut dyn ExprFactory,
    target: Option<&Expr>,
    arguments: &[Expr],
    name: &str,
) -> Expanded {
    let message = format!("{name}() variable name must be a simple identifier");
    let bound = bind_value(make, target, arguments, &message)?;
    let value = match name {
        "optMap" => make.call("optional.of", vec![bound]),
        _ => bound,
    };
    Ok(Some(when_present(make, target, value)))
}

fn when_present(make: &mut dyn ExprFactory, target: Option<&Expr>, then: Expr) -> Expr {
    let condition = make.member_call("hasValue", target.expect("a member").clone(), Vec::new());
    let none = make.call("optional.none", Vec::new());
    make.call("_?_:_", vec![condition, then, none])
}

fn bind(make: &mut dyn ExprFactory, target: Option<&Expr>, arguments: &[Expr]) -> Expanded {
    let is_namespace = target
        .and_then(Expr::as_ident)
        .is_some_and(|name| name == "cel");
    if !is_namespace {
        return Ok(None);
    }
    let message = "cel.bind() variable names must be simple identifiers";
    let name = arguments[0]
        .as_ident()
        .ok_or_else(|| MacroError::new(&arguments[0], message))?;
    Ok(Some(named(
        make,
        name,
        arguments[1].clone(),
        arguments[2].clone(),
    )))
}

/// Binds the value of the target to a name.
fn bind_value(
    make: &mut dyn ExprFactory,
    target: Option<&Expr>,
    arguments: &[Expr],
    message: &str,
) -> Result<Expr, MacroError> {
    let name = arguments[0]
        .as_ident()
        .ok_or_else(|| MacroError::new(&arguments[0], message))?;
    let target = make.copy(target.expect("a member"));
    let value = make.member_call("value", target, Vec::new());
    Ok(named(make, name, value, arguments[1].clone()))
}

/// A comprehension over an empty list that binds a value to a name.
fn named(make: &mut dyn ExprFactory, name: &Str, value: Expr, result: Expr) -> Expr {
    let bound = Comprehension {
        range: make.list(Vec::new()),
        variable: "#unused".into(),
        second: None,
        accumulator: name.clone(),
        init: value,
        condition: make.literal(Literal::Bool(false)),
        step: make.ident(name),
        result,
    };
    make.comprehension(bound)
}

struct ComprehensionBuilder {
    range: Expr,
    variable: Str,
    second: Option<Str>,
    /// The arguments after the variables.
    bodies: Vec<Expr>,
    init: Expr,
    condition: Expr,
    step: Expr,
    result: Expr,
}

impl ComprehensionBuilder {
    /// The first `n_names` arguments are variables.
    fn new(
        target: Option<&Expr>,
        arguments: &[Expr],
        n_names: usize,
        message: &str,
    ) -> Result<ComprehensionBuilder, MacroError> {
        let (names, bodies) = arguments.split_at(n_names);
        let name = |expr: &Expr| {
            expr.as_ident()
                .cloned()
                .ok_or_else(|| MacroError::new(expr, message))
        };
        let variable = name(&names[0])?;
        let second = names.get(1).map(name).transpose()?;
        if second.as_ref() == Some(&variable) {
            return Err(MacroError::new(
                &names[1],
                format!("duplicate variable name: {variable}"),
            ));
        }
        let reserved = |name: &Str| name == ACCUMULATOR || name == "__result__";
        let taken = names
            .iter()
            .zip([Some(&variable), second.as_ref()])
            .find(|(_, name)| name.is_some_and(reserved));
        if let Some((expr, _)) = taken {
            return Err(MacroError::new(
                expr,
                "iteration variable overwrites accumulator variable",
            ));
        }
        let nothing = || Expr {
            id: 0,
            kind: ExprKind::Literal(Literal::Null),
        };
        Ok(ComprehensionBuilder {
            range: target.expect("a member").clone(),
            variable,
            second,
            bodies: bodies.to_vec(),
            init: nothing(),
            condition: nothing(),
            step: nothing(),
            result: nothing(),
        })
    }

    fn body(&self, index: usize) -> Expr {
        self.bodies[index].clone()
    }

    /// Accumulates a list; of two bodies the first is a condition.
    fn collect(mut self, make: &mut dyn ExprFactory, item: Expr) -> Expr {
        self.init = make.list(Vec::new());
        let (accumulator, items) = (make.accumulator(), make.list(vec![item]));
        let step = make.call("_+_", vec![accumulator, items]);
        self.filtered(make, step)
    }

    fn insert(mut self, make: &mut dyn ExprFactory, step: Expr) -> Expr {
        self.init = make.node(ExprKind::Map(Vec::new()));
        self.filtered(make, step)
    }

    fn filtered(mut self, make: &mut dyn ExprFactory, step: Expr) -> Expr {
        self.condition = make.literal(Literal::Bool(true));
        self.step = match self.bodies.len() {
            1 => step,
            _ => {
                let accumulator = make.accumulator();
                make.call("_?_:_", vec![self.body(0), step, accumulator])
            }
        };
        self.result = make.accumulator();
        self.finish(make)
    }

    fn finish(self, make: &mut dyn ExprFactory) -> Expr {
        make.comprehension(Comprehension {
            range: self.range,
            variable: self.variable,
            second: self.second,
            accumulator: ACCUMULATOR.into(),
            init: self.init,
            condition: self.condition,
            step: self.step,
            result: self.result,
        })
    }
}
