//! What an image in a prompt may be: the agent passes on whatever it is given, and the model's provider then refuses the
//! whole conversation, again and again.

/// The types that the providers of models take.
const TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// How much of an image tells its type, in bytes.
const HEAD: usize = 12;

/// What is wrong with an image's fields, for people.
pub(super) fn faults(
    media_type: Option<&str>,
    data: Option<&str>,
    most_bytes: usize,
) -> Vec<(&'static str, String)> {
    let mut faults = Vec::new();
    let media_type = media_type.filter(|name| TYPES.contains(name));
    if media_type.is_none() {
        faults.push(("mimeType", format!("must be one of {}", TYPES.join(", "))));
    }
    match data.and_then(|data| Some((data, decoded_bytes(data)?))) {
        None => faults.push(("data", "must be base64".to_owned())),
        Some((_, bytes)) if bytes > most_bytes => {
            faults.push(("data", format!("must not have more than {most_bytes} bytes (limits.image_bytes)")));
        }
        Some((data, _)) => {
            let found = type_of(&head(data));
            if let Some(stated) = media_type
                && found != Some(stated)
            {
                let found = found.unwrap_or("none of the types that are taken");
                faults.push(("data", format!("must be {stated}, but is {found} by its first bytes")));
            }
        }
    }
    faults
}

/// How many bytes base64 stands for (RFC 4648, section 4, with its padding). `None`: it is none, or empty.
fn decoded_bytes(data: &str) -> Option<usize> {
    let digits = data.trim_end_matches('=');
    let padding = data.len() - digits.len();
    let is_base64 = !digits.is_empty()
        && data.len().is_multiple_of(4)
        && padding <= 2
        && digits.bytes().all(|byte| value_of(byte).is_some());
    is_base64.then(|| data.len() / 4 * 3 - padding)
}

/// The first bytes that base64 stands for.
fn head(data: &str) -> Vec<u8> {
    let (mut head, mut bits, mut waiting) = (Vec::with_capacity(HEAD), 0_u32, 0_u32);
    for value in data.bytes().map_while(value_of) {
        (bits, waiting) = ((bits << 6 | u32::from(value)) & 0xfff, waiting + 6);
        if waiting >= 8 {
            waiting -= 8;
            head.push((bits >> waiting & 0xff) as u8);
        }
        if head.len() == HEAD {
            break;
        }
    }
    head
}

fn value_of(digit: u8) -> Option<u8> {
    match digit {
        b'A'..=b'Z' => Some(digit - b'A'),
        b'a'..=b'z' => Some(digit - b'a' + 26),
        b'0'..=b'9' => Some(digit - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

/// The type that an image's first bytes say.
fn type_of(head: &[u8]) -> Option<&'static str> {
    match head {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &str = "iVBORw0KGgo=";
    const JPEG: &str = "/9j/4AAQ";
    const GIF: &str = "R0lGODlhAQABAA==";
    const WEBP: &str = "UklGRhIAAABXRUJQ";

    fn fields(media_type: &str, data: &str) -> Vec<&'static str> {
        faults(Some(media_type), Some(data), 12).into_iter().map(|(field, _)| field).collect()
    }

    #[test]
    fn an_image_is_of_the_type_that_it_says() {
        for (media_type, data) in
            [("image/png", PNG), ("image/jpeg", JPEG), ("image/gif", GIF), ("image/webp", WEBP)]
        {
            assert!(fields(media_type, data).is_empty(), "{media_type}");
            for other in TYPES.into_iter().filter(|other| *other != media_type) {
                assert_eq!(fields(other, data), ["data"], "{media_type} as {other}");
            }
        }
        // "hi", a WAV file (RIFF too), and a picture of an unknown kind.
        for data in ["aGk=", "UklGRhIAAABXQVZF", "Qk1GAAAA"] {
            assert_eq!(fields("image/png", data), ["data"], "{data}");
            assert_eq!(fields("image/webp", data), ["data"], "{data}");
        }
    }

    #[test]
    fn other_types_are_refused() {
        for media_type in ["image/svg+xml", "image/bmp", "image/jpg", "IMAGE/PNG", "image/", "text/plain", ""]
        {
            assert_eq!(fields(media_type, PNG), ["mimeType"], "{media_type:?}");
        }
        assert_eq!(faults(None, None, 12).len(), 2);
    }

    #[test]
    fn image_data_is_base64() {
        for data in ["", "=", "====", "aGk", "a===", "!!!notbase64", "aGk= ", "aG=k", "iVBORw0KGgo\n"] {
            assert_eq!(fields("image/png", data), ["data"], "{data:?}");
        }
    }

    #[test]
    fn an_image_has_so_many_bytes() {
        let exactly = format!("{WEBP}AAAA");
        assert!(faults(Some("image/webp"), Some(&exactly), 15).is_empty());
        let faults = faults(Some("image/webp"), Some(&exactly), 14);
        assert!(faults[0].1.contains("limits.image_bytes"), "{faults:?}");
        assert_eq!(
            [decoded_bytes("aGk="), decoded_bytes("aA=="), decoded_bytes("aGkh")],
            [Some(2), Some(1), Some(3)]
        );
    }

    #[test]
    fn the_head_is_what_base64_stands_for() {
        assert_eq!(head("aGkh"), b"hi!");
        assert_eq!(head("aGk="), b"hi");
        assert_eq!(head("YWJjZGVmZ2hpamtsbW5vcA=="), b"abcdefghijkl");
    }
}
