//! Mail messages in their wire format (RFC 5322). User-supplied text can add neither headers nor recipients.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// A message to one recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// Address of the recipient, `name@host`.
    pub to: String,
    /// Subject; line breaks become blanks.
    pub subject: String,
    /// Body text.
    pub text: String,
    /// Date of the message, in seconds since 1970.
    pub sent_at_s: u64,
    /// Unique part of the message ID; characters other than letters and digits are dropped.
    pub id: String,
}

/// Returns whether mail can be sent to this address: `name@host` in visible ASCII, without quotes, brackets or lists.
pub fn is_address(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_graphic() && !"<>()[]\\,;:\"".contains(c);
    let parts: Vec<&str> = text.split('@').collect();
    let [name, host] = parts[..] else { return false };
    text.len() <= 254
        && !name.is_empty()
        && name.len() <= 64
        && !host.is_empty()
        && text.chars().all(is_allowed)
        && !host.starts_with(['.', '-'])
        && !host.ends_with(['.', '-'])
}

/// Replaces control characters by blanks and cuts the text to 200 characters.
fn one_line(text: &str) -> String {
    let shown: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(200)
        .collect();
    shown.trim().to_owned()
}

/// Encodes the value of a header: unchanged if it is ASCII, else as encoded words of whole characters (RFC 2047).
fn header_value(text: &str) -> String {
    let text = one_line(text);
    if text.is_ascii() {
        return text;
    }
    let mut words: Vec<String> = vec![String::new()];
    for c in text.chars() {
        if words.last().is_some_and(|word| word.len() + c.len_utf8() > 42) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.push(c);
        }
    }
    let encoded: Vec<String> = words
        .iter()
        .map(|word| format!("=?UTF-8?B?{}?=", STANDARD.encode(word)))
        .collect();
    encoded.join("\r\n ")
}

/// Formats a time as UTC: `Tue, 17 Nov 2026 02:31:47 +0000`.
fn date(at_s: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (days, second) = (at_s / 86_400, at_s % 86_400);
    let weekday = DAYS[(days % 7) as usize];
    // Every 400 years have the same length. Years are counted from March, so that the leap day is the last one.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, year) = match month {
        0..10 => (month + 2, year_of_era + era * 400),
        _ => (month - 10, year_of_era + era * 400 + 1),
    };
    let name = MONTHS[(month % 12) as usize];
    let (h, m, s) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{weekday}, {day:02} {name} {year} {h:02}:{m:02}:{s:02} +0000")
}

impl Mail {
    /// Returns the message with its headers, in lines that end with CRLF.
    pub(crate) fn bytes(&self, from: &str, host: &str) -> Vec<u8> {
        let id: String = self.id.chars().filter(char::is_ascii_alphanumeric).collect();
        let is_plain = self.text.is_ascii() && self.text.lines().all(|line| line.len() < 900);
        let (encoding, body) = match is_plain {
            true => ("7bit", self.text.lines().map(str::to_owned).collect()),
            false => {
                let encoded = STANDARD.encode(&self.text);
                let lines = encoded.as_bytes().chunks(76);
                let lines = lines.map(|line| String::from_utf8_lossy(line).into_owned());
                ("base64", lines.collect::<Vec<String>>())
            }
        };
        let mut lines = vec![
            format!("Date: {}", date(self.sent_at_s)),
            format!("From: {from}"),
            format!("To: {}", self.to),
            format!("Subject: {}", header_value(&self.subject)),
            format!("Message-ID: <{id}@{host}>"),
            "Auto-Submitted: auto-generated".to_owned(),
            "MIME-Version: 1.0".to_owned(),
            "Content-Type: text/plain; charset=utf-8".to_owned(),
            format!("Content-Transfer-Encoding: {encoding}"),
            String::new(),
        ];
        lines.extend(body);
        // Line breaks are removed everywhere except in the subject, whose encoded words may span lines.
        let clean = |line: &String| match line.starts_with("Subject: ") {
            true => line.clone(),
            false => line.replace(['\r', '\n', '\0'], " "),
        };
        let mut text = lines.iter().map(clean).collect::<Vec<_>>().join("\r\n");
        text.push_str("\r\n");
        text.into_bytes()
    }
}

/// Doubles the dot at the beginning of a line and appends the line that ends a message (RFC 5321, 4.5.2).
pub(crate) fn dot_stuffed(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + 16);
    let mut is_line_start = true;
    for byte in message {
        if is_line_start && *byte == b'.' {
            out.push(b'.');
        }
        is_line_start = *byte == b'\n';
        out.push(*byte);
    }
    if !message.ends_with(b"\r\n") {
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b".\r\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mail(subject: &str, text: &str) -> String {
        let mail = Mail {
            to: "ann@example.org".to_owned(),
            subject: subject.to_owned(),
            text: text.to_owned(),
            sent_at_s: 1_794_882_707,
            id: "x<1>\r\n".to_owned(),
        };
        String::from_utf8(mail.bytes("Dovetail <d@example.org>", "example.org")).unwrap()
    }

    #[test]
    fn a_message_has_its_date_id_and_encoded_subject() {
        let text = mail("job 7 has failed", "One.\nTwo.");
        assert!(
            text.starts_with("Date: Tue, 17 Nov 2026 02:31:47 +0000\r\n"),
            "{text}"
        );
        assert!(text.contains("\r\nMessage-ID: <x1@example.org>\r\n"), "{text}");
        assert!(text.ends_with("\r\n\r\nOne.\r\nTwo.\r\n"), "{text}");
        let foreign = mail("Auftrag für Jörg", "Größe");
        assert!(foreign.contains("Subject: =?UTF-8?B?"), "{foreign}");
        assert!(foreign.is_ascii(), "{foreign}");
        assert_eq!(date(0), "Thu, 01 Jan 1970 00:00:00 +0000");
        assert_eq!(date(951_782_400), "Tue, 29 Feb 2000 00:00:00 +0000");
    }

    #[test]
    fn only_plain_addresses_are_accepted() {
        for good in ["a@b", "ann.lee+x@mail.example.org"] {
            assert!(is_address(good), "{good}");
        }
        for bad in [
            "",
            "a",
            "a@",
            "@b",
            "a@b@c",
            "a b@c",
            "a@b\r\nRCPT TO:<x@y>",
            "<a@b>",
            "a@b,c@d",
            "\"a\"@b",
            "a@.b",
            "ä@b",
        ] {
            assert!(!is_address(bad), "{bad}");
        }
    }

    #[test]
    fn a_leading_dot_does_not_end_the_message() {
        assert_eq!(dot_stuffed(b".\r\n..x\r\n"), b"..\r\n...x\r\n.\r\n");
        assert_eq!(dot_stuffed(b"a.b"), b"a.b\r\n.\r\n");
    }

    proptest! {
        #[test]
        fn user_text_adds_no_header_and_does_not_end_the_message(subject in "(.|\r|\n|\u{e9}){0,80}", text in "(.|\r|\n){0,200}") {
            let message = mail(&subject, &text);
            let (head, _) = message.split_once("\r\n\r\n").unwrap();
            let names: Vec<&str> = head
                .split("\r\n")
                .filter(|line| !line.starts_with(' '))
                .map(|line| line.split(':').next().unwrap())
                .collect();
            prop_assert_eq!(names, ["Date", "From", "To", "Subject", "Message-ID", "Auto-Submitted", "MIME-Version",
                "Content-Type", "Content-Transfer-Encoding"]);
            let sent = dot_stuffed(message.as_bytes());
            let ends = sent.windows(5).filter(|w| w == b"\r\n.\r\n").count();
            prop_assert_eq!(ends, 1);
            let rest = message.replace("\r\n", "");
            prop_assert!(!rest.contains(['\r', '\n']));
        }
    }
}
