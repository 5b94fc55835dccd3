//! Kubernetes quantities: `500m`, `4Gi`, `1e3`.

/// Parses a quantity in thousandths, rounded up.
fn milli(text: &str) -> Option<i128> {
    let text = text.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-' || c == '+'));
    let (number, suffix) = text.split_at(split.unwrap_or(text.len()));
    let (scale_up, scale_down): (i128, i128) = match suffix {
        "" => (1_000, 1),
        "n" => (1, 1_000_000),
        "u" => (1, 1_000),
        "m" => (1, 1),
        "k" => (1_000_000, 1),
        "M" => (1_000_000_000, 1),
        "G" => (1_000_000_000_000, 1),
        "T" => (1_000_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000_000, 1),
        "E" => (1_000_000_000_000_000_000_000, 1),
        "Ki" => (1_000 << 10, 1),
        "Mi" => (1_000 << 20, 1),
        "Gi" => (1_000 << 30, 1),
        "Ti" => (1_000 << 40, 1),
        "Pi" => (1_000 << 50, 1),
        "Ei" => (1_000 << 60, 1),
        power if power.starts_with(['e', 'E']) => {
            let exponent: i32 = power[1..].parse().ok()?;
            match exponent {
                0..=18 => (1_000 * 10_i128.pow(exponent.unsigned_abs()), 1),
                -18..0 => (1_000, 10_i128.pow(exponent.unsigned_abs())),
                _ => return None,
            }
        }
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.len() > 18 {
        return None;
    }
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let scaled = digits.checked_mul(scale_up)?;
    let divisor = scale_down.checked_mul(10_i128.pow(fraction.len() as u32))?;
    // Rounded up, as in Kubernetes, so that no request becomes 0.
    Some(-(-scaled).div_euclid(divisor))
}

/// Parses an amount of CPU, in milli-cores.
pub fn cpu_milli(text: &str) -> Option<u32> {
    u32::try_from(milli(text)?).ok()
}

/// Parses an amount of memory, in MiB, rounded up.
pub fn memory_mib(text: &str) -> Option<u64> {
    let mib = 1_000_i128 << 20;
    let amount = milli(text)?;
    u64::try_from(amount.div_euclid(mib) + i128::from(amount.rem_euclid(mib) > 0)).ok()
}

/// Parses a whole number, such as a number of GPUs.
pub fn whole(text: &str) -> Option<u32> {
    let amount = milli(text)?;
    if amount % 1_000 != 0 {
        return None;
    }
    u32::try_from(amount / 1_000).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantities_are_parsed_as_in_kubernetes() {
        assert_eq!(cpu_milli("2"), Some(2000));
        assert_eq!(cpu_milli("500m"), Some(500));
        assert_eq!(cpu_milli("0.1"), Some(100));
        assert_eq!(cpu_milli("1.5"), Some(1500));
        assert_eq!(cpu_milli("100n"), Some(1));
        assert_eq!(cpu_milli("1e3"), Some(1_000_000));
        assert_eq!(memory_mib("4Gi"), Some(4096));
        assert_eq!(memory_mib("128974848"), Some(123));
        assert_eq!(memory_mib("129M"), Some(124));
        assert_eq!(memory_mib("1"), Some(1));
        assert_eq!(whole("8"), Some(8));
        assert_eq!(whole("8000m"), Some(8));
    }

    #[test]
    fn invalid_quantities_are_refused() {
        for text in ["", "x", "1x", "m", "-1", "1.2.3", "1e99", "--1", "0.5.", "1Zi"] {
            assert_eq!(cpu_milli(text), None, "{text}");
        }
        assert_eq!(whole("0.5"), None);
        assert_eq!(whole("500m"), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,40}") {
            let _ = (cpu_milli(&text), memory_mib(&text), whole(&text));
        }

        #[test]
        fn milli_cores_round_trip(milli in 0_u32..10_000_000) {
            prop_assert_eq!(cpu_milli(&format!("{milli}m")), Some(milli));
        }
    }
}
