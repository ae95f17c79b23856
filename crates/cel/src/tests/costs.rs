//! Runtime and estimated costs, with the figures of upstream's tests.

use super::*;
use mizzen_value::json;

/// Rules over `self.val1`, `self.val2`, … of some types, each with its cost
/// (apiextensions-apiserver, schema/cel/celcoststability_test.go).
const COSTS: &str = include_str!("costs.txt");

/// Expressions without variables: the estimate where strings have at most 12 characters, and the
/// cost without constant folding (apiserver, cel/library/cost_test.go).
const ESTIMATES: &str = include_str!("estimates.txt");

fn shape(word: &str) -> DeclType {
    let inside = |prefix: &str| {
        word.strip_prefix(prefix)
            .and_then(|rest| rest.strip_suffix(')'))
            .map(shape)
    };
    let form = match word {
        "bool" => DeclForm::Bool,
        "bytes" => DeclForm::Bytes,
        "date" => DeclForm::Date,
        "date-time" => DeclForm::DateTime,
        "double" => DeclForm::Double,
        "duration" => DeclForm::Duration,
        "int" => DeclForm::Int,
        "string" => DeclForm::String,
        _ => match (inside("list("), inside("set("), inside("map(")) {
            (Some(items), ..) => DeclForm::List(Box::new(items), ListSemantics::Atomic),
            (_, Some(items), _) => DeclForm::List(Box::new(items), ListSemantics::Set),
            (.., Some(values)) => DeclForm::Map(Box::new(values)),
            _ => panic!("no such type: {word}"),
        },
    };
    DeclType::new(form)
}

#[test]
fn runtime_costs_equal_upstream() {
    for group in COSTS.split("## ").skip(1) {
        let (head, rules) = group.split_once('\n').expect("a group has a head");
        let (words, data) = head.split_once('\t').expect("a head has types and data");
        let fields = words
            .split(' ')
            .enumerate()
            .map(|(n, word)| (format!("val{}", n + 1).into(), shape(word)));
        let shape = DeclType::object("Self", fields);
        let data = json::parse(data.as_bytes()).expect("data is JSON");
        let environment = Environment::new(LATEST)
            .with_shape(&shape)
            .with_variable("self", shape.static_type());
        for rule in rules.lines() {
            let (cost, text) = rule.split_once('\t').expect("a rule has a cost");
            let text = text.replace("\\n", "\n");
            let program = environment
                .compile(&text)
                .unwrap_or_else(|error| panic!("{error}"));
            let variables = [("self", Value::shaped(&data, &shape).expect("data fits"))];
            let evaluation = program.evaluate(&variables, PLENTY);
            let value = evaluation.value.map(|value| standard::show(&value));
            assert_eq!(
                (value, evaluation.cost.to_string()),
                (Ok("true".into()), cost.to_owned()),
                "{text}"
            );
        }
    }
}

/// Strings and bytes have at most 12 characters.
struct Twelve;

impl SizeEstimator for Twelve {
    fn size(&self, node: &AstNode) -> Option<CostRange> {
        matches!(node.kind, Type::String | Type::Bytes).then_some(CostRange { min: 0, max: 12 })
    }
}

#[test]
fn estimates_equal_upstream() {
    let environment = Environment::new(LATEST).with_library(library::json_patch());
    for line in ESTIMATES.lines() {
        let [bounds, cost, text] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("three columns: {line}")
        };
        let program = environment
            .compile_with(text, false)
            .unwrap_or_else(|error| panic!("{error}"));
        let range = program.estimate(&Twelve);
        let variables: [(&str, Value); 0] = [];
        let evaluation = program.evaluate(&variables, PLENTY);
        let found = (
            format!("{}..{}", range.min, range.max),
            evaluation.cost.to_string(),
        );
        assert_eq!(found, (bounds.to_owned(), cost.to_owned()), "{text}");
    }
}

#[test]
fn unknown_sizes_have_unbounded_costs() {
    let environment = Environment::new(LATEST).with_variable("list", Type::list(Type::String));
    let program = environment
        .compile("list.all(item, item.matches('a+'))")
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        program.estimate(&UnknownSizes),
        CostRange {
            min: 2,
            max: u64::MAX
        }
    );
}
