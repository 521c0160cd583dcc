//! What a page owes to people who do not see it, or see it badly.

use crate::chrome::Chrome;

/// Everything about the structure that a screen reader would stumble over, one sentence each.
const STRUCTURE: &str = r#"(() => {
  const found = [];
  const all = (selector) => Array.from(document.querySelectorAll(selector));
  if (!document.documentElement.lang) found.push("the document names no language");
  if (all("h1").length !== 1) found.push(all("h1").length + " headings of the first order");
  let last = 1;
  for (const heading of all("h1, h2, h3, h4")) {
    const level = Number(heading.tagName[1]);
    if (level > last + 1) found.push("heading skips a level: " + heading.textContent);
    last = level;
  }
  for (const cell of all("th")) if (!cell.scope) found.push("a head of no scope: " + cell.textContent);
  for (const table of all("table")) if (!table.caption) found.push("a table without a caption");
  for (const field of all("input:not([type=hidden]), select")) if (field.labels.length === 0) found.push("a field without a label: " + field.name);
  for (const place of ["header", "main", "footer", "nav"]) if (!document.querySelector(place)) found.push("no " + place);
  for (const mark of all(".badge")) if (!/[a-z]{4}/i.test(mark.textContent)) found.push("a colour without a word: " + mark.textContent);
  if (!document.querySelector("[aria-live=polite]")) found.push("nothing says what changed");
  if (!document.querySelector("[role=status]")) found.push("nothing says whether it is live");
  const ids = all("[id]").map((one) => one.id);
  if (new Set(ids).size !== ids.length) found.push("an id comes twice: " + ids);
  for (const one of all("[aria-labelledby]")) for (const id of one.getAttribute("aria-labelledby").split(" ")) if (!document.getElementById(id)) found.push("no element of id " + id);
  return found;
})()"#;

/// Text that stands out less from its ground than 4.5 to 1 (3 to 1 where it is large), as WCAG 2 counts it.
const CONTRAST: &str = r#"(() => {
  const parse = (text) => {
    const parts = (text.match(/-?[\d.]+(e-?\d+)?/g) || []).map(Number);
    const scale = text.startsWith("color(") ? 255 : 1;
    return { c: parts.slice(0, 3).map((part) => part * scale), a: parts.length > 3 ? parts[3] : 1 };
  };
  const over = (front, back) => front.c.map((part, index) => part * front.a + back[index] * (1 - front.a));
  const light = (color) => {
    const [r, g, b] = color.map((part) => part / 255).map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const layer = parse(getComputedStyle(at).backgroundColor);
      if (layer.a > 0) layers.push(layer);
      if (layer.a === 1) break;
    }
    return layers.reverse().reduce((back, layer) => over(layer, back), [255, 255, 255]);
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = Array.from(element.childNodes).some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || element.closest("svg") || element.closest(".hidden, .skip") || element.tagName === "OPTION" || !element.getClientRects().length) continue;
    const style = getComputedStyle(element), back = ground(element);
    const [a, b] = [light(over(parse(style.color), back)), light(back)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) found.push(ratio.toFixed(2) + " " + element.tagName + "." + element.className + ": " + element.textContent.trim().slice(0, 40));
  }
  return found;
})()"#;

/// Checks the page as it is now, in both colour schemes and from a wide screen to a phone.
pub(crate) fn assert_accessible(chrome: &mut Chrome, what: &str) {
    assert_eq!(chrome.nameless_controls(), Vec::<String>::new(), "{what}");
    // Rows that just came glow for a moment; that is not what is judged here.
    chrome.eval("document.querySelectorAll('.fresh').forEach((row) => row.classList.remove('fresh'))");
    assert_eq!(chrome.eval(STRUCTURE), serde_json::json!([]), "{what}");
    for scheme in ["dark", "light"] {
        chrome.emulate(390, 900, scheme);
        chrome.wait("document.documentElement.scrollWidth <= window.innerWidth");
        assert_eq!(chrome.eval(CONTRAST), serde_json::json!([]), "{what}, {scheme}, on a phone");
        chrome.emulate(1400, 900, scheme);
        chrome.wait("document.documentElement.scrollWidth <= window.innerWidth");
        assert_eq!(chrome.eval(CONTRAST), serde_json::json!([]), "{what}, {scheme}");
    }
}

/// Pictures of the page in light, in dark and on a phone.
pub(crate) fn pictures(chrome: &mut Chrome, name: &str) {
    chrome.eval("document.activeElement.blur(); window.scrollTo(0, 0)");
    for (scheme, width, height, kind) in
        [("dark", 1400, 1000, "dark"), ("light", 390, 1000, "phone"), ("light", 1400, 1000, "light")]
    {
        chrome.emulate(width, height, scheme);
        chrome.wait("document.documentElement.scrollWidth <= window.innerWidth");
        let file = chrome.screenshot(&format!("{name}-{kind}"));
        assert!(file.metadata().is_ok_and(|file| file.len() > 10_000), "{} shows nothing", file.display());
    }
}

/// Nothing was complained about, and nothing was asked of anybody else.
pub(crate) fn assert_clean(chrome: &mut Chrome, url: &str) {
    assert_eq!(chrome.problems(), Vec::<String>::new());
    let strange: Vec<String> =
        chrome.requests().into_iter().filter(|asked| !asked.starts_with(url)).collect();
    assert_eq!(strange, Vec::<String>::new(), "requests that leave the page");
    assert!(chrome.requests().len() > 3, "the style sheet, the script and the changes were asked for");
}
