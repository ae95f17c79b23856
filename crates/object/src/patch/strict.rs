//! The errors of a strict decoder in a patch: duplicate keys.

use mizzen_value::json::{self, JsonScanner, SyntaxError};

/// Complaints about duplicate keys: `duplicate field "data"`. Invalid JSON has none.
pub fn repeated_keys(text: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let _ = walk(&mut JsonScanner::new(text), &mut String::new(), &mut found);
    found
}

fn walk(
    scanner: &mut JsonScanner,
    path: &mut String,
    found: &mut Vec<String>,
) -> Result<(), SyntaxError> {
    let length = path.len();
    match scanner.peek()? {
        b'{' => {
            scanner.open_map()?;
            let mut seen = std::collections::HashSet::new();
            while let Some(key) = scanner.key()? {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(&key);
                if !seen.insert(key) {
                    let complaint = format!("duplicate field {}", json::quote(path));
                    if !found.contains(&complaint) {
                        found.push(complaint);
                    }
                }
                walk(scanner, path, found)?;
                path.truncate(length);
            }
        }
        b'[' => {
            scanner.open_list()?;
            let mut index = 0;
            while scanner.item()? {
                path.push_str(&format!("[{index}]"));
                walk(scanner, path, found)?;
                path.truncate(length);
                index += 1;
            }
        }
        _ => json::skip(scanner)?,
    }
    Ok(())
}
