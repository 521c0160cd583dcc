//! Rust files that no module includes: they look like code, but are never compiled.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use crate::lex::{self, Token};
use crate::sources::Source;
use crate::workspace::Workspace;

use super::Finding;

pub(super) fn check(workspace: &Workspace, sources: &[Source]) -> Vec<Finding> {
    let rust: BTreeMap<&Path, &Source> = sources
        .iter()
        .filter(|source| source.is_rust())
        .map(|source| (source.path.as_path(), source))
        .collect();
    let mut reached = BTreeSet::new();
    let roots = workspace.packages.iter().flat_map(|package| &package.targets);
    // Each entry is a file and the folder in which its modules' files are.
    let mut open: Vec<(PathBuf, PathBuf)> = roots
        .map(|target| workspace.relative(&target.root).to_path_buf())
        .map(|root| (root.clone(), folder_of(&root)))
        .collect();
    // A file may be both a root and a module, with different folders; each pair is walked once.
    while let Some((file, home)) = open.pop() {
        let Some(source) = rust.get(file.as_path()) else { continue };
        if reached.insert((file.clone(), home.clone())) {
            open.extend(included(&file, &home, &lex::code(&source.text)));
        }
    }
    let files: BTreeSet<&Path> = reached.iter().map(|(file, _)| file.as_path()).collect();
    rust.keys().filter(|path| !files.contains(*path)).map(|path| orphan(path)).collect()
}

fn orphan(path: &Path) -> Finding {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let what = format!("no module includes this file; add `mod {name};` where it belongs or delete it");
    Finding::new(path, 1, what)
}

fn folder_of(file: &Path) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).to_path_buf()
}

/// Every file that `file` may include, with the folder for that file's own modules. Not all need to exist.
fn included(file: &Path, home: &Path, tokens: &[Token]) -> Vec<(PathBuf, PathBuf)> {
    let mut found = Vec::new();
    // One entry per open brace: the folder of modules inside of it, and whether an inline module opened it.
    let mut open: Vec<(PathBuf, bool)> = Vec::new();
    let mut paths: Vec<&str> = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let rest = &tokens[at..];
        let here = open.last().map_or(home, |(folder, _)| folder.as_path());
        if token.is('#') {
            let length = attribute_length(rest);
            paths.extend(path_values(&rest[..length]));
            at += length;
            continue;
        }
        match (module(rest), include_value(rest)) {
            (Some((name, ending)), _) => {
                let inline = open.iter().any(|(_, inline)| *inline);
                // A `#[path]` counts from the file's own folder, unless an inline module is around it.
                let base = if inline { here.to_path_buf() } else { folder_of(file) };
                if ending == ';' {
                    for path in paths.drain(..) {
                        let path = tidy_path(&base.join(path));
                        found.push((path.clone(), folder_of(&path)));
                    }
                    found.push((here.join(format!("{name}.rs")), here.join(name)));
                    found.push((here.join(name).join("mod.rs"), here.join(name)));
                } else {
                    let inside =
                        paths.pop().map_or_else(|| here.join(name), |path| tidy_path(&base.join(path)));
                    open.push((inside, true));
                }
                at += 3;
                paths.clear();
                continue;
            }
            (None, Some(path)) => {
                let path = tidy_path(&folder_of(file).join(path));
                found.push((path.clone(), folder_of(&path)));
            }
            (None, None) if token.is('{') => open.push((here.to_path_buf(), false)),
            (None, None) if token.is('}') => drop(open.pop()),
            (None, None) => {}
        }
        // Between an attribute and its `mod` there is at most a visibility.
        if token.is(';') || token.is('{') || token.is('}') {
            paths.clear();
        }
        at += 1;
    }
    found
}

/// Reads `mod name ;` or `mod name {`.
fn module(tokens: &[Token]) -> Option<(&str, char)> {
    let [keyword, name, ending, ..] = tokens else { return None };
    (keyword.ident() == Some("mod")).then_some(())?;
    let ending = [';', '{'].into_iter().find(|punct| ending.is(*punct))?;
    Some((name.ident()?, ending))
}

/// Reads `include!("path")`.
fn include_value(tokens: &[Token]) -> Option<&str> {
    let [name, bang, _, path, ..] = tokens else { return None };
    (name.ident() == Some("include") && bang.is('!')).then(|| path.text())?
}

/// The number of tokens of an attribute, with its brackets.
fn attribute_length(tokens: &[Token]) -> usize {
    let start = 1 + usize::from(tokens.get(1).is_some_and(|token| token.is('!')));
    if !tokens.get(start).is_some_and(|token| token.is('[')) {
        return 1;
    }
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate().skip(start) {
        depth += usize::from(token.is('['));
        depth -= usize::from(token.is(']'));
        if depth == 0 {
            return index + 1;
        }
    }
    tokens.len()
}

/// The values of `path = "…"`, also inside of `cfg_attr`.
fn path_values(attribute: &[Token]) -> impl Iterator<Item = &str> {
    attribute.windows(3).filter_map(|three| match three {
        [name, equals, value] if name.ident() == Some("path") && equals.is('=') => value.text(),
        _ => None,
    })
}

/// Resolves `.` and `..` by the text alone.
fn tidy_path(path: &Path) -> PathBuf {
    let mut tidy = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                tidy.pop();
            }
            other => tidy.push(other),
        }
    }
    tidy
}

#[cfg(test)]
mod tests {
    use super::super::lines;
    use super::*;
    use crate::tree::Tree;

    /// The files of one package that no module includes, by name.
    fn check_files(entries: &[(&str, &str)]) -> Vec<String> {
        let entries: Vec<(String, &str)> =
            entries.iter().map(|(path, text)| (format!("crates/health/{path}"), *text)).collect();
        let entries: Vec<(&str, &str)> = entries.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let tree = Tree::workspace(&[("volmedic-health", "")], &entries);
        let found = check(&tree.load(), &tree.sources());
        found
            .into_iter()
            .map(|finding| finding.file.strip_prefix("crates/health").unwrap().display().to_string())
            .collect()
    }

    const NONE: [&str; 0] = [];

    #[test]
    fn a_file_that_no_module_includes_is_found_with_what_to_do() {
        let tree = Tree::workspace(&[("volmedic-health", "")], &[("crates/health/src/lost.rs", "")]);
        assert_eq!(
            lines(&check(&tree.load(), &tree.sources())),
            [
                "crates/health/src/lost.rs:1: no module includes this file; add `mod lost;` where it belongs or delete it"
            ]
        );
    }

    #[test]
    fn modules_are_followed_down_both_styles() {
        let found = check_files(&[
            ("src/lib.rs", "pub(crate) mod a;\nmod b;"),
            ("src/a.rs", "mod deep;"),
            ("src/a/deep.rs", "mod er;"),
            ("src/a/deep/er.rs", ""),
            ("src/b/mod.rs", "mod c;"),
            ("src/b/c.rs", ""),
            ("src/deep.rs", ""),
        ]);
        assert_eq!(found, ["src/deep.rs"]);
    }

    #[test]
    fn a_mod_in_a_comment_or_string_includes_nothing() {
        let found = check_files(&[
            (
                "src/lib.rs",
                "// mod a;\n/* mod b; /* */ mod b; */\nconst X: &str = \"mod c;\";\n/// mod d;\nfn f() {}",
            ),
            ("src/a.rs", ""),
            ("src/b.rs", ""),
            ("src/c.rs", ""),
            ("src/d.rs", ""),
        ]);
        assert_eq!(found, ["src/a.rs", "src/b.rs", "src/c.rs", "src/d.rs"]);
    }

    #[test]
    fn tests_benches_examples_programs_and_build_scripts_are_roots() {
        let found = check_files(&[
            ("build.rs", "mod helper;"),
            ("helper.rs", ""),
            ("src/lib.rs", ""),
            ("src/main.rs", "mod args;"),
            ("src/args.rs", ""),
            ("src/bin/two.rs", ""),
            ("tests/one.rs", "mod common;"),
            ("tests/common/mod.rs", "mod server;"),
            ("tests/common/server.rs", ""),
            ("tests/lost/deep.rs", ""),
            ("benches/b.rs", ""),
            ("examples/e.rs", ""),
            ("examples/big/main.rs", "mod part;"),
            ("examples/big/part.rs", ""),
        ]);
        assert_eq!(found, ["tests/lost/deep.rs"]);
    }

    #[test]
    fn inline_modules_shift_the_folder_and_other_braces_do_not() {
        let found = check_files(&[
            ("src/lib.rs", "mod a { fn f() { if true {} } mod b; }\nfn g() {}\nmod c;\nx! { mod d; }"),
            ("src/a/b.rs", ""),
            ("src/b.rs", ""),
            ("src/c.rs", "mod e { mod f; }"),
            ("src/c/e/f.rs", ""),
            ("src/d.rs", ""),
        ]);
        assert_eq!(found, ["src/b.rs"]);
    }

    #[test]
    fn path_attributes_and_include_are_followed() {
        let found = check_files(&[
            (
                "src/lib.rs",
                "#[path = \"else/where.rs\"]\n#[cfg(test)]\npub mod a;\n\
                 #[cfg_attr(unix, path = \"unix.rs\")]\n#[cfg_attr(windows, path = \"./x/../windows.rs\")]\nmod os;\n\
                 include!(\"table.rs\");\nmod z;\n\
                 #[path = \"moved\"]\nmod m { mod n; #[path = \"o.rs\"] mod p; }",
            ),
            ("src/else/where.rs", "mod sub;"),
            ("src/else/sub.rs", ""),
            ("src/unix.rs", ""),
            ("src/windows.rs", ""),
            ("src/table.rs", ""),
            ("src/z.rs", "#[path = \"beside.rs\"] mod beside; mod r#type;"),
            ("src/beside.rs", ""),
            ("src/z/type.rs", ""),
            ("src/moved/n.rs", ""),
            ("src/moved/o.rs", ""),
        ]);
        assert_eq!(found, NONE);
    }

    #[test]
    fn a_path_of_something_else_is_not_a_module_s() {
        let found = check_files(&[
            ("src/lib.rs", "#[derive(Path)]\n#[x(path = \"a.rs\")]\nstruct A;\nmod b;"),
            ("src/a.rs", ""),
            ("src/b.rs", ""),
        ]);
        assert_eq!(found, ["src/a.rs"]);
    }

    #[test]
    fn modules_that_include_each_other_end() {
        let found = check_files(&[("src/lib.rs", "#[path = \"lib.rs\"] mod again;"), ("src/a.rs", "")]);
        assert_eq!(found, ["src/a.rs"]);
    }
}
