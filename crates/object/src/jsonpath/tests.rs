use super::*;
use mizzen_value::json;

const STORE: &str = r#"{"name":"jsonpath","book":[{"category":"reference","author":"Nigel","price":8.95},
    {"category":"fiction","author":"Evelyn","price":12.5,"isbn":"0-553"},{"category":"fiction","author":"Herman","price":8.99}],
    "bicycle":[{"color":"red","price":20,"new":true},{"color":"green","price":21}],
    "labels":{"a.b/c":"dotted","plain":"p"},"empty":[],"null":null,"employees":[{"name":"a","age":3},{"name":"b","age":7}]}"#;

#[track_caller]
fn check(template: &str, expected: &str) {
    let value = json::parse(STORE.as_bytes()).unwrap();
    let outcome = Template::parse(template).and_then(|template| template.execute(&value));
    assert_eq!(
        outcome.unwrap_or_else(|error| format!("error: {error}")),
        expected,
        "{template}"
    );
}

#[test]
fn paths_lead_to_values() {
    check("plain", "plain");
    check("name: {.name}!", "name: jsonpath!");
    check("{$.book[0].author}", "Nigel");
    check("{.book[*].author}", "Nigel Evelyn Herman");
    check("{.book[1:].author}", "Evelyn Herman");
    check("{.book[:2].author}", "Nigel Evelyn");
    check("{.book[0:3:2].author}", "Nigel Herman");
    check("{.book[-1].author}", "Herman");
    check("{.book[-2:].author}", "Evelyn Herman");
    check("{.book[0,2].author}", "Nigel Herman");
    check("{.bicycle[0]['color','price']}", "red 20");
    check("{.labels.a\\.b/c}", "dotted");
    check("{.labels['a\\.b/c']}", "dotted");
    check("{..color}", "red green");
    check("{.labels.*}", "dotted p");
    check("{.labels}", r#"{"a.b/c":"dotted","plain":"p"}"#);
    check("{.book[0].price}", "8.95");
    check("{.null}", "<no value>");
    check("{.nothing.at.all}", "");
    check("{.book[0:0].author}", "");
}

#[test]
fn filters_select_items() {
    check(
        r#"{.book[?(@.category=="fiction")].author}"#,
        "Evelyn Herman",
    );
    check("{.book[?(@.isbn)].author}", "Evelyn");
    check("{.book[?(@.price<9.0)].author}", "Nigel Herman");
    check("{.bicycle[?(@.price>=21)].color}", "green");
    check("{.bicycle[?(@.new==true)].color}", "red");
    check(r#"{.bicycle[?(@.color!="red")].color}"#, "green");
    check("{.bicycle[?(@.price==20)].color}", "red");
    check(
        r#"{.labels[?(@=="p")]}"#,
        "error: {\"a.b/c\":\"dotted\",\"plain\":\"p\"} is not array or slice and cannot be filtered",
    );
    check(r#"{.employees[?(@.name==")")].age}"#, "");
}

#[test]
fn ranges_repeat_what_is_inside() {
    check(
        "{range .employees[*]}{.name}={.age};{end} done",
        "a=3;b=7; done",
    );
    check("{range .empty[*]}{.name}{end}.", ".");
    check(r#"{range .bicycle[*]}{.color}{"\n"}{end}"#, "red\ngreen\n");
}

#[test]
fn violations_are_reported() {
    check("{.book", "error: unclosed action");
    check("{.book[0}", "error: unterminated array");
    check("{.book[?(@.price}", "error: unterminated filter");
    check("{.book[a]}", "error: invalid array index a");
    check(
        "{.book[9]}",
        "error: array index out of bounds: index 9, length 3",
    );
    check("{.name[0]}", "error: string is not array or slice");
    check("{....book}", "error: invalid multiple recursive descent");
    check(
        "{.book[?(@.price>\"x\")]}",
        "error: incompatible types for comparison",
    );
    check("{unknown}", "error: unrecognized identifier unknown");
    check("{%}", "error: unrecognized character in action: U+0025 '%'");
    check("{\"open}", "error: unterminated quoted string");
}
