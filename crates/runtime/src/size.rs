//! Sizes as people write them.

/// Bytes, from a number with an optional suffix such as `Ki`, `Mi`, `Gi` or `Ti`.
pub fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u64 = match &text[digits.len()..] {
        "" => 1,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        other => return Err(format!("{other:?} is no unit; use Ki, Mi, Gi, Ti or plain bytes")),
    };
    let number: u64 = digits.parse().map_err(|error| format!("{digits:?} is no number of bytes: {error}"))?;
    number.checked_mul(unit).ok_or_else(|| format!("{text} is more than can be counted"))
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn sizes_are_read() {
        assert_eq!(bytes("10Gi"), Ok(10 << 30));
        assert_eq!(bytes("4096"), Ok(4096));
        for bad in ["", "Gi", "1.5Gi", "10GB", "-1", "99999999999Ti"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }
}
