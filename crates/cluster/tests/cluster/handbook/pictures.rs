//! Do the pictures name crates, files and functions that exist?

use std::fs;

use super::{files, root};

/// The texts of a class in a picture.
fn texts<'a>(picture: &'a str, class: &str) -> Vec<&'a str> {
    let mark = format!("class=\"{class}\"");
    let elements = picture.split("<text ").skip(1);
    let of_class = elements.filter(|element| element.split('>').next().unwrap().contains(&mark));
    let content = of_class.map(|element| element.split('>').nth(1).unwrap());
    content
        .map(|text| text.trim_end_matches("</text"))
        .collect()
}

#[test]
fn pictures_name_files_and_functions_that_exist() {
    let pictures = files(&root().join("docs/pictures"), "svg");
    assert_eq!(pictures.len(), 2, "{pictures:?}");
    for picture in pictures {
        let text = fs::read_to_string(&picture).unwrap();
        for element in ["<title>", "<desc>", "prefers-color-scheme: dark"] {
            assert!(
                text.contains(element),
                "{}: no {element}",
                picture.display()
            );
        }
        let sources = texts(&text, "source");
        assert!(sources.len() >= 8, "{}: {sources:?}", picture.display());
        for source in sources {
            // crate/src/file.rs, or crate/src/file.rs::function
            let (file, function) = source.split_once("::").unwrap_or((source, ""));
            let path = root().join("crates").join(file);
            let code = fs::read_to_string(&path)
                .unwrap_or_else(|error| panic!("{}: {source}: {error}", picture.display()));
            let has_function = code.contains(&format!("fn {function}("))
                || code.contains(&format!("fn {function}<"));
            assert!(
                function.is_empty() || has_function,
                "{}: no {source}",
                picture.display()
            );
        }
    }
}
