//! JSON Patch (RFC 6902).

mod apply;
mod diff;

use mizzen_value::json::{self, JsonScanner, SyntaxError};
use mizzen_value::{Str, Value};

pub use diff::json_diff;

/// The maximum number of operations of a patch.
const MAX_OPERATIONS: usize = 10_000;

/// Operations, in order.
#[derive(Debug)]
pub struct JsonPatch {
    operations: Vec<PatchOperation>,
    /// The errors of a strict decoder: `json patch unknown field "[0].extra"`.
    pub complaints: Vec<String>,
}

/// Why a patch is invalid or cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum JsonPatchError {
    /// It is not a patch.
    #[error("{0}")]
    Malformed(String),
    /// It has too many operations.
    #[error("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {0}")]
    TooLong(usize),
    /// An operation failed.
    #[error("{0}")]
    Failed(String),
}

impl JsonPatchError {
    /// Whether a `test` found another value, rather than none.
    pub fn is_failed_test(&self) -> bool {
        matches!(self, JsonPatchError::Failed(message) if message.ends_with(": test failed"))
    }
}

#[derive(Debug, Default)]
struct PatchOperation {
    op: Option<Str>,
    path: Option<Str>,
    from: Option<Str>,
    value: Option<Value>,
    /// The value is not in canonical spelling: `"\u00e9"` for `"é"`, `"<"` for `"\u003c"`.
    odd_spelling: bool,
}

impl JsonPatch {
    /// Parses a patch.
    pub fn parse(text: &[u8]) -> Result<JsonPatch, JsonPatchError> {
        let malformed = |error: SyntaxError| JsonPatchError::Malformed(error.to_string());
        // A syntax error takes precedence over a type error.
        let mut whole = JsonScanner::new(text);
        whole
            .peek()
            .and_then(|_| json::skip(&mut whole))
            .and_then(|()| whole.end())
            .map_err(malformed)?;
        let mut reader = PatchReader::default();
        reader
            .patch(&mut JsonScanner::new(text))
            .map_err(malformed)?;
        match reader {
            PatchReader {
                problem: Some(problem),
                ..
            } => Err(JsonPatchError::Malformed(problem)),
            PatchReader { operations, .. } if operations.len() > MAX_OPERATIONS => {
                Err(JsonPatchError::TooLong(operations.len()))
            }
            PatchReader {
                operations,
                complaints,
                ..
            } => Ok(JsonPatch {
                operations,
                complaints,
            }),
        }
    }

    /// Whether it has no operations.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Applies all operations, or returns the error of the first that fails.
    pub fn apply(&self, target: &mut Value) -> Result<(), JsonPatchError> {
        apply::apply(&self.operations, target)
    }
}

#[derive(Default)]
struct PatchReader {
    operations: Vec<PatchOperation>,
    complaints: Vec<String>,
    /// The first type error; Go's message.
    problem: Option<String>,
}

impl PatchReader {
    fn patch(&mut self, scanner: &mut JsonScanner) -> Result<(), SyntaxError> {
        if scanner.peek()? != b'[' {
            let value = json::read(scanner)?;
            self.mismatch(&value, "Go value of type []handlers.jsonPatchOp");
            return Ok(());
        }
        scanner.open_list()?;
        while scanner.item()? {
            let operation = self.operation(scanner)?;
            self.operations.push(operation);
        }
        Ok(())
    }

    fn operation(&mut self, scanner: &mut JsonScanner) -> Result<PatchOperation, SyntaxError> {
        let mut operation = PatchOperation::default();
        if scanner.peek()? != b'{' {
            let value = json::read(scanner)?;
            self.mismatch(&value, "Go value of type handlers.jsonPatchOp");
            return Ok(operation);
        }
        let mut seen = Vec::new();
        scanner.open_map()?;
        while let Some(key) = scanner.key()? {
            self.member(scanner, &key, &mut operation)?;
            if seen.contains(&key) {
                self.complain("duplicate", &key);
            }
            seen.push(key);
        }
        Ok(operation)
    }

    fn member(
        &mut self,
        scanner: &mut JsonScanner,
        key: &str,
        operation: &mut PatchOperation,
    ) -> Result<(), SyntaxError> {
        scanner.peek()?;
        let start = scanner.offset();
        let slot = match key {
            "op" => &mut operation.op,
            "path" => &mut operation.path,
            "from" => &mut operation.from,
            "value" => {
                let value = json::read(scanner)?;
                if let Some(literal) = json::overflow(&value) {
                    let wanted = "Go struct field jsonPatchOp.value of type float64";
                    self.problem.get_or_insert(format!(
                        "json: cannot unmarshal number {literal} into {wanted}"
                    ));
                }
                let compact = compact(scanner.slice(start, scanner.offset()));
                operation.odd_spelling = json::to_string(&value).as_bytes() != compact;
                operation.value = Some(value);
                return Ok(());
            }
            _ => {
                self.complain("unknown", key);
                return json::skip(scanner);
            }
        };
        match json::read(scanner)? {
            Value::String(text) => *slot = Some(text),
            other => self.mismatch(
                &other,
                &format!("Go struct field jsonPatchOp.{key} of type string"),
            ),
        }
        Ok(())
    }

    fn complain(&mut self, what: &str, key: &str) {
        let complaint = format!(
            "json patch {what} field \"[{}].{key}\"",
            self.operations.len()
        );
        if !self.complaints.contains(&complaint) {
            self.complaints.push(complaint);
        }
    }

    fn mismatch(&mut self, found: &Value, wanted: &str) {
        if !found.is_null() {
            let word = found.go_word();
            self.problem
                .get_or_insert(format!("json: cannot unmarshal {word} into {wanted}"));
        }
    }
}

/// JSON text without white space.
fn compact(text: &[u8]) -> Vec<u8> {
    let (mut quoted, mut escaped) = (false, false);
    let mut out = Vec::with_capacity(text.len());
    for &byte in text {
        if quoted || !byte.is_ascii_whitespace() {
            out.push(byte);
        }
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    fn check(target: &str, patch: &str, expect: Expect) {
        let mut value = json::parse(target.as_bytes()).unwrap();
        let outcome = JsonPatch::parse(patch.as_bytes()).and_then(|patch| patch.apply(&mut value));
        let answer = outcome.map_or_else(
            |error| format!("error: {error}"),
            |()| json::to_string(&value),
        );
        expect.assert_eq(&answer);
    }

    #[test]
    fn operations_are_applied() {
        check(
            r#"{"a":[1,2]}"#,
            r#"[{"op":"add","path":"/a/-","value":3}]"#,
            expect![[r#"{"a":[1,2,3]}"#]],
        );
        check(
            r#"{"a":[1,2]}"#,
            r#"[{"op":"add","path":"/a/-1","value":3}]"#,
            expect![[r#"{"a":[1,2,3]}"#]],
        );
        check(
            r#"{"a":[1,2]}"#,
            r#"[{"op":"add","path":"/a/0","value":3}]"#,
            expect![[r#"{"a":[3,1,2]}"#]],
        );
        check(
            r#"{"a":[1,2]}"#,
            r#"[{"op":"remove","path":"/a/-1"}]"#,
            expect![[r#"{"a":[1]}"#]],
        );
        check(
            r#"{"a":[1,2]}"#,
            r#"[{"op":"replace","path":"/a/-2","value":3}]"#,
            expect![[r#"{"a":[3,2]}"#]],
        );
        check(
            r#"{"a":1}"#,
            r#"[{"op":"move","from":"/a","path":"/b"}]"#,
            expect![[r#"{"b":1}"#]],
        );
        check(
            r#"{"a":1}"#,
            r#"[{"op":"copy","from":"/a","path":"/b"}]"#,
            expect![[r#"{"a":1,"b":1}"#]],
        );
        check(
            r#"{"a":1}"#,
            r#"[{"op":"add","path":"/b"}]"#,
            expect![[r#"{"a":1,"b":null}"#]],
        );
        check(
            r#"{"a":1}"#,
            r#"[{"op":"replace","path":"","value":{"c":1,"b":2}}]"#,
            expect![[r#"{"b":2,"c":1}"#]],
        );
    }

    #[test]
    fn pointers_are_escaped_and_their_first_part_is_ignored() {
        check(
            r#"{"a":{"b/c":1}}"#,
            r#"[{"op":"replace","path":"/a/b~1c","value":2},{"op":"add","path":"/a/~01","value":3}]"#,
            expect![[r#"{"a":{"b/c":2,"~1":3}}"#]],
        );
        check(
            r#"{"a":1}"#,
            r#"[{"op":"add","path":"x/b","value":2}]"#,
            expect![[r#"{"a":1,"b":2}"#]],
        );
        check(
            r#"{"a":1}"#,
            r#"[{"op":"add","path":"/","value":2}]"#,
            expect![[r#"{"":2,"a":1}"#]],
        );
    }

    #[test]
    fn missing_members_can_be_replaced_copied_and_tested_for_null() {
        check(
            "{}",
            r#"[{"op":"replace","path":"/a","value":1}]"#,
            expect![[r#"{"a":1}"#]],
        );
        check(
            "{}",
            r#"[{"op":"copy","from":"/a","path":"/b"}]"#,
            expect![[r#"{"b":null}"#]],
        );
        check(
            "{}",
            r#"[{"op":"test","path":"/a","value":null},{"op":"test","path":"/a"}]"#,
            expect!["{}"],
        );
        check(
            "{}",
            r#"[{"op":"test","path":"/a/b","value":null}]"#,
            expect!["error: test operation does not apply: is missing path: /a/b: missing value"],
        );
        check(
            r#"{"a":1}"#,
            r#"[{"op":"test","path":"/a","value":null}]"#,
            expect!["error: testing value /a failed: test failed"],
        );
    }

    #[test]
    fn strings_are_compared_as_they_are_spelled() {
        let target = r#"{"a":"x<é"}"#;
        check(
            target,
            r#"[{"op":"test","path":"/a","value":"x\u003cé"}]"#,
            expect![[r#"{"a":"x\u003cé"}"#]],
        );
        for value in [r#""x<é""#, r#""x\u003c\u00e9""#] {
            check(
                target,
                &format!(r#"[{{"op":"test","path":"/a","value":{value}}}]"#),
                expect!["error: testing value /a failed: test failed"],
            );
        }
        check(
            target,
            r#"[{"op":"add","path":"/b","value":"<"},{"op":"test","path":"/b","value":"<"}]"#,
            expect![[r#"{"a":"x\u003cé","b":"\u003c"}"#]],
        );
        check(
            target,
            r#"[{"op":"add","path":"/b","value":1},{"op":"test","path":"/a","value":"x<é"}]"#,
            expect!["error: testing value /a failed: test failed"],
        );
    }

    #[test]
    fn values_that_do_not_match_are_rejected() {
        for (operation, expect) in [
            (
                r#""op":"remove","path":"/b""#,
                expect![
                    "error: error in remove for path: '/b': Unable to remove nonexistent key: b: missing value"
                ],
            ),
            (
                r#""op":"move","from":"/b","path":"/c""#,
                expect![
                    "error: error in move for path: 'b': Unable to remove nonexistent key: b: missing value"
                ],
            ),
            (
                r#""op":"add","path":"/b/c","value":1"#,
                expect![[
                    r#"error: add operation does not apply: doc is missing path: "/b/c": missing value"#
                ]],
            ),
            (
                r#""op":"add","path":"","value":{}"#,
                expect![[
                    r#"error: add operation does not apply: doc is missing path: "": missing value"#
                ]],
            ),
            (
                r#""op":"add","path":"/a/3","value":1"#,
                expect![
                    "error: error in add for path: '/a/3': Unable to access invalid index: 3: invalid index referenced"
                ],
            ),
            (
                r#""op":"add","path":"/a/x","value":1"#,
                expect![[
                    r#"error: error in add for path: '/a/x': value was not a proper array index: 'x': strconv.Atoi: parsing "x": invalid syntax"#
                ]],
            ),
            (
                r#""op":"replace","path":"/a/2","value":1"#,
                expect![
                    "error: replace operation does not apply: doc is missing key: /a/2: missing value"
                ],
            ),
            (
                r#""op":"replace","path":"","value":1"#,
                expect!["error: replace operation value must be object or array: %!w(<nil>)"],
            ),
            (
                r#""op":"ADD","path":"/b""#,
                expect!["error: Unexpected kind: ADD"],
            ),
            (r#""path":"/b""#, expect!["error: Unexpected kind: unknown"]),
            (
                r#""op":"add""#,
                expect!["error: add operation failed to decode path: missing value"],
            ),
        ] {
            check(r#"{"a":[1,2]}"#, &format!("[{{{operation}}}]"), expect);
        }
    }

    #[test]
    fn copies_may_not_grow_without_bound() {
        let long = format!(
            r#"{{"op":"add","path":"/a","value":"{}"}}"#,
            "x".repeat(1 << 20)
        );
        let copy = r#"{"op":"copy","from":"/a","path":"/b"}"#;
        check(
            "{}",
            &format!("[{long},{copy},{copy},{copy}]"),
            expect![
                "error: Unable to complete the copy, the accumulated size increase of copy is 3145734, exceeding the limit 3145728"
            ],
        );
    }

    #[test]
    fn traversed_maps_are_sorted() {
        check(
            r#"{"b":{"y":{"q":1,"p":2},"x":1},"a":{"d":1,"c":2}}"#,
            r#"[{"op":"test","path":"/b/x","value":1}]"#,
            expect![[r#"{"a":{"d":1,"c":2},"b":{"x":1,"y":{"q":1,"p":2}}}"#]],
        );
        check(
            r#"{"b":{"y":{"q":1,"p":2},"x":1}}"#,
            r#"[{"op":"test","path":"/b","value":{"x":1,"y":{"p":2,"q":1}}}]"#,
            expect![[r#"{"b":{"x":1,"y":{"p":2,"q":1}}}"#]],
        );
        check(
            r#"{"b":1,"a":{"d":1,"c":2}}"#,
            "[]",
            expect![[r#"{"a":{"d":1,"c":2},"b":1}"#]],
        );
    }

    #[test]
    fn replaced_lists_are_not_sorted() {
        check(
            r#"{"a":[{"d":1,"c":2}]}"#,
            r#"[{"op":"move","from":"/a/0","path":"/a"}]"#,
            expect![[r#"{"a":{"d":1,"c":2}}"#]],
        );
        check(
            r#"{"a":{"y":1,"x":2}}"#,
            r#"[{"op":"test","path":"/a/x","value":2},{"op":"replace","path":"/a","value":{"q":1,"p":2}}]"#,
            expect![[r#"{"a":{"q":1,"p":2}}"#]],
        );
        check(
            r#"{"a":{"y":{"n":1,"m":2},"x":2}}"#,
            r#"[{"op":"test","path":"/a/y/m","value":2},{"op":"move","from":"/a","path":"/b"}]"#,
            expect![[r#"{"b":{"x":2,"y":{"m":2,"n":1}}}"#]],
        );
    }

    #[test]
    fn malformed_patches_have_gos_errors() {
        for (patch, expect) in [
            (
                "{}",
                expect![
                    "error: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
                ],
            ),
            (
                "[1]",
                expect![
                    "error: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp"
                ],
            ),
            (
                r#"[{"op":1}]"#,
                expect![
                    "error: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string"
                ],
            ),
            ("[{},", expect!["error: unexpected end of JSON input"]),
            ("null", expect!["{}"]),
            ("[null]", expect!["error: Unexpected kind: unknown"]),
        ] {
            check("{}", patch, expect);
        }
    }

    #[test]
    fn unknown_options_are_reported() {
        let patch = br#"[{"op":"add","op":"add","path":"/a","value":1,"extra":1}]"#;
        assert_eq!(
            JsonPatch::parse(patch).unwrap().complaints,
            [
                r#"json patch duplicate field "[0].op""#,
                r#"json patch unknown field "[0].extra""#
            ]
        );
    }
}
