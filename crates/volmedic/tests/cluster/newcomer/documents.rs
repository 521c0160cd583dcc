//! What the documents say, in the pieces that a person copies.

/// A section of a page, from its heading to the next of the same rank.
pub(crate) fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no `{heading}`"));
    let rank = format!("\n{} ", heading.split(' ').next().unwrap());
    rest.split(&rank).next().unwrap()
}

/// What stands between ```sh and ```, in order.
pub(crate) fn blocks(text: &str) -> Vec<&str> {
    text.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap().trim_end()).collect()
}

/// The rows of the tables in a text, without their headings, by their cells.
pub(crate) fn rows(text: &str) -> Vec<Vec<&str>> {
    let lines: Vec<&str> = text.lines().collect();
    let is_row = |line: &str| line.starts_with('|') && !line.starts_with("|-");
    let heads = |index: usize| lines.get(index + 1).is_some_and(|next| next.starts_with("|-"));
    let cells = |line: &'_ str| -> Vec<(usize, usize)> {
        let bars: Vec<usize> = line.match_indices('|').map(|(place, _)| place).collect();
        bars.windows(2).map(|pair| (pair[0] + 1, pair[1])).collect()
    };
    let wanted = lines.iter().enumerate().filter(|(index, line)| is_row(line) && !heads(*index));
    wanted
        .map(|(_, line)| cells(line).into_iter().map(|(from, to)| line[from..to].trim()).collect())
        .collect()
}

/// What is set as code in a text.
pub(crate) fn code(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[test]
fn pieces_are_cut_as_a_person_would() {
    let page = "# A\n\n## B\n\nx `y`\n\n```sh\none\ntwo\n```\n\n| h | i |\n|---|---|\n| `a`<br>`b c` | |\n\n## C\n```sh\nno\n```\n";
    let part = section(page, "## B");
    assert_eq!(blocks(part), ["one\ntwo"]);
    let rows = rows(part);
    assert_eq!(rows, [["`a`<br>`b c`", ""]]);
    assert_eq!(code(rows[0][0]), ["a", "b c"]);
}
